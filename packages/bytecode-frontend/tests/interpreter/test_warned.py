"""Whether a warning is shown is decided as Python does; hearing leaves Python's memory of warnings as it was."""

import itertools
import re
import warnings

import pytest

from opmill_bytecode_frontend.values.warned import hearing, is_ignored

ACTIONS = ("ignore", "always", "default", "error")
FILTERS = [
    (action, re.compile(text) if text else None, category, re.compile(module) if module else None, line)
    for action, text, category, module, line in itertools.product(
        ACTIONS[:2], ("", "old"), (UserWarning, DeprecationWarning), ("", "mine"), (0, 7)
    )
]


def heard(text="old thing", category=UserWarning, line=7):
    return warnings.WarningMessage(category(text), category, "mine.py", line)


@pytest.mark.parametrize("first", range(0, len(FILTERS), 3))
def test_the_first_filter_that_fits_decides(first, monkeypatch):
    filters = [FILTERS[first], FILTERS[(first * 7 + 5) % len(FILTERS)]]
    for message, module in itertools.product(
        [heard(), heard("new thing"), heard(category=DeprecationWarning), heard(line=8)], ["mine", "theirs"]
    ):
        with warnings.catch_warnings(record=True) as shown:
            warnings.filters[:] = filters
            monkeypatch.setattr(warnings, "defaultaction", "always", raising=False)
            warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else None
            warnings.warn_explicit(message.message, message.category, message.filename, message.lineno, module, registry={})
        assert is_ignored(filters, "always", message, module) is (not shown)


def test_hearing():
    registry = {}
    with hearing() as told:
        warnings.warn("first", stacklevel=1)
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            warnings.warn_explicit("second", UserWarning, "mine.py", 1, "mine", registry)
    assert [str(each.message) for each in (*told, *shown)] == ["first", "second"]
