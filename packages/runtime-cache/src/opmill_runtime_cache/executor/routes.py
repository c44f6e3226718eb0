"""Which way each operator call goes: a C shim with its exact signature, the dispatcher, or Python. Decided when a plan is bound."""

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from msgspec import Struct

from ..devices import cpu
from ..devices.loading import torch_library
from ..devices.protocol import Device
from ..devices.registry import find
from ..plan.model import DTYPES, Arg, Call, Expr, ListArg, Literal, Named, Slot
from ..plan.verify import args_of, slots_in
from .layout import BlasRow, CellKind, CellRow, Route

BLAS = {
    "aten::mm.out": ("self", "mat2"),
    "aten::bmm.out": ("self", "mat2"),
    "aten::addmm.out": ("mat1", "mat2"),
    "aten::baddbmm.out": ("batch1", "batch2"),
}
"""Products that BLAS can do: the names of their operands."""
_REPEATABLE = ("aten::", "prims::", "mkldnn::", "opmill")
"""Operators that may be called once more where they fail, for the exception: those that do nothing before they raise. Others go through
Python: an exchange with other processes that failed is over, and would seem to have worked the second time."""
_BATCHED = ("aten::bmm.out", "aten::baddbmm.out")

_OPTIONAL, _LIST = "Optional[", "List["
_LONGEST_SHIM_LIST = 8
_EXACT_IN_DOUBLE = 1 << 53
_FLOATING = frozenset(DTYPES.index(name) for name in ("float16", "bfloat16", "float32", "float64"))


class Way(Struct, frozen=True):
    """How a call goes; the fields are those of `layout.CallRow`."""

    route: Route
    cells: tuple[CellRow, ...] = ()
    returns: tuple[int, ...] = ()
    shim: tuple[str, str] | None = None
    blas: BlasRow | None = None


class _Unsupported(Exception):
    """An argument has no cell; the call goes through Python."""


class _Kind(Struct, frozen=True):
    """A type as schemas name it; of optional ones and lists also that of what is in them."""

    name: str
    element: "_Kind | None"


class _Argument(Struct, frozen=True):
    """``default``: None where there is none, or none that a plan can say; ``number``: it may be of any type of numbers; ``is_written``: the
    operator writes to it."""

    name: str
    keyword_only: bool
    is_out: bool
    is_written: bool
    kind: _Kind
    number: bool
    default: Arg | None


class _Schema(Struct, frozen=True):
    arguments: tuple[_Argument, ...]
    returns: tuple[str, ...]


@lru_cache(None)
def schema_of(overload: Any) -> _Schema:
    """What torch knows of an operator's arguments. (Each look into its schema makes Python objects of all of it, and a text of each
    type.)"""
    schema = overload._schema
    arguments = [
        _Argument(a.name, a.kwarg_only, a.is_out, a.is_write, _kind(a.type), "number" in str(a.type), _default(a)) for a in schema.arguments
    ]
    return _Schema(tuple(arguments), tuple(str(result.type) for result in schema.returns))


def _kind(kind: Any) -> _Kind:
    name = str(kind)
    return _Kind(name, _kind(kind.getElementType()) if name.startswith((_OPTIONAL, _LIST)) else None)


def _default(argument: Any) -> Arg | None:
    try:
        return _plain(argument.default_value) if argument.has_default_value() else None
    except _Unsupported:
        return None


def way_of(
    call: Call,
    overload: Any,
    value_of: Callable[[int | str], int],
    slot_of: Callable[[int], int],
    dtype_of: Callable[[int], int],
    device: Device | None = cpu.DEVICE,
) -> Way:
    """The way of a call. ``value_of`` and ``slot_of`` number size expressions and slots in the native program; ``dtype_of`` gives the
    place of a slot's element type in `DTYPES`, -1 where it is known only at run time. ``device``: where all its
    tensors lie, None for several."""
    if not call.op.startswith(_REPEATABLE):
        return Way(Route.python)
    schema = schema_of(overload)
    dtypes = {dtype_of(slot) for arg in args_of(call) for slot in slots_in(arg)}
    floating = None if -1 in dtypes and dtypes <= {-1, *_FLOATING} else bool(dtypes) and dtypes <= _FLOATING
    writer = _Cells(value_of, slot_of, floating)
    try:
        given = _arguments(call, schema)
    except _Unsupported:
        return Way(Route.python)
    blas = _blas(call, given, slot_of)
    shim = None if device is None else device.shim(call.op)
    builders: tuple[Callable[[], Way], ...] = (
        lambda: _shim(schema, given, shim, writer, blas),
        lambda: _dispatched(schema, given, writer, blas),
    )
    for build in builders:
        try:
            return build()
        except _Unsupported:
            continue
    return Way(Route.python, blas=blas)


