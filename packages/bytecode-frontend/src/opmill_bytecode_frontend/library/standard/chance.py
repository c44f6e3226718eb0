"""Random numbers of Python: drawn when the program runs, before the graph, and unknown at capture."""

from __future__ import annotations

import _random
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...values.base import MISSING, NotConstant, Value
from ...values.constant import ConstantValue
from ...values.data_dependent import LateFloat
from ...values.floating import FloatNumber
from ...values.number import SymbolicNumber
from ...values.opaque import RandomNumber
from ...values.sequence import TupleValue
from ...values.tensor import TensorValue
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


#: What may be told to a generator before the graph runs; and what it told itself.
KNOWN = (ConstantValue, FloatNumber, RandomNumber)
HINT = "use torch.rand, which the graph holds"
WIDEST = 62
"""Bits of integers that tensors hold."""


def draw(vm: Interpreter, function: object, name: str, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The number that ``function(*args, **kwargs)`` gives. What computes with it is a part of the graph, which it is an input of."""
    number = RandomNumber(name, cls)
    note_draw(vm, function, number, args, kwargs)
    if cls is float:
        return LateFloat(vm, vm.recorder.scalars.drawn(number))
    if cls is int and vm.recorder.counts:
        return vm.recorder.scalars.drawn(number).method(vm, "item", [], {})
    return number


def drawn_array(
    vm: Interpreter,
    function: object,
    name: str,
    like: object,
    args: list[Value],
    kwargs: dict[str, Value],
    sizes: Sequence[object] | None = None,
) -> TensorValue:
    """The tensor with the memory of the array, or the number of NumPy's, that the call gives; ``like`` is such a one. ``sizes``: where some
    of its sizes change."""
    number = RandomNumber(name, type(like))
    note_draw(vm, function, number, args, kwargs, sizes is not None)
    return vm.recorder.scalars.drawn(number, like, sizes)


def note_draw(
    vm: Interpreter, function: Any, number: RandomNumber, args: list[Value], kwargs: dict[str, Value], accepted: bool = False
) -> None:
    """Has a number drawn before the graph runs, in the program's order. ``accepted``: no int that it is told is refused."""
    name = number.name
    given = [number_drawn(arg) for arg in args]
    named_ = {key: number_drawn(arg) for key, arg in kwargs.items()}
    if args[0].real() is MISSING:
        vm.unsupported("FE019", f"a number of {name}", "its generator is made in captured code", HINT)
    if isinstance(args[0].real(), random.SystemRandom):
        vm.unsupported("FE019", f"a number of {name}", "its generator has no state to go back to", HINT)
    told = [*given[1:], *named_.values()]
    if not all(isinstance(arg, KNOWN) or (accepted and is_told(vm, arg)) for arg in told) or vm.recorder.regions:
        vm.unsupported(
            "FE019",
            f"a number of {name}",
            "what the generator is told is computed in captured code, or a graph inside of the graph draws",
            HINT,
        )
    if type(args[0].real()) is random.Random and all(isinstance(arg, ConstantValue) for arg in [*given[1:], *named_.values()]):
        try:  # what is refused must not be refused before the graph
            function(random.Random(0), *map(vm.plain, given[1:]), **{key: vm.plain(arg) for key, arg in named_.items()})
        except Exception as exc:
            vm.throw_real(exc)
    vm.effects.draws.append((function, given, named_, number))


def is_told(vm: Interpreter, value: Value) -> bool:
    """Whether what a value stands for, or what is in a tuple, is known before the graph."""
    if type(value) is TupleValue:
        return all(is_told(vm, each) for each in value.values(vm))
    return isinstance(value, KNOWN) or (type(value) is SymbolicNumber and vm.recorder.numbers.is_of_inputs(value.number))


def number_drawn(value: Value) -> Value:
    """A number that was drawn and not computed with, as that."""
    number = getattr(value.tensor, "scalar", None) if type(value) is LateFloat else None
    return number if isinstance(number, RandomNumber) else value


@handles(_random.Random.random)
def random_random(vm: Interpreter, generator: Value) -> Value:
    """``random.random()``: a float that is drawn when the program runs."""
    return draw(vm, _random.Random.random, "random.random", float, [generator], {})


def _python_random(name: str, cls: type) -> None:
    @named(f"random.Random.{name}")
    def drawn(vm: Interpreter, generator: Value, *args: Value, **kwargs: Value) -> Value:
        return draw(vm, getattr(random.Random, name), f"random.{name}", cls, [generator, *args], kwargs)


FLOATS = (
    "uniform gauss normalvariate triangular betavariate expovariate "
    "gammavariate lognormvariate vonmisesvariate paretovariate weibullvariate"
)
for _name, _cls in {**dict.fromkeys(FLOATS.split(), float), "randint": int, "randrange": int}.items():
    _python_random(_name, _cls)


@named("random.Random.choice")
def choice(vm: Interpreter, generator: Value, items: Value) -> Value:
    """One of several numbers of one type: drawn, as any. Of other things it is not known which one it is."""
    try:
        plain = vm.plain(items)
    except NotConstant:
        plain = ()
    kinds = {type(item) for item in plain} if isinstance(plain, (list, tuple, range)) else set()
    if kinds not in ({int}, {float}) or max(map(abs, plain)) >= 1 << WIDEST:
        vm.unsupported("FE019", "random.choice of other things than numbers", "which one it is, is random", HINT)
    return draw(vm, random.Random.choice, "random.choice", kinds.pop(), [generator, ConstantValue(tuple(plain))], {})


@named("random.Random.sample", "random.Random.choices", "random.Random.shuffle")
def several(vm: Interpreter, generator: Value, items: Value, *args: Value, **kwargs: Value) -> Value:
    """Which ones, or in which order, is random: refused before anything is looked at, as the length of a history that grows."""
    return vm.unsupported("FE019", "several items chosen by random", "which ones they are, is random", HINT)


@named("random.Random.seed")
def seed(vm: Interpreter, generator: Value, *args: Value, **kwargs: Value) -> Value:
    """``random.seed()``: seeds when the program runs."""
    accepted = len(args) == 1 and type(args[0]) is SymbolicNumber  # other things it may refuse
    note_draw(vm, random.Random.seed, RandomNumber("random.seed", type(None)), [generator, *args], kwargs, accepted)
    return ConstantValue(None)
