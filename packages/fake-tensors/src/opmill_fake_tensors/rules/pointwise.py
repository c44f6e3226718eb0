"""Pointwise operators: broadcast sizes, promoted type, strides as TensorIterator lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ..strides import broadcast, contiguous, is_dense, like, pointwise, same
from ..symbols.layouts import in_rows

Tensor = torch.Tensor
_empty = torch.empty_strided
_META = torch.device("meta")


class Pointwise(NamedTuple):
    """What is known of a pointwise operator, all its overloads alike.

    ``result``: which type the result has. ``"promote"``: that of all operands, numbers included; ``"tensors"``: of tensor operands alone;
    ``"float"``: promoted, and integers become the default float; ``"bool"``; ``"branches"``: that of all operands but the first.
    ``operands``: which ones the rows below answer for, torch's own kernel answers for others: ``"numbers"`` (no bools), ``"integers"`` (and
    bools), ``"floats"``. ``complexes``: they may be complex. ``copied``: the result is a tensor made like the operand, even where a loop
    would be laid out otherwise. ``in_place``: there is an operator of this name with an underscore, ``bools``: it writes to bools.
    ``converts``: torch's loop runs over operands that were converted, and laid out anew, where their types differ; only of operators
    that take tensors of several types."""

    result: str
    operands: str = "any"
    complexes: bool = False
    copied: bool = False
    in_place: bool = True
    bools: bool = False
    converts: bool = True


RECORDS: dict[str, Pointwise] = {}
"""By name without overload and library."""


def _declare(names: str, result: str, operands: str = "any", **facts: bool) -> None:
    for name in names.split():
        assert name not in RECORDS, name
        RECORDS[name] = Pointwise(result, operands, **{"converts": result != "tensors", **facts})


_declare("add mul", "promote", complexes=True)
_declare("sub", "promote", "subtracted", complexes=True)
_declare("rsub", "promote", "subtracted", complexes=True, in_place=False)
_declare("pow", "promote", "numbers", complexes=True)
_declare("remainder fmod clamp clamp_min clamp_max", "promote", "numbers")
_declare("maximum minimum fmax fmin", "promote", in_place=False)
_declare("bitwise_and bitwise_or bitwise_xor", "promote", "integers", bools=True)
_declare("bitwise_left_shift bitwise_right_shift", "promote", "integers")
_declare("__and__ __or__ __xor__ __lshift__ __rshift__", "promote", "integers", in_place=False)
_declare("hypot heaviside floor_divide", "promote")
_declare("gcd lcm", "promote", "numbers")
_declare("logaddexp logaddexp2", "promote", "floats", in_place=False)
_declare("igamma igammac", "promote", "floats")
_declare("nextafter", "promote", "floats")

_declare("abs", "tensors", "numbers", complexes=True)
_declare("neg", "tensors", "numbers", complexes=True)
_declare("relu sign floor ceil round trunc", "tensors", "numbers")
_declare("sgn", "tensors", complexes=True)
_declare("frac bitwise_not", "tensors")
_declare("positive", "tensors", in_place=False)
_declare("addcmul", "tensors", "numbers", complexes=True, converts=True)
_declare("addcdiv", "tensors", "floats", complexes=True, converts=True)
_declare("lerp", "tensors", "floats", complexes=True)
_declare("threshold gelu silu leaky_relu elu hardswish hardsigmoid mish celu", "tensors", "floats")
_declare("softplus softshrink hardshrink _prelu_kernel", "tensors", "floats", in_place=False)
_declare(
    "elu_backward hardsigmoid_backward hardswish_backward hardtanh_backward softplus_backward logit_backward",
    "tensors",
    "floats",
    in_place=False,
)
_declare("hardtanh", "tensors", "floats", copied=True)
_declare("nan_to_num", "tensors", "numbers", copied=True)

_declare("div exp log sqrt rsqrt reciprocal sin cos tan sinh cosh tanh sigmoid", "float", complexes=True)
_declare("ldexp", "float", "a power", complexes=True)
_declare("true_divide", "float", "torch's own", complexes=True)
_declare("angle", "float", complexes=True, in_place=False)
_declare("deg2rad rad2deg", "float", copied=True)
_declare("exp2 expm1 log2 log10 log1p asin acos atan asinh acosh atanh erf erfc erfinv lgamma digamma i0 logit sinc", "float")
_declare("atan2 copysign xlogy polygamma", "float")
_declare("special_entr special_i0e special_i1 special_i1e special_erfcx special_ndtri special_log_ndtr", "float", in_place=False)
_declare("special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_xlog1py special_zeta", "float", in_place=False)
_declare(
    "special_airy_ai special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0",
    "float",
    in_place=False,
)
for _name in (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
).split():
    _declare(f"special_{_name}", "float", in_place=False)

_declare("eq ne", "bool", complexes=True, bools=True)
_declare("lt le gt ge", "bool")
_declare("logical_and logical_or logical_xor logical_not", "bool", complexes=True, bools=True)
_declare("isnan", "bool", complexes=True, in_place=False)
_declare("isposinf isneginf signbit", "bool", in_place=False)
_declare("where", "branches", in_place=False)


def converted(name: str, args: list[Any]) -> list[Any]:
    """The operands as a CPU's loops see them: those of another than the common type are copies, and copies of expanded tensors are
    dense."""
    first = 1 if name == "where" else 0
    tensors = [a for a in args[first:] if isinstance(a, Tensor)]
    to_float = RECORDS[name].result == "float" and not any(t.is_floating_point() or t.is_complex() for t in tensors)
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
        own: torch.dtype = values[0].dtype
        return own
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
    copied = RECORDS[name].copied
    if len(tensors) == 1 and (copied or (name == "pow" and tensors[0] is not args[0])):
        [x] = tensors
        return _empty(x.size(), like(x.size(), x.stride()) if copied else contiguous(x.size()), dtype=dtype, device=_META)
    return laid_out(_with_number(name, overload, tensors), dtype)


def _with_number(name: str, overload: str, tensors: list[Tensor]) -> list[Tensor]:
    """The operands of a loop: torch makes a tensor of a number, which is of another shape than the tensor beside it."""
    if len(tensors) == 1 and (name == "floor_divide" or overload in _BESIDE_NUMBERS) and _oddly_strided(tensors[0]):
        return [*tensors, _empty((), (), dtype=tensors[0].dtype, device=_META)]
    return tensors


def _of_complexes(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Complex numbers, or a complex number beside real ones."""
    writes = name.endswith("_") and not name.endswith("__")
    record = RECORDS.get(name[:-1] if writes else name)
    if record is None or not record.complexes or not kwargs.keys() <= {"alpha", "value"}:
        return NotImplemented
    given = [a for a in args if isinstance(a, Tensor)]
    if writes:
        return _in_place(kind, name, given, args)
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


