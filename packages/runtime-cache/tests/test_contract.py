"""What a kernel says that it touches, and launches that are held against it."""

import msgspec
import pytest
import torch

from opmill_runtime_cache.errors import BindError
from opmill_runtime_cache.plan.contract import Contract, Touched, agree, decode, encode
from opmill_runtime_cache.plan.model import DTYPES, Launch

CONTRACT = Contract(("n",), (Touched("float32", False, "n*4"), Touched("float32", True, "n")), 1, "n - 1", ((1, 0, True),))
LAUNCH = Launch(0, (5, 6), ("s0",), (1,), (("IndexError", "no"),), "exp a.py:1")
FLOAT, HALF, PAIR = (DTYPES.index(name) for name in ("float32", "float16", "complex64"))


def test_a_contract_is_read_back():
    text = encode(CONTRACT)
    assert decode(text.encode()) == CONTRACT and decode(text.encode()) is decode(text.encode())
    for wrong in (b"", b"{}", b"[1]", text.replace("true", "1").encode()):
        with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
            decode(wrong)


def test_a_launch_that_gives_what_is_taken():
    agree(LAUNCH, CONTRACT, ((FLOAT, 0), (FLOAT, 0)), 0)
    agree(LAUNCH, CONTRACT, ((-1, -1), (PAIR, 0)), 0)  # pairs are seen as their parts; what is not known follows
    agree(LAUNCH, CONTRACT, ((FLOAT, 1), (FLOAT, 1)), None)


@pytest.mark.parametrize(
    ("changes", "facts", "says"),
    [
        ({"slots": (5,)}, ((FLOAT, 0),), "gives 1 tensors and 1 sizes, not 2 and 1"),
        ({"sizes": ()}, ((FLOAT, 0),) * 2, "gives 2 tensors and 0 sizes"),
        ({"checks": ()}, ((FLOAT, 0),) * 2, "names 0 checks of 1"),
        ({"writes": (0,)}, ((FLOAT, 0),) * 2, "does not say what the kernel writes"),
        ({"writes": ()}, ((FLOAT, 0),) * 2, "does not say what the kernel writes"),
        ({}, ((FLOAT, 0), (HALF, 0)), "gives float16 for float32 in argument 1"),
        ({}, ((FLOAT, 1), (FLOAT, 0)), "memory of another device in argument 0"),
    ],
)
def test_one_that_does_not(changes, facts, says):
    with pytest.raises(BindError, match="RC049") as raised:
        agree(msgspec.structs.replace(LAUNCH, **changes), CONTRACT, facts, 0)
    assert says in str(raised.value) and "a.py:1" in str(raised.value)


def test_a_contract_that_speaks_of_tensors_it_does_not_take():
    with pytest.raises(BindError, match="RC049"):
        agree(LAUNCH, msgspec.structs.replace(CONTRACT, apart=((1, 2, False),)), ((FLOAT, 0),) * 2, 0)


def test_types_are_torchs():
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES)
