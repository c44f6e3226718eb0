"""Stores of a phase that fill memory together, the lanes of one between those of the others (real and imaginary parts, the halves of
pairs that are turned): whole vectors are put together of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmill_graph_ir.loops.ir import Store

from . import convert
from .body import Body
from .memory import PICKED
from .needs import Needs
from .types import C_OF_SHORT


def together(body: Body, stores: Sequence[Store]) -> Iterator[tuple[Store, ...]]:
    """The stores in groups, each where its last one stands: mostly of one, else of as many as their lanes are apart, in order of their
    places. Each is to be written on its own where not all lanes are in use."""
    to: dict[str, list[Store]] = {}
    if body.lanes is not None and body.lanes.part is None:
        for store in stores:
            to.setdefault(store.buffer, []).append(store)
    whole: dict[int, tuple[Store, ...]] = {}
    for found in to.values():
        step = body.lane_stride(found[0].index)
        alike = all(s.mode == "set" and s.first is None and body.lane_stride(s.index) == step for s in found)
        if isinstance(step, int) and step in PICKED and alike:
            whole |= {id(s): group for group in _full(found, step) for s in group}
    left = {id(group): len(group) for group in whole.values()}
    for store in stores:
        group = whole.get(id(store), (store,))
        if len(group) == 1:
            yield group
            continue
        left[id(group)] -= 1
        if not left[id(group)]:
            yield group


def _full(stores: list[Store], step: int) -> list[tuple[Store, ...]]:
    """Groups of ``step`` stores to places one behind the other. None where a place is written twice: then their order counts."""
    first = stores[0].index
    places = {(s.index - first).constant: s for s in stores}
    if None in places or len(places) < len(stores):
        return []
    found, rest = [], sorted(p for p in places if p is not None)
    while len(rest) >= step:
        if rest[step - 1] - rest[0] == step - 1:
            found.append(tuple(places[p] for p in rest[:step]))
            rest = rest[step:]
        else:
            rest = rest[1:]
    return found


def store_together(body: Body, stores: tuple[Store, ...]) -> None:
    """Writes the vectors of stores to neighbouring places, lane by lane, at once."""
    assert body.lanes is not None
    vectors, dtype = body.lanes.vectors, stores[0].value.dtype
    texts = [convert.to_memory(body.needs, body.wide(s.value), dtype, vectors) for s in stores]
    put = _interleaved(body.needs, convert.memory_short(dtype), vectors.lanes, len(stores))
    body.block.add(f"{put}(p_{stores[0].buffer} + {body.index(stores[0].index)}, {', '.join(texts)});")


def _interleaved(needs: Needs, short: str, lanes: int, count: int) -> str:
    """The name of a function that stores the lanes of ``count`` vectors in turns."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    name, lines = f"interleave_{v}_{count}", []
    for k in range(count):
        places = [divmod(k * lanes + lane, count) for lane in range(lanes)]  # lane of which vector
        text = "x0"
        for other in range(1, count):
            picks = [lanes + at if of == other else at if other == 1 and of == 0 else lane for lane, (at, of) in enumerate(places)]
            text = f"__builtin_shufflevector({text}, x{other}, {', '.join(map(str, picks))})"
        lines.append(f"  *({v}u*)(p + {k * lanes}) = {text};")
    parameters = ", ".join(f"{v} x{k}" for k in range(count))
    return needs.add(name, f"static inline void {name}({c}* p, {parameters}) {{\n" + "\n".join(lines) + "\n}")


__all__ = ["store_together", "together"]
