"""An operator whose definition fails half-way can be defined again."""

from __future__ import annotations

import pytest
import torch

from opmill_graph_ir.definitions import definitions


def test_half_a_definition_is_taken_back() -> None:
    for fails in (True, True, False):
        if fails:
            with pytest.raises(MemoryError), definitions("opmill_test_half") as library:
                library.define("twice(Tensor x) -> Tensor")
                raise MemoryError
        else:
            with definitions("opmill_test_half") as library:
                library.define("twice(Tensor x) -> Tensor")
                library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.opmill_test_half.twice(torch.ones(2)).tolist() == [2.0, 2.0]
