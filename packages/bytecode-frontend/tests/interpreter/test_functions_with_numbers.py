"""Functions of torch with a number that is another at each of six calls: what is given is eager's, and two captures serve where torch.compile
takes two (each of the first lists was measured beside it)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from alike import equal, near, outcome, same

from opmill_bytecode_frontend.entry.capture import capture

FLOATS = """
    F.elu(x, v); F.celu(x, v); F.leaky_relu(x, v); F.hardshrink(x, v); F.softshrink(x, v); F.softplus(x, v);
    F.softplus(x, 1.0, v); F.softplus(x, threshold=v); F.hardtanh(x, -v, v); F.threshold(x, v, v); F.gumbel_softmax(x, v);
    F.gumbel_softmax(x, tau=v, hard=True); F.local_response_norm(x[None], 2, alpha=v);
    F.local_response_norm(x[None], 2, beta=v); F.local_response_norm(x[None], 2, k=v); F.normalize(x, eps=v);
    F.normalize(x, p=v+1); F.triplet_margin_with_distance_loss(x, y, z, margin=v);
    F.gaussian_nll_loss(x, y, z.abs(), eps=v); F.embedding(t, x, norm_type=v+1); torch.clamp(x, -v, v);
    torch.clamp(x, max=v); x.clamp(v); torch.renorm(x, 2, 0, v); torch.dist(x, y, v+1); torch.norm(x, v+1);
    x.norm(v+1, dim=1); torch.linalg.norm(x, dim=1, ord=v+1); torch.linalg.vector_norm(x, v+1);
    torch.allclose(x, y, atol=v); torch.full((2, 3), v); torch.full((2, ), v, dtype=torch.float64); torch.full_like(x, v);
    x.new_full((2, ), v); torch.arange(v); torch.arange(0, v); torch.arange(0.0, 1.0, v); torch.arange(v, 3.0);
    torch.arange(0, 3, v+.5); torch.linspace(0, v, 4); torch.linspace(v, 1, 4); torch.logspace(0, v, 4); torch.tensor(v);
    torch.tensor([v, 1.]); torch.as_tensor(v); torch.scalar_tensor(v); torch.addcmul(x, y, z, value=v);
    torch.addcdiv(x, y, z.abs()+1, value=v); x.addcmul(y, z, value=v); x.clone().addcdiv_(y, z.abs()+1, value=v);
    torch.lerp(x, y, v); x.lerp(y, v); torch.add(x, y, alpha=v); torch.sub(x, y, alpha=v); torch.rsub(x, y, alpha=v);
    x.clone().add_(y, alpha=v); x.clone().sub_(y, alpha=v); torch.addmm(sq, sq, sq, beta=v, alpha=v);
    torch.addbmm(sq, sq[None], sq[None], alpha=v); torch.baddbmm(sq[None], sq[None], sq[None], beta=v);
    torch.addmv(w, sq, w, alpha=v); torch.addr(sq, w, w, alpha=v); torch.mul(x, v); torch.div(x, v);
    torch.div(x, v, rounding_mode='floor'); torch.true_divide(x, v); torch.floor_divide(x, v); torch.remainder(x, v);
    torch.fmod(x, v); torch.pow(x, v); torch.pow(v, x); x**v; v**x; torch.eq(x, v); torch.gt(x, v); x<v; torch.ge(x, v);
    torch.ne(x, v); torch.maximum(x, torch.tensor(v)); torch.minimum(x, x.new_tensor(v)); torch.where(x>0, x, v);
    torch.where(x>v, x, 0.); torch.masked_fill(x, x>0, v); x.clone().masked_fill_(x>0, v); x.clone().fill_(v);
    x.index_fill(1, i, v); x.clone().index_add_(1, i, z[:, :2], alpha=v); torch.index_add(x, 1, i, z[:, :2], alpha=v);
    x.scatter(1, ii, v); torch.heaviside(x, torch.tensor(v)); torch.copysign(x, v); torch.xlogy(x, v);
    torch.special.xlog1py(x, v); torch.special.zeta(x.abs()+2, v); torch.special.logit(x.sigmoid(), v*.1);
    torch.logit(x.sigmoid(), eps=v*.1); x.sigmoid().logit(v*.1); torch.threshold(x, v, 0.); torch.celu(x, v);
    torch.hardshrink(x, v); torch.clip(x, v); torch.hypot(x, torch.tensor(v)); torch.atan2(x, torch.full_like(x, v));
    torch.softmax(x/v, -1); torch.logsumexp(x*v, -1); torch.signal.windows.gaussian(5, std=v);
    torch.complex(x, torch.full_like(x, v)).abs(); torch.polar(x.abs(), torch.full_like(x, v)).abs();
    torch.ldexp(x, torch.tensor(v)); torch._foreach_add([x, y], v); torch._foreach_mul([x, y], v);
    torch._foreach_sub([x, y], v); torch._foreach_div([x, y], v); torch._foreach_add([x, y], [y, x], alpha=v);
    torch._foreach_sub([x, y], [y, x], alpha=v); torch._foreach_addcmul([x, y], [y, z], [z, z], v);
    torch._foreach_addcmul([x, y], [y, z], [z, z], value=v); torch._foreach_addcdiv([x, y], [y, z], [z+9, z+9], v);
    torch._foreach_addcmul([x, y], [y, z], [z, z], [v, 1.]); torch._foreach_addcdiv([x, y], [y, z], [z+9, z+9], [v, 2.]);
    torch._foreach_lerp([x, y], [y, z], v); torch._foreach_lerp([x, y], [y, z], [v, .5]);
    torch._foreach_pow([x.abs(), y.abs()], v); torch._foreach_pow([x.abs(), y.abs()], [v, 2.]);
    torch._foreach_pow(v, [x, y]); torch._foreach_mul([x, y], [v, 2.]); torch._foreach_add([x, y], [v, 2.]);
    torch._foreach_div([x, y], [v, 2.]); torch._foreach_sub([x, y], [v, 2.]); torch._foreach_clamp_min([x, y], v);
    torch._foreach_clamp_max([x, y], [v, 1.]); torch._foreach_maximum([x, y], v); torch._foreach_minimum([x, y], [v, 1.]);
    ip(torch._foreach_mul_, [x, y], v); ip(torch._foreach_addcmul_, [x, y], [y, z], [z, z], v);
    ip(torch._foreach_addcdiv_, [x, y], [y, z], [z+9, z+9], [v, 2.]); ip(torch._foreach_lerp_, [x, y], [y, z], v);
    ip(torch._foreach_add_, [x, y], [v, 2.]); torch.fill(x, v); torch.isin(x, v); torch.isin(x, v, invert=True);
    torch.isin(x.t(), v); torch.isin(torch.full_like(x, v), v); torch.bucketize(v, w.sort()[0]);
    torch.bucketize(v, w.sort()[0], right=True); torch.searchsorted(w.sort()[0], v, out_int32=True);
    torch.bucketize(v, torch.full((1, ), v)); torch.searchsorted(torch.tensor([v, v]), v, side='right');
    torch.searchsorted(sorted_sequence=w.sort()[0], input=x); torch.bucketize(input=x, boundaries=w.sort()[0]);
