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
    """The operator that gives what ``func`` writes, in the order of its arguments, and changes nothing; it carries ``func`` as ``opmill_writes``.
    None where ``func`` returns something or writes to other things than tensors. It is kept and stays in order, as one that draws random
    numbers: what else ``func`` does, nobody knows."""
    schema = func._schema
    writes = [k for k, a in enumerate(schema.arguments) if a.is_write]
    if not writes or schema.returns or any(str(schema.arguments[k].type) != "Tensor" for k in writes):
        return None
    names = [a.name for a in schema.arguments]
    name = re.sub(r"\W", "_", func.name())
    arguments = _ALIAS.sub("", str(schema).partition("(")[2].rpartition(" -> ")[0])
    _library().define(f"{name}({arguments} -> ({', '.join(['Tensor'] * len(writes))})", tags=(torch.Tag.nondeterministic_seeded,))

    def written(args: Any, kwargs: Any) -> tuple[dict[str, Any], list[torch.Tensor]]:
        given = {**dict(zip(names, args)), **kwargs}
        return given, [given[names[k]] for k in writes]

    def run(*args: Any, **kwargs: Any) -> Any:
        given, tensors = written(args, kwargs)
        copies = [_like(t).copy_(t) for t in tensors]
        func(**{**given, **dict(zip((names[k] for k in writes), copies, strict=True))})
        return _results(copies)

    def shapes(*args: Any, **kwargs: Any) -> Any:
        return _results([_like(t) for t in written(args, kwargs)[1]])

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
