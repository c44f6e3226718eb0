"""Expressions of a nest as C++ statements: each distinct value is computed once, in the outermost block where it can be."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Check, Const, Expr, IndexValue, Let, Load, Op, Ref, Store

from ..target import Target
from . import convert, memory
from .block import Block
from .constants import const_text
from .functions import function, splat
from .index_text import index_text
from .lanes import even_step, offsets, step_between_turns
from .needs import Needs
from .primitives import COMPARISONS, LOGICAL, ROWS
from .types import SIGNED_OF_SIZE, TYPES, Vectors

_CALL = re.compile(r"%(\w+)")
LaneStride = int | str | None
"""Elements between the addresses of neighbouring lanes: a number, C++ text, or None where it varies."""


@dataclass(frozen=True)
class Value:
    """C++ text of a value, and whether it is a vector."""

    text: str
    vector: bool


@dataclass(frozen=True)
class VectorAxis:
    """The axis that runs along the lanes. ``part``: (number of lanes in use, or its name, and name of the mask) where not all are."""

    axis: str
    vectors: Vectors
    part: tuple[str, str] | None = None


class Body:
    """State of emission inside one nest. ``block`` is the innermost open block; ``copy`` numbers the copies of an unrolled vector loop."""

    def __init__(self, root: Block, needs: Needs, target: Target, extents: Mapping[str, int], volatile: frozenset[str]) -> None:
        self.root = self.block = root
        self.needs, self.target, self.extents, self.volatile = needs, target, dict(extents), volatile
        self.copy = 0
        self.lanes: VectorAxis | None = None
        self.rows: str | None = None
        """The axis that the copies are rows along, where they stand side by side for squares of memory to be read across (see
        ``memory.square``)."""
        self.names: dict[str, str] = {}
        self.homes: dict[str, Block] = {}
        self.lets: dict[str, Expr] = {}
        self._told: dict[str, Expr] = {}
        self.results: dict[tuple[str, int], tuple[Value, Block]] = {}
        self._counter = itertools.count()
        self._depends: dict[Expr, tuple[frozenset[str], bool]] = {}

    # ---- names -----------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str = "t") -> str:
        return f"{prefix}{next(self._counter)}"

    def bind_axis(self, axis: str, text: str, block: Block) -> None:
        self.names[axis], self.homes[axis] = text, block

    def depends(self, expr: Expr) -> tuple[frozenset[str], bool]:
        """Names that a value depends on, lets not resolved; and whether it reads a buffer that the nest also writes."""
        if (known := self._depends.get(expr)) is not None:
            return known
        names: frozenset[str] = frozenset()
        volatile = False
        children: tuple[Expr, ...] = ()
        if isinstance(expr, IndexValue):
            names = expr.index.symbols
        elif isinstance(expr, Load):
            names, volatile = expr.index.symbols, expr.buffer in self.volatile
            children = (expr.mask,) if expr.mask is not None else ()
        elif isinstance(expr, Op):
            children = expr.args
        elif isinstance(expr, Ref):
            names = frozenset([expr.name])
        for child in children:
            n, v = self.depends(child)
            names, volatile = names | n, volatile or v
        self._depends[expr] = names, volatile
        return names, volatile

    def result(self, name: str) -> tuple[Value, Block] | None:
        """A finished value and where it stands. Copies of an inner loop share what was finished before it, as copy 0."""
        return self.results.get((name, self.copy)) or self.results.get((name, 0))

    def define(self, lets: Iterable[Let]) -> None:
        """Lets of a phase. Parts of a loop give one name several values (a mask is true in one and false in the next): what was made of
        another is forgotten."""
        changed = {let.name for let in lets if self._told.get(let.name, let.value) != let.value}
        self.lets |= (told := {let.name: let.value for let in lets})
        self._told |= told
        while again := {n for n, value in self.lets.items() if n not in changed and self.depends(value)[0] & changed}:
            changed |= again
        block: Block | None = self.block
        while block is not None and changed:
            self._forget(block, lambda expr: bool(self.depends(expr)[0] & changed))
            block = block.parent

    def home(self, expr: Expr) -> Block:
        """The block that a value is computed in: the innermost of those that what it depends on stands in."""
        deepest, names = self.root, list(self.depends(expr)[0])
        if self.depends(expr)[1]:
            return self.block
        seen = set(names)
        while names:
            name = names.pop()
            block = self.homes.get(name, self.root)
            if (result := self.result(name)) is not None:
                block = result[1]
            elif name in self.lets:
                behind, volatile = self.depends(self.lets[name])
                block = self.block if volatile else self.root
                names += () if volatile else behind - seen
                seen |= behind
            deepest = block if block.depth > deepest.depth else deepest
        return deepest

    def varies_name(self, name: str) -> bool:
        """Whether a name differs between lanes."""
        if self.lanes is None:
            return False
        if name == self.lanes.axis:
            return True
        if (result := self.result(name)) is not None:
            return result[0].vector
        return name in self.lets and self.varies(self.lets[name])

    def varies(self, expr: Expr) -> bool:
        return any(self.varies_name(n) for n in self.depends(expr)[0])

    def _depends_on_rows(self, expr: Expr) -> bool:
        if self.rows is None:
            return False
        names = self.depends(expr)[0]
        return self.rows in names or any(n in self.lets and self._depends_on_rows(self.lets[n]) for n in names)

    # ---- values ----------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        if isinstance(expr, Const):
            return Value(const_text(expr), False)
        if isinstance(expr, Ref):
            return self.named(expr.name)
        home, key = self._place(expr)
        if (known := home.memo.get(key)) is not None:
            return known
        made = _emit(self, expr, home)
        home.memo[key] = made
        return made

    def _place(self, expr: Expr) -> tuple[Block, tuple[Expr, int]]:
        """The block that a value is computed in, and what that remembers it by."""
        return self.home(expr), (expr, self.copy if self.varies(expr) or self._depends_on_rows(expr) else -1)

    def named(self, name: str) -> Value:
        """A let or a reduction's result."""
        if (result := self.result(name)) is not None:
            return result[0]
        for earlier in self._behind(name):
            self.value(self.lets[earlier])
        return self.value(self.lets[name])

    def _behind(self, name: str) -> list[str]:
        """The lets behind one that are not computed yet, first ones first: asking for each other, they would go deeper than Python's
        stack."""
        order: list[str] = []
        todo, seen = [(name, False)], set()
        while todo:
            each, ready = todo.pop()
            if ready:
                order.append(each)
            elif each in self.lets and each not in seen and self.result(each) is None:
                seen.add(each)
                home, key = self._place(self.lets[each])
                if key not in home.memo:
                    todo += [(each, True), *((inner, False) for inner in sorted(self.depends(self.lets[each])[0]))]
        return order[:-1]

    def settled(self, name: str) -> tuple[Value, Block]:
        """A let, computed here and now: what it reads may be overwritten later."""
        expr = self.lets[name]
        return self.value(expr), self.home(expr)

    def forget_volatile(self) -> None:
        """After a store: values read from written buffers are stale."""
        self._forget(self.block, lambda expr: self.depends(expr)[1])

    def _forget(self, block: Block, is_stale: Callable[[Expr], bool]) -> None:
        for key in [k for k in block.memo if any(isinstance(part, (Op, Load, IndexValue)) and is_stale(part) for part in k)]:
            del block.memo[key]

    def bind(self, home: Block, text: str, dtype: str, is_vector: bool) -> Value:
        name = self.fresh()
        home.add(f"const {convert.value_type(self.needs, dtype, self._vectors(is_vector))} {name} = {text};")
        return Value(name, is_vector)

    def _vectors(self, is_vector: bool) -> Vectors | None:
        return self.lanes.vectors if is_vector and self.lanes else None

    def wide(self, expr: Expr) -> str:
        """The value as a vector."""
        value = self.value(expr)
        return value.text if value.vector else self.spread(value.text, expr.dtype, self.home(expr))

    def spread(self, text: str, dtype: str, home: Block) -> str:
        """A scalar in every lane."""
        assert self.lanes is not None
        vectors = self.lanes.vectors
        short = convert.value_short(dtype, vectors)
        key = ("spread", text, short, vectors)
        if key not in home.memo:
            put = splat(self.needs, short, vectors.lanes)
            name = self.fresh()
            scalar = f"{text} ? -1 : 0" if dtype == "bool" else text
            home.add(f"const {self.needs.vector(short, vectors.lanes)} {name} = {put}({scalar});")
            home.memo[key] = name
        return str(home.memo[key])

    # ---- indices ---------------------------------------------------------------------------------------------------

    def index(self, i: Index, lane: str = "") -> str:
        """An index at lane 0, or at lane ``lane``."""
        names = dict(self.names)
        for symbol in i.symbols:
            if symbol in self.lets or self.result(symbol) is not None:
                value = self.named(symbol)
                names[symbol] = f"(long){value.text}[{lane or 0}]" if value.vector else f"(long){value.text}"
        if lane and self.lanes is not None:
            names[self.lanes.axis] = f"({self.names[self.lanes.axis]} + {lane})"
        return index_text(i, names, self.extents, self.needs)

    def lane_stride(self, i: Index) -> LaneStride:
        if self.lanes is None or not any(self.varies_name(s) for s in i.symbols):
            return 0
        axis, lanes = self.lanes.axis, self.lanes.vectors.lanes
        if any(self.varies_name(s) for s in i.symbols if s != axis):
            return None
        stride = i.stride_of(axis)
        if stride is None and (stride := even_step(i, axis, lanes, self.extents)) is None:
            return None
        return stride.constant if stride.constant is not None else self.index(stride)

    def lane_offsets(self, i: Index) -> tuple[int, ...] | None:
        """How far lanes are from the first, where these are a few neighbours in every vector."""
        if self.lanes is None or any(self.varies_name(s) for s in i.symbols if s != self.lanes.axis):
            return None
        return offsets(i, self.lanes.axis, self.lanes.vectors.lanes, self.extents)

    def mostly_apart(self, i: Index) -> tuple[int, str] | None:
        """How far lanes are from each other in most vectors, and how it is told (C++ text) that they are in this one."""
        if self.lanes is None or any(self.varies_name(s) for s in i.symbols if s != self.lanes.axis):
            return None
        last = self.lanes.vectors.lanes - 1
        step = step_between_turns(i, self.lanes.axis, last + 1)
        return None if step is None else (step, f"{self.index(i, str(last))} - ({self.index(i)}) == {step * last}")

    def places(self, i: Index) -> str | None:
        """An index of each lane, as a vector of int64, where it is a sum of multiples of what differs between lanes."""
        if self.lanes is None:
            return None
        vectors, rest, text = self.lanes.vectors, i, ""
        for symbol in sorted(s for s in i.symbols if self.varies_name(s)):
            step = i.stride_of(symbol)
            if step is None or step.constant is None:
                return None
            if symbol == self.lanes.axis:  # the axis is where the first lane is
                text += f" + {memory.iota(self.needs, 'i64', vectors.lanes)} * {step.constant}L"
                continue
            if symbol not in self.lets:
                return None
            rest = rest - step * symbol
            lanes = convert.cast(self.needs, self.named(symbol).text, self.lets[symbol].dtype, "int64", vectors, self.target)
            text += f" + {lanes}" if step.constant == 1 else f" + {lanes} * {step.constant}L"
        return f"{splat(self.needs, 'i64', vectors.lanes)}({self.index(rest)}){text}"

    # ---- effects ---------------------------------------------------------------------------------------------------

    def check(self, check: Check, number: int) -> None:
        if isinstance(check.condition, Const) and check.condition.value:
            return
        value = self.value(check.condition)
        home = self.home(check.condition)
        if not value.vector:
            home.add(f"if (!{value.text}) return {number};")
            return
        assert self.lanes is not None
        vectors = self.lanes.vectors
        every = memory.all_lanes(self.needs, vectors.mask_short(), vectors.lanes, self.target)
        mask = f"{value.text} | ~{self.lanes.part[1]}" if self.lanes.part else value.text
        home.add(f"if (!{every}({mask})) return {number};")

    def store(self, store: Store) -> None:
        dtype = store.value.dtype
        stride = self.lane_stride(store.index)
        value = self.value(store.value)
        if self.lanes is None or not (value.vector or stride != 0 or (store.mode != "set" and self._inside())):
            self.block.add(self._assign(f"p_{store.buffer}[{self.index(store.index)}]", value.text, dtype, store.mode))
            return
        vectors, part = self.lanes.vectors, self.lanes.part
        text = convert.to_memory(self.needs, self.wide(store.value), dtype, vectors)
        short = convert.memory_short(dtype)
        if stride == 1 and store.mode == "set":
            helper = (partial(memory.store_part, target=self.target) if part else memory.store)(self.needs, short, vectors.lanes)
            tail = f", {part[0]}" if part else ""
            self.block.add(f"{helper}(p_{store.buffer} + {self.index(store.index)}, {text}{tail});")
            return
        if stride is not None and stride != 0 and store.mode == "set" and not part:
            helper = memory.store_strided(self.needs, short, vectors.lanes)
            self.block.add(f"{helper}(p_{store.buffer} + {self.index(store.index)}, {stride}, {text});")
            return
        name = self.fresh()
        self.block.add(f"const {self.needs.vector(short, vectors.lanes)} {name} = {text};")
        if stride == 1 and dtype != "bool":
            self._combine(store, name)
            return
        assign = self._assign(f"p_{store.buffer}[{self.index(store.index, 'l')}]", f"{name}[l]", dtype, store.mode)
        self.block.add(memory.each_lane(part[0] if part else str(vectors.lanes), assign))

    def _combine(self, store: Store, name: str) -> None:
        """Lanes that go to neighbouring places, together with what is there: all at once."""
        assert self.lanes is not None
        vectors, part, dtype = self.lanes.vectors, self.lanes.part, store.value.dtype
        short, count = convert.memory_short(dtype), f", {part[0]}" if part else ""
        load = (partial(memory.load_part, target=self.target) if part else memory.load)(self.needs, short, vectors.lanes)
        put = (partial(memory.store_part, target=self.target) if part else memory.store)(self.needs, short, vectors.lanes)
        wide = "float32" if TYPES[dtype].kind == "raw" else dtype
        place, texts = f"p_{store.buffer} + {self.index(store.index)}", []
        for text in (f"{load}({place}{count})", name):
            each = self.fresh()
            held = self.needs.vector(convert.value_short(wide, vectors), vectors.lanes)
            self.block.add(f"const {held} {each} = {convert.cast(self.needs, text, dtype, wide, vectors, self.target)};")
            texts.append(each)
        both = convert.cast(self.needs, _COMBINED[store.mode].format(*texts), wide, dtype, vectors, self.target)
        self.block.add(f"{put}({place}, {both}{count});")

    def _inside(self) -> bool:
        """Whether the vector axis is open here."""
        return self.lanes is not None and self.lanes.axis in self.names

    def _assign(self, place: str, text: str, dtype: str, mode: str) -> str:
        if mode == "set":
            return f"{place} = {text};"
        if TYPES[dtype].kind == "raw":
            old, new = (convert.cast(self.needs, t, dtype, "float32", None, self.target) for t in (place, text))
            return f"{place} = {convert.cast(self.needs, _COMBINED[mode].format(old, new), 'float32', dtype, None, self.target)};"
        if dtype == "bool":
            return f"{place} {'|' if mode in ('add', 'max') else '&'}= {text};"
        return f"{place} = {_COMBINED[mode].format(place, text)};"

    def masked(self, mask: str, text: str, otherwise: str, dtype: str) -> str:
        """A choice by lane mask (of the loop's mask width) between vectors."""
        assert self.lanes is not None
        vectors = self.lanes.vectors
        size = vectors.mask if dtype == "bool" else TYPES[dtype].size
        return f"({convert.mask_for(self.needs, mask, size, vectors)} ? {text} : {otherwise})"


