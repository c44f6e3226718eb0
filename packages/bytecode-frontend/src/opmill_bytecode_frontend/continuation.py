"""Statements of generated code that know the line of the user's code that they stand for."""

from __future__ import annotations

import ast
import types
from typing import Any


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


def define(name: str, parameters: str, lines: list[str], code: types.CodeType, namespace: dict[str, Any]) -> types.FunctionType:
    """A function with these statements and ``namespace`` as globals, whose frames are named as those of ``code``. The statements are at the
    lines that they stand for, all others at its first one."""
    tree = ast.parse("\n".join([f"def {name}({parameters}):", *indent(lines)]))
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
    exec(compile(tree, code.co_filename, "exec"), namespace)
    function: types.FunctionType = namespace.pop(name)
    function.__code__ = function.__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    return function
