"""Size expressions: a subset of Python's syntax over integers.

Integers, symbols, ``+ - * // %``, unary minus, ``min`` and ``max``, and comparisons (chained ones too; they give 0 or 1).
Division and remainder round like Python's. Values are 64-bit; a result that does not fit raises OverflowError.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from keyword import iskeyword

from ..errors import PlanFormatError
from .model import Size


class Op(IntEnum):
    """The instructions of the postfix form, shared with ``native/values.cpp``. PUSH and LOAD take one operand word."""

    PUSH = 0
    LOAD = 1
    ADD = 2
    SUB = 3
    MUL = 4
    FLOORDIV = 5
    MOD = 6
    MIN = 7
    MAX = 8
    NEG = 9
    LT = 10
    LE = 11
    GT = 12
    GE = 13
    EQ = 14
    NE = 15


_BINARY: dict[type, Op] = {ast.Add: Op.ADD, ast.Sub: Op.SUB, ast.Mult: Op.MUL, ast.FloorDiv: Op.FLOORDIV, ast.Mod: Op.MOD}
_COMPARE: dict[type, Op] = {ast.Lt: Op.LT, ast.LtE: Op.LE, ast.Gt: Op.GT, ast.GtE: Op.GE, ast.Eq: Op.EQ, ast.NotEq: Op.NE}
_CALLS = {"min": Op.MIN, "max": Op.MAX}

_EVAL: dict[int, Callable[[int, int], int]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.FLOORDIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.MIN: min,
    Op.MAX: max,
    Op.LT: lambda a, b: int(a < b),
    Op.LE: lambda a, b: int(a <= b),
    Op.GT: lambda a, b: int(a > b),
    Op.GE: lambda a, b: int(a >= b),
    Op.EQ: lambda a, b: int(a == b),
    Op.NE: lambda a, b: int(a != b),
}

Code = tuple[tuple[Op, int | str], ...]
"""Postfix instructions; LOAD names a symbol."""


_LONGEST = 1 << 14
"""Characters of a size expression."""


def is_name(text: str) -> bool:
    """Whether ``text`` may name something in a plan: an ASCII identifier that is no keyword of Python."""
    return text.isascii() and text.isidentifier() and not iskeyword(text)


def compile_size(size: Size) -> Code:
    """The postfix form of a size expression. Raises PlanFormatError (RC005) for what is not one."""
    if isinstance(size, int):
        try:
            return ((Op.PUSH, _fit(size)),)
        except OverflowError as error:
            raise PlanFormatError("RC005", what=f"{size} is not a size expression", why=str(error)) from None
    return _compile_text(size)


@lru_cache(4096)
def _compile_text(text: str) -> Code:
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} characters")
        tree = ast.parse(text.strip(), mode="eval").body
        code: list[tuple[Op, int | str]] = []
        _emit(tree, code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise PlanFormatError("RC005", what=f"{text[:200]!r} is not a size expression", why=str(error)) from None
    return tuple(code)


def _emit(node: ast.expr, code: list[tuple[Op, int | str]]) -> None:
    handler = _EMITTERS.get(type(node))
    if handler is None:
        raise ValueError(f"{type(node).__name__} is not allowed")
    handler(node, code)


def _emit_constant(node: ast.Constant, code: list[tuple[Op, int | str]]) -> None:
    if type(node.value) is not int:
        raise ValueError(f"{node.value!r} is not an integer")
    code.append((Op.PUSH, _fit(node.value)))


def _emit_unary(node: ast.UnaryOp, code: list[tuple[Op, int | str]]) -> None:
    if type(node.op) is not ast.USub:
        raise ValueError("the only unary operator is -")
    if isinstance(node.operand, ast.Constant) and type(node.operand.value) is int:
        code.append((Op.PUSH, _fit(-node.operand.value)))
        return
    _emit(node.operand, code)
    code.append((Op.NEG, 0))


def _emit_binary(node: ast.BinOp, code: list[tuple[Op, int | str]]) -> None:
    if type(node.op) not in _BINARY:
        raise ValueError(f"operator {type(node.op).__name__} is not allowed")
    _emit(node.left, code)
    _emit(node.right, code)
    code.append((_BINARY[type(node.op)], 0))


def _emit_compare(node: ast.Compare, code: list[tuple[Op, int | str]]) -> None:
    left = node.left
    for number, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        if type(op) not in _COMPARE:
            raise ValueError(f"comparison {type(op).__name__} is not allowed")
        _emit(left, code)
        _emit(right, code)
        code.append((_COMPARE[type(op)], 0))
        if number:
            code.append((Op.MIN, 0))  # both are 0 or 1: min is "and"
        left = right


def _emit_call(node: ast.Call, code: list[tuple[Op, int | str]]) -> None:
    if not (isinstance(node.func, ast.Name) and node.func.id in _CALLS) or node.keywords or not node.args:
        raise ValueError("the only calls are min(...) and max(...)")
    _emit(node.args[0], code)
    for argument in node.args[1:]:
        _emit(argument, code)
        code.append((_CALLS[node.func.id], 0))


_EMITTERS: dict[type, Callable[..., None]] = {
    ast.Constant: _emit_constant,
    ast.Name: lambda node, code: code.append((Op.LOAD, node.id)),
    ast.UnaryOp: _emit_unary,
    ast.BinOp: _emit_binary,
    ast.Compare: _emit_compare,
    ast.Call: _emit_call,
}


def symbols_of(size: Size) -> frozenset[str]:
    """The symbols that a size expression reads."""
    return frozenset(str(operand) for op, operand in compile_size(size) if op is Op.LOAD)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The value of a size expression. Raises KeyError for an unknown symbol, ZeroDivisionError, OverflowError."""
    if type(size) is int:
        return size
    stack: list[int] = []
    for op, operand in compile_size(size):
        if op is Op.PUSH:
            stack.append(int(operand))
        elif op is Op.LOAD:
            stack.append(values[str(operand)])
        elif op is Op.NEG:
            stack[-1] = _fit(-stack[-1])
        else:
            right = stack.pop()
            stack[-1] = _fit(_EVAL[op](stack[-1], right))
    return stack.pop()


def _fit(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit 64 bits")
    return int(value)