_COMBINED = {
    "add": "({0} + {1})",
    "mul": "({0} * {1})",
    "max": "(({0} != {0}) | ({0} > {1}) ? {0} : {1})",
    "min": "(({0} != {0}) | ({0} < {1}) ? {0} : {1})",
}
"""How a store combines what is there with a value."""


# ---- one function a kind of expression -----------------------------------------------------------------------------------


def _index_value(body: Body, expr: IndexValue, home: Block) -> Value:
    stride = body.lane_stride(expr.index)
    if stride == 0:
        text = convert.cast(body.needs, body.index(expr.index), "int64", expr.dtype, None, body.target)
        return body.bind(home, text, expr.dtype, False)
    assert body.lanes is not None
    vectors = body.lanes.vectors
    bounds = expr.index.bounds(body.extents)
    wide = bounds is None or max(map(abs, bounds)) + vectors.lanes >= 1 << 31
    dtype = "int64" if wide else "int32"
    short = TYPES[dtype].short
    if stride is None:
        name = body.fresh()
        home.add(f"{body.needs.vector(short, vectors.lanes)} {name};")
        each = memory.each_lane(str(vectors.lanes), f"{name}[l] = {body.index(expr.index, 'l')};")
        if (mostly := body.mostly_apart(expr.index)) is not None:
            home.add(f"if ({mostly[1]}) {name} = {_numbered(body, short, TYPES[dtype].c, body.index(expr.index), mostly[0])};")
            each = f"else {{ {each} }}"
        home.add(each)
        text = name
    else:
        text = _numbered(body, short, TYPES[dtype].c, body.index(expr.index), stride)
    return body.bind(home, convert.cast(body.needs, text, dtype, expr.dtype, vectors, body.target), expr.dtype, True)


