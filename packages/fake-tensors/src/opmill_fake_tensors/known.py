"""What is known of the values of fakes: computed by the operators themselves, at once where that is little, else when somebody asks.

A value is known where it comes from numbers of the program alone (``torch.linspace(0, 1, 5)``, a mask of ones) or from tensors from outside
that the context was told to know. Programs decide by such values how many steps they take, which rows they choose, how they loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .bare import no_dispatch, no_levels
from .operator import Operator
from .tensor import ConstantBox, FakeTensor, Recipe, kept, known_value

SMALL = 64
"""Elements, up to which a value is computed at once."""
LARGE = 1 << 20
"""Elements, from which on nothing is known."""
FILLING = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1, "full_like": None, "new_full": None}
"""Operators whose results hold one number, whatever their arguments hold: that number; None where it is an argument."""
_CPU = torch.device("cpu")


def attach(
    op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, fakes: list[FakeTensor], told: frozenset[Callable[[], None]]
) -> None:
    """The values of the results ``out``, a fake or several, where those of all tensors among the arguments (``fakes``) are known. ``told``
    hears where one decides something."""
    outs: Sequence[Any] = out if isinstance(out, (tuple, list)) else (out,)
    if not outs or not all(isinstance(each, FakeTensor) and each.numel() <= LARGE for each in outs) or (op.takes_tensors and not fakes):
        return
    later = sum(each.numel() for each in outs) > SMALL or any(isinstance(fake._constant, Recipe) for fake in fakes)
    compute = functools.partial(run_on, op, [kept(a) for a in args], {k: kept(v) for k, v in kwargs.items()})
    whole: Callable[[], Any] = functools.cache(compute)
    for position, each in enumerate(outs):
        value = whole if each is out else functools.partial(_item, whole, position)
        each._constant = Recipe(value) if later else value()
        each._box = fakes[0]._box if op.aliases and fakes else ConstantBox(told)


def _item(whole: Callable[[], Any], position: int) -> torch.Tensor:
    found: torch.Tensor = whole()[position]
    return found


def attach_filled(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """The value of a tensor that is filled with one number."""
    number: Any = FILLING[op.base_name]
    if number is None:
        position = op.positions["fill_value"]
        number = args[position] if position < len(args) else kwargs.get("fill_value")
    if type(number) in (bool, int, float) and isinstance(out, FakeTensor) and out.numel() <= LARGE:
        size, dtype = tuple(out.shape), out.dtype

        def compute() -> torch.Tensor:
            with no_dispatch(), no_levels():
                return torch.full(size, number, dtype=dtype)

        out._constant, out._box = Recipe(compute), ConstantBox()


def after_writing(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe | None:
    """What the tensor that an operator writes in place will hold, where that is known."""
    fake = args[0] if args else None
    if not isinstance(fake, FakeTensor) or list(op.writes) != ["self"] or fake._box is None or fake.numel() > LARGE:
        return None
    if not op.packet.startswith("aten::") or {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view} & set(op.func.tags):
        return None
    before, *rest = [kept(a) for a in args]
    named = {k: kept(v) for k, v in kwargs.items()}

    def compute() -> torch.Tensor:
        with no_dispatch(), no_levels():
            own: torch.Tensor = known_value(before).clone()
        run_on(op, [own, *rest], named)
        return own

    return Recipe(compute)


def run_on(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the operator gives for values and recipes of values."""
    on_cpu = {k: _CPU if k == "device" and v is not None else known_value(v) for k, v in kwargs.items()}
    with no_dispatch(), no_levels():
        return op.func(*map(known_value, args), **on_cpu)
