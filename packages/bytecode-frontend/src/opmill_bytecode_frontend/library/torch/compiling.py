"""``torch.compile`` and ``opmill.compile`` in captured code: what they make is read as what it was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from ...values.base import NotConstant, Value
from ...values.compiled_here import CompiledHere, CompilerHere
from ...values.constant import ConstantValue
from ...values.functions import FunctionValue, MethodValue, PartialValue
from ...values.modules import ModuleValue
from ...values.objects import ObjectValue
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
ARGUMENTS = frozenset("fullgraph dynamic backend mode options disable name".split())
"""What may be said about the compiling of something that is not compiled by itself here."""


def compiled_here(vm: Interpreter, maker: Any, model: Value = NONE, **given: Value) -> Value:
    """What ``maker(model, **given)`` gives."""
    disable = given.get("disable", NONE)
    kinds = (FunctionValue, MethodValue, PartialValue, ModuleValue, CompiledHere)
    callable_ = isinstance(model, kinds) or (isinstance(model, ObjectValue) and model.callee() is not None)
    none = isinstance(model, ConstantValue) and model.value is None
    if not (given.keys() <= ARGUMENTS and isinstance(disable, ConstantValue) and (callable_ or none)):
        vm.unsupported("FE069", "a call of compile", "it is about a class, or what is no function, or has other arguments")
    if given and maker is not torch.compile:
        refuse_arguments(vm, maker, given)
    if none:
        return CompilerHere(maker, given, compiled_here)
    if disable.value:
        return model
    return CompiledHere(maker, model.model if isinstance(model, CompiledHere) else model, given)


def refuse_arguments(vm: Interpreter, maker: Callable[..., object], given: dict[str, Value]) -> None:
    """Raises what the maker raises of its arguments."""
    try:
        maker(**{name: vm.plain(value) for name, value in given.items()})
    except NotConstant:
        vm.unsupported("FE069", "a call of compile", "its arguments are made in the captured code")
    except Exception as exc:
        vm.throw_real(exc)


@handles(torch.compile)
def torch_compile(vm: Interpreter, model: Value = NONE, **given: Value) -> Value:
    """``torch.compile()`` in captured code: what it is given, to be captured where it is called."""
    return compiled_here(vm, torch.compile, model, **given)


__all__ = ["compiled_here"]
