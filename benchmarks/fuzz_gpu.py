"""Random programs, programs with gradients and networks on a GPU, through ``opmill.compile`` in each of its modes, against eager there and
float64 on a processor: results of four calls, strides, shared memory, written inputs, gradients, statistics; and that what an earlier call
gave is not written by a later one.

usage: fuzz_gpu.py [KIND...] [--seed 0] [--count 200] [--jobs 8] [--seconds 500] [--only SEED] [--mode MODE] [--device cuda] [--output FOLDER]

KIND: programs, gradients, networks (by default all, each with ``--count`` seeds). A seed's mode is drawn with it. Seeds run in ``--jobs``
processes; one that ends (an illegal access ends a process's use of the device) is told with the seed that it was at, and another goes on
behind it. Where opmill is not installed it runs from the sources.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import from_sources
from processes import telling

HERE = Path(__file__).resolve()
MODES = ("default", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
KINDS = ("programs", "gradients", "networks")
CALLS = 4
LATE_S = 120.0
FORGET = 40
"""Programs, after which what was compiled is forgotten."""
_MAKES = re.compile(r"torch\.(arange|ones|eye|linspace|tensor)\(([^()]*)\)")
"""Calls that would make tensors on a processor."""


def placed(tensors: Sequence[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Copies on the device that share memory and require grad as the originals do."""
    from random_graphs import copied

    return [made.requires_grad_(t.requires_grad) for made, t in zip(copied(list(tensors), device=device), tensors, strict=True)]


def there(source: str, device: str) -> str:
    """A program that makes its own tensors on the device."""
    return _MAKES.sub(rf'torch.\1(\2, device="{device}")', source)


def read(tensors: Sequence[Any]) -> list[Any]:
    return [t if t is None else t.detach().cpu() for t in tensors]


def mode_of(seed: int) -> str:
    return random.Random(f"mode {seed}").choice(MODES)


# --- programs -------------------------------------------------------------------------------------------------------------------


def programs(seed: int, mode: str, device: str) -> tuple[str, str, str]:
    """Kind of the verdict, what is wrong, and the program."""
    from fuzz_graphs import exactly, judged
    from random_graphs import random_program

    plain = random_program(seed)
    with torch.no_grad():
        function, theirs = dataclasses.replace(plain, source=there(plain.source, device)).function(), placed(plain.inputs, device)
        try:
            want = function(*theirs)
        except (RuntimeError, NotImplementedError) as error:
            return "skipped", str(error).splitlines()[0][:80], plain.source
        expected = read(want), read(theirs)
        exact = exactly(plain, plain.inputs)
        compiled = _compiled(function, mode)
        kept: list[tuple[Any, Any]] = []
        for call in range(CALLS):
            ours = placed(plain.inputs, device)
            _mark(mode)
            got = compiled(*ours)
            if not call and (problem := _layouts(got, want, ours, theirs)):
                return "wrong", problem, plain.source
            if problem := judged(plain, plain.inputs, (read(got), read(ours)), expected, exact):
                return "wrong", f"call {call}: {problem}", plain.source
            if problem := _overwritten(kept, mode):
                return "wrong", f"call {call}: {problem}", plain.source
            kept.append((got, read(got)))
    return "right", "", plain.source


def gradients(seed: int, mode: str, device: str) -> tuple[str, str, str]:
    """The same with gradients of the inputs."""
    import fuzz_training as training
    from random_graphs import random_program

    plain = random_program(seed)
    function = dataclasses.replace(plain, source=there(plain.source, device)).function()
    try:
        want, slopes = training.trained(function, placed(training.inputs_of(plain), device))
        exact, exact_slopes = training.trained(plain.function(torch.float64), training.inputs_of(plain, torch.float64))
    except RuntimeError as error:
        return "skipped", str(error).splitlines()[0][:80], plain.source
    compiled = _compiled(function, mode)
    spread: list[list[torch.Tensor | None]] = []
    for call in range(CALLS):
        _mark(mode)
        got, mine = training.trained(compiled, placed(training.inputs_of(plain), device))
        for name, gs, ws, es in (("output", got, want, exact), ("gradient", mine, slopes, exact_slopes)):
            for k, (g, w, e) in enumerate(zip(gs, ws, es, strict=True)):
                if (g is None) != (w is None):
                    return "wrong", f"{name} {k}: {g is None} for {w is None}", plain.source
                if g is None or w is None:
                    continue
                if name == "output" and g.requires_grad != w.requires_grad:
                    return "wrong", f"output {k}: requires_grad {g.requires_grad}", plain.source
                if (g.dtype, g.shape) != (w.dtype, w.shape):
                    return "wrong", f"{name} {k}: {g.dtype} {list(g.shape)} for {w.dtype} {list(w.shape)}", plain.source
                if _far(g, w, e):
                    spread = spread or _spread(plain)
                    settled = [run[k + (len(want) if name == "gradient" else 0)] for run in spread]
                    if not _within(g, w, settled):
                        return "wrong", f"call {call}: {name} {k}: {_shown(g)} for {_shown(w)}, exactly {_shown(e)}", plain.source
    return "right", "", plain.source


