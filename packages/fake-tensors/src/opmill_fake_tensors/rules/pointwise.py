"""Pointwise operators: broadcast sizes, promoted type, strides as TensorIterator lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..strides import broadcast, contiguous, is_dense, like, pointwise, same
from ..symbols.layouts import in_rows

Tensor = torch.Tensor
_empty = torch.empty_strided
_META = torch.device("meta")

# Which type the result has. ``promote``: that of all operands, numbers included; ``tensors``: of tensor operands alone;
# ``float``: promoted, and integers become the default float; ``bool``.
_NAMES = {
    "promote": "add sub rsub mul pow remainder fmod maximum minimum fmax fmin clamp clamp_min clamp_max bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ hypot "
    "heaviside logaddexp logaddexp2 nextafter floor_divide",
    "tensors": "abs neg relu sign sgn floor ceil round trunc frac bitwise_not addcmul addcdiv lerp threshold gelu silu leaky_relu elu hardtanh "
    "hardswish hardsigmoid softplus mish nan_to_num positive celu softshrink hardshrink _prelu_kernel",
    "float": "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "erfinv lgamma digamma sigmoid atan2 xlogy copysign logit sinc angle i0 deg2rad rad2deg special_entr special_i0e special_i1 special_i1e special_erfcx "
    "special_ndtri special_log_ndtr special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 polygamma special_xlog1py special_zeta",
    "bool": "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isposinf isneginf signbit",
}


_TO_FLOAT = frozenset((_NAMES["float"] + " div true_divide").split())
CONVERTING = _TO_FLOAT | frozenset((_NAMES["promote"] + " eq ne lt le gt ge logical_and logical_or logical_xor addcmul addcdiv where").split())
"""Operators that torch computes in another type than that of an operand: the common one of several tensors, or a float of integers."""


def converted(name: str, args: list[Any]) -> list[Any]:
    """The operands as a CPU's loops see them: those of another than the common type are copies, and copies of expanded tensors are dense."""
    first = 1 if name == "where" else 0
    tensors = [a for a in args[first:] if isinstance(a, Tensor)]
    to_float = name in _TO_FLOAT and not any(t.is_floating_point() or t.is_complex() for t in tensors)
    if not to_float and (len(tensors) < 2 or all(t.dtype is tensors[0].dtype for t in tensors)):
        return args
    common = torch.get_default_dtype() if to_float else result_type([a for a in args[first:] if a is not None and type(a) is not str])
    return [*args[:first], *(_copy(a, common) if isinstance(a, Tensor) else a for a in args[first:])]


