"""Rows against eager: sizes, strides and types over random shapes, types and layouts, and torch's own samples."""

from __future__ import annotations

import itertools
import operator
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from opmill_fake_tensors import DataDependent, FakeContext, NoFakeKernel
from opmill_fake_tensors.views import expanded, strides_of_view

F = torch.nn.functional
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]


def geometry(x: torch.Tensor) -> tuple[Any, ...]:
    """What must agree; the stride of a dimension of size one means nothing."""
    return tuple(x.shape), x.dtype, tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n != 1) if x.numel() else ()


def check(fn: Any, *args: Any) -> None:
    try:
        expected = pytree.tree_leaves(fn(*args))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return  # torch's own meta kernels refuse less than eager does: the operator refuses when it runs
    with FakeContext() as ctx:
        got = pytree.tree_leaves(fn(*pytree.tree_map_only(torch.Tensor, ctx.from_tensor, args)))
    assert [geometry(e) for e in expected] == [geometry(g) for g in got]


@st.composite
def tensors(draw: Any, sizes: Any = None, dtypes: Any = tuple(DTYPES)) -> torch.Tensor:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=4)) if sizes is None else sizes
    order = draw(st.permutations(range(len(sizes))))
    x = torch.ones([sizes[d] for d in order], dtype=draw(st.sampled_from(dtypes)))
    x = x.permute([order.index(d) for d in range(len(sizes))])
    if sizes and draw(st.booleans()):
        x = torch.cat([x, x], -1)[..., :: draw(st.sampled_from([1, 2]))][..., : sizes[-1]]
    return x


@st.composite
def broadcastable(draw: Any) -> tuple[torch.Tensor, ...]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=4))
    out = []
    for _ in range(draw(st.integers(1, 3))):
        keep = draw(st.integers(0, len(sizes)))
        out.append(draw(tensors([n if draw(st.booleans()) else 1 for n in sizes[keep:]])))
    return tuple(out)


BINARY = [
    torch.complex,
    torch.polar,
    torch.add,
    torch.mul,
    torch.maximum,
    torch.eq,
    torch.logical_and,
    torch.true_divide,
    torch.atan2,
    torch.pow,
    lambda a, b: torch.where(a > 0, a, b),
]
UNARY = [
    torch.exp,
    torch.relu,
    F.gelu,
    F.silu,
    torch.neg,
    lambda x: x * 2,
    lambda x: x + 1.5,
    torch.logical_not,
    lambda x: x.clone(),
    lambda x: x.half(),
    torch.zeros_like,
]


MIXING = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.eq,
    torch.logical_and,
    torch.true_divide,
    torch.atan2,
    torch.xlogy,
    lambda a, b: torch.where(a > 0, a, b),
]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_expanded_operands_of_another_type(data: Any) -> None:
    """What a CPU's loops convert first is dense then, and tells a layout that an expanded tensor does not."""
    sizes = data.draw(st.lists(st.sampled_from([2, 3]), min_size=1, max_size=4))
    operands = []
    for _ in range(2):
        held = [n if data.draw(st.booleans()) else 1 for n in sizes]
        operands.append(data.draw(tensors(held, (torch.float32, torch.float64, torch.int64))).expand(sizes))
    check(data.draw(st.sampled_from(MIXING)), *operands)


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_padding_keeps_channels_last(mode: str) -> None:
    for x in (torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5, 4)):
        for memory_format in (torch.contiguous_format, torch.channels_last if x.dim() == 4 else torch.channels_last_3d):
            check(lambda x: F.pad(x, (1, 1) * (x.dim() - 2), mode), x.contiguous(memory_format=memory_format))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(broadcastable(), st.sampled_from(BINARY), st.sampled_from(UNARY))
def test_pointwise(operands: tuple[torch.Tensor, ...], binary: Any, unary: Any) -> None:
    check(unary, operands[0])
    if len(operands) > 1:
        check(binary, *operands[:2])
    if len(operands) > 2:
        check(torch.addcmul, *operands)


