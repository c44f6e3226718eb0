"""Statements of generated code that know the line of the user's code that they stand for."""

from __future__ import annotations

import ast
import builtins
import types
from typing import Any

from .eval_frame import skip


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


def define(parameters: str, lines: list[str], code: types.CodeType, globals_: dict[str, Any], table: dict[str, Any]) -> types.FunctionType:
    """A function with these statements whose frames look like those of ``code``: its names, its file, its globals; the statements are at the
    lines that they stand for, all others at its first one. What they refer to, the names of ``table`` and builtins, is in its closure."""
    tree = ast.parse("\n".join([f"def _function({parameters}):", *indent(lines)]))
    positions = {number: line.position for number, line in enumerate(lines, 2) if isinstance(line, Placed)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            place(node, positions.get(node.lineno), code.co_firstlineno)
    bound = {name: table[name] if name in table else vars(builtins)[name] for name in sorted(names) if name in table or hasattr(builtins, name)}
    maker = ast.parse(f"def _make({', '.join(bound)}):\n    return _function")
    maker.body[0].body.insert(0, tree.body[0])  # type: ignore[attr-defined]
    namespace: dict[str, Any] = {}
    exec(compile(maker, code.co_filename, "exec"), namespace)
    made = namespace["_make"](**bound)
    own = made.__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    skip(own)
    return types.FunctionType(own, globals_, code.co_name, None, made.__closure__)


def place(node: Any, position: Any, first: int) -> None:
    """Sets where in the user's file a node of generated code is."""
    node.lineno = node.end_lineno = first
    node.col_offset = node.end_col_offset = 0
    if position is not None and position.lineno is not None:
        node.lineno, node.end_lineno = position.lineno, position.end_lineno or position.lineno
        node.col_offset, node.end_col_offset = position.col_offset or 0, position.end_col_offset or 0
