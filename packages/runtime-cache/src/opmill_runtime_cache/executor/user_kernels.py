"""Operators that carry a GPU kernel of the program's own: launched as generated ones are, without Python.

Such an operator has an attribute ``opmill_kernel``, a function ``(dtypes, numbers, device, aligned) -> Carried | None`` of the element
types of its tensors, of the whole numbers among its arguments, of the CUDA device's number and of whether all pointers are multiples of 16
bytes. Its arguments are tensors, then a list of whole numbers, then a list of three, the grid. What the function gives is any object with
the attributes of :class:`Carried`; None where the kernel cannot be started by the driver alone, and the operator is called then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ..devices.cuda import DEVICE as CUDA
from ..devices.cuda.kernel import CudaKernel
from ..devices.protocol import index_of, type_of
from ..plan.launch import Arg, Form, LaunchData, Step
from ..plan.model import DTYPES, Call, ListArg, Literal, Slot


class Carried(Protocol):
    """Machine code for a device of compute capability ``arch`` (times ten), and how it is started. ``parameters``: of each the number of
    the tensor that it points to (``("tensor", 0)``) or its bits (``("word", 3)``); two null pointers are passed behind them."""

    arch: int
    image: bytes
    entry: str
    warps: int
    shared: int
    parameters: Sequence[tuple[str, int]]


def carried_kernel(call: Call, overload: Any, facts: Sequence[tuple[int, int]]) -> CudaKernel | None:
    """The kernel that ``call`` may start instead of its operator. ``facts``: element type (position in ``DTYPES``) and device of each
    tensor."""
    make = getattr(overload, "opmill_kernel", None)
    devices = {device for _, device in facts}
    if make is None or len(devices) != 1 or any(dtype < 0 for dtype, _ in facts) or len(call.args) < 2:
        return None
    *tensors, numbers, grid = call.args
    given, programs = _plain(numbers), _plain(grid)
    if any(type(t) is not Slot for t in tensors) or given is None or programs is None or len(programs) != 3:
        return None
    dtypes = [getattr(torch, DTYPES[dtype]) for dtype, _ in facts]
    [device] = devices
    if type_of(device) not in (0, CUDA.number):  # where the program computes, what carries it says whether it starts there
        return None
    made = [make(dtypes, given, index_of(device), aligned) for aligned in (True, False)]
    if None in made:
        return None
    return _kernel(made, programs)


def _plain(numbers: Any) -> list[int] | None:
    """Whole numbers that are known; None where not all of a list are."""
    if type(numbers) is not ListArg:
        return None
    known = [item.value for item in numbers.items if type(item) is Literal and type(item.value) is int]
    return known if len(known) == len(numbers.items) else None


def _kernel(made: Sequence[Any], grid: Sequence[int]) -> CudaKernel | None:
    """Both forms as one kernel, where they take the same parameters: the faster one, which wants aligned pointers, first."""
    fast, slow = made
    if list(fast.parameters) != list(slow.parameters):
        return None
    offset = -(-len(fast.image) // 64) * 64
    image = fast.image.ljust(offset, b"\0") + slow.image
    forms = tuple(
        Form(start, len(one.image), one.entry, one.warps, one.shared, align) for start, one, align in ((0, fast, 16), (offset, slow, 1))
    )
    args = tuple(Arg("buffer", value) if kind == "tensor" else Arg("word", 0, value) for kind, value in fast.parameters)
    data = LaunchData(fast.arch, (), (Step(grid[0], args, forms, (grid[1], grid[2])),))
    return CudaKernel(f"carried/{hashlib.sha256(image).hexdigest()}", data, image)


__all__ = ["Carried", "carried_kernel"]
