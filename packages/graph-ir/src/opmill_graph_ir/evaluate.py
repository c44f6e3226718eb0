"""Reference interpreter of lowered programs: the oracle for lowering, and what schedules are tested against.

Each node becomes a loop kernel over strided memory and runs in ``loops.evaluate``; externs run through torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.strides import extent
from opmill_runtime_cache.plan.model import ComplexArg, Literal, Named

from .loops.evaluate import evaluate
from .loops.index import ZERO, Index, index
from .loops.ir import Buffer, Check, Expr, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Scan, Store
from .lowered import BufferArg, BufferInfo, Cumulate, Extern, Lowered, Pointwise, Read, Reduce, Scatter, TensorOutput
from .overloads import resolve


def run_lowered(program: Lowered, inputs: Sequence[torch.Tensor], *, wide: bool = False) -> list[Any]:
    """The outputs of ``program``; ``inputs`` in the order of ``program.inputs``, mutated where the program says so.

    With ``wide``, loops compute float32 arithmetic in float64. A failed check raises its error."""
    memory = dict(zip(program.inputs, inputs, strict=True))
    for name, data in program.constants.items():
        info = program.buffers[name]
        flat = (
            torch.frombuffer(bytearray(data), dtype=getattr(torch, info.dtype))
            if data
            else torch.empty(0, dtype=getattr(torch, info.dtype))
        )
        memory[name] = flat.reshape(_ints(info.sizes))
    for node in program.nodes:
        _NODES[type(node)](node, program, memory, wide)
    return [_output(o, memory) for o in program.outputs]


def _ints(values: Sequence[Index]) -> tuple[int, ...]:
    return tuple(v.evaluate({}) for v in values)


def _allocate(info: BufferInfo, memory: dict[str, torch.Tensor]) -> None:
    if info.name not in memory:
        memory[info.name] = torch.empty_strided(_ints(info.sizes), _ints(info.strides), dtype=getattr(torch, info.dtype))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the tensor's first element on."""
    return tensor.as_strided((extent(tensor.shape, tensor.stride()) if tensor.numel() else 0,), (1,))


def _cells(tensor: torch.Tensor) -> torch.Tensor:
    """As loops see it: a complex number is a pair along one more dimension."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.dtype in (torch.complex64, torch.complex128) else tensor


# ---- loops ---------------------------------------------------------------------------------------------------------


def _offset(info: BufferInfo, position: Sequence[Index], strides: Sequence[int]) -> Index:
    total = ZERO
    for p, s in zip(position, strides, strict=True):
        total = total + p * s
    return total


class _Emit:
    """Turns reads by position into loads by offset."""

    def __init__(self, program: Lowered, memory: Mapping[str, torch.Tensor]) -> None:
        self.program, self.memory = program, memory
        self.known: dict[Expr, Expr] = {}

    def expr(self, e: Expr) -> Expr:
        if e not in self.known:
            self.known[e] = self._convert(e)
        return self.known[e]

    def _convert(self, e: Any) -> Expr:
        if type(e) is Read:
            offset = self.offset(e.buffer, e.indices)
            return Load(e.buffer, offset, e.dtype, None if e.mask is None else self.expr(e.mask), e.other)
        return Op(e.name, tuple(map(self.expr, e.args)), e.dtype) if type(e) is Op else e

    def offset(self, buffer: str, position: Sequence[Index]) -> Index:
        return _offset(self.program.buffers[buffer], position, _cells(self.memory[buffer]).stride())

    def phase(
        self, node: Any, axes: Any = (), reductions: Sequence[Reduction] = (), stores: Sequence[Store] = (), own: bool = True
    ) -> Phase:
        lets = tuple(Let(x.name, self.expr(x.value)) for x in node.lets) if own else ()
        checks = tuple(Check(self.expr(c.condition), c.error, c.message) for c in node.checks) if own else ()
        reds = tuple(Reduction(r.names, r.op, self.expr(r.value), r.dtype) for r in reductions)
        return Phase(axes, lets, checks, reds, tuple(stores))


def _run(node: Any, phases: Sequence[Phase], memory: Mapping[str, torch.Tensor], program: Lowered, wide: bool) -> None:
    cells = {n: _cells(t) for n, t in memory.items()}
    buffers = tuple(Buffer(n, str(t.dtype).removeprefix("torch."), "inout", index(1)) for n, t in cells.items())
    kernel = LoopKernel("reference", buffers, (Nest(node.axes, tuple(phases)),))
    failed = evaluate(kernel, {n: _flat(t) for n, t in cells.items()}, wide=wide)
    if failed:
        check = node.checks[failed - 1]
        raise {"IndexError": IndexError, "RuntimeError": RuntimeError}.get(check.error, RuntimeError)(check.message)


def _begin(node: Pointwise | Reduce | Cumulate, program: Lowered, memory: dict[str, torch.Tensor]) -> tuple[_Emit, list[Store]]:
    """What writes the node's reads down, and its stores at its axes; its buffers are in memory from now on."""
    pairs = [(node.buffer, node.value)] if isinstance(node, Pointwise) else list(zip(node.buffers, node.values, strict=True))
    for buffer, _ in pairs:
        _allocate(program.buffers[buffer], memory)
    emit = _Emit(program, memory)
    at = [index(a.name) for a in node.axes]
    first = node.first if isinstance(node, Cumulate) else None
    return emit, [Store(buffer, emit.offset(buffer, at), emit.expr(value), first=first) for buffer, value in pairs]