def _numbered(body: Body, short: str, c: str, first: str, stride: LaneStride) -> str:
    """A vector of integers, so far apart."""
    assert body.lanes is not None
    lanes = body.lanes.vectors.lanes
    return f"({splat(body.needs, short, lanes)}(({c}){first}) + {memory.iota(body.needs, short, lanes)} * ({c})({stride}))"


def _load(body: Body, expr: Load, home: Block) -> Value:
    stride = body.lane_stride(expr.index)
    other = expr.other if expr.other is not None else Const(0, expr.dtype)
    mask = None if expr.mask is None else body.value(expr.mask)
    if stride == 0 and (mask is None or not mask.vector):
        text = f"p_{expr.buffer}[{body.index(expr.index)}]"
        if mask is not None:
            text = f"({mask.text} ? {text} : {const_text(other)})"
        return body.bind(home, convert.from_memory(body.needs, text, expr.dtype, None), expr.dtype, False)
    assert body.lanes is not None
    vectors = body.lanes.vectors
    if mask is None:
        text = _plain_load(body, expr, stride, home)
    elif not mask.vector:
        rest = _spread_in_memory(body, other)
        if stride is None:
            text = _lane_load(body, expr, home, mask.text, rest)
        else:
            text = f"({mask.text} ? {_plain_load(body, expr, stride, home)} : {rest})"
    else:
        text = _masked_load(body, expr, stride, mask.text, _spread_in_memory(body, other), home)
    return body.bind(home, convert.from_memory(body.needs, text, expr.dtype, vectors), expr.dtype, True)


