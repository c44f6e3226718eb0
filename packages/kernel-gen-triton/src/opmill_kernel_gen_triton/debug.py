"""Runs generated kernels on CPU tensors with Triton's interpreter, for tests and for looking into a kernel.

The environment variable ``TRITON_INTERPRET=1`` must be set before triton is imported for the first time."""

from __future__ import annotations

import ctypes
import linecache
import operator
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from opmill_graph_ir.capture.attending import AttentionOperator
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.graph import AtenGraph
from opmill_graph_ir.compiling import compile_plan
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.report import Report
from opmill_runtime_cache.devices.protocol import HostKernel
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.executor.kernels import LOADERS
from opmill_runtime_cache.plan import parse, render
from opmill_runtime_cache.plan.model import KernelRef, Plan
from opmill_runtime_cache.store import Store, key_of

from .claim import refusal
from .edited import read, shown
from .kernel import LIMIT, KernelText, kernel_text
from .nest import Function, Param
from .tiling import DEFAULT, Budget

_NAMES = (
    "exp exp2 expm1 log log2 log10 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma "
    "floor ceil trunc atan2 copysign nextafter hypot fmod pow"
).split()

OPTIONS = GraphOptions(verify=True, cache=False)


def interpreting() -> bool:
    """Whether this process interprets kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def run(
    kernel: LoopKernel,
    buffers: Mapping[str, torch.Tensor],
    sizes: Sequence[int] = (),
    *,
    wide: bool = False,
    budget: Budget = DEFAULT,
    precise: bool = False,
    text: KernelText | None = None,
) -> int:
    """Runs ``kernel`` on flat tensors by buffer name, as ``evaluate`` does; ``wide`` takes 64-bit indices where there are two forms.
    ``text``: what was made of the kernel's text, instead of which it runs."""
    text = text or kernel_text(kernel, budget, precise)
    values = dict(zip(kernel.symbols, sizes, strict=True))
    memory = dict(buffers)
    for b in text.scratch:
        memory[b.name] = torch.zeros(b.numel.evaluate(values), dtype=getattr(torch, b.dtype))
    error = torch.zeros(1, dtype=torch.int32)
    total = sum(len(p.checks) for n in kernel.nests for p in n.phases)
    for forms in text.functions:
        function = forms[-1] if wide else _form(forms, text, values)
        arguments = [_argument(p, memory, values, error, total) for p in function.params]
        with _patched():
            compiled(function)[(function.grid.evaluate(values),)](*arguments, **dict(function.constants))
    return total + 1 - int(error) if int(error) else 0


def _form(forms: tuple[Function, ...], text: KernelText, values: Mapping[str, int]) -> Function:
    return forms[0] if all(s.evaluate(values) < LIMIT for s in text.span) else forms[-1]


def _argument(p: Param, memory: Mapping[str, torch.Tensor], values: Mapping[str, int], error: torch.Tensor, checks: int) -> Any:
    if p.kind == "buffer":
        tensor = memory[p.buffer]
        return tensor.view(torch.uint8) if p.type == "*u8" else tensor
    return {"size": lambda: values[p.name], "error": lambda: error, "check": lambda: checks}[p.kind]()


def compiled(function: Function) -> Any:
    """The function as Triton's interpreter runs it."""
    file = f"<{function.name}-{hash(function.text)}>"
    linecache.cache[file] = (len(function.text), None, function.text.splitlines(True), file)
    space: dict[str, Any] = {"__name__": "generated"}
    exec(compile(function.text, file, "exec"), space)
    space["libdevice"] = _libdevice()
    return space[function.name]


