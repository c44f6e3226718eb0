"""The newcomer's page as a script: each command is run in the order of the page, and shows what the page promises below it."""

import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

pytest.importorskip("opmill_kernel_gen_cpp")
PAGE = Path(__file__).parent.parent / "docs" / "guides" / "newcomer.md"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(command: str, folder: Path) -> str:
    """What a command shows; fails where it does."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OPMILL_CACHE_DIR": str(folder / "cache"), "COLUMNS": "200", "PYTHONPATH": ""}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def promised(line: str) -> str:
    """The pattern of a line that is shown; ``...`` stands for anything."""
    return r"[^\n]*".join(map(re.escape, line.split("...")))


def install(command: str) -> str:
    """Tests install nothing: what the command asks for has to be there."""
    name, extra = re.fullmatch(r'pip install "(\w+)\[(\w+)\]"', command).groups()  # type: ignore[union-attr]
    assert extra in (metadata(name).get_all("Provides-Extra") or [])
    return ""


def test_each_command_shows_what_the_page_promises(tmp_path) -> None:  # type: ignore[no-untyped-def]
    shown, steps = "", 0
    for kind, title, text in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            (tmp_path / title).write_text(text)
        elif kind == "sh":
            shown = "".join(install(c) if c.startswith("pip ") else run(c, tmp_path) for c in text.splitlines())
        else:
            for line in text.splitlines():
                assert re.search(promised(line), shown), f"{line!r} is not in\n{shown}"
                steps += 1
    assert steps >= 10
