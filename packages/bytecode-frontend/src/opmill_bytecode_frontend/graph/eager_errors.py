"""What eager says where an operation fails on fakes: it is asked with zeros of the same sizes, types and layout.

Kernels for tensors without data check in other words than those that compute, and now and then what these do not ask at all."""

from __future__ import annotations

import contextlib
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.probing import refusal

from ..values.warned import hearing

#: Functions with kernels for processors that they use where nobody looks, which take other types than the operators that they use else.
_BY_THEMSELVES = frozenset(map(id, (torch.max_pool1d, functional.max_pool1d, getattr(functional, "_max_pool1d", None))))
_OF_WRITES = re.compile("(being|has been) (used in an in-place operation|modified inplace)")
#: Elements of the largest tensor that is made for it.
LARGEST = 1 << 22


NUMBERS: dict[type, Callable[[object], object]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}  # type: ignore[dict-item]


def refuse_types(function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raises what eager raises where a function would compute with types of arguments for which eager has no kernel."""
    if id(function) not in _BY_THEMSELVES:
        return
    x = args[0] if args else kwargs.get("input")
    if isinstance(x, FakeTensor) and not x.requires_grad and x.device.type == "cpu":
        refused = refusal(function, args, kwargs)
        if refused is not None:
            raise type(refused)(*refused.args)


def said_by_autograd(error: Exception) -> bool:
    """Whether autograd refuses a write, or what reads a view that is behind one. It knows as much of fakes as of tensors with data: of
    which operator they are views, and in which mode they were made. Of what would stand for them it knows neither."""
    return isinstance(error, RuntimeError) and _OF_WRITES.search(str(error)) is not None


def asked_of_eager(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[bool, Exception | None]:
    """Whether eager could be asked, and the exception that it raised; None where it raises none, and where it does more than to compute."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False, None
    if not computes(function):
        return True, None
    try:
        given, named = pytree.tree_map_only((torch.Tensor, torch.Generator, *NUMBERS), stand_in, (list(args), dict(kwargs)))
    except NotAskable:
        return False, None
    try:
        with torch._C._DisableTorchDispatch(), hearing(always=True):
            function(*given, **named)
    except Exception as error:
        return True, error.with_traceback(None)
    return True, None


def calling_with_zeros(function: object, args: object, kwargs: object) -> None:
    """Runs a function of torch's own as eager would on a processor, whatever it gives or raises. Raises NotAskable."""
    function = getattr(function, "instead_of", function)
    if torch._C._functorch.peek_interpreter_stack() is not None or not computes(function) or not callable(function):
        raise NotAskable
    given, named = pytree.tree_map_only((torch.Tensor, torch.Generator, *NUMBERS), on_processor, (args, kwargs))
    with torch._C._DisableTorchDispatch(), contextlib.suppress(Exception):
        function(*given, **named)


class NotAskable(Exception):
    """A number, or a tensor of sizes, that only data tell, a tensor of another device, or too large."""


def computes(function: object) -> bool:
    """Whether it is torch's own, and no exchange with other processes."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return getattr(function, "namespace", None) == "aten" or str(function).startswith("aten.")
    module = getattr(function, "__module__", None) or "torch"
    return isinstance(function, types.MethodDescriptorType) or (
        module.split(".")[0] in ("torch", "_operator", "builtins") and "distributed" not in module
    )


def stand_in(value: torch.Tensor | torch.Generator | torch.SymInt) -> object:
    """For a fake zeros; a generator of random numbers that goes on by itself; the number that a symbolic one is in this call."""
    if type(value) in NUMBERS:
        if not value.node.has_hint():  # type: ignore[union-attr]
            raise NotAskable
        return NUMBERS[type(value)](value)
    return value.clone_state() if isinstance(value, torch.Generator) else zeros(value)  # type: ignore[arg-type]


def on_processor(value: torch.Tensor | torch.Generator | torch.SymInt) -> object:
    """The same for tensors of any device, and with numbers that stay open: what is asked is asked of the ones that they are now."""
    if isinstance(value, torch.Tensor):
        return zeros(value, anywhere=True)
    return now(value) if type(value) in NUMBERS else stand_in(value)


def now(number: Any) -> Any:
    """What a symbolic number is in this call, without assuming that it is."""
    if type(number) in NUMBERS and not number.node.has_hint():
        raise NotAskable
    return number.node.hint if type(number) in NUMBERS else number


def zeros(fake: torch.Tensor, anywhere: bool = False) -> torch.Tensor:
    """A tensor with the geometry of a fake and with elements. Symbolic sizes are assumed: what eager says names them."""
    plain = isinstance(fake, FakeTensor) and all(type(n) is int or n.node.has_hint() for n in (*fake.shape, *fake.stride()))
    if not plain or not (anywhere or fake.device.type == "cpu") or math.prod(map(now, fake.shape)) > LARGEST:
        raise NotAskable
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        known = now if anywhere else int
        made = torch.empty_strided([*map(known, fake.shape)], [*map(known, fake.stride())], dtype=fake.dtype).zero_()
        made = made.conj() if fake.is_conj() else made
        made = torch._neg_view(made) if fake.is_neg() else made
    if not fake.requires_grad:
        return made
    with torch._C._DisableTorchDispatch():  # else a mode that makes fakes makes one of the view
        try:
            leaf = fake.is_leaf
        except RuntimeError as error:  # a view, of several or from another mode, of what was written since: it has no history to ask for
            raise NotAskable from error
        return made.requires_grad_() if leaf else made.requires_grad_().view_as(made)


__all__ = ["NotAskable", "asked_of_eager", "calling_with_zeros", "refuse_types", "said_by_autograd"]
