"""Canonical names: kernels that do the same are equal by value, and so are built once.

Names follow from the order of first use: axes ``i0 i1`` and ``j0 j1`` (inner; in a nest one name has one extent), lets and reductions
``v0``, buffers ``b0``, kept from everything that does not change what is computed (origins, the names of the program).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .index import Index, index
from .ir import (
    SORTS,
    Axis,
    Buffer,
    Check,
    Const,
    Expr,
    IndexValue,
    Let,
    Load,
    LoopKernel,
    Nest,
    Op,
    Phase,
    Reduction,
    Ref,
    Role,
    Scan,
    Store,
)
from .walk import roots


@dataclass(frozen=True)
class BufferUse:
    """What is known of a program's buffer: element type and how many elements its memory spans."""

    dtype: str
    numel: Index


@dataclass(frozen=True)
class Canonical:
    """``kernel`` with canonical names; ``arguments``: the program's buffers in the order of its parameters; ``sizes`` likewise."""

    kernel: LoopKernel
    arguments: tuple[str, ...]
    sizes: tuple[str, ...]


class _Names:
    def __init__(self, symbols: Sequence[str]) -> None:
        self.index: dict[str, Index] = {name: index(name) for name in symbols}
        self.buffers: dict[str, str] = {}
        self.symbols: dict[str, str] = {name: name for name in symbols}
        self.values = 0
        self.memo: dict[Expr, Expr] = {}
        self.read: set[str] = set()
        self.stored: set[str] = set()
        self.loaded_first: set[str] = set()
        self.extents: dict[str, Index] = {}

    def buffer(self, name: str) -> str:
        return self.buffers.setdefault(name, f"b{len(self.buffers)}")

    def axes(self, axes: Sequence[Axis], prefix: str) -> tuple[Axis, ...]:
        """Axes by position; a name that an earlier phase of the nest gave to another extent is passed over."""
        self.memo = {}
        out: list[Axis] = []
        number = 0
        for axis in axes:
            extent = self.at(axis.extent)
            while self.extents.setdefault(f"{prefix}{number}", extent) != extent:
                number += 1
            out.append(Axis(f"{prefix}{number}", extent))
            number += 1
        for axis, new in zip(axes, out, strict=True):
            self.index[axis.name] = index(new.name)
        return tuple(out)

    def value(self, name: str) -> str:
        self.values += 1
        new = f"v{self.values - 1}"
        self.index[name] = index(new)
        return new

    def at(self, i: Index) -> Index:
        for symbol in sorted(i.symbols - self.index.keys()):
            self.symbols[symbol] = f"s{len(self.symbols)}"
            self.index[symbol] = index(self.symbols[symbol])
        return i.substitute(self.index)

    def expr(self, e: Expr) -> Expr:
        if (known := self.memo.get(e)) is None:
            known = self.memo[e] = _EXPR[type(e)](self, e)
        return known

    def load(self, e: Load) -> Load:
        self.read.add(e.buffer)
        if e.buffer not in self.stored:
            self.loaded_first.add(e.buffer)
        mask = None if e.mask is None else self.expr(e.mask)
        return Load(self.buffer(e.buffer), self.at(e.index), e.dtype, mask, e.other)


_EXPR = {
    Const: lambda names, e: e,
    IndexValue: lambda names, e: IndexValue(names.at(e.index), e.dtype),
    Load: _Names.load,
    Op: lambda names, e: Op(e.name, tuple(names.expr(a) for a in e.args), e.dtype),
    Ref: lambda names, e: Ref(str(names.index[e.name]), e.dtype),
}


def canonical(nests: Sequence[Nest], use: Callable[[str], BufferUse], symbols: Sequence[str] = ()) -> Canonical:
    """The kernel that runs ``nests`` in order, over the program's buffers, of which ``use`` tells. ``symbols`` come first and keep their
    names."""
    names = _Names(symbols)
    out = tuple(_nest(n, names) for n in nests)
    params = []
    for old, new in names.buffers.items():
        role: Role = "in" if old not in names.stored else "inout" if old in names.loaded_first else "out"
        known = use(old)
        params.append(Buffer(new, known.dtype, role, names.at(known.numel)))
    kernel = LoopKernel(_title(out), tuple(params), out, tuple(names.symbols.values()))
    return Canonical(kernel, tuple(names.buffers), tuple(names.symbols))


def _nest(nest: Nest, names: _Names) -> Nest:
    names.extents = {}
    axes = names.axes(nest.axes, "i")
    phases = tuple(_phase(p, names) for p in nest.phases)
    return Nest(axes, phases, _summary(phases))


def _phase(phase: Phase, names: _Names) -> Phase:
    axes = names.axes(phase.axes, "j")
    lets = []
    for let in phase.lets:
        value = names.expr(let.value)
        lets.append(Let(names.value(let.name), value))
    checks = tuple(Check(names.expr(c.condition), c.error, c.message) for c in phase.checks)
    reductions = []
    for r in phase.reductions:
        value = names.expr(r.value)
        reductions.append((r, value))
    scans = []
    for scan in phase.scans:
        operands = tuple(map(names.expr, scan.values))
        scans.append(Scan(tuple(map(names.value, scan.names)), scan.op, operands, scan.dtype, scan.reverse))
    values = [(s, names.expr(s.value)) for s in phase.stores]
    stores = []
    for s, value in values:
        names.stored.add(s.buffer)
        if s.mode != "set":
            names.loaded_first.add(s.buffer)
        stores.append(Store(names.buffer(s.buffer), names.at(s.index), value, s.mode, s.first))
    done = tuple(Reduction(tuple(names.value(n) for n in r.names), r.op, v, r.dtype) for r, v in reductions)
    return Phase(axes, tuple(lets), checks, done, tuple(stores), tuple(scans))


def _ops(phase: Phase) -> dict[str, None]:
    """Names of what a phase does, dear operations before cheap ones, reductions first."""
    found: dict[str, None] = dict.fromkeys(
        (*(r.op for r in phase.reductions), *(f"{'sort' if s.op in SORTS else 'scan'}_{s.op}" for s in phase.scans))
    )
    stack: list[Expr] = list(roots(phase))
    seen: set[Expr] = set()
    while stack:
        e = stack.pop(0)
        if e not in seen and type(e) is Op:
            found.setdefault(e.name)
            stack.extend(e.args)
        seen.add(e)
    return found


def _summary(phases: Sequence[Phase]) -> str:
    """What a nest does in a few words: equal for equal nests, whatever they come from."""
    words: dict[str, None] = {}
    for p in phases:
        words |= _ops(p)
    words = {w: None for w in words if w not in {"cast", "where", "logical_and"}} or words
    return " ".join(list(words)[:8]) or "copy"


def _title(nests: Sequence[Nest]) -> str:
    return "_".join(dict.fromkeys(w for n in nests for w in n.origin.split()[:4]))[:60] or "empty"
