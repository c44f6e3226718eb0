"""Values of loop IR as lines of Triton, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Const, Expr, IndexValue, Load, Op, Ref, Store

from .. import walk
from .choices import merged, side
from .helpers import resolve
from .primitives import ROWS
from .random import KINDS, words
from .space import NONE, Dims, Group, Space, Text
from .types import TYPES, cast, constant, is_wide, literal, typed

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

VECTOR = 16
"""Bytes that a thread loads at once."""


@dataclass
class Lines:
    """Lines at one depth of indentation; ``same`` are the values computed in them, by text."""

    depth: int
    lines: list[str] = field(default_factory=list)
    same: dict[str, Text] = field(default_factory=dict)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


@dataclass
class Body:
    """Writes values. ``outer`` takes what does not vary along ``r``, ``inner`` the rest (the same lines unless ``r`` is a loop).

    ``groups`` are the tile's dimensions; ``written`` are buffers that the nest writes; ``quick`` allows quick functions,
    ``precise`` tiles multiply as float32 does, and unless it ``rounds`` what is computed in float32 is rounded only where it
    is stored. ``names`` maps lets, results and symbols to text, ``guards`` are masks of checks that have passed: (text, dims)."""

    rank: int
    outer: Lines
    written: frozenset[str]
    needs: dict[str, None]
    names: dict[str, Text]
    values: frozenset[str]
    precise: bool = False
    quick: bool = False
    stream: frozenset[str] = frozenset()
    groups: list[Group] = field(default_factory=list)
    guards: list[tuple[str, Dims]] = field(default_factory=list)
    count: int = 0
    zeros: bool = False
    """What is masked off is zero."""
    numels: Mapping[str, Index] = field(default_factory=dict)
    """Elements of buffers."""
    rounds: bool = False

    def __post_init__(self) -> None:
        self.inner = self.outer
        self.memo: dict[Expr, Text] = {}
        self.lets: dict[str, Expr] = {}
        self.changing: dict[str, bool] = {}
        self.known_wide: dict[Expr, bool] = {}
        self.wide: frozenset[str] = frozenset()
        """Results of reductions over data that half precision does not hold."""

    # ---- places --------------------------------------------------------------------------------------------------------

    @property
    def space(self) -> Space:
        return Space(self.groups, self.names, self.needs)

    def fresh(self, prefix: str = "tmp") -> str:
        self.count += 1
        return f"{prefix}{self.count - 1}"

    def define(self, name: str, text: str) -> str:
        """Names an index of the outer dimensions."""
        self.outer.add(f"{name} = {text}")
        return name

    def block(self, dims: Dims) -> str:
        """The shape of a value that varies along ``dims``."""
        sizes = [f"{g.name.upper()}BLOCK" if g.name in dims else "1" for g in self.groups]
        return f"[{', '.join(sizes + ['1'] * (self.rank - len(sizes)))}]"

    def put(self, text: str, dims: Dims, movable: bool = True, prefix: str = "tmp") -> Text:
        lines = self.outer if movable and "r" not in dims else self.inner
        known = lines.same.get(text) if movable else None
        if known is not None:
            return known
        name = Text(self.fresh(prefix), dims, True)
        lines.add(f"{name.text} = {text}")
        if movable:
            lines.same[text] = name
        return name

    def masks(self, dims: Dims) -> list[str]:
        return [f"{g.name}mask" for g in self.groups if g.masked and g.name in dims]

    def masks_of(self, e: Load, dims: Dims) -> list[str]:
        """As :meth:`masks`, for a load."""
        masked = [g for g in self.groups if g.masked and g.name in dims]
        return [f"{g.name}{'reach' if g.reach and self.reaches(e, g) else 'mask'}" for g in masked]

    def reaches(self, e: Load, g: Group, end: int = 0) -> bool:
        """Whether rows along ``g`` begin at multiples of vectors, and memory goes on until ``end`` (``g.reach``) behind each of them. What
        lies there is read in vain: sums and stores are masked where the row ends."""
        if e.mask is not None or len(g.axes) != 1 or e.index.symbols & self.values:
            return False
        name, numel = g.axes[0].name, self.numels.get(e.buffer, index(0)).constant
        stride, extents = e.index.stride_of(name), {a.name: a.extent.constant for o in self.groups for a in o.axes}
        if numel is None or stride is None or stride.constant != 1 or not e.index.symbols <= extents.keys():
            return False
        extents[name] = end or g.reach
        bounds = e.index.bounds({n: k for n, k in extents.items() if k is not None})
        whole = all(monomial == (name,) or c * TYPES[e.dtype].size % VECTOR == 0 for monomial, c in e.index.terms)
        return whole and bounds is not None and bounds[0] >= 0 and bounds[1] < numel

    def spread(self, value: Text, dims: Dims) -> str:
        """``value`` broadcast to ``dims``."""
        return value.text if dims <= value.dims else f"tl.broadcast_to({value.text}, {self.block(dims | value.dims)})"

    # ---- values --------------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Text:
        if (known := self.memo.get(expr)) is None:
            known = self.memo[expr] = _VALUES[type(expr)](self, expr)
        return known

    def settled(self, expr: Expr) -> bool:
        """Whether it may be computed earlier than written: no buffer in it, or in the lets that it refers to, changes in this nest."""
        return not any(e.buffer in self.written if type(e) is Load else type(e) is Ref and self._changes(e.name) for e in walk.inside(expr))

    def _changes(self, name: str) -> bool:
        let = self.lets.get(name)
        if let is None:
            return False
        if name not in self.changing:
            self.changing[name] = not self.settled(let)
        return self.changing[name]

    def const(self, e: Const, bare: bool = False) -> Text:
        text = literal(e.value, e.dtype) if bare else None
        return Text(text or constant(e.value, e.dtype, self.block(NONE)), NONE, True)

    def index_value(self, e: IndexValue) -> Text:
        if e.index.constant is not None:
            return self.const(Const(typed(e.index.constant, e.dtype), e.dtype))
        at = self.space.index(e.index)
        return self.put(cast(f"{at.tight}", "int32", e.dtype) if e.dtype != "int32" else f"{at.tight}.to(tl.int32)", at.dims)

    def load(self, e: Load) -> Text:
        at = self.space.index(e.index)
        mask = None if e.mask is None else self.value(e.mask)
        dims = at.dims | (mask.dims if mask else NONE)
        guards = [(t, d) for t, d in self.guards if e.index.symbols & self.values]
        dims = dims.union(*(d for _, d in guards))
        terms = [*([mask.text] if mask else []), *(t for t, _ in guards), *self.masks_of(e, dims)]
        pointer = self.pointer(e.buffer, at, dims) if terms else f"{e.buffer}_ptr + {at.tight}"
        options = [f"mask={' & '.join(terms)}"] if terms else []
        if mask is not None:
            other = e.other if e.other is not None else Const(typed(0, e.dtype), e.dtype)
            options.append(f"other={_memory_constant(other, self.block(NONE))}")
        elif terms and self.zeros:
            options.append("other=0.0")
        whole = frozenset(g.name for g in self.groups)
        if dims != whole and dims:
            options.append('eviction_policy="evict_last"')
        elif e.buffer in self.stream:
            options.append('eviction_policy="evict_first"')
        text = f"tl.load({', '.join([pointer, *options])})"
        return self.put(f"{text} != 0" if e.dtype == "bool" else text, dims, self.settled(e), f"{e.buffer}_")

    def pointer(self, buffer: str, at: Text, dims: Dims) -> str:
        """Pointers of the shape that masks along ``dims`` have: also where that is one element."""
        if dims and dims <= at.dims:
            return f"{buffer}_ptr + {at.tight}"
        return f"{buffer}_ptr + ({at.tight} + tl.zeros({self.block(dims)}, tl.int32))"

    def op(self, e: Op) -> Text:
        if e.name == "cast":
            if (same := _held(e)) is not None:
                return self.value(same)
            if not self.rounds and (kept := self.rounded(e)) is not None:
                return self.value(kept)
            if not self.rounds and (known := self.unrounded(e)) is not None:
                return known
            if (place := self.place(e)) is not None:
                return place
            a = self.value(e.args[0])
            return self.put(resolve(cast(a.tight, e.args[0].dtype, e.dtype), self.needs), a.dims, self.settled(e))
        if e.name == "rounded":
            return self.value(e.args[0])
        if e.name == "bitcast":
            a = self.value(e.args[0])
            return self.put(f"{a.tight}.to({TYPES[e.dtype].tl}, bitcast=True)", a.dims, self.settled(e))
        if e.name == "where":
            return self.choice(e)
        if e.name in KINDS:
            return words(self, e)
        if e.name in _COMPARISONS and (short := self.compared(e)) is not None:
            return short
        row, t = ROWS[e.name], TYPES[e.args[0].dtype]
        quick = self.quick and t.name == "float32"
        bare = row.bare and not all(type(a) is Const for a in e.args)
        if e.name == "add" and quick and (erf := _one_plus_erf(e)) is not None:
            if (same := _ones_and_erf(erf)) != e:  # in one order, for what else needs it
                return self.value(same)
            inner = self.value(erf)
            return self.put(resolve(f"%one_plus_erf({inner.text})", self.needs), inner.dims, self.settled(e))
        if e.name == "mul" and quick and (x := _gelu(e)) is not None and not any(self.has_erf(a) for a in e.args):
            inner = self.value(x)
            return self.put(resolve(f"%gelu({inner.text})", self.needs), inner.dims, self.settled(e))
        args = [self.const(a, bare) if type(a) is Const else self.value(a) for a in e.args]
        if e.name == "div" and quick and args[1].dims < args[0].dims:  # one division for all that is divided by it
            inverse = self.put(f"1.0 / {args[1].tight}", args[1].dims, self.settled(e.args[1]))
            return self.put(f"{args[0].tight} * {inverse.text}", args[0].dims, self.settled(e))
        template = row.text(t.kind, quick)
        assert template is not None, f"{e.name} on {t.name}"
        text = apply(template, t.name, [a.text for a in args], self.block(NONE), self.needs)
        return self.put(text, NONE.union(*(a.dims for a in args)), self.settled(e))

    def has_erf(self, e: Expr) -> bool:
        """Whether ``1 + erf(x)`` is at hand."""
        x = _one_plus_erf(e) if type(e) is Op and e.name == "add" else None
        return x is not None and _ones_and_erf(x) in self.memo

    def place(self, e: Op) -> Text | None:
        """A place as a float, from the type of indices: devices convert wide integers slowly."""
        [value] = e.args
        if type(value) is not IndexValue or value.dtype != "int64" or value.index.constant is not None:
            return None
        if TYPES[e.dtype].kind not in ("float", "half"):
            return None
        at = self.space.index(value.index)
        return self.put(cast(at.tight, "int32", e.dtype), at.dims, self.settled(e))

    def rounded(self, e: Op) -> Expr | None:
        """A value that is rounded to half precision and widened again, as it is without that."""
        kept = _rounded(e)
        return None if kept is None or self.takes_wide(kept) else kept

    def takes_wide(self, value: Expr) -> bool:
        """Whether something is computed of data that half precision does not hold: the program says that it is to be rounded, and may ask
        by how much (``x - x.bfloat16()``). What operators compute of half precision is only better where it is not rounded between them."""
        if type(value) is Load:
            return is_wide(value.dtype)
        if type(value) is Ref and (let := self.lets.get(value.name)) is not None:
            if let not in self.known_wide:  # many lets may come together again and again
                half = type(let) is Op and let.name == "cast" and TYPES[let.dtype].kind == "half"
                self.known_wide[let] = not half and self.takes_wide(let)
            return self.known_wide[let]
        if type(value) is Op:
            return any(self.takes_wide(a) for a in value.args if a.dtype != "bool")  # conditions choose, they are not rounded
        return type(value) is IndexValue or (type(value) is Ref and value.name in self.wide)

    def unrounded(self, e: Op) -> Text | None:
        """What a let rounds to half precision, where that is still at hand and wanted in float32."""
        let = self.lets.get(e.args[0].name) if type(e.args[0]) is Ref else None
        if e.dtype != "float32" or type(let) is not Op or let.name != "cast" or TYPES[let.dtype].kind != "half":
            return None
        return self.memo.get(let.args[0]) if let.args[0].dtype == "float32" and not self.takes_wide(let.args[0]) else None

    def read_ahead(self, e: Op) -> None:
        """Makes the loads of a choice that is about places alone, where it comes to one value; nothing else of it."""
        condition, *branches = e.args
        if any(type(x) in (Load, Ref) for x in walk.inside(condition)):
            return
        a, b = (side(condition, k == 0, branch, self.plain) for k, branch in enumerate(branches))
        c = self.value(condition)
        one = merged(condition, a, b, lambda d: self.step(c, d), self.plain) if c.dims else None
        for load in (x for x in walk.inside(one) if type(x) is Load) if one is not None else ():
            if load.mask is None and self.settled(load) and not load.index.symbols & self.values:
                self.value(load)

    def choice(self, e: Op) -> Text:
        condition, *branches = e.args
        a, b = (side(condition, k == 0, branch, self.plain) for k, branch in enumerate(branches))
        c = self.value(condition)
        if c.dims and (one := merged(condition, a, b, lambda d: self.step(c, d), self.plain)) is not None:
            return self.value(one)
        rest = self.value(a), self.value(b)
        return self.put(f"tl.where({c.text}, {rest[0].text}, {rest[1].text})", c.dims.union(*(v.dims for v in rest)), self.settled(e))

    def step(self, condition: Text, distance: int) -> str:
        """The name of an index: ``distance`` where the condition holds, else 0."""
        text = self.put(f"tl.where({condition.text}, {distance}, 0)", condition.dims, prefix="step")
        self.names[text.text] = text
        return text.text

    def plain(self, e: Expr) -> Expr:
        """``e`` without roundings that are not kept."""
        while not self.rounds and type(e) is Op and e.name == "cast" and (kept := self.rounded(e)) is not None:
            e = kept
        return e

    def compared(self, e: Op) -> Text | None:
        """A place compared with a small number, in the type of indices rather than the wider one of values."""
        place, bound = e.args
        if type(place) is not IndexValue or type(bound) is not Const or place.index.constant is not None:
            return None
        if place.dtype != "int64" or not -(1 << 31) < bound.value < 1 << 31:
            return None
        at = self.space.index(place.index)
        return self.put(f"({at.tight} {_COMPARISONS[e.name]} {int(bound.value)})", at.dims) if at.dims else None

    def ref(self, e: Ref) -> Text:
        return self.names[e.name]

    # ---- statements ----------------------------------------------------------------------------------------------------

    def check(self, condition: Expr, number: int, dims: Dims) -> None:
        """Where it fails, what follows is masked off, and the error word learns the number of the check."""
        value = self.value(condition)
        live = [*(t for t, _ in self.guards), *self.masks(dims)]
        failed = resolve(" & ".join([f"%negate({self.spread(value, dims)})", *live]), self.needs)
        code = f"check_base - {number}" if number else "check_base"
        self.inner.add(f'tl.atomic_max(error_ptr + tl.zeros({self.block(dims)}, tl.int32), {code}, mask={failed}, sem="relaxed")')
        passed = " & ".join([value.text, *(t for t, _ in self.guards)])
        name = self.fresh("passed")
        self.inner.add(f"{name} = {passed}")
        self.guards = [(name, dims)]

    def stores(self, stores: Sequence[Store], every: Dims, overwritten: frozenset[Store]) -> None:
        """All stores of a phase; ``every``: the dimensions of its points. Of ``overwritten`` ones only the value is kept."""
        ready = [(s, self.space.index(s.index), self.value(s.value)) for s in stores]
        for s, at, value in ready:
            if s in overwritten:
                continue
            dims = at.dims | value.dims | (every if s.mode == "add" else NONE)
            dims = dims.union(*(d for _, d in self.guards))
            terms = [*(t for t, _ in self.guards), *self.masks(dims), *([f"(rindex < {s.first})"] if s.first is not None else [])]
            text = value.text if s.value.dtype != "bool" else f"{value.tight}.to(tl.uint8)"
            pointer = self.pointer(s.buffer, at, dims)
            if not dims <= value.dims and s.mode == "add":
                text = f"tl.broadcast_to({text}, {self.block(dims)})"
            mask = [f"mask={' & '.join(terms)}"] if terms else []
            if s.mode == "add":
                self.inner.add(f'tl.atomic_add({", ".join([pointer, text, *mask])}, sem="relaxed")')
            else:
                self.inner.add(f"tl.store({', '.join([pointer, text, *mask])})")
        self.forget({s.buffer for s in stores})
        for s, _, value in ready:
            if s.mode == "set" and s.first is None and sum(o.buffer == s.buffer for o in stores) == 1 and not s.index.symbols & self.values:
                self.memo[Load(s.buffer, s.index, s.value.dtype)] = value

    def forget(self, buffers: set[str]) -> None:
        """Drops what was read from buffers that have changed."""
        self.memo = {e: v for e, v in self.memo.items() if not any(type(x) is Load and x.buffer in buffers for x in walk.inside(e))}


def _held(e: Op) -> Expr | None:
    """A number of one byte that half precision holds as it is, on its way to float32 without that."""
    inner = e.args[0]
    if e.dtype != "float32" or type(inner) is not Op or inner.name != "cast" or TYPES[inner.dtype].kind != "half":
        return None
    byte = TYPES[inner.args[0].dtype]
    return Op("cast", inner.args, "float32") if byte.kind in ("int", "uint") and byte.size == 1 else None


def _rounded(e: Op) -> Expr | None:
    """A value that is rounded to half precision and widened again, as it is without that."""
    inner = e.args[0]
    if e.dtype != "float32" or type(inner) is not Op or TYPES[inner.dtype].kind != "half":
        return None
    if inner.name == "cast":
        return inner.args[0] if inner.args[0].dtype == "float32" else None
    if inner.name != "where":
        return None
    condition, *branches = inner.args
    return Op(
        "where", (condition, *(Const(b.value, "float32") if type(b) is Const else Op("cast", (b,), "float32") for b in branches)), "float32"
    )


def _one_plus_erf(e: Op) -> Expr | None:
    """x of ``1 + erf(x)``, the dear part of a gelu."""
    ones = [a for a in e.args if a == Const(1.0, "float32")]
    erfs = [a.args[0] for a in e.args if type(a) is Op and a.name == "erf"]
    return erfs[0] if len(ones) == len(erfs) == 1 else None


def _ones_and_erf(x: Expr) -> Op:
    return Op("add", (Op("erf", (x,), "float32"), Const(1.0, "float32")), "float32")


def _gelu(e: Op) -> Expr | None:
    """x of ``x / 2 * (1 + erf(x / sqrt(2)))``."""
    for half, rest in (e.args, e.args[::-1]):
        if type(rest) is not Op or rest.name != "add" or type(half) is not Op or half.name != "mul":
            continue
        place, x = _one_plus_erf(rest), _times(half, 0.5)
        if x is not None and type(place) is Op and place.name == "mul" and _times(place, 0.5**0.5) == x:
            return x
    return None


def _times(e: Op, factor: float) -> Expr | None:
    """x of ``x * factor``, to the precision of float32."""
    for a, b in (e.args, e.args[::-1]):
        if type(a) is Const and abs(float(a.value) - factor) < 1e-7:
            return b
    return None


def apply(template: str, dtype: str, args: Sequence[str], shape: str, needs: dict[str, None]) -> str:
    """A row's text with its operands."""
    t = TYPES[dtype]
    named: Mapping[str, object] = {
        "T": t.tl,
        "I": f"tl.int{8 * t.size}",
        "bits": 8 * t.size,
        "one": constant(1, dtype, shape) if "{one}" in template else "",
    }
    return resolve(template.format(*args, **named), needs)


def _memory_constant(c: Const, shape: str) -> str:
    """A constant of the type that memory has."""
    return constant(int(bool(c.value)), "uint8", shape) if c.dtype == "bool" else constant(c.value, c.dtype, shape)


_VALUES: dict[type, Callable[..., Text]] = {Const: Body.const, IndexValue: Body.index_value, Load: Body.load, Op: Body.op, Ref: Body.ref}

__all__ = ["Body", "Index", "Lines", "apply"]
