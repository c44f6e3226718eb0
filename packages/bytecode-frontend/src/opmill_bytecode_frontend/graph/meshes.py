"""What torch.distributed says of processes and devices: groups, meshes, and how a tensor is laid out over a mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned, Source

from ..interpretation.tracking import by_identity, tracks
from ..values.base import Machine, Value
from ..values.enumerated import FrozenObject
from ..values.functions import Closure
from ..values.immutable import PLACEMENTS, SettledValue

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


class ProcessGroupValue(FrozenObject):
    """What it says of itself never changes; what it does is no part of a graph."""

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        if name in ("size", "rank", "name"):
            return Closure(lambda vm, *args: vm.fresh(getattr(self.obj, name)(*(a.constant() for a in args))))
        return super().generic_getattr(vm, name)


if torch.distributed.is_available():
    from torch.distributed.device_mesh import DeviceMesh

    @tracks(torch.distributed.ProcessGroup)
    def process_group(vm: Interpreter, obj: object, source: Source | None) -> Value:
        return ProcessGroupValue(type(obj), obj, by_identity(vm, obj, source) or Pinned(obj, "process group"))

    @tracks(DeviceMesh)
    def mesh(vm: Interpreter, obj: object, source: Source | None) -> Value:
        return SettledValue(obj, by_identity(vm, obj, source))

    @tracks(*PLACEMENTS)
    def placement(vm: Interpreter, obj: object, source: Source | None) -> Value:
        """Known by what it says: each use of a tensor may make another one."""
        if source is not None and type(source) is not Pinned:
            vm.guard(Predicate(source, lambda now: type(now) is type(obj) and now == obj, f"== {obj}"))
        return SettledValue(obj, source)
