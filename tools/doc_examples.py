"""Runs the Python examples of the documentation: doc_examples.py [PAGE...], all pages if none is named.

The blocks marked ``python`` of a page are one program, run from top to bottom. What a page's readers have already (a model, an input)
stands before them in a comment of the page, ``<!-- setup: ... -->``. A block marked ``python {.not-run}`` is only shown; one marked
``python {.raises}`` has to raise.
"""

from __future__ import annotations

import re
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT

BLOCK = re.compile(
    r"^<!-- setup:\n(?P<setup>.*?)^-->$|^```python(?: \{\.(?P<mark>[\w-]+)\})?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def examples(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Line and text of each block to be run, and whether it has to raise."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        kind = "setup" if match["setup"] is not None else "code"
        if match["mark"] != "not-run":
            yield text.count("\n", 0, match.start(kind)) + 1, match[kind], match["mark"] == "raises"


def run(page: Path) -> bool:
    """Runs a page's examples; says where one fails."""
    module = types.ModuleType("example")
    sys.modules["example"] = module
    for line, text, raises in examples(page):
        try:
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), module.__dict__)
        except Exception:
            if not raises:
                traceback.print_exc()
                return False
        else:
            if raises:
                print(f"{page}:{line}: this example has to raise, and does not", file=sys.stderr)
                return False
    return True


def main() -> int:
    pages = [Path(name) for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    failed = [page for page in pages if any(True for _ in examples(page)) and not run(page)]
    for page in failed:
        print(f"{page}: an example fails", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
