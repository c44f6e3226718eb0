"""Sequences that do one thing over and over."""

import random

import pytest

from opmill_graph_ir.periodicity import likely_periods, stretches


class Letters:
    """Rows are alike where their letters are."""

    def __init__(self, text: str) -> None:
        self.tokens = [ord(letter) for letter in text]

    def alike(self, row: int, period: int) -> bool:
        return self.tokens[row] == self.tokens[row + period]


@pytest.mark.parametrize(("text", "period"), [("abcabcabc", 3), ("xyababababz", 2), ("aaaa", 1), ("abcdabcdxabcd", 4)])
def test_the_most_frequent_distance_comes_first(text, period):
    assert likely_periods(Letters(text).tokens)[0] == period


def test_what_comes_once_has_no_period():
    assert likely_periods(Letters("abcdef").tokens) == []


@pytest.mark.parametrize(
    ("text", "period", "fewest", "found"),
    [
        ("abcabcabc", 3, 2, [(0, 9)]),
        ("abcabcabc", 3, 4, []),
        ("xabababy", 2, 3, [(1, 7)]),
        ("ababxcdcdcd", 2, 2, [(0, 4), (5, 11)]),
        ("abc", 3, 2, []),
        ("", 1, 2, []),
    ],
)
def test_stretches_are_as_long_as_they_can_be(text, period, fewest, found):
    assert stretches(Letters(text), period, fewest) == found


@pytest.mark.parametrize("seed", range(50))
def test_stretches_are_those_that_are_seen_by_trying_all(seed):
    rng = random.Random(seed)
    rows = Letters("".join(rng.choice("ab") for _ in range(rng.randint(0, 24))))
    period, fewest = rng.randint(1, 3), rng.randint(2, 3)

    def has(begin: int, end: int) -> bool:
        return all(rows.alike(k, period) for k in range(begin, end - period))

    wanted = [
        (begin, end)
        for begin in range(len(rows.tokens) + 1)
        for end in range(begin + period * fewest, len(rows.tokens) + 1)
        if has(begin, end) and not (begin and has(begin - 1, end)) and not (end < len(rows.tokens) and has(begin, end + 1))
    ]
    assert stretches(rows, period, fewest) == wanted
