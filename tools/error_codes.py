"""Writes docs/reference/errors.md from the sources: every numbered error and warning. ``--check`` only says whether the page is current."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT, Package, packages

PAGE = ROOT / "docs" / "reference" / "errors.md"
CODE = re.compile(r"(?:[A-Z]{2}\d{3})")
HEAD = """\
# Error codes

Every refusal has a number that stays. `fullgraph=True` raises the frontend's (`FE...`); otherwise they lead to a graph break, and
`opmill.explain` tells where. Written by `tools/error_codes.py` from the sources.
"""


def text_of(node: ast.expr) -> str | None:
    """The text of a string in the source, ``{...}`` for what is filled in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}" for part in node.values)  # type: ignore
    return None


def codes_of(file: Path) -> Iterator[tuple[str, str]]:
    """(code, what is said) of every call that is given a code as a string of its own or at the start of its message."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        texts = [text for each in (*node.args, *(k.value for k in node.keywords if k.arg in ("code", "what"))) if (text := text_of(each))]
        for position, text in enumerate(texts):
            if CODE.fullmatch(text):
                yield text, texts[position + 1] if position + 1 < len(texts) else ""
            elif match := re.match(r"\[?([A-Z]{2}\d{3})\]?:? (.+)", text, re.DOTALL):
                yield match[1], match[2]


def rows(package: Package) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for file in sorted((package.folder / "src").rglob("*.py")):
        for code, what in codes_of(file):
            found.setdefault(code, {})[" ".join(what.split()).replace("|", "\\|").replace("<", "&lt;")] = None
    return [f"| {code} | {'<br>'.join(filter(None, whats))} |" for code, whats in sorted(found.items())]


def page() -> str:
    parts = [HEAD]
    for package in packages().values():
        if table := rows(package):
            parts.append("\n".join([f"## {package.name}\n", "| code | says |", "|---|---|", *table, ""]))
    return "\n".join(parts)


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text() == text
        if not current:
            print(f"{PAGE.relative_to(ROOT)} is not what the sources say: run tools/error_codes.py")
        return not current
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
