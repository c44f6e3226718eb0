"""One kernel with inputs, and short ways to write it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import torch

from .index import Index, index
from .ir import Axis, Buffer, Expr, LoopKernel, Nest, Op, Phase, Store
from .primitives import PRIMITIVES


@dataclass(frozen=True)
class Case:
    """``ranges``: bounds for the random contents of a buffer (default -3..3; integers -100..100 or 0..100). ``rtol``: tolerance relative
    to the float64 evaluation, in units of the result type's epsilon. ``expect``: what the kernel returns (a failed check's number)."""

    name: str
    kernel: LoopKernel
    sizes: tuple[int, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rtol: float = 8.0
    expect: int = 0

    def buffers(self, seed: int = 0) -> dict[str, torch.Tensor]:
        """Fresh flat tensors for all parameters; what is only written starts as a marker value."""
        g = torch.Generator().manual_seed(zlib.crc32(self.name.encode()) + seed)
        values = dict(zip(self.kernel.symbols, self.sizes, strict=True))
        return {b.name: self._fill(b, b.numel.evaluate(values), g) for b in self.kernel.buffers}

    def _fill(self, buffer: Buffer, numel: int, g: torch.Generator) -> torch.Tensor:
        dtype = getattr(torch, buffer.dtype)
        if buffer.role == "out":
            return torch.full((numel,), 1, dtype=dtype)
        if dtype == torch.bool:
            return torch.rand(numel, generator=g) > 0.5
        default = (-3, 3) if dtype.is_floating_point else (0, 100) if dtype == torch.uint8 else (-100, 100)
        low, high = self.ranges.get(buffer.name, default)
        if dtype.is_floating_point:
            return (torch.rand(numel, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)
        return torch.randint(int(low), int(high) + 1, (numel,), generator=g).to(dtype)


def op(name: str, *args: Expr, dtype: str | None = None) -> Op:
    """A primitive; the result type follows from the operands where it can."""
    kind = PRIMITIVES[name].result
    return Op(name, args, dtype or ("bool" if kind == "bool" else args[-1].dtype))


def cast(value: Expr, dtype: str) -> Expr:
    """The value as an element of ``dtype``; itself where it is one."""
    return value if value.dtype == dtype else Op("cast", (value,), dtype)


def axes(**extents: int | str) -> tuple[Axis, ...]:
    """Axes by name with their extents."""
    return tuple(Axis(n, index(e)) for n, e in extents.items())


class CaseOptions(TypedDict, total=False):
    """What a case may say besides its kernel."""

    ranges: Mapping[str, tuple[float, float]]
    rtol: float
    expect: int


def row_major(domain: Sequence[Axis]) -> Index:
    """The offset of a point of ``domain`` in a contiguous buffer."""
    total = index(0)
    for axis in domain:
        total = total * axis.extent + axis.name
    return total


def numel(domain: Sequence[Axis]) -> Index:
    """Points of a domain."""
    return math.prod((a.extent for a in domain), start=index(1))


def map_case(name: str, domain: Sequence[Axis], ins: Mapping[str, str], value: Expr, **kw: Unpack[CaseOptions]) -> Case:
    """A pointwise kernel over contiguous buffers: ``ins`` maps names to types, the result goes to ``out``."""
    buffers = [Buffer(n, d, "in", numel(domain)) for n, d in ins.items()]
    store = Store("out", row_major(domain), value)
    kernel = LoopKernel(
        name, (*buffers, Buffer("out", value.dtype, "out", numel(domain))), (Nest(tuple(domain), (Phase(stores=(store,)),), name),)
    )
    return Case(name, kernel, **kw)
