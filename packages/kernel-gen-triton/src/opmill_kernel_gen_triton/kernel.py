"""A loop kernel as Triton functions, launched one after the other: one a nest, or for several nests that do the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmill_graph_ir.loops import walk
from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Buffer, Expr, LoopKernel, Nest, Op, Phase, Ref

from .attention.write import attention_text
from .beside import Part, part_of, together
from .columns import RowsWriter, Summed, in_one_pass
from .emit.space import product
from .nest import Frame, Function, NestWriter
from .pack import Pack, batches
from .split import split_nest
from .tiling import DEFAULT, Budget, choose, rounds

LIMIT = (1 << 31) - (1 << 20)
"""Sizes below this fit 32-bit indices, tiles that stick out included."""


@dataclass(frozen=True)
class KernelText:
    """``functions`` in the order of launches, each in one form or, where sizes at run time decide, two: 32-bit indices, then 64-bit.
    ``scratch`` are buffers that live from one launch to the next. ``span``: the size that decides; see :data:`LIMIT`. ``contracts``:
    whether products and sums may become one instruction."""

    functions: tuple[tuple[Function, ...], ...]
    scratch: tuple[Buffer, ...]
    span: tuple[Index, ...]
    contracts: bool = True


def kernel_text(kernel: LoopKernel, budget: Budget = DEFAULT, precise: bool = False) -> KernelText:
    """The text of a kernel; ``precise``: eager's functions, whatever the values are rounded to."""
    if kernel.attention is not None:
        return KernelText(((attention_text(kernel, budget, precise=precise),),), (), (), not precise)
    stretches, scratch = _split_all(kernel, budget)
    settled = _rounded(kernel)
    exact = precise or bool(settled)
    frame = (*kernel.buffers, *scratch)
    functions, checks = [], 0
    span = tuple(dict.fromkeys(_sizes(kernel)))
    known = [s.constant for s in span]
    forms = (False, True) if None in known else (max([k for k in known if k is not None], default=0) >= LIMIT,)
    found = [batch for s in stretches for batch in ([[s]] if isinstance(s, Summed) else batches(s, frame))]
    many, n = sum(map(len, found)) > 1, 0
    for batch in found:
        written: list[Part] = []
        for part in batch:
            nest, own, members = _of_part(part, frame)
            early = _early(own, members, kernel)
            base = Frame(own, kernel.symbols, checks, precise, not exact and rounds(nest), early, exact)
            name = f"k_{kernel.name}_{n}" if many else f"k_{kernel.name}"
            if isinstance(part, Summed):
                written.append(part_of(tuple(RowsWriter(part, base, name, wide).write() for wide in forms), part.whole))
            else:
                tiling = choose(nest, kernel.symbols, budget)
                written.append(part_of(tuple(NestWriter(base, nest, name, tiling, wide, members).write() for wide in forms), nest))
            checks += sum(len(p.checks) for p in nest.phases)
            n += 1
        functions += together(f"k_{kernel.name}_{n}_beside", written) if len(written) > 1 else [written[0].forms]
    contracts = not precise and _are_results(settled, kernel)
    return KernelText(tuple(functions), scratch, tuple(s for s in span if s.constant is None), contracts)


def _rounded(kernel: LoopKernel) -> list[Expr]:
    """What the kernel computes and another one must have to the same bits."""
    return [e.args[0] for phase in _phases(kernel) for e in walk.expressions(phase) if type(e) is Op and e.name == "rounded"]


def _are_results(values: Sequence[Expr], kernel: LoopKernel) -> bool:
    """Whether all are what reductions give, converted: nobody computes these again, and sums of products are quicker contracted."""
    results = {name for phase in _phases(kernel) for reduction in phase.reductions for name in reduction.names}
    while any(type(e) is Op and e.name == "cast" for e in values):
        values = [e.args[0] if type(e) is Op and e.name == "cast" else e for e in values]
    return all(type(e) is Ref and e.name in results for e in values)


def _phases(kernel: LoopKernel) -> Iterator[Phase]:
    return (phase for nest in kernel.nests for phase in nest.phases)


def _of_part(part: Nest | Pack | Summed, frame: tuple[Buffer, ...]) -> tuple[Nest, tuple[Buffer, ...], tuple[tuple[str, ...], ...]]:
    """The nest that a function is written of, its buffers, and those that these stand for."""
    if isinstance(part, Pack):
        return part.kernel.nests[0], part.kernel.buffers, part.members
    return (part.rows if isinstance(part, Summed) else part), frame, ()


def _split_all(kernel: LoopKernel, budget: Budget) -> tuple[list[list[Nest] | Summed], tuple[Buffer, ...]]:
    """The nests, those that are done in one pass apart from those before and behind."""
    out: list[list[Nest] | Summed] = []
    plain: list[Nest] = []
    scratch: list[Buffer] = []
    n = 0
    while n < len(kernel.nests):
        if (summed := in_one_pass(kernel.nests[n:], kernel.symbols, f"part{n}", budget)) is not None:
            out += [plain, summed] if plain else [summed]
            plain = list(summed.ends)
            scratch += summed.scratch
            n += summed.count
            continue
        nests, buffers = split_nest(kernel.nests[n], kernel.symbols, f"part{n}", budget)
        plain += nests
        scratch += buffers
        n += 1
    return [*out, plain] if plain else out, tuple(scratch)


def _early(own: Sequence[Buffer], members: Sequence[Sequence[str]], kernel: LoopKernel) -> frozenset[str]:
    """Of a part's own buffers those that stand for early ones of the kernel alone."""
    known = {b.name for b in kernel.buffers if b.early}
    names = [[m[k] for m in members] or [b.name] for k, b in enumerate(own)]
    return frozenset(b.name for b, stands in zip(own, names, strict=True) if known.issuperset(stands))


def _sizes(kernel: LoopKernel) -> Iterator[Index]:
    """What indices may reach."""
    for b in kernel.buffers:
        yield b.numel
    for nest in kernel.nests:
        yield product(nest.axes)
        for phase in nest.phases:
            if phase.axes:
                yield product((*nest.axes, *phase.axes))


__all__ = ["KernelText", "LIMIT", "kernel_text"]