class InterpretedKernels:
    """A generator for plans on CPU tensors whose kernels are interpreted: whole programs as they are compiled for a GPU, without one."""

    name, extension, comment = "interpreted", "py", "#"

    def __init__(self, budget: Budget = DEFAULT) -> None:
        self.budget = budget

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        added = {s.value.dtype for nest in kernel.nests for phase in nest.phases for s in phase.stores if s.mode == "add"}
        return "the interpreter does not add to half precision" if added & {"float16", "bfloat16"} else refusal(kernel)

    def available(self) -> str | None:
        return None if interpreting() else "TRITON_INTERPRET is not set"

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        return [self._ref(kernel, kernel_text(kernel, self.budget, options.precise)) for kernel in kernels]

    def text(self, kernel: LoopKernel, options: GeneratorOptions) -> str:
        """As the Triton generator's."""
        return shown(kernel_text(kernel, self.budget, options.precise))

    def build_text(self, kernel: LoopKernel, text: str, options: GeneratorOptions, store: Store) -> KernelRef:
        """As the Triton generator's."""
        return self._ref(kernel, read(kernel_text(kernel, self.budget, options.precise), text))

    def _ref(self, kernel: LoopKernel, text: KernelText) -> KernelRef:
        key = key_of(kernel, text)
        if key not in _entries:
            _entries[key] = _ENTRY(lambda pointers, sizes: self._started(kernel, text, pointers, sizes))
        return KernelRef(self.name, self.name, key, kernel.name)

    def _started(self, kernel: LoopKernel, text: KernelText, pointers: Any, given: Any) -> int:
        sizes = [given[k] for k in range(len(kernel.symbols))]
        values = dict(zip(kernel.symbols, sizes, strict=True))
        buffers = {b.name: _memory(pointers[k], b.numel.evaluate(values), getattr(torch, b.dtype)) for k, b in enumerate(kernel.buffers)}
        return run(kernel, buffers, sizes, text=text)


def as_for_gpu(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], budget: Budget = DEFAULT, options: GraphOptions = OPTIONS
) -> tuple[Callable[..., Any], Plan, Report]:
    """The inference of a graph on CPU tensors, compiled as for a GPU and interpreted: what runs it, its plan, and how that came about.

    The graph is told that its tensors are on a GPU until there is a plan; the plan is told that they are not. Raises GraphError."""
    return compiled_for_gpu(on_gpu(functionalize(gm, inputs)), budget, options)


def on_gpu(graph: AtenGraph) -> AtenGraph:
    """The graph, which is told that its tensors are on a GPU; so are those inside of attention."""
    graph.metas = {name: replace(meta, device=_GPU) for name, meta in graph.metas.items()}
    for node in graph.nodes:
        if isinstance(node.func, AttentionOperator):
            on_gpu(node.func.dense)
    return graph


def compiled_for_gpu(
    graph: AtenGraph, budget: Budget = DEFAULT, options: GraphOptions = OPTIONS
) -> tuple[Callable[..., Any], Plan, Report]:
    """As ``as_for_gpu``, of what ``on_gpu`` gives."""
    report, store = Report(), Store(tempfile.gettempdir())  # which keeps nothing: neither plans nor interpreted kernels
    plan = compile_plan(graph, options, store, [InterpretedKernels(budget)], report)
    plan = parse(render(plan).replace(_GPU, "cpu"))
    return bind(plan, graph.held_tensors, store), plan, report


_GPU = "cuda:0"
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))
_entries: dict[str, Any] = {}
LOADERS[InterpretedKernels.name] = lambda ref, store: HostKernel(ctypes.cast(_entries[ref.key], ctypes.c_void_p).value or 0)


