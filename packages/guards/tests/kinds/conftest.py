"""What tests of single kinds are written with."""

from collections.abc import Callable

import pytest

from opmill_guards import GuardSet


@pytest.fixture
def says() -> Callable[..., str]:
    """``says(guard, **locals)``: empty where the guard holds, what does not hold otherwise. The native tree says the same as Python."""

    def ask(guard: object, **values: object) -> str:
        guards = GuardSet([guard])
        holds = guards.check(values)
        assert guards.native(values).check(*values.values()) is holds
        failure = guards.explain(values)
        assert (failure is None) is holds
        return "" if failure is None else str(failure)

    return ask
