"""What operations give beside tensors: answers that guards stand for, and whether a tensor is inside."""

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend.graph.results import contains_tensor, is_answer

X = torch.zeros(2)


@pytest.mark.parametrize(
    ("result", "answer", "inside"),
    [(None, True, False), (3, True, False), ((1, [2.0, "x"]), True, False), (X.shape, True, False), (torch.float32, True, False),
     (X, False, True), ([1, X], False, True), ({"a": [X]}, False, True), ({"a": 1}, False, False), (object(), False, False), (np.zeros(2), False, False)],
    ids=["None", "int", "nested", "shape", "dtype", "tensor", "list", "dict", "dict of ints", "object", "array"],
)  # fmt: skip
def test_results(result, answer, inside):
    assert is_answer(result) is answer and contains_tensor(result) is inside
