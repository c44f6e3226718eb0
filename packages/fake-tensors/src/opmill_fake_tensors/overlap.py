"""What torch's loops over elements refuse to write: memory that an argument shows otherwise than the target does. The meta kernels do not
look at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .errors import NoFakeKernel
from .operator import Operator
from .strides import extent, is_dense

_LOOPS = frozenset(f"aten::{name}" for name in "copy_ eq_ ne_ lt_ le_ gt_ ge_ eq ne lt le gt ge where logical_and_ logical_or_".split())
"""Such operators that torch does not tag as pointwise."""
_BY_NUMBER = frozenset({"aten::fill_", "aten::fill"})
"""Those that read a tensor of one number before they write."""


def refuse_overlap(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises what eager raises where an argument lies in part in what is written, or otherwise. Of tensors with gaps eager does not see it,
    and what it computes goes by the order in which it computes: NoFakeKernel. All are meta tensors; of symbolic sizes those of the captured
    call count."""
    if op.packet in _BY_NUMBER or not (torch.Tag.pointwise in op.func.tags or op.packet in _LOOPS or op.base_name.startswith("_foreach_")):
        return
    written = [kwargs[n] if n in kwargs else args[op.positions[n]] for n in op.writes if n in kwargs or op.positions[n] < len(args)]
    others = [*_tensors([*args, *kwargs.values()])]
    for target in _tensors(written):
        for other in others:
            alike = other is not target and other.itemsize == target.itemsize
            if not alike or other.untyped_storage()._cdata != target.untyped_storage()._cdata:
                continue
            ours, theirs = _laid_out(target), _laid_out(other)
            if ours is None or theirs is None or ours == theirs or not _meet(ours, theirs):
                continue
            if all(is_dense(sizes, strides) for sizes, strides, _ in (ours, theirs)):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
                    "Please clone() the tensor before performing the operation."
                )
            raise NoFakeKernel(op.name, "it writes what an argument shows at other places")


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


_Laid = tuple[tuple[int, ...], tuple[int, ...], int]
_MOST = 1 << 22


def _laid_out(t: torch.Tensor) -> _Laid | None:
    """Sizes, strides and the first element, in the call that is captured; None where only data tell."""
    numbers = [*t.size(), *t.stride(), t.storage_offset()]
    if any(type(n) is torch.SymInt and not n.node.has_hint() for n in numbers):
        return None
    plain = [n.node.hint if type(n) is torch.SymInt else n for n in numbers]
    return tuple(plain[: t.dim()]), tuple(plain[t.dim() : -1]), plain[-1]


def _meet(a: _Laid, b: _Laid) -> bool:
    """Whether two tensors of one type show a common element. Of very large ones with gaps it is not looked at."""
    if 0 in a[0] or 0 in b[0]:
        return False
    (first, last), (start, end) = ((t[2], t[2] + extent(t[0], t[1])) for t in (a, b))
    if first >= end or start >= last:
        return False
    if all(is_dense(sizes, strides) for sizes, strides, _ in (a, b)):
        return True
    low = min(first, start)
    if max(last, end) - low > _MOST:
        return False
    with torch._C._DisableTorchDispatch():
        marks = torch.zeros(max(last, end) - low, dtype=torch.bool, device="cpu")
        marks.as_strided(a[0], a[1], a[2] - low).fill_(True)
        return bool(marks.as_strided(b[0], b[1], b[2] - low).any())


__all__ = ["refuse_overlap"]
