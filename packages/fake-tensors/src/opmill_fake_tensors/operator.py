"""What is known of an operator: whether it writes, draws random numbers, depends on data, and how its result's shape is found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import compat
from .passing import out_of_memory
from .places import lead_into_memory
from .rules import checks, counted_rules, elsewhere_rules, rules, symbolic_rules
from .rules.pointwise import RECORDS, converted
from .strides import like

_EMPTY = (
    "aten::empty aten::empty_like aten::empty_strided aten::new_empty "
    "aten::new_empty_strided aten::empty_permuted aten::_efficientzerotensor"
).split()
_METADATA_ONLY = "aten::detach_ aten::requires_grad_ aten::_fw_primal aten::retain_grad".split()
_OF_TORCH = ("aten", "prim", "prims", "profiler", "sym")
_NUMBERS = ("int", "float", "bool", "number", "complex", "str", "SymInt", "SymFloat", "SymBool")
_EXCHANGING = ("_c10d_functional", "c10d_functional", "_dtensor::", "opmill_exchange::")
_UNPROBED = frozenset(
    f"aten::{n}"
    for n in "copy_ _to_copy clone fill_ zero_ set_ resize_ resize_as_ _local_scalar_dense record_stream _resize_output_".split()
)
"""Operators that take any type, or change what a tensor is."""
_PROBED = frozenset(
    f"aten::_{n}"
    for n in "cdist_forward adaptive_avg_pool3d adaptive_avg_pool2d softmax log_softmax native_batch_norm_legit addmm_activation "
    "softmax_backward_data log_softmax_backward_data upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d "
    "upsample_bilinear2d_aa upsample_bicubic2d_aa".split()
)
"""What functions of the user's become, of the operators whose names say that nobody calls them, and those that compare types themselves."""
_UNCHECKED = ("backward", "mkldnn", "cudnn", "miopen", "fbgemm", "quantize", "rnn", "lstm", "sparse", "nested", "segment", "lu_unpack")
"""Parts of names of operators that trust what they are given."""
_BOOL = (torch.bool, torch.uint8)
_MEMO_LIMIT = 20_000
_MEASURED = tuple(
    f"aten::{n}"
    for n in "linalg _linalg _embedding_bag _fft geqrf ormqr _cdist max_unpool log_sigmoid_forward nonzero_static replication_pad "
    "reflection_pad index_fill "
    "roll pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle native_dropout_backward nll_loss2d_forward glu".split()
)
"""Operators whose meta kernels promise layouts that the CPU does not keep: what they give is seen by running them once on zeros."""

_DROPPING = ("dropout_p", "dropout", "train")
"""Arguments of operators that draw numbers unless one of these is 0 or False."""

Geometry = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

_memo: dict[Any, Any] = {}
"""Results of torch's Python meta kernels as geometry, by operator and arguments: a pure function, remembered."""


_MARKED_FOR_OTHERS = ("aten::_ctc_loss",)
"""Overloads that are given as numbers what others have in tensors, and are marked by torch as these are: shapes tell all."""


