"""What `program.py` hands to the native executor: named rows, and the enumerations that number their variants.

A row is a record here and a tuple on its way (`native`); the C++ side reads it by the same field names. `header` writes those names down as
``native/layout.h``, and a test keeps that file equal to what it writes: ``python -m opmill_runtime_cache.executor.layout >
native/layout.h``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import astuple

_TAB = "  "

SlotKind = IntEnum("SlotKind", "input held constant arena view fresh result", start=0)
StepKind = IntEnum("StepKind", "evaluate define launch call free check item size_of launch_cuda", start=0)
Route = IntEnum("Route", "dispatcher python shim", start=0)
"""How a call goes."""
CellKind = IntEnum("CellKind", "tensor word value some list text", start=0)
"""What an argument of a call is made from."""
CudaArgKind = IntEnum("CudaArgKind", "buffer scratch size error check word", start=0)
"""Kinds of arguments of GPU kernels; see ``plan/launch.py``."""
OutputKind = IntEnum("OutputKind", "slot value none", start=0)

ENUMS: tuple[type[IntEnum], ...] = (SlotKind, StepKind, Route, CellKind, CudaArgKind, OutputKind)


class Row(Struct):
    """A record of a native program. ``NESTED`` names its fields that hold rows, one or a tuple of them."""

    NESTED: ClassVar[tuple[str, ...]] = ()

    def native(self) -> tuple[Any, ...]:
        """The fields in order; rows among them as tuples, too."""
        if not self.NESTED:
            return astuple(self)
        return tuple([_native(getattr(self, name)) if name in self.NESTED else getattr(self, name) for name in self.__struct_fields__])


def _native(value: Any) -> Any:
    if isinstance(value, Row):
        return value.native()
    return tuple([item.native() for item in value]) if type(value) in (tuple, list) else value


class ValueRow(Row):
    """A number: ``code`` computes it (pairs of an instruction and its operand; see ``plan/expr.py``), empty where it is given. ``late``: it
    is known only while a call runs."""

    late: bool
    code: tuple[int, ...]


class KeyRow(Row):
    """What chooses an instance: call input ``input``, or (where that is -1) dimension ``dim`` of call input ``tensor``, of held tensor -1 -
    ``tensor`` where that is negative; the stride of dimension -1 - ``dim`` where that is. It sets value ``value``."""

    input: int
    tensor: int
    dim: int
    value: int


class SlotRow(Row):
    """A slot. ``sizes``, ``strides`` and ``offset`` are numbers of values; ``offset`` is in bytes of the arena, or in elements of the base,
    -1 for none. ``dtype`` counts in ``DTYPES``, -1 where only the tensor tells. ``base``: of a view its slot, else the input's position.
    ``root``: the slot whose storage this is. ``device``: as ``devices/protocol.py`` numbers them, -1 the host, -2 where only the tensor
    tells."""

    kind: int
    dtype: int
    sizes: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    offset: int
    base: int
    root: int
    late: bool
    constant: Any
    device: int
    shares_version: bool = False


class StepRow(Row):
    """A step; ``kind`` stands before its fields."""

    KIND: ClassVar[int]

    def native(self) -> tuple[Any, ...]:
        return (int(self.KIND), *super().native())


class EvaluateStep(StepRow):
    """Computes a size expression."""

    KIND = StepKind.evaluate
    value: int


class DefineStep(StepRow):
    """Gives a size symbol a value that follows from others."""

    KIND = StepKind.define
    slot: int


class LaunchStep(StepRow):
    """``needs``: for each slot, the number of the value that says how many elements of it the kernel touches, and ``dtypes`` of which type;
    both empty where nobody knows. ``floor``: a value that must not be negative, -1 for none. ``late``: some of it is known only while a
    call runs. ``apart``: three numbers each, two positions in ``slots`` whose memory may not overlap, and 1 where it may be the same.
    ``failures``: pairs of an exception's type and a message. ``bumps``: inputs that are written. ``type``: torch's number of the devices
    whose memory it takes."""

    KIND = StepKind.launch
    address: int
    slots: tuple[int, ...]
    values: tuple[int, ...]
    failures: tuple[tuple[Any, str], ...]
    bumps: tuple[int, ...]
    needs: tuple[int, ...]
    dtypes: tuple[int, ...]
    floor: int
    late: bool
    apart: tuple[int, ...]
    type: int = 0


class LaunchCudaStep(StepRow):
    """``first``: position of the first of its checks among the plan's. ``device``: -1 for memory of the CPU that device 0 reaches."""

    KIND = StepKind.launch_cuda
    NESTED = ("launches",)
    device: int
    slots: tuple[int, ...]
    values: tuple[int, ...]
    bumps: tuple[int, ...]
    scratch: int
    first: int
    launches: tuple[CudaLaunchRow, ...]
    needs: tuple[int, ...]
    dtypes: tuple[int, ...]
    floor: int
    late: bool
    apart: tuple[int, ...]


class CallStep(StepRow):
    """Calls an operator: ``call`` numbers the program's calls."""

    KIND = StepKind.call
    call: int


class FreeStep(StepRow):
    """Drops tensors."""

    KIND = StepKind.free
    slots: tuple[int, ...]


class CheckStep(StepRow):
    """Raises unless a size expression is true."""

    KIND = StepKind.check
    value: int
    failures: tuple[tuple[Any, str], ...]


