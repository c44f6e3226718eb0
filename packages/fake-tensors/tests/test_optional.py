"""Values that may be None."""

from opmill_fake_tensors.optional import all_known


def test_one_that_is_not_known_makes_all_unknown():
    assert all_known([1, 0, ""]) == [1, 0, ""] and all_known(iter([])) == [] and all_known([1, None]) is None


def test_nothing_is_asked_behind_the_first_unknown():
    assert all_known(1 // n if n > 1 else None for n in (3, 1, 0)) is None
