"""What programs tell the libraries of GPUs: ``with torch.backends.cudnn.flags(...)``, ``torch.backends.cudnn.benchmark = True``.

Their kernels look when they run, and steps of a graph are not run under what the program said at that place: captured code says it, and the
graph ends where an operator on such a device would hear of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ...graph.thread_state import LIBRARIES, libraries_differ
from ...values.base import Value
from ..dispatch import fold
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def told(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """Told while capturing, so that the program reads what it said, and at the end of each call where it is not taken back."""
    if function is PRECISION and [vm.plain(a) for a in args[:1]] != ["cuda"]:
        vm.unsupported("FE010", f"call of {PRECISION.__name__}", "it changes a state of torch that graphs do not change")
    result = fold(vm, function, list(args), kwargs)
    vm.recorder.libraries_differ = libraries_differ(vm.entry_switches)
    return result


PRECISION: Callable[..., object] = getattr(torch._C, "_set_fp32_precision_setter", told)
for _name in dict.fromkeys(setter for setter, _, _ in LIBRARIES):
    handles(getattr(torch._C, _name))(functools.partial(told, function=getattr(torch._C, _name)))

__all__ = ["told"]
