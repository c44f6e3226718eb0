"""Checks of numbers in tensors that eager's functions make, and traced ones do not."""

import pytest
import torch

from opmill_fake_tensors import sized
from opmill_graph_ir.capture.checks import ONE_HOT, one_hot

one_hot_of_torch = torch.nn.functional.one_hot


def outcome(function, *args):
    try:
        return function(*args).tolist()
    except RuntimeError as error:
        return str(error).split("\n")[0]


@pytest.mark.parametrize(("numbers", "classes"), [([0, 2], 3), ([0, 2], -1), ([0, 3], 3), ([-1, 2], 3), ([0, 1], 5)])
def test_as_eager(numbers, classes):
    tensor = torch.tensor(numbers)
    assert outcome(one_hot, one_hot_of_torch, tensor, classes) == outcome(one_hot_of_torch, tensor, classes)


def test_which_functions_are_checked():
    assert ONE_HOT == {one_hot_of_torch, sized.one_hot}
