"""Edits real plans, loads them, and runs what is let through: nothing may crash, reach outside of its memory, or run what it was not given.

``python benchmarks/fuzz_plans.py [--seed 0] [--count 100000] [--workers 2] [--native PATH] [--only SEED] [--json PATH]``

Plans come from small models, compiled here. An edit changes numbers, names, types, steps or bytes of the encoded form; most are refused
when they are read. Workers are forked, and one that dies gives up the seed that it was at. ``--native`` takes another build of the native
executor: with sanitizers, whose libraries must be preloaded (``nox -s plans`` does both).
"""

from __future__ import annotations

import argparse
import collections
import gc
import importlib
import importlib.util
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

SECONDS, COMPUTING, BYTES = 20, 1, 1 << 26
"""That a plan may take, that it may compute (what takes longer does the same over and over), and that its inputs may have, in one run."""
MANY = 1 << 16
"""Elements of an input that are all drawn."""
LONGEST = 5000
"""Seeds that a worker takes at once: to fork a process under sanitizers takes as long as some hundred of them."""
NUMBERS = (0, 1, 2, 3, 7, 63, 64, 65, 4096, 10**7, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    "", "s0", "min", "lambda", "__import__('os').system('false')", "a=1: (yield)", "s0*s0*s0*s0*s0", "s0 - 100", "0 - s0", "9223372036854775807", "s0//0", "1%0",
    "float64", "int8", "bool", "complex128", "float32", "cpu", "cuda:0", "meta", "cpu:9", "strided", "_dynamo", "load", "aten::from_file", "aten::set_.source_Storage",
    "aten::resize_", "aten::as_strided_", "aten::add.out", "aten::mm.out", "aten::relu_", "aten::nonzero", "aten::item", "aten::empty.memory_format", "prims::copy_to",
    "opmill::while_loop", "opmill::branch", "opmill::scan", "SystemExit", "KeyboardInterrupt", "UnicodeDecodeError", "tensor", "slot", "view", "free",
)  # fmt: skip


@dataclass
class Sample:
    """A real plan with what it was bound to."""

    plan: Any
    held: list[torch.Tensor]
    blob: bytes
    kept: list[torch.Tensor]
    """What the held tensors had in them: edited plans write to them."""


# ---- real plans --------------------------------------------------------------------------------------------------------------


def models() -> list[tuple[Callable[..., Any], list[Any], bool]]:
    """Programs, their inputs, and whether their sizes move."""
    image = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
    mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    embedding = nn.Embedding(11, 6)
    recurrent = nn.GRU(4, 5, batch_first=True)
    words = torch.randint(0, 11, (3, 5))
    x, y, square = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 4)
    picture = torch.randn(2, 3, 8, 8)
    return [
        (mlp, [x], False), (mlp, [x], True), (image, [picture], False), (image.eval(), [picture], True),
        (lambda q: attention(q, q, q)[0], [torch.randn(2, 5, 8)], False), (lambda t: embedding(t).sum(1).softmax(-1), [words], True),
        (lambda a, b: (a.t() @ b, torch.cat([a, b])[1:, ::2].cumsum(0), a.argmax(1)), [x, y], False),
        (lambda a, b: (a + b).view(-1)[3:].exp() * b.sum(), [x, y], True), (lambda a: recurrent(a)[0], [torch.randn(2, 3, 4)], False),
        (lambda a: a[a > 0] * 2, [x], False), (lambda a: a.nonzero().float().mean(0), [x], False),
        (lambda a, i: a[i].sin() + a.gather(0, i[:, None]), [square, torch.tensor([0, 3, 1])], True),
        (lambda a: torch.cond(a.sum() > 0, lambda t: t.sin(), lambda t: t.cos() + 1, (a,)), [x], False),
        (lambda a: a.mul_(2).add(1), [x], False), (lambda a: torch.linalg.inv(a @ a.t() + torch.eye(4)), [square], False),
        (lambda a: nn.functional.pad(a, (1, 2)).unfold(1, 3, 2).amax(-1), [x], True), (lambda a: torch.view_as_real(torch.fft.fft(a)), [x], False),
        (lambda a, i: a[i[i % 3]] + a[:, i[:1]].sum(), [square, torch.tensor([0, 3, 1])], True),
        (lambda a, i: nn.functional.cross_entropy(a[:3], i, ignore_index=2), [square, torch.tensor([0, 3, 1])], True),
        (lambda a, b: torch.cat([a[:, 2:4], nn.functional.pad(b, (1, 0)), a[:, 5:6]], 1).cos(), [x, y], True),
        (lambda a, i: a.index_add(0, i, a[:3]).scatter(1, i[None], 2.0), [square, torch.tensor([0, 3, 1])], True),
        (lambda a: nn.functional.interpolate(a, scale_factor=2.0, mode="bilinear") + a[:, :, :1, :1].flip(0), [picture], True),
    ]  # fmt: skip


