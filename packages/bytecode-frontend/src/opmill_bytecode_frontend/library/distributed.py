"""torch.distributed in captured code: what a process group says of itself is constant; exchanges are operators of ``_c10d_functional``, anything else
runs natively."""

from __future__ import annotations

from typing import Any

from ..values.base import Value
from .registry import named


@named("torch.distributed._functional_collectives._are_we_tracing")
def are_we_tracing(vm: Any) -> Value:
    """What functional collectives give is waited for where it is read: a compiled graph knows where that is."""
    return vm.fresh(True)


@named("torch.nn.parallel.distributed.DistributedDataParallel.forward")
def data_parallel(vm: Any, *args: Value, **kwargs: Value) -> Value:
    """Its bookkeeping differs from call to call; while it runs, the module in it is captured for itself."""
    why = "it prepares the exchange of gradients anew at each call; the module in it is captured"
    return vm.unsupported("FE080", "DistributedDataParallel.forward", why, "compile the module inside: DistributedDataParallel(opmill.compile(model))")
