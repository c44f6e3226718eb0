"""Random numbers and arrays of NumPy's generators: drawn when the program runs, before the graph, whose inputs they are. What one gives
behind a seed that captured code told it is known while it is captured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from opmill_guards.guard import TypeIs
from opmill_guards.source import Attr, Pinned

from ...values.arrays import Array, ArrayValue, torch_dtype
from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.numpy_generators import NumpyGenerator, Reached
from ...values.opaque import RandomNumber
from ...values.sequence import TupleValue, members
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
OF_SIZES = frozenset("rand randn random random_sample sample ranf permutation standard_normal standard_exponential standard_cauchy".split())
"""Methods that are told sizes only."""
SIZE_AT: dict[str, int] = {
    **dict.fromkeys("exponential chisquare geometric poisson rayleigh standard_gamma standard_t weibull zipf dirichlet".split(), 1),
    **dict.fromkeys("uniform normal laplace logistic gumbel beta gamma lognormal vonmises wald binomial".split(), 2),
}
"""Where other methods take the size of what they give."""
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
    """Whether a call draws and may be given arrays of the graph: from a generator whose numbers are known, or an order."""
    orders = len(args) == 2 and isinstance(args[1], ArrayValue) and getattr(obj, "__name__", "") in ("permutation", "shuffle")
    return (orders or bool(args and vm.effects.seeded)) and numpy_random(obj) and (orders or id(args[0].real()) in vm.effects.seeded)


def in_order(vm: Interpreter, obj: Callable[..., object], args: list[Value]) -> Value | None:
    """What ``permutation`` and ``shuffle`` make of an array of the graph: as many places are drawn, in the order that they come to have."""
    array = args[1]
    if not isinstance(array, ArrayValue) or array.is_number or array.like.ndim == 0:
        return None
    generator = cast("Array", type(args[0].real()))
    places = draw_numpy(vm, generator.permutation, [args[0], vm.call(vm.wrap(len), [array], {})], {})
    taken = array.method(vm, "__getitem__", [places], {})
    if obj.__name__ == "permutation":
        return taken
    array.method(vm, "__setitem__", [ConstantValue(...), taken], {})
    return ConstantValue(None)


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
    changes = name == "seed" and len(args) == 2 and not kwargs and type(args[1]) is SymbolicNumber
    accepted = changes and all(vm.truth(vm.compare(op, args[1], ConstantValue(end))) for op, end in ((">=", 0), ("<", 1 << 32)))
    note_draw(vm, obj, number, args, kwargs, accepted)
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


def draw_sized(vm: Interpreter, obj: Callable[..., object], name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """An array with as many items as ints say that change from call to call: which of its dimensions these are is asked of a generator of
    its own, with other numbers. None for other calls."""
    np = sys.modules["numpy"]
    args, kwargs = [as_plain_tuple(vm, each) for each in args], {key: as_plain_tuple(vm, value) for key, value in kwargs.items()}
    open_ = list(members([*args[1:], *kwargs.values()], SymbolicNumber))
    if not open_ or not is_never_refused(vm, obj.__name__, args[1:], kwargs) or not all(is_size(vm, each) for each in open_):
        return None
    sizes = [int(each.number.node.hint) for each in open_]
    made: list[Array] = []
    for more in (0, 1, 2):
        own = np.random.RandomState(0) if obj.__qualname__.startswith("RandomState") else np.random.default_rng(0)
        now = {id(each): size + more * (k + 1) for k, (each, size) in enumerate(zip(open_, sizes, strict=True))}
        try:
            given, named = [as_now(vm, each, now) for each in args[1:]], {key: as_now(vm, value, now) for key, value in kwargs.items()}
            made.append(getattr(own, obj.__name__)(*given, **named))
        except Exception:  # what it refuses, and what is not known
            return None
    found = made[0]
    if not isinstance(found, np.ndarray) or torch_dtype(found.dtype) is None or len({each.ndim for each in made}) > 1:
        return None
    places: list[object] = []
    for column in zip(*(each.shape for each in made), strict=True):
        moves = column[1] - column[0]
        if column[2] - column[1] != moves or not (moves == 0 or (0 < moves <= len(open_) and sizes[moves - 1] == column[0])):
            return None
        places.append(open_[moves - 1].number if moves else column[0])
    return ArrayValue(drawn_array(vm, obj, name, found, args, kwargs, places), found)


def is_never_refused(vm: Interpreter, name: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a method takes any positive ints for those among its arguments that change: it is called before all that the program does."""
    if name in OF_SIZES:
        return True
    if name == "choice" and len(args) <= 3 and kwargs.keys() <= {"size", "replace"}:
        size = args[1] if len(args) > 1 else kwargs.get("size", ConstantValue(1))
        return all(number_of(each) for each in (args[0], size)) and vm.truth(vm.compare(">=", args[0], size))  # without replacement, too
    if name in ("randint", "integers") and args and type(args[0]) is ConstantValue and args[0].value in (0, 1):
        args = [args[0], *args[2:]]  # the other end, which is greater
    elif name in ("randint", "integers") and len(args) == 1:
        args = []
    changing = [k for k, each in enumerate(args) if any(members([each], SymbolicNumber))]
    named = [key for key, value in kwargs.items() if any(members([value], SymbolicNumber))]
    at = 1 if name in ("randint", "integers") else SIZE_AT.get(name)
    return all(k == at for k in changing) and set(named) <= {"size"}


def number_of(value: Value) -> bool:
    """Whether it is an int, which may change."""
    return type(value) is SymbolicNumber or (type(value) is ConstantValue and type(value.value) is int)


def as_plain_tuple(vm: Interpreter, value: Value) -> Value:
    """The sizes of a tensor as a tuple of them; other values as they are."""
    return TupleValue(value.values(vm)) if isinstance(value, TupleValue) and any(each.symbolic for each in value.values(vm)) else value


def as_now(vm: Interpreter, value: Value, now: dict[int, int]) -> object:
    """A value with these numbers in it. Raises NotConstant where others change."""
    if type(value) is TupleValue:
        return tuple(as_now(vm, each, now) for each in value.values(vm))
    return now[id(value)] if id(value) in now else vm.plain(value)


def is_size(vm: Interpreter, value: SymbolicNumber) -> bool:
    """Whether a number is one that is known before the graph, and positive."""
    known = value.python_type() is int and vm.recorder.numbers.is_of_inputs(value.number)
    return known and vm.truth(vm.compare(">", value, ConstantValue(1)))


def draw_numpy(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What it is, is asked of a generator of its own."""
    np = sys.modules["numpy"]
    if no_method(obj):
        obj, args = getattr(np.random.RandomState, FUNCTIONS[obj.__qualname__]), [vm.wrap(np.random.permutation.__self__), *args]
    if obj.__name__ in OF_STATES:
        return of_state(vm, obj, args, kwargs)
    known = id(args[0].real()) in vm.effects.seeded
    if known and (found := draw_known(vm, obj, args, kwargs)) is not None:
        return found
    if draws_of_arrays(vm, obj, args) and not kwargs and (found := in_order(vm, obj, args)) is not None:
        return found
    name = f"numpy.random.{obj.__name__}"
    if obj.__name__ in ("uniform", "normal") and len(args) <= 3 and not kwargs:
        return draw(vm, obj, name, float, args, kwargs)  # also between numbers that change
    if (array := draw_sized(vm, obj, name, args, kwargs)) is not None:
        return array
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
