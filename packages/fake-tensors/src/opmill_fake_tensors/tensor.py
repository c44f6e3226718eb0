"""The fake tensor: a tensor without data that reports a real device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from .errors import DataDependent


class Runs(Protocol):
    """What a fake needs of the context that made it."""

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What ``func`` gives for these arguments, as fakes."""

    def from_meta(self, meta: torch.Tensor, device: torch.device, *, requires_grad: bool = False) -> FakeTensor:
        """A fake with the geometry of ``meta``."""


class ConstantBox:
    """The known value of the memory that some fakes share; all of them forget it at the first write."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        self.alive = True


class FakeTensor(torch.Tensor):
    """Sizes, strides, element type and device without data. Made by a ``FakeContext``, never directly.

    ``meta`` is a meta tensor of the same geometry; fakes that alias have metas that share storage. ``context`` made it and
    runs operators on it, inside and outside of ``with context``."""

    meta: torch.Tensor
    context: Runs
    _constant: torch.Tensor | None
    _box: ConstantBox | None

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for kind in types:
            if kind is not cls:  # which says itself what operators on its tensors do
                return NotImplemented
        fake = _first_fake((args, kwargs))
        assert fake is not None
        return fake.context.run(func, args, kwargs or {})

    @property
    def constant(self) -> torch.Tensor | None:
        """The value, where it is known (small tensors made from Python numbers, and what is computed from them)."""
        return self._constant if self._box is not None and self._box.alive else None

    def is_conj(self) -> bool:
        return self.meta.is_conj()

    def is_neg(self) -> bool:
        return self.meta.is_neg()

    @property
    def real(self) -> torch.Tensor:  # type: ignore[override]
        return torch.real(self.conj() if self.is_conj() else self)

    @property
    def imag(self) -> torch.Tensor:  # type: ignore[override]
        return torch._neg_view(torch.imag(self.conj())) if self.is_conj() else torch.imag(self)

    def resolve_conj(self) -> torch.Tensor:
        return self.clone() if self.is_conj() else self  # torch's own asks its C++, which does not see the mark

    def resolve_neg(self) -> torch.Tensor:
        return self.clone() if self.is_neg() else self

    def tolist(self) -> Any:
        value = self.constant
        if value is None:
            raise DataDependent("aten::tolist")
        return value.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise DataDependent("aten::numpy")

    def __array__(self, dtype: Any = None) -> Any:
        raise DataDependent("aten::numpy")

    def data_ptr(self) -> int:
        raise DataDependent("aten::data_ptr")

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        grad = ", requires_grad" if self.requires_grad else ""
        return f"FakeTensor({str(self.dtype).removeprefix('torch.')}{list(self.shape)}, strides={list(self.stride())}, {self.device}{grad})"

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        return self.context.from_meta(self.meta.clone(), self.device, requires_grad=self.requires_grad)


def _first_fake(value: Any) -> FakeTensor | None:
    if isinstance(value, FakeTensor):
        return value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((f for v in items if (f := _first_fake(v)) is not None), None)
