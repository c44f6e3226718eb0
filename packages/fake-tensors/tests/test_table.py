"""What rule files are written with: rows by name, and results that lie as said."""

import pytest
import torch

from opmill_fake_tensors.table import Rules, alike, channels_last, dense, image, strided


def test_a_row_answers_for_each_name_with_the_operators_arguments():
    rules = Rules()

    @rules.row("first second")
    def answer(overload, x, *, dim=0):
        return overload, x, dim

    assert set(rules) == {"aten::first", "aten::second"}
    assert rules["aten::second"]("aten::second", "out", [3], {"dim": 1}) == ("out", 3, 1)


@pytest.mark.parametrize(
    "x",
    [torch.empty(2, 3, 4, 5), torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.empty(4, 6).t(), torch.empty(8, 4)[::2],
     torch.empty(3, 1).expand(3, 4), torch.empty(0, 3), torch.empty(())],
    ids=["image", "channels last", "transposed", "steps", "expanded", "nothing", "number"],
)  # fmt: skip
def test_a_result_alike_lies_as_eager_lays_it(x):
    made = alike(x, torch.float64)
    want = torch.empty_like(x, dtype=torch.float64)
    assert (made.shape, made.stride(), made.dtype, made.device.type) == (want.shape, want.stride(), want.dtype, "meta")


def test_results_of_sizes():
    assert dense((2, 3), torch.int8).stride() == (3, 1)
    assert strided((2, 3), (1, 2), torch.int8).stride() == (1, 2)
    for last in (False, True):
        want = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last if last else torch.contiguous_format)
        made = image((2, 3, 4, 5), torch.float32, last)
        assert made.stride() == want.stride() and channels_last(made) is last
