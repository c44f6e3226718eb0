"""Objects that never change, and that graphs may hold as they are: how a tensor is laid out over a mesh of devices, and the mesh."""

from __future__ import annotations

import enum

import torch

from .base import Machine, Value
from .constant import BuiltinConstantMethod, ConstantValue

PLACEMENTS = tuple(filter(None, [getattr(getattr(torch._C, "_distributed", None), "Placement", None)]))
"""Classes of how a tensor lies over a mesh; none where torch was built without distributed."""
_MESHES = (torch.distributed.device_mesh.DeviceMesh,) if torch.distributed.is_available() else ()
SETTLED = (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum, *PLACEMENTS, *_MESHES)
"""Classes whose instances say the same as long as they live."""


class SettledValue(ConstantValue):
    """Its methods only compute: they are called at capture."""

    def getattr(self, vm: Machine, name: str) -> Value:
        try:
            result = getattr(self.value, name)
        except Exception as exc:
            vm.throw_real(exc)
        if callable(result) and getattr(result, "__self__", None) is self.value:
            return BuiltinConstantMethod(self, name)
        return vm.fresh(result)


__all__ = ["PLACEMENTS", "SETTLED", "SettledValue"]
