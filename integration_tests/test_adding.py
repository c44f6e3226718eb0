"""The page about adding things, done: its files are put into the packages, and its tests are run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guides" / "adding.md"
FILE = re.compile(r"^```python title=\"packages/[\w-]+/(src|tests)/([\w/]+\.py)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)
JOINED = """
import importlib, sys
from pathlib import Path

sources = Path(__file__).parent.parent / "src"
for folder in sorted({file.parent for file in sources.rglob("*.py")}):
    importlib.import_module(".".join(folder.relative_to(sources).parts)).__path__.append(str(folder))
"""
"""What makes the page's files modules of the packages as they are installed."""


def _written(folder: Path) -> tuple[list[Path], list[Path]]:
    """The page's files, and its tests."""
    found: dict[str, list[Path]] = {"src": [], "tests": []}
    for kind, name, text in FILE.findall(PAGE.read_text()):
        file = folder / "src" / name if kind == "src" else folder / "tests" / Path(name).name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        found[kind].append(file)
    (folder / "tests" / "conftest.py").write_text(JOINED)
    return found["src"], found["tests"]


def test_what_the_page_adds_passes_its_tests(tmp_path: Path) -> None:
    files, tests = _written(tmp_path)
    assert len(files) == len(tests) == 4
    paths = [str(ROOT / "packages" / "graph-ir" / "tests" / "schedule"), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPMILL_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path / "tests")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["toy_device/toy_device.py", "toy_generator/toy_generator.py", "test_device_from_outside.py"])
def test_what_the_page_points_to_is_there(name: str) -> None:
    assert Path(name).name in PAGE.read_text() or name.split("/")[0] in PAGE.read_text()
    assert (ROOT / "integration_tests" / name).exists()