def _pointwise(node: Pointwise, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    emit, stores = _begin(node, program, memory)
    _run(node, [emit.phase(node, stores=stores)], memory, program, wide)


def _reduce(node: Reduce, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    emit, stores = _begin(node, program, memory)
    _run(node, [emit.phase(node, node.inner, node.reductions), emit.phase(node, stores=stores, own=False)], memory, program, wide)


def _cumulate(node: Cumulate, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    emit, stores = _begin(node, program, memory)
    scans = tuple(Scan(s.names, s.op, tuple(map(emit.expr, s.values)), s.dtype, s.reverse) for s in node.scans)
    outer = tuple(a for k, a in enumerate(node.axes) if k != node.along)
    phase = replace(emit.phase(node, (node.axes[node.along],), stores=stores), scans=scans)
    _run(replace(node, axes=outer), [phase], memory, program, wide)


def _scatter(node: Scatter, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    _allocate(program.buffers[node.buffer], memory)
    out = memory[node.buffer]
    out.zero_() if node.base is None else out.copy_(memory[node.base])
    emit = _Emit(program, memory)
    store = Store(node.buffer, emit.offset(node.buffer, node.indices), emit.expr(node.value), node.mode)
    _run(node, [emit.phase(node, stores=[store])], memory, program, wide)


# ---- operators -----------------------------------------------------------------------------------------------------


def torch_arg(arg: object, memory: Mapping[str, torch.Tensor]) -> Any:
    """An argument of an extern operator as torch takes it."""
    if isinstance(arg, BufferArg):
        tensor = memory[arg.buffer]
        if arg.sizes is None:
            return tensor
        return tensor.as_strided(_ints(arg.sizes), _ints(arg.strides or ()), tensor.storage_offset() + (arg.offset or ZERO).evaluate({}))
    if isinstance(arg, tuple):
        return [torch_arg(a, memory) for a in arg]
    if isinstance(arg, Named):
        return torch.device(arg.name) if arg.kind == "device" else getattr(torch, arg.name)
    if isinstance(arg, Literal):
        return arg.value
    if isinstance(arg, ComplexArg):
        return complex(arg.real, arg.imag)
    assert isinstance(arg, Index), arg
    return arg.evaluate({})


def _launch(node: Extern, kernel: LoopKernel, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    """An operator that is a kernel."""
    written = [r for r in node.results if r is not None]
    for name in written:
        _allocate(program.buffers[name], memory)
    names = [a.buffer for a in node.args if isinstance(a, BufferArg)] + written
    failed = evaluate(kernel, {b.name: _flat(memory[n]) for b, n in zip(kernel.buffers, names, strict=True)}, wide=wide)
    assert not failed, kernel.name


def _extern(node: Extern, program: Lowered, memory: dict[str, torch.Tensor], wide: bool) -> None:
    if node.kernel is not None:
        _launch(node, node.kernel, program, memory, wide)
        return
    result = resolve(node.op)(*(torch_arg(a, memory) for a in node.args), **{k: torch_arg(v, memory) for k, v in node.kwargs.items()})
    if not node.results:
        return
    for name, tensor in zip(node.results, result if isinstance(result, (tuple, list)) else [result], strict=True):
        if name is not None:
            info = program.buffers[name]
            got = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            assert got == (_ints(info.sizes), info.dtype), f"{node.op}: promised {info}, got {got}"
            promised = _ints(info.strides)
            kept = not tensor.numel() or all(n == 1 or s == t for n, s, t in zip(tensor.shape, tensor.stride(), promised, strict=True))
            assert kept or describe(resolve(node.op)).gives_views, f"{node.op}: strides {tensor.stride()}, promised {info}"
            # a view lies as its argument does, which is a value here and may lie otherwise than in the graph that was captured
            memory[name] = tensor if kept else torch.empty_strided(tensor.shape, promised, dtype=tensor.dtype).copy_(tensor)


_NODES: dict[type, Callable[..., None]] = {Pointwise: _pointwise, Reduce: _reduce, Cumulate: _cumulate, Scatter: _scatter, Extern: _extern}


def _output(out: Any, memory: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(out, TensorOutput):
        if out.dtype is not None:
            base, dtype = memory[out.buffer], getattr(torch, out.dtype)
            start = base.storage_offset() * base.itemsize // dtype.itemsize + (out.offset or ZERO).evaluate({})
            return torch.empty(0, dtype=dtype).set_(base.untyped_storage(), start, _ints(out.sizes or ()), _ints(out.strides or ()))
        return torch_arg(BufferArg(out.buffer, out.sizes, out.strides, out.offset), memory)
    return out.evaluate({}) if isinstance(out, Index) else out
