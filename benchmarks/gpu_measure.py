"""Measures one model on a GPU in this process and prints one line of JSON.

usage: gpu_measure.py steady MODEL [COMPILER...] [--dtype bfloat16] [--seconds S] [--no-profile]
       gpu_measure.py train MODEL [COMPILER...] ...
       gpu_measure.py first MODEL COMPILER [--dtype bfloat16]
       gpu_measure.py bandwidth|orders any [COMPILER...]

COMPILER: eager, torch, torch-reduce-overhead, opmill, opmill-reduce-overhead; by default all
these (with -max-autotune too, when asked for). ``steady`` and ``train`` take every compiler in
turns, so that all see the same machine: ``ms`` is the median wall time of calls in a row, the device waited for at the end of each
row; ``gpu_us`` the time that the device was busy with kernels, by the profiler, ``own_us`` that of generated kernels alone; ``error`` the
largest distance to a run in float64. ``first`` times the first call, importing and compiling included, and looks at what was imported.
"""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import other_models
import zoo
from gpu_bandwidth import Program, orders, programs
from measure import distance, in_double, tensors_of

COMPILERS = ("eager", "torch", "torch-reduce-overhead", "opmill", "opmill-reduce-overhead")
OTHERS = ("torch-max-autotune", "opmill-max-autotune", "opmill-max-autotune-no-cudagraphs")
"""Only when asked for: they take minutes to compile."""
GENERATED = ("triton_", "k_")
"""How the names of generated kernels begin: torch's compiler's, and ours."""
Call = Callable[[], list[torch.Tensor]]


def vit_tiny() -> zoo.Case:
    module, _, kwargs = zoo.timm_model("vit_tiny_patch16_224")()
    return module, (torch.randn(32, 3, 224, 224),), kwargs


def resnet50() -> zoo.Case:
    module, _, kwargs = zoo.vision_model("resnet50")()
    return module, (torch.randn(32, 3, 224, 224),), kwargs


MODELS: dict[str, Callable[[], zoo.Case]] = {
    **zoo.MODELS,
    **other_models.MODELS,
    "mlp": zoo.mlp,
    "llama_s": zoo.MODELS["llama_s"],
    "bert_base": zoo.text_model("BertModel", "BertConfig", batch=8),
    "resnet50": resnet50,
    "vit_tiny": vit_tiny,
}


def moved(value: Any, dtype: torch.dtype | None) -> Any:
    """The same model or arguments on the GPU, floating-point numbers in ``dtype``."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(device="cuda", dtype=dtype)
    if isinstance(value, torch.Tensor):
        return value.to(device="cuda", dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {key: moved(each, dtype) for key, each in value.items()}
    return tuple(moved(each, dtype) for each in value) if isinstance(value, tuple) else value


def compiled(compiler: str, model: Any) -> Any:
    name, _, mode = compiler.partition("-")
    if name == "eager":
        return model
    if name == "torch":
        return torch.compile(model, mode=mode or None)
    import opmill

    return opmill.compile(model, mode=mode or None)


def inference(compiler: str, module: Any, args: Any, kwargs: Any) -> Call:
    model = compiled(compiler, module)

    def call() -> list[torch.Tensor]:
        with torch.no_grad():
            return tensors_of(model(*args, **kwargs))

    return call


def training(compiler: str, module: Any, args: Any, kwargs: Any) -> Call:
    """Loss and gradients; what is compared are the gradients."""
    module = copy.deepcopy(module).train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    model = compiled(compiler, module)
    parameters = list(module.parameters())

    def call() -> list[torch.Tensor]:
        for parameter in parameters:
            parameter.grad = None
        sum(t.float().square().mean() for t in tensors_of(model(*args, **kwargs)) if t.is_floating_point()).backward()
        return [p.grad for p in parameters if p.grad is not None]

    return call


def in_turns(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Median milliseconds of a call, by compiler."""
    rows: dict[str, list[float]] = {name: [] for name in calls}
    length = {name: _row_length(call) for name, call in calls.items()}
    until = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < until or len(next(iter(rows.values()))) < 5:
        for name, call in calls.items():
            rows[name].append(_row(call, length[name]))
    return {name: statistics.median(times) for name, times in rows.items()}