def _spread_in_memory(body: Body, const: Const) -> str:
    assert body.lanes is not None
    short = convert.memory_short(const.dtype)
    return f"{splat(body.needs, short, body.lanes.vectors.lanes)}({const_text(const)})"


def _plain_load(body: Body, expr: Load, stride: LaneStride, home: Block) -> str:
    assert body.lanes is not None
    lanes, part, short = body.lanes.vectors.lanes, body.lanes.part, convert.memory_short(expr.dtype)
    where = f"p_{expr.buffer} + {body.index(expr.index)}"
    if stride is None:
        if not part and (apart := body.lane_offsets(expr.index)):
            return f"{memory.neighbours(body.needs, short, apart, body.target)}({where})"
        return _lane_load(body, expr, home, "", "{}")
    count = f", {part[0]}" if part else ""
    if stride == 1:
        return f"{(partial(memory.load_part, target=body.target) if part else memory.load)(body.needs, short, lanes)}({where}{count})"
    if body.rows is not None and not part and (along := expr.index.stride_of(body.rows)) is not None and along.constant == 1:
        return _from_square(body, expr, stride, home)
    helper = memory.strided_part(body.needs, short, lanes) if part else memory.strided(body.needs, short, lanes, stride)
    return f"{helper}({where}, {stride}{count})"