def corpus(store: Any) -> list[Sample]:
    """Plans of forwards and backwards of all models."""
    import opmill
    from opmill_graph_ir import backend
    from opmill_runtime_cache.executor import bind
    from opmill_runtime_cache.plan import encode

    found: dict[bytes, Sample] = {}

    def noted(plan: Any, held: Sequence[torch.Tensor], where: Any) -> Any:
        blob = encode(plan)
        found.setdefault(blob, Sample(plan, list(held), blob, []))
        return bind(plan, held, where)

    backend.bind = noted  # what compiles binds through this name
    for number, (program, inputs, moving) in enumerate(models()):
        opmill.reset()
        run = opmill.compile(program, dynamic=moving or None, options={"cache_dir": str(store.root)})
        for grad in (False, True):
            given = [t.clone().requires_grad_(grad and t.is_floating_point()) for t in inputs]
            try:
                with torch.set_grad_enabled(grad):
                    out = run(*given)
                    leaves = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
                    if leaves:
                        sum(t.sum() for t in leaves).backward()
            except Exception as error:
                print(f"model {number}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    backend.bind = bind
    for sample in found.values():
        sample.kept = [t.detach().clone() for t in sample.held]
    return list(found.values())


# ---- edits -------------------------------------------------------------------------------------------------------------------


def edited(sample: Sample, samples: Sequence[Sample], rng: random.Random) -> bytes:
    """The bytes of a plan with a few edits."""
    if rng.random() < 0.1:
        return _bytes_edited(sample.blob, rng)
    magic = sample.blob.index(b"\x92")
    version, tree = msgspec.msgpack.decode(sample.blob[magic:])
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        _edit(tree, rng, samples)
    return sample.blob[:magic] + msgspec.msgpack.encode([version, tree])


def _bytes_edited(blob: bytes, rng: random.Random) -> bytes:
    data = bytearray(blob)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        how = rng.randrange(4)
        if how == 0:
            data[at] = rng.randrange(256)
        elif how == 1:
            del data[at : at + rng.randint(1, 8)]
        elif how == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        else:
            data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def _edit(tree: Any, rng: random.Random, samples: Sequence[Sample]) -> None:
    """Changes one place, found by going down at random."""
    holder, key = tree, rng.choice(("steps", "steps", "steps", "steps", *tree)) if tree else None
    if key not in holder:
        return
    while isinstance(holder[key], (list, dict)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = rng.randrange(len(holder)) if isinstance(holder, list) else rng.choice(list(holder))
    value = holder[key]
    if isinstance(value, list):
        _edit_list(value, rng)
    elif isinstance(holder, list) and rng.random() < 0.4:
        _edit_list(holder, rng)
    elif isinstance(value, dict):
        _edit_dict(value, rng)
    else:
        holder[key] = _other(value, rng)


def _edit_list(items: list[Any], rng: random.Random) -> None:
    if not items:
        items.append(_other(0, rng))
        return
    a, b, how = rng.randrange(len(items)), rng.randrange(len(items)), rng.randrange(5)
    if how == 0:
        del items[a]
    elif how == 1:
        items.insert(b, msgspec.msgpack.decode(msgspec.msgpack.encode(items[a])))
    elif how == 2:
        items[a], items[b] = items[b], items[a]
    elif how == 3:
        items.insert(a, items.pop(b))
    else:
        items[a] = items[b]


def _edit_dict(fields: dict[Any, Any], rng: random.Random) -> None:
    name = rng.choice(list(fields)) if fields else "dim"
    how = rng.randrange(3)
    if how == 0 and fields:
        del fields[name]
    elif how == 1:
        fields[rng.choice(("dtype", "offset", "device", "dim", "out", "alpha", "a b", "x=1", "self"))] = fields.get(name, 0)
    else:
        fields[name] = _other(fields.get(name, 0), rng)


def _other(value: Any, rng: random.Random) -> Any:
    kind = rng.randrange(12)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and kind < 10:
        near = (value + 1, value - 1, value * 2, value // 2, -value, value + 64, rng.choice(NUMBERS), -rng.choice(NUMBERS[:-2]))
        return max(-(2**63), min(rng.choice(near), 2**64 - 1))  # what MessagePack can say
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5))
    if isinstance(value, str) and kind < 5 and value:
        return rng.choice((value + "_", value[:-1], f"{value} + 1", f"{value}*{value}", f"-({value})", f"({value})*2 - 1"))
    if isinstance(value, bytes):
        return value[: rng.randint(0, len(value))] + bytes(rng.randint(0, 9))
    return rng.choice((rng.choice(TEXTS), rng.choice(TEXTS), rng.choice(NUMBERS), None, [], True, "s0"))


# ---- one edited plan ---------------------------------------------------------------------------------------------------------

FINE = (MemoryError, OverflowError, ZeroDivisionError)
"""What plans raise by their own arithmetic."""


def attempt(blob: bytes, sample: Sample, store: Any, rng: random.Random) -> str:
    """What became of an edited plan: ``refused``, ``unbound``, ``idle`` (no inputs can be made), ``failed``, ``ran``. Raises for what is a
    bug."""
    from opmill_runtime_cache.errors import RuntimeCacheError
    from opmill_runtime_cache.plan import decode

    try:
        plan = decode(blob)
    except RuntimeCacheError:
        return "refused"
    try:
        return _tried(plan, sample, store, rng)
    finally:
        for tensor, kept in zip(sample.held, sample.kept, strict=True):
            tensor.detach().copy_(kept)


def _tried(plan: Any, sample: Sample, store: Any, rng: random.Random) -> str:
    """What became of a plan that can be read."""
    from opmill_runtime_cache.executor import bind

    try:
        run = bind(plan, sample.held, store)
    except FINE:
        return "unbound"
    except Exception as error:
        if not _is_foreign(error):
            raise
        return "unbound"
    outcome = "idle"
    for _ in range(2):
        inputs = inputs_of(plan, rng)
        if inputs is None:
            break
        try:
            with torch.no_grad():
                run(*inputs)
            outcome = "ran"
        except FINE:
            outcome = "failed"
        except Exception as error:
            if not _is_foreign(error, plan):
                raise
            outcome = "failed"
    return outcome


def _is_foreign(error: Exception, plan: Any = None) -> bool:
    """Whether it is one of ours, of torch's, or one that the plan itself names."""
    from opmill_runtime_cache.errors import RuntimeCacheError

    if isinstance(error, RuntimeCacheError) or type(error) is RuntimeError or type(error).__module__.startswith("torch"):
        return True
    if plan is not None and type(error).__name__ in _named(plan):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename.replace("\\", "/") if frames else ""
    if f"{os.sep}torch{os.sep}" in last:
        return True
    return last.endswith(("executor/pycall.py", "executor/control.py")) and isinstance(
        error, (TypeError, ValueError, IndexError, NotImplementedError, AttributeError)
    )


def _named(plan: Any) -> set[str]:
    names = {getattr(step, "error", "") for step in plan.steps} | {e for s in plan.steps for e, _ in getattr(s, "checks", ())}
    return names | {name for body in plan.bodies for name in _named(body)}


def inputs_of(plan: Any, rng: random.Random) -> list[Any] | None:
    """Inputs as the plan describes them, for some values of its symbols."""
    from opmill_runtime_cache.plan.expr import evaluate
    from opmill_runtime_cache.plan.model import SizeInput

    values = {b.symbol: rng.choice((1, 2, 3, 4, 5, 8)) for b in plan.bindings}
    values |= {i.symbol: rng.choice((-1, 0, 1, 2, 3, 4, 5, 1000, 2**62)) for i in plan.inputs if type(i) is SizeInput}
    made: list[Any] = []
    for item in plan.inputs:
        if type(item) is SizeInput:
            made.append(values[item.symbol])
        elif not item.held:
            try:
                sizes, strides = ([evaluate(n, values) for n in numbers] for numbers in (item.spec.sizes, item.spec.strides))
                made.append(_tensor(item.spec.dtype, sizes, strides))
            except Exception:
                return None
    return made


def _tensor(dtype: str, sizes: list[int], strides: list[int]) -> torch.Tensor:
    kind = getattr(torch, dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if min([*sizes, *strides, 0]) < 0 or span * kind.itemsize > BYTES:
        raise ValueError("too large")
    out = torch.empty_strided(sizes, strides, dtype=kind)
    if span > MANY:
        return out.zero_()  # what is drawn for them takes longest of all
    if kind.is_floating_point or kind.is_complex:
        return out.normal_() if kind.itemsize > 1 else out.zero_()
    return out.zero_() if kind.itemsize > 8 or dtype.startswith("uint") else out.random_(0, 2)


# ---- workers -----------------------------------------------------------------------------------------------------------------


def _forbid(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: a plan runs no text and no program, and opens nothing for writing."""
    wrong = event in (
        "os.system",
        "subprocess.Popen",
        "os.exec",
        "os.posix_spawn",
        "socket.connect",
        "os.remove",
        "os.rename",
        "shutil.rmtree",
    )
    wrong |= event == "exec" and arguments[0].co_filename.startswith("<") and not arguments[0].co_filename.startswith("<frozen")
    wrong |= event == "open" and isinstance(arguments[1], str) and any(c in arguments[1] for c in "wax+")
    if wrong:
        os.write(2, f"ESCAPE {event} {arguments!r}\n".encode())
        os._exit(97)


def work(first: int, last: int, samples: Sequence[Sample], store: Any, seen: mmap.mmap, slot: int, bugs: str) -> None:
    """Tries seeds; notes in shared memory where it is, and what became of the others."""
    importlib.import_module(
        "torch._subclasses.schema_check_mode"
    )  # torch does so late, and what a named tuple is made by looks like an escape

    warnings.simplefilter("ignore")
    with open(os.devnull, "wb") as nothing:  # torch's shims print what they throw
        if not os.environ.get("OPMILL_FUZZ_LOUD"):
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
    gc.freeze()  # what torch and the models consist of is not looked through again, nor copied by being looked at
    sys.addaudithook(_forbid)
    for seed in range(first, last):
        struct.pack_into("q", seen, slot * 64, seed)
        signal.alarm(SECONDS)
        signal.setitimer(signal.ITIMER_PROF, COMPUTING)
        outcome = one(seed, samples, store, bugs)
        at = slot * 64 + 8 * (1 + OUTCOMES.index(outcome))
        struct.pack_into("q", seen, at, struct.unpack_from("q", seen, at)[0] + 1)
    os._exit(0)


OUTCOMES = ("refused", "unbound", "idle", "failed", "ran", "bug")


def one(seed: int, samples: Sequence[Sample], store: Any, bugs: str = "") -> str:
    """What becomes of a seed."""
    rng = random.Random(seed)
    sample = rng.choice(samples)
    blob = edited(sample, samples, rng)
    try:
        return attempt(blob, sample, store, rng)
    except Exception:
        if not bugs:
            raise
        handle = os.open(bugs, os.O_WRONLY | os.O_APPEND)
        os.write(handle, f"---- seed {seed}\n{traceback.format_exc()[-1500:]}\n".encode())
        os.close(handle)
        return "bug"


def campaign(
    count: int, seed: int, workers: int, samples: Sequence[Sample], store: Any, bugs: str
) -> tuple[collections.Counter[str], list[str]]:
    """Runs ``count`` seeds on ``workers`` processes. The counts, and the seeds at which a worker died."""
    seen = mmap.mmap(-1, 64 * workers)
    deaths: list[str] = []
    running: dict[int, tuple[int, int]] = {}
    todo = [(k, min(k + LONGEST, seed + count)) for k in range(seed, seed + count, LONGEST)][::-1]
    started = time.monotonic()
    while todo or running:
        for slot in range(workers):
            if todo and slot not in (s for s, _ in running.values()):
                first, last = todo.pop()
                child = os.fork()
                if not child:
                    try:
                        work(first, last, samples, store, seen, slot, bugs)
                    except BaseException:
                        Path(bugs).write_text(Path(bugs).read_text() + traceback.format_exc())
                    finally:
                        os._exit(98)
                running[child] = slot, last
        child, status = os.wait()
        slot, last = running.pop(child)
        if status:
            at = struct.unpack_from("q", seen, slot * 64)[0]
            code = os.waitstatus_to_exitcode(status)
            deaths.append(f"{'timeout' if -code in (signal.SIGALRM, signal.SIGPROF) else f'died ({code})'} at seed {at}")
            print(deaths[-1], flush=True)
            if at + 1 < last:
                todo.append((at + 1, last))
        if sys.stdout.isatty():
            print(f"\r{len(todo) * LONGEST} left, {time.monotonic() - started:.0f} s", end="")
    totals = collections.Counter(
        {name: sum(struct.unpack_from("q", seen, s * 64 + 8 * (1 + k))[0] for s in range(workers)) for k, name in enumerate(OUTCOMES)}
    )
    return totals, deaths


def take_native(path: str) -> None:
    """Puts another build of the native executor in the place of the installed one, without the GPU's driver: started under sanitizers, in a
    forked process, that crashes by itself."""
    import opmill_runtime_cache

    spec = importlib.util.spec_from_file_location("opmill_runtime_cache._native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[spec.name] = opmill_runtime_cache._native = module  # type: ignore[attr-defined]
    from opmill_runtime_cache.devices.cuda import kernel  # takes the native executor along

    kernel.DRIVER = "/nowhere/libcuda.so.1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--native", default="")
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--json", default="")
    chosen = parser.parse_args()
    if chosen.native:
        take_native(chosen.native)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from opmill_runtime_cache.store import Store

    with tempfile.TemporaryDirectory(prefix="opmill-fuzz-") as folder:
        store = Store(Path(folder) / "store")
        samples = corpus(store)
        if chosen.only is not None:
            print(len(samples), one(chosen.only, samples, store))
            return 0
        whole = collections.Counter(attempt(s.blob, s, store, random.Random(0)) for s in samples)
        print(f"{len(samples)} plans: {dict(whole)}", flush=True)
        bugs = Path(folder) / "bugs"
        bugs.touch()
        started = time.monotonic()
        totals, deaths = campaign(chosen.count, chosen.seed, chosen.workers, samples, store, str(bugs))
        print(bugs.read_text()[:20_000])
    result = {"edited": sum(totals.values()) + len(deaths), **totals, "deaths": deaths, "seconds": round(time.monotonic() - started)}
    print(json.dumps(result))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(result))
    return 1 if totals["bug"] or [d for d in deaths if not d.startswith("timeout")] else 0


if __name__ == "__main__":
    sys.exit(main())