"""
"""Programs of a tensor ``x`` and a float ``v`` that is not assumed."""
INTS = """
    x.roll(n); x.roll(n, 1); torch.topk(x, n)[0]; x.kthvalue(n)[0]; F.one_hot(t, n+4); F.pad(x, (n, 1));
    F.pad(x, (n, n), value=1.); x.narrow(1, 0, n); x[:, :n]; x[:, n]; x.select(1, n); x.tril(n); x.triu(-n); torch.eye(n);
    torch.zeros(n); torch.arange(n); torch.arange(n, 20); torch.arange(0, 20, n); torch.linspace(0, 1, n);
    torch.full((n, ), 1.); torch.full((2, ), n); torch.randperm(n); torch.randint(0, n+1, (2, )); torch.randint(n, (2, ));
    x.repeat(n, 1); x.tile(n); x.repeat_interleave(n); x.expand(n, *x.shape); torch.pow(x, n); x**n; n**x; torch.fmod(x, n);
    torch.remainder(t, n); t//n; t%n; t<<n; t>>n; t&n; t.__or__(n); t^n; torch.bitwise_and(t, n);
    torch.bitwise_left_shift(t, n); torch.gcd(t, torch.tensor(n)); torch.clamp(t, max=n); torch.eq(t, n);
    torch.where(t>n, t, n); t.masked_fill(t>0, n); t.clone().fill_(n); torch.multinomial(x.softmax(-1), n);
    torch.isin(t, n); torch.bucketize(n, w.sort()[0]); x.flatten()[:n*2]; torch.fft.fft(x, n); torch.fft.rfft(x, n=n).abs();
    torch.var(x, correction=n); F.cross_entropy(x, t, ignore_index=n); F.nll_loss(x, t, ignore_index=n);
    F.conv1d(x[None], k, padding=n); F.conv1d(x[None], k, stride=n%2+1); F.conv1d(x[None], k, dilation=n%2+1);
    torch.scalar_tensor(n); torch.tensor(n); torch.tensor([n, 1]); torch.as_tensor([n]); x.new_full((2, ), n);
    x.new_zeros(n); torch.empty(n).shape[0]; x.index_select(1, torch.tensor([n])); x.clone().index_fill_(1, i, n);
    x.clone().scatter_(1, ii, n); torch.lerp(x, y, n); torch.add(x, y, alpha=n); torch.addmm(sq, sq, sq, beta=n);
    torch.addcmul(x, y, z, value=n); torch.renorm(x, 2, 0, n);
