"""Random numbers of Python and numpy: drawn when the program runs, unknown at capture."""

from __future__ import annotations

import _random
from typing import Any

from ..values.base import Value
from ..values.opaque import RandomNumber
from .registry import handles, named


def draw(vm: Any, function: Any, name: str, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The draw happens after the graph, in its order among the effects; only that it happened is known here."""
    vm.effects.calls.append((function, args, kwargs))
    return RandomNumber(name, cls)


@handles(_random.Random.random)
def random_random(vm: Any, generator: Value) -> Value:
    return draw(vm, _random.Random.random, "random.random", float, [generator], {})


def _python_random(name: str, cls: type) -> None:
    @named(f"random.Random.{name}")
    def drawn(vm: Any, generator: Value, *args: Value, **kwargs: Value) -> Value:
        return draw(vm, getattr(type(generator.real()), name), f"random.{name}", cls, [generator, *args], kwargs)


for _name, _cls in {"uniform": float, "gauss": float, "normalvariate": float, "randint": int, "randrange": int, "triangular": float}.items():
    _python_random(_name, _cls)


def numpy_random(obj: Any) -> bool:
    """Whether ``obj`` is the function behind a method of numpy's legacy generator (its first argument) that gives one number at a time."""
    kind, _, name = getattr(obj, "__qualname__", "").partition(".")
    return kind == "RandomState" and name in ("uniform", "rand", "random", "random_sample", "randn", "normal")


def draw_numpy(vm: Any, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    numbers = args[1:]
    if "size" in kwargs or len(numbers) > 2 or (numbers and obj.__name__ not in ("uniform", "normal")):
        vm.unsupported("FE019", f"an array of numpy.random.{obj.__name__}", "it is random", "use torch.rand, which the graph holds")
    return draw(vm, obj, f"numpy.random.{obj.__name__}", float, args, kwargs)
