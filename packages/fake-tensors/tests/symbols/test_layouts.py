"""Questions about layouts, against torch."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols.layouts import QUESTIONS, in_rows, is_channels_last_strides

ASKED = {
    "is_contiguous": lambda x: x.is_contiguous(),
    "is_channels_last_contiguous_2d": lambda x: x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last),
    "is_channels_last_contiguous_3d": lambda x: x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d),
    "is_non_overlapping_and_dense": torch.ops.aten.is_non_overlapping_and_dense.default,
}


@pytest.mark.parametrize("name", ASKED)
@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=5), st.data())
def test_layouts_are_told_as_torch_tells_them(name, sizes, data):
    if data.draw(st.booleans()):
        order = data.draw(st.permutations(range(len(sizes))))
        x = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(len(sizes))])
    else:
        x = torch.empty(500).as_strided(sizes, [data.draw(st.sampled_from([0, 1, 2, 3, 6])) for _ in sizes])
    assert QUESTIONS[name](x.shape, x.stride()) == ASKED[name](x)
    assert in_rows(x) == x.is_contiguous()


@pytest.mark.parametrize("sizes", itertools.product([1, 2], [1, 3], [1, 4], [1, 5]), ids=str)
def test_channels_last_is_what_torch_suggests(sizes):
    """``torch.empty_like`` of a sum follows the strides."""
    for x in (torch.empty(sizes), torch.empty(sizes).to(memory_format=torch.channels_last)):
        like_last = (x + 1)[..., :].stride() if 1 not in sizes else None
        found = is_channels_last_strides(x.shape, x.stride())
        if like_last is not None:
            assert found == (x.stride()[1] == 1)
        assert not (found and x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last))
