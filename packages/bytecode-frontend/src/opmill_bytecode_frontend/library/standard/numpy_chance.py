"""Random numbers and arrays of NumPy's generators: drawn when the program runs, before the graph, whose inputs they are. What one gives
behind a seed that captured code told it is known while it is captured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opmill_guards.guard import TypeIs
from opmill_guards.source import Attr, Pinned

from ...values.arrays import ArrayValue, torch_dtype
from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue
from ...values.numpy_generators import NumpyGenerator, Reached
from ...values.opaque import RandomNumber
from .chance import HINT, draw, drawn_array, note_draw

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

#: Methods of generators whose arguments alone decide the dtype and the shape of what they give.
DRAWING = frozenset(
    "rand randn random random_sample ranf sample uniform normal standard_normal randint random_integers integers beta binomial "
    "chisquare exponential gamma geometric gumbel laplace logistic lognormal negative_binomial poisson power rayleigh standard_cauchy "
    "standard_exponential standard_gamma standard_t triangular vonmises wald weibull zipf permutation choice multinomial "
    "multivariate_normal dirichlet shuffle".split()
)
OF_STATES = frozenset(("seed", "get_state", "set_state"))
"""Those about the state."""
FUNCTIONS = {"seed": "seed", "sample": "random_sample", "ranf": "random_sample"}
"""Function of the module -> the method of NumPy's own generator that it calls."""


def numpy_random(obj: object) -> bool:
    """Whether ``obj`` is the function behind such a method of NumPy's legacy generator, or of its newer ones (its first argument)."""
    kind, _, name = getattr(obj, "__qualname__", "").partition(".")
    return (kind in ("RandomState", "Generator") and name in DRAWING) or (kind == "RandomState" and name in OF_STATES) or no_method(obj)


def no_method(obj: object) -> bool:
    """Whether it is a function of the module that has NumPy's own generator do something."""
    return getattr(obj, "__module__", None) == "numpy.random" and getattr(obj, "__qualname__", None) in FUNCTIONS


def draws_of_arrays(vm: Interpreter, obj: object, args: list[Value]) -> bool:
    """Whether a call draws from a generator whose numbers are known: it may be given arrays of the graph."""
    return numpy_random(obj) and bool(args) and id(args[0].real()) in vm.effects.seeded


def made_generator(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A generator that is made with a seed; None for other calls."""
    np = sys.modules.get("numpy")
    if np is None or len(args) != 1 or kwargs or not (obj is np.random.default_rng or obj is np.random.RandomState):
        return None
    seed = args[0].value if isinstance(args[0], ConstantValue) else None
    return NumpyGenerator(obj(seed)) if type(seed) is int and seed >= 0 else None


def of_state(vm: Interpreter, obj: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``seed``, ``get_state`` and ``set_state``, of the generator that is the first argument."""
    np = sys.modules["numpy"]
    generator, name = args[0].real(), obj.__name__
    told = args[1].value if len(args) == 2 and isinstance(args[1], ConstantValue) and not kwargs else None
    if (
        name == "seed"
        and type(told) is int
        and 0 <= told < 1 << 32
        and type(generator) is np.random.RandomState
        and has_twister(vm, args[0])
    ):
        vm.effects.seeded[id(generator)] = NumpyGenerator(np.random.RandomState(told))
        note_reached(vm, args[0])
        return ConstantValue(None)
    vm.effects.seeded.pop(id(generator), None)
    number = RandomNumber(f"numpy.random.{name}", tuple if name == "get_state" else type(None))
    note_draw(vm, obj, number, args, kwargs)
    return number if name == "get_state" else ConstantValue(None)


def has_twister(vm: Interpreter, generator: Value) -> bool:
    """Whether a generator has the bits that NumPy makes one with, which a program may change; assumed where it is so."""
    kind = sys.modules["numpy"].random.MT19937
    source = Attr(generator.source or Pinned(generator.real(), "a generator"), "_bit_generator")
    if type(generator.real()._bit_generator) is not kind:
        return False
    vm.guard(TypeIs(source, kind))
    return True


def note_reached(vm: Interpreter, generator: Value) -> None:
    """Has the generator come, before the graph, to where captured code has it."""
    draws, reached = vm.effects.draws, Reached(vm.effects.seeded[id(generator.real())].made)
    if draws and isinstance(draws[-1][0], Reached) and draws[-1][1][0].real() is generator.real():
        draws.pop()
    note_draw(vm, reached, RandomNumber("numpy.random.set_state", type(None)), [generator], {})


def draw_known(vm: Interpreter, obj: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a generator gives that captured code has seeded; None where it is told what is not known."""
    made = vm.effects.seeded[id(args[0].real())]
    if any(each.symbolic or each.told_later or isinstance(each, RandomNumber) for each in (*args[1:], *kwargs.values())):
        del vm.effects.seeded[id(args[0].real())]
        return None
    found = made.method(vm, obj.__name__, args[1:], kwargs)
    note_reached(vm, args[0])
    return found


def draw_numpy(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What it is, is asked of a generator of its own."""
    np = sys.modules["numpy"]
    if no_method(obj):
        obj, args = getattr(np.random.RandomState, FUNCTIONS[obj.__qualname__]), [vm.wrap(np.random.permutation.__self__), *args]
    if obj.__name__ in OF_STATES:
        return of_state(vm, obj, args, kwargs)
    if draws_of_arrays(vm, obj, args) and (found := draw_known(vm, obj, args, kwargs)) is not None:
        return found
    name = f"numpy.random.{obj.__name__}"
    if obj.__name__ in ("uniform", "normal") and len(args) <= 3 and not kwargs:
        return draw(vm, obj, name, float, args, kwargs)  # also between numbers that change
    try:
        given, named = [vm.plain(a) for a in args[1:]], {key: vm.plain(value) for key, value in kwargs.items()}
    except NotConstant:
        vm.unsupported("FE019", f"a number of {name}", "what the generator is told is computed in captured code", HINT)
    own = np.random.RandomState(0) if obj.__qualname__.startswith("RandomState") else np.random.default_rng(0)
    try:
        found = getattr(own, obj.__name__)(*given, **named)
    except Exception as error:
        vm.unsupported("FE019", f"a number of {name}", f"it raises {type(error).__name__}", HINT)
    told: list[Value] = [args[0], *map(ConstantValue, given)]
    options: dict[str, Value] = {key: ConstantValue(value) for key, value in named.items()}
    if type(found) in (int, float):
        return draw(vm, obj, name, type(found), told, options)
    if not isinstance(found, (np.ndarray, np.generic)) or torch_dtype(found.dtype) is None:
        vm.unsupported("FE019", f"a {type(found).__name__} of {name}", "tensors hold none", HINT)
    return ArrayValue(drawn_array(vm, obj, name, found, told, options), found)


__all__ = ["DRAWING", "draw_numpy", "draws_of_arrays", "made_generator", "numpy_random"]
