"""What operators of torch warn of, given as eager gives it: in the program's line, at each call or once in a process.

What runs for an operator may not warn at all (a loop), warn elsewhere (a plan), or while it is captured (a fake). So captured code gives
warnings itself, and whatever runs gives none."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import torch

from ..effects.changes import warn_at
from ..effects.filters import About, assume_shown, refuse_unless_shown
from ..entry.varying import SMALLEST
from ..values.base import Machine
from ..values.constant import ConstantValue
from ..values.functions import BuiltinValue
from ..values.warned import hearing
from .eager_errors import NotAskable, calling_with_zeros

T = TypeVar("T")
Heard: TypeAlias = "Sequence[warnings.WarningMessage] | None"
OF_TORCH = f"{Path(torch.__file__).parent}/"
#: Operators whose kernels for tensors without data do not look at what they warn of, or are not run each time.
SILENT = frozenset("scatter scatter_ searchsorted bucketize triangular_solve".split())
#: How names end of what tells and changes how torch warns, which differs while it is heard.
ABOUT_WARNINGS = ("warnAlways", "warn_always", "warn_always_enabled")
#: Those that warn of too few numbers.
SPREADS = frozenset("var std var_mean std_mean".split())
#: Those that take tensors of bytes for truths, and warn that they do.
OF_BYTES = frozenset("getitem setitem __getitem__ __setitem__ index_put index_put_ _index_put_impl_ where".split())
#: Those that make real numbers of complex ones without losing anything.
PARTS = frozenset("abs abs_ absolute angle real imag view_as_real isfinite isnan isinf isreal is_nonzero norm vector_norm".split())
#: What is said at each call of what eager cannot be asked for; the rest is said once.
EACH_TIME = re.compile(r"\w+\(\): degrees of freedom|.*\bdtype (torch\.)?uint8\b|The \.grad attribute")
_heard: dict[str, dict[object, list[warnings.WarningMessage]]] = {}
"""What fakes warned of, by the function and the looks of the call: what they give is kept elsewhere, so they say it the first time only."""
_given: set[str] = set()
"""What has been said for what eager cannot be asked for."""
_MOST = 1000


class Place(NamedTuple):
    """Whose line a warning is of."""

    filename: str
    line: int
    namespace: dict[str, object]


class Said:
    """What a graph's operators warn of. ``told``: what captured code says itself; ``listens``: who runs an operator listens already;
    ``expected``: what one of the operators that come next says, as a function said that consists of them."""

    def __init__(self) -> None:
        self.told: set[tuple[type[Warning], str]] = set()
        self.expected: set[str] = set()
        self.listens = False

    def run(self, vm: Machine, go: Callable[[], T], function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> T:
        """What ``go`` gives, which runs ``function`` on fakes; what eager would warn of then is told."""
        if self.listens or called(function).endswith(ABOUT_WARNINGS):
            return go()
        if kwargs.get("out") is not None:  # which is resized in the run
            self.ask(vm, function, args, kwargs)
        with hearing(always=True) as heard:
            result = go()
        silent = bool(self.expected) or is_silent(function, args, kwargs, result)
        if (heard or silent or called(function) in _heard) and kwargs.get("out") is None:
            self.ask(vm, function, args, kwargs, heard, silent)
        return result

    def ask(
        self,
        vm: Machine,
        function: object,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        heard: Sequence[warnings.WarningMessage] = (),
        silent: bool = True,
    ) -> None:
        """Tells what eager would warn of. ``silent``: it may do so where nothing was heard, or will ever be."""
        of_function, looks = _heard.get(called(function), {}), looks_of((args, kwargs))
        if heard:
            of_function = _heard.setdefault(called(function), {})
            if len(of_function) > _MOST:
                of_function.clear()
            of_function[looks] = list(heard)
        known = of_function.get(looks, [])
        if not known and not silent:
            return
        answer = eager_says(function, args, kwargs, True)
        said = [(each, place_of(vm, each)) for each in (known if answer is None else answer)]
        if said:
            self._tell(vm, said, None if answer is None else lambda: eager_says(function, args, kwargs, False))

    def _tell(self, vm: Machine, said: list[tuple[warnings.WarningMessage, Place]], again: Callable[[], Heard] | None) -> None:
        """``again``: what eager says when it is asked again. Torch knows what it says once in a process; None: nobody else does."""
        about = [About(str(e.message), e.category, str(p.namespace.get("__name__") or "<string>"), p.line) for e, p in said]
        for facts in about:
            refuse_unless_shown(vm, facts)
        if again is None:
            owed = {str(facts.text) for facts in about} - _given
            often = {text for text in owed if EACH_TIME.match(text)}
            _given.update(owed - often)
        else:
            owed, often = texts(again()), texts(again())  # what is said once was said the first time at the latest
        for (each, place), facts in zip(said, about, strict=True):
            text = str(each.message)
            self.expected.discard(text)
            if text in often:
                assume_shown(vm, facts)
                at = [ConstantValue(place.filename), ConstantValue(place.line), BuiltinValue(place.namespace)]
                vm.effects.calls.append((warn_at, [ConstantValue(text), BuiltinValue(each.category), *at], {}))
                self.told.add((each.category, text))
            elif text in owed:
                warn_at(text, each.category, *place)


def called(function: object) -> str:
    """The name of a function of torch, also of one that a program has put another in the place of."""
    return str(getattr(getattr(function, "instead_of", function), "__name__", ""))


def texts(said: Heard) -> set[str]:
    """What warnings say."""
    return {str(each.message) for each in said or ()}


def looks_of(value: object) -> object:
    """Equal for arguments that torch does not tell apart before it has looked at data."""
    if isinstance(value, torch.Tensor):
        return str(value.shape), value.dtype, value.device, value.requires_grad
    if isinstance(value, (tuple, list)):
        return tuple(map(looks_of, value))
    return tuple((key, looks_of(each)) for key, each in value.items()) if isinstance(value, dict) else str(value)


def is_silent(function: object, args: Sequence[object], kwargs: Mapping[str, object], result: object) -> bool:
    """Whether eager may warn where fakes say nothing."""
    name = called(function)
    if name in SILENT or (name in SPREADS and has_no_freedom(*args, **kwargs)):
        return True
    given = list(tensors((*args, *kwargs.values())))
    if (name in OF_BYTES or name.startswith("masked_")) and any(each.dtype is torch.uint8 for each in given[1:]):
        return True
    if name in PARTS or not any(each.dtype.is_complex for each in given):
        return False
    made = args[0] if name.endswith(("_", "setitem")) and args else result
    return isinstance(made, torch.Tensor) and not made.dtype.is_complex and made.dtype is not torch.bool


def has_no_freedom(x: object = None, dim: object = None, *args: object, correction: object = None, **kwargs: object) -> bool:
    """Whether a variance may be one of no more numbers than it is corrected by. Of open sizes that is assumed, where those do not tell."""
    x, lost = kwargs.get("input", x), 1 if correction is None else correction
    if not isinstance(x, torch.Tensor) or not isinstance(lost, (int, float)):
        return True
    dims = dim if isinstance(dim, (tuple, list)) else [dim] if type(dim) is int else range(x.dim())
    sizes = [x.shape[d] for d in dims or range(x.dim()) if type(d) is int and -x.dim() <= d < x.dim()]
    count = math.prod(n for n in sizes if type(n) is int)
    if count > lost or all(type(n) is int for n in sizes):
        return count <= lost
    return count == 0 or (count * SMALLEST <= lost and bool(math.prod(sizes) <= lost))


def tensors(values: Sequence[object]) -> Iterator[torch.Tensor]:
    """The tensors among arguments, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors(value)


