"""Random words. Philox makes four at a time: where a tile walks through places one by one, each call serves four elements."""

from __future__ import annotations

import re
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


def philox(body: Writer, e: Op) -> Text:
    """The words at the places ``e.args[1]`` of the sequence ``e.args[0]``."""
    key, place = e.args
    seed = body.value(key)
    group = body.groups[-1] if body.groups else None
    if not seed.dims and group is not None and type(place) is IndexValue and _one_by_one(place.index, group, body.groups):
        return _fours(body, seed.text, place.index, group)
    at = body.value(place)
    dims: Dims = seed.dims | at.dims
    body.needs.setdefault("philox")
    body.needs.setdefault("philox_word")
    return body.put(f"philox_word({seed.text}, {body.spread(at, dims)})", dims)


def _fours(body: Writer, seed: str, index: Index, group: Group) -> Text:
    at = body.space.index(index)
    quad = f"{group.name}quad"
    lines = body.outer if group.name != "r" else body.inner
    if quad not in lines.same:
        lines.add(f"{quad} = {group.start} // 4 + tl.arange(0, {group.name.upper()}BLOCK // 4){group.along}")
        lines.same[quad] = Text(quad, frozenset({group.name}), True)
    counter = re.sub(rf"\b{group.variable}\b", f"4 * {quad}", at.text)
    counter = quad if counter == f"4 * {quad}" else f"({counter}) // 4"
    body.needs.setdefault("philox")
    words = [body.fresh("word") for _ in range(4)]
    lines.add(f"{', '.join(words)} = philox({seed}, {counter})")
    a, b, c, d = words
    return body.put(f"tl.reshape(tl.join(tl.join({a}, {c}), tl.join({b}, {d})), {body.block(at.dims)})", at.dims, False)


def _one_by_one(index: Index, group: Group, groups: list[Group]) -> bool:
    """Whether ``index`` is the position along ``group`` and multiples of four, and each tile starts at one."""
    if group.block % 4:
        return False
    rest = index
    for k, axis in enumerate(group.axes):
        if axis.extent != ONE and index.stride_of(axis.name) != product(group.axes[k + 1 :]):
            return False
        rest = rest - product(group.axes[k + 1 :]) * axis.name if axis.name in index.symbols else rest
    for axis in (a for g in groups if g is not group for a in g.axes):
        stride = index.stride_of(axis.name) if axis.name in index.symbols else ZERO
        if stride is None or stride.constant is None or stride.constant % 4:
            return False
        rest = rest - stride * axis.name
    return rest.constant is not None and rest.constant % 4 == 0


__all__ = ["philox"]
