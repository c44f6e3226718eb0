"""Functional forms of operators that write to their arguments. Those of others that come without one: the same operator on copies of what
it writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.strides import is_dense
from opmill_fake_tensors.symbols.node import index_of
from opmill_runtime_cache.devices.registry import traits_of

from ..definitions import definitions
from ..errors import GraphError

aten = torch.ops.aten
_FUNCTIONAL = {
    "aten::bernoulli_.float": aten.bernoulli.p,
    "aten::bernoulli_.Tensor": aten.bernoulli.Tensor,
    "aten::normal_": aten.normal_functional.default,
    "aten::rrelu_with_noise": aten.rrelu_with_noise_functional.default,
    "aten::rrelu_with_noise_": aten.rrelu_with_noise_functional.default,
}
_BY_LAYOUT = ("aten::normal_", "aten::bernoulli_")
"""Operators that draw other numbers, or in another order, where a tensor has gaps: their functional forms have none."""
_IN_PLACE = re.compile(r"__i(.*)__")
_SPACE = "opmill_functional"
_ALIAS = re.compile(r"\([a-z][a-z0-9]*(\|[a-z][a-z0-9]*)*!?\)")


@lru_cache(None)
def functional_form(func: Any, count: int) -> Any:
    """The operator that gives what ``func`` returns, then the ``count`` tensors that it writes (alone, in lists or where they may be left
    out) in the order of its arguments, and changes nothing; it carries ``func`` as ``opmill_writes``. None where ``func`` returns or writes
    other things than tensors, or returns what it was given. It is kept and stays in order, as one that draws random numbers: what else
    ``func`` does, nobody knows."""
    schema = func._schema
    writes = [k for k, a in enumerate(schema.arguments) if a.is_write]
    if not writes or any("Tensor" not in str(schema.arguments[k].type) for k in writes):
        return None
    if any(str(r.type) != "Tensor" or r.alias_info is not None for r in schema.returns):
        return None
    return _on_copies(func, writes, count)


@lru_cache(None)
def filling_form(func: Any) -> Any:
    """The same for an operator that writes its first argument and gives it. The copy lies as the argument does, with its gaps: some
    operators draw other numbers where there are none."""
    return _on_copies(func, [0], 1)


def _on_copies(func: Any, writes: Sequence[int], count: int) -> Any:
    schema = func._schema
    returns = [r for r in schema.returns if r.alias_info is None]
    names = [a.name for a in schema.arguments]
    name = f"{re.sub(r'[^A-Za-z0-9_]', '_', func.name())}_{count}"
    arguments = _ALIAS.sub("", str(schema).partition("(")[2].rpartition(" -> ")[0])
    whole = f"{name}({arguments} -> ({', '.join(['Tensor'] * (len(returns) + count))})"

    def call(args: Any, kwargs: Any, filled: bool) -> Any:
        given = {**dict(zip(names, args)), **kwargs}
        own = {names[k]: _copied(given.get(names[k]), filled) for k in writes}
        returned = func(**{**given, **own}) if filled or returns else None
        returned = returned if returns else None
        return _results(
            [*([] if returned is None else [returned] if isinstance(returned, torch.Tensor) else returned), *tensors_in(own.values())]
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs, True)

    def shapes(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs, False)

    with definitions(_SPACE) as library:
        library.define(whole, tags=(torch.Tag.nondeterministic_seeded,))
        library.impl(name, run, "CompositeExplicitAutograd")
        library.impl(name, shapes, "Meta")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        form = getattr(getattr(torch.ops, _SPACE), name).default
        form.opmill_shapes = lambda name, overload, args, kwargs: shapes(*args, **kwargs)
        form.opmill_writes = func
    return form


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Those in nested lists, in order."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def _copied(value: Any, filled: bool) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(v, filled) for v in value]
    return value if not isinstance(value, torch.Tensor) else _like(value).copy_(value) if filled else _like(value)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _results(tensors: list[torch.Tensor]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors) or None


@lru_cache(None)
def _named_alike(func: Any, packet: Any) -> Any:
    """The overload of ``packet`` that writes nothing and has the arguments of ``func``, which may stand in another order; None where there
    is none. Overloads that are called alike need not be: ``pow_.Scalar`` has the exponent as a number, ``pow.Scalar`` the base."""
    arguments = sorted((a.name, str(a.type)) for a in func._schema.arguments)
    found = (getattr(packet, overload) for overload in packet.overloads()) if packet is not None else ()
    return next(
        (f for f in found if not f._schema.is_mutable and sorted((a.name, str(a.type)) for a in f._schema.arguments) == arguments), None
    )


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions of a dense tensor by how they lie in memory, None where they lie in order (and for what is not dense, or on no
    processor). ``bernoulli_`` draws in this order there, its functional form in the order of the dimensions."""
    if not traits_of(tensor.device.type).processor:
        return None
    sizes, strides = [[*map(index_of, of)] for of in (tensor.shape, tensor.stride())]
    step = one = index_of(1)
    ones = [k for k, n in enumerate(sizes) if n == one]
    left, inner = [k for k in range(len(sizes)) if k not in ones], []
    while left:
        k = next((k for k in reversed(left) if strides[k] == step), None)
        if k is None:
            return None
        left.remove(k)
        inner.append(k)
        step = step * sizes[k]
    return None if inner == sorted(inner, reverse=True) else [*ones, *reversed(inner)]


