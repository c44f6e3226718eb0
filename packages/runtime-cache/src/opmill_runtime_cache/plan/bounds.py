"""Laws of memory: what lies where, how long it lives, and that nothing reaches outside.

Decided here is what follows from constants; the rest the native executor decides, in checked 64-bit arithmetic, when sizes are known
(``native/bounds.cpp``). A view of an input may reach as far as that tensor's storage does, which only the call shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from .extent import Extent, extent, itemsize
from .model import DTYPES, Alloc, Call, Constant, Plan, Size, Step, TensorSpec, View

_LIMIT = 1 << 63
MOST_DIMENSIONS = 64
"""As many as torch's loops take."""


class Memory:
    """The memory that slots live in. Each piece has a number of its own; slots are used anew."""

    def __init__(self) -> None:
        self.count = 0
        self.piece: dict[int, int] = {}  # by slot
        self.owner: dict[int, int] = {}  # the slot that a piece goes with when it is freed
        self.room: dict[int, int | None] = {}  # bytes, where constants tell
        self.stale: set[int] = set()  # slots whose memory is gone

    def new(self, slot: int, room: int | None) -> None:
        """A tensor with memory of its own."""
        self.count += 1
        self.piece[slot], self.owner[self.count], self.room[self.count] = self.count, slot, room
        self.stale.discard(slot)

    def share(self, slot: int, base: int) -> None:
        """A view."""
        self.piece[slot] = self.piece.get(base, 0)
        (self.stale.add if base in self.stale else self.stale.discard)(slot)

    def free(self, slots: tuple[int, ...]) -> None:
        """What owns its memory takes it along, and the views of it."""
        gone = {self.piece[slot] for slot in slots if slot in self.piece and self.owner.get(self.piece[slot]) == slot}
        self.stale.update(slot for slot, piece in self.piece.items() if piece in gone)

    def apply(self, step: Step, given: bool = False) -> None:
        """Moves past a step that defines tensors."""
        if type(step) is Alloc:
            if step.offset is None:
                self.new(step.slot, _end(step.spec))
            else:
                self.piece[step.slot] = 0  # the arena stays
                self.stale.discard(step.slot)
        elif type(step) is View:
            self.share(step.slot, step.base)
        elif type(step) is Call:
            for slot in step.results:
                if slot is not None:
                    self.new(slot, None)


def _end(spec: TensorSpec) -> int | None:
    found = extent(0, 0, spec.dtype, spec.sizes, spec.strides) if spec.dtype in DTYPES else None
    return None if found is None else found.end


def numbers(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> Iterator[tuple[str, str]]:
    """Laws of the numbers of a tensor."""
    if len(sizes) > MOST_DIMENSIONS:
        yield "RC013", f"{len(sizes)} dimensions are more than {MOST_DIMENSIONS}"
    for number in (*sizes, *strides):
        if type(number) is int and number < 0:
            yield "RC010", f"a size or stride of {number}"


def allocated(step: Alloc, plan: Plan) -> Iterator[tuple[str, str]]:
    """A tensor of constant place and size lies inside the arena."""
    start = step.offset or 0
    if type(start) is not int or len(step.spec.sizes) != len(step.spec.strides):
        return
    found = extent(0, start, step.spec.dtype, step.spec.sizes, step.spec.strides)
    if found is None:
        return
    if found.end >= _LIMIT:
        yield "RC010", f"slot {step.slot} ends at byte {found.end}"
    elif step.offset is not None and type(plan.arena) is int and found.end > plan.arena:
        yield "RC018", f"slot {step.slot} ends at byte {found.end} of an arena of {plan.arena}"


def viewed(step: View, base: Extent | None, room: int | None, bounded: bool) -> Iterator[tuple[str, str]]:
    """A view stays inside the ``room`` bytes of what it views, where constants tell and (``bounded``) the plan made that memory."""
    if base is None or type(step.offset) is not int or len(step.sizes) != len(step.strides):
        return
    width = base.itemsize if step.dtype is None else itemsize(step.dtype)
    found = extent(base.root, base.start + step.offset * width, f"int{width * 8}", step.sizes, step.strides)
    if found is None:
        return
    if not -_LIMIT <= found.start <= found.end < _LIMIT:
        yield "RC010", f"slot {step.slot} reaches from byte {found.start} to {found.end}"
    elif bounded and (found.start < 0 or (room is not None and found.end > room and found.end > found.start)):
        yield "RC018", f"slot {step.slot} reaches from byte {found.start} to {found.end} of {room}"
    if found.start % width:
        yield "RC018", f"slot {step.slot} begins at byte {found.start}, inside an element of {width}"


def constant(item: Constant) -> Iterator[tuple[str, str]]:
    """The bytes of a constant fill it exactly."""
    if not all(type(number) is int for number in (*item.spec.sizes, *item.spec.strides)):
        yield "RC011", "a constant has sizes that are not constants"
        return
    count = 1
    for size in item.spec.sizes:
        count *= int(size)
    wanted = count * itemsize(item.spec.dtype)
    end = _end(item.spec)
    if wanted != len(item.data) or (end is not None and end > max(wanted, 0)):
        yield "RC018", f"{len(item.data)} bytes do not fill a constant of {wanted} that ends at {end}"
