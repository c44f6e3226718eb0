"""Arrays of NumPy that leave captured code: as views of the graph's tensors."""

from __future__ import annotations

import copy
import sys

from ..errors import Unsupported
from ..values.arrays import Array, ArrayValue, is_symbolic
from ..values.known_arrays import KnownArray
from ..values.numpy_generators import NumpyGenerator
from ..values.opaque import RandomNumber
from ..values.tensor import TensorValue
from .rebuild import Rebuilder, rebuilds

Layout = tuple[int, Array, tuple[int, ...], tuple[int, ...], bool]
"""How a view lies in an array: how many bytes behind its beginning, the dtype, the sizes and strides, whether it may be written."""


@rebuilds(ArrayValue)
def array(r: Rebuilder, value: ArrayValue) -> str:
    """An array: its source, a view of an array that is rebuilt, or what the graph's tensor shows to NumPy."""
    if value.source is not None:
        return r.source(value.source)
    if type(value.inner.scalar) is RandomNumber:
        return r.expr(value.inner.scalar)
    if value.shows is not None and not any(is_symbolic(each.inner.fake) for each in (value, value.shows[0])):
        base, offset = value.shows
        like = value.like
        layout = (offset, like.dtype, like.shape, like.strides, like.flags.writeable)
        return r.assign(value, f"{r.constants.name(shown)}({r.expr(base)}, {r.constants.name(layout)})")
    if value.stands_for is not None or not (value.is_number or value.like.flags.writeable):
        raise Unsupported("FE070", "a view of an array leaves the captured code", "tensors have no such view", "return a copy of it")
    if value.inner.fake.requires_grad:
        raise Unsupported("FE070", "an array with gradients leaves the captured code", "NumPy's own have none", "return a tensor of it")
    if isinstance(value.of, TensorValue):
        return r.assign(value, f"{r.expr(value.inner)}.numpy()")
    # A view of what torch gives: the base of that is a tensor, which programs take for an array.
    return r.assign(value, f"{r.expr(value.inner)}.numpy()[{'()' if value.is_number else '...'}]")


class Memory:
    """What NumPy makes an array over, that keeps another array."""

    def __init__(self, base: Array, layout: Layout) -> None:
        offset, dtype, shape, strides, _ = layout
        self.base = base
        start = base.__array_interface__["data"][0] + offset
        self.__array_interface__ = {"data": (start, False), "typestr": dtype.str, "shape": shape, "strides": strides, "version": 3}


def shown(base: Array, layout: Layout) -> Array:
    """A view of an array that tensors have none of."""
    np: Array = sys.modules["numpy"]
    offset, dtype, shape, strides, writable = layout
    if base.flags.forc and base.flags.writeable:
        made = np.ndarray(shape, dtype, base, offset, strides)
    else:
        made = np.asarray(Memory(base, layout))
    made.flags.writeable = writable
    return made


@rebuilds(NumpyGenerator)
def generator(r: Rebuilder, value: NumpyGenerator) -> str:
    """Another one in the state that it has by now."""
    return r.assign(value, f"{r.constants.name(copy.deepcopy)}({r.constants.name(copy.deepcopy(value.made))})")


@rebuilds(KnownArray)
def known_array(r: Rebuilder, value: KnownArray) -> str:
    """A copy, for each call has its own."""
    return r.assign(value, f"{r.constants.name(value.held.copy)}()")


__all__ = ["array", "generator", "known_array"]
