"""Loop IR: what a kernel generator is given.

A ``LoopKernel`` is a list of ``Nest``s that run one after the other. A nest iterates its outer ``axes`` (all independent: free to be
parallelised, split and reordered); at each outer point its ``phases`` run in order. A phase may loop over inner axes of its own,
accumulate reductions over them or scan along one of them, and store. What follows from that:

- a pointwise kernel is one phase without inner axes;
- a softmax is an outer row and three phases: max over j, sum over j, store over j;
- a column sum is a phase whose inner axis has the larger stride; the generator may exchange loops, since nothing but the
  reduction itself orders them;
- a running sum is a phase whose one inner axis is gone through in order.

Names: axes, lets, results of reductions and scans and size symbols share one namespace in a kernel; phases of a nest may use one name for
axes of their own only where these have one extent. An integer let may be used as a symbol
inside an ``Index`` (that is how gathers are written). Element types are torch's names (``"float32"``, ``"bool"``).
Everything here is immutable, compares by value and hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Union

from .index import Index

HALF = ("float16", "bfloat16")
"""Element types that are computed with in float32."""
SORTS = ("ascending", "descending")
"""Scans that put a row in order."""
LONGEST_SORT = 2048
"""Points of a row that is put in order by a kernel."""


@dataclass(frozen=True)
class _Hashed:
    """Hashes once: expressions share children and are looked up often."""

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")  # not a cached_property, which takes a lock
        if known is None:
            known = self.__dict__["_hash"] = hash((type(self).__name__, *self._key()))
        return known

    def _key(self) -> tuple[object, ...]:
        """What tells an expression from others of its type."""
        return tuple([getattr(self, f) for f in self.__dataclass_fields__])

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}  # hashes of strings differ from process to process


@dataclass(frozen=True)
class Const(_Hashed):
    """A constant. Compares by type and text: 0.0 is not -0.0, 1 is not True, NaN is NaN."""

    value: bool | int | float
    dtype: str

    def _key(self) -> tuple[str, str, str]:
        return type(self.value).__name__, repr(self.value), self.dtype

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Const) and hash(self) == hash(other) and self._key() == other._key())

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class IndexValue(_Hashed):
    """An index expression as a value (``arange``, masks, padding)."""

    index: Index
    dtype: str

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class Load(_Hashed):
    """``buffer[index]``, index in elements from the buffer's pointer. With ``mask``, memory is touched only where it is true,
    and the value is ``other`` elsewhere."""

    buffer: str
    index: Index
    dtype: str
    mask: Expr | None = None
    other: Const | None = None

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class Read(_Hashed):
    """The element of ``buffer`` at ``indices``, one a dimension: what stands for a ``Load`` in a program that is not scheduled yet (see
    ``lowered.py``). No kernel holds one."""

    buffer: str
    indices: tuple[Index, ...]
    dtype: str
    mask: Expr | None = None
    other: Const | None = None

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class Op(_Hashed):
    """A primitive of :mod:`.primitives` applied to operands; ``dtype`` is the result's. ``cast`` converts as torch's ``to`` does."""

    name: str
    args: tuple[Expr, ...]
    dtype: str

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class Ref(_Hashed):
    """A let, or a result of a reduction or a scan, by name."""

    name: str
    dtype: str

    __hash__ = _Hashed.__hash__


Expr = Union[Const, IndexValue, Load, Read, Op, Ref]


@dataclass(frozen=True)
class Axis:
    """Iterates ``name`` over ``[0, extent)``; extent is positive and depends on size symbols alone."""

    name: str
    extent: Index


@dataclass(frozen=True)
class Let:
    """Names a value. In a phase without inner axes it is visible to all later phases, else to the rest of its own phase."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Check:
    """Where ``condition`` is false the kernel stops and reports the number of this check (its position in the kernel)."""

    condition: Expr
    error: str
    message: str


@dataclass(frozen=True)
class Reduction:
    """Reduces ``value`` over the phase's inner axes; ``names`` are visible in later phases.

    ``op``: ``sum prod max min any all xor`` give one name; ``argmax argmin`` give (value, index: int64 position in the inner
    iteration space, first one wins, NaN wins over all); ``welford`` gives (mean, m2), m2 the sum of squared distances from the mean.
    ``dtype`` is the accumulation type. max and min propagate NaN."""

    names: tuple[str, ...]
    op: str
    value: Expr
    dtype: str


@dataclass(frozen=True)
class Scan:
    """Goes along the one inner axis of its phase in order (``reverse``: from the end); at each point ``names`` hold the result up to and
    including it, for later scans and the stores of the phase.

    ``op``: ``sum prod logaddexp`` of one value; ``affine`` of two (factor, term), ``s = factor * s + term`` (at the first point: the term);
    each gives one name. ``argmax argmin`` give (value, position: int64 along the axis), the last visited of equals, NaN wins over all.
    ``dtype`` is the type of the values and of what is kept.

    ``ascending descending`` give (value, position) of the whole row in order, not up to the point: at point k those of the k-th. NaN is
    above all, zeros are equal and keep their signs, equals stay in their order. They are computed of all points before anything is stored;
    ``dtype`` may be half precision, or bool. All phases of their nest have known extents, of at most ``LONGEST_SORT`` points, so that rows
    can be kept whole."""

    names: tuple[str, ...]
    op: str
    values: tuple[Expr, ...]
    dtype: str
    reverse: bool = False


