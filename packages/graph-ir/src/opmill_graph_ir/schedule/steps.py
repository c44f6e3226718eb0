"""The schedule: kernels and operator calls in order, over named buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from opmill_fake_tensors.strides import extent
from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.devices.registry import traits_of

from ..errors import GraphError
from ..loops.canonical import BufferUse, canonical
from ..loops.index import Index, index
from ..loops.ir import LoopKernel, Nest
from ..lowered import BufferInfo, Extern, Lowered
from ..overloads import exchanges
from ..pipeline import PASSES, applied, found
from .coalesce import shape_nest
from .columns import summed_where_stored, with_columns
from .dce import remove_dead
from .emit import changed_in_place, emit_nest, outside_reads
from .fuse import Group, fuse
from .loop import Loop, Program, buffer_args, program_of, reads_of, writes_of
from .offsets import shared
from .rematerialize import reuse_between_phases
from .unroll import unroll

BUG = "this is a bug of the compiler: please report it"
_SMALL = 8192
"""Points of a nest below which its launch is worth sharing with a neighbour."""


_SHORT = 1 << 23
"""The same of sums that read that many elements: a few microseconds."""
_NEAR = 24
"""Groups within which sums over matrices are looked for that may be one launch."""


@dataclass(frozen=True)
class KernelStep:
    """A kernel on the program's buffers ``arguments``, all on ``device``, and for its symbols ``sizes``: symbols of the program, or
    numbers."""

    kernel: LoopKernel
    arguments: tuple[str, ...]
    sizes: tuple[str | int, ...]
    origin: str = ""
    device: str = HOST
    sources: tuple[str, ...] = ()
    """Nodes of the aten graph that it computes."""

    def reads(self) -> set[str]:
        return {a for a, b in zip(self.arguments, self.kernel.buffers, strict=True) if b.role != "out"}

    def writes(self) -> set[str]:
        return {a for a, b in zip(self.arguments, self.kernel.buffers, strict=True) if b.role != "in"}


@final
@dataclass(frozen=True)
class ExternStep:
    """An operator of torch's, called as it is."""

    node: Extern

    def reads(self) -> set[str]:
        return reads_of(self.node)

    def writes(self) -> set[str]:
        return writes_of(self.node)


Step = KernelStep | ExternStep


@dataclass
class Schedule:
    """Steps in an order that is right. ``lowered``: the program that they compute, as it is seen from outside (``Lowered.outside``).
    ``buffers``: all that the steps and outputs name."""

    lowered: Lowered
    steps: list[Step]
    buffers: dict[str, BufferInfo] = field(default_factory=dict)

    def kernels(self) -> list[LoopKernel]:
        """Distinct kernels in order of first use."""
        return list(dict.fromkeys(s.kernel for s in self.steps if type(s) is KernelStep))

    def wanted(self) -> list[tuple[LoopKernel, str]]:
        """Distinct kernels, each with the device that it runs on."""
        return list(dict.fromkeys((s.kernel, s.device) for s in self.steps if type(s) is KernelStep))


@dataclass
class Scheduling:
    """A lowered program while the passes that ``pipeline.PASSES`` lists make its schedule. Without ``fusion`` each statement is a kernel of
    its own (for finding faults)."""

    lowered: Lowered
    fusion: bool = True
    program: Program = field(default_factory=lambda: Program([], {}, set()))
    groups: Sequence[Group] = ()
    schedule: Schedule | None = None


def schedule(lowered: Lowered, *, fusion: bool = True) -> Schedule:
    """Fuses and orders a lowered program."""
    work = Scheduling(lowered, fusion)
    for each in PASSES:
        applied(each.on, found(each.run), work)
    assert work.schedule is not None
    return work.schedule


def statements(work: Scheduling) -> Program:
    """The step ``statements``: the program that the passes change."""
    work.program = program_of(work.lowered)
    return work.program


def dce(work: Scheduling) -> Program:
    """The steps ``dce`` and ``dce again``."""
    remove_dead(work.program)
    return work.program


def fused(work: Scheduling) -> Program:
    """Gives the program with its statements in the order of the groups."""
    program = work.program
    if work.fusion:
        work.groups = fuse(program)
    else:
        work.groups = _alone(program)
    return replace(program, statements=[s for group in work.groups for s in group.members])


def apart(work: Scheduling) -> Program:
    """Instead of ``fused``: each statement is a nest of its own."""
    work.groups = _alone(work.program)
    return work.program


def _alone(program: Program) -> list[Group]:
    return [Group(k, getattr(s, "axes", None), [s], k, 0, reads_of(s), writes_of(s)) for k, s in enumerate(program.statements)]


def emitted(work: Scheduling) -> Schedule:
    """The step ``emit``: the schedule."""
    steps = _steps(work.groups, work.program, work.fusion)
    work.schedule = Schedule(work.lowered.outside(), _from_anywhere(steps) if work.fusion else steps, work.program.buffers)
    return work.schedule


def _from_anywhere(steps: list[Step]) -> list[Step]:
    """With kernels that begin elsewhere in their buffers for each step made one. On a GPU it matters to a kernel how its beginning is
    aligned."""
    found = shared(list(dict.fromkeys(s.kernel for s in steps if isinstance(s, KernelStep) and not traits_of(s.device).grid)))
    out: list[Step] = []
    for step in steps:
        if isinstance(step, KernelStep) and not traits_of(step.device).grid and step.kernel in found:
            kernel, numbers = found[step.kernel]
            step = replace(step, kernel=kernel, sizes=(*step.sizes, *numbers))
        out.append(step)
    return out


