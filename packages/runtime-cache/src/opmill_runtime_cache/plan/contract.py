"""What a kernel touches, said by the kernel itself: each launch in a plan is held against it.

A plan names the memory and the sizes of a launch; whether the kernel stays inside that memory only its maker knows. So a kernel carries a
contract with it: a CPU kernel exports the text `encode` gives as ``const char <entry>_contract[]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from ..errors import BindError
from .model import DTYPES, Launch, Size


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A buffer of a kernel: elements of ``dtype``, of which at most the first ``numel`` are read or (``written``) written too."""

    dtype: str
    written: bool
    numel: Size


class Contract(msgspec.Struct, frozen=True, array_like=True):
    """``symbols``: the names of the launch's sizes, in order. ``buffers``: one for each of its slots. ``checks``: how many there are.
    ``floor``: an expression that must not be negative, for indices that would fall before a buffer.

    ``apart``: pairs of a buffer that is written and one that indices or masks are read from. They may not overlap, or what was checked
    could change before it is used; with True as the third, they may be the same memory, from its first byte to its last."""

    symbols: tuple[str, ...]
    buffers: tuple[Touched, ...]
    checks: int = 0
    floor: Size = 0
    apart: tuple[tuple[int, int, bool], ...] = ()


_DECODER = msgspec.json.Decoder(Contract)  # at import: see codec


def encode(contract: Contract) -> str:
    """The contract as text."""
    return msgspec.json.encode(contract).decode()


@lru_cache(4096)
def decode(text: bytes) -> Contract:
    """The contract in a text. Raises msgspec.ValidationError or msgspec.DecodeError for what is none."""
    return _DECODER.decode(text)


_PARTS = {"complex64": "float32", "complex128": "float64"}
"""Types whose elements a kernel may take as pairs of another."""


def agree(launch: Launch, contract: Contract, facts: Sequence[tuple[int, int]], takes: int | None) -> None:
    """Raises BindError (RC049) where a launch does not give what the kernel takes. ``facts``: of each slot the place of its element type in
    ``DTYPES`` (-1: unknown) and torch's number of its device's type (-1: unknown). ``takes``: the type whose memory the kernel takes, None
    where its launcher sees to that. How much memory there is follows when sizes are known."""

    def refuse(what: str) -> BindError:
        return BindError("RC049", what=f"a launch of kernel {launch.kernel} {what}", where=launch.origin, hint="compile again")

    if len(launch.slots) != len(contract.buffers) or len(launch.sizes) != len(contract.symbols):
        given = f"{len(launch.slots)} tensors and {len(launch.sizes)} sizes"
        raise refuse(f"gives {given}, not {len(contract.buffers)} and {len(contract.symbols)}")
    if len(launch.checks) != contract.checks:
        raise refuse(f"names {len(launch.checks)} checks of {contract.checks}")
    if set(launch.writes) != {k for k, touched in enumerate(contract.buffers) if touched.written}:
        raise refuse("does not say what the kernel writes")
    if any(not 0 <= place < len(launch.slots) for pair in contract.apart for place in pair[:2]):
        raise refuse("is of a kernel whose contract speaks of tensors that it does not take")
    for number, (touched, (dtype, device)) in enumerate(zip(contract.buffers, facts, strict=True)):
        if dtype >= 0 and touched.dtype not in (DTYPES[dtype], _PARTS.get(DTYPES[dtype])):
            raise refuse(f"gives {DTYPES[dtype]} for {touched.dtype} in argument {number}")
        if takes is not None and device not in (-1, takes):
            raise refuse(f"gives memory of another device in argument {number} than the kernel is for")


__all__ = ["Contract", "Touched", "agree", "decode", "encode"]
