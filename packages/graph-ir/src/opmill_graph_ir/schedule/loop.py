"""A statement of the program being scheduled: one loop over a domain that writes buffers, or an operator called as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from opmill_fake_tensors.lazily import cached_property

from ..dense import contiguous
from ..errors import GraphError
from ..loops.index import Index, index
from ..loops.ir import SORTS, Axis, Check, Const, Expr, Let, Op, Reduction, Ref, Scan, StoreMode
from ..lowered import BufferArg, BufferInfo, Cumulate, Extern, Lowered, Pointwise, Read, Reduce, Scatter, TensorOutput
from .rewrite import Rewriter, walk

UNKNOWN = 8192
"""The value that costs assume for a symbol of which no call has told yet."""


@dataclass(frozen=True)
class Write:
    """``buffer[indices] = value``, at each point of the loop's ``axes`` (after the reductions, where there are any). ``first``: as of a
    ``Store``."""

    buffer: str
    indices: tuple[Index, ...]
    value: Expr
    mode: StoreMode = "set"
    first: int | None = None


@final
@dataclass(frozen=True)
class Loop:
    """At each point of ``axes``: lets, checks (both at each point of ``axes`` and ``inner``), ``reductions`` over ``inner``, writes; or
    ``scans`` along the one axis of ``inner``, and writes at each point of both.

    Axes of extent one do not occur. Names of axes, lets and reductions are unique in the program."""

    axes: tuple[Axis, ...]
    writes: tuple[Write, ...]
    inner: tuple[Axis, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    origin: str = ""
    scans: tuple[Scan, ...] = ()
    sources: tuple[str, ...] = ()
    """Nodes of the aten graph that it comes of."""

    def expressions(self) -> Iterator[Expr]:
        yield from (let.value for let in self.lets)
        yield from (c.condition for c in self.checks)
        yield from (r.value for r in self.reductions)
        yield from (v for s in self.scans for v in s.values)
        yield from (w.value for w in self.writes)

    @cached_property
    def parts(self) -> tuple[Expr | Read, ...]:
        """Every distinct sub-expression once, parents before children."""
        return tuple(walk(*self.expressions()))

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        return tuple([e for e in self.parts if type(e) is Read])

    def read_buffers(self) -> set[str]:
        return set(self._read_buffers)

    @property
    def sorts(self) -> bool:
        """Whether it puts rows in order."""
        return any(s.op in SORTS for s in self.scans)

    @cached_property
    def _read_buffers(self) -> frozenset[str]:
        return frozenset({r.buffer for r in self._reads} | {w.buffer for w in self.writes if w.mode != "set"})

    def written(self) -> set[str]:
        return {w.buffer for w in self.writes}

    def rewritten(self, rewriter: Rewriter, axes: tuple[Axis, ...], inner: tuple[Axis, ...]) -> Loop:
        return Loop(
            axes,
            tuple(Write(w.buffer, tuple(rewriter.index(i) for i in w.indices), rewriter(w.value), w.mode, w.first) for w in self.writes),
            inner,
            tuple(Reduction(r.names, r.op, rewriter(r.value), r.dtype) for r in self.reductions),
            tuple(Let(let.name, rewriter(let.value)) for let in self.lets),
            tuple(Check(rewriter(c.condition), c.error, c.message) for c in self.checks),
            self.origin,
            tuple(replace(s, values=tuple(map(rewriter, s.values))) for s in self.scans),
            self.sources,
        )


Statement = Loop | Extern


def loops_of(statements: Iterable[Statement]) -> list[Loop]:
    """Those that are no operators of torch's."""
    return [s for s in statements if type(s) is Loop]


