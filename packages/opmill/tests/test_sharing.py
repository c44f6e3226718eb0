"""What results share with arguments is what eager's share, with gradients, without and in inference mode, for sizes of one call and for
any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opmill

GIVING: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, False),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
    "dropout2d": lambda x: F.dropout2d(x[None, None], 0.5, False),
    "an eval nn.Dropout": torch.nn.Dropout().eval(),
    "reshape": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32),
    "type_as": lambda x: x.type_as(x),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[:1])[0],
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "atleast_3d": torch.atleast_3d,
    "einsum": lambda x: torch.einsum("ij->ji", x),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0]),
    "positive": lambda x: +x,
    "tensor_split": lambda x: torch.tensor_split(x, 2),
    "chunk": lambda x: x.chunk(2),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2),
    "unsafe_split": lambda x: torch.unsafe_split(x, 1),
    "flatten": lambda x: x.flatten(),
    "conj": lambda x: x.conj(),
    "nan_to_num": lambda x: x.nan_to_num(),
    "floor": lambda x: x.floor(),
    "pad by nothing": lambda x: F.pad(x, (0, 0)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[None, None], 1),
    "roll by nothing": lambda x: x.roll(0),
    "repeat once": lambda x: x.repeat(1, 1),
    "cat of one": lambda x: torch.cat([x]),
}
MODES = {"gradients": torch.enable_grad, "none": torch.no_grad, "inference": torch.inference_mode}


def looks(result: Any, x: torch.Tensor) -> list[Any]:
    many = result if isinstance(result, (tuple, list)) else (result,)
    memory = x.untyped_storage().data_ptr()
    return [(y is x, y.untyped_storage().data_ptr() == memory, y.storage_offset(), y.stride(), y.tolist()) for y in many]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GIVING)
def test_writes_to_what_an_operator_gives(name: str, mode: str) -> None:
    def run(x: torch.Tensor) -> Any:
        result = GIVING[name](x)
        for y in result if isinstance(result, (tuple, list)) else (result,):
            y.add_(1)
        return result

    opmill.reset()  # what was compiled for other names counts as of one piece of code
    with MODES[mode]():
        compiled = opmill.compile(run)
        for n in (3, 5, 7):  # of any size from the second on
            ours, theirs = (torch.arange(2.0 * n).reshape(2, n).clone() for _ in range(2))
            assert looks(compiled(ours), ours) == looks(run(theirs), theirs)
            assert torch.equal(ours, theirs)
