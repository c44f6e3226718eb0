"""What tensors hold that are made of nothing but counting: ``arange`` and full tensors, and what is compared, chosen and viewed of these.

Masks of attention are mostly made so, and what they say is known from their formula (see ``formulas.py``), also where sizes are symbols.
An operator has a rule here, or its results are not known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..loops.index import ZERO, Index, index
from .formulas import ALWAYS, Choice, Formula, axis, combined, compared, constant, extremes, holds, moved, number_of, truth_of
from .graph import AtenGraph, Meta, Node, Value

aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Formula | None]] = {}
_INTEGERS = ("int64", "int32")


def _rule(*functions: Any) -> Callable[[Any], Any]:
    def put(rule: Any) -> Any:
        _RULES.update(dict.fromkeys(functions, rule))
        return rule

    return put


class Positions:
    """Formulas of a graph's values, found when they are asked for."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph
        self.makers = graph.makers()
        self._known: dict[str, Formula | None] = {}

    def formula(self, name: str) -> Formula | None:
        """The element at each place; None where that is no matter of places alone."""
        pending = [name]
        while pending:  # not by recursion: masks of long programs have long histories
            if (last := pending[-1]) in self._known:
                pending.pop()
                continue
            node = self.makers.get(last)
            if node is None or node.func not in _RULES:
                self._known[last] = None
                continue
            unknown = [v for v in _read(node) if v not in self._known]
            if unknown:
                pending += unknown
            else:
                self._known[last] = self._of(node, last)
        return self._known[name]

    def found(self) -> set[str]:
        """Values whose formula was asked for and is known: no operator that made one of them can raise."""
        return {name for name, formula in self._known.items() if formula is not None}

    def _of(self, node: Node, name: str) -> Formula | None:
        meta = self.graph.metas[name]
        if node.binds or any(self._known[v] is None for v in _read(node)):
            return None
        try:
            found = _RULES[node.func](_Call(self, node, meta), *node.args, **node.kwargs)
        except (OverflowError, ValueError):  # no number of that type
            return None
        if found is None or (isinstance(found, Index) and meta.dtype not in _INTEGERS):
            return None
        single = {axis(p): ZERO for p, n in enumerate(reversed(meta.sizes), 1) if n == 1}
        return moved(found, single) if single else found


_BY_SHAPE = {aten.ones_like.default, aten.zeros_like.default, aten.full_like.default}
_BY_SHAPE |= {aten.new_ones.default, aten.new_zeros.default, aten.new_full.default}
"""Operators that look at the type and sizes of their first argument alone."""


def _read(node: Node) -> list[str]:
    """Values whose elements the node reads."""
    arguments = node.args[1:] if node.func in _BY_SHAPE else node.args
    flat = [a for argument in arguments for a in (argument if isinstance(argument, (list, tuple)) else (argument,))]
    return [a.name for a in flat if isinstance(a, Value)]


class _Call:
    """What a rule may ask."""

    def __init__(self, positions: Positions, node: Node, meta: Meta) -> None:
        self.positions, self.node, self.meta = positions, node, meta

    def of(self, value: Any) -> Formula | None:
        """An argument: of a tensor its formula, of a number the number."""
        if isinstance(value, Value):
            return self.positions.formula(value.name)
        return constant(value) if isinstance(value, (int, float, bool, Index)) else None

    def sizes(self, value: Value) -> tuple[Any, ...]:
        return self.positions.graph.metas[value.name].sizes

    def filled(self, value: Any) -> Formula | None:
        """A tensor of one number."""
        return _cast(constant(value), self.meta.dtype) if isinstance(value, (int, float, bool, Index)) else None


def _cast(formula: Formula, dtype: str) -> Formula | None:
    if isinstance(formula, Index):
        if dtype in _INTEGERS:
            return formula
        number = formula.constant
        if number is None:
            return None
        return Choice(ALWAYS, _to(dtype)(number), _to(dtype)(number))
    if dtype in _INTEGERS and (number := number_of(formula)) is not None:
        return index(int(number))
    return formula.each(_to(dtype))


def _to(dtype: str) -> Callable[[Any], Any]:
    """How a number is rounded."""
    kind = getattr(torch, dtype)
    return (lambda n: torch.tensor(n, dtype=kind).item()) if kind.is_floating_point else bool if dtype == "bool" else int


# ---- made of numbers -------------------------------------------------------------------------------------------------------


@_rule(aten.arange.default)
def _arange(call: _Call, end: Any, **_: Any) -> Formula | None:
    return _arange_from(call, 0, end)


@_rule(aten.arange.start, aten.arange.start_step)
def _arange_from(call: _Call, start: Any, end: Any, step: Any = 1, **_: Any) -> Formula | None:
    whole = all(type(n) is int or isinstance(n, Index) for n in (start, step))
    return index(start) + index(axis(1)) * index(step) if whole and call.meta.dtype in _INTEGERS else None


@_rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def _ones(call: _Call, *_: Any, **__: Any) -> Formula | None:
    return call.filled(1)


