"""Fails where a function, a class, a method or an import of a package is used nowhere: neither in code (tests and tools count) nor by a
name in a string or in C++.

usage: dead_code.py [ROOT]. Found by vulture. What is registered by a decorator is used; ``FOUND_BY_NAME`` and ``CALLED_FROM_OUTSIDE`` say
what else is.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vulture.core import Vulture

from workspace import ROOT

FOUND_BY_NAME = ("m_", "visit_", "generic_visit")
"""Beginnings of names that are put together where they are looked up: methods of tracked values, visitors of syntax trees."""
CALLED_FROM_OUTSIDE = {
    "opmill_fake_tensors/symbols/node.py": "torch calls a SymNode's methods",
    "opmill_bytecode_frontend/bytecode/emitter.py": "one method for each opcode, whether some code emits it now or not",
    "opmill_bytecode_frontend/graph/collectives.py": "stands for torch's Work, of which programs call any method",
}
KINDS = ("function", "class", "method", "import", "property", "unreachable_code")


def named(files: list[Path]) -> set[str]:
    """The words in the strings of Python files (docstrings aside) and in C++."""
    words: set[str] = set()
    for file in files:
        text = file.read_text()
        for part in _strings(ast.parse(text)) if file.suffix == ".py" else [text]:
            words.update(re.findall(r"[A-Za-z_]\w*", part))
    return words


def _strings(tree: ast.Module) -> Iterator[str]:
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def main() -> int:
    root = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    folders = [*sorted(root.glob("packages/*/src")), *sorted(root.glob("packages/*/tests"))]
    folders += [root / name for name in ("integration_tests", "benchmarks", "tools", "examples", "noxfile.py") if (root / name).exists()]
    search = Vulture(ignore_decorators=["@*"])
    search.scavenge([str(folder) for folder in folders])
    sources = [file for folder in root.glob("packages/*/src") for file in folder.rglob("*") if file.suffix in (".py", ".cpp", ".h")]
    words = named(sources)
    complaints = 0
    for item in search.get_unused_code(min_confidence=60):
        path = str(item.filename)
        if item.typ not in KINDS or "/src/" not in path or any(path.endswith(file) for file in CALLED_FROM_OUTSIDE):
            continue
        if item.name in words or item.name.startswith(FOUND_BY_NAME):
            continue
        complaints += 1
        print(f"{path.replace(f'{root}/', '')}:{item.first_lineno}: {item.typ} {item.name} is used nowhere")
    print(f"dead code: {complaints} complaints")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