class ItemStep(StepRow):
    """Reads a number from a tensor."""

    KIND = StepKind.item
    value: int
    slot: int


class SizeStep(StepRow):
    """Reads a size of a tensor."""

    KIND = StepKind.size_of
    value: int
    slot: int
    dim: int


class CudaArgRow(Row):
    """An argument of a GPU kernel, as ``plan.launch.Arg``."""

    kind: int
    index: int
    value: int


class CudaFormRow(Row):
    """A compiled form; see ``plan.launch.Form``. ``fits`` are numbers of values."""

    name: str
    image: bytes
    entry: str
    warps: int
    shared: int
    align: int
    index_bits: int
    fits: tuple[int, ...]
    limit: int
    waits: bool


class CudaLaunchRow(Row):
    """One launch of a GPU kernel, as ``plan.launch.Step``; ``grid``: size expressions by number."""

    NESTED = ("args", "forms")
    grid: tuple[int, ...]
    args: tuple[CudaArgRow, ...]
    forms: tuple[CudaFormRow, ...]


class CellRow(Row):
    """An argument: ``payload`` is a number, a text, or a tuple of cells."""

    NESTED = ("payload",)

    kind: int
    payload: Any


class BlasRow(Row):
    """A matrix product: slots (``bias`` -1 for none) and factors. ``batched``: of stacks of matrices. ``rows``: ``b`` stays, and is to be
    packed for products of so many rows; 0 where it is not."""

    out: int
    bias: int
    a: int
    b: int
    beta: float
    alpha: float
    batched: bool
    rows: int = 0


class CallRow(Row):
    """A call of an operator. ``returns``: per result of the schema 0 for a tensor, 1 for a list of them, 2 for an integer. ``shim``: symbol
    and signature, None for another route. ``make``: gives the Python function of the call, on ``python_slots`` and ``python_values``.
    ``written``: slots that the operator writes. ``apart``: three numbers each, two slots whose memory may not overlap, and 1 where they may
    be the same tensor."""

    NESTED = ("cells", "blas")

    name: str
    overload: str
    route: int
    cells: tuple[CellRow, ...]
    results: tuple[int, ...]
    returns: tuple[int, ...]
    tensors: tuple[int, ...]
    shim: tuple[str, str] | None
    blas: BlasRow | None
    make: Any
    python_slots: tuple[int, ...]
    python_values: tuple[int, ...]
    replayable: bool
    written: tuple[int, ...]
    apart: tuple[int, ...]


class OutputRow(Row):
    """What leaves the plan: a slot, a size, or None."""

    kind: int
    number: int


class ReleaseRow(Row):
    """After step ``step`` nothing needs these slots of inputs any more."""

    step: int
    slots: tuple[int, ...]


class ProgramRow(Row):
    """A whole program. ``positions``: per call input its slot, -1 for a size. ``arena``: the value of its bytes. ``alarms``: checks that
    GPU kernels report. ``describe``: gives what a profiler is told (``regions.py``). ``visible``: the first step that outsiders see."""

    NESTED = ("values", "key", "slots", "steps", "calls", "outputs", "releases")

    name: str
    values: tuple[ValueRow, ...]
    key: tuple[KeyRow, ...]
    slots: tuple[SlotRow, ...]
    positions: tuple[int, ...]
    held_slots: tuple[int, ...]
    held: tuple[Any, ...]
    labels: tuple[str, ...]
    arena: int
    steps: tuple[StepRow, ...]
    calls: tuple[CallRow, ...]
    outputs: tuple[OutputRow, ...]
    exclusive: tuple[int, ...]
    device: int
    alarms: tuple[tuple[Any, str], ...]
    out_of_memory: Any
    releases: tuple[ReleaseRow, ...]
    describe: Any
    visible: int


STEPS: tuple[type[StepRow], ...] = (
    EvaluateStep, DefineStep, LaunchStep, LaunchCudaStep, CallStep, FreeStep, CheckStep, ItemStep, SizeStep
)  # fmt: skip
ROWS: tuple[type[Row], ...] = (
    ValueRow, KeyRow, SlotRow, CudaArgRow, CudaFormRow, CudaLaunchRow, CellRow, BlasRow, CallRow, OutputRow, ReleaseRow, ProgramRow
)  # fmt: skip


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def header() -> str:
    """``native/layout.h``."""
    lines = [
        "// Written by `python -m opmill_runtime_cache.executor.layout`; a test compares it. What each field means is said there.",
        "#pragma once",
        "",
        "namespace opmill {",
        "",
    ]
    for enum in ENUMS:
        lines += [f"enum class {enum.__name__} : int {{", *(f"{_TAB}{item.name} = {item.value}," for item in enum), "};", ""]
    lines += ["// Positions of the fields in the tuples.", ""]
    for row in (*STEPS, *ROWS):
        fields = row.__struct_fields__
        first = 1 if row in STEPS else 0
        lines += [f"namespace {_snake(row.__name__)} {{", "enum {"]
        lines += [f"{_TAB}{name} = {number}," for number, name in enumerate(fields, first)]
        lines += [f"{_TAB}fields_ = {first + len(fields)},", "};", f"}}  // namespace {_snake(row.__name__)}", ""]
    return "\n".join([*lines, "}  // namespace opmill", ""])


if __name__ == "__main__":
    print(header(), end="")