def _from_square(body: Body, expr: Load, stride: int | str, home: Block) -> str:
    """One of the vectors that are read together; the first copy that needs one reads all."""
    assert body.lanes is not None
    lanes, short = body.lanes.vectors.lanes, convert.memory_short(expr.dtype)
    if (name := home.memo.get(("square", expr))) is None:
        name = home.memo["square", expr] = body.fresh("q")
        where = f"p_{expr.buffer} + {body.index(expr.index)}{f' - {body.copy}' if body.copy else ''}"
        home.add(
            f"{body.needs.vector(short, lanes)} {name}[{lanes}]; {memory.square(body.needs, short, lanes)}({where}, {stride}, {name});"
        )
    return f"{name}[{body.copy}]"


def _lane_load(body: Body, expr: Load, home: Block, condition: str, start: str) -> str:
    """Lane by lane. Where ``condition`` of a lane is false, it stays as in ``start``, and nothing is read for it."""
    assert body.lanes is not None
    lanes, part, short = body.lanes.vectors.lanes, body.lanes.part, convert.memory_short(expr.dtype)
    name, place = body.fresh(), f"p_{expr.buffer}[{body.index(expr.index, 'l')}]"
    gather = memory.gather(body.needs, short, lanes, body.target) if not part and not condition else None
    if gather is not None and (places := body.places(expr.index)) is not None:
        home.add(f"const {body.needs.vector(short, lanes)} {name} = {gather}(p_{expr.buffer}, {places});")
        return name
    home.add(f"{body.needs.vector(short, lanes)} {name} = {start};")
    if not part and not condition and (mostly := body.mostly_apart(expr.index)) is not None:
        home.add(f"if ({mostly[1]}) {name} = {_evenly(body, short, body.index(expr.index), expr.buffer, mostly[0])};")
        home.add(f"else {{ {memory.each_lane(str(lanes), f'{name}[l] = {place};')} }}")
        return name
    count = part[0] if part else str(lanes)
    if not count.isdigit():
        count, condition = str(lanes), f"l < {count}{f' && {condition}' if condition else ''}"
    if condition:
        other = body.fresh()
        home.add(f"const {TYPES[expr.dtype].c} {other} = {name}[0];")
        place = f"*({condition} ? &{place} : &{other})"  # no jump
    home.add(memory.each_lane(count, f"{name}[l] = {place};"))
    return name