NUMBERED = [
    lambda x: x * 1j, lambda x: 2 - x, lambda x: x / 2, lambda x: x**2, lambda x: 2**x, lambda x: x == 2, lambda x: 1 / x, torch.exp, torch.neg, torch.abs,
    torch.angle, torch.reciprocal, lambda x: torch.addcmul(x, x, x), lambda x: torch.lerp(x, x, 0.5), lambda x: torch.where(x == 1, x, x * 1j),
    lambda x: x.conj() * 2j, lambda x: x.conj().resolve_conj(), lambda x: torch.cat([x * 1j, x * 1j]), lambda x: x * x.real,
]  # fmt: skip
WINDOWS = [
    ((3, 1, 2, 2), (6, 1, 6, 3)),
    ((3, 1, 2, 2), (6, 1, 3, 3)),
    ((2, 1, 3), (1, 7, 2)),
    ((1, 3, 1), (9, 2, 5)),
    ((2, 2), (1, 1)),
    ((3, 1, 2), (0, 5, 1)),
]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.int64])
@pytest.mark.parametrize("sizes, strides", WINDOWS)
def test_strides_along_dimensions_of_one_of_pointwise_operators(
    dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """``cat`` decides by them how its result is laid out, so they mean something after all."""
    real = torch.ones(40, dtype=dtype).as_strided(sizes, strides)
    for i, fn in enumerate(NUMBERED):
        try:
            want = fn(real)
        except RuntimeError:
            continue
        with FakeContext() as ctx:
            got = fn(ctx.from_tensor(real))
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype), i


REDUCTIONS = [
    torch.sum,
    torch.mean,
    torch.amax,
    torch.any,
    torch.argmax,
    torch.var,
    torch.logsumexp,
    torch.softmax,
    torch.cumsum,
    torch.max,
    torch.std_mean,
]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(tensors(), st.sampled_from(REDUCTIONS), st.integers(-4, 3), st.booleans())
def test_reductions(x: torch.Tensor, reduction: Any, dim: int, keepdim: bool) -> None:
    plain = reduction in (torch.softmax, torch.cumsum)
    check((lambda t: reduction(t, dim)) if plain else (lambda t: reduction(t, dim=dim, keepdim=keepdim)), x)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_products(data: Any) -> None:
    size = st.sampled_from([1, 2, 3])
    b, n, k, m = (data.draw(size) for _ in range(4))
    wrong = data.draw(st.booleans()) and data.draw(st.booleans())
    dtypes = (torch.float32, torch.bfloat16, torch.int64)
    x, y = data.draw(tensors([n, k], dtypes)), data.draw(tensors([k + wrong, m], dtypes))
    check(torch.mm, x, y)
    check(torch.addmm, data.draw(tensors([m], dtypes)), x, y)
    check(torch.bmm, data.draw(tensors([b, n, k], dtypes)), data.draw(tensors([b, k, m], dtypes)))
    check(F.linear, x, y.t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_norms_of_two_types(dtype: torch.dtype) -> None:
    """A narrow input and wide parameters: each gradient is of its own type."""
    w = torch.ones(4)
    for x, norm in ((torch.ones(2, 4, 5).to(dtype), F.group_norm), (torch.ones(3, 4).to(dtype), F.layer_norm)):
        how: Any = 2 if norm is F.group_norm else (4,)
        leaves = [t.clone().requires_grad_() for t in (x, w, w)]
        gradients = torch.autograd.grad(norm(leaves[0], how, *leaves[1:]).float().sum(), leaves)
        assert [g.dtype for g in gradients] == [dtype, torch.float32, torch.float32]
    group = torch.ops.aten.native_group_norm_backward
    _, mean, rstd = torch.ops.aten.native_group_norm(torch.ones(2, 4, 5).to(dtype), w, w, 2, 4, 5, 2, 1e-5)
    x = torch.ones(2, 4, 5).to(dtype)
    for mask in ([True, True, True], [True, False, False]):
        check(
            lambda x, mean, rstd, w, mask=mask: [g for g in group(x, x, mean, rstd, w, 2, 4, 5, 2, mask) if g is not None], x, mean, rstd, w
        )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_images(data: Any) -> None:
    sizes = [
        data.draw(st.sampled_from([1, 2])),
        data.draw(st.sampled_from([1, 2, 4])),
        *(data.draw(st.sampled_from([4, 5, 8])) for _ in range(2)),
    ]
    x = torch.ones(sizes)
    x = x.contiguous(memory_format=torch.channels_last) if data.draw(st.booleans()) else x
    kernel, stride, padding = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), data.draw(st.integers(0, 1))
    w = torch.ones(3, sizes[1], kernel, kernel)
    check(lambda x, w: F.conv2d(x, w, None, stride, padding), x, w)
    check(lambda x: F.max_pool2d(x, kernel, stride, padding, return_indices=True), x)
    check(lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode=True), x)
    check(lambda x: F.adaptive_avg_pool2d(x, (kernel, 2)), x)
    check(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), x)
    check(lambda x: F.group_norm(x, 1), x)
    check(lambda x: F.pad(x, (padding, 1, 0, kernel)), x)
    check(lambda x: F.batch_norm(x, torch.ones(sizes[1]), torch.ones(sizes[1])), x)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_attention_keeps_the_layout_of_its_query(order: tuple[int, ...]) -> None:
    sizes = (2, 3, 5, 4)
    x = torch.ones([sizes[d] for d in order]).permute([order.index(d) for d in range(4)])
    if x.stride(3) == 1:
        check(lambda q: F.scaled_dot_product_attention(q, q, q), x)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_indexing_by_tensors_of_any_layout(data: Any) -> None:
    x = _permuted(data, (3, 4, 5, 2)[: data.draw(st.integers(1, 4))])
    shape = data.draw(st.sampled_from([(2,), (4, 3), (2, 1, 3), (5, 1)]))
    ids: list[Any] = [slice(None)] * x.dim()
    for d in data.draw(st.sets(st.integers(0, x.dim() - 1), min_size=1)):
        ids[d] = (_permuted(data, shape[data.draw(st.integers(0, len(shape) - 1)) :]) % x.shape[d]).long()
    check(lambda x: x[tuple(ids)], x)


