"""The Plan: a compiled graph as data.

A plan is a flat program over numbered slots. Each slot holds one tensor (or, for size inputs and ``Item``, one
integer). Steps run in order; nothing in a plan refers to Python objects, so a plan prints, diffs, serialises and runs
on a machine that has no compiler.

Sizes, strides and offsets are *size expressions*: an ``int``, or a ``str`` in Python syntax over the plan's symbols with
``+ - * // % min() max()`` and comparisons (``"s0*128 + 4"``). Strides and offsets are in elements, arena offsets in bytes.
"""

from __future__ import annotations

from typing import Union, final

import msgspec

from ..devices.host import HOST

Size = Union[int, str]
"""A size expression."""

DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 float8_e4m3fn float8_e5m2"
).split()
"""Names of the element types a plan can hold: torch's own names without the prefix ``torch.``."""


class _Data(msgspec.Struct, frozen=True, omit_defaults=True, array_like=False):
    pass


@final
class TensorSpec(_Data, frozen=True):
    """What a plan assumes of a tensor: element type, sizes, strides (elements) and device (``"cpu"``, ``"cuda:0"``)."""

    dtype: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    device: str = HOST


@final
class TensorInput(_Data, frozen=True, tag="tensor"):
    """An input tensor. ``held`` inputs (parameters, buffers) are given once, when the plan is bound; the executor keeps
    the tensor object and reads its data pointer anew at each call. Others are passed with each call, in order.

    ``opaque``: a held tensor in a layout that only the library knows that made it (weights that were reordered for its kernels). It is
    given to operators, and nothing else; strides in ``spec`` mean nothing.

    ``multiplied``: a held matrix keeps its elements as long as the plan is bound to it, and products of so many rows
    are made with it: an executor may keep it as its library of products reads it best. 0: nothing is promised."""

    slot: int
    spec: TensorSpec
    held: bool = False
    name: str = ""
    opaque: bool = False
    multiplied: int = 0


@final
class SizeInput(_Data, frozen=True, tag="size"):
    """An integer passed with each call, bound to ``symbol``."""

    symbol: str
    name: str = ""


@final
class SizeOf(_Data, frozen=True):
    """Binds ``symbol`` to the size (or with ``stride`` the stride, in elements) of dimension ``dim`` of the tensor in ``slot`` before the
    first step."""

    symbol: str
    slot: int
    dim: int
    stride: bool = False


@final
class Constant(_Data, frozen=True):
    """A tensor that belongs to the graph itself: raw contiguous bytes, loaded into ``slot`` when the plan is bound."""

    slot: int
    spec: TensorSpec
    data: bytes


@final
class KernelRef(_Data, frozen=True):
    """A generated kernel: the artifact ``(artifact_kind, key)`` of the store, and the entry in it.

    ``kind`` is ``"cpu"`` (a shared object; entry has the C signature
    ``int64_t entry(void* const* pointers, const int64_t* sizes)`` and returns 0 or 1 + the number of the failed check)
    or ``"cubin"`` (see ``sealed.py``). ``meta`` is what a launcher of a kind from outside needs besides; nothing in it is checked.
    """

    kind: str
    artifact_kind: str
    key: str
    entry: str
    meta: dict[str, Union[int, str]] = {}


# ---- arguments of operator calls -----------------------------------------------------------------------------------


@final
class Slot(_Data, frozen=True, tag="slot"):
    """The tensor in a slot."""

    index: int


@final
class Expr(_Data, frozen=True, tag="expr"):
    """The value of a size expression."""

    value: Size


@final
class ListArg(_Data, frozen=True, tag="list"):
    """A list of arguments."""

    items: tuple[Arg, ...]


@final
class Literal(_Data, frozen=True, tag="literal"):
    """A constant: None, bool, int, float or str. Floats keep their bits (infinities, NaN, signed zero)."""

    value: Union[bool, int, float, str, None]


@final
class Named(_Data, frozen=True, tag="named"):
    """A torch object by kind and name: ``("dtype", "float32")``, ``("device", "cpu")``, ``("layout", "strided")``,
    ``("memory_format", "channels_last")``."""

    kind: str
    name: str


@final
class ComplexArg(_Data, frozen=True, tag="complex"):
    """A complex number."""

    real: float
    imag: float


Arg = Union[Slot, Expr, ListArg, Literal, Named, ComplexArg]


# ---- steps ---------------------------------------------------------------------------------------------------------


@final
class Alloc(_Data, frozen=True, tag="alloc"):
    """Puts an uninitialised tensor into ``slot``: at byte ``offset`` of the call's arena, or, where ``offset`` is None, a
    fresh tensor from torch's allocator (for what outlives the call)."""

    slot: int
    spec: TensorSpec
    offset: Size | None = None
    origin: str = ""