StoreMode = Literal["set", "add", "mul", "max", "min"]
Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``; with another mode, what is there combined with the value, each point in turn: ``add`` (bools: or),
    ``mul`` (bools: and), ``max`` and ``min`` (NaN stays). The value has the buffer's dtype. ``first``, in phases that put rows in order:
    only so many points store, from the beginning of the row."""

    buffer: str
    index: Index
    value: Expr
    mode: StoreMode = "set"
    first: int | None = None


@dataclass(frozen=True)
class Phase:
    """Order within one inner point: lets, checks, reductions, scans, stores. Scans stand in phases of one inner axis and without
    reductions."""

    axes: tuple[Axis, ...] = ()
    lets: tuple[Let, ...] = ()
    checks: tuple[Check, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()
    scans: tuple[Scan, ...] = ()


@dataclass(frozen=True)
class Nest:
    """``origin`` says which user operations it comes from, for comments and profiles."""

    axes: tuple[Axis, ...]
    phases: tuple[Phase, ...]
    origin: str = ""


@dataclass(frozen=True)
class Buffer:
    """A kernel parameter: a pointer to elements of ``dtype``. ``numel`` bounds what the kernel touches (elements).

    Roles: ``in`` read only, ``out`` written before it is read, ``inout`` both. Two parameters may be the same memory only when one
    is read and the other written at equal indices at each point (in-place); pointers are element-aligned, no more. ``early``: the kernel
    launched before does not write it, so that a device may read it while that one still runs."""

    name: str
    dtype: str
    role: Role
    numel: Index
    origin: str = ""
    early: bool = False


@dataclass(frozen=True)
class Placed:
    """A tensor in memory: its element at ``(p0, p1, ...)`` is ``buffer[offset + p0 * strides[0] + p1 * strides[1] + ...]``."""

    buffer: str
    offset: int
    strides: tuple[int, ...]


AttentionPart = Literal["forward", "keys", "queries"]
POSITIONS = ("b", "h", "i", "j")
"""In the functions of attention: batch, head, query and key."""


@dataclass(frozen=True)
class Attention:
    """Rows of values weighted by the exponentials of scores, or gradients of that. Everything is computed in float32 but for the operands
    of products, which are of ``dtype``.

    At each point ``(b, h, i, j)``, the score is ``scale * sum over c of query[b, h, i, c] * key[b, h // shared, j, c]``; ``changed`` is
    ``score`` where ``kept`` holds, else minus infinity. Both are of the points (as axes of these names), of what they load, and of
    ``Ref("score", "float32")``.

    - ``forward``: ``output[b, h, i, e]``, the mean of ``value[b, h // shared, j, e]`` weighted by ``exp(changed)`` (0 where no pair is
      kept); if asked for, ``sums[b, h, i]``, the logarithm to base 2 of the sum of ``exp(changed)``, and ``largest[b, h, i]``, the largest
      of ``changed``, times log2(e).
    - ``keys`` and ``queries``: with ``weight = exp2(changed * log2(e) - sums[b, h, i])`` (0 in rows without any), ``weighted`` is
      ``weight * (sum over e of gradient[b, h, i, e] * value[b, h // shared, j, e] - rows[b, h, i])``, and ``slope`` the score's gradient,
      where ``Ref("gradient", "float32")`` is ``weighted``. ``query_gradient`` sums ``scale * slope * key`` over j, ``key_gradient``
      ``scale * slope * query`` over i and the heads of a key, ``value_gradient`` ``weight * gradient``.

    ``operands``: where each of these tensors is. With ``query_block`` and ``key_block``, they tell of whole blocks of pairs what ``kept``
    says, so that a kernel need not ask: no pair counts outside of those blocks that are listed, each pair of full ones does.
    ``listed[b, h, k, :]`` has the numbers of blocks, ``count[b, h, k]`` says how many; ``full`` and ``full_count`` are of full blocks,
    where there are any. ``k`` is the number of a block of queries, or of keys for ``keys``. Sizes of blocks are multiples of 16.

    ``shared`` heads of the query have one of keys and values. All sizes are positive;
    ``width`` (of queries and keys) and ``depth`` (of values) are powers of two from 16 on."""

    part: AttentionPart
    dtype: str
    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    width: int
    depth: int
    scale: float
    operands: tuple[tuple[str, Placed], ...]
    score: Expr
    kept: Expr
    slope: Expr | None = None
    query_block: int = 0
    key_block: int = 0

    BLOCKS: ClassVar = ("count", "listed", "full_count", "full")
    RESULTS: ClassVar = ("output", "sums", "largest"), ("query_gradient", "key_gradient", "value_gradient")

    @property
    def written(self) -> tuple[str, ...]:
        """The operands that it computes."""
        return tuple(name for name, _ in self.operands if name in self.RESULTS[self.part != "forward"])

    def functions(self) -> tuple[Expr, ...]:
        """What is computed at each point."""
        return (self.score, self.kept) if self.slope is None else (self.score, self.kept, self.slope)


@dataclass(frozen=True)
class LoopKernel:
    """``symbols`` are the size symbols, in the order in which their values are passed. A kernel of ``attention`` has no nests."""

    name: str
    buffers: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    symbols: tuple[str, ...] = ()
    attention: Attention | None = None