def in_order(run: Callable[..., Any], args: Sequence[Any], order: list[int]) -> list[Any]:
    """The arguments of an operator that is pointwise, with the dimensions of the first one in this order; ``run(func, args, kwargs)``."""
    alike = [run(aten.expand.default, [a, args[0].shape], {}) if k and isinstance(a, torch.Tensor) else a for k, a in enumerate(args)]
    return [run(aten.permute.default, [a, order], {}) if isinstance(a, torch.Tensor) else a for a in alike]


def functional_call(op: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any], written: int) -> tuple[Any, list[Any], dict[str, Any]]:
    """The operator that returns what ``func`` writes, so many tensors, with its arguments. Raises GI002 where there is none."""
    namespace, _, name = op.packet.partition("::")
    if op.packet in _BY_LAYOUT and traits_of(args[0].device.type).processor and not is_dense(args[0].shape, args[0].stride()):
        return filling_form(func), list(args), kwargs
    if op.name in _FUNCTIONAL:
        rest = [a for a in func._schema.arguments[len(args) :] if not a.kwarg_only]  # which may have defaults in place only
        given = [*args, *(kwargs.get(a.name, a.default_value) for a in rest)]
        return _FUNCTIONAL[op.name], given, {k: v for k, v in kwargs.items() if all(k != a.name for a in rest)}
    packets = getattr(torch.ops, namespace)
    of_lists = sum(a.is_write and str(a.type) == "List[Tensor]" for a in func._schema.arguments) > 1  # a graph has no lists of lists
    into = namespace == "aten" and not of_lists and all(a.kwarg_only for a in func._schema.arguments if a.is_write)  # as sort's "values"
    if into or "out" in op.overload or "out" in kwargs:
        kept = {k: v for k, v in kwargs.items() if k not in op.writes}
        packet = getattr(packets, name)
        wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_write]
        for overload in packet.overloads():
            found = getattr(packet, overload)
            if not found._schema.is_mutable and [(a.name, str(a.type)) for a in found._schema.arguments][: len(wanted)] == wanted:
                return found, list(args), kept
    elif name == "zero_":
        return aten.zeros_like.default, list(args), {}
    elif name == "fill_":
        return aten.fill.Scalar if op.overload == "Scalar" else aten.fill.Tensor, list(args), kwargs
    elif name.endswith("_") and not of_lists:
        found = _named_alike(func, getattr(packets, _IN_PLACE.sub(r"__\1__", name) if name.endswith("__") else name[:-1], None))
        if found is not None:
            named = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
            ordered = [named.pop(a.name) for a in found._schema.arguments if not a.kwarg_only and a.name in named]
            return found, ordered, named
    if (namespace not in ("aten", "prims") or of_lists) and (form := functional_form(func, written)) is not None:
        return form, list(args), kwargs
    raise GraphError("GI002", f"{func.name()} writes and has no functional form")