def _arguments(call: Call, schema: _Schema) -> dict[str, Any]:
    """Arguments by name: the plan's, or what the schema says where it gives none (as plain Python values)."""
    given: dict[str, Any] = {}
    positional = list(call.args)
    for argument in schema.arguments:
        if positional and not argument.keyword_only:
            given[argument.name] = positional.pop(0)
        elif argument.name in call.kwargs:
            given[argument.name] = call.kwargs[argument.name]
        elif argument.default is not None:
            given[argument.name] = argument.default
        else:
            raise _Unsupported(argument.name)
    return given


def _plain(value: Any) -> Arg:
    if isinstance(value, (list, tuple)):
        return ListArg(tuple(_plain(item) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return Literal(value)
    raise _Unsupported(value)


def _dispatched(schema: _Schema, given: dict[str, Any], writer: "_Cells", blas: Any) -> Way:
    cells = tuple(writer.cell(given[argument.name], argument.kind) for argument in schema.arguments)
    returns = []
    for result in schema.returns:
        kind = {"Tensor": 0, "List[Tensor]": 1, "int": 2}.get(result)
        if kind is None:
            raise _Unsupported(result)
        returns.append(kind)
    return Way(Route.dispatcher, cells, tuple(returns), blas=blas)


def _shim(schema: _Schema, given: dict[str, Any], shim: tuple[str, str] | None, writer: "_Cells", blas: Any) -> Way:
    if shim is None:
        raise _Unsupported
    letters = shim[1].partition(">")[0]
    arguments = sorted(schema.arguments, key=lambda argument: not argument.is_out)  # stable: out first, the rest as they stand
    if len(letters) != len(arguments):
        raise _Unsupported
    cells = tuple(_shim_cell(letter, given[argument.name], argument, writer) for letter, argument in zip(letters, arguments, strict=True))
    returns = tuple(2 if result == "int" else 0 for result in schema.returns)
    return Way(Route.shim, cells, returns, shim, blas)


def _shim_cell(letter: str, arg: Arg, argument: _Argument, writer: "_Cells") -> CellRow:
    if argument.number:
        return _SCALARS[letter](arg, writer, argument.name in ("alpha", "beta"))
    cell = writer.cell(arg, argument.kind)
    items = cell.payload[0] if cell.kind == CellKind.some else cell
    if items.kind == CellKind.list and len(items.payload) > _LONGEST_SHIM_LIST:
        raise _Unsupported
    return cell


def _scalar(arg: Arg, writer: "_Cells", factor: bool = False) -> CellRow:
    """A Scalar as the double that shims take.

    An integer becomes one only where that changes nothing: among floating-point tensors, within what a double holds exactly. Of a factor
    that is 1 nothing depends but an error among integers, so there types need not be known.
    """
    if type(arg) is Expr and writer.floating:
        return CellRow(CellKind.value, writer.value_of(arg.value))
    value = arg.value if type(arg) is Literal else None
    if type(value) is float:
        return CellRow(CellKind.word, bits(value))
    if type(value) is int and abs(value) <= _EXACT_IN_DOUBLE and (writer.floating or (factor and value == 1 and writer.floating is None)):
        return CellRow(CellKind.word, bits(float(value)))
    raise _Unsupported(arg)


def _optional_scalar(arg: Arg, writer: "_Cells", factor: bool = False) -> CellRow:
    none = type(arg) is Literal and arg.value is None
    return CellRow(CellKind.word, 0) if none else CellRow(CellKind.some, (_scalar(arg, writer, factor),))


def _scalar_list(arg: Arg, writer: "_Cells", factor: bool = False) -> CellRow:
    if type(arg) is not ListArg or len(arg.items) > _LONGEST_SHIM_LIST:
        raise _Unsupported(arg)
    return CellRow(CellKind.list, tuple(_optional_scalar(item, writer) for item in arg.items))


_SCALARS = {"F": _scalar, "E": _optional_scalar, "X": _scalar_list}


def _blas(call: Call, given: dict[str, Any], slot_of: Callable[[int], int]) -> BlasRow | None:
    """The product, where BLAS may do it, depending on how its operands lie in memory."""
    operands = BLAS.get(call.op)
    if operands is None:
        return None
    bias = given["self"] if "self" not in operands else None
    tensors = [given["out"], *(given[name] for name in operands), *([bias] if bias else [])]
    factors = [given.get("beta", Literal(0.0)), given.get("alpha", Literal(1.0))]
    if any(type(t) is not Slot for t in tensors) or any(type(f) is not Literal or type(f.value) not in (int, float) for f in factors):
        return None
    out, a, b = (slot_of(t.index) for t in tensors[:3])
    return BlasRow(out, slot_of(bias.index) if bias else -1, a, b, float(factors[0].value), float(factors[1].value), call.op in _BATCHED)


def bits(value: float) -> int:
    """The bits of a double as a signed 64-bit integer."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


_ENUMS: dict[str, Callable[[str], int]] = {
    "dtype": lambda name: _getter(f"dtype_{name}"),
    "layout": lambda name: _getter(f"layout_{name}"),
    "memory_format": lambda name: _getter(f"memory_format_{name}"),
}


@lru_cache(1)
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(torch_library("torch_cpu"))


def _getter(name: str) -> int:
    try:
        return int(getattr(_library(), f"aoti_torch_{name}")())
    except AttributeError:
        raise _Unsupported(name) from None


def _device(name: str) -> int:
    """The device type in the upper half, the index in the lower; -1 stands for none."""
    device, known = torch.device(name), find(name)
    if known is None:
        raise _Unsupported(name)
    return known.number << 32 | (0xFFFFFFFF if device.index is None else device.index)


class _Cells:
    """Writes arguments as cells, following the types of the schema."""

    def __init__(self, value_of: Callable[[int | str], int], slot_of: Callable[[int], int], floating: bool | None) -> None:
        self.value_of, self.slot_of = value_of, slot_of
        self.floating = floating  # whether all tensors of the call are floating-point; None: not known

    def cell(self, arg: Arg, kind: _Kind) -> CellRow:
        name, element = kind.name, kind.element
        if element is not None and name.startswith(_OPTIONAL):
            if type(arg) is Literal and arg.value is None:
                return CellRow(CellKind.word, 0)
            return CellRow(CellKind.some, (self.cell(arg, element),))
        if element is not None:
            if type(arg) is not ListArg:  # int[2]=1 takes one number for all, how many the type does not tell
                raise _Unsupported(name)
            return CellRow(CellKind.list, tuple(self.cell(item, element) for item in arg.items))
        write = _WRITERS.get((name, type(arg)))
        if write is None:
            raise _Unsupported(name)
        return write(self, arg)

    def slot(self, arg: Slot) -> CellRow:
        return CellRow(CellKind.tensor, self.slot_of(arg.index))

    def no_tensor(self, arg: Literal) -> CellRow:
        """None where the schema asks for a tensor: one that is undefined."""
        if arg.value is not None or not hasattr(_library(), "aoti_torch_new_uninitialized_tensor"):
            raise _Unsupported(arg)
        return CellRow(CellKind.tensor, -1)

    def size(self, arg: Expr) -> CellRow:
        return CellRow(CellKind.value, self.value_of(arg.value))

    def integer(self, arg: Literal) -> CellRow:
        if not isinstance(arg.value, int):
            raise _Unsupported(arg)
        return CellRow(CellKind.word, int(arg.value))

    def real(self, arg: Literal) -> CellRow:
        if not isinstance(arg.value, (int, float)):
            raise _Unsupported(arg)
        return CellRow(CellKind.word, bits(float(arg.value)))

    def text(self, arg: Literal) -> CellRow:
        if type(arg.value) is not str:
            raise _Unsupported(arg)
        return CellRow(CellKind.text, arg.value)

    def enum(self, arg: Named) -> CellRow:
        if arg.kind not in _ENUMS:
            raise _Unsupported(arg)
        return CellRow(CellKind.word, _ENUMS[arg.kind](arg.name))

    def device(self, arg: Named) -> CellRow:
        return CellRow(CellKind.word, _device(arg.name))


_WRITERS: dict[tuple[str, type], Callable[[_Cells, Any], CellRow]] = {
    ("Tensor", Slot): _Cells.slot,
    ("Tensor", Literal): _Cells.no_tensor,
    ("int", Expr): _Cells.size,
    ("int", Literal): _Cells.integer,
    ("int", Named): _Cells.enum,
    ("bool", Literal): _Cells.integer,
    ("float", Literal): _Cells.real,
    ("str", Literal): _Cells.text,
    ("Device", Named): _Cells.device,
}
"""How an argument becomes a cell, by the schema's type and the argument's."""
