"""What is said about an argument that no graph holds, and about what NumPy's arrays have and graphs have not, fits what was met."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture
from opmill_bytecode_frontend.errors import Unsupported


class Other:
    pass


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], Any], str, str]] = {
    "an object": (lambda x: torch.add(x, Other()), "FE034", "what the operator needs of it"),  # type: ignore[call-overload]
    "a set": (lambda x: torch.stack({x, x + 1}), "FE034", "list(...)"),  # type: ignore[arg-type]
    "a generator": (lambda x: torch.stack(y for y in (x, x)), "FE034", "list(...)"),  # type: ignore[arg-type]
    "values": (lambda x: torch.stack({"a": x}.values()), "FE034", "list(...)"),  # type: ignore[arg-type]
    "a function": (lambda x: x.map_(x, lambda a, b: a + b), "FE034", "operators on whole tensors"),  # type: ignore[attr-defined]
    "a complex number": (lambda x: x + np.complex64(1j), "FE034", "complex(...)"),
    "an attribute": (lambda x: x.numpy().ctypes.data, "FE085", "ask the array outside"),
    "a buffer": (lambda x: x.numpy().data.nbytes, "FE085", "ask the array outside"),
    "flags": (lambda x: x.numpy().flags.num, "FE085", "ask the array outside"),
    "an assignment": (lambda x: setattr(x.numpy(), "strides", (8, 4)), "FE085", "make another array"),
    "a row": (lambda x: x.numpy().T.flat.__setitem__(slice(0, 3), 1), "FE085", "contiguous copy"),
    "a method": (lambda x: x.numpy().dumps(), "FE085", "compute it outside"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_hint_is_about_what_was_met(name: str) -> None:
    program, code, hint = PROGRAMS[name]
    with pytest.raises(Unsupported) as raised:
        capture(program, "eager", fullgraph=True)(torch.arange(6.0).reshape(2, 3))  # type: ignore[arg-type]
    assert raised.value.code == code and hint in raised.value.hint
