"""The artifact of a GPU kernel: how it is launched, what it touches and its machine code, in one piece.

``magic, length of the text, text, padding to 64 bytes, cubins``; the text is JSON of (version, launch data, contract). A plan names the
artifact and gives tensors and sizes; it says nothing of grids, blocks or arguments, so that an edited plan changes none of them. What is
read is checked before anything is made of it: a launcher may rely on every law here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..errors import RuntimeCacheError
from .contract import Contract
from .expr import is_name, symbols_of
from .launch import VERSION, Arg, Form, LaunchData, Step
from .model import DTYPES, Size

MAGIC = b"opmill cubin\0\0\0\0"
ALIGNMENT = 64
"""Bytes; cubins begin at a multiple of it."""

MOST_WARPS, MOST_SHARED = 32, 1 << 18
"""Of a program: 1024 threads on every device, and more bytes of shared memory than any has."""
MOST_PROGRAMS = ((1 << 31) - 1, 65535, 65535)
"""Along x, y and z."""
MOST_ARGUMENTS = 4094
"""With the two behind them, what the driver takes: 32 KiB."""
_ENTRY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,1023}")


class SealBroken(ValueError):
    """An artifact that is no kernel, or one that breaks a law."""


class _Text(msgspec.Struct, frozen=True, array_like=True):
    version: int
    data: LaunchData
    contract: Contract


_DECODER = msgspec.json.Decoder(_Text)  # at import: see codec


def seal(data: LaunchData, contract: Contract, cubins: bytes) -> bytes:
    """The artifact of a kernel."""
    text = msgspec.json.encode(_Text(VERSION, data, contract))
    head = MAGIC + len(text).to_bytes(8, "little") + text
    return head + bytes(-len(head) % ALIGNMENT) + cubins


def unseal(artifact: bytes) -> tuple[LaunchData, Contract, bytes]:
    """Launch data, contract and cubins of an artifact. Raises SealBroken, which says why."""
    start = len(MAGIC) + 8
    if artifact[: len(MAGIC)] != MAGIC or len(artifact) < start:
        raise SealBroken("it is no GPU kernel of this version")
    end = start + int.from_bytes(artifact[len(MAGIC) : start], "little")
    if end > len(artifact):
        raise SealBroken("it was cut off")
    try:
        text = _DECODER.decode(artifact[start:end])
    except msgspec.MsgspecError as error:
        raise SealBroken(f"launch data: {error}") from None
    if text.version != VERSION or text.data.version != VERSION:
        raise SealBroken(f"launch data of another version than {VERSION}")
    cubins = artifact[end + -end % ALIGNMENT :]
    for complaint in complaints(text.data, text.contract, len(cubins)):
        raise SealBroken(complaint)
    return text.data, text.contract, cubins


def complaints(data: LaunchData, contract: Contract, size: int) -> Iterator[str]:
    """Every law that launch data breaks, beside a contract and ``size`` bytes of cubins."""
    if data.sizes != contract.symbols or data.checks != contract.checks:
        yield "launch data and contract are of different kernels"
    if not all(map(is_name, data.sizes)) or len(set(data.sizes)) != len(data.sizes):
        yield f"sizes {data.sizes} are no names"
    if not 0 < data.arch < 10_000 or data.checks < 0:
        yield f"compute capability {data.arch} and {data.checks} checks"
    yield from _contract(contract)
    symbols = frozenset(data.sizes)
    yield from _size(data.scratch, symbols, "scratch memory")
    for number, step in enumerate(data.steps):
        yield from (f"launch {number}: {what}" for what in _step(step, data, contract, symbols, size))


def _contract(contract: Contract) -> Iterator[str]:
    symbols = frozenset(contract.symbols)
    for number, touched in enumerate(contract.buffers):
        if touched.dtype not in DTYPES:
            yield f"buffer {number} is of {touched.dtype!r}, which is no element type"
        yield from _size(touched.numel, symbols, f"buffer {number}", signed=True)
    yield from _size(contract.floor, symbols, "the floor", signed=True)
    if any(not 0 <= place < len(contract.buffers) for pair in contract.apart for place in pair[:2]):
        yield "it keeps buffers apart that it does not take"


def _size(value: Size, symbols: frozenset[str], of: str, signed: bool = False) -> Iterator[str]:
    if type(value) is int:
        if not (-(1 << 63) if signed else 0) <= value < 1 << 63:
            yield f"{of} has a size of {value}"
        return
    try:
        unknown = symbols_of(value) - symbols
    except RuntimeCacheError as error:
        yield f"{of}: {error}"
        return
    if unknown:
        yield f"{of} depends on {', '.join(sorted(unknown))}, which it is not given"


def _step(step: Step, data: LaunchData, contract: Contract, symbols: frozenset[str], size: int) -> Iterator[str]:
    for along, programs, most in zip("xyz", (step.grid, *step.more), MOST_PROGRAMS, strict=True):
        yield from _size(programs, symbols, f"the grid along {along}")
        if type(programs) is int and programs > most:
            yield f"{programs} programs along {along} are more than {most}"
    if len(step.args) > MOST_ARGUMENTS:
        yield f"{len(step.args)} arguments are more than {MOST_ARGUMENTS}"
    for number, arg in enumerate(step.args):
        law = _ARGUMENTS.get(arg.kind)
        if law is None:
            yield f"argument {number} is of kind {arg.kind!r}"
        else:
            yield from (f"argument {number} {what}" for what in law(arg, data, contract, symbols))
    if not step.forms:
        yield "it has no machine code"
    for form in step.forms:
        yield from _form(form, symbols, size)


def _among(index: int, things: Sequence[object], what: str) -> Iterator[str]:
    if not 0 <= index < len(things):
        yield f"is {what} {index} of {len(things)}"


def _scratch(arg: Arg, data: LaunchData, contract: Contract, symbols: frozenset[str]) -> Iterator[str]:
    yield from _size(arg.value, symbols, "in scratch memory")
    if type(arg.value) is int and type(data.scratch) is int and arg.value > data.scratch:
        yield f"lies at byte {arg.value} of {data.scratch} in scratch memory"


_Law = Callable[[Arg, LaunchData, Contract, frozenset[str]], Iterator[str]]
_ARGUMENTS: dict[str, _Law] = {
    "buffer": lambda arg, data, contract, symbols: _among(arg.index, contract.buffers, "buffer"),
    "size": lambda arg, data, contract, symbols: _among(arg.index, data.sizes, "size"),
    "scratch": _scratch,
    "error": lambda *_: iter(()),
    "check": lambda *_: iter(()),
    "word": lambda arg, data, contract, symbols: _size(arg.value, symbols, "a word", signed=True),
}
"""The laws of arguments, by their kind."""


def _form(form: Form, symbols: frozenset[str], size: int) -> Iterator[str]:
    if form.offset < 0 or form.size < 1 or form.offset + form.size > size:
        yield f"machine code in bytes {form.offset} to {form.offset + form.size} of {size}"
    if not _ENTRY.fullmatch(form.entry):
        yield f"{form.entry!r} names no function"
    if not 1 <= form.warps <= MOST_WARPS or not 0 <= form.shared <= MOST_SHARED:
        yield f"{form.warps} warps with {form.shared} bytes of shared memory"
    if form.align not in (1, 2, 4, 8, 16, 32, 64, 128, 256) or form.index_bits not in (32, 64):
        yield f"pointers of {form.align} bytes and indices of {form.index_bits} bits"
    if form.scratch or form.profile:
        yield "it takes memory that no launcher gives"
    for value in form.fits:
        yield from _size(value, symbols, "what decides a form", signed=True)


__all__ = ["SealBroken", "complaints", "seal", "unseal"]