def _copy(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype is dtype or is_dense(x.size(), x.stride()):
        return x
    return _empty(x.size(), like(x.size(), x.stride()), dtype=x.dtype, device=_META)


def _promote_all(values: Sequence[Any]) -> torch.dtype:
    """Torch's rule for any number of operands: tensors with dimensions, then those without, then numbers; a later class counts
    only where it is of a higher kind (bool < integer < float < complex)."""
    classes: list[torch.dtype | None] = [None, None, None]
    for v in values:
        if isinstance(v, Tensor):
            k, dtype = (0 if v.dim() else 1), v.dtype
        else:
            k, dtype = 2, torch.result_type(torch.empty((), dtype=torch.bool, device=_META), v)
        known = classes[k]
        classes[k] = dtype if known is None else torch.promote_types(known, dtype)
    out: torch.dtype | None = None
    for found in classes:
        if found is not None and (out is None or _kind(found) > _kind(out)):
            out = found if out is None or _kind(found) <= _kind(out) else _raise_kind(out, found)
    assert out is not None
    return out


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


def _raise_kind(low: torch.dtype, high: torch.dtype) -> torch.dtype:
    return torch.promote_types(low, high) if high.is_complex and low.is_floating_point else high


_STANDS_FOR: dict[type, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}


def result_type(values: Sequence[Any]) -> torch.dtype:
    """Type that the operands promote to."""
    values = [_STANDS_FOR.get(type(v), v) for v in values]
    if len(values) == 1:
        return values[0].dtype
    if len(values) == 2:
        return torch.result_type(*values)
    return _promote_all(values)


def laid_out(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """What TensorIterator allocates for these operands."""
    sizes: tuple[int, ...] = tensors[0].size()
    if all(same(t.size(), sizes) and in_rows(t) for t in tensors):
        return _empty(sizes, contiguous(sizes), dtype=dtype, device=_META)
    if len(tensors) > 1:
        sizes = broadcast([t.size() for t in tensors])
    return _empty(sizes, pointwise(tuple(sizes), [(tuple(t.size()), t.stride()) for t in tensors]), dtype=dtype, device=_META)


def _pointwise(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors or "out" in kwargs:
        return NotImplemented
    if any(t.is_complex() for t in tensors) or any(type(a) is complex for a in args):
        return _of_complexes(kind, name, overload, args, kwargs)
    if any(type(v) is complex for v in kwargs.values()):
        return NotImplemented
    if name.endswith("_") and not name.endswith("__"):
        return _in_place(kind, name, tensors, args)
    if kind == "tensors":
        dtype = result_type(tensors)
    else:
        dtype = result_type([a for a in args if a is not None and type(a) is not str])
    if kind == "bool":
        dtype = torch.bool
    elif kind == "float" and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    if len(tensors) == 1 and (name in _COPIED or (name == "pow" and tensors[0] is not args[0])):
        [x] = tensors
        return _empty(x.size(), like(x.size(), x.stride()) if name in _COPIED else contiguous(x.size()), dtype=dtype, device=_META)
    return laid_out(_with_number(name, overload, tensors), dtype)


def _with_number(name: str, overload: str, tensors: list[Tensor]) -> list[Tensor]:
    """The operands of a loop: torch makes a tensor of a number, which is of another shape than the tensor beside it."""
    if len(tensors) == 1 and (name == "floor_divide" or overload in _BESIDE_NUMBERS) and _oddly_strided(tensors[0]):
        return [*tensors, _empty((), (), dtype=tensors[0].dtype, device=_META)]
    return tensors


_COMPLEX = frozenset("add sub rsub mul div true_divide neg exp log sqrt rsqrt reciprocal sin cos tan sinh cosh tanh sigmoid sgn abs angle pow eq ne isnan lerp addcmul addcdiv".split())


def _of_complexes(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Complex numbers, or a complex number beside real ones."""
    if name not in _COMPLEX or not kwargs.keys() <= {"alpha", "value"}:
        return NotImplemented
    given = [a for a in args if isinstance(a, Tensor)]
    common = result_type(given if kind == "tensors" else list(args[:2]))
    tensors = [unmarked(a, common) for a in given]
    dtype = torch.bool if kind == "bool" else common.to_real() if name in ("abs", "angle") else common
    if name == "angle" or (name == "pow" and not isinstance(args[0], Tensor)):
        return _empty(tensors[0].size(), contiguous(tensors[0].size()), dtype=dtype, device=_META)
    return laid_out(_with_number(name, overload, tensors), dtype)


def unmarked(x: Tensor, common: torch.dtype) -> Tensor:
    """An operand as the loop sees it: what is marked as conjugated, or of another type, is a copy."""
    if x.dtype is common and not x.is_conj() and not x.is_neg():
        return x
    return _empty(x.size(), like(x.size(), x.stride()), dtype=common, device=_META)


_COPIED = frozenset("hardtanh nan_to_num deg2rad rad2deg".split())
"""Operators that compute into a tensor made like their operand. A number to the power of a tensor is dense."""
_BESIDE_NUMBERS = frozenset("Tensor Scalar Scalar_Other Scalar_Self other_scalar self_scalar".split())


def _oddly_strided(x: Tensor) -> bool:
    """Whether a dimension of one has a stride of its own."""
    return not x._has_symbolic_sizes_strides and 1 in x.size() and x.stride() != contiguous(x.size())  # type: ignore[attr-defined]


def _in_place(kind: str, name: str, tensors: Sequence[Tensor], args: Sequence[Any]) -> Any:
    """The target itself, where the result fits into it; torch's kernel knows what it refuses."""
    first = tensors[0]
    if first is not args[0] or (kind == "float" and not first.is_floating_point()) or (first.dtype is torch.bool and not name.startswith(_OF_BOOLS)):
        return NotImplemented
    dtype = first.dtype if kind == "bool" else result_type(tensors if kind == "tensors" else [a for a in args if a is not None and type(a) is not str])
    if not torch.can_cast(dtype, first.dtype) or not same(broadcast([t.size() for t in tensors]), first.size()):
        return NotImplemented
    return first


_OF_BOOLS = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical", "eq", "ne")


def _div(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _pointwise("promote" if kwargs.get("rounding_mode") else "float", name, overload, args, kwargs)


def _bool_checks(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Subtraction, negation and the like are refused for bool: torch's kernel says so."""
    if any(isinstance(a, Tensor) and a.dtype is torch.bool for a in args):
        return NotImplemented
    return _pointwise(kind, name, overload, args, kwargs)


def _sub(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Torch refuses subtraction of bools in its kernels, not where sizes and types are found."""
    bools = [a.dtype is torch.bool if isinstance(a, Tensor) else type(a) is bool for a in args[:2]]
    if any(bools):
        which = "two bool tensors is not supported. Use the `^` or `logical_xor()` operator" if all(bools) else (
            "a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator"
        )
        raise RuntimeError(f"Subtraction, the `-` operator, with {which} instead.")
    return _pointwise(kind, name, overload, [args[1], args[0], *args[2:]] if name == "rsub" else args, kwargs)


def _floats_only(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if any(isinstance(a, Tensor) and not (a.is_floating_point() or a.is_complex()) for a in args):
        return NotImplemented
    return _pointwise("tensors", name, overload, args, kwargs)


def _bitwise(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if any(isinstance(a, float) or (isinstance(a, Tensor) and a.dtype.is_floating_point) for a in args):
        return NotImplemented
    return _pointwise(kind, name, overload, args, kwargs)


def _pair(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Complex numbers of two real ones."""
    if overload != "" or kwargs or any(t.dtype is not args[0].dtype for t in args) or args[0].dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return laid_out(args, args[0].dtype.to_complex())


def _where(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if overload != "self" or kwargs:
        return NotImplemented
    return laid_out(args, result_type(args[1:]))


def _rows() -> dict[str, Callable[..., Any]]:
    out: dict[str, Callable[..., Any]] = {}
    for kind, names in _NAMES.items():
        for name in names.split():
            for suffix in ("", "_"):
                out[f"aten::{name}{suffix}"] = partial(_pointwise, kind)
    for name in "gelu silu leaky_relu elu hardswish hardsigmoid softplus mish addcdiv lerp hardtanh threshold celu softshrink hardshrink _prelu_kernel logaddexp logaddexp2 nextafter".split():
        out[f"aten::{name}"] = out[f"aten::{name}_"] = _floats_only
    for name in ("sub", "sub_", "rsub"):
        out[f"aten::{name}"] = partial(_sub, "promote")
    for name in "neg abs sign relu maximum clamp clamp_min clamp_max pow round floor ceil trunc addcmul remainder fmod nan_to_num".split():
        out[f"aten::{name}"] = partial(_bool_checks, "tensors" if name in _NAMES["tensors"].split() else "promote")
    for name in _NAMES["promote"].split():
        if name.startswith(("bitwise", "__")):
            out[f"aten::{name}"] = partial(_bitwise, "promote")
    return {**out, "aten::div": _div, "aten::div_": _div, "aten::where": _where, "aten::complex": _pair, "aten::polar": _pair}


RULES = _rows()
