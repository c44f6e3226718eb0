"""Objects that never change: their attributes and methods are read at capture, and raise what they raise."""

import pytest
import torch

from opmill_bytecode_frontend import capture


@pytest.mark.parametrize(
    "read",
    [lambda d: d.itemsize, lambda d: d.is_floating_point, lambda d: d.to_complex(), lambda d: repr(d), lambda d: d is torch.float32,
     lambda d: d.missing, lambda d: getattr(d, "missing", 3)],
    ids=["number", "truth", "method", "repr", "identity", "missing", "default"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_dtypes(read, dtype):
    def program(x):
        y = x + 1
        try:
            return y, read(x.dtype)
        except Exception as error:
            return y, type(error), str(error)

    x = torch.ones(2).to(dtype)
    got, want = capture(program, backend="eager")(x), program(x)
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
