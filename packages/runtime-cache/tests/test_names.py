"""From names in a plan to objects, and to nothing that a plan should not reach."""

import pytest
import torch

from opmill_runtime_cache.errors import BindError, SizeCheckFailed
from opmill_runtime_cache.executor.names import dtype_of, exception_of, named, operator_of


def test_constants_of_torch():
    assert dtype_of("bfloat16") is torch.bfloat16 and named("device", "cuda:1") == torch.device("cuda:1")
    assert named("layout", "strided") is torch.strided and named("memory_format", "channels_last") is torch.channels_last


@pytest.mark.parametrize(
    ("kind", "name"),
    [("dtype", "nn"), ("dtype", "load"), ("dtype", "strided"), ("layout", "float32"), ("device", "nowhere"), ("file", "x")],
)
def test_other_names_give_nothing(kind, name):
    with pytest.raises(BindError, match="RC035"):
        named(kind, name)


def test_operators():
    assert operator_of("aten::add.Tensor") is torch.ops.aten.add.Tensor and operator_of("aten::relu") is torch.ops.aten.relu.default


@pytest.mark.parametrize(
    "name",
    ["aten::nothing", "aten::add.Nothing", "nothing::add", "aten::add.__class__", "aten::__class__", "add", "", "aten::add.a.b", "a b::c"],
)
def test_what_is_no_operator(name):
    with pytest.raises(BindError, match="RC036"):
        operator_of(name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("IndexError", IndexError),
        ("torch.OutOfMemoryError", torch.OutOfMemoryError),
        ("SizeCheckFailed", SizeCheckFailed),
        ("SystemExit", RuntimeError),  # nothing that is no Exception
        ("print", RuntimeError),
        ("Whatever", RuntimeError),
    ],
)
def test_exceptions(name, kind):
    assert exception_of(name) is kind
