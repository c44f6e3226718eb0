"""The legality of a kernel as a table: each row is a law, and the function that finds what breaks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opmill_fake_tensors.optional import all_known

from ..errors import GraphError
from .float8 import FLOAT8
from .index import Index
from .ir import (
    HALF,
    LONGEST_SORT,
    POSITIONS,
    SORTS,
    Attention,
    Axis,
    Const,
    Expr,
    IndexValue,
    Load,
    LoopKernel,
    Nest,
    Op,
    Phase,
    Ref,
    Store,
)
from .points import crossings
from .primitives import PRIMITIVES

_ARITHMETIC_FREE = {*HALF, *FLOAT8}
_REDUCTION_NAMES = {"argmax": 2, "argmin": 2, "welford": 2}
_SCANS = {
    "sum": (1, 1),
    "prod": (1, 1),
    "logaddexp": (1, 1),
    "affine": (1, 2),
    "argmax": (2, 1),
    "argmin": (2, 1),
    **dict.fromkeys(SORTS, (2, 1)),
}
"""How many names and values a scan has."""
_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "xor", "argmax", "argmin", "welford")


@dataclass
class _Scope:
    """Names that are visible: axes and size symbols, values with their types, buffers with types and roles."""

    kernel: LoopKernel
    symbols: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.symbols |= set(self.kernel.symbols)
        self.buffers = {b.name: b for b in self.kernel.buffers}

    def inner(self) -> _Scope:
        return _Scope(self.kernel, set(self.symbols), dict(self.values), self.stored)


def complaints(kernel: LoopKernel) -> Iterator[str]:
    """What is wrong with a kernel, one line each; nothing where it is legal."""
    names = [b.name for b in kernel.buffers]
    if len(set(names)) != len(names):
        yield "two buffers of one name"
    scope = _Scope(kernel)
    for buffer in kernel.buffers:
        yield from _index(buffer.numel, scope, f"numel of {buffer.name}")
    for nest in kernel.nests:
        yield from _nest(nest, scope.inner())
    used = {s.buffer for n in kernel.nests for p in n.phases for s in p.stores}
    if kernel.attention is not None:
        yield from _attention(kernel.attention, scope)
        used |= {placed.buffer for name, placed in kernel.attention.operands if name in kernel.attention.written}
    for buffer in kernel.buffers:
        if (buffer.name in used) != (buffer.role != "in"):
            yield f"buffer {buffer.name} has role {buffer.role} and is {'' if buffer.name in used else 'not '}written"
        if buffer.early and buffer.role != "in":
            yield f"buffer {buffer.name} is read early and written"


def _attention(found: Attention, scope: _Scope) -> Iterator[str]:
    inner = scope.inner()
    inner.symbols |= set(POSITIONS)
    inner.values |= {"score": "float32", "gradient": "float32"}
    if scope.kernel.nests or scope.kernel.symbols:
        yield "attention beside nests, or of sizes that are no numbers"
    if unknown := {placed.buffer for _, placed in found.operands} - inner.buffers.keys():
        yield f"{sorted(unknown)} are no buffers"
    placed = [name in dict(found.operands) for name in found.BLOCKS]
    if placed not in ([False] * 4, [True, True, False, False], [True] * 4) or placed[0] != bool(found.query_block and found.key_block):
        yield "blocks of a size, and how many of which"
    if found.query_block % 16 or found.key_block % 16:
        yield f"blocks of {found.query_block} queries and {found.key_block} keys"
    for function in found.functions():
        yield from _value(function, inner)


def verify_kernel(kernel: LoopKernel) -> None:
    """Raises GraphError GI040 with every complaint."""
    found = list(complaints(kernel))
    if found:
        raise GraphError("GI040", f"kernel {kernel.name} is illegal", why="; ".join(found[:10]), hint="this is a bug of the compiler")


def _axes(axes: tuple[Axis, ...], scope: _Scope) -> Iterator[str]:
    for axis in axes:
        if axis.extent.symbols - set(scope.kernel.symbols):
            yield f"extent of axis {axis.name} depends on more than size symbols"
        if (n := axis.extent.constant) is not None and n <= 0:
            yield f"axis {axis.name} has extent {n}"
        if axis.name in scope.symbols or axis.name in scope.values:
            yield f"axis {axis.name} hides another name"
        scope.symbols.add(axis.name)


def _nest(nest: Nest, scope: _Scope) -> Iterator[str]:
    yield from _axes(nest.axes, scope)
    extents: dict[str, Index] = {}
    for axis in (axis for phase in nest.phases for axis in phase.axes):
        if extents.setdefault(axis.name, axis.extent) != axis.extent:
            yield f"axis {axis.name} has two extents in one nest"
    if any(s.op in SORTS for p in nest.phases for s in p.scans):
        yield from (
            f"a row of {' x '.join(str(a.extent) for a in p.axes)} beside one in order" for p in nest.phases if not _is_short(p.axes)
        )
    yield from crossings(nest)
    for phase in nest.phases:
        inner = scope.inner()
        yield from _phase(phase, inner)
        kept = phase.lets if not phase.axes else ()
        for let in kept:
            scope.values[let.name] = let.value.dtype
        for r in phase.reductions:
            for k, name in enumerate(r.names):
                scope.values[name] = "int64" if k and r.op.startswith("arg") else r.dtype


def _is_short(axes: tuple[Axis, ...]) -> bool:
    """Whether there are surely no more points than of a row that is put in order."""
    extents = all_known(a.extent.constant for a in axes)
    return extents is not None and math.prod(extents) <= LONGEST_SORT


def _phase(phase: Phase, scope: _Scope) -> Iterator[str]:
    yield from _axes(phase.axes, scope)
    for let in phase.lets:
        if let.name in scope.values or let.name in scope.symbols:
            yield f"let {let.name} hides another name"
        yield from _value(let.value, scope)
        scope.values[let.name] = let.value.dtype
    for check in phase.checks:
        yield from _value(check.condition, scope)
        if check.condition.dtype != "bool":
            yield "the condition of a check is not bool"
    for r in phase.reductions:
        yield from _value(r.value, scope)
        if r.op not in _REDUCTIONS or len(r.names) != _REDUCTION_NAMES.get(r.op, 1):
            yield f"reduction {r.op} with {len(r.names)} names"
        if r.value.dtype != r.dtype:
            yield f"reduction {r.names} of {r.value.dtype} accumulates in {r.dtype}"
        if not phase.axes:
            yield f"reduction {r.names} over nothing"
    yield from _scans(phase, scope)
    for s in phase.stores:
        buffer = scope.buffers.get(s.buffer)
        yield from _value(s.value, scope)
        yield from _index(s.index, scope, f"store to {s.buffer}")
        if buffer is None:
            yield f"store to unknown buffer {s.buffer}"
        elif buffer.dtype != s.value.dtype:
            yield f"store of {s.value.dtype} to {s.buffer} of {buffer.dtype}"
        if s.first is not None and not _is_part(s, phase):
            yield f"a store of the first {s.first} points to {s.buffer}"
    scope.stored.update(s.buffer for s in phase.stores)


def _scans(phase: Phase, scope: _Scope) -> Iterator[str]:
    if not phase.scans:
        return
    if len(phase.axes) != 1 or phase.reductions or len({s.reverse for s in phase.scans}) > 1:
        yield f"scans {[s.names for s in phase.scans]} do not stand alone along one axis, in one direction"
    for s in phase.scans:
        if s.op in SORTS and s.reverse:
            yield f"{s.names} are in order from the end"
        if (len(s.names), len(s.values)) != _SCANS.get(s.op):
            yield f"scan {s.op} with {len(s.names)} names and {len(s.values)} values"
        for v in s.values:
            yield from _value(v, scope)
            if v.dtype != s.dtype:
                yield f"scan {s.names} of {v.dtype} is kept in {s.dtype}"
        for k, name in enumerate(s.names):
            scope.values[name] = "int64" if k else s.dtype


def _is_part(store: Store, phase: Phase) -> bool:
    """Whether a store of the first points of a row is of one that is put in order, and of fewer than all."""
    ordered = len(phase.axes) == 1 and any(s.op in SORTS for s in phase.scans)
    extent = phase.axes[0].extent.constant if ordered else None
    return store.mode == "set" and extent is not None and store.first is not None and 0 < store.first < extent


def _index(i: Index, scope: _Scope, where: str) -> Iterator[str]:
    for name in sorted(i.symbols - scope.symbols):
        if not scope.values.get(name, "").startswith(("int", "uint")):
            yield f"{where} uses {name}, which is no axis, size or integer let here"


def _value(root: Expr, scope: _Scope) -> Iterator[str]:
    stack, seen = [root], set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        yield from LAWS[type(e)](e, scope)
        stack.extend(e.args if type(e) is Op else [e.mask] if type(e) is Load and e.mask is not None else [])


def _const(e: Const, scope: _Scope) -> Iterator[str]:
    wanted = bool if e.dtype == "bool" else float if e.dtype.startswith(("float", "bfloat")) else int
    if type(e.value) is not wanted:
        yield f"constant {e.value!r} of {e.dtype}"


def _load(e: Load, scope: _Scope) -> Iterator[str]:
    buffer = scope.buffers.get(e.buffer)
    yield from _index(e.index, scope, f"load of {e.buffer}")
    if buffer is None:
        yield f"load of unknown buffer {e.buffer}"
        return
    if buffer.dtype != e.dtype:
        yield f"load of {e.dtype} from {e.buffer} of {buffer.dtype}"
    if buffer.role == "out" and e.buffer not in scope.stored:
        yield f"{e.buffer} is read before it is written, and is no inout"
    if e.mask is not None and e.mask.dtype != "bool":
        yield f"mask of {e.mask.dtype}"
    if e.other is not None and e.other.dtype != e.dtype:
        yield f"load of {e.dtype} else {e.other.dtype}"
    if e.other is not None and e.mask is None:
        yield f"{e.buffer} is read everywhere, and something else elsewhere"


def _op(e: Op, scope: _Scope) -> Iterator[str]:
    row = PRIMITIVES.get(e.name)
    if row is None or row.arity != len(e.args):
        yield f"no primitive {e.name} of {len(e.args)} operands"
        return
    types = {a.dtype for a in (e.args[1:] if e.name == "where" else e.args)}
    if len(types) > 1:
        yield f"{e.name} of {sorted(types)}"
    wanted = {"same": e.args[-1].dtype, "bool": "bool", "any": e.dtype}[row.result]
    if e.dtype != wanted:
        yield f"{e.name} of {sorted(types)} gives {e.dtype}"
    if row.floats_only and not e.dtype.startswith("float"):
        yield f"{e.name} of {e.dtype}"
    if row.result != "any" and e.name not in ("where", "rounded") and types & _ARITHMETIC_FREE:
        yield f"arithmetic {e.name} in {sorted(types)}"


def _ref(e: Ref, scope: _Scope) -> Iterator[str]:
    if e.name not in scope.values:
        yield f"{e.name} is not defined here"
    elif scope.values[e.name] != e.dtype:
        yield f"{e.name} is {scope.values[e.name]}, not {e.dtype}"


LAWS: dict[type, Callable[..., Iterator[str]]] = {
    Const: _const,
    IndexValue: lambda e, scope: _index(e.index, scope, "index value"),
    Load: _load,
    Op: _op,
    Ref: _ref,
}
"""What each kind of expression must satisfy."""