@final
class View(_Data, frozen=True, tag="view"):
    """Puts a view of ``base``'s storage into ``slot``; ``offset`` (elements) counts from ``base``'s own storage offset.
    ``dtype`` None keeps the base's."""

    slot: int
    base: int
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0
    dtype: str | None = None


@final
class Launch(_Data, frozen=True, tag="launch"):
    """Runs a kernel on the data pointers of ``slots`` and the values of ``sizes``.

    ``checks[i]`` is (exception type name, message), raised when the kernel reports that its check ``i`` failed.
    ``writes`` are positions in ``slots`` that the kernel writes."""

    kernel: int
    slots: tuple[int, ...]
    sizes: tuple[Size, ...] = ()
    writes: tuple[int, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    origin: str = ""


@final
class Call(_Data, frozen=True, tag="call"):
    """Calls torch operator ``op`` (``"aten::addmm.out"``, ``"aten::convolution"``) through the dispatcher.

    ``results`` name the slots that take the returned tensors; None drops one. Out variants return into slots given as
    arguments, so their ``results`` are empty. A returned list of tensors is flattened in order.

    ``specs``, where given, has an entry for each of ``results``: what the plan's other steps assume of that tensor. A result with other
    strides is copied into those; one of another type or size is an error. None: nothing is assumed.

    ``bodies``: the plans, by number in ``Plan.bodies``, that a control operator (``executor/control.py``) runs."""

    op: str
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg] = {}
    results: tuple[int | None, ...] = ()
    origin: str = ""
    specs: tuple[TensorSpec | None, ...] = ()
    bodies: tuple[int, ...] = ()


@final
class Free(_Data, frozen=True, tag="free"):
    """Drops the references that the slots hold."""

    slots: tuple[int, ...]


@final
class Check(_Data, frozen=True, tag="check"):
    """Raises ``error`` with ``message`` unless ``condition`` (a size expression) is non-zero."""

    condition: Size
    message: str
    error: str = "RuntimeError"


@final
class Define(_Data, frozen=True, tag="define"):
    """Binds ``symbol`` to the value of a size expression."""

    symbol: str
    value: Size


@final
class Item(_Data, frozen=True, tag="item"):
    """Binds ``symbol`` to the value of the one-element integer or bool tensor in ``slot``."""

    symbol: str
    slot: int


@final
class SizeOfStep(_Data, frozen=True, tag="sizeof"):
    """Binds ``symbol`` to a size known only now (the result of ``nonzero``, say)."""

    symbol: str
    slot: int
    dim: int


Step = Union[Alloc, View, Launch, Call, Free, Check, Define, Item, SizeOfStep]


# ---- outputs -------------------------------------------------------------------------------------------------------


@final
class SlotOutput(_Data, frozen=True, tag="slot"):
    """The tensor in a slot."""

    slot: int


@final
class SizeOutput(_Data, frozen=True, tag="size"):
    """The value of a size expression, as an int."""

    value: Size


@final
class NoneOutput(_Data, frozen=True, tag="none"):
    """An output that is None."""


Output = Union[SlotOutput, SizeOutput, NoneOutput]


@final
class Label(_Data, frozen=True):
    """A label that the program put around some of what it computes (``torch.profiler.record_function``): it opens before step ``begin`` and
    closes before step ``end``. Labels are in the order in which they open; ``depth``: how many others are open around it."""

    name: str
    begin: int
    end: int
    depth: int = 0


@final
class Plan(_Data, frozen=True):
    """A compiled graph. ``arena`` is the size in bytes of the block that ``Alloc`` offsets count from; offsets are multiples of
    64. It may use what ``Define`` steps bind that come before all others. ``inputs`` lists held tensors and call inputs together; a call
    passes those not held, in order. ``exclusive`` names the slots of inputs that the plan writes: a call in which the memory of one meets
    that of another input is refused, since steps were ordered as if it did not. ``device`` is where the arena lies; allocations with an
    offset are on it. ``bodies`` are plans without held inputs that steps of this one run. ``labels`` are
    for profilers alone."""

    name: str
    slots: int
    inputs: tuple[Union[TensorInput, SizeInput], ...]
    outputs: tuple[Output, ...]
    steps: tuple[Step, ...]
    bindings: tuple[SizeOf, ...] = ()
    constants: tuple[Constant, ...] = ()
    kernels: tuple[KernelRef, ...] = ()
    arena: Size = 0
    exclusive: tuple[int, ...] = ()
    device: str = HOST
    bodies: tuple[Plan, ...] = ()
    labels: tuple[Label, ...] = ()