def _any_strides(data: Any, sizes: tuple[int, ...]) -> torch.Tensor:
    """Zeros in any order of the dimensions, with gaps, and with any stride along those of one."""
    strides, step = [0] * len(sizes), 1
    for d in data.draw(st.permutations(range(len(sizes)))):
        strides[d] = step if sizes[d] != 1 else data.draw(st.sampled_from([step, 0, 1, 2, 8, 64]))
        step *= sizes[d] * data.draw(st.sampled_from([1, 1, 1, 2]))
    return torch.empty_strided(sizes, strides, dtype=torch.int64).zero_()


_SIZES = st.lists(st.sampled_from([1, 1, 2, 3, 4]), max_size=4).map(tuple)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_strides_of_indexing_where_dimensions_of_one_are_strided_oddly(data: Any) -> None:
    x = _any_strides(data, data.draw(_SIZES.filter(len)))
    block = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple))
    ids: list[Any] = [slice(None)] * x.dim()
    for d in data.draw(st.sets(st.integers(0, x.dim() - 1), min_size=1)):
        own = tuple(1 if data.draw(st.booleans()) else n for n in block)
        ids[d] = _any_strides(data, own[data.draw(st.integers(0, len(own))) :])
    check(lambda x, *ids: torch.ops.aten.index.Tensor(x, [i if isinstance(i, torch.Tensor) else None for i in ids]), x, *ids)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_strides_of_views_and_expansions_are_those_of_torch_along_dimensions_of_one_too(data: Any) -> None:
    x = _any_strides(data, data.draw(_SIZES))
    wanted: list[int] = []
    for n in (f for n in x.shape for f in ([2, 2] if n == 4 else [n])):
        if wanted and data.draw(st.booleans()):
            wanted[-1] *= n
        else:
            wanted.append(n)
        wanted += [1] * data.draw(st.integers(0, 1))
    try:
        strides = x.view(wanted).stride()
    except RuntimeError:
        strides = None
    assert strides_of_view(x.shape, x.stride(), wanted) == strides
    broader = (*data.draw(_SIZES)[:2], *(n if n != 1 else data.draw(st.sampled_from([1, 3])) for n in x.shape))
    assert expanded(x.shape, x.stride(), broader) == x.expand(broader).stride()


