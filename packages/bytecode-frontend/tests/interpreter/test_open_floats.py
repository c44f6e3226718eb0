"""Operators of a tensor and floats that are others at each call: two captures serve all values, and give what torch gives for Python's."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_bytecode_frontend.entry.capture import capture

GENERATOR = torch.Generator().manual_seed(0)
X = torch.cat([torch.randn(5, 8, generator=GENERATOR) * 2, torch.tensor([[0.0, -0.0, math.nan, math.inf, -math.inf, 0.37, -0.37, 2.0]])])
MATRIX = torch.randn(8, 6, generator=GENERATOR)
ROW = torch.tensor([0, 2, 0])
MASK = torch.tensor([True, False, True])
VALUES = (0.4, 0.37, 1.7, 2.75, 0.11, 3.3)


def part(x: torch.Tensor) -> torch.Tensor:
    return x[:, :6].contiguous()


EXACT: dict[str, Callable[..., Any]] = {
    "clamp": lambda x, v: (x.clamp(-v, v), torch.clamp(x, v), x.clip(max=v), torch.clip(x, min=-v, max=2), torch.clamp(input=x, max=v)),
    "clamp_min": lambda x, v: (x.clamp_min(v), torch.clamp_max(x, v), torch.clamp_min(x, -v), x.clamp_max(v)),
    "crossed bounds": lambda x, v: x.clamp(v, -v),
    "leaky_relu": lambda x, v: (F.leaky_relu(x, v), F.leaky_relu(x, negative_slope=v), F.leaky_relu(x, -v)),
    "threshold": lambda x, v: (F.threshold(x, v, 0.25), F.threshold(x, 0.25, v), F.threshold(x, v, v), torch.threshold(x, -v, v)),
    "remainders": lambda x, v: (x % v, torch.fmod(x, v), x.remainder(-v), x // v, torch.floor_divide(x, v), v % x, v // x),
    "normalize": lambda x, v: F.normalize(x, eps=v),
    "elu": lambda x, v: (F.elu(x, v), F.elu(x, alpha=-v), torch.nn.ELU(v)(x)),
    "hardtanh": lambda x, v: (F.hardtanh(x, -v, v), F.hardtanh(x, max_val=v), F.hardtanh(x, min_val=-v)),
    "hardshrink": lambda x, v: (F.hardshrink(x, v), F.hardshrink(x, -v), torch.hardshrink(x, lambd=v)),
    "softshrink": lambda x, v: (F.softshrink(x, v), F.softshrink(x, lambd=v)),
    "div": lambda x, v: (torch.div(x, v, rounding_mode="floor"), x.div(v, rounding_mode="trunc"), torch.div(x, v)),
    "copysign": lambda x, v: (torch.copysign(x, v), x.copysign(2 - v)),
    "full_like": lambda x, v: (torch.full_like(x, v), x.new_full((2, 3), v), x.new_full(size=(2,), fill_value=v)),
    "clamp_": lambda x, v: (x.clone().clamp_(-v, v), x.clone().clamp_(max=v), x.clone().clamp_min_(v), x.clone().clamp_max_(v)),
    "index_fill": lambda x, v: (x.index_fill(0, ROW, v), torch.index_fill(x, 0, ROW, v), x.clone().index_fill_(0, ROW, v)),
    "scatter": lambda x, v: (x.scatter(0, ROW[None], v), torch.scatter(x, 0, ROW[None], v), x.clone().scatter_(0, ROW[None], v)),
    "where": lambda x, v: (torch.where(MASK, v, 0.0), torch.where(MASK, 1, v), torch.where(MASK, v, -v)),
    "linspace": lambda x, v: (torch.linspace(0, v, 5), torch.linspace(v, 1, 5, dtype=torch.float64), torch.linspace(-v, v, 4)),
    "logspace": lambda x, v: (torch.logspace(0, v, 5), torch.logspace(-v, v, 3, base=2)),
    "each": lambda x, v: (torch._foreach_clamp_min([x, x + 1], v), torch._foreach_clamp_max([x], v)),
    "each of several": lambda x, v: (
        torch._foreach_add([x, x + 1], [v, 2.0]),
        torch._foreach_mul([x], scalar=v),
        torch._foreach_add([x], scalars=[v]),
        torch._foreach_sub([x], [v]),
        torch._foreach_mul([x, -x], [1.0, v]),
        torch._foreach_div([x, x + 1], [v, 3]),
        torch._foreach_clamp_min([x, -x], [v, 0.0]),
        torch._foreach_lerp([x, -x], [x + 1, x], [v, 0.5]),
        torch._foreach_maximum([x, -x], v),
        torch._foreach_minimum([x, -x], [v, 1.0]),
    ),
    "of its type": lambda x, v: (x.new_tensor(v), torch.scalar_tensor(v), torch.scalar_tensor(v, dtype=torch.float64)),
    "tensors": lambda x, v: (torch.tensor(v, device="cpu"), torch.tensor([v, 1.0], dtype=torch.float64, device=torch.device("cpu"))),
    "a distribution": lambda x, v: torch.distributions.Normal(x, v + 1, validate_args=False).log_prob(x),
    "what no float has": lambda x, v: x * (2 if hasattr(v, "__torch_function__") else 3) * getattr(v, "shape", 2),
    "temperatures": lambda x, v: (F.softmax(x / v, -1), F.softmin(x * v, -1)),
}
ROUNDED: dict[str, Callable[..., Any]] = {
    "each and a factor": lambda x, v: (
        torch._foreach_addcmul([x, -x], [x, x], [x, x + 1], v),
        torch._foreach_addcmul([x], [x], [x], value=v),
        torch._foreach_addcdiv([x, -x], [x, x], [x + 9, x + 8], [v, 2.0]),
        torch._foreach_addcmul([x], [x], [x], scalars=[v]),
    ),
    "each in place": lambda x, v: (
        torch._foreach_mul_([a := x.clone()], [v]),
        torch._foreach_addcdiv_([a], [x], [x + 9], v),
        torch._foreach_add_([a], [v]),
        a,
        torch._foreach_addcmul_([b := x.clone(), a], [x, x], [x, x], [v, 2.0]),
        b,
    ),
    "the other way round": lambda x, v: (torch.rsub(x, x + 1, alpha=v), torch.true_divide(x, v), x.true_divide(v)),
    "celu": lambda x, v: (F.celu(x, v), torch.celu(x, alpha=v + 1), torch.nn.CELU(v)(x)),
    "softplus": lambda x, v: (F.softplus(x, v), F.softplus(x, v + 1, 5), F.softplus(x, beta=v, threshold=1)),
    "thresholds": lambda x, v: (F.softplus(x, 1.0, v), F.softplus(x, threshold=v), F.softplus(x, v, v), F.softplus(x, 2, threshold=v)),
    "renorm": lambda x, v: (torch.renorm(x, 2, 0, v), x.renorm(1, 1, v), torch.renorm(x, p=3.0, dim=-1, maxnorm=v)),
    "norms": lambda x, v: (
        torch.norm(x, v + 1),
        x.norm(v + 1, dim=1),
        torch.linalg.vector_norm(x, v + 1, dim=(0, 1), keepdim=True),
        F.normalize(x * 0 + 1, p=v + 1),
        torch.dist(x, x * 0.5, v + 1),
        x.dist(x.flip(0), p=v + 1),
    ),
    "norms of zeros": lambda x, v: (
        torch.norm(x.nan_to_num(0, 0, 0) * 0, v + 1),
        torch.linalg.norm(x.nan_to_num(0, 1, 2), dim=-1, ord=v + 2),
    ),
    "logit": lambda x, v: (torch.logit(x.sigmoid(), v / 10), x.sigmoid().logit(eps=v / 10), torch.special.logit(x, v / 20)),
    "added by index": lambda x, v: (
        torch.index_add(x, 0, ROW, x[:3], alpha=v),
        x.index_add(1, ROW, x[:, :3], alpha=v),
        x.clone().index_add_(0, ROW, x[:3], alpha=v),
    ),
    "special": lambda x, v: (torch.special.xlog1py(x, v), torch.special.zeta(x.detach().abs() + 2, v)),
    "ranges": lambda x, v: (
        torch.arange(v + 1),
        torch.arange(0, v + 2),
        torch.arange(-v, 3.0),
        torch.arange(0.0, 5, v),
        torch.arange(1, 2 + v, v, dtype=torch.float64),
    ),
    "sums of products": lambda x, v: torch.addbmm(part(x), x[None], MATRIX.to(x.dtype)[None], beta=v, alpha=v),
    "powers of several": lambda x, v: (torch._foreach_pow([x.abs(), x], [v, 1.5]), torch._foreach_pow(v, [x])),
    "powers of each": lambda x, v: torch._foreach_pow([x.abs(), x], v),
    "xlogy": lambda x, v: (torch.xlogy(x, v), x.xlogy(v)),
    "addr": lambda x, v: torch.addr(part(x), x[:, 0], x[0, :6], alpha=v),
    "powers of it": lambda x, v: (v**x, torch.pow(v, x)),
    "powers": lambda x, v: (x**v, torch.pow(x, v), x.pow(-v), x.abs() ** v),
    "addmm": lambda x, v: (torch.addmm(part(x), x, MATRIX.to(x.dtype), alpha=v), part(x).addmm(x, MATRIX.to(x.dtype), beta=v)),
    "addmm of a part": lambda x, v: torch.addmm(x[:, :6], x, MATRIX.to(x.dtype), alpha=v),
    "bias": lambda x, v: torch.addmm(x[0, :6], x, MATRIX.to(x.dtype), beta=v, alpha=v),
    "baddbmm": lambda x, v: torch.baddbmm(part(x)[None], x[None], MATRIX.to(x.dtype)[None], beta=2, alpha=v),
    "addmv": lambda x, v: torch.addmv(x[:, 0], x, MATRIX[:, 0].to(x.dtype), alpha=v),
}
ALL = EXACT | ROUNDED
ASSUMED = {"addmm of a part"}  # its result would not lie as torch's does
KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "float32": lambda: X.clone(),
    "float64": lambda: X.double(),
    "turned": lambda: X.t().contiguous().t(),
    "gradients": lambda: X.nan_to_num(0.5, 3.0, -3.0).requires_grad_(),
    "bfloat16": lambda: X.bfloat16(),
    "integers": lambda: X.nan_to_num(0.5, 3.0, -3.0).long(),
    "complex": lambda: X.nan_to_num(0.5, 3.0, -3.0) * (1 + 2j),
    "a number": lambda: torch.tensor(1.3),
}


def flat(made: Any) -> list[torch.Tensor]:
    """The tensors in lists and tuples."""
    return [made] if isinstance(made, torch.Tensor) else [tensor for each in made for tensor in flat(each)]


def outcome(fn: Callable[..., Any], x: torch.Tensor, v: float) -> Any:
    """What it gives, and gradients; or what it raises."""
    x = x.detach().clone().requires_grad_(x.requires_grad)
    try:
        given = fn(x, v)
        made = given if isinstance(given, tuple) else (given,)
        if x.requires_grad:
            sum(each.sum() for each in flat(made) if each.requires_grad).backward()
            return [*(each.detach() for each in flat(made)), x.grad]
        return flat(made)
    except Exception as error:
        return type(error), str(error)


def agree(ours: Any, theirs: Any, exact: bool) -> None:
    if isinstance(theirs, tuple):
        assert ours == theirs
        return
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        if exact:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        else:
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_all_values_give_what_torch_gives(name: str, kind: str) -> None:
    fn, x = ALL[name], KINDS[kind]()
    compiled = capture(fn, "eager")  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in (*VALUES, math.nan, math.inf, 0.0, 2.0, 0.5, -1.0):
            agree(outcome(compiled, x, value), outcome(fn, x, value), name in EXACT and kind != "gradients")


@pytest.mark.parametrize("kind", ["float32", "float64", "gradients"])
@pytest.mark.parametrize("name", sorted(ALL.keys() - ASSUMED))
def test_two_captures_serve_them(name: str, kind: str) -> None:
    translations: list[Any] = []
    compiled = capture(ALL[name], "eager", fullgraph=True, on_translation=translations.append)  # type: ignore[arg-type]
    for value in VALUES:
        compiled(KINDS[kind](), value)
    assert len(translations) == 2


@pytest.mark.parametrize("name", ["clamp", "clamp_min"])
def test_a_bound_that_data_tell_stays_open(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return ALL[name](x, x.abs().max().item())

    compiled = capture(fn, "eager")
    for scale in (1.0, 2.0, 3.0):
        x = X[:5] * scale
        agree(outcome(lambda x, v: compiled(x), x, 0.0), outcome(lambda x, v: fn(x), x, 0.0), True)


def test_what_is_written_in_place_is_as_it_was() -> None:
    def fn(x: torch.Tensor, v: float) -> Any:
        y = x.clone()
        return y.clamp_(-v, v), F.leaky_relu(y, v, inplace=True), y, F.threshold(y, 0.0, v, inplace=True)

    compiled = capture(fn, "eager")
    for value in VALUES:
        agree(outcome(compiled, X, value), outcome(fn, X, value), True)
