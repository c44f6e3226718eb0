"""Which object it is: texts, numbers and bytes that pass a graph break, or captured code, are the ones that they were."""

from __future__ import annotations

import argparse
import sys

import pytest
import torch

from opmill_bytecode_frontend import capture

MARK = "==" + "mark".join(["=", "="])  # made at run time: no literal of that value is this object
WORDS = [MARK, "two words", b"bytes", 10**6, 1.5, 2j, "", "a", 7, b"x", None, True, ...]


def broken(x):
    return x.tolist()  # nothing of a tensor's data is known


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_a_constant_behind_a_break_is_the_same_object(word):
    def f(x):
        here = word
        broken(x)
        return here is word, here

    assert capture(f)(torch.ones(2)) == (True, word)


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_an_item_of_a_tuple_that_is_given_back_is_the_same_object(word):
    result = capture(lambda x: (x + 1, [word], {"k": word}))(torch.ones(2))
    assert result[1][0] is word and result[2]["k"] is word


def test_an_argument_that_is_given_back_is_that_of_the_call():
    f = capture(lambda x, word: (x + 1, word))
    for _ in range(2):
        for word in ("".join(["not a", " name"]), 10**9 + len("ab"), float("1.25"), bytes([1, 2, 3])):
            assert f(torch.ones(2), word)[1] is word


def test_an_argument_behind_a_break_in_a_callee_is_that_of_the_call():
    def inner(x, word):
        broken(x)
        return [word]

    def f(x, word):
        y = x + 1
        found = inner(y, word)
        return found[0] is word, found[0]

    compiled = capture(f)
    for _ in range(2):
        for word in ("".join(["not a", " name"]), 10**9 + len("ab")):
            same, found = compiled(torch.ones(2), word)
            assert same and found is word


def test_a_default_that_is_looked_for_with_is():
    def f(x):
        parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
        parser.add_argument("--foo")
        return x + 1, vars(parser.parse_args([]))

    assert capture(f)(torch.ones(2))[1] == {}


def test_what_belongs_to_sys_is_read_at_each_call_by_python_itself_too():
    def f(x):
        parser = argparse.ArgumentParser()
        parser.add_argument("--foo")
        return x + 1, parser.parse_args().foo

    compiled, before = capture(f), sys.argv
    try:
        for value in ("one", "two"):
            sys.argv = ["program", "--foo", value]
            assert compiled(torch.ones(2))[1] == value
    finally:
        sys.argv = before


FIVE, SIX = 5, 6


def test_equal_numbers_that_are_not_assumed() -> None:
    """Python has one object of each small integer, whoever makes it."""
    programs = [
        lambda x, y: (x + 1, x.size(0) is y.size(0), x.size(0) is not y.size(0) + 1),
        lambda x, y: (x, x.size(0) * 2 is y.size(0) + y.size(0), len(x) is FIVE, SIX is len(y)),
        lambda x, y: x.sum() * (len(x) is len(y)),
    ]
    for program in programs:
        breaks: list[object] = []
        compiled = capture(program, "eager", on_break=breaks.append)
        for a, b in ((3, 3), (4, 4), (5, 5), (5, 4), (6, 4), (7, 6), (128, 128), (100, 99)):
            assert str(compiled(torch.ones(a), torch.ones(b))) == str(program(torch.ones(a), torch.ones(b)))
        assert not breaks
        for size in (129, 256, 257, 300, 301, 256):
            assert str(compiled(torch.ones(size), torch.ones(size))) == str(program(torch.ones(size), torch.ones(size)))
