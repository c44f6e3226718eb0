"""Where tensors of a plan lie in memory, as far as constants tell."""

from functools import lru_cache

from msgspec import Struct

from .model import Alloc, Call, Size, Step, TensorSpec, View

_ARENA = -1
_BYTES = {"bool": 1, "complex64": 8, "complex128": 16}


class Extent(Struct, frozen=True):
    """Bytes [start, end) of the storage ``root`` (a slot, or -1 for the arena). ``dense``: no byte between them belongs to another
    tensor."""

    root: int
    start: int
    end: int
    dense: bool
    itemsize: int


@lru_cache(None)
def itemsize(dtype: str) -> int:
    """Bytes of an element, by the name of its type."""
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return _BYTES.get(dtype) or int(digits or 8) // 8


def extent(root: int, start: int, dtype: str, sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> Extent | None:
    """Where a tensor lies whose first element is at byte ``start`` of its storage; None where that follows from symbols."""
    last, count = 0, 1
    for size, stride in zip(sizes, strides, strict=False):
        if not isinstance(size, int) or not isinstance(stride, int):
            return None
        last, count = last + (size - 1) * stride, count * size
    width = itemsize(dtype)
    return Extent(root, start, start + (last + 1) * width if count else start, count == last + 1, width)


def _set(slot: int, extent: Extent | None, memory: dict[int, Extent]) -> None:
    if extent is None:
        memory.pop(slot, None)
    else:
        memory[slot] = extent


def place_tensor(slot: int, spec: TensorSpec, memory: dict[int, Extent]) -> None:
    """Notes a tensor that has a storage of its own."""
    _set(slot, extent(slot, 0, spec.dtype, spec.sizes, spec.strides), memory)


def place(step: Step, memory: dict[int, Extent]) -> None:
    """Notes where the slots lie that a step defines."""
    if type(step) is Alloc:
        spec, root = step.spec, step.slot if step.offset is None else _ARENA
        start = step.offset or 0
        _set(step.slot, extent(root, start, spec.dtype, spec.sizes, spec.strides) if isinstance(start, int) else None, memory)
    elif type(step) is View:
        base = memory.get(step.base)
        if base is None or not isinstance(step.offset, int):
            memory.pop(step.slot, None)
            return
        width = base.itemsize if step.dtype is None else itemsize(step.dtype)
        extent_ = extent(base.root, base.start + step.offset * width, f"int{width * 8}", step.sizes, step.strides)
        _set(step.slot, extent_, memory)
    elif type(step) is Call:
        for slot in step.results:
            if slot is not None:
                memory.pop(slot, None)  # may be a view of anything


def meets(a: int, b: int, memory: dict[int, Extent]) -> bool:
    """Whether two slots certainly share bytes. False also where that cannot be told."""
    first, second = memory.get(a), memory.get(b)
    if a == b:
        return first is None or first.end > first.start
    if first is None or second is None or first.root != second.root or first.start == first.end or second.start == second.end:
        return False
    overlap = first.start < second.end and second.start < first.end
    return overlap and (first.start == second.start or (first.dense and second.dense))
