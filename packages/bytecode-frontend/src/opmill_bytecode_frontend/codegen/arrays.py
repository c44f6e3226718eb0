"""Arrays of NumPy that leave captured code: as views of the graph's tensors."""

from __future__ import annotations

from ..errors import Unsupported
from ..values.arrays import ArrayValue
from ..values.opaque import RandomNumber
from .rebuild import Rebuilder, rebuilds


@rebuilds(ArrayValue)
def array(r: Rebuilder, value: ArrayValue) -> str:
    if value.source is not None:
        return r.source(value.source)
    if type(value.inner.scalar) is RandomNumber:
        return r.expr(value.inner.scalar)
    if value.stands_for is not None or not (value.is_number or value.like.flags.writeable):
        raise Unsupported("FE070", "a view of an array leaves the captured code", "tensors have no such view", "return a copy of it")
    if value.inner.fake.requires_grad:
        raise Unsupported("FE070", "an array with gradients leaves the captured code", "NumPy's own have none", "return a tensor of it")
    return r.assign(value, f"{r.expr(value.inner)}.numpy()" + "[()]" * value.is_number)


__all__ = ["array"]