def _memory(address: int | None, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory that somebody else keeps."""
    if not address or not numel:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * (numel * dtype.itemsize)).from_address(address), dtype=dtype)


def disagreement(case: Case, seed: int = 0, *, wide: bool = False, budget: Budget = DEFAULT) -> str | None:
    """What differs between a case's kernel and the reference interpreter; None where nothing does."""
    got, want = case.buffers(seed), case.buffers(seed)
    exact = {n: t.double() if t.dtype == torch.float32 else t for n, t in want.items()}
    expected = evaluate(case.kernel, exact, case.sizes, wide=True)
    returned = run(case.kernel, got, case.sizes, wide=wide, budget=budget)
    if returned != expected or returned != case.expect:
        return f"{case.name}: returned {returned}, not {expected}"
    if returned:
        return None
    for name, tensor in got.items():
        if (text := difference(tensor, exact[name], case.rtol)) is not None:
            return f"{case.name}: {name}: {text}"
    return None


def difference(got: torch.Tensor, want: torch.Tensor, rtol: float) -> str | None:
    """What is wrong with a result: more than ``rtol`` epsilons off, relative to the value and to the largest one (cancellation)."""
    if not got.dtype.is_floating_point:
        return None if torch.equal(got, want.to(got.dtype)) else f"{int((got != want.to(got.dtype)).sum())} of {got.numel()} differ"
    if not torch.equal(got.isnan(), want.isnan()):
        return "NaN at other places"
    exact, eps = want.double(), torch.finfo(got.dtype).eps
    largest = float(exact.abs().nan_to_num(0.0, 0.0, 0.0).max()) if exact.numel() else 0.0
    error = (got.double() - exact).abs() / (eps * (exact.abs() + largest + eps))
    worst = float(error[exact.isfinite()].max()) if exact.isfinite().any() else 0.0
    if not torch.equal(got[exact.isinf()].double(), exact[exact.isinf()]):
        return "infinities differ"
    return None if worst <= rtol else f"error of {worst:.1f} eps"


def _libdevice() -> SimpleNamespace:
    """libdevice by torch's functions on the interpreter's tensors."""
    own: dict[str, Callable[..., torch.Tensor]] = {
        "fast_dividef": operator.truediv,
        "fast_expf": torch.exp,
        "div_rn": torch.div,
        "sqrt_rn": torch.sqrt,
        "rint": torch.round,
    }
    return SimpleNamespace(**{n: _lifted(own.get(n) or getattr(torch, n)) for n in (*_NAMES, *own)})


def _lifted(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*args: Any) -> Any:
        first = next(a for a in args if isinstance(a, tl.core.tensor))
        tensors = [torch.from_numpy(a.handle.data.copy()) if isinstance(a, tl.core.tensor) else a for a in args]
        data = function(*tensors).numpy()
        dtype = first.dtype
        return tl.core.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))

    return call


@contextmanager
def _patched() -> Iterator[None]:
    """The interpreter reduces element by element with any other function than its own: here by halves of the tile. It takes the truth
    of a scalar comparison for a number when it spreads it over a tile, and what it adds to memory for dense where it is one value for
    all. It cuts bits off where devices round float32 to bfloat16."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, TensorHandle

    reduced, spread, atomic = ReduceOps.generic_reduce, InterpreterBuilder.create_splat, InterpreterBuilder.create_atomic_rmw
    multiplied, converted = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def cast_to_nearest(self: Any, source: Any, to: Any) -> Any:
        if source.dtype.scalar != tl.float32 or to.scalar != tl.bfloat16:
            return converted(self, source, to)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16().view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16).reshape(np.shape(source.data)), to.scalar)

    def spread_as_it_is(self: Any, kind: Any, scalar: Any) -> Any:
        result = spread(self, kind, scalar)
        result.data = result.data.astype(scalar.data.dtype, copy=False)
        return result

    def atomic_on_dense(self: Any, kind: Any, *operands: Any) -> Any:
        for operand in operands[:3]:
            operand.data = np.ascontiguousarray(operand.data)
        return atomic(self, kind, *operands)

    def dot_of_bfloat16(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        a, b = copy(a), copy(b)  # values that are read again
        for operand in (a, b):
            if operand.data.dtype == np.uint16:  # the bits of bfloat16
                operand.data = (operand.data.astype(np.uint32) << 16).view(np.float32)
        return multiplied(self, a, b, *rest)

    ReduceOps.generic_reduce, InterpreterBuilder.create_splat, InterpreterBuilder.create_atomic_rmw = (
        _by_halves,
        spread_as_it_is,
        atomic_on_dense,
    )
    InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl = dot_of_bfloat16, cast_to_nearest
    try:
        yield
    finally:
        InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl = multiplied, converted
        ReduceOps.generic_reduce, InterpreterBuilder.create_splat, InterpreterBuilder.create_atomic_rmw = reduced, spread, atomic


def _by_halves(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    import numpy as np

    parts = list(inputs)
    while parts[0].handle.data.shape[self.axis] > 1:
        halves = [np.split(p.handle.data, 2, self.axis) for p in parts]
        low, high = ([self.to_tensor(h[k], p.dtype) for h, p in zip(halves, parts, strict=True)] for k in (0, 1))
        result = self.combine_fn.fn(*low, *high)
        parts = list(result) if isinstance(result, tuple) else [result]
    return [self.to_tensor(p.handle.data if self.keep_dims else p.handle.data.squeeze(self.axis), p.dtype) for p in parts]
