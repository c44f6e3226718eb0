"""NumPy's generators that captured code makes with a seed, or seeds: what they draw then is known while it is captured, and the same at
each call."""

from __future__ import annotations

import sys
from typing import Callable

from .arrays import Array, ArrayValue
from .base import Machine, NotConstant, Value
from .constant import ConstantValue
from .known_arrays import plain
from .sequence import ListValue, SliceValue

HINT = "use torch.rand, which the graph holds, or draw before the compiled function"


class NumpyGenerator(Value):
    """``made``: the generator as it is by now."""

    def __init__(self, made: Array) -> None:
        self.made = made

    def python_type(self) -> type:
        return type(self.made)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if name.startswith("_") or not callable(getattr(self.made, name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "shuffle":
            return self.shuffle(vm, args, kwargs)
        try:
            given, named = [plain(vm, a) for a in args], {key: plain(vm, value) for key, value in kwargs.items()}
        except NotConstant:
            if name == "permutation" and len(args) == 1 and isinstance(args[0], ArrayValue) and not kwargs:
                return self.permutation(vm, args[0])
            vm.unsupported("FE019", f"numbers of numpy.random's {name}", "what the generator is told is computed in captured code", HINT)
        if "out" in named:
            vm.unsupported("FE019", f"numbers of numpy.random's {name}", "they are written to an array", HINT)
        try:
            found = getattr(self.made, name)(*given, **named)
        except Exception as error:
            vm.throw_real(error)
        return vm.fresh(found)

    def order(self, vm: Machine, array: ArrayValue, draw: Callable[[Array], None]) -> Value:
        """Where each row comes from once ``draw`` has shuffled the array, of which it is given one of positions."""
        np = sys.modules["numpy"]
        sizes = (*array.inner.fake.shape, *array.inner.fake.stride())
        if array.is_number or not array.like.ndim or any(type(n) is not int and not n.node.has_hint() for n in sizes):
            vm.unsupported("FE019", "an order of numpy.random's", "how much is shuffled only data tell", HINT)
        for n in sizes:
            int(n)  # assumes it
        places = np.arange(array.like.shape[0]).reshape(-1, *[1] * (array.like.ndim - 1))
        draw(places)
        return vm.fresh(places.reshape(-1))

    def shuffle(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Its method of this name, which writes to an array or a list."""
        if len(args) == 1 and not kwargs and isinstance(args[0], ListValue):
            items = vm.unpack(args[0])
            self.made.shuffle(places := [*range(len(items))])
            args[0].method(vm, "__setitem__", [SliceValue(*[ConstantValue(None)] * 3), ListValue([items[k] for k in places])], {})
            return ConstantValue(None)
        if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue):
            vm.unsupported("FE019", "numpy.random's shuffle", "it is of something else than an array", HINT)
        order = self.order(vm, args[0], self.made.shuffle)
        taken = args[0].method(vm, "__getitem__", [order], {})
        args[0].method(vm, "__setitem__", [ConstantValue(...), taken], {})
        return ConstantValue(None)

    def permutation(self, vm: Machine, array: ArrayValue) -> Value:
        """Its method of this name, of an array of the graph."""
        return array.method(vm, "__getitem__", [self.order(vm, array, self.made.shuffle)], {})


class Reached:
    """Gives a generator the state that it has come to. Of one that captured code seeds, that is done for all that it draws since: the
    numbers are known."""

    def __init__(self, made: Array) -> None:
        self.state = made.get_state(legacy=False)

    def __call__(self, generator: Array) -> None:
        generator.set_state(self.state)


__all__ = ["NumpyGenerator", "Reached"]
