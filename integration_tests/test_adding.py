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
ROW = re.compile(r"^```python \{\.not-run\}\n# packages/([\w-]+)/src/([\w/]+)\.py, (\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STEP = re.compile(
    r"^```python \{\.not-run\}\n# packages/([\w-]+)/src/([\w/]+)\.py, PASSES, before (\"\w+\")\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
WITH_ROWS = """
import importlib.machinery, importlib.util, sys
from pathlib import Path

class Edited(importlib.machinery.PathFinder):
    # Modules that stand in this folder under their full names come from there.

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        file = Path(__file__).parent / f"{name}.py"
        return importlib.util.spec_from_file_location(name, file) if file.exists() else None

sys.meta_path.insert(0, Edited)
"""
"""What makes copies of modules, with the page's rows in them, those that are imported."""
RUN = """
import opmill_kernel_gen_triton.emit.primitives as triton
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.primitives import PRIMITIVES
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_runtime_cache.store import Store

def test_programs_of_it_give_what_its_meaning_says(tmp_path):
    made = [case for case in cases() if case.name.startswith("cube_")]
    assert {name.rpartition("_")[2] for name in (case.name for case in made)} >= {"float32", "int64"}
    runner = Runner([case.kernel for case in made], Store(tmp_path))
    assert [said for case in made if (said := disagreement(case, runner)) is not None] == []

def test_both_generators_have_a_row():
    assert "cube" in PRIMITIVES and "cube" in triton.ROWS
"""
COMPILED = """
import torch, opmill
from opmill_graph_ir import pipeline

def test_the_pass_runs_in_a_compile(capfd):
    assert "signs" in pipeline.NAMES and "what is negated twice is itself" in pipeline.described()
    f, x = lambda x: (-(-x).neg().neg()).exp(), torch.linspace(-2, 2, 64)
    with torch.no_grad():
        got = opmill.compile(f, fullgraph=True, options={"print_after": ("statements", "signs"), "verify": True, "skip": ("cse",)})(x)
        without = opmill.compile(f, options={"skip": ("signs",)})(x)
    torch.testing.assert_close(got, x.exp())
    torch.testing.assert_close(without, x.exp())
    before, _, behind = capfd.readouterr().err.partition("# after signs")
    assert "neg(" in before and "exp(" in behind and "neg(" not in behind
"""
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


def test_a_primitive_is_what_the_page_adds(tmp_path: Path) -> None:
    """The tests that are there run it in each generator: nothing is to be written for it."""
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == 3
    for package, module, table, row in rows:
        name = module.replace("/", ".")
        text = (ROOT / "packages" / package / "src" / f"{module}.py").read_text()
        head = re.search(rf"^{table}\b.* = [({{]$", text, re.MULTILINE)
        assert head is not None, (module, table)
        (tmp_path / f"{name}.py").write_text(f"{text[: head.end()]}\n{row}{text[head.end() :]}")
    (tmp_path / "edited.py").write_text(WITH_ROWS)
    (tmp_path / "test_cube.py").write_text(RUN)
    tests = [tmp_path / "test_cube.py", *(ROOT / "packages").glob("*/tests/**/test_primitives.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), *sys.path])), "OPMILL_CACHE_DIR": str(tmp_path)}
    for test in map(str, tests):  # each has a module of the same name
        command = [sys.executable, "-m", "pytest", "-q", "-p", "edited", "-p", "no:cacheprovider", test]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_pass_runs_where_its_row_stands(tmp_path: Path) -> None:
    files, _ = _written(tmp_path)
    [(package, module, place, row)] = STEP.findall(PAGE.read_text())
    text = (ROOT / "packages" / package / "src" / f"{module}.py").read_text()
    at = text.index(f"    Step(\n        {place},")
    (tmp_path / f"{module.replace('/', '.')}.py").write_text(text[:at] + row + text[at:])
    [signs] = [file for file in files if file.name == "signs.py"]
    (tmp_path / "opmill_graph_ir.schedule.signs.py").write_text(signs.read_text())
    (tmp_path / "edited.py").write_text(WITH_ROWS)
    (tmp_path / "test_signs.py").write_text(COMPILED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), *sys.path])), "OPMILL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "edited", "-p", "no:cacheprovider", str(tmp_path / "test_signs.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["toy_device/toy_device.py", "toy_generator/toy_generator.py", "test_device_from_outside.py"])
def test_what_the_page_points_to_is_there(name: str) -> None:
    assert Path(name).name in PAGE.read_text() or name.split("/")[0] in PAGE.read_text()
    assert (ROOT / "integration_tests" / name).exists()
