"""Functions of torch that are given ``out``: what they would give without it, copied there.

Many of these functions are composed below the dispatcher's eyes: ``torch.kron`` multiplies into a view that does not say that it is one,
and ``torch.linalg.matrix_rank`` copies in C++ what it has counted. What they write cannot be recorded operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType
from typing import Any

import torch

from ..errors import GraphError
from .functional_variants import tensors_in


def has_out(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a builtin function of torch is to write its results. Where gradients are asked for it refuses by itself."""
    if not isinstance(target, BuiltinFunctionType) or kwargs.get("out") is None:
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in((*args, *kwargs.values()))))


def into_out(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], where: str) -> Any:
    """Writes the results of ``target`` to ``out``, and gives what eager gives: that tensor, or the tuple of several.

    Raises ``GraphError`` (GI002) where eager would resize ``out``, or compute in its type."""
    out = kwargs["out"]
    result = target(*args, **{k: v for k, v in kwargs.items() if k != "out"})
    single = isinstance(result, torch.Tensor)
    pairs = list(zip((result,) if single else result, (out,) if single else out, strict=True))
    if any(r.shape != o.shape for r, o in pairs):
        raise GraphError("GI002", f"{target.__name__}(out=...) resizes what it writes", where=where)
    if any(r.dtype != o.dtype or r.device != o.device for r, o in pairs):
        raise GraphError("GI002", f"{target.__name__}(out=...) is given a tensor of another type than its result", where=where)
    for r, o in pairs:
        o.copy_(r)
    return out if single else type(result)([o for _, o in pairs])