def _permuted(data: Any, sizes: tuple[int, ...]) -> torch.Tensor:
    """Ones, stored in any order of the dimensions."""
    order = data.draw(st.permutations(range(len(sizes))))
    return torch.ones([sizes[d] for d in order]).permute([order.index(d) for d in range(len(sizes))])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_layouts_of_operators_that_are_run_once_on_zeros(order: tuple[int, ...]) -> None:
    check(F.logsigmoid, torch.ones([(2, 3, 4)[d] for d in order]).permute([order.index(d) for d in range(3)]))
    check(
        lambda x: torch.isin(x, torch.tensor([0.0, 1.0])),
        torch.ones([(2, 3, 4)[d] for d in order]).permute([order.index(d) for d in range(3)]),
    )
    check(
        lambda x: x.index_fill(1, torch.tensor([0, 2]), 1),
        torch.ones([(2, 3, 8)[d] for d in order]).permute([order.index(d) for d in range(3)])[..., ::2],
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_one_dimensional_convolution(order: tuple[int, ...]) -> None:
    x, w = torch.ones(2, 8, 7), torch.ones(3, 8, 2)
    x, w = (torch.empty([t.shape[d] for d in order]).permute([order.index(d) for d in range(3)]) for t in (x, w))
    check(lambda x: F.conv1d(x, torch.ones(3, 8, 2)), x)
    check(lambda w: F.conv1d(torch.ones(2, 8, 7), w), w)
    check(lambda x: F.conv1d(x, torch.ones(3, 8, 1)), x[:1, :, :1])


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
@pytest.mark.parametrize(("sizes", "groups"), [((2, 6, 5, 4), 1), ((2, 6, 5, 4), 3), ((1, 6, 5, 1), 6)])
def test_transposed_convolution(order: tuple[int, ...], sizes: tuple[int, ...], groups: int) -> None:
    weight = torch.ones(6, 2, 2, 3)
    x = torch.ones([sizes[d] for d in order]).permute([order.index(d) for d in range(4)])
    for w in (weight, weight.contiguous(memory_format=torch.channels_last)):
        for stride, padding, extra, dilation in ((1, 0, 0, 1), (2, 1, 1, 1), ((2, 3), (0, 1), (1, 2), (2, 1))):
            check(lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, extra, groups, dilation), x, w)
    row, w = x[:, :, 0], weight[:, :, 0]
    check(lambda x, w: F.conv_transpose1d(x, w, torch.ones(2 * groups), 2, 1, 1, groups), row, w)
    check(lambda x, w: F.conv_transpose1d(x, w, None, 2, 0, 0, groups), row, w.transpose(1, 2).contiguous().transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_torch_samples(dtype: torch.dtype) -> None:
    pytest.importorskip("expecttest", reason="torch's operator database needs it")
    from torch.testing._internal.common_methods_invocations import op_db

    names = set(
        "cat stack gather index_select __getitem__ masked_fill tril triu repeat flip full zeros ones arange new_zeros full_like "
        "nn.functional.embedding "
        "nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm native_batch_norm nn.functional.avg_pool2d softmax "
        "log_softmax topk sort "
        "nn.functional.conv2d nn.functional.max_pool2d nn.functional.adaptive_avg_pool2d constant_pad_nd baddbmm "
        "nn.functional.interpolate".split()
    )
    wrong = []
    for op in op_db:
        if op.name in names and dtype in op.dtypes:
            torch.manual_seed(0)
            for s in itertools.islice(op.sample_inputs("cpu", dtype), 8):
                try:
                    check(lambda *a, op=op, k=s.kwargs: op.op(*a, **k), s.input, *s.args)
                except (DataDependent, NoFakeKernel):
                    continue
                except AssertionError as e:
                    wrong.append(f"{op.name}: {e}")
    assert not wrong


def test_sympy_is_not_imported() -> None:
    code = """
import sys, torch
from opmill_fake_tensors import FakeContext
nn, F = torch.nn, torch.nn.functional
mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).eval()
torch.backends.mha.set_fastpath_enabled(False)
layer = nn.TransformerEncoderLayer(16, 2, batch_first=True).eval()
def text(ids, table):
    x = layer(F.embedding(ids, table)) * torch.rsqrt(table.pow(2).mean() + 1e-5)
    mask = (torch.arange(4)[None] >= torch.arange(4)[:, None]).to(x.dtype)
    x = torch.cat((x, -x), -1).masked_fill(ids[..., None] == 0, -1e9).softmax(-1)
    return x.argmax(-1), x.topk(2), mask, x[:, torch.arange(2)], torch.where(x > 0, x, 0.0), x.to(torch.bfloat16).contiguous()
with torch.no_grad(), FakeContext() as c:
    mlp(c.from_tensor(torch.ones(4, 8))); images(c.from_tensor(torch.ones(2, 3, 16, 16)))
    text(c.from_tensor(torch.zeros(2, 4, dtype=torch.int64)), c.from_tensor(torch.ones(9, 16)))
assert not {'sympy', 'torch._dynamo', 'torch._inductor'} & set(sys.modules), [m for m in ('sympy', 'torch._dynamo') if m in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("other", [True, torch.tensor([True, False])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_subtraction_of_bools_is_refused_as_torch_does(dtype: torch.dtype, other: object) -> None:
    x = torch.ones(2, dtype=dtype)
    for subtract in (torch.Tensor.sub, torch.Tensor.sub_, torch.rsub):
        with pytest.raises(RuntimeError) as refused:
            subtract(x.clone(), other)
        with FakeContext() as context, pytest.raises(RuntimeError) as found:
            subtract(context.from_tensor(x), context.from_tensor(other) if isinstance(other, torch.Tensor) else other)
        assert str(found.value) == str(refused.value)


@pytest.mark.parametrize("pad", [(0, -1), (-1, 0, -1, -1), (-1, 2), (0, 0), (1, 1, -1, 0)])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_padding_that_only_cuts_keeps_the_order_of_strides(pad: tuple[int, ...], order: tuple[int, ...]) -> None:
    check(lambda x: torch.constant_pad_nd(x, pad), torch.ones(4, 5, 6).permute(order))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_gradients_of_losses_that_torch_has_no_meta_kernel_for(order: tuple[int, ...]) -> None:
    x = torch.ones(3, 4).permute(order)
    label = torch.zeros(x.size(0), dtype=torch.int64)
    check(lambda g, x, t: torch.ops.aten.multi_margin_loss_backward(g, x, t, 1, 1.0), torch.ones(()), x, label)
    check(
        lambda g, x, t: torch.ops.aten.multilabel_margin_loss_backward(g, x, t, 1, x),
        torch.ones(()),
        x,
        torch.zeros(x.size(), dtype=torch.int64),
    )


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_of_one_row(reduction: int) -> None:
    x, labels = torch.ones(4), torch.tensor([0, 2, -1, 1])
    check(lambda x, t: torch.ops.aten.multilabel_margin_loss_forward(x, t, reduction), x, labels)
    for label in (torch.tensor(1), torch.tensor([1])):
        check(lambda x, t: torch.ops.aten.multi_margin_loss(x, t, 1, 1.0, None, reduction), x, label)


def test_strides_of_dimensions_of_size_one_that_later_operators_see() -> None:
    """They mean nothing, but orders and memory formats of results go by them."""

    def chain(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * x
        z = torch.cat([y], 3)
        flags = x.new_zeros(x.shape).eq(0)
        return [y, z, flags[z % 17], flags[:, 0][(z % 3)[:, :, 0]], flags[..., z[0, 0] % 1]]

    x = torch.zeros(612, dtype=torch.int64).as_strided((17, 3, 4, 1), (12, 1, 3, 204))
    expected = chain(x)
    with FakeContext() as ctx:
        got = chain(ctx.from_tensor(x))
    assert [e.stride() for e in expected] == [g.stride() for g in got]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 2,
        lambda x: 2 - x,
        lambda x: x / 2,
        lambda x: x == 1,
        lambda x: 2**x,
        lambda x: x % 2,
        lambda x: x.clamp(0, 2),
        torch.neg,
        lambda x: x * x,
    ],
)
def test_results_beside_numbers_keep_the_strides_of_dimensions_of_one(fn: Any) -> None:
    for shape, strides in (((2, 8, 1), (8, 1, 8)), ((1, 3, 4), (1, 4, 1)), ((3, 1, 1, 4), (4, 9, 1, 1))):
        x = torch.empty_strided(shape, strides).zero_()
        with FakeContext() as ctx:
            assert fn(ctx.from_tensor(x)).stride() == fn(x).stride()


OWN_WAYS = (
    "angle i0 deg2rad rad2deg nan_to_num lgamma special.entr special.i1e special.erfcx special.ndtri special.bessel_j0 square sinc".split()
)
OF_NUMBERS: list[Any] = [
    lambda x: x // 2,
    lambda x: torch.xlogy(x, 2.0),
    lambda x: torch.special.zeta(x, 2.0),
    lambda x: torch.special.xlog1py(x, 2.0),
    lambda x: 2**x,
]


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_every_stride_is_that_of_the_way_an_operator_makes_its_result(order: tuple[int, ...]) -> None:
    """Fast paths of contiguous and channels-last operands, copies of an operand's layout, dense results: dimensions of one show which."""
    unary: list[Any] = [operator.attrgetter(name)(torch) for name in OWN_WAYS]
    for sizes in ((1, 3, 1, 4), (2, 1, 3, 1), (1, 3, 2, 2)):
        dense = torch.zeros([sizes[d] for d in order], dtype=torch.float64).permute([order.index(d) for d in range(4)])
        odd = [7 if n == 1 and order[0] % 2 else s for n, s in zip(sizes, dense.stride(), strict=True)]
        for x in (dense, dense.as_strided(sizes, odd)):
            for fn in (*unary, *OF_NUMBERS, F.relu6, F.hardtanh):
                with FakeContext() as ctx:
                    assert fn(ctx.from_tensor(x)).stride() == fn(x).stride(), fn


@pytest.mark.parametrize("sizes", [(2, 1, 6, 4), (1, 1, 4, 4), (2, 3, 1, 1), (1, 3, 4, 1), (2, 4, 1, 6)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)])
def test_images_that_lie_in_two_ways_at_once(sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
    """With one channel or one point, strides say of which way they are: what follows goes by that."""
    x = torch.rand([sizes[d] for d in order]).permute([order.index(d) for d in range(4)])
    one = torch.ones(sizes[1])
    norms: list[Any] = [
        lambda x: F.batch_norm(x, one * 0, one),
        lambda x: F.batch_norm(x, None, None, training=x.numel() > x.shape[1]),
        lambda x: F.group_norm(x, 1),
    ]
    pools: list[Any] = [
        lambda x: F.max_pool2d(x, 1),
        lambda x: F.avg_pool2d(x, 1),
        lambda x: F.adaptive_avg_pool2d(x, 2),
        lambda x: F.interpolate(x, scale_factor=2),
    ]
    others: list[Any] = [lambda x: torch.cat([x, x], 1), lambda x: F.glu(x, 2), lambda x: F.conv2d(x, torch.ones(2, x.shape[1], 1, 1))]
    for fn in (*norms, *pools, *others):
        try:
            want = fn(x)
        except (RuntimeError, ValueError):
            continue  # one value for each channel, an odd number of lines
        with FakeContext() as ctx:
            assert fn(ctx.from_tensor(x)).stride() == want.stride()


@given(st.data())
def test_rolled_tensors_are_laid_out_as_what_is_put_together_of_two_parts(data: Any) -> None:
    x = data.draw(tensors())
    if x.dim():
        dims = data.draw(st.lists(st.integers(0, x.dim() - 1), min_size=1, max_size=2))
        check(lambda x: torch.roll(x, [1] * len(dims), dims), x)
        check(lambda x: torch.roll(x, 1), x)


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
@pytest.mark.parametrize("sizes", [(2, 8, 4, 2), (1, 4, 2, 6)])
def test_images_rearranged_and_taken_from_numbers(order: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    x = torch.rand([sizes[d] for d in order]).permute([order.index(d) for d in range(4)])
    for fn in (lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), lambda x: F.channel_shuffle(x, 2)):
        check(fn, x)
    check(lambda x, y: torch.rsub(x, y), x, torch.rand(sizes[2:]).t().contiguous().t())
    check(lambda x, y: F.nll_loss(x, y, reduction="none"), x, torch.zeros(sizes[0], *sizes[2:], dtype=torch.int64))
    check(lambda x, m: torch.ops.aten.native_dropout_backward(x, m, 2.0), x, torch.ones(sizes, dtype=torch.bool))


@pytest.mark.parametrize("name", ["uniform", "normal_functional", "exponential", "cauchy", "log_normal", "random"])
@pytest.mark.parametrize("step", [1, 2])
def test_numbers_drawn_into_a_view_are_laid_out_anew(name: str, step: int) -> None:
    """torch's meta kernel of ``uniform`` promises the gaps of the view: the plan was told of memory that its result does not have."""
    drawn = getattr(torch.ops.aten, name)
    for x in (
        torch.rand(6, 4 * step, dtype=torch.complex64)[:, ::step],
        torch.rand(6, 4 * step)[:, ::step],
        torch.rand(6, 4 * step)[:, ::step].t(),
        torch.rand(4, 1, 3).expand(4, 5, 3),
    ):
        check(lambda x: drawn(x), x)


@pytest.mark.parametrize("make", [torch.rand, torch.randn])
@pytest.mark.parametrize("generator", [None, torch.Generator()], ids=["none", "own"])
def test_numbers_drawn_by_a_generator(make: Any, generator: Any) -> None:
    """Layers pass on the generator that they may have been given: it was an argument that the row did not know."""
    check(lambda x: make((2, 3), generator=generator, dtype=x.dtype), torch.zeros(2, dtype=torch.float64))
    check(lambda x: make(2, 3, generator=generator) + x, torch.zeros(3))