"""
"""Programs of a tensor and an int ``n`` that is not assumed."""
ASSUMED_FLOATS = """
    F.rrelu(x, v, v+1); F.rrelu(x, v, v+1, training=True); F.dropout(x, v); F.dropout(x, v, training=False);
    F.alpha_dropout(x, v); F.alpha_dropout(x, v, training=True); F.feature_alpha_dropout(x[None, None], v, training=True);
    F.dropout1d(x[None], v); F.dropout2d(x[None], v); F.dropout3d(x[None, None], v); F.layer_norm(x, (8, ), eps=v);
    F.layer_norm(x, (8, ), w, b, v); F.rms_norm(x, (8, ), eps=v); F.rms_norm(x, (8, ), w, v);
    F.group_norm(x[None], 2, eps=v); F.instance_norm(x[None], eps=v); F.instance_norm(x[None], momentum=v);
    F.batch_norm(x, zeros, ones, eps=v); F.batch_norm(x, zeros.clone(), ones.clone(), training=True, momentum=v);
    F.batch_norm(x, zeros.clone(), ones.clone(), training=True, eps=v); F.cross_entropy(x, t, label_smoothing=v);
    F.cross_entropy(x, x.softmax(-1), label_smoothing=v); F.huber_loss(x, y, delta=v); F.smooth_l1_loss(x, y, beta=v);
    F.margin_ranking_loss(x, y, s, margin=v); F.hinge_embedding_loss(x, s, margin=v);
    F.cosine_embedding_loss(x, y, s[:, 0], margin=v); F.multi_margin_loss(x, t, margin=v);
    F.triplet_margin_loss(x, y, z, margin=v); F.triplet_margin_loss(x, y, z, p=v+1); F.triplet_margin_loss(x, y, z, eps=v);
    F.triplet_margin_loss(x, y, z, swap=True, margin=v); F.poisson_nll_loss(x, y.abs(), eps=v);
    F.poisson_nll_loss(x, y.abs(), log_input=False, eps=v); F.cosine_similarity(x, y, eps=v);
    F.pairwise_distance(x, y, p=v+1); F.pairwise_distance(x, y, eps=v); F.pdist(x, p=v+1);
    F.lp_pool1d(x.abs()[None], v+1, 2); F.lp_pool2d(x.abs()[None, None], v+1, 2); F.interpolate(x[None], scale_factor=v+1);
    F.interpolate(x[None, None], scale_factor=(v+1, 1), mode='bilinear'); F.pad(x, (1, 1), value=v);
    F.scaled_dot_product_attention(x[None], y[None], z[None], scale=v); F.embedding(t, x, max_norm=v+1);
    torch.nan_to_num(x, v); torch.nan_to_num(x, nan=v, posinf=v, neginf=-v); x.nan_to_num(v); x.clone().nan_to_num_(v);
    torch.renorm(x, v+1, 0, 1.0); torch.cdist(x, y, p=v+1); torch.linalg.pinv(x, rtol=v);
    torch.linalg.matrix_rank(x, tol=v); torch.histc(x, 4, -v, v); torch.histc(x, bins=4, min=0, max=v);
    torch.isclose(x, y, rtol=v); torch.isclose(x, y, atol=v); torch.quantile(x, v); torch.nanquantile(x, v);
    x.quantile(v, dim=1); torch.float_power(x.abs(), v); x.clone().fill_diagonal_(v);
    torch.bernoulli(x, v); x.clone().bernoulli_(v); x.clone().uniform_(-v, v); x.clone().normal_(0, v);
    x.clone().normal_(v, 1); torch.normal(v, 1.0, (2, )); torch.normal(0.0, v, (2, )); torch.normal(x, v);
    torch.normal(v, x.abs()); x.clone().exponential_(v); x.clone().cauchy_(0, v); x.clone().log_normal_(0, v);
    x.clone().geometric_(v); torch.rrelu(x, v, 1.); torch.dropout(x, v, True); torch.native_dropout(x, v, True)[0];
    torch.layer_norm(x, (8, ), eps=v); torch.group_norm(x[None], 2, eps=v); torch.trapezoid(x, dx=v); torch.trapz(x, dx=v);
    torch.cumulative_trapezoid(x, dx=v); torch.gradient(x, spacing=v)[0];
    torch.std(x, correction=v); torch.var(x, correction=v);
    x.var(1, correction=v); torch.fake_quantize_per_tensor_affine(x, v, 0, -128, 127);
    torch.quantize_per_tensor(x, v, 0, torch.qint8).dequantize(); torch._foreach_norm([x, y], v+1);
    ip(torch._foreach_maximum_, [x, y], v);
