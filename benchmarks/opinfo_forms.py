"""The forms in which an operator of torch's sample database can be called: each gives a function of one sample's arguments, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Form = Callable[[Any], Callable[..., Any] | None]


def plain(op: Any) -> Callable[..., Any]:
    return op.op  # type: ignore[no-any-return]


def in_place(op: Any) -> Callable[..., Any] | None:
    """Writes the input itself, or a copy of it where it is a leaf whose gradient is wanted."""
    if (write := op.inplace_variant) is None:
        return None

    def run(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        x = x.clone() if x.requires_grad else x
        write(x, *args, **kwargs)
        return x

    return run


def through_view(op: Any) -> Callable[..., Any] | None:
    """Writes every second element of something larger, all of which is the result."""
    if (write := op.inplace_variant) is None:
        return None

    def run(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        pairs = torch.stack((x, x), -1)
        write(pairs.select(-1, 0), *args, **kwargs)
        return pairs * 1

    return run


def into_out(op: Any) -> Callable[..., Any] | None:
    """Writes tensors that are there already, laid out in an order of their own."""
    if not op.supports_out:
        return None

    def run(*args: Any, **kwargs: Any) -> Any:
        like = op.op(*args, **kwargs)
        single = isinstance(like, torch.Tensor)
        outs = tuple(
            torch.full_like(t.transpose(0, -1) if t.dim() else t, 7).transpose(0, -1) if t.dim() else torch.full_like(t, 7)
            for t in ((like,) if single else like)
        )
        op.op(*args, **kwargs, out=outs[0] if single else outs)
        return outs

    return run


FORMS: dict[str, Form] = {"plain": plain, "in-place": in_place, "view": through_view, "out": into_out}
