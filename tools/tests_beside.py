"""Which sources have a test of their name: ``x/y.py`` one called ``test_y.py`` among the tests of its package. Fails where fewer have than
``LEAST``, which only rises.

usage: tests_beside.py [PACKAGE ...]. Lists what has none in these packages. Modules that hold nothing but names of others need none."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT, Package, packages

LEAST = 382
HOLDING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def sources(package: Package) -> Iterator[Path]:
    """Files of a package that define functions or classes."""
    for file in sorted((package.folder / "src").rglob("*.py")):
        if file.name != "__init__.py" and any(isinstance(node, HOLDING) for node in ast.walk(ast.parse(file.read_text()))):
            yield file


def without(package: Package) -> list[Path]:
    """Those of them that have no test of their name."""
    tests = {file.name for file in (package.folder / "tests").rglob("test_*.py")}
    return [file for file in sources(package) if f"test_{file.name}" not in tests]


def main() -> int:
    everything = packages(ROOT)
    found = total = 0
    for package in everything.values():
        bare, count = without(package), len(list(sources(package)))
        found, total = found + count - len(bare), total + count
        print(f"{package.name}: {count - len(bare)} of {count}")
        if package.name in sys.argv[1:] or package.folder.name in sys.argv[1:]:
            print(*(f"  {file.relative_to(package.folder / 'src')}" for file in bare), sep="\n")
    print(f"tests beside: {found} of {total} sources, at least {LEAST}")
    return int(found < LEAST)


if __name__ == "__main__":
    sys.exit(main())
