"""Views by strides of memory (``as_strided``): their sizes, strides and offset are the storage's, whatever tensor they are asked of.

Values of the graph have no storage. A view by strides is therefore written down as one of all elements of the memory, in the order in which
they lie there: a permutation, a reshape, perhaps a view of another element type, the part of that vector from where the view begins to
where it ends, and ``as_strided`` of it, without an offset of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.strides import extent, is_dense

from ..errors import GraphError

aten = torch.ops.aten
Call = tuple[Any, tuple[Any, ...]]
"""An operator with its arguments but for the first."""


def span(t: torch.Tensor) -> tuple[Any, Any]:
    """Where its elements begin and end in memory, in elements."""
    start = t.storage_offset()
    return start, start + extent(t.shape, t.stride())


def geometry(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Sequence[Any], Any]:
    """Sizes, strides and offset among the arguments of ``as_strided`` and its like, after the tensors; the offset is None where it is that
    of the tensor."""
    given = dict(zip(("size", "stride", "storage_offset"), args, strict=False))
    given.update(kwargs)
    return given["size"], given["stride"], given.get("storage_offset")


def shows_more(of: FakeTensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> bool:
    """Whether a view by strides may show elements that the tensor it is asked of does not have. Gradients of those depend on what was
    written meanwhile: eager makes such a view anew, of all of the memory, once that was written."""
    with torch._C._DisableTorchDispatch():
        (start, end), dense = span(of), is_dense(of.shape, of.stride())
    return not dense or bool(offset < start) or bool(offset + extent(sizes, strides) > end)


def calls_from(root: FakeTensor, view: FakeTensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any, where: str) -> list[Call]:
    """The operators that lead from ``root``, which covers its memory, to a view of the type of ``view`` by strides. ``offset``: in the
    storage, in elements of the view.

    Raises ``GraphError`` GI003 where the root has gaps or elements that share memory, or the view reaches beyond it."""
    with torch._C._DisableTorchDispatch():
        if view.meta.is_conj() or view.meta.is_neg() or root.meta.is_conj() or not is_dense(root.shape, root.stride()):
            raise GraphError("GI003", "a view by strides of memory with gaps or marks", where=where)
        start, numel, wider, narrower = root.storage_offset() * root.itemsize, root.numel(), root.itemsize, view.itemsize
        order = _memory_order(root.shape, root.stride())
    calls: list[Call] = []
    if order != sorted(order):
        calls.append((aten.permute.default, (order,)))
    if len(order) != 1:
        calls.append((aten.view.default, ([numel],)))
    if view.dtype != root.dtype:
        calls.append((aten.view.dtype, (view.dtype,)))
    within = offset - start // narrower
    beyond = start % narrower or (numel * wider) % narrower
    if math.prod(sizes) != 0:  # nothing has no place
        beyond = beyond or within < 0 or (within + extent(sizes, strides)) * narrower > numel * wider
    else:
        within = 0
    if beyond:
        raise GraphError("GI003", "a view by strides of memory that the tensor does not cover", where=where)
    end = within + extent(sizes, strides) if math.prod(sizes) != 0 else within
    return [*calls, (aten.slice.Tensor, (0, within, end)), (aten.as_strided.default, (list(sizes), list(strides)))]


def _memory_order(sizes: Sequence[Any], strides: Sequence[Any]) -> list[int]:
    """The dimensions of a dense tensor from the outermost in; those of one element stay where they are among themselves."""
    return sorted(range(len(sizes)), key=lambda k: (sizes[k] == 1, -strides[k] if sizes[k] != 1 else 0, k))


def run_of_strides(run: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], where: str) -> Any:
    """``as_strided_copy`` or ``as_strided_scatter``: the view that they speak of, copied or written. ``run`` runs and records an operator.

    Raises ``GraphError`` GI003 as above, GI013 where sizes do not fit, which eager refuses."""
    if name == "as_strided_copy":
        return run(aten.clone.default, (run(aten.as_strided.default, args, kwargs),), {"memory_format": torch.contiguous_format})
    x, src = args[:2]
    sizes, strides, offset = geometry(args[2:], kwargs)
    copy = run(aten.clone.default, (x,), {})
    if copy.stride() != x.stride():
        raise GraphError("GI003", "a view by strides of memory with gaps or marks", where=where)
    if tuple(src.shape) != tuple(sizes):
        raise GraphError("GI013", "as_strided_scatter of other sizes than the view's", where=where)
    within = 0 if offset is None else offset - x.storage_offset()
    run(aten.copy_.default, (run(aten.as_strided.default, (copy, sizes, strides, within), {}), src), {})
    return copy


def unmarked(fake: FakeTensor) -> torch.Tensor:
    """As it is given to an operator that knows no marks: of one that is marked, a copy that nobody else sees."""
    if fake.meta.is_conj():
        return torch.conj_physical(fake.conj())
    return fake.clone() if fake.meta.is_neg() else fake
