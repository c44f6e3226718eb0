"""Parts of Python expressions, in whose syntax plans and programs of loops are written. Each is of the kind that is asked for, or
SyntaxError."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=ast.AST)


def part(node: ast.AST, kind: type[Kind]) -> Kind:
    """The node, which is of this kind."""
    if not isinstance(node, kind):
        raise SyntaxError(f"{ast.unparse(node)} is no {kind.__name__}")
    return node


def expression(text: str) -> ast.expr:
    """The one expression in a text. Raises SyntaxError."""
    return ast.parse(text, mode="eval").body


def called(text: str) -> ast.Call:
    """``f(...)``."""
    return part(expression(text), ast.Call)


def items(text: str) -> list[ast.expr]:
    """What stands between commas."""
    return elements(expression(f"[{text}]"))


def elements(node: ast.AST) -> list[ast.expr]:
    """Of a list."""
    return part(node, ast.List).elts


def name_of(node: ast.AST) -> str:
    """The name that a node is. Raises SyntaxError for another kind of node."""
    return part(node, ast.Name).id


def notes(text: str) -> dict[str, Any]:
    """``a=1, b=(2, 3)`` by name."""
    return noted(called(f"f({text})").keywords)


def noted(keywords: Sequence[ast.keyword]) -> dict[str, Any]:
    """Constants that keywords give, by name. Raises ValueError for what is no constant."""
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg is not None}


__all__ = ["called", "elements", "expression", "items", "name_of", "noted", "notes", "part"]