def _spread(plain: Any) -> list[list[torch.Tensor | None]]:
    """Runs on a processor on inputs that are moved by a rounding."""
    import fuzz_training as training
    from shaken import moved

    found = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        inputs = training.inputs_of(plain)
        with torch.no_grad():
            for x in {x.untyped_storage()._cdata: x for x in inputs}.values():
                whole = torch.empty(0, dtype=x.dtype).set_(x.detach().untyped_storage())
                whole.copy_(moved(whole, generator))
        results, slopes = training.trained(plain.function(), inputs)
        found.append([*results, *slopes])
    return found


def _far(g: torch.Tensor, w: torch.Tensor, exact: torch.Tensor | None) -> bool:
    from fuzz_graphs import unlike

    rough = torch.bfloat16 if w.is_floating_point() and torch.finfo(w.dtype).bits < 64 else w.dtype  # of what it passed through
    cpu = None if exact is None or exact.shape != w.shape else exact.detach().cpu()
    return bool(unlike(g.detach().cpu(), w.detach().cpu(), rough, cpu))


def _within(g: torch.Tensor, w: torch.Tensor, others: Sequence[torch.Tensor | None]) -> bool:
    mine, eager = g.detach().cpu(), w.detach().cpu()
    wide = torch.complex128 if eager.is_complex() else torch.float64
    runs = torch.stack([o.detach().to(wide) for o in others if o is not None])
    unsure = ~runs.isfinite().all(0)
    near = (mine.to(wide) - eager.to(wide)).abs() <= 10 * (runs - eager.to(wide)).abs().amax(0)
    return bool((unsure | near | (mine == eager) | (mine.isnan() & eager.isnan())).all())


def _shown(x: torch.Tensor | None) -> str:
    return "none" if x is None else str(x.detach().flatten()[:6].tolist())


# --- networks -------------------------------------------------------------------------------------------------------------------


def networks(seed: int, mode: str, device: str) -> tuple[str, str, str]:
    """Results, gradients and buffers of a network after two steps in eager and compiled."""
    from fuzz_graphs import meant_strides
    from fuzz_networks import distance
    from random_networks import random_network

    network = random_network(seed)
    moved = dataclasses.replace(network, source=there(network.source, device))
    eager, exact = moved.module().to(device), network.module(torch.float64)
    try:
        want = [_stepped(network, eager, eager, device) for _ in range(CALLS)]
        right = [_stepped(network, exact, exact, "cpu", torch.float64) for _ in range(CALLS)]
    except RuntimeError as error:
        return "skipped", str(error).splitlines()[0][:80], network.source
    module = moved.module().to(device)
    compiled = _compiled(module, mode)
    nudged: list[dict[str, torch.Tensor]] = []
    for call in range(CALLS):
        _mark(mode)
        got = _stepped(network, compiled, module, device)
        if got.keys() != want[call].keys():
            return "wrong", f"call {call}: {sorted(got.keys() ^ want[call].keys())} come only once", network.source
        for name, w in want[call].items():
            g, e = got[name], right[call][name]
            if (g.dtype, g.shape) != (w.dtype, w.shape) or (name.startswith("output") and meant_strides(g) != meant_strides(w)):
                return "wrong", f"{name}: {g.dtype} {list(g.shape)} {g.stride()} for {w.dtype} {w.stride()}", network.source
            if not w.is_floating_point():
                if not torch.equal(g, w):
                    return "wrong", f"{name}: {_shown(g)} for {_shown(w)}", network.source
                continue
            scale = float(e.abs().max()) if e.numel() else 0.0
            slack = 3e-5 * (scale + 0.01) + 5 * distance(w, e)
            if not distance(g, e) <= slack:
                nudged = nudged or [_nudged(network, k, call) for k in range(4)]
                slack += 5 * max(distance(n[name], e) for n in nudged)
                if not distance(g, e) <= slack:
                    return "wrong", f"call {call}: {name}: off by {distance(g, e):.2g} of {scale:.2g}, allowed {slack:.2g}", network.source
    return "right", "", network.source


def _nudged(network: Any, k: int, call: int) -> dict[str, torch.Tensor]:
    module = network.module()
    for _ in range(call + 1):
        found = _stepped(network, module, module, "cpu", nudge=k + 1)
    return found


def _stepped(
    network: Any, call: Any, module: torch.nn.Module, device: str, dtype: torch.dtype = torch.float32, nudge: int = 0
) -> dict[str, torch.Tensor]:
    import fuzz_networks
    from fuzz_training import weighted

    inputs = placed(fuzz_networks.inputs_of(network, dtype, nudge), device)
    for p in module.parameters():
        p.grad = None
    half = torch.autocast(device, torch.bfloat16, enabled=network.autocast and dtype is torch.float32)
    torch.manual_seed(1)
    with torch.set_grad_enabled(network.grad), half:
        results = call(*inputs)
    found = {f"output {k}": r.detach() for k, r in enumerate(results)}
    parts = [r for r in results if r.requires_grad]
    if parts:
        weighted(parts).backward()
        leaves = [*((f"input {k}", x) for k, x in enumerate(inputs)), *module.named_parameters()]
        found |= {f"gradient of {name}": x.grad for name, x in leaves if x.grad is not None}
    found |= {f"buffer {name}": b for name, b in module.named_buffers()}
    return {name: t.detach().cpu().clone(memory_format=torch.preserve_format) for name, t in found.items()}


