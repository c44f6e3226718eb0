"""Random programs about lives, caches, warnings, classes and exceptions (`random_corners`), captured against plain.

``OPMILL_FUZZ=n`` runs the programs of seeds 0 to n - 1; otherwise a few, always the same."""

from __future__ import annotations

import os
from random import Random

import pytest
from random_corners import compiles, difference, program

SEEDS = range(int(os.environ.get("OPMILL_FUZZ") or 12))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_corners(seed: int) -> None:
    text = program(Random(seed))
    if compiles(text):
        found = difference(text)
        assert found is None, f"{text[text.index('def program') :]}\n{found}"
