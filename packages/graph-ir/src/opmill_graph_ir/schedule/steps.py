"""The schedule: kernels and operator calls in order, over named buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opmill_fake_tensors.strides import extent

from ..errors import GraphError
from ..loops.canonical import BufferUse, canonical
from ..loops.index import Index, index
from ..loops.ir import LoopKernel, Nest
from ..loops.text import show
from ..lowered import BufferInfo, Extern, Lowered
from .backward_scans import turn_scans
from .common import remove_common
from .dead import remove_dead
from .emit import emit_nest, outside_reads
from .fuse import Group, fuse, is_extern
from .inline import inline
from .loop import Program, program_of, reads_of, writes_of
from .offsets import shared
from .reuse import reuse_between_phases
from .shape import shape_nest
from .unroll import unroll

BUG = "this is a bug of the compiler: please report it"
_SMALL = 8192
"""Points of a nest below which its launch is worth sharing with a neighbour."""


@dataclass(frozen=True)
class KernelStep:
    """A kernel on the program's buffers ``arguments``, all on ``device``, and for its symbols ``sizes``: symbols of the program, or numbers."""

    kernel: LoopKernel
    arguments: tuple[str, ...]
    sizes: tuple[str | int, ...]
    origin: str = ""
    device: str = "cpu"

    def reads(self) -> set[str]:
        return {a for a, b in zip(self.arguments, self.kernel.buffers, strict=True) if b.role != "out"}

    def writes(self) -> set[str]:
        return {a for a, b in zip(self.arguments, self.kernel.buffers, strict=True) if b.role != "in"}


@dataclass(frozen=True)
class ExternStep:
    node: Extern

    def reads(self) -> set[str]:
        return reads_of(self.node)

    def writes(self) -> set[str]:
        return writes_of(self.node)


Step = KernelStep | ExternStep


@dataclass
class Schedule:
    """Steps in an order that is right. ``buffers``: all that the steps and outputs name."""

    lowered: Lowered
    steps: list[Step]
    buffers: dict[str, BufferInfo] = field(default_factory=dict)

    def kernels(self) -> list[LoopKernel]:
        """Distinct kernels in order of first use."""
        return list(dict.fromkeys(s.kernel for s in self.steps if type(s) is KernelStep))

    def wanted(self) -> list[tuple[LoopKernel, str]]:
        """Distinct kernels, each with the device that it runs on."""
        return list(dict.fromkeys((s.kernel, s.device) for s in self.steps if type(s) is KernelStep))

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            if isinstance(step, KernelStep):
                lines.append(f"{step.kernel.name}({', '.join(step.arguments)})   # {step.origin}")
            else:
                lines.append(f"{', '.join(map(str, step.node.results))} = {step.node.op}(...)   # {step.node.origin}")
        return "\n".join([*lines, "", *map(show, self.kernels())])


def schedule(lowered: Lowered, *, fusion: bool = True) -> Schedule:
    """Fuses and orders a lowered program. Without ``fusion`` each statement is a kernel of its own (for finding faults)."""
    program = program_of(lowered)
    remove_dead(program)
    if fusion:
        remove_common(program)
        inline(program)
        remove_dead(program)
        turn_scans(program)
        groups = fuse(program)
    else:
        groups = [Group(k, getattr(s, "axes", None), [s], k, 0, reads_of(s), writes_of(s)) for k, s in enumerate(program.statements)]
    steps = _steps(groups, program, fusion)
    return Schedule(lowered, _from_anywhere(steps) if fusion else steps, program.buffers)


def _from_anywhere(steps: list[Step]) -> list[Step]:
    """With kernels that begin elsewhere in their buffers for each step made one. On a GPU it matters to a kernel how its beginning is aligned."""
    found = shared(list(dict.fromkeys(s.kernel for s in steps if isinstance(s, KernelStep) and s.device == "cpu")))
    out: list[Step] = []
    for step in steps:
        if isinstance(step, KernelStep) and step.device == "cpu" and step.kernel in found:
            kernel, numbers = found[step.kernel]
            step = replace(step, kernel=kernel, sizes=(*step.sizes, *numbers))
        out.append(step)
    return out


def _steps(groups: Sequence[Group], program: Program, combine: bool) -> list[Step]:
    needed = outside_reads(list(groups), program)
    steps: list[Step] = []
    pending: list[Nest] = []
    for group, outside in zip(groups, needed, strict=True):
        if is_extern(group):
            _flush(pending, steps, program)
            steps.append(ExternStep(group.members[0]))  # type: ignore[arg-type]
            continue
        nest = shape_nest(emit_nest(group, outside, program), program.extents)
        if combine:
            nest = reuse_between_phases(nest, program.fresh_name)
            if _device(nest, program) == "cpu":  # neighbouring threads of a GPU shall store side by side
                nest = unroll(nest, program.extents, program.fresh_name)
        small = combine and group.work(program) <= _SMALL
        if not small or (pending and _device(nest, program) != _device(pending[0], program)):
            _flush(pending, steps, program)
        pending.append(nest)
        if not small:
            _flush(pending, steps, program)
    _flush(pending, steps, program)
    return steps


def _flush(pending: list[Nest], steps: list[Step], program: Program) -> None:
    if pending:
        written = [program.buffers[s.buffer] for n in pending for p in n.phases for s in p.stores]
        if wrong := next((b for b in written if not b.fixed and _overlaps_itself(b)), None):  # views that torch has so hold one value in each place
            raise GraphError("GI041", f"a loop writes two elements of {wrong.name} into one place", where=wrong.origin, hint=BUG)
        made = canonical(pending, lambda name: BufferUse((cells := program.buffers[name].cells).dtype, span(cells)))
        if unknown := set(made.sizes) - set(program.symbols):
            raise GraphError("GI041", f"names {sorted(unknown)} are used where nothing defines them", where=made.kernel.name, hint=BUG)
        origin = "; ".join(dict.fromkeys(o for n in pending for o in n.origin.split("; ") if o))
        steps.append(KernelStep(made.kernel, made.arguments, made.sizes, origin, _device(pending[0], program)))
        pending.clear()


def _device(nest: Nest, program: Program) -> str:
    """Where a nest's buffers are."""
    written = next((s.buffer for p in nest.phases for s in p.stores), None)
    return "cpu" if written is None else program.buffers[written].device


def _overlaps_itself(info: BufferInfo) -> bool:
    """Whether the layout surely puts two elements into one place, as far as numbers are known."""
    known = [(s.constant, 2 if n.constant is None else n.constant) for s, n in zip(info.strides, info.sizes, strict=True) if s.constant is not None]
    reach = 0
    for stride, size in sorted((s, n) for s, n in known if n != 1):
        if stride <= reach and 0 not in (n for _, n in known):
            return True
        reach += (size - 1) * stride
    return False


def span(info: BufferInfo) -> Index:
    """Elements from the first to the last that a buffer's layout touches."""
    sizes, strides = ([n.constant for n in numbers] for numbers in (info.sizes, info.strides))
    if 0 in sizes:
        return index(0)
    if None not in sizes and None not in strides:
        return index(extent(sizes, strides))
    return index(extent(info.sizes, info.strides))
