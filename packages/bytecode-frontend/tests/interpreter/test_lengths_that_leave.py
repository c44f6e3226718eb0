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