@dataclass
class Program:
    """What scheduling transforms: statements in an order that is right, and the buffers they use. ``outputs`` are buffers whose memory
    others see; ``extents`` those of all axes by name; ``symbols`` the size symbols with their values in the captured call."""

    statements: list[Statement]
    buffers: dict[str, BufferInfo]
    outputs: set[str]
    extents: dict[str, int | Index] = field(default_factory=dict)
    symbols: dict[str, int | None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    """Symbols that follow from others which only data tell."""
    computing: frozenset[str] = frozenset()
    """As of the lowered program."""
    fresh: int = 0

    def fresh_axis(self, extent: Index, prefix: str = "x") -> Axis:
        self.fresh += 1
        name = f"{prefix}{self.fresh}"
        self.extents[name] = extent if (n := extent.constant) is None else n
        return Axis(name, extent)

    def fresh_name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def fresh_buffer(self, prefix: str, model: BufferInfo, sizes: tuple[Index, ...], dtype: str) -> str:
        """The name of new memory without gaps, where ``model`` lies."""
        name = self.fresh_name(prefix)
        strides = tuple(index(s) if isinstance(s, int) else s for s in contiguous(sizes))
        self.buffers[name] = BufferInfo(name, dtype, sizes, strides, model.device, "temporary", False, model.origin)
        return name

    def loop(self, position: int) -> Loop:
        """The statement there, which is no operator of torch's."""
        found = self.statements[position]
        assert type(found) is Loop, found
        return found

    def size(self, axes: tuple[Axis, ...]) -> int:
        """Points of a domain, in the captured call."""
        return math.prod(self.guess(a.extent) for a in axes)

    def numel(self, buffer: str) -> int:
        return math.prod(map(self.guess, self.buffers[buffer].sizes))

    def guess(self, size: Index) -> int:
        """A size in the captured call: costs may follow it, meaning may not."""
        if (known := size.constant) is None:
            known = size.evaluate({s: UNKNOWN if (hint := self.symbols[s]) is None else hint for s in size.symbols})
        return known

    def is_temporary(self, buffer: str) -> bool:
        return self.buffers[buffer].role == "temporary" and buffer not in self.outputs


def program_of(lowered: Lowered) -> Program:
    """The lowered program as statements: axes renamed to be unique, those of extent one dropped, empty loops left out."""
    outputs = {o.buffer for o in lowered.outputs if isinstance(o, TensorOutput)}
    program = Program(
        [], dict(lowered.buffers), outputs, symbols=lowered.symbols, definitions=lowered.definitions, computing=lowered.computing
    )
    for node in lowered.nodes:
        program.statements.extend(_STATEMENTS[type(node)](node, program))
    return program


def _renamed(
    node: Pointwise | Reduce | Cumulate | Scatter, axes: tuple[Axis, ...], inner: tuple[Axis, ...], names: tuple[str, ...], program: Program
) -> tuple[dict[str, Index], dict[str, str], list[tuple[Axis, ...]]]:
    """Fresh names for a node's axes, lets and results: the rewriter, and what remains of both domains."""
    symbols: dict[str, Index] = {}
    kept: list[tuple[Axis, ...]] = []
    for domain in (axes, inner):
        fresh = []
        for axis in domain:
            if axis.extent.constant == 1:
                symbols[axis.name] = index(0)
                continue
            new = program.fresh_axis(axis.extent)
            symbols[axis.name] = index(new.name)
            fresh.append(new)
        kept.append(tuple(fresh))
    lets = tuple(let.name for let in node.lets)
    if clash := program.symbols.keys() & {*symbols, *lets}:
        raise GraphError(
            "GI041", f"{sorted(clash)} name both sizes and values of a loop", where=node.origin, hint="this is a bug of the compiler"
        )
    renames = {n: program.fresh_name("v") for n in (*names, *lets)}
    symbols.update({old: index(new) for old, new in renames.items() if old not in program.symbols})  # results of reductions are no indices
    return symbols, renames, kept


class NodeRewriter(Rewriter):
    """Also renames lets and reduction results by name alone: their references carry the type."""

    def __init__(self, symbols: Mapping[str, Index], refs: Mapping[str, str], extents: Mapping[str, int | Index]) -> None:
        super().__init__(symbols, {}, None, extents)
        self.refs = refs

    def __call__(self, expr: Expr) -> Expr:
        if type(expr) is Ref:
            return Ref(self.refs.get(expr.name, expr.name), expr.dtype)
        return super().__call__(expr)


def _is_empty(axes: tuple[Axis, ...]) -> bool:
    return any(a.extent.constant == 0 for a in axes)


def _positions(axes: tuple[Axis, ...]) -> tuple[Index, ...]:
    return tuple(index(a.name) for a in axes)


def _loop(
    node: Pointwise | Reduce | Cumulate | Scatter,
    inner: tuple[Axis, ...],
    reductions: tuple[Reduction, ...],
    writes: tuple[Write, ...],
    program: Program,
    scans: tuple[Scan, ...] = (),
) -> Loop | None:
    if _is_empty(node.axes):
        return None
    names = (*(n for r in reductions for n in r.names), *(n for s in scans for n in s.names))
    symbols, refs, (outer, kept) = _renamed(node, node.axes, inner, names, program)
    rewriter = NodeRewriter(symbols, refs, program.extents)
    loop = Loop(node.axes, writes, inner, reductions, node.lets, node.checks, node.origin, scans).rewritten(rewriter, outer, kept)
    lets = tuple(Let(refs[let.name], let.value) for let in loop.lets)
    renamed = tuple(Reduction(tuple(refs[n] for n in r.names), r.op, r.value, r.dtype) for r in loop.reductions)
    running = tuple(replace(s, names=tuple(refs[n] for n in s.names)) for s in loop.scans)
    sources = (node.source,) if node.source else ()
    return Loop(outer, loop.writes, kept, renamed, lets, loop.checks, node.origin, running, sources)


def _from_pointwise(node: Pointwise, program: Program) -> Iterator[Statement]:
    loop = _loop(node, (), (), (Write(node.buffer, _positions(node.axes), node.value),), program)
    if loop is not None:
        yield loop


def _from_reduce(node: Reduce, program: Program) -> Iterator[Statement]:
    writes = tuple(Write(b, _positions(node.axes), v) for b, v in zip(node.buffers, node.values, strict=True))
    single = all(a.extent.constant == 1 for a in node.inner)
    if single or _is_empty(node.inner):
        values: dict[str, Expr] = {}
        for r in node.reductions:
            values.update(zip(r.names, _of_one(r) if single else _of_none(r), strict=True))
        fill = Rewriter({a.name: index(0) for a in node.inner}, values)
        fixed = Rewriter(names={n: fill(v) for n, v in values.items()})
        writes = tuple(Write(w.buffer, w.indices, fixed(w.value)) for w in writes)
        loop = _loop(replace(node, inner=(), reductions=()), (), (), writes, program)
    else:
        loop = _loop(node, node.inner, node.reductions, writes, program)
    if loop is not None:
        yield loop


def _of_none(r: Reduction) -> list[Expr]:
    """What a reduction over nothing gives."""
    return [
        Const(_typed(_NEUTRAL[r.op], r.dtype), r.dtype if not (k and r.op.startswith("arg")) else "int64") for k, _ in enumerate(r.names)
    ]


def _of_one(r: Reduction) -> list[Expr]:
    """What a reduction of a single element gives."""
    if r.op.startswith("arg"):
        return [r.value, Const(0, "int64")]
    if r.op == "welford":
        return [r.value, Op("sub", (r.value, r.value), r.dtype)]  # NaN where the element is not finite, as eager has it
    return [_summed(r.op, r.value, r.dtype)]


def _summed(kind: str, value: Expr, dtype: str) -> Expr:
    """What a reduction or a scan makes of its first value: sums begin with zero, so that of -0.0 is 0.0."""
    begins = kind in ("sum", "logaddexp") and dtype.startswith(("float", "bfloat"))
    return Op("add", (value, Const(0.0, dtype)), dtype) if begins else value


_NEUTRAL = {
    "sum": 0,
    "prod": 1,
    "any": False,
    "all": True,
    "xor": 0,
    "max": -math.inf,
    "min": math.inf,
    "welford": math.nan,
    "argmax": 0,
    "argmin": 0,
}


def _typed(value: float, dtype: str) -> bool | int | float:
    if dtype == "bool":
        return bool(value)
    return float(value) if dtype.startswith(("float", "bfloat")) else int(value) if math.isfinite(value) else 0


def _from_cumulate(node: Cumulate, program: Program) -> Iterator[Statement]:
    writes = tuple(Write(b, _positions(node.axes), v, first=node.first) for b, v in zip(node.buffers, node.values, strict=True))
    along = node.axes[node.along]
    node = replace(node, axes=tuple(a for k, a in enumerate(node.axes) if k != node.along))
    if along.extent.constant == 1:  # the first point of a scan is the value itself
        values: dict[str, Expr] = {}
        for s in node.scans:
            first = Rewriter(names=values)
            values.update(zip(s.names, (first(_summed(s.op, s.values[-1], s.dtype)), Const(0, "int64")), strict=False))
        fixed = Rewriter(names=values)
        loop = _loop(node, (along,), (), tuple(replace(w, value=fixed(w.value)) for w in writes), program)
    else:
        loop = None if _is_empty((along,)) else _loop(node, (along,), (), writes, program, node.scans)
    if loop is not None:
        yield loop


def _from_scatter(node: Scatter, program: Program) -> Iterator[Statement]:
    info = program.buffers[node.buffer]
    if node.base != node.buffer:
        axes = tuple(Axis(f"d{k}", s) for k, s in enumerate(info.sizes))
        value: Expr = Const(_typed(0, info.dtype), info.dtype)
        if node.base is not None:
            value = Read(node.base, _positions(axes), info.dtype)
        yield from _from_pointwise(Pointwise(node.buffer, axes, value, origin=node.origin, source=node.source), program)
    loop = _loop(node, (), (), (Write(node.buffer, node.indices, node.value, node.mode),), program)
    if loop is not None:
        yield loop


def _from_extern(node: Extern, program: Program) -> Iterator[Statement]:
    yield node


_STATEMENTS: dict[type, Callable[..., Iterable[Statement]]] = {
    Pointwise: _from_pointwise,
    Reduce: _from_reduce,
    Cumulate: _from_cumulate,
    Scatter: _from_scatter,
    Extern: _from_extern,
}


def flat(value: object) -> Iterator[object]:
    """What nested lists and tuples hold, in order."""
    if type(value) is tuple or type(value) is list:
        for item in value:
            yield from flat(item)
    else:
        yield value


def buffer_args(value: object) -> Iterator[BufferArg]:
    """The buffers among an extern's arguments."""
    return (item for item in flat(value) if type(item) is BufferArg)


def reads_of(statement: Statement) -> set[str]:
    """Buffers that the statement reads; those that an operator writes in place are among them."""
    if isinstance(statement, Loop):
        return statement.read_buffers()
    return {a.buffer for a in buffer_args((*statement.args, *statement.kwargs.values()))} | set(statement.mutates)


def writes_of(statement: Statement) -> set[str]:
    """Buffers that the statement writes."""
    if isinstance(statement, Loop):
        return statement.written()
    return {r for r in statement.results if r is not None} | set(statement.mutates)
