"""What captured code asks of states of torch that no guard of the thread's state knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ..graph.thread_state import switched, switches
from ..values.constant import ConstantValue

if TYPE_CHECKING:
    from ..values.base import Machine, Value


@contextmanager
def as_before(vm: Machine) -> Iterator[bool]:
    """Inside, switches are as the call found them. Gives whether that is another state than the one that captured code is in."""
    now = switches()
    changed = switched(now, vm.entry_switches)
    try:
        for function, *given in changed:
            function(*given)
        yield bool(changed)
    finally:
        for function, *given in switched(vm.entry_switches, now) if changed else ():
            function(*given)


def assume_state(vm: Machine, obj: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> None:
    """What a function tells of a state of torch is assumed, unless captured code has set that state itself: then it is not what the call
    found."""
    try:
        plain, named = [vm.plain(a) for a in args], {k: vm.plain(v) for k, v in kwargs.items()}
        found = obj(*plain, **named)
        with as_before(vm) as changed:
            if changed and obj(*plain, **named) != found:
                return
    except Exception:  # which the call meets itself
        return
    name = getattr(obj, "__name__", "a state of torch")
    vm.guard(Predicate(Pinned(obj, name), lambda now: now(*plain, **named) == found, f"{name}{(*plain, *named.values())} gives {found!r}"))


Fact = tuple[str, tuple[str, ...], object]
"""A function of ``torch._C`` that tells of a state, what it is given, and what it says."""
PRECISIONS = {"highest": ("ieee", "ieee"), "high": ("tf32", "tf32"), "medium": ("tf32", "bf16")}
"""What a precision of products is on GPUs, and on processors."""


def of_products(precision: object) -> list[Fact]:
    """What is told where the precision of products is this one."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        return []
    of_backends = zip(("cuda", "mkldnn"), PRECISIONS[precision], strict=True)
    found: list[Fact] = [("_get_fp32_precision_getter", (backend, "matmul"), said) for backend, said in of_backends]
    return [("_get_float32_matmul_precision", (), precision), *found]


SAID: dict[str, Callable[[object], list[Fact]]] = {
    "_set_float32_matmul_precision": of_products,
    "_set_cublas_allow_tf32": lambda on: [("_get_cublas_allow_tf32", (), on), *of_products("high" if on else "highest")[:2]],
    "_set_warnAlways": lambda on: [("_get_warnAlways", (), on)],
    "set_num_threads": lambda count: [("get_num_threads", (), count)],
}
"""Functions of ``torch._C`` that set a state, and all that is told of it where they have set it to something."""


def is_so_already(vm: Machine, setter: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a function that sets a state of torch leaves it as it is, which is assumed then: programs say at each call what they mean
    to say once."""
    name = getattr(setter, "__name__", "")
    if name not in SAID or getattr(torch._C, name, None) is not setter or kwargs or len(args) != 1 or type(args[0]) is not ConstantValue:
        return False
    facts = SAID[name](args[0].value)
    try:
        found = [getattr(torch._C, getter)(*given) for getter, given, _ in facts]
    except Exception:  # of an older torch, or of a state that was set in two ways
        return False
    if not facts or any(type(now) is not type(said) or now != said for now, (_, _, said) in zip(found, facts, strict=True)):
        return False
    for getter, given, _ in facts:
        assume_state(vm, getattr(torch._C, getter), [ConstantValue(each) for each in given], {})
    return True


__all__ = ["as_before", "assume_state", "is_so_already"]
