"""Random numbers and arrays of NumPy's generators: drawn when the program runs, before the graph, whose inputs they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ...values.arrays import ArrayValue, torch_dtype
from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue
from ...values.numpy_generators import NumpyGenerator
from .chance import HINT, draw, drawn_array

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

#: Methods of generators whose arguments alone decide the dtype and the shape of what they give.
DRAWING = frozenset(
    "rand randn random random_sample ranf sample uniform normal standard_normal randint random_integers integers beta binomial "
    "chisquare exponential gamma geometric gumbel laplace logistic lognormal negative_binomial poisson power rayleigh standard_cauchy "
    "standard_exponential standard_gamma standard_t triangular vonmises wald weibull zipf permutation choice multinomial "
    "multivariate_normal dirichlet".split()
)


def numpy_random(obj: object) -> bool:
    """Whether ``obj`` is the function behind such a method of NumPy's legacy generator, or of its newer ones (its first argument)."""
    kind, _, name = getattr(obj, "__qualname__", "").partition(".")
    return kind in ("RandomState", "Generator") and name in DRAWING


def made_generator(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A generator that is made with a seed; None for other calls."""
    np = sys.modules.get("numpy")
    if np is None or len(args) != 1 or kwargs or not (obj is np.random.default_rng or obj is np.random.RandomState):
        return None
    seed = args[0].value if isinstance(args[0], ConstantValue) else None
    return NumpyGenerator(obj(seed)) if type(seed) is int and seed >= 0 else None


def draw_numpy(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What it is, is asked of a generator of its own."""
    np = sys.modules["numpy"]
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


__all__ = ["DRAWING", "draw_numpy", "made_generator", "numpy_random"]
