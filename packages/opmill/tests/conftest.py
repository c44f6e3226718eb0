"""What one test has compiled of a piece of code is no part of what the next one finds: functions made anew share it."""

from collections.abc import Iterator

import pytest

import opmill
from opmill_fake_tensors import telling
from opmill_graph_ir import backend


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    opmill.reset()


@pytest.fixture(autouse=True)
def _filters_are_obeyed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A compiler's own warnings are logged where a filter makes errors of them, for a program must not fail by them. A test does."""
    backend._warn_mismatch.cache_clear()
    with telling.logged() as texts:
        yield
    if texts and "caplog" not in request.fixturenames:
        pytest.fail("\n".join(["warnings that this test makes errors of:", *texts]))


@pytest.fixture
def left_to_torch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why calls of a test ran as torch's own operators, which a warning says once for each reason in a process (GI032)."""
    reasons: list[str] = []
    monkeypatch.setattr("opmill_graph_ir.backend._warn_mismatch", reasons.append)
    return reasons
