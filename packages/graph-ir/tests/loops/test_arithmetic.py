"""What primitives compute where the type of the result counts."""

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply, torch_dtype


def test_types_by_name():
    assert torch_dtype("bfloat16") is torch.bfloat16 and torch_dtype("float32", wide=True) is torch.float64
    assert torch_dtype("float16", wide=True) is torch.float16


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.float16, torch.float64, torch.float8_e5m2], ids=str)
def test_casts_are_torchs(dtype):
    x = torch.tensor([0.0, -0.0, 1.5, -1.5, 2.5, 100.0])
    assert torch.equal(apply("cast", [x], dtype).double(), x.to(dtype).double())


def test_what_is_too_large_for_a_type_without_infinity_is_its_largest():
    x = torch.tensor([1e9, -1e9, float("inf"), 448.0, 460.0])
    assert apply("cast", [x], torch.float8_e4m3fn).float().tolist() == [448.0, -448.0, 448.0, 448.0, 448.0]
    assert apply("cast", [torch.tensor([float("nan")])], torch.float8_e4m3fn).float().isnan().all()


def test_bits_stay():
    assert apply("bitcast", [torch.tensor([1.0])], torch.int32).item() == 0x3F800000


def test_results_have_the_type_that_is_asked_for():
    x = torch.arange(4)
    assert apply("lt", [x, x.flip(0)], torch.bool).tolist() == [True, True, False, False]
    assert apply("floordiv", [x - 2, torch.full((4,), 2)], torch.int64).tolist() == [-1, -1, 0, 0]
    assert apply("truncdiv", [x - 3, torch.full((4,), 2)], torch.int64).tolist() == [-1, -1, 0, 0]
