"""What one test has compiled of a piece of code is no part of what the next one finds: functions made anew share it."""

from collections.abc import Iterator

import pytest

import opmill


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    opmill.reset()
