"""Floats that are not assumed: tensors without dimensions stand for them in the graph."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..values.base import Value
from ..values.data_dependent import LateFloat
from ..values.floating import FloatNumber, as_float
from ..values.opaque import RandomNumber
from ..values.tensor import COMPUTED_IN, TensorValue
from .doubles_of_data import double_of_data
from .open_scalars import changes
from .operands import FILLING, IN_PLACE, LERPING, WHOLE_NUMBERED, WITH_SCALARS, is_lerped, is_plain

if TYPE_CHECKING:
    from .recorder import Recorder


CPU = torch.device("cpu")
DTYPE_OF_TYPE: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}
"""Types of tensors that hold a number of Python's."""


def can_lie(number: object, device: torch.device) -> bool:
    """Whether a tensor there may stand for the number: what a graph computes of data lies where these do."""
    return not isinstance(number, LateFloat) or number.of is not None or number.tensor.fake.device == device


class Scalars:
    """Of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._inputs: dict[tuple[str, torch.device], TensorValue] = {}
        """Inputs that stand for floats, by how these are computed and where they lie."""

    def widened(self, target: Any, args: list[Value]) -> Value | None:
        """What an operator gives for a tensor of half precision on a device and a float that is not assumed: it is computed in single
        precision, as the device does, which rounds the result and not the number. None for others."""
        if len(args) != 2 or target not in WITH_SCALARS or target in IN_PLACE or target in WHOLE_NUMBERED:
            return None
        tensor, other = args if type(args[0]) is TensorValue else args[::-1]
        if type(tensor) is not TensorValue or type(other) is TensorValue or not self._is_low_on_device(tensor):
            return None
        number, fake, vm = as_float(self.recorder.vm, other), tensor.fake, self.recorder.vm
        if not changes(number) or not can_lie(number, fake.device):
            return None
        in_wide = COMPUTED_IN[fake.dtype]
        wide, scalar = tensor.of_dtype(vm, in_wide), self.double_at(number, fake.device).of_dtype(vm, in_wide)
        operands: list[Value] = [wide, scalar] if tensor is args[0] else [scalar, wide]
        made = (
            self.recorder.call_method(vm, target, operands, {})
            if isinstance(target, str)
            else self.recorder.call_function(vm, target, operands, {})
        )
        return made.of_dtype(vm, fake.dtype) if isinstance(made, TensorValue) and made.fake.dtype is in_wide else made

    def _is_low_on_device(self, tensor: TensorValue) -> bool:
        fake = tensor.fake
        return fake.dtype in COMPUTED_IN and fake.device.type != "cpu" and self.recorder.counts and is_plain(tensor)

    def among(self, target: object, args: list[Value]) -> list[Value]:
        """Floats that are not assumed as tensors without dimensions, where torch computes the same with those as with Python's floats."""
        if len(args) == 2 and target in WITH_SCALARS:
            floats = [as_float(self.recorder.vm, a) for a in args]  # of sizes, too: backends know few operators that take these
            numbers = [i for i, a in enumerate(floats) if changes(a)]
            if len(numbers) == 1 and type(tensor := args[1 - numbers[0]]) is TensorValue and self.takes(tensor, floats[numbers[0]]):
                in_place = numbers == [1] and target in IN_PLACE
                scalar = self._beside(floats[numbers[0]], tensor.fake, in_place)
                return [scalar if i in numbers else a for i, a in enumerate(args)] if scalar is not None else args
        if target is operator.setitem and isinstance(last := args[-1], (FloatNumber, LateFloat)):
            filled = self._is_filled(args, target, last)
            return args if filled is None else [*args[:-1], self.assigned(last, filled.dtype, filled.device)]
        number = as_float(self.recorder.vm, args[-1]) if args and (target in FILLING or target in LERPING) else None
        if changes(number) and len(args) == FILLING.get(target) and (filled := self._is_filled(args, target, number)) is not None:
            return [*args[:-1], self.double_at(number, filled.device)]
        if (
            changes(number)
            and len(args) == 3
            and target in LERPING
            and is_lerped(first := args[0])
            and is_lerped(args[1])
            and self.takes(first, number)
        ):
            return [*args[:2], self.double_of(number, first.fake).of_dtype(self.recorder.vm, first.fake.dtype)]
        return args

    def takes(self, tensor: TensorValue, number: object) -> bool:
        """Whether a tensor may stand for the number beside this one. Backends of others are given numbers on devices as they are. What a
        device computes is a tensor there, which is rounded to a type of half precision, as Python's numbers are not."""
        on_processor, late = tensor.fake.device.type == "cpu", isinstance(number, LateFloat)
        if not is_plain(tensor) or not (on_processor or (self.recorder.counts and not (late and tensor.fake.dtype in COMPUTED_IN))):
            return False
        return can_lie(number, tensor.fake.device)

    def assigned(self, number: FloatNumber | LateFloat, dtype: torch.dtype, device: torch.device = CPU) -> TensorValue:
        """The tensor that stands for a float which is assigned to items of a tensor of this type."""
        number.fills(dtype)
        return self.double_at(number, device).of_dtype(self.recorder.vm, dtype)

    def _is_filled(self, args: list[Value], target: object, number: object) -> torch.Tensor | None:
        """The tensor that takes a number of another one, where it is of a floating type."""
        tensor = args[0] if type(args[0]) is TensorValue and args[0].fake.dtype is not torch.bool else args[1]
        if type(tensor) is not TensorValue or not tensor.fake.is_floating_point():
            return None
        return tensor.fake if (tensor.fake.dim() > 0 or target is operator.setitem) and self.takes(tensor, number) else None

    def _beside(self, number: object, fake: torch.Tensor, in_place: bool) -> TensorValue | None:
        """The tensor that stands for a float beside ``fake``: of the type that the two have together, where its own would count."""
        floating = fake.is_floating_point()
        if fake.is_complex() or (in_place and not floating) or (fake.dim() == 0 and fake.dtype in COMPUTED_IN):
            return None
        scalar = self.double_of(number, fake)
        if floating and (fake.dim() or fake.dtype is torch.float64):
            return scalar
        return scalar.of_dtype(self.recorder.vm, fake.dtype if floating else torch.get_default_dtype())

    def drawn(self, number: RandomNumber, like: Any = None, sizes: Iterable[object] | None = None) -> TensorValue:
        """A number that is drawn before the graph runs, or an array like this one, of other sizes where these are given."""
        tensor = torch.scalar_tensor(0, dtype=DTYPE_OF_TYPE[number.cls]) if like is None else torch.from_numpy(like.copy(order="K")[...])
        fake = self.recorder.context.from_tensor(tensor)
        if sizes is not None:
            fake = self.recorder.context.run(torch.ops.aten.empty.memory_format, [list(sizes)], {"dtype": tensor.dtype})
        made = TensorValue(fake, None, torch.Tensor, tensor)
        made.scalar = number
        self.recorder.by_fake[id(made.fake)] = made
        return made

    def double_of(self, number: object, like: torch.Tensor) -> TensorValue:
        """The tensor of a double that a float is in the graph, beside one like this. It lies where that one does, so that nothing is
        copied there in between; beside half precision it is a number of the processor, as which it is not rounded."""
        return self.double_at(number, CPU if like.dtype in COMPUTED_IN else like.device)

    def double_at(self, number: object, device: torch.device) -> TensorValue:
        """The tensor of a double that a float is in the graph: what the graph computes, or an input."""
        if type(number) is LateFloat and number.of is not None and number.tensor.fake.device != device:
            number = double_of_data(self.recorder, number.of, device)
        found = number.tensor if type(number) is LateFloat else self.input_of(number, device)
        assert isinstance(found, TensorValue), found
        return found

    def double_of_data(self, number: torch.SymFloat) -> LateFloat | None:
        """See :mod:`.doubles_of_data`."""
        return double_of_data(self.recorder, number, CPU)

    def input_of(self, number: Any, device: torch.device = CPU) -> TensorValue:
        """The input of the graph that is a float."""
        key = repr(number), device
        known = self._inputs.get(key)
        if known is None:
            tensor = torch.scalar_tensor(number.value, dtype=torch.float64, device=device)
            known = self._inputs[key] = TensorValue(
                self.recorder.context.from_tensor(tensor), None, torch.Tensor, tensor, next(iter(number.sources))
            )
            known.scalar = number
            self.recorder.by_fake[id(known.fake)] = known
        return known


__all__ = ["Scalars"]