def _evenly(body: Body, short: str, at: str, buffer: str, step: int) -> str:
    """Lanes ``step`` elements apart; one element for all where that is zero."""
    assert body.lanes is not None
    lanes = body.lanes.vectors.lanes
    if step == 0:
        return f"{splat(body.needs, short, lanes)}(p_{buffer}[{at}])"
    helper = memory.load(body.needs, short, lanes) if step == 1 else memory.strided(body.needs, short, lanes, step)
    return f"{helper}(p_{buffer} + {at}{'' if step == 1 else f', {step}'})"


def _masked_load(body: Body, expr: Load, stride: LaneStride, mask: str, other: str, home: Block) -> str:
    assert body.lanes is not None
    vectors, part = body.lanes.vectors, body.lanes.part
    if part:
        mask = f"({mask} & {part[1]})"
    if stride is None:
        lane_mask = body.fresh()
        home.add(f"const {body.needs.vector(vectors.mask_short(), vectors.lanes)} {lane_mask} = {mask};")
        return _lane_load(body, expr, home, f"{lane_mask}[l]", other)
    helper = memory.masked_load(body.needs, convert.memory_short(expr.dtype), vectors.lanes, stride, vectors.mask_short(), body.target)
    return f"{helper}(p_{expr.buffer}, {body.index(expr.index)}, {stride}, {mask}, {other})"