def _steps(groups: Sequence[Group], program: Program, combine: bool) -> list[Step]:
    needed, changed = outside_reads(list(groups), program), changed_in_place(program)
    nests = {
        g.number: _nest(emit_nest(g, outside, changed, program), program, combine)
        for g, outside in zip(groups, needed, strict=True)
        if type(g.members[0]) is not Extern
    }
    sent = {b for s in program.statements if type(s) is Extern and exchanges(s.op) for b in reads_of(s)}
    on_grid = {k: nest for k, nest in nests.items() if combine and traits_of(_device(nest, program)).grid}
    steps: list[Step] = []
    pending: list[tuple[Nest, tuple[str, ...]]] = []
    vectors: set[str] = set()
    groups, on_grid = summed_where_stored(groups, on_grid)
    nests |= on_grid
    for group, *columns in with_columns(_vectors_together(groups, on_grid, program), on_grid):
        if type(first := group.members[0]) is Extern:
            _flush(pending, steps, program)
            vectors = set()
            steps.append(ExternStep(first) if first.kernel is None else _launched(first, program))
            continue
        nest = nests[group.number]
        apart = not combine or not sent.isdisjoint(group.writes)  # what is sent need not wait for neighbours
        small, vector = not apart and group.work(program) <= _SMALL, not apart and _is_vector(group, nest, program)
        joins = (vector and vectors and vectors.isdisjoint(group.reads | group.writes)) or (small and not vector and not vectors)
        if not joins or (pending and _device(nest, program) != _device(pending[0][0], program)):
            _flush(pending, steps, program)
            vectors = set()
        pending += [(nests[g.number], tuple(n for m in g.members if isinstance(m, Loop) for n in m.sources)) for g in (group, *columns)]
        vectors |= group.writes if vector else set()
        if not small and not vector:
            _flush(pending, steps, program)
    _flush(pending, steps, program)
    return steps


def _vectors_together(groups: Sequence[Group], on_grid: Mapping[int, Nest], program: Program) -> list[Group]:
    """The groups with sums over matrices directly behind others that they do not wait for: queries, keys and values are projected by one
    launch, also where something is done to queries before keys are. What they leave is small, so that its coming early costs no memory."""
    waiting, out, done = list(groups), [], ~sum(1 << g.number for g in groups)
    while waiting:
        first = waiting.pop(0)
        batch = [first]
        if first.number in on_grid and _is_vector(first, on_grid[first.number], program):
            near = (g for g in waiting[:_NEAR] if g.number in on_grid and not g.before & ~done)
            batch += [g for g in near if _is_vector(g, on_grid[g.number], program)]
        numbers = {g.number for g in batch}
        waiting = [g for g in waiting if g.number not in numbers] if len(batch) > 1 else waiting
        out += batch
        done |= sum(1 << n for n in numbers)
    return out


def _nest(nest: Nest, program: Program, combine: bool) -> Nest:
    nest = shape_nest(nest, program.extents)
    if combine:
        nest = reuse_between_phases(nest, program.fresh_name)
        if not traits_of(_device(nest, program)).grid:  # neighbouring threads of a GPU shall store side by side
            nest = unroll(nest, program.extents, program.fresh_name)
    return nest


def _is_vector(group: Group, nest: Nest, program: Program) -> bool:
    """Whether a device with a grid reads a matrix for a few sums, quickly enough that starting a kernel for it alone is dear."""
    few = all(program.numel(b) <= _SMALL for b in group.writes)
    reduces = bool(nest.phases) and bool(nest.phases[0].reductions) and not any(p.checks for p in nest.phases)
    return few and reduces and _SMALL < group.work(program) <= _SHORT and traits_of(_device(nest, program)).grid


def _launched(node: Extern, program: Program) -> KernelStep:
    """An operator that is a kernel."""
    assert node.kernel is not None
    arguments = (*(a.buffer for a in buffer_args(node.args)), *(r for r in node.results if r is not None))
    device = program.buffers[arguments[-1]].device
    return KernelStep(node.kernel, arguments, (), node.origin, device, (node.source,) if node.source else ())


def _flush(pending: list[tuple[Nest, tuple[str, ...]]], steps: list[Step], program: Program) -> None:
    if pending:
        nests = [nest for nest, _ in pending]
        written = [program.buffers[s.buffer] for n in nests for p in n.phases for s in p.stores]
        if wrong := next(
            (b for b in written if not b.fixed and _overlaps_itself(b)), None
        ):  # views that torch has so hold one value in each place
            raise GraphError("GI041", f"a loop writes two elements of {wrong.name} into one place", where=wrong.origin, hint=BUG)
        made = canonical(nests, lambda name: BufferUse((cells := program.buffers[name].cells).dtype, span(cells)))
        if unknown := set(made.sizes) - set(program.symbols):
            raise GraphError("GI041", f"names {sorted(unknown)} are used where nothing defines them", where=made.kernel.name, hint=BUG)
        origin = "; ".join(dict.fromkeys(o for n in nests for o in n.origin.split("; ") if o))
        sources = tuple(dict.fromkeys(name for _, names in pending for name in names))
        steps.append(KernelStep(made.kernel, made.arguments, made.sizes, origin, _device(nests[0], program), sources))
        pending.clear()


def _device(nest: Nest, program: Program) -> str:
    """Where a nest's buffers are."""
    written = next((s.buffer for p in nest.phases for s in p.stores), None)
    return HOST if written is None else program.buffers[written].device


def _overlaps_itself(info: BufferInfo) -> bool:
    """Whether the layout surely puts two elements into one place, as far as numbers are known."""
    known = [
        (s.constant, 2 if n.constant is None else n.constant)
        for s, n in zip(info.strides, info.sizes, strict=True)
        if s.constant is not None
    ]
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