# --- what all share -------------------------------------------------------------------------------------------------------------


def _compiled(function: Any, mode: str) -> Any:
    import opmill

    return opmill.compile(function, mode=mode, dynamic=False)


def _mark(mode: str) -> None:
    if mode in ("reduce-overhead", "max-autotune"):
        torch.compiler.cudagraph_mark_step_begin()


def _layouts(got: Any, want: Any, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> str:
    from fuzz_graphs import _layout

    return next((f"output {k}: {p}" for k, (g, w) in enumerate(zip(got, want, strict=True)) if (p := _layout(g, w, ours, theirs))), "")


def _overwritten(kept: list[tuple[Any, Any]], mode: str) -> str:
    """What of earlier results has changed. Those of recorded graphs live until the next step begins, as torch.compile's do."""
    if mode in ("reduce-overhead", "max-autotune"):
        return ""
    for got, was in kept:
        for k, (now, then) in enumerate(zip(read(got), was, strict=True)):
            if not torch.equal(
                now.nan_to_num() if now.is_floating_point() else now, then.nan_to_num() if then.is_floating_point() else then
            ):
                return f"output {k} of an earlier call has changed"
    return ""


def child(kind: str, seeds: Sequence[int], mode: str, device: str, channel: int) -> None:
    """Judges seed after seed; a line of JSON before each, and one with what it came to."""
    import opmill

    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = False  # whose results have ten bits
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_num_threads(1)
    with os.fdopen(channel, "w") as out:
        for n, seed in enumerate(seeds):
            print(json.dumps(["at", seed]), file=out, flush=True)
            drawn = mode or mode_of(seed)
            try:
                found = globals()[kind](seed, drawn, device)
                if device == "cuda":
                    torch.cuda.synchronize()
            except Exception as error:
                found = "crash", "".join(traceback.format_exception(error, limit=-6)), ""
            print(json.dumps([*found[:2], found[2] if found[0] != "right" else "", drawn]), file=out, flush=True)
            if n % FORGET == FORGET - 1:
                opmill.reset()


def judge(kind: str, seeds: Sequence[int], options: argparse.Namespace, environment: dict[str, str], end: float) -> list[list[Any]]:
    """[seed, kind of the verdict, what is wrong, program, mode] of each."""
    rows, left = [], list(seeds)
    while left and time.monotonic() < end:
        arguments = [kind, "--mode", options.mode, "--device", options.device, "--seeds", *map(str, left)]
        with telling(lambda w, a=arguments: ([sys.executable, str(HERE), "--channel", str(w), *a], environment)) as process:
            while left:
                try:
                    line = process.next(max(1.0, min(LATE_S, end - time.monotonic())))
                except EOFError:
                    rows.append([left.pop(0), "ended", process.noise(1500), "", ""])
                    break
                if line is None:
                    if time.monotonic() < end:
                        rows.append([left.pop(0), "late", "", "", ""])
                    break
                if line[0] != "at":
                    rows.append([left.pop(0), *line])
                    if line[0] == "crash" and "CUDA error" in line[1]:
                        break  # which all that follow in this process would meet
    return rows


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=200)
    arguments.add_argument("--jobs", type=int, default=8)
    arguments.add_argument("--seconds", type=float, default=500.0)
    arguments.add_argument("--only", type=int)
    arguments.add_argument("--mode", default="", choices=("", *dict.fromkeys(MODES)))
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--output", type=Path, help="a folder, for a file with all that is not right")
    arguments.add_argument("--channel", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--seeds", type=int, nargs="*", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
    kinds = options.kinds or KINDS
    if unknown := set(kinds) - set(KINDS):
        arguments.error(f"{sorted(unknown)} are no kinds; they are {KINDS}")
    if options.channel is not None:
        child(options.kinds[0], options.seeds, options.mode, options.device, options.channel)
        return 0
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)
    bad = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as threads:
        environment = from_sources.environment(Path(folder)) if importlib.util.find_spec("opmill") is None else dict(os.environ)
        environment |= {"OPMILL_CACHE_DIR": f"{folder}/cache", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        end = time.monotonic() + options.seconds
        parts = [(kind, seeds[k :: options.jobs]) for k in range(options.jobs) for kind in kinds]
        runs = [threads.submit(judge, kind, part, options, environment, end) for kind, part in parts]
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for (kind, _), run in zip(parts, runs, strict=True):
            for seed, verdict, detail, source, mode in run.result():
                counts[kind][verdict] += 1
                if verdict in ("right", "skipped"):
                    continue
                bad += 1
                text = f"---- {kind} seed {seed} ({mode}): {verdict}: {detail}\n{source}"
                if options.output:
                    with (options.output / "found.txt").open("a") as file:
                        print(text, file=file)
                print(text if options.only is not None else text[:500], flush=True)
    print({kind: dict(found) for kind, found in counts.items()})
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
