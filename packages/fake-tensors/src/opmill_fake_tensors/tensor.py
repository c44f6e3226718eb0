"""The fake tensor: a tensor without data that reports a real device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The known value of the memory that some fakes share; all of them forget it at the first write, but the one that was written where
    what is written is known, too."""

    __slots__ = ("alive", "memory", "told")

    def __init__(self, told: frozenset[Callable[[], None]] = frozenset(), memory: list[ConstantBox] | None = None) -> None:
        """``memory``: what is known of the same memory at other times, or through other views."""
        self.alive = True
        self.memory: list[ConstantBox] = [] if memory is None else memory
        self.memory.append(self)
        self.told = told
        """Called when the value decides something: it was found in tensors from outside, which may hold another one later."""

    def forget(self) -> None:
        """The memory is written."""
        for box in self.memory:
            box.alive = False

    def unknown(self) -> ConstantBox:
        """Of a view of the memory whose own value nobody knows: when it is written, what is known of the memory is forgotten."""
        made = ConstantBox(memory=self.memory)
        made.alive = False
        return made

    def decides(self) -> None:
        for tell in self.told:
            tell()


class Recipe:
    """A known value that nobody has asked for yet, and that is large: ``compute()`` gives it."""

    __slots__ = ("_value", "compute")

    def __init__(self, compute: Callable[[], torch.Tensor]) -> None:
        self.compute: Callable[[], torch.Tensor] | None = compute
        self._value: torch.Tensor | None = None

    def value(self) -> torch.Tensor:
        """Raises DataDependent where it cannot be computed: then the program itself will fail, at its time."""
        if self.compute is not None:
            try:
                self._value = self.compute()
            except Exception:
                raise DataDependent("a known value") from None
            self.compute = None
        assert self._value is not None
        return self._value


class FakeTensor(torch.Tensor):
    """Sizes, strides, element type and device without data. Made by a ``FakeContext``, never directly.

    ``meta`` is a meta tensor of the same geometry; fakes that alias have metas that share storage. ``context`` made it and
    runs operators on it, inside and outside of ``with context``."""

    meta: torch.Tensor
    context: Runs
    _constant: torch.Tensor | Recipe | None
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
        if self._box is None or not self._box.alive:
            return None
        return self._constant.value() if isinstance(self._constant, Recipe) else self._constant

    def is_known(self) -> bool:
        """Whether there is a value, without asking for it."""
        return self._box is not None and self._box.alive

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
        if value is None or self._box is None:
            raise DataDependent("aten::tolist")
        self._box.decides()
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


def kept(arg: Any) -> Any:
    """What is known of an argument now, whatever is written later."""
    if isinstance(arg, FakeTensor):
        return arg._constant
    return type(arg)(map(kept, arg)) if type(arg) in (list, tuple) else arg


def known_value(arg: Any) -> Any:
    """What is known, computed where nobody had asked for it."""
    if isinstance(arg, Recipe):
        return arg.value()
    return type(arg)(map(known_value, arg)) if type(arg) in (list, tuple) else arg
