"""What eager's functions check of numbers in tensors, where torch traces another way that checks nothing."""

from __future__ import annotations

from typing import Any

import torch

from opmill_fake_tensors import sized
from opmill_runtime_cache.devices.registry import traits_of

aten = torch.ops.aten
ONE_HOT = frozenset((torch.nn.functional.one_hot, sized.one_hot))


def one_hot(target: Any, tensor: Any, num_classes: Any = -1) -> Any:
    """``torch.nn.functional.one_hot``: on processors eager looks whether the numbers are classes."""
    if traits_of(tensor.device.type).processor and not (type(num_classes) is int and num_classes < 0):
        aten._assert_async.msg(torch.all(tensor >= 0), "Class values must be non-negative.")
        aten._assert_async.msg(torch.all(tensor < num_classes), "Class values must be smaller than num_classes.")
    return target(tensor, num_classes)