def eager_says(function: object, args: object, kwargs: object, always: bool) -> Heard:
    """The warnings of a call with zeros for fakes; None where eager cannot be asked. ``always``: also what is said once in a process, and
    will still be."""
    chance = torch.get_rng_state()
    try:
        with hearing(always) as told:
            calling_with_zeros(function, args, kwargs)
    except NotAskable:
        return None
    finally:
        torch.set_rng_state(chance)
    return told


def place_of(vm: Machine, said: warnings.WarningMessage) -> Place:
    """Functions of torch in Python warn in lines of their own; others, and those that blame their caller, in the program's."""
    if said.filename.startswith(OF_TORCH):
        found = (each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == said.filename)
        return Place(said.filename, said.lineno, getattr(next(found, None), "__dict__", {}))
    frame = vm.frame
    return Place(frame.code.co_filename, frame.line or 0, frame.globals)


class Quiet:
    """A graph that keeps to itself what captured code says for it."""

    def __init__(self, told: set[tuple[type[Warning], str]], graph: Callable[..., object] | None = None) -> None:
        self.told, self.graph = told, graph

    def of(self, function: Callable[..., T], *args: object) -> T:
        """What ``function`` gives."""
        with hearing() as heard:
            try:
                result = function(*args)
            finally:
                rest = [each for each in heard if (each.category, str(each.message)) not in self.told]
        for each in rest:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return result

    def __call__(self, *args: object) -> object:
        assert self.graph is not None
        return self.of(self.graph, *args)


__all__ = ["Quiet", "Said"]
