"""A compiled module: the module's own class, its own state, and another ``__call__``.

The wrapper is an instance of a subclass made for the module's class. It shares the instance dictionary of the module, so
that parameters, hooks, attributes and ``train()`` are the module's, whichever of the two is asked. ``__call__`` is a slot of the
subclass: Python's own descriptor hands the call to the compiled callable without a Python frame in between.
"""

from __future__ import annotations

import copy
import functools
import operator
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import torch

from opmill_guards import Shown

_SLOTS = ("__call__", "_opmill_original", "_opmill_recompile", "_opmill_forward")


_FORWARDS: WeakSet[Callable[..., Any]] = WeakSet()


def wrap_module(
    module: torch.nn.Module,
    call: Callable[..., Any],
    recompile: Callable[[Any], Any],
    forward: Callable[[Any], Any],
    given: torch.nn.Module | None = None,
) -> torch.nn.Module:
    """A module that behaves as ``module`` and is called through ``call``; ``given``: the wrapper of it, where that is what is compiled.

    ``recompile(other)`` compiles another module with the same settings; used when the wrapper is copied deeply. ``forward(method)``
    compiles the module's own ``forward``, once somebody asks for it by name."""
    given = module if given is None or _is_plain(given) else given
    subclass = _compiled_class(type(given))
    wrapper: torch.nn.Module = object.__new__(subclass)  # not the class's own __new__: that may count or register instances
    object.__setattr__(wrapper, "__dict__", module.__dict__)
    for name, value in zip(_SLOTS, (call, module, recompile, forward)):
        object.__setattr__(wrapper, name, value)
    _share_state(given, wrapper)
    return wrapper


def _share_state(module: torch.nn.Module, wrapper: torch.nn.Module) -> None:
    """What ``fully_shard`` and its like keep of a module is found by the module itself: the wrapper has it, too."""
    if (states := sys.modules.get("torch.distributed._composable_state")) is not None and (
        state := states._get_module_state(module)
    ) is not None:
        states._insert_module_state(wrapper, state)


def original_of(module: Any) -> Any:
    """The module behind a wrapper; anything else is given back as it is."""
    return object.__getattribute__(module, "_opmill_original") if is_wrapped(module) else module


def is_wrapped(module: Any) -> bool:
    """Whether ``module`` was made by :func:`wrap_module`, whatever class it has got since (``fully_shard`` gives it one)."""
    return _is_compiled(type(module))


def _is_plain(module: Any) -> bool:
    """Whether it is a wrapper as it was made."""
    return "_opmill_original" in type(module).__dict__


def _is_compiled(kind: type) -> bool:
    return any("_opmill_original" in each.__dict__ for each in kind.__mro__)


def _compiled_class(base: type) -> type:
    # Found among the subclasses, which Python refers to weakly: a table of our own would keep every class alive for ever.
    subclass: type
    for subclass in type.__subclasses__(base):
        if "_opmill_original" in subclass.__dict__:
            return subclass
    namespace: dict[str, Any] = {
        "__slots__": _SLOTS,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__new__": lambda _, *args, **kwargs: base(*args, **kwargs),  # a method that makes another of its class: a part of a Sequential
    }
    if not _is_compiled(base):  # else it has these, and what a class in between says of copies holds
        namespace |= {"__reduce_ex__": _reduce_ex, "__deepcopy__": _deepcopy, "__copy__": _copy}
    if isinstance(getattr(base, "forward", None), FunctionType):
        namespace["forward"] = property(_forward, _set_forward, _delete_forward)
    made = _made_silently(base, namespace)
    type.__setattr__(made, "__call__", Shown(made.__dict__["__call__"], _called))
    return made


class _Silent:
    """First of the bases of a class that is made, it keeps the ``__init_subclass__`` of the others from being called. Instances lie in
    memory as modules do: else Python does not let it be taken out of the bases."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def _made_silently(base: type, namespace: dict[str, Any]) -> type:
    """A subclass that the program does not hear of: neither its ``__init_subclass__`` nor its metaclasses, which may register classes, want
    arguments or refuse, are told of a class that the program does not define. Those of Python itself (``abc``) need to be."""
    kind = type(base)
    maker = next(each for each in type.mro(kind) if "__new__" in each.__dict__ and each.__module__ in _PYTHONS_OWN)
    made: type = maker.__new__(kind, base.__name__, (_Silent, base), namespace)
    type.__setattr__(made, "__bases__", (base,))
    return made


_PYTHONS_OWN = ("abc", "builtins")
"""Modules of metaclasses that keep books of their own on each class."""


def _called(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What torch.compile and strict export find as the ``__call__`` of the class: they read the module itself as a part of the program."""
    if torch.compiler.is_dynamo_compiling():
        return self._opmill_original(*args, **kwargs)
    return object.__getattribute__(self, "__call__")(*args, **kwargs)


def _forward(self: Any) -> Any:
    """``compiled.forward``: the module's, compiled; as it is where it was set on the module itself."""
    given = self.__dict__.get("forward")
    if given is not None:
        return given
    original, made = original_of(self), object.__getattribute__(self, "_opmill_forward")
    if not isinstance(made, MethodType):  # not compiled yet
        made = _in_python(made(original.forward))
        object.__setattr__(self, "_opmill_forward", made)
    return made


def _in_python(method: MethodType) -> MethodType:
    """A compiled method, called by a function of Python: torch.compile asks the file of what a module's ``forward`` is."""
    compiled = method.__func__

    @functools.wraps(compiled)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    _FORWARDS.add(forward)
    return MethodType(forward, method.__self__)


def behind(function: Any) -> Any:
    """What the ``forward`` of a compiled module calls; anything else is given back as it is."""
    return getattr(function, "__wrapped__") if isinstance(function, FunctionType) and function in _FORWARDS else function  # noqa: B009


def _set_forward(self: Any, value: Any) -> None:
    self.__dict__["forward"] = value


def _delete_forward(self: Any) -> None:
    try:
        del self.__dict__["forward"]
    except KeyError:
        raise AttributeError("forward") from None


def _reduce_ex(self: Any, protocol: int) -> tuple[Any, ...]:
    """A pickle holds the module itself: what is loaded needs no opmill, and is compiled again by whoever wants that."""
    # "The first of this tuple", in words that pickle can store: the reduction of another object cannot be given as one's own.
    return operator.itemgetter(0), ((original_of(self),),)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return object.__getattribute__(self, "_opmill_recompile")(copy.deepcopy(original_of(self), memo))


def _copy(self: Any) -> Any:
    return object.__getattribute__(self, "_opmill_recompile")(copy.copy(original_of(self)))


def optimizer_behind(compiled: Any) -> torch.optim.Optimizer | None:
    """The optimizer whose compiled step this is, which no capture made; None for anything else."""
    made = sys.modules.get("opmill_graph_ir.optimizers.step")  # whoever has one has imported it
    return compiled.optimizer() if made is not None and isinstance(compiled, made.CompiledStep) else None
