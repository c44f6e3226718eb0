"""Strides of views and broadcasts, against torch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.views import expanded, inferred, strides_of_view

SIZES = st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=4)


@st.composite
def laid_out(draw):
    sizes = draw(SIZES)
    order = draw(st.permutations(range(len(sizes))))
    x = torch.empty([sizes[d] * draw(st.sampled_from([1, 1, 2])) for d in order]).permute([order.index(d) for d in range(len(sizes))])
    return x[tuple(slice(0, n) for n in sizes)]


def _meaning(sizes, strides):
    return [s for n, s in zip(sizes, strides, strict=True) if n != 1]


@settings(max_examples=400, derandomize=True, deadline=None)
@given(laid_out(), st.data())
def test_views_lie_as_torch_lays_them(x, data):
    wanted, rest = [], x.numel()
    while rest > 1 and len(wanted) < 4:
        factor = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        wanted.append(factor)
        rest //= factor
    wanted += [rest] if rest != 1 or data.draw(st.booleans()) else []
    if math.prod(wanted) != x.numel():
        return
    try:
        expected = x.view(wanted).stride()
    except RuntimeError:
        expected = None
    found = strides_of_view(x.shape, x.stride(), wanted)
    assert (found is None) == (expected is None)
    if expected is not None and x.numel():
        assert _meaning(wanted, found) == _meaning(wanted, expected)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(laid_out(), st.lists(st.sampled_from([1, 2, 3]), max_size=2), st.data())
def test_broadcast_strides_are_torchs(x, front, data):
    wanted = [*front, *(data.draw(st.sampled_from([2, 3])) if n == 1 and data.draw(st.booleans()) else n for n in x.shape)]
    assert _meaning(wanted, expanded(x.shape, x.stride(), wanted)) == _meaning(wanted, x.expand(wanted).stride())


@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([-2, -1, -1, 0, 1, 2, 3, 6]), max_size=4), st.sampled_from([0, 1, 6, 12]))
def test_the_missing_size_is_what_torch_finds(sizes, numel):
    try:
        expected = tuple(torch.empty(numel).view(sizes).shape)
    except RuntimeError as e:
        with pytest.raises(RuntimeError) as raised:
            inferred(sizes, numel)
        if -2 not in sizes:
            assert str(raised.value) == str(e)
    else:
        assert inferred(sizes, numel) == expected