def _row(call: Call, length: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(length):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / length


def _row_length(call: Call) -> int:
    for _ in range(3):
        call()
    return max(3, min(200, round(50 / max(_row(call, 3), 1e-3))))


def host_ms(call: Call) -> float:
    """Median milliseconds until a call returns, the device idle before it."""
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def profile(call: Call, calls: int = 5) -> dict[str, Any]:
    """Microseconds a call that the device is busy, and by kernel."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    kernels: collections.Counter[str] = collections.Counter()
    count = 0
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name] += event.device_time
            count += 1
    own = sum(us for name, us in kernels.items() if name.startswith(GENERATED))
    top = [(name[:90], round(us / calls, 1)) for name, us in kernels.most_common(12)]
    return {"gpu_us": sum(kernels.values()) / calls, "own_us": own / calls, "kernels": count / calls, "top": top}


def steady(options: argparse.Namespace, make: Callable[..., Call]) -> dict[str, Any]:
    torch.manual_seed(0)
    module, args, kwargs = MODELS[options.model]()
    if options.what == "train":
        module = module.train()
    dtype = getattr(torch, options.dtype)
    exact = make("eager", in_double(module).cuda(), moved(in_double(args), None), moved(in_double(kwargs), None))()
    exact = [t.double().cpu() for t in exact]
    module, args, kwargs = moved(module, dtype), moved(args, dtype), moved(kwargs, dtype)
    out: dict[str, Any] = {"model": options.model, "what": options.what, "dtype": options.dtype}
    calls: dict[str, Call] = {}
    for compiler in options.compilers or COMPILERS:
        try:
            calls[compiler] = make(compiler, module, args, kwargs)
            start = time.perf_counter()
            got = calls[compiler]()
            torch.cuda.synchronize()
            row = out[compiler] = {"first_s": time.perf_counter() - start, "error": distance([t.cpu() for t in got], exact)}
            for _ in range(4):
                got = calls[compiler]()
            row["later_error"] = distance([t.cpu() for t in got], exact)
        except Exception as error:  # one compiler's failure is a row of the table
            out[compiler] = {"failed": f"{type(error).__name__}: {error}"[:600]}
            calls.pop(compiler, None)
    for name, ms in in_turns(calls, options.seconds).items():
        out[name].update(ms=ms, host_ms=host_ms(calls[name]))
        if not options.no_profile:
            out[name].update(profile(calls[name]))
    return out


def first(options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    [compiler] = options.compilers
    module, args, kwargs = MODELS[options.model]()
    module, args, kwargs = (moved(v, getattr(torch, options.dtype)) for v in (module, args, kwargs))
    with torch.no_grad():
        module(*args, **kwargs)  # libraries of the device are loaded before the clock starts
        torch.cuda.synchronize()
        start = time.perf_counter()
        model = compiled(compiler, module)
        model(*args, **kwargs)
        torch.cuda.synchronize()
    imported = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
    return {"model": options.model, "what": "first", "compiler": compiler, "first_s": time.perf_counter() - start, "imported": imported}


def copy_bandwidth() -> float:
    """Bytes a second that a large copy reads and writes."""
    block = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(block)
    return 2 * block.numel() / _seconds(lambda: target.copy_(block))


def _seconds(run: Callable[[], object], repeats: int = 10) -> float:
    """The median of several runs, by events of the device."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def bandwidth(options: argparse.Namespace) -> dict[str, Any]:
    copied, rows = copy_bandwidth(), []
    for program in programs() if options.what == "bandwidth" else orders():
        row = {
            "name": program.name,
            "dtype": program.dtype,
            "copy": copied,
            **_rates(program, options.compilers or ("eager", "torch", "opmill")),
        }
        rows.append({**row, "of_copy": row.get("opmill", 0.0) / copied})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
    return {"what": options.what, "rows": rows}


@torch.no_grad()
def _rates(program: Program, compilers: Sequence[str]) -> dict[str, Any]:
    """Bytes a second by compiler, and how far results are from the first one's."""
    row: dict[str, Any] = {}
    inputs = program.inputs()
    expected = None
    for compiler in compilers:
        try:
            run = compiled(compiler, program.function)
            found = tensors_of(run(*inputs))[0].reshape(-1)[: 1 << 20].float()
            expected = found if expected is None else expected
            if not program.random:
                row[f"{compiler}_differs"] = float((found - expected).abs().max())
            row[compiler] = program.bytes / _seconds(functools.partial(run, *inputs))
        except Exception as error:
            row["failed"] = f"{compiler}: {type(error).__name__}: {error}"[:300]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steady", "train", "first", "bandwidth", "orders"))
    parser.add_argument("model", choices=[*sorted(MODELS), "any"])
    parser.add_argument("compilers", nargs="*", choices=[*COMPILERS, *OTHERS, []])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-profile", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    makers = {"steady": inference, "train": training}
    alone = {"first": first, "bandwidth": bandwidth, "orders": bandwidth}
    result = alone[options.what](options) if options.what in alone else steady(options, makers[options.what])
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
