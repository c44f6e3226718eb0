"""Random numbers drawn into tensors of symbolic sizes; others are asked of torch's kernels, which also check what they are given."""

from __future__ import annotations

from typing import Any

import torch

from ..strides import broadcast
from ..table import Rules, alike, dense

RULES = Rules()
SYMBOLIC = Rules()
Tensor = torch.Tensor


@RULES.row("uniform")
def _uniform(overload: str, x: Tensor, *_: Any, **__: Any) -> Any:
    """Laid out as other operators lay out what they make of ``x``; torch's kernel for meta tensors promises the strides of ``x`` itself,
    gaps and all."""
    return alike(x) if overload == "" and (x.is_floating_point() or x.is_complex()) else NotImplemented


@RULES.row("normal_functional exponential log_normal cauchy geometric random")
def _drawn_anew(overload: str, x: Tensor, *_: Any, **__: Any) -> Any:
    """What operators that fill a tensor give in a graph, which writes nothing."""
    return alike(x) if overload in ("", "from", "to") else NotImplemented


@SYMBOLIC.row("bernoulli_ uniform_ normal_ random_ exponential_ log_normal_ cauchy_ geometric_")
def _fill(overload: str, x: Tensor, *_: Any, **__: Any) -> Any:
    return x


@SYMBOLIC.row("native_dropout")
def _dropout(overload: str, x: Tensor, p: float, train: Any) -> Any:
    return (alike(x), alike(x, torch.bool)) if overload == "" and 0 <= p <= 1 else NotImplemented


@RULES.row("bernoulli poisson _standard_gamma")
def _contiguous(overload: str, x: Tensor, *_: Any, **__: Any) -> Any:
    """However ``x`` lies; torch's kernels for meta tensors promise its layout."""
    return dense(x.size(), x.dtype) if x.is_floating_point() and (overload != "Tensor") else NotImplemented


@RULES.row("_sample_dirichlet _dirichlet_grad binomial")
def _contiguous_alone(overload: str, x: Tensor, *others: Any, **__: Any) -> Any:
    """As the kernels for processors make them; torch has none for meta tensors."""
    same = all(not isinstance(t, Tensor) or t.size() == x.size() for t in others)
    return dense(x.size(), x.dtype) if x.is_floating_point() and x.device.type in ("cpu", "meta") and same else NotImplemented


@RULES.row("normal")
def _normal(overload: str, mean: Any, deviation: Any = 1.0, *_: Any, **__: Any) -> Any:
    if overload == "float_float":
        return _of_sizes(*_, **__)
    tensors = [t for t in (mean, deviation) if isinstance(t, Tensor)]
    if overload not in ("Tensor_Tensor", "Tensor_float", "float_Tensor") or any(not t.is_floating_point() for t in tensors):
        return NotImplemented
    return dense(broadcast([t.size() for t in tensors]), tensors[0].dtype)


def _of_sizes(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, **_: Any) -> Any:
    return dense(size, dtype or torch.get_default_dtype()) if layout in (None, torch.strided) and not pin_memory else NotImplemented


@SYMBOLIC.row("bernoulli")
def _bernoulli_of(overload: str, x: Tensor, p: Any = None, **_: Any) -> Any:
    """The functional form of ``bernoulli_`` with a tensor of probabilities."""
    return alike(x) if overload == "Tensor" and isinstance(p, Tensor) else _contiguous(overload, x)


@SYMBOLIC.row("rand_like randn_like randint_like")
def _like(overload: str, x: Tensor, *_: Any, dtype: Any = None, memory_format: Any = None, **__: Any) -> Any:
    return alike(x, dtype) if memory_format in (None, torch.preserve_format) else NotImplemented


@RULES.row("rrelu_with_noise")
def _rrelu(overload: str, x: Tensor, noise: Tensor, *_: Any, **__: Any) -> Any:
    """However ``x`` lies, as the kernel for processors gives it."""
    return dense(x.size(), x.dtype) if overload == "" and x.is_floating_point() and x.size() == noise.size() else NotImplemented


@RULES.row("rrelu_with_noise_functional")
def _rrelu_and_noise(overload: str, x: Tensor, noise: Tensor, *_: Any, **__: Any) -> Any:
    given = _rrelu(overload, x, noise)
    return given if given is NotImplemented else (given, alike(noise))