@_rule(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def _zeros(call: _Call, *_: Any, **__: Any) -> Formula | None:
    return call.filled(0)


@_rule(aten.full.default, aten.full_like.default)
def _full(call: _Call, _: Any, value: Any, **__: Any) -> Formula | None:
    return call.filled(value)


@_rule(aten.new_full.default)
def _new_full(call: _Call, _: Any, __: Any, value: Any, **___: Any) -> Formula | None:
    return call.filled(value)


@_rule(aten.scalar_tensor.default)
def _scalar(call: _Call, value: Any, **_: Any) -> Formula | None:
    return call.filled(value)


# ---- element by element ----------------------------------------------------------------------------------------------------


@_rule(aten._to_copy.default)
def _to_copy(call: _Call, x: Value, **_: Any) -> Formula | None:
    found = call.of(x)
    return None if found is None else _cast(found, call.meta.dtype)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Formula | None]:
    def rule(call: _Call, x: Any, y: Any, *, alpha: Any = 1) -> Formula | None:
        left, right = call.of(x), call.of(y)
        if left is None or right is None or alpha != 1 or call.meta.dtype == "bool":
            return None
        return combined(function, left, right)

    return rule


_rule(aten.add.Tensor, aten.add.Scalar)(_arithmetic(operator.add))
_rule(aten.sub.Tensor, aten.sub.Scalar)(_arithmetic(operator.sub))
_rule(aten.rsub.Tensor, aten.rsub.Scalar)(_arithmetic(lambda a, b: b - a))
_rule(aten.mul.Tensor, aten.mul.Scalar)(_arithmetic(operator.mul))


@_rule(aten.neg.default)
def _neg(call: _Call, x: Value) -> Formula | None:
    found = call.of(x)
    return found.each(operator.neg) if isinstance(found, Choice) else None if found is None else -found


def _comparison(kind: str) -> Callable[..., Formula | None]:
    def rule(call: _Call, x: Any, y: Any) -> Formula | None:
        left, right = call.of(x), call.of(y)
        return None if left is None or right is None else compared(kind, left, right)

    return rule


for _kind in ("le", "lt", "ge", "gt", "eq", "ne"):
    _packet = getattr(aten, _kind)
    _rule(_packet.Tensor, _packet.Scalar)(_comparison(_kind))


def _both(call: _Call, x: Any, y: Any, invert: bool) -> Formula | None:
    left, right = call.of(x), call.of(y)
    if left is None or right is None or call.meta.dtype != "bool":
        return None
    a, b = truth_of(left), truth_of(right)
    if a is None or b is None:
        return None
    found = (~a).both(~b) if invert else a.both(b)
    return None if found is None else Choice(~found if invert else found, True, False)


@_rule(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.logical_and.default)
def _and(call: _Call, x: Any, y: Any) -> Formula | None:
    return _both(call, x, y, invert=False)


@_rule(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.logical_or.default)
def _or(call: _Call, x: Any, y: Any) -> Formula | None:
    return _both(call, x, y, invert=True)


@_rule(aten.logical_not.default, aten.bitwise_not.default)
def _not(call: _Call, x: Value) -> Formula | None:
    found = call.of(x)
    truth = truth_of(found) if found is not None and call.meta.dtype == "bool" else None
    return None if truth is None else Choice(~truth, True, False)


@_rule(aten.where.self, aten.where.Scalar, aten.where.ScalarSelf, aten.where.ScalarOther)
def _where(call: _Call, condition: Value, x: Any, y: Any) -> Formula | None:
    return _chosen(call, call.of(condition), call.of(x), call.of(y))


@_rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(call: _Call, x: Value, mask: Value, value: Any) -> Formula | None:
    return _chosen(call, call.of(mask), call.of(value), call.of(x))


def _chosen(call: _Call, condition: Formula | None, x: Formula | None, y: Formula | None) -> Formula | None:
    if condition is None or x is None or y is None:
        return None
    truth, yes, no = truth_of(condition), number_of(x), number_of(y)
    if truth is None or yes is None or no is None:
        return None
    to = _to(call.meta.dtype)
    return Choice(truth, to(yes), to(no))


def _triangle(call: _Call, x: Value, diagonal: int, lower: bool) -> Formula | None:
    found = call.of(x)
    number = None if found is None else number_of(found)
    if number is None or not isinstance(diagonal, (int, Index)):
        return None
    part = index(axis(2)) + index(diagonal) - index(axis(1))
    kept = compared("ge" if lower else "le", part, ZERO)
    return None if kept is None else Choice(kept.when, number, type(number)(0))


@_rule(aten.tril.default)
def _tril(call: _Call, x: Value, diagonal: Any = 0) -> Formula | None:
    return _triangle(call, x, diagonal, lower=True)


@_rule(aten.triu.default)
def _triu(call: _Call, x: Value, diagonal: Any = 0) -> Formula | None:
    return _triangle(call, x, diagonal, lower=False)


# ---- places ----------------------------------------------------------------------------------------------------------------


@_rule(
    aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default, aten.contiguous.default, aten.expand.default
)
def _same(call: _Call, x: Value, *_: Any, **__: Any) -> Formula | None:
    """Expanded dimensions are read at their only place, which no formula names."""
    return call.of(x)


