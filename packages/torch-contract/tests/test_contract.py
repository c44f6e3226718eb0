"""The contract holds for the torch that is installed, and lists all that the packages use."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opmill_torch_contract import CPU_SYMBOLS, CUDA_NAMES, CUDA_SYMBOLS, NAMES, PYTHON_SYMBOLS, Row, check, summary
from opmill_torch_contract.checking import NEWEST, OLDEST, has_name, torch_version

PACKAGES = Path(__file__).resolve().parents[2]
SOURCES = sorted(PACKAGES.glob("*/src/**/*.py"))
NATIVE = sorted([*PACKAGES.glob("*/src/**/*.cpp"), *PACKAGES.glob("*/src/**/*.h"), *SOURCES])
UNLISTED = {
    # what is asked for by hasattr or by name, or only compared with
    "torch._dynamo": "torch's own compiler: never imported, only looked at where the program did",
    "torch._C._dynamo": "the same",
    "torch._inductor": "the same",
}


def test_nothing_is_missing_here() -> None:
    assert [str(each) for each in check() if not each.known] == []
    assert OLDEST <= torch_version() <= NEWEST and "all that opmill relies on is there" in summary()


def test_what_is_missing_is_told_with_what_is_lost(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from opmill_torch_contract import checking

    rows = (
        Row("torch._C._no_such_thing", "nothing much"),
        Row("torch._no.such", "all", required=True),
        Row("torch.gone", "old", until=(2, 1)),
    )
    for table in ("LAYOUTS", "CPU_SYMBOLS", "PYTHON_SYMBOLS", "CUDA_NAMES", "CUDA_SYMBOLS"):
        monkeypatch.setattr(checking, table, ())
    monkeypatch.setattr(checking, "NAMES", rows)
    found = check()
    assert [(each.row.name, each.known) for each in found] == [
        ("torch._no.such", False),
        ("torch._C._no_such_thing", False),
        ("torch.gone", True),
    ]
    assert "2 things are missing; name torch._no.such: all; name torch._C._no_such_thing: nothing much" in summary()
    assert summary().endswith("; name torch.gone: old (known of this version)")
    monkeypatch.setattr(checking, "NAMES", rows[2:])
    assert summary().endswith("all that opmill relies on is there but name torch.gone: old (known of this version)")


def test_no_row_is_there_twice() -> None:
    for table in ((*NAMES, *CUDA_NAMES), (*CPU_SYMBOLS, *PYTHON_SYMBOLS, *CUDA_SYMBOLS)):
        names = [row.name for row in table]
        assert len(names) == len(set(names))


def test_looking_never_imports_torchs_compiler() -> None:
    code = "import sys, opmill_torch_contract as c; c.check(); print([m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(len(SOURCES) < 50, reason="the sources of the other packages are not here")
def test_every_private_name_that_the_packages_use_has_a_row() -> None:
    listed = {row.name for row in (*NAMES, *CUDA_NAMES)}
    used = {name: file for file in SOURCES for name in private_names(file)}
    missing = {name: str(file.relative_to(PACKAGES)) for name, file in used.items() if not _covered(name, listed)}
    assert not missing, "give them a row in names.py, with what is lost without them"


@pytest.mark.skipif(len(SOURCES) < 50, reason="the sources of the other packages are not here")
def test_every_row_is_used() -> None:
    used = {name for file in SOURCES for name in private_names(file)}
    texts = "".join(file.read_text() for file in SOURCES)
    idle = [
        row.name
        for row in NAMES
        if not any(u == row.name or u.startswith(f"{row.name}.") for u in used) and row.name.rpartition(".")[2] not in texts
    ]
    assert not idle


@pytest.mark.skipif(len(SOURCES) < 50, reason="the sources of the other packages are not here")
def test_every_symbol_that_native_code_looks_for_has_a_row() -> None:
    listed = {row.name for row in (*CPU_SYMBOLS, *PYTHON_SYMBOLS, *CUDA_SYMBOLS)}
    pattern = re.compile(r'"(aoti_torch_\w+|_ZN?K?[0-9]\w+|torch_(?:call|new|list|delete|get)_\w+)"')
    used = {name for file in NATIVE if "torch-contract" not in str(file) for name in pattern.findall(file.read_text())}
    assert used and used <= listed, f"give them a row in symbols.py: {sorted(used - listed)}"


def _covered(name: str, listed: set[str]) -> bool:
    """Whether a name, or what it is an attribute of, has a row; or is one of the modules that rows lie in."""
    parts = name.split(".")
    prefixes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    inside = any(row.startswith(f"{name}.") for row in listed)
    return bool(prefixes & (listed | UNLISTED.keys())) or inside


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def private_names(file: Path) -> Iterator[str]:
    """Dotted names of torch's, with a private part, that a source uses."""
    tree = ast.parse(file.read_text())
    known = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            known.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            known.update((alias.asname, alias.name) for alias in node.names if alias.asname and alias.name.split(".")[0] == "torch")
    names = set(known.values())
    for node in ast.walk(tree):
        parts: list[str] = []
        at: ast.expr | ast.AST = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if parts and isinstance(at, ast.Name) and at.id in known:
            names.add(".".join([known[at.id], *reversed(parts)]))
    yield from (name for name in names if any(map(_is_private, name.split("."))))


def test_names_are_resolved_through_modules() -> None:
    assert has_name("torch.utils._pytree.tree_map") and not has_name("torch.utils._pytree.no_such") and not has_name("torch.no_module.x")
