"""Random Python programs under compile, against the plain run: ``benchmarks/fuzz_python.py`` runs very many; here are some."""

from __future__ import annotations

import pytest

fuzz_python = pytest.importorskip("fuzz_python")
FIRST, COUNT = 500_000, 120


def test_random_python_programs() -> None:
    found = list(fuzz_python.verdicts(FIRST, COUNT))
    wrong = [f"seed {seed}: {kind}: {detail}" for seed, kind, detail in found if kind not in ("right", "skipped")]
    assert not wrong, "\n".join(wrong)
    assert sum(kind == "right" for _, kind, _ in found) > 0.9 * COUNT, "most programs must run"


def test_a_difference_is_seen() -> None:
    source = "import torch\nLOG, STATE, WATCHED, SHARED, COUNT, TEXT = [], [], [], {}, 0, ''\n"
    source += "def program(x, n, items, mapping, word):\n    LOG.append(torch.compiler.is_compiling())\n    return items\n"
    kind, detail = fuzz_python.difference(source)
    assert kind == "wrong" and "LOG" in detail
    assert "is_compiling" in fuzz_python.shrunk(source + "    return n\n", 5)