def _op(body: Body, expr: Op, home: Block) -> Value:
    values = [body.value(a) for a in expr.args]
    is_vector = any(v.vector for v in values)
    vectors = body._vectors(is_vector)
    texts = [body.wide(a) for a in expr.args] if is_vector else [v.text for v in values]
    if expr.name == "where":
        if not values[0].vector:
            text = f"({values[0].text} ? {texts[1]} : {texts[2]})"
        else:
            text = body.masked(texts[0], texts[1], texts[2], expr.dtype)
        return body.bind(home, text, expr.dtype, is_vector)
    source = expr.args[0].dtype
    if expr.name == "cast":
        return body.bind(home, convert.cast(body.needs, texts[0], source, expr.dtype, vectors, body.target), expr.dtype, is_vector)
    if expr.name == "rounded":  # as everything is here
        return values[0]
    if expr.name == "bitcast":
        return body.bind(home, convert.bitcast(body.needs, texts[0], expr.dtype, vectors), expr.dtype, is_vector)
    if expr.name in LOGICAL:
        texts = [convert.cast(body.needs, t, a.dtype, "bool", vectors, body.target) for t, a in zip(texts, expr.args, strict=True)]
        source = "bool"
    text = _with_constant(body, expr, texts, vectors) or primitive_text(body.needs, expr.name, source, texts, vectors, body.target)
    if vectors is not None and expr.name in COMPARISONS and source != "bool":
        text = convert.resize(body.needs, text, SIGNED_OF_SIZE[TYPES[source].size], vectors.mask_short(), vectors)
    return body.bind(home, text, expr.dtype, is_vector)


def _with_constant(body: Body, expr: Op, texts: list[str], vectors: Vectors | None) -> str | None:
    """Division by a power of two is a product; of a value and a constant only one can be NaN."""
    constant = next((a for a in reversed(expr.args) if isinstance(a, Const)), None)
    if constant is not None and constant is expr.args[-1] and TYPES[expr.dtype].kind in ("int", "uint"):
        return _by_power(expr.name, texts[0], int(constant.value))
    if constant is None or TYPES[expr.dtype].kind != "float" or math.isnan(value := float(constant.value)):
        return None
    if expr.name in ("max", "min"):  # the constant where it wins, which it never does over NaN
        c, x = (texts[1], texts[0]) if constant is expr.args[1] else (texts[0], texts[1])
        name = "larger" if expr.name == "max" else "smaller"
        return f"{function(body.needs, name, TYPES[expr.dtype].short, vectors.lanes if vectors else 1, body.target)}({c}, {x})"
    if expr.name != "div" or vectors is None or constant is not expr.args[1]:
        return None
    exact = math.frexp(abs(value))[0] == 0.5 and 2.0**-100 < abs(value) < 2.0**100
    return f"({texts[0]} * {body.wide(Const(1.0 / value, expr.dtype))})" if exact else None


def _by_power(name: str, text: str, divisor: int) -> str | None:
    """Floored division of an integer by a power of two, and what is left of it: bits."""
    if divisor < 1 or divisor & (divisor - 1):
        return None
    return {"floordiv": f"({text} >> {divisor.bit_length() - 1})", "mod": f"({text} & {divisor - 1}L)"}.get(name)


def primitive_text(needs: Needs, name: str, dtype: str, texts: list[str], vectors: Vectors | None, target: Target) -> str:
    """A primitive of operands of ``dtype`` applied to texts."""
    lanes = vectors.lanes if vectors else 1
    template = ROWS[name].text(TYPES[dtype].kind, lanes)
    assert template is not None, (name, dtype)
    text = template.format(*texts)
    return _CALL.sub(lambda m: function(needs, m[1], TYPES[dtype].short, lanes, target), text)


_EMIT: dict[type, Callable[..., Value]] = {IndexValue: _index_value, Load: _load, Op: _op}


def _emit(body: Body, expr: Expr, home: Block) -> Value:
    return _EMIT[type(expr)](body, expr, home)
