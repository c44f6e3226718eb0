"""How generated code goes on in a resume function without growing the stack, and statements that know the user's line."""

from __future__ import annotations

import ast
import types
from typing import Any, Callable


class Continue:
    """What the generated form of a resume function gives instead of a result: which function goes on, with which arguments.
    A loop with a graph break in it goes from resume function to resume function: calls would nest once for each turn."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


def run_through(function: Callable[..., Any], *args: Any) -> Any:
    """Call a resume function and those that it names, until one gives a result."""
    result = function(*args)
    while type(result) is Continue:
        result = result.function(*result.args)
    return result


class Placed(str):
    """A statement that stands for an instruction of the user's code: ``position`` is shown in tracebacks."""

    position: Any = None

    @classmethod
    def at(cls, text: str, position: Any) -> Placed:
        placed = cls(text)
        placed.position = position
        return placed


def indent(lines: list[str]) -> list[str]:
    """The statements one level deeper, where they were in the user's code."""
    return [Placed.at("    " + line, line.position) if isinstance(line, Placed) else "    " + line for line in lines]


def compile_placed(header: str, lines: list[str], code: types.CodeType) -> types.CodeType:
    """Compile a function whose statements are at the lines of ``code`` that they stand for, all others at its first one."""
    tree = ast.parse("\n".join([header, *indent(lines)]))
    positions = {number: line.position for number, line in enumerate(lines, 2) if isinstance(line, Placed)}
    for node in ast.walk(tree):
        if not hasattr(node, "lineno"):
            continue
        position: Any = positions.get(node.lineno)
        first = code.co_firstlineno
        node.lineno = node.end_lineno = first  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        if position is not None and position.lineno is not None:
            node.lineno, node.end_lineno = position.lineno, position.end_lineno or position.lineno  # type: ignore[attr-defined]
            node.col_offset, node.end_col_offset = position.col_offset or 0, position.end_col_offset or 0  # type: ignore[attr-defined]
    return compile(tree, code.co_filename, "exec")
