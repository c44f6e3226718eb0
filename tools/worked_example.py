"""Writes what the compiler makes of the example of a page into that page while the site is built (a hook of mkdocs).

A page asks with ``<!-- step: NAME -->``, or ``<!-- step: NAME (PART) -->``, for what stands after a step of the compiler, with
``<!-- guards -->`` for what its example assumes. That is the page's first ``python`` block, which defines ``example`` and ``arguments``.
As a command it prints what a page becomes: worked_example.py PAGE."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASKED = re.compile(r"^<!-- (step: (?P<step>[^\n]*?)|guards) -->$", re.MULTILINE)
AFTER = re.compile(r"^# after (.*)\n", re.MULTILINE)


def written(markdown: str, page: str = "example.py") -> str:
    """The page with what it asks for. Raises KeyError for a step that does not come up."""
    if not ASKED.search(markdown):
        return markdown
    found = BLOCK.search(markdown)
    if found is None:
        raise KeyError(f"{page} has no python block to compile")
    steps, guards = compiled(found[1], markdown.count("\n", 0, found.start(1)), page)
    return ASKED.sub(lambda asked: _block(steps[asked["step"]] if asked["step"] else guards), markdown)


def compiled(program: str, line: int, page: str) -> tuple[dict[str, str], str]:
    """By step what it made, and what the compiled function assumes."""
    import opmill

    module = types.ModuleType("worked_example")
    sys.modules[module.__name__] = module
    exec(compile("\n" * line + program, page, "exec"), module.__dict__)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        told = opmill.explain(module.__dict__["example"], options={"print_after": ("all",), "cache": False})(*module.__dict__["arguments"])
    parts = AFTER.split(printed.getvalue())
    guards = "\n".join(guard for guards in told.guards for guard in guards)
    return dict(zip(parts[1::2], parts[2::2], strict=True)), re.sub(r" at 0x[0-9a-f]+| from '[^']*'", "", guards)


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What mkdocs calls with each page."""
    return written(markdown, page.file.src_uri)


if __name__ == "__main__":
    print(written(Path(sys.argv[1]).read_text(), Path(sys.argv[1]).name))