_BESIDE_NUMBERS = frozenset("Tensor Scalar Scalar_Other Scalar_Self other_scalar self_scalar Tensor_mode Scalar_mode".split())


def _oddly_strided(x: Tensor) -> bool:
    """Whether a dimension of one has a stride of its own, or there are no elements, where any stride is one."""
    if any(type(n) is int and n == 0 for n in x.size()):
        return True
    return not x._has_symbolic_sizes_strides and 1 in x.size() and x.stride() != contiguous(x.size())


def _in_place(kind: str, name: str, tensors: Sequence[Tensor], args: Sequence[Any]) -> Any:
    """The target itself, where the result fits into it; torch's kernel knows what it refuses."""
    first = tensors[0]
    if (
        first is not args[0]
        or (kind == "float" and not (first.is_floating_point() or first.is_complex()))
        or (first.dtype is torch.bool and not RECORDS[name[:-1]].bools)
    ):
        return NotImplemented
    dtype = (
        first.dtype
        if kind == "bool"
        else result_type(tensors if kind == "tensors" else [a for a in args if a is not None and type(a) is not str])
    )
    if not torch.can_cast(dtype, first.dtype) or not same(broadcast([t.size() for t in tensors]), first.size()):
        return NotImplemented
    return first


def _div(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _pointwise("promote" if kwargs.get("rounding_mode") else "float", name, overload, args, kwargs)


def _bool_checks(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Negation, remainders and the like are refused where all operands are bool: torch's kernel says so."""
    bools = [isinstance(a, Tensor) and a.dtype is torch.bool for a in args]
    to_itself = name == "pow" and type(args[1]) is bool  # the power of a number that is true or not is known
    if any(bools) and not to_itself and result_type([a for a in args if a is not None and type(a) is not str]) is torch.bool:
        return NotImplemented
    return _pointwise(kind, name, overload, args, kwargs)


def _sub(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Torch refuses subtraction of bools in its kernels, not where sizes and types are found."""
    bools = [a.dtype is torch.bool if isinstance(a, Tensor) else type(a) is bool for a in args[:2]]
    if any(bools):
        which = (
            "two bool tensors is not supported. Use the `^` or `logical_xor()` operator"
            if all(bools)
            else ("a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator")
        )
        raise RuntimeError(f"Subtraction, the `-` operator, with {which} instead.")
    return _pointwise(kind, name, overload, [args[1], args[0], *args[2:]] if name == "rsub" else args, kwargs)


def _floats_only(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Where the operator promotes, the common type has to be a float; else each operand."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    types = [result_type(tensors)] if kind == "promote" and tensors else [a.dtype for a in tensors]
    if not all(t.is_floating_point or t.is_complex for t in types):
        return NotImplemented
    return _pointwise("tensors", name, overload, args, kwargs)


def _bitwise(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if any(isinstance(a, float) or (isinstance(a, Tensor) and a.dtype.is_floating_point) for a in args):
        return NotImplemented
    return _pointwise(kind, name, overload, args, kwargs)


def _ldexp(kind: str, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """x * 2**y: the power of a number is a tensor in rows, however y lies; beside complex numbers two is a tensor."""
    x, y = args
    if x.is_complex():
        return _pointwise(kind, name, overload, args, kwargs)
    return _pointwise(kind, name, overload, [x, _empty(y.size(), contiguous(y.size()), dtype=y.dtype, device=_META)], kwargs)


def _pair(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Complex numbers of two real ones."""
    if overload != "" or kwargs or any(t.dtype is not args[0].dtype for t in args) or args[0].dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return laid_out(args, args[0].dtype.to_complex())


def _frexp(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Mantissas, and exponents, both laid out as a loop lays them out."""
    [x] = args
    if kwargs or not x.is_floating_point():
        return NotImplemented
    return laid_out([x], x.dtype), laid_out([x], torch.int32)


def _where(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if overload != "self" or kwargs:
        return NotImplemented
    return laid_out(args, result_type(args[1:]))


_RULES: dict[str, Callable[..., Any]] = {
    "any": _pointwise,
    "subtracted": _sub,
    "numbers": _bool_checks,
    "integers": _bitwise,
    "floats": _floats_only,
    "a power": _ldexp,
}
_WITH_ROUNDING = {"aten::div": _div, "aten::div_": _div}


def _rows() -> dict[str, Callable[..., Any]]:
    out: dict[str, Callable[..., Any]] = {}
    for name, record in RECORDS.items():
        if (rule := _RULES.get(record.operands)) is None or record.result == "branches":
            continue
        out[f"aten::{name}"] = partial(rule, record.result)
        if record.in_place:
            everywhere = record.operands in ("floats", "subtracted")
            out[f"aten::{name}_"] = partial(rule if everywhere else _pointwise, record.result)
    return {**out, **_WITH_ROUNDING, "aten::where": _where, "aten::complex": _pair, "aten::polar": _pair, "aten::frexp": _frexp}


RULES = _rows()
