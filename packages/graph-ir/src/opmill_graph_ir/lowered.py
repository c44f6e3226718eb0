"""The seam between lowering (``ops/``) and scheduling (``schedule/``): an unfused program over named buffers.

Lowering turns each aten operator into nodes of this file, one buffer per value, views folded into the indices of reads.
Scheduling inlines, fuses and orders the nodes, chooses layouts that are free, and emits loop IR kernels and plan steps.

``source`` says which node of the aten graph a node comes of (the name of its first result; empty for what is written at the end); origins
are for people.

Reads are by logical position, one ``Index`` a dimension of the buffer, so that fusing a producer into a consumer is a substitution of
the producer's axes; positions become element offsets only when a kernel is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Union, final

from opmill_runtime_cache.plan.model import Arg as PlanArg

from .loops.index import ONE, Index, index
from .loops.ir import Axis, Check, Expr, Let, LoopKernel, Reduction, Scan, StoreMode
from .loops.ir import Read as Read

BufferRole = Literal["input", "held", "constant", "temporary"]
PARTS = {"complex64": "float32", "complex128": "float64"}
"""Complex types, and the type of their parts."""


@dataclass(frozen=True)
class BufferInfo:
    """A tensor of the program. Strides in elements. ``fixed``: the strides are an obligation (inputs, outputs, what an extern operator
    was promised); otherwise the scheduler may choose others. ``opaque``: how it lies is known to its library alone, and strides mean
    nothing. ``multiplied``: as in ``capture.graph.Meta``."""

    name: str
    dtype: str
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    device: str
    role: BufferRole
    fixed: bool = True
    origin: str = ""
    opaque: bool = False
    multiplied: int = 0

    @property
    def cells(self) -> BufferInfo:
        """The buffer as loops see it: a complex number is a pair along one more dimension."""
        if self.dtype not in PARTS:
            return self
        return replace(self, dtype=PARTS[self.dtype], sizes=(*self.sizes, index(2)), strides=(*(s * 2 for s in self.strides), ONE))


@dataclass(frozen=True)
class Pointwise:
    """``buffer[axes] = value`` for each point; one axis a dimension of the buffer, in order. When ``buffer`` is an input, this is a
    mutation of it (always the last write; the value may read the old contents at the same position)."""

    buffer: str
    axes: tuple[Axis, ...]
    value: Expr
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    origin: str = ""
    source: str = ""


@dataclass(frozen=True)
class Reduce:
    """For each point of ``axes``: the ``reductions`` over ``inner``, then ``buffers[k][axes] = values[k]`` (over reduction names and
    axes). Dimensions of size one that ``keepdim`` leaves are axes of extent one."""

    buffers: tuple[str, ...]
    axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    reductions: tuple[Reduction, ...]
    values: tuple[Expr, ...]
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    origin: str = ""
    source: str = ""


@dataclass(frozen=True)
class Cumulate:
    """The ``scans`` along axis number ``along``, separately for each point of the others; then ``buffers[k][axes] = values[k]`` at every
    point, or at the ``first`` so many along the axis: the buffers are so long there."""

    buffers: tuple[str, ...]
    axes: tuple[Axis, ...]
    along: int
    scans: tuple[Scan, ...]
    values: tuple[Expr, ...]
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    origin: str = ""
    first: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Scatter:
    """For each point of ``axes``: ``buffer[indices] = value`` (with another mode: combined with what is there, as a ``Store`` does it),
    after ``buffer`` was initialised from ``base`` (a buffer of the same sizes), or with zeros where ``base`` is None."""

    buffer: str
    base: str | None
    axes: tuple[Axis, ...]
    indices: tuple[Index, ...]
    value: Expr
    mode: StoreMode = "set"
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    origin: str = ""
    source: str = ""


@dataclass(frozen=True)
class BufferArg:
    """A buffer as an argument of an extern operator, seen through a strided view (None: as it is)."""

    buffer: str
    sizes: tuple[Index, ...] | None = None
    strides: tuple[Index, ...] | None = None
    offset: Index | None = None


@final
@dataclass(frozen=True)
class Extern:
    """A torch operator called as it is. ``args``/``kwargs`` hold plan arguments, ``BufferArg``s, Index values, and lists of these.

    ``out_variant`` ("aten::addmm.out"): with ``results`` of one buffer, the operator can write into memory given by the planner, passed
    as keyword ``out`` (None: call ``op``, which allocates). ``mutates``: buffers that the call writes to. ``bodies``: the aten graphs that
    a control operator runs; ``draws``: whether they take random numbers. ``kernel``: what is launched instead, where the operator is none
    of torch's; its buffers are those of the arguments and then the results that are not None."""

    op: str
    args: tuple[object, ...]
    kwargs: dict[str, object] = field(default_factory=dict, hash=False)
    results: tuple[str | None, ...] = ()
    out_variant: str | None = None
    mutates: tuple[str, ...] = ()
    origin: str = ""
    binds: tuple[tuple[str, str | None, int], ...] = ()
    """Size symbols that it makes known: sizes of results (buffer, dimension), or the number that it reads (None)."""
    bodies: tuple[Any, ...] = ()
    draws: bool = False
    source: str = ""
    kernel: LoopKernel | None = None


Node = Union[Pointwise, Reduce, Cumulate, Scatter, Extern]


@dataclass(frozen=True)
class TensorOutput:
    """A buffer as the user gets it, through a strided view where sizes are given: an output that is a view of an input *is* one.
    ``detached``: one that does not require grad, though the input does. ``dtype``: the type of a view that reads the memory otherwise.
    ``twin`` counts the views before it that are alike and are other objects."""

    buffer: str
    sizes: tuple[Index, ...] | None = None
    strides: tuple[Index, ...] | None = None
    offset: Index | None = None
    detached: bool = False
    dtype: str | None = None
    twin: int = 0


@dataclass(frozen=True)
class Lowered:
    """``inputs`` in call order (held ones included, by role): buffers and size symbols; ``constants`` maps buffers to raw bytes; outputs in
    the order of the graph: tensors, ints or size expressions, None. ``symbols`` are the size symbols with their values in the captured
    call, by which costs are guessed; None for those that are known only while the program runs."""

    nodes: tuple[Node, ...]
    buffers: dict[str, BufferInfo]
    inputs: tuple[str, ...]
    outputs: tuple[TensorOutput | Index | None, ...]
    constants: dict[str, bytes] = field(default_factory=dict)
    symbols: dict[str, int | None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    """Symbols that follow from others which only data tell, as plan expressions, in order."""
    checks: tuple[tuple[str, str], ...] = ()
    """Plan conditions on such symbols that must hold, with what is said where they do not."""
    computing: frozenset[str] = frozenset()
    """Products (the buffers they write) that may compute their operands instead of reading them."""

    def outside(self) -> Lowered:
        """What others see of the program: all but its nodes and the temporaries between them."""
        return replace(self, nodes=(), buffers={n: info for n, info in self.buffers.items() if info.role != "temporary"})


ExternArg = Union[PlanArg, BufferArg, Index, tuple]
