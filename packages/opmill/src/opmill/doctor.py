"""Whether a kernel generator really works here: it builds one small kernel for each device, and that runs."""

from __future__ import annotations

from typing import Any

import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.devices.registry import types
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.plan.model import Alloc, Launch, Plan, SlotOutput, TensorInput, TensorSpec
from opmill_runtime_cache.store import Store as Artifacts
from opmill_runtime_cache.store import temporary_folder

_COUNT = 100


def devices() -> list[str]:
    """The devices of this machine: the processor, and each accelerator that torch finds."""
    kinds = (kind for kind in types() if kind != HOST)
    return [HOST, *(f"{kind}:{number}" for kind in kinds for number in range(_count(kind)))]


def _count(kind: str) -> int:
    module = getattr(torch, kind, None)
    try:
        return int(module.device_count()) if module is not None and module.is_available() else 0
    except Exception:  # a driver that cannot say has none
        return 0


def trials(generator: Any) -> dict[str, str]:
    """By device that ``generator`` makes kernels for: why it cannot build and run one there, in a few words; empty where it can."""
    kernel = _kernel()
    claimed = [device for device in devices() if generator.claims(kernel, GeneratorOptions(device=device)) is None]
    return {device: _trial(generator, kernel, device) for device in claimed}


def _trial(generator: Any, kernel: LoopKernel, device: str) -> str:
    held = temporary_folder()
    try:
        store = Artifacts(held.path)
        [ref] = generator.build([kernel], GeneratorOptions(device=device), store)
        spec = TensorSpec("float32", (_COUNT,), (1,), device)
        steps = (Alloc(1, spec), Launch(0, (0, 1), (), (1,)))
        plan = Plan("trial", 2, (TensorInput(0, spec),), (SlotOutput(1),), steps, kernels=(ref,), device=device)
        given = torch.arange(float(_COUNT), device=device)
        [got] = bind(plan, [], store)(given)
        return "" if torch.equal(got, given + 1) else "a kernel that it built gives wrong results"
    except Exception as error:  # whatever a toolchain does wrong is the answer here
        return f"cannot build: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    finally:
        held.release()


def _kernel() -> LoopKernel:
    """``out = a + 1``."""
    value = Op("add", (Load("a", index("i"), "float32"), Const(1.0, "float32")), "float32")
    nest = Nest((Axis("i", index(_COUNT)),), (Phase(stores=(Store("out", index("i"), value),)),), "doctor")
    buffers = (Buffer("a", "float32", "in", index(_COUNT)), Buffer("out", "float32", "out", index(_COUNT)))
    return LoopKernel("trial", buffers, (nest,))


__all__ = ["devices", "trials"]
