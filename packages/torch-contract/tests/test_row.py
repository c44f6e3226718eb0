"""Rows of the contract."""

import pytest

from opmill_torch_contract.row import Row, rows


@pytest.mark.parametrize(
    ("since", "until", "has"),
    [
        (None, None, [True, True, True]),
        ((2, 12), None, [False, True, True]),
        (None, (2, 12), [True, True, False]),
        ((2, 12), (2, 12), [False, True, False]),
    ],
)
def test_versions_that_have_it(since, until, has) -> None:
    row = Row("torch.x", "nothing", since=since, until=until)
    assert [row.expected(version) for version in ((2, 11), (2, 12), (2, 13))] == has


def test_one_for_each_name() -> None:
    found = rows("slower", "a.b  c.d\n e", required=True, until=(3, 0))
    assert [row.name for row in found] == ["a.b", "c.d", "e"]
    assert {(row.lost, row.required, row.since, row.until) for row in found} == {("slower", True, None, (3, 0))}
