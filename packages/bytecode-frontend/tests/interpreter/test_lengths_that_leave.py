"""Lengths of lists and deques that get longer with each call, where they leave captured code."""

import collections

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture


def told(x, history, last):
    history.append(x)
    last.append(x)
    count = len(history)
    history.append(count)
    return x + 1, count, [len(last), len(history)], {"count": count}


def kept_on_a_class(x, history, last):
    history.append(x)

    class Made:
        count = len(history)

    return x * 2, Made.count


def before_anything(x, history, last):
    count = len(history), len(last)
    history += [x, x]
    last.append(x)
    return x - 1, count


def shadowed(x, history, last):
    min = len(last)
    last.append(x)
    return x.sum(), min, len(last)


@pytest.mark.parametrize("f", [told, kept_on_a_class, before_anything, shadowed])
def test_lengths_are_those_of_the_call(f):
    def run(function):
        history, last = [], collections.deque(maxlen=4)
        found = [repr(function(torch.ones(1) * k, history, last)) for k in range(8)]
        return found, repr(history), repr(last)

    compiled = capture(f, fullgraph=True)
    assert run(compiled) == run(f)
    assert len(compiled.entries) <= 3


COUNT = 0


def counted(x, history, last):
    global COUNT
    COUNT = (COUNT + len(history)) % 50
    COUNT = (COUNT - len(last)) * 2 % 31
    history.append(COUNT)
    last.append(x)
    return x.sum(), COUNT // 3


def test_a_number_that_changes_meets_a_length() -> None:
    def run(function):
        global COUNT
        COUNT = 0
        history, last = [], collections.deque(maxlen=4)
        found = []
        for k in range(9):
            COUNT += k * k
            found.append(repr(function(torch.ones(1) * k, history, last)))
        return found, history

    assert run(capture(counted)) == run(counted)
