"""The ways that a graph can be compiled, from the most of the compiler to the least: which one mends a fault says where it is."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.generator.protocol import EditableGenerator, GeneratorOptions, KernelGenerator
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.loops.text import show
from opmill_runtime_cache.executor.reference import bind_reference
from opmill_runtime_cache.plan.expr import evaluate as evaluate_size
from opmill_runtime_cache.plan.model import KernelRef, Launch, Plan
from opmill_runtime_cache.store import Store

from ..native import available_generators, graph_options, open_store
from ..options import Options
from .check import SEED, TOLERANCE, Checked, compare, compare_values, observe, reference_of
from .copies import Program
from .finding import KernelFault
from .minimize import cloned
from .symptoms import Judge

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


class Route(Struct, frozen=True):
    """A way to compile. ``without``: what it leaves out, in words; ``fault``: where the fault is if leaving that out mends it."""

    without: str
    fault: str
    compile: Compile


def routes(options: Options) -> list[Route]:
    """The ways, the whole compiler first, each later one leaving out more."""
    plain = replace(graph_options(options), cache=False, print_after=())
    generators = available_generators(options)
    make = functools.partial(_compiled, store=open_store(options))
    return [
        Route("nothing", "", make(options=plain, generators=generators)),
        Route("CUDA graphs", "recording CUDA graphs", make(options=replace(plain, cuda_graphs=False), generators=generators)),
        Route("fusion", "fusing loops", make(options=replace(plain, cuda_graphs=False, fusion=False), generators=generators)),
        Route("generated kernels", "lowering to loops, or the kernel made of them", make(options=plain, generators=())),
    ]


def skipping(options: Options, of: Sequence[str]) -> list[Route]:
    """The whole compiler without one step of these each."""
    plain = replace(graph_options(options), cache=False, print_after=())
    make = functools.partial(_compiled, store=open_store(options), generators=available_generators(options))
    return [Route(f"the step {name!r}", name, make(options=replace(plain, skip=(*plain.skip, name)))) for name in of]


def broken_law(gm: fx.GraphModule, inputs: Sequence[Any], options: Options) -> str:
    """What is illegal of what a step of the compiler makes of a graph; empty where nothing is."""
    checked = replace(graph_options(options), cache=False, print_after=(), verify=True)
    generators = available_generators(options)
    try:
        compile_graph(gm, inputs, options=checked, store=open_store(options), generators=generators)
    except GraphError as error:
        return f"{error.code} {error}".replace(f"{error.code} {error.code}", error.code)
    return ""


def _compiled(**settings: Any) -> Compile:
    return lambda gm, inputs: compile_graph(gm, inputs, **settings)


def compare_graph(gm: fx.GraphModule, inputs: Sequence[Any], make: Compile, tolerance: float = TOLERANCE) -> Checked:
    """A graph as it is and compiled, called with copies of the same inputs, against a run in float64."""
    program = Program(gm, tuple(inputs), {})
    eager, fresh = observe(program.fresh()), program.fresh()
    with without_warnings():
        compiled = observe(Program(_Once(fresh.model, make), fresh.args, {}), fresh.model)
    return compare(eager, compiled, reference_of(program), tolerance)


def judge_graph(gm: fx.GraphModule, inputs: Sequence[Any], make: Compile, judge: Judge) -> Checked:
    """A graph as it is and compiled, each called with copies of the same inputs as often as the judge likes."""
    program = Program(gm, tuple(inputs), {})
    eager, fresh = program.fresh(), program.fresh()
    with without_warnings():
        return judge(eager.call, Program(_Once(fresh.model, make), fresh.args, {}).call)


class _Once:
    """A graph that is compiled for the inputs of its first call."""

    def __init__(self, gm: fx.GraphModule, make: Compile) -> None:
        self.gm, self.make = gm, make
        self.compiled: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        compiled = self.compiled
        if compiled is None:
            compiled = self.compiled = self.make(self.gm, inputs)
            other = Program(compiled, inputs, {}).shuffled()
            with contextlib.suppress(Exception):  # memory holds other results by then: what nobody writes is not right by luck
                other.call()
            torch.manual_seed(SEED)
        return compiled(*inputs)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Nothing is warned of: a search compiles the same many times, and what falls back is compared as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- kernels --------------------------------------------------------------------------------------------------------------------------


class Remembering:
    """A kernel generator that remembers which loops each kernel was made of."""

    def __init__(self, inner: KernelGenerator) -> None:
        self.inner, self.name = inner, inner.name
        self.loops: dict[tuple[str, str], LoopKernel] = {}

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        return self.inner.claims(kernel, options)

    def available(self) -> str | None:
        return self.inner.available()

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        refs = self.inner.build(kernels, options, store)
        self.loops.update(((ref.key, ref.entry), kernel) for ref, kernel in zip(refs, kernels, strict=True))
        return refs


class _RememberingEdits(Remembering):
    """One whose inner generator builds texts that people edited."""

    inner: EditableGenerator

    def __init__(self, inner: EditableGenerator) -> None:
        super().__init__(inner)
        self.extension, self.comment = inner.extension, inner.comment

    def text(self, kernel: LoopKernel, options: GeneratorOptions) -> str:
        return self.inner.text(kernel, options)

    def build_text(self, kernel: LoopKernel, text: str, options: GeneratorOptions, store: Store) -> KernelRef:
        ref = self.inner.build_text(kernel, text, options, store)
        self.loops[ref.key, ref.entry] = kernel
        return ref


def remembering(options: Options) -> list[Remembering]:
    """The generators that can build here; each remembers what its kernels are made of."""
    found = available_generators(options)
    return [_RememberingEdits(g) if isinstance(g, EditableGenerator) else Remembering(g) for g in found]


class KernelComparison:
    """Compiles graphs such that each launch of a kernel, in forward and backward, is compared with the reference interpreter of its
    loops, run on a copy of the memory that the kernel meets. ``faults``: the kernels that differ, each once."""

    def __init__(self, options: Options) -> None:
        self.generators = remembering(options)
        self.store = open_store(options)
        self.settings = replace(graph_options(options), cache=False, print_after=(), cuda_graphs=False)
        self.faults: dict[tuple[str, str], KernelFault] = {}

    def compile(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        binder = functools.partial(bind_reference, watch=self._watch)
        return compile_graph(gm, inputs, options=self.settings, store=self.store, generators=self.generators, binder=binder)

    def _watch(self, plan: Plan, step: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], run: Callable[[], None]) -> None:
        if type(step) is not Launch:
            run()
            return
        ref = plan.kernels[step.kernel]
        kernel = next((g.loops[ref.key, ref.entry] for g in self.generators if (ref.key, ref.entry) in g.loops), None)
        if kernel is None or (ref.key, ref.entry) in self.faults:
            run()
            return
        tensors = [slots[slot] for slot in step.slots]
        copies = dict(zip((buffer.name for buffer in kernel.buffers), map(_memory, cloned(tensors)), strict=True))
        failed = evaluate(kernel, copies, [evaluate_size(size, sizes) for size in step.sizes])
        problem = f"check {failed} fails in the loops only" if failed else ""
        try:
            run()
        except Exception as error:
            if not failed:
                self._note(ref, kernel, step, f"raises {type(error).__name__}: {error}; the loops do not")
            raise
        names = [buffer.name for buffer in kernel.buffers]
        for position in () if failed else step.writes:
            row = compare_values(names[position], copies[names[position]], _memory(tensors[position]), None, _KERNEL_TOLERANCE)
            problem = problem or (row.problem and f"{names[position]}: {row.problem}")
        if problem:
            self._note(ref, kernel, step, problem)

    def _note(self, ref: KernelRef, kernel: LoopKernel, step: Launch, problem: str) -> None:
        self.faults.setdefault((ref.key, ref.entry), KernelFault(kernel.name, show(kernel), problem, step.origin))


_KERNEL_TOLERANCE = 64.0
"""Roundings by which a kernel may differ from its loops: the order of sums is its own."""


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the tensor's first element on, as loops count it."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    span = 0 if real.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(real.shape, real.stride(), strict=True))
    return real.as_strided((span,), (1,))
