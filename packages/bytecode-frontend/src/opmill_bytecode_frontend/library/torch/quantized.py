"""``torch.quantize_per_tensor``: two operators of the graph, one to integers and one back, which are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from opmill_fake_tensors.forking import ForkLock

from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue
from ...values.quantized import QuantizedValue
from ...values.tensor import TensorValue
from ..dispatch import torch_call
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

QUANTIZE = torch.quantize_per_tensor  # itself: a program may put a function of its own in its place
SCHEMAS = (
    "integers(Tensor numbers, float scale, int zero_point, str dtype) -> Tensor",
    "numbers(Tensor integers, float scale, int zero_point) -> Tensor",
)
INTEGERS = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
_lock = ForkLock()
_library: list[torch.library.Library] = []


def integers(numbers: torch.Tensor, scale: float, zero_point: int, dtype: str) -> torch.Tensor:
    """The integers of a quantised tensor."""
    return torch.quantize_per_tensor(numbers.detach(), scale, zero_point, getattr(torch, dtype)).int_repr()


def numbers_of(integers: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """What these integers mean."""
    return torch._make_per_tensor_quantized_tensor(integers, scale, zero_point).dequantize()


def operators() -> tuple[Callable[..., object], Callable[..., object]]:
    """The two operators, which are defined where they are first asked for."""
    with _lock:
        if not _library:
            library = torch.library.Library("opmill_quantized", "FRAGMENT")
            for schema in SCHEMAS:
                library.define(schema)
            library.impl("integers", integers, "CPU")
            library.impl("integers", lambda x, scale, zero, dtype: x.new_empty(x.shape, dtype=INTEGERS[getattr(torch, dtype)]), "Meta")
            library.impl("numbers", numbers_of, "CPU")
            library.impl("numbers", lambda x, scale, zero: x.new_empty(x.shape, dtype=torch.float32), "Meta")
            for name in ("integers", "numbers"):
                for key in ("Autograd", "ADInplaceOrView"):
                    library.impl(name, torch.library.fallthrough_kernel, key)
            space = torch.ops.opmill_quantized
            vars(space.integers.default)["opmill_shapes"] = lambda name, overload, args, kwargs: alike(args[0], getattr(torch, args[3]))
            vars(space.numbers.default)["opmill_shapes"] = lambda name, overload, args, kwargs: alike(args[0], None)
            _library.append(library)
    return torch.ops.opmill_quantized.integers.default, torch.ops.opmill_quantized.numbers.default


def alike(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """A dense tensor of these sizes: of floats, or of the integers of a quantised type."""
    return torch.empty(tensor.shape, dtype=torch.float32 if dtype is None else INTEGERS[dtype], device=tensor.device)


@handles(QUANTIZE)
def quantize(vm: Interpreter, input: Value, scale: Value, zero_point: Value, dtype: Value) -> Value:
    """A tensor with one scale: of dense numbers on a processor it is integers in the graph. Others end it."""
    fake = input.fake if isinstance(input, TensorValue) and input.cls is torch.Tensor else None
    try:
        told = vm.plain(scale), vm.plain(zero_point), vm.plain(dtype)
    except NotConstant:
        told = None, None, None
    known = type(told[0]) is float and type(told[1]) is int and told[2] in INTEGERS
    if fake is None or not known or fake.device.type != "cpu" or fake.dtype is not torch.float32 or not fake.is_contiguous():
        return torch_call(vm, QUANTIZE, [input, scale, zero_point, dtype], {})
    try:
        QUANTIZE(torch.zeros(1), *told)
    except Exception as exc:
        vm.throw_real(exc)
    to, back = operators()
    name = ConstantValue(str(told[2]).removeprefix("torch."))
    ints = vm.recorder.call_function(vm, to, [input, scale, zero_point, name], {})
    assert isinstance(ints, TensorValue), ints
    return QuantizedValue(ints, *told, back)


def _of_quantized(function: Callable[..., object], method: str) -> None:
    @handles(function)
    def asked(vm: Interpreter, tensor: Value, *args: Value, **kwargs: Value) -> Value:
        if isinstance(tensor, QuantizedValue) and not args and not kwargs:
            return tensor.method(vm, method, [], {})
        return torch_call(vm, function, [tensor, *args], kwargs)


for _function in (torch.dequantize, torch.int_repr, torch.q_scale, torch.q_zero_point):
    _of_quantized(_function, _function.__name__)