class Operator:
    """Facts about one overload. ``writes``: argument names it writes data to; ``pure``: the same arguments give the same value;
    ``factory``: it may be called without tensors and takes a device; ``exchanges``: it talks to other processes."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.name: str = func.name()
        self.packet: str = schema.name
        self.overload: str = schema.overload_name
        self.base_name = self.packet.partition("::")[2]
        tags = getattr(func, "tags", ())
        mutable = schema.is_mutable and self.packet not in _METADATA_ONLY
        self.writes: tuple[str, ...] = tuple(a.name for a in schema.arguments if a.is_write) if mutable else ()
        self.counts_lists = bool(self.writes) and self.base_name.startswith("_foreach_")
        """Whether its kernels count writes of the tensors in a list: nothing above them does."""
        self.positions: dict[str, int] = {a.name: i for i, a in enumerate(schema.arguments)}
        self.aliases = any(a.alias_info is not None for a in schema.arguments) or any(r.alias_info is not None for r in schema.returns)
        self.gives_views = torch.Tag.inplace_view in tags or (self.aliases and not self.writes)
        self.exchanges = self.packet.startswith(_EXCHANGING)
        self.pure = (
            torch.Tag.nondeterministic_seeded not in tags and self.packet not in _EMPTY and not schema.is_mutable and not self.exchanges
        )
        self._may_draw = torch.Tag.nondeterministic_seeded in tags and self.base_name != "_fused_sdp_choice"
        self._wants_tensor = bool(schema.arguments) and str(schema.arguments[0].type) == "Tensor"
        self.takes_device = "device" in self.positions
        self.takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
        tells = self.packet.partition("::")[0] not in _OF_TORCH and any(str(r.type) in _NUMBERS for r in schema.returns)
        """It is of another library and gives a number, of which its fake kernel knows no more than shapes tell."""
        self.composite = _has_kernel(self.name, "CompositeImplicitAutograd") and not any(_has_kernel(self.name, k) for k in ("CPU", "Meta"))
        """Whether torch's own kernel is nothing but other operators, whatever it is called on."""
        self.names_device = self.composite and any(a.name == "device" and not a.kwarg_only for a in schema.arguments)
        """Whether what it is made of says which device is meant: meta tensors would be brought there."""
        self.shares = self.aliases or self.composite or self.gives_views
        """Whether results may lie in the memory of arguments."""
        self.probed = (
            self.packet.startswith("aten::")
            and (not self.base_name.startswith("_") or self.packet in _PROBED)
            and (self.packet in _PROBED or not any(part in self.base_name for part in _UNCHECKED))
            and not self.gives_views
            and self.packet not in _UNPROBED
            and torch.Tag.nondeterministic_seeded not in tags
            and any(_has_kernel(self.name, key) for key in ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"))
        )
        """Whether a kernel for processors says which types it takes."""
        marked = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
        self._dynamic = (marked and self.name not in _MARKED_FOR_OTHERS) or tells
        self._by_index = self.base_name in ("index", "_unsafe_index")
        self._rule: Callable[..., Any] | None = getattr(func, "opmill_shapes", None) or rules().get(self.packet)
        """A row of this package, or one that whoever defined the operator put on it."""
        self._symbolic_rule: Callable[..., Any] | None = symbolic_rules().get(self.packet)
        self._elsewhere: Callable[..., Any] | None = elsewhere_rules().get(self.packet)
        self.check: Callable[..., None] | None = checks().get(self.packet)
        """The row that raises as kernels do, and meta kernels do not."""
        self.counted: Callable[..., Any] | None = counted_rules().get(self.packet)
        """The row of one whose result has sizes that only data tell, or is such a number."""
        record = RECORDS.get(self.base_name)
        self._converts = record is not None and record.converts and not self.writes
        self._plain_view = self.gives_views and not _python_meta_kernel(self.name)
        """Made in C++, out of nothing but geometry."""
        self._measured = not self.aliases and not self.writes and self.packet.startswith(_MEASURED)
        self._sees_marks = self._measured and _has_kernel(self.name, "Conjugate")
        """Whether its kernel is given what is marked as conjugated as it lies: of others torch makes copies before."""
        self._memoised = not self.aliases and not self.writes and (self._measured or _python_meta_kernel(self.name))

    def draws(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call takes random numbers from a generator of torch's. One with a dropout of nothing does not."""
        if not self._may_draw:
            return False
        given = {**{name: args[i] for name, i in self.positions.items() if i < len(args)}, **kwargs}
        return all(given.get(name) != 0 for name in _DROPPING if name in self.positions and name in given)

    def lifts_numbers(self, others: Sequence[Any]) -> bool:
        """Whether a number in place of the first tensor has to be made one, which has a type of its own. Rows of pointwise operators take
        the number, which decides less about the type of the result than a tensor does."""
        promotes = self.base_name in RECORDS and any(isinstance(other, torch.Tensor) for other in others)
        return self._wants_tensor and not promotes

    def data_dependent(self, args: Sequence[Any]) -> bool:
        """Whether the result cannot be known from shapes."""
        if not self._dynamic:
            return False
        return not self._by_index or any(i is not None and i.dtype in _BOOL for i in args[1])

    def as_looped(self, args: list[Any], device: torch.device | None) -> list[Any]:
        """The arguments as the loop sees them that runs on this device: copies where it converts them first."""
        return converted(self.base_name, args) if self._converts and device is not None and device.type == "cpu" else args

    def by_row(self, args: list[Any], kwargs: dict[str, Any], device: torch.device | None, *, symbolic: bool = False) -> Any:
        """What this package's rules say, as meta tensors; NotImplemented where they do not, and for results that are written to tensors
        given. ``device``: where the result will be."""
        if self.writes and not kwargs.keys().isdisjoint(self.writes):
            return NotImplemented
        if self._elsewhere is not None and device is not None and device.type != "cpu":
            out = self._elsewhere(self.base_name, self.overload, args, kwargs)
            if out is not NotImplemented:
                return out
        if symbolic and self._symbolic_rule is not None:
            out = self._symbolic_rule(self.base_name, self.overload, args, kwargs)
            if out is not NotImplemented:
                return out
        return NotImplemented if self._rule is None else self._rule(self.base_name, self.overload, args, kwargs)

    def infer(self, args: list[Any], kwargs: dict[str, Any], device: torch.device | None = None) -> Any:
        """The result for meta tensors, as meta tensors. ``device``: where the result will be."""
        args = self.as_looped(args, device)
        out = self.by_row(args, kwargs, device)
        if out is not NotImplemented:
            return out
        if not self._memoised:
            return self._on_metas(args, kwargs)
        where = device.type if self._measured and device is not None else ""
        try:
            key = (self.name, where, torch.get_default_dtype(), _key(args), _key(tuple(kwargs.items())))
        except TypeError:
            return self._on_metas(args, kwargs)
        known = _memo.get(key)
        if known is not None:
            return _make(known)
        geometry = self._measure(args, kwargs) if where == "cpu" else None
        out = _make(geometry) if geometry is not None else self._on_metas(args, kwargs)
        geometry = geometry or _geometry(out)
        if len(_memo) > _MEMO_LIMIT:
            _memo.clear()
        if geometry is not None:
            _memo[key] = geometry
        return out

    def lies_otherwise(self, args: Any, kwargs: Any, promised: Any) -> bool:
        """Whether the kernel for processors gives something of other sizes or strides than what is promised, which is seen by running it
        once on zeros. All three in numbers (None: not known)."""
        if not self._measured or args is None or kwargs is None or promised is None:
            return False
        geometry = self._measure(args, kwargs)
        return geometry is not None and geometry != _geometry(promised)

    def _on_metas(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Torch's own answer."""
        if not self._plain_view:
            compat.defuse_meta_kernels()
        return self.func(*args, **kwargs)

    def _measure(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The geometry of what the operator gives on zeros; None where it refuses them."""
        try:
            given = [_zeros(a, self._sees_marks) for a in args], {k: _zeros(v, self._sees_marks) for k, v in kwargs.items()}
            lead_into_memory(self.func, *given)
            out = self.func(*given[0], **given[1])
        except (RuntimeError, IndexError, NotImplementedError) as error:
            if out_of_memory(error):
                raise
            return None
        return _geometry(out)


@functools.cache
def describe(func: Any) -> Operator:
    """The facts, found once an overload."""
    return Operator(func)


def _has_kernel(name: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    except RuntimeError:
        return False  # of no library: a capture made it


def _python_meta_kernel(name: str) -> bool:
    try:
        table = torch._C._dispatch_dump_table(name)
    except RuntimeError:
        return False
    line = next((x for x in table.splitlines() if x.startswith("Meta:")), "")
    return ".py:" in line or "torch._" in line


def _key(value: Any) -> Any:
    """Hashable and exact: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return value.size(), value.stride(), value.dtype, value.is_conj(), value.is_neg()
    if kind is list or kind is tuple:
        return kind, tuple(map(_key, value))
    return (kind, repr(value)) if kind is float else (kind, value)


def _zeros(arg: Any, sees_marks: bool) -> Any:
    """What a kernel is given in place of a fake. One that does not see marks is given a copy of what has any."""
    if isinstance(arg, torch.Tensor):
        copied = not sees_marks and (arg.is_conj() or arg.is_neg())
        strides = like(arg.size(), arg.stride()) if copied else arg.stride()
        zeros = torch.empty_strided(arg.size(), strides, dtype=arg.dtype, device="cpu").zero_()
        return zeros.conj() if arg.is_conj() and not copied else zeros
    if type(arg) is torch.device:
        return torch.device("cpu")
    return type(arg)([_zeros(a, sees_marks) for a in arg]) if type(arg) in (list, tuple) else arg


def _geometry(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return None if out.is_conj() or out.is_neg() or out.storage_offset() else (tuple(out.size()), out.stride(), out.dtype)
    if isinstance(out, (tuple, list)):
        parts = [_geometry(o) if isinstance(o, torch.Tensor) else o for o in out]
        return (type(out), parts) if None not in parts and all(isinstance(o, torch.Tensor) for o in out) else None
    return None


def _make(known: Any) -> Any:
    if len(known) == 3:
        return torch.empty_strided(known[0], known[1], dtype=known[2], device="meta")
    kind, parts = known
    return kind([_make(p) for p in parts])
