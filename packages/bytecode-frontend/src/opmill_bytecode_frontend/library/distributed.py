"""torch.distributed in captured code: what a process group says of itself is constant; exchanges are operators of ``_c10d_functional``, anything else
runs natively."""

from __future__ import annotations

from typing import Any

import torch

from ..values.base import Value
from .dispatch import fold
from .registry import handles, named


def _question(function: Any) -> None:
    handles(function)(lambda vm, *args, **kwargs: fold(vm, function, list(args), kwargs))


if torch.distributed.is_available():
    for _name in ("size", "rank", "name"):
        _question(getattr(torch.distributed.ProcessGroup, _name))


@named("torch.distributed._functional_collectives._are_we_tracing")
def are_we_tracing(vm: Any) -> Value:
    """What functional collectives give is waited for where it is read: a compiled graph knows where that is."""
    return vm.fresh(True)


@named("torch.nn.parallel.distributed.DistributedDataParallel.forward")
def data_parallel(vm: Any, *args: Value, **kwargs: Value) -> Value:
    """Its bookkeeping differs from call to call; while it runs, the module in it is captured for itself."""
    why = "it prepares the exchange of gradients anew at each call; the module in it is captured"
    return vm.unsupported("FE080", "DistributedDataParallel.forward", why, "compile the module inside: DistributedDataParallel(opmill.compile(model))")
