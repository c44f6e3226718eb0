"""A relation between sizes, as a Python expression. Natively a postfix program where it has only integer arithmetic."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..guard import SizeRelation
from ..source import Source
from .kind import Builder, Kind, Read

_NAMES = {
    "Max": max,
    "Min": min,
    "max": max,
    "min": min,
    "abs": abs,
    "round": round,
    "pow": pow,
    "math": math,
    "floor": math.floor,
    "ceiling": math.ceil,
    "ceil": math.ceil,
}


@lru_cache(maxsize=1024)
def _function(expression: str, count: int) -> Callable[..., bool]:
    parameters = ", ".join(f"s{i}" for i in range(count))
    function: Callable[..., bool] = eval(f"lambda {parameters}: ({expression})", {"__builtins__": {}, **_NAMES})
    return function


_PUSH, _LOAD = 0, 1
_BINARY: dict[type, int] = {ast.Add: 2, ast.Sub: 3, ast.Mult: 4, ast.FloorDiv: 5, ast.Mod: 6}
_FUNCTIONS = {"Min": (7, 2), "min": (7, 2), "Max": (8, 2), "max": (8, 2), "abs": (16, 1)}
_COMPARISONS: dict[type, int] = {ast.Lt: 9, ast.LtE: 10, ast.Gt: 11, ast.GtE: 12, ast.Eq: 13, ast.NotEq: 14}
_NEGATE, _NOT, _BOTH, _EITHER = 15, 17, 18, 19
_DEEPEST = 16
_HIGHEST_POWER = 8


class _Beyond(Exception):
    """The expression has something that the native checker has no operation for."""


def _compare(node: ast.Compare, depth: int) -> list[int]:
    code: list[int] = []
    operands = [node.left, *node.comparators]
    for i, comparison in enumerate(node.ops):
        if type(comparison) not in _COMPARISONS:
            raise _Beyond
        code += [*_number(operands[i], depth + 1), *_number(operands[i + 1], depth + 1), _COMPARISONS[type(comparison)], 0]
        code += [_BOTH, 0] if i else []
    return code


def _call(node: ast.Call, depth: int) -> list[int]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    operation, least = _FUNCTIONS.get(name, (0, 0))
    if not least or len(node.args) < least or node.keywords or (least == 1 and len(node.args) > 1):
        raise _Beyond
    code = _number(node.args[0], depth + 1)
    for argument in node.args[1:]:
        code += [*_number(argument, depth + 1), operation, 0]
    return code if least == 2 else [*code, operation, 0]


def _power(node: ast.BinOp, depth: int) -> list[int]:
    exponent = node.right.value if isinstance(node.right, ast.Constant) else None
    if type(exponent) is not int or not 1 <= exponent <= _HIGHEST_POWER:
        raise _Beyond
    base = _number(node.left, depth + 1)
    return base + [*base, _BINARY[ast.Mult], 0] * (exponent - 1)


def _number(node: ast.expr, depth: int) -> list[int]:
    """The postfix program of an integer expression, as (operation, operand) pairs. Raises _Beyond."""
    if depth > _DEEPEST:
        raise _Beyond
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and abs(value) < 1 << 62:
            return [_PUSH, value]
        case ast.Name(id=name) if name[:1] == "s" and name[1:].isdecimal():
            return [_LOAD, int(name[1:])]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return [*_number(operand, depth + 1), _NEGATE, 0]
        case ast.BinOp(op=ast.Pow()):
            return _power(node, depth)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return [*_number(left, depth + 1), *_number(right, depth + 1), _BINARY[type(op)], 0]
        case ast.Call():
            return _call(node, depth)
        case ast.Compare():
            return _compare(node, depth)
    raise _Beyond


def _truth(node: ast.expr, depth: int) -> list[int]:
    match node:
        case ast.BoolOp(op=op, values=values) if depth <= _DEEPEST:
            code = _truth(values[0], depth + 1)
            for value in values[1:]:
                code += [*_truth(value, depth + 1), _BOTH if isinstance(op, ast.And) else _EITHER, 0]
            return code
        case ast.UnaryOp(op=ast.Not(), operand=operand) if depth <= _DEEPEST:
            return [*_truth(operand, depth + 1), _NOT, 0]
    return _number(node, depth)


def _program(expression: str) -> tuple[int, ...] | None:
    """The native program of a relation, None where only Python can decide it."""
    try:
        return tuple(_truth(ast.parse(expression, mode="eval").body, 0))
    except (_Beyond, SyntaxError):
        return None


def _sources(guard: SizeRelation) -> tuple[Source, ...]:
    return guard.sources


def _check(guard: SizeRelation, read: Read) -> bool:
    values: list[Any] = [read(source) for source in guard.sources]
    return bool(_function(guard.expression, len(values))(*values))


def _compile(guard: SizeRelation, into: Builder) -> None:
    function, program = _function(guard.expression, len(guard.sources)), _program(guard.expression)
    into.relation("call" if program is None else "sizes", function, guard.sources, program or ())


def _describe(guard: SizeRelation, read: Read) -> tuple[str, str]:
    because = f" ({guard.reason})" if guard.reason else ""
    return guard.expression + because, ", ".join(f"s{i} = {source} = {read(source)}" for i, source in enumerate(guard.sources))


KIND = Kind(SizeRelation, 30, _check, _compile, _describe, _sources)