"""
"""Programs that need the value: each is a capture, until the graph ends there. torch.compile takes as many for most."""
ASSUMED_INTS = """
    F.avg_pool1d(x[None], n, 1); F.max_pool1d(x[None], n, 1); F.interpolate(x[None], size=n+3);
    F.adaptive_avg_pool1d(x[None], n); torch.tril_indices(4, 5, n); x.unfold(1, n, 1); x.split(n, 1)[0]; x.chunk(n, 1)[0];
    torch.tensor_split(x, n, 1)[0]; x.diagonal(n-2); torch.diag(w, n); torch.diag_embed(w, n); torch.diff(x, n);
    torch.combinations(w, n%3+1); torch.bincount(t, minlength=n+8); torch.histc(x, n); torch.float_power(x.abs(), n);
    torch.matrix_power(sq, n); torch.polygamma(n%3+1, x.abs()+1); torch.mvlgamma(x.abs()+9, n);
    x.unflatten(1, (-1, 8//(2**(n%3)))); x.view(-1, 2**(n%3)); x.reshape(2**(n%3), -1); x.movedim(0, n%2); x.sum(n%2);
    x.softmax(n%2); x.round(decimals=n); torch.hann_window(n+2);
    torch.stft(x.flatten(), 8, hop_length=n, return_complex=True).abs(); torch.vander(w, n);
    F.group_norm(x[None], 2**(n%3)); F.channel_shuffle(x[None, :4, None, :4], 2**(n%3)); F.embedding(t, x, padding_idx=n%4);
    F.glu(x, n%2); F.local_response_norm(x[None], n); F.lp_pool1d(x.abs()[None], 2, n); torch.take_along_dim(x, ii, n%2);
    torch.rot90(x, n); torch.nn.functional.softmin(x, n%2); torch.cat([x]*n); torch.stack([x]*n); torch.block_diag(*[x]*n);
    torch.cartesian_prod(*[w]*(n%3+1)); torch.trapz(x, dx=n); x.new_tensor(n); torch.manual_seed(n).initial_seed();
    x.argsort(n%2); torch.quantile(x, 1/n); torch.norm(x, n); torch.linalg.vector_norm(x, n); torch.cdist(x, y, p=n);
"""
"""The same of ints: shapes that are multiples of them, or dimensions."""
GENERATOR = torch.Generator().manual_seed(0)
X, Y, Z = (torch.randn(4, 8, generator=GENERATOR) for _ in range(3))
W, B = (torch.randn(8, generator=GENERATOR) for _ in range(2))


def ip(function: Callable[..., object], tensors: list[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    """What a function that writes to tensors leaves in copies of them."""
    tensors = [tensor.clone() for tensor in tensors]
    function(tensors, *rest)
    return tensors


SPACE: dict[str, Any] = {
    "torch": torch, "F": F, "ip": ip, "y": Y, "z": Z, "w": W, "b": B, "s": Y.sign(), "t": torch.tensor([0, 3, 2, 1]),
    "zeros": torch.zeros(8), "ones": torch.ones(8), "sq": torch.randn(8, 8, generator=GENERATOR), "i": torch.tensor([0, 2]),
    "ii": torch.arange(4).repeat(4, 2), "k": torch.randn(2, 4, 3, generator=GENERATOR),
}  # fmt: skip


def listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(";") if each.strip()]


def program(text: str, number: str, dtype: torch.dtype = torch.float32) -> Callable[..., Any]:
    space = {name: typed(value, dtype) for name, value in SPACE.items()}
    exec(f"def fn(x, {number}):\n    return {text}", space)
    return space["fn"]  # type: ignore[no-any-return]


def typed(value: Any, dtype: torch.dtype) -> Any:
    """A tensor of floats in another type; other things as they are."""
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def captures(text: str, number: str, dtype: torch.dtype = torch.float32) -> int:
    """How many captures serve six values, for which the results are held against eager's: those of narrow types to the last bit."""
    made: list[Any] = []
    fn = program(text, number, dtype)
    compiled = capture(fn, "eager", on_translation=made.append)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(1, 7):
            given = []
            for each in (compiled, fn):
                torch.manual_seed(k)
                given.append(outcome(each, X.to(dtype, copy=True), k if number == "n" else k / 10 + 0.05))
            assert same(*given, near() if dtype is torch.float32 else equal)
    return len(made)


@pytest.mark.parametrize(("text", "number"), [(t, "v") for t in listed(FLOATS)] + [(t, "n") for t in listed(INTS)])
def test_two_captures_serve_all_values(text: str, number: str) -> None:
    assert captures(text, number) <= 2


@pytest.mark.parametrize(("text", "number"), [(t, "v") for t in listed(ASSUMED_FLOATS)] + [(t, "n") for t in listed(ASSUMED_INTS)])
def test_values_that_are_assumed_give_what_eager_gives(text: str, number: str) -> None:
    assert captures(text, number) <= 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("text", listed(FLOATS) + listed(ASSUMED_FLOATS))
def test_narrow_types_are_rounded_as_often_as_eager_does(text: str, dtype: torch.dtype) -> None:
    assert captures(text, "v", dtype) <= 8
