"""Random programs about one object of each kind: ``benchmarks/fuzz_objects.py`` runs very many; here are some."""

from __future__ import annotations

from typing import Any

import pytest

fuzz_objects = pytest.importorskip("fuzz_objects")
random_objects = pytest.importorskip("random_objects")
FIRST, COUNT = 500_000, 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", random_objects.KINDS)
def test_random_programs(kind: str) -> None:
    found = [f"seed {seed}: {text}\n{drawn.source}" for seed, drawn, text in fuzz_objects.differences(kind, FIRST, COUNT)]
    assert not found, "\n".join(found)


def test_a_difference_is_seen() -> None:
    def program(o: Any, x: Any) -> Any:
        import torch

        return torch.compiler.is_compiling(), x + 1

    names = {"program": program, "make": list, "between": []}
    assert "call 0" in fuzz_objects.difference(random_objects.Program("", lambda: names))
