"""Functional forms of operators of others that write to their arguments and come without one: the same operator on copies of what it writes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import torch

_SPACE = "opmill_functional"
_ALIAS = re.compile(r"\([a-z][a-z0-9]*(\|[a-z][a-z0-9]*)*!?\)")


@lru_cache(1)
def _library() -> torch.library.Library:
    return torch.library.Library(_SPACE, "FRAGMENT")


@lru_cache(None)
def functional_form(func: Any) -> Any:
    """The operator that gives what ``func`` returns, then what it writes in the order of its arguments, and changes nothing; it carries ``func`` as
    ``opmill_writes``. None where ``func`` returns or writes other things than tensors, or returns what it was given. It is kept and stays in order, as one that draws random
    numbers: what else ``func`` does, nobody knows."""
    schema = func._schema
    writes = [k for k, a in enumerate(schema.arguments) if a.is_write]
    if not writes or any(str(schema.arguments[k].type) != "Tensor" for k in writes):
        return None
    if any(str(r.type) != "Tensor" or r.alias_info is not None for r in schema.returns):
        return None
    names = [a.name for a in schema.arguments]
    name = re.sub(r"\W", "_", func.name())
    arguments = _ALIAS.sub("", str(schema).partition("(")[2].rpartition(" -> ")[0])
    _library().define(f"{name}({arguments} -> ({', '.join(['Tensor'] * (len(schema.returns) + len(writes)))})", tags=(torch.Tag.nondeterministic_seeded,))

    def written(args: Any, kwargs: Any) -> tuple[dict[str, Any], list[torch.Tensor]]:
        given = {**dict(zip(names, args)), **kwargs}
        return given, [given[names[k]] for k in writes]

    def call(args: Any, kwargs: Any, copies: list[torch.Tensor]) -> Any:
        given, _ = written(args, kwargs)
        returned = func(**{**given, **dict(zip((names[k] for k in writes), copies, strict=True))})
        return _results([*([] if returned is None else [returned] if isinstance(returned, torch.Tensor) else returned), *copies])

    def run(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs, [_like(t).copy_(t) for t in written(args, kwargs)[1]])

    def shapes(*args: Any, **kwargs: Any) -> Any:
        copies = [_like(t) for t in written(args, kwargs)[1]]
        return call(args, kwargs, copies) if schema.returns else _results(copies)

    _library().impl(name, run, "CompositeExplicitAutograd")
    _library().impl(name, shapes, "Meta")
    _library().impl(name, torch.library.fallthrough_kernel, "Autograd")
    form = getattr(getattr(torch.ops, _SPACE), name).default
    form.opmill_shapes = lambda name, overload, args, kwargs: shapes(*args, **kwargs)
    form.opmill_writes = func
    return form


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _results(tensors: list[torch.Tensor]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
