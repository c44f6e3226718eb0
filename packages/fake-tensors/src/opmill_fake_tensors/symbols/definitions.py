"""What a size that follows from others is: the value of its definition, which is a text as plans have it.

Plans have a reader of such texts of their own (``plan/expr.py`` of runtime-cache), which makes instructions for native code and keeps
to 64 bits. Neither package imports the other: a saved plan runs where nothing traces, and fakes where nothing runs. That both read one
language is held by graph-ir's ``tests/planning/test_size.py``, which sees both."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max}


def value_of(definition: str, values: Mapping[str, int]) -> int:
    """The value of a definition for these sizes: integers, names, ``+ - * // %``, ``min`` and ``max``, and comparisons, which are 0 or 1.
    Raises KeyError for a name without a value, ZeroDivisionError, ValueError for what is no definition."""
    return _value(_parsed(definition), values)


@lru_cache(1024)
def _parsed(definition: str) -> ast.expr:
    try:
        return ast.parse(definition.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{definition[:200]!r} is no definition of a size: {error}") from None


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _CALLS:
            numbers = [_value(arg, values) for arg in args]
            return numbers[0] if len(numbers) == 1 else _CALLS[name](*numbers)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
            numbers = [_value(each, values) for each in (left, *comparators)]
            return int(all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, numbers, numbers[1:])))
    raise ValueError(f"{type(node).__name__} has no place in the definition of a size")


__all__ = ["value_of"]
