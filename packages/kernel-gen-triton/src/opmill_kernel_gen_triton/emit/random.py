"""Random words. Philox makes four at a time: where a tile walks through places one by one, each call serves four elements, or eight
coins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from opmill_graph_ir.loops.index import ONE, ZERO, Index
from opmill_graph_ir.loops.ir import Expr, IndexValue, Op

from .space import Dims, Group, Space, Text, product


class Writer(Protocol):
    """What of a body random words need."""

    groups: list[Group]
    needs: dict[str, None]
    outer: Any
    inner: Any

    @property
    def space(self) -> Space: ...
    def value(self, expr: Expr) -> Text: ...
    def put(self, text: str, dims: Dims, movable: bool = True, prefix: str = "tmp") -> Text: ...
    def spread(self, value: Text, dims: Dims) -> str: ...
    def block(self, dims: Dims) -> str: ...
    def fresh(self, prefix: str = "tmp") -> str: ...


@dataclass(frozen=True)
class Kind:
    """Of words: ``served`` by one call of ``rounds``, and the function that gives one word alone."""

    served: int
    rounds: int
    alone: str


KINDS = {"philox": Kind(4, 10, "philox_word"), "coin": Kind(8, 7, "coin_word")}


def words(body: Writer, e: Op) -> Text:
    """The words at the places ``e.args[1]`` of the sequence ``e.args[0]``."""
    kind = KINDS[e.name]
    key, place = e.args
    seed = body.value(key)
    group = body.groups[-1] if body.groups else None
    if not seed.dims and group is not None and type(place) is IndexValue and _one_by_one(place.index, group, body.groups, kind.served):
        return _several(body, kind, seed.text, place.index, group)
    at = body.value(place)
    dims: Dims = seed.dims | at.dims
    for name in ("philox", "exchanged", kind.alone):
        body.needs.setdefault(name)
    return body.put(f"{kind.alone}({seed.text}, {body.spread(at, dims)})", dims)


def _several(body: Writer, kind: Kind, seed: str, index: Index, group: Group) -> Text:
    at = body.space.index(index)
    n = kind.served
    part = f"{group.name}by{n}"
    lines = body.outer if group.name != "r" else body.inner
    if part not in lines.same:
        lines.add(f"{part} = {group.start} // {n} + tl.arange(0, {group.name.upper()}BLOCK // {n}){group.along}")
        lines.same[part] = Text(part, frozenset({group.name}), True)
    own = sum((product(group.axes[k + 1 :]) * a.name for k, a in enumerate(group.axes) if a.name in index.symbols), ZERO)
    before = Index(tuple((monomial, c // n) for monomial, c in (index - own).terms))
    counter = part if before == ZERO else f"{body.space.index(before).text} + {part}"
    body.needs.setdefault("philox")
    four = [body.fresh("word") for _ in range(4)]
    lines.add(f"{', '.join(four)} = philox({seed}, {counter}, {kind.rounds})")
    a, b, c, d = four
    joined = f"tl.join(tl.join({a}, {c}), tl.join({b}, {d}))"
    if n == 8:
        body.needs.setdefault("exchanged")
        pair = body.fresh("word")
        lines.add(f"{pair} = {joined}")
        joined = f"tl.join({pair}, exchanged({pair}))"
    return body.put(f"tl.reshape({joined}, {body.block(at.dims)})", at.dims, False)


def _one_by_one(index: Index, group: Group, groups: list[Group], served: int) -> bool:
    """Whether ``index`` is the position along ``group`` and multiples of ``served``, and each tile starts at one."""
    if group.block % served:
        return False
    rest = index
    for k, axis in enumerate(group.axes):
        if axis.extent != ONE and index.stride_of(axis.name) != product(group.axes[k + 1 :]):
            return False
        rest = rest - product(group.axes[k + 1 :]) * axis.name if axis.name in index.symbols else rest
    for axis in (a for g in groups if g is not group for a in g.axes):
        stride = index.stride_of(axis.name) if axis.name in index.symbols else ZERO
        if stride is None or stride.constant is None or stride.constant % served:
            return False
        rest = rest - stride * axis.name
    return rest.constant is not None and rest.constant % served == 0


__all__ = ["KINDS", "words"]