def _at(call: _Call, x: Value, places: Mapping[int, Index]) -> Formula | None:
    """``x`` read at ``places`` by its dimensions, of those that are given; others are where they were, counted from the last."""
    found, rank = call.of(x), len(call.sizes(x))
    return None if found is None else moved(found, {axis(rank - d): place for d, place in places.items()})


def _axis(call: _Call, d: int) -> Index:
    """The position along the result's dimension ``d``."""
    return index(axis(len(call.meta.sizes) - d))


@_rule(aten.unsqueeze.default)
def _unsqueeze(call: _Call, x: Value, dim: int) -> Formula | None:
    rank = len(call.sizes(x))
    dim %= rank + 1
    return _at(call, x, {d: _axis(call, d + (d >= dim)) for d in range(rank)})


@_rule(
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
)
def _view(call: _Call, x: Value, *_: Any) -> Formula | None:
    """Dimensions of one element come and go."""
    theirs = [d for d, n in enumerate(call.sizes(x)) if n != 1]
    ours = [d for d, n in enumerate(call.meta.sizes) if n != 1]
    if [call.sizes(x)[d] for d in theirs] != [call.meta.sizes[d] for d in ours]:
        return None
    return _at(call, x, {a: _axis(call, b) for a, b in zip(theirs, ours, strict=True)})


@_rule(aten.permute.default)
def _permute(call: _Call, x: Value, order: Any) -> Formula | None:
    return _at(call, x, {d % len(order): _axis(call, k) for k, d in enumerate(order)})


@_rule(aten.transpose.int)
def _transpose(call: _Call, x: Value, a: int, b: int) -> Formula | None:
    rank = len(call.sizes(x))
    return _at(call, x, {a % rank: _axis(call, b % rank), b % rank: _axis(call, a % rank)}) if rank else call.of(x)


@_rule(aten.t.default)
def _t(call: _Call, x: Value) -> Formula | None:
    return _transpose(call, x, 0, 1) if len(call.sizes(x)) == 2 else call.of(x)


@_rule(aten.select.int)
def _select(call: _Call, x: Value, dim: int, place: Any) -> Formula | None:
    sizes = call.sizes(x)
    dim, place = dim % len(sizes), index(place)
    if place.constant is None:
        return None
    at = {d: _axis(call, d - (d > dim)) for d in range(len(sizes)) if d != dim}
    return _at(call, x, {**at, dim: place if place.constant >= 0 else index(sizes[dim]) + place})


@_rule(aten.slice.Tensor)
def _slice(call: _Call, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Formula | None:
    dim %= len(call.sizes(x))
    begin = _beginning(call.sizes(x)[dim], start)
    return None if begin is None else _at(call, x, {dim: begin + _axis(call, dim) * index(step)})


def _beginning(size: Any, start: Any) -> Index | None:
    if start is None:
        return ZERO
    if isinstance(start, Index):
        start = start if start.constant is None else start.constant
    if type(start) is not int:
        return None
    if start >= 0:  # where that is behind the end there are no elements to know
        return index(start)
    return index(max(0, size + start)) if type(size) is int else None


@_rule(aten.index.Tensor)
def _index(call: _Call, x: Value, places: Any) -> Formula | None:
    """All dimensions are given, by tensors of positions that are inside."""
    at: dict[int, Index] = {}
    for d, value in enumerate(places):
        place = call.of(value) if isinstance(value, Value) else None
        if not isinstance(place, Index):
            return None
        least, most = extremes(place, call.meta.sizes)
        limits, size = call.positions.graph.sizes, call.sizes(x)[d]
        if least is None or most is None or not holds(least, limits) or not holds(index(size) - 1 - most, limits):
            return None
        at[d] = place
    return _at(call, x, at) if len(at) == len(call.sizes(x)) else None


@_rule(aten.cumsum.default)
def _cumsum(call: _Call, x: Value, dim: int, **_: Any) -> Formula | None:
    found = call.of(x)
    number = None if found is None else number_of(found)
    if number is None or int(number) != number or call.meta.dtype not in _INTEGERS or not call.meta.sizes:
        return None
    return (_axis(call, dim % len(call.meta.sizes)) + 1) * index(int(number))


@_rule(aten.cat.default)
def _cat(call: _Call, tensors: Any, dim: int = 0) -> Formula | None:
    """Pieces that go on as those before them."""
    dim %= len(call.meta.sizes)
    name = axis(len(call.meta.sizes) - dim)
    begin = ZERO
    pieces: list[tuple[Index, Any, Formula]] = []
    for tensor in tensors:
        found = call.of(tensor)
        if found is None or len(call.sizes(tensor)) != len(call.meta.sizes):
            return None
        size = call.sizes(tensor)[dim]
        pieces.append((begin, size, found))
        begin = begin + index(size)
    begin, _, last = pieces[-1]
    whole = moved(last, {name: index(name) - begin})
    for begin, size, found in pieces[:-1]:
        if moved(whole, {name: begin if size == 1 else index(name) + begin}) != found:
            return None
    return whole
