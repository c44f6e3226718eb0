"""Fakes with symbolic sizes: traced at one call's sizes, their geometry is eager's at every size that the decisions allow."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from opmill_fake_tensors import DataDependent, FakeContext, NoFakeKernel
from opmill_fake_tensors.symbols import Sizes, index, index_of

F = torch.nn.functional


def resized(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Such a tensor of other sizes, its dimensions in the same order in memory."""
    order = sorted(range(x.dim()), key=lambda d: (-x.stride(d), d))
    out = torch.empty([sizes[d] for d in order], dtype=x.dtype).permute([order.index(d) for d in range(x.dim())])
    for d, n in enumerate(sizes):
        x = x.index_select(d, torch.arange(n) % x.size(d))
    return out.copy_(x)


def geometry(x: Any, value: Callable[[Any], int] = int) -> Any:
    """What must agree; the stride of a dimension of size one means nothing."""
    if not isinstance(x, torch.Tensor):
        return value(x) if isinstance(x, (int, torch.SymInt)) else x
    sizes = tuple(map(value, x.shape))
    return sizes, x.dtype, tuple(value(s) for s, n in zip(x.stride(), sizes, strict=True) if n != 1) if 0 not in sizes else ()


def check(fn: Callable[..., Any], args: Any, rng: random.Random, chance: float = 0.7) -> Sizes | None:
    """Compare ``fn`` on symbolic fakes with ``fn`` on tensors of several sizes; None where it cannot be traced or refuses the arguments."""
    tensors = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
    try:
        fn(*pytree.tree_map_only(torch.Tensor, torch.clone, args))
    except Exception:
        return None
    sizes = Sizes()
    context = FakeContext(sizes)
    fakes = {id(t): context.from_tensor(t, {d: None for d in range(t.dim()) if t.size(d) >= 2 and rng.random() < chance}) for t in tensors}
    lengths = {key: fake.shape for key, fake in fakes.items()}
    with context:
        try:
            got = pytree.tree_leaves(fn(*pytree.tree_map_only(torch.Tensor, lambda t: fakes[id(t)], args)))
        except (DataDependent, NoFakeKernel):
            return None
    assert sizes.holds({name: s.hint for name, s in sizes.symbols.items()})  # type: ignore[misc]
    free = [name for name in sizes.symbols if sizes.simplify(index(name)) == index(name)]
    for attempt in range(5):
        values: Any = {name: sizes.symbols[name].hint if attempt == 0 else rng.choice([2, 3, 4, 5, 7, 8]) for name in free}
        values |= {name: sizes.simplify(index(name)).evaluate(values) for name in sizes.symbols}

        def value(n: Any, values: Any = values) -> int:
            return index_of(n).evaluate(values)

        if not sizes.holds(values):
            continue
        new = pytree.tree_map_only(torch.Tensor, lambda t: resized(t, [value(n) for n in lengths[id(t)]]), args)  # noqa: B023
        others = [n for n in pytree.tree_leaves(new) if isinstance(n, torch.Tensor)]
        if any(tuple(map(value, fakes[id(t)].stride())) != n.stride() for t, n in zip(tensors, others, strict=True)):
            continue
        try:
            expected = pytree.tree_leaves(fn(*new))
        except Exception:
            continue  # indices out of range, a matrix that has no inverse: the operator says so when it runs
        assert [geometry(g, value) for g in got] == [geometry(e) for e in expected], (values, [str(d) for d in sizes.decisions])
    return sizes


x, y = torch.randn(5, 7, 8), torch.randn(5, 7, 8)
CASES: dict[str, Callable[..., Any]] = {
    "views": lambda x: (
        x.view(-1, 8),
        x.view(x.size(0) * x.size(1), 2, -1),
        x.transpose(0, 1),
        x[1:, :, ::2],
        x[:, -1],
        x.unsqueeze(1).expand(-1, 3, -1, -1),
    ),
    "parts": lambda x: (
        *x.chunk(2, -1),
        *x.split([3, 5], -1),
        *x.unbind(2)[:2],
        x.narrow(1, 0, 2),
        x.flatten(1),
        x.unflatten(2, (2, 4)),
        x.movedim(0, 2),
    ),
    "pieces": lambda x: (x.diagonal(0, 1, 2), x.unfold(1, 2, 1), x.squeeze(), x.select(0, -1), x.permute(2, 0, 1).reshape(8, -1)),
    "broadcast": lambda x: (
        x + x[:1],
        x * x[:, :1],
        x.transpose(0, 2) + x.transpose(0, 2),
        torch.where(x > 0, x[0], 1.0),
        x[..., None] - x[:, :, None],
    ),
    "reductions": lambda x: (
        x.sum(1),
        x.mean((0, 2), keepdim=True),
        x.amax(),
        x.argmax(1),
        x.softmax(1),
        x.std(0),
        x.cumsum(1),
        x.logsumexp(2),
    ),
    "products": lambda x: (
        x @ x.transpose(1, 2),
        torch.einsum("abc,abd->acd", x, x),
        F.linear(x, torch.ones(4, 8)),
        torch.addmm(x[0], x[0], x[0].t() @ x[0]),
    ),
    "triangles": lambda x: (
        torch.linalg.solve_triangular(x.transpose(1, 2) @ x, x.transpose(1, 2), upper=True),
        torch.linalg.solve_triangular(x[0].T @ x[0], x, upper=False, left=False, unitriangular=True),
        torch.linalg.solve_triangular(x @ x.transpose(1, 2), x[:1], upper=True),
    ),
    "joined": lambda x: (
        torch.cat([x, x[:, 1:]], 1),
        torch.stack([x, x], 1),
        x.repeat(2, 1, 1),
        x.repeat_interleave(2, 0),
        F.pad(x, (1, 2)),
        x.roll(1, 0),
    ),
    "made": lambda x: (
        torch.arange(x.size(0)),
        torch.zeros(x.shape[:2]),
        x.new_ones(x.size(1), 2),
        torch.full((x.size(0),), 2),
        torch.ones(x.size(1), x.size(1)).tril(),
    ),
    "sizes": lambda x: (x.numel(), x.size(0) * 2 - x.size(1) // 2, max(x.size(0), x.size(1)), x[2:].size(0), x.stride(0)),
    "indexed": lambda x: (
        x[:, torch.arange(x.size(1))],
        x.gather(1, x.argsort(1)),
        F.embedding(torch.zeros(x.shape[:2], dtype=torch.long), x[0]),
    ),
    "attention": lambda x: F.scaled_dot_product_attention(*(t.view(t.size(0), -1, 2, 4).transpose(1, 2) for t in (x, x, x))),
    "normalised": lambda x: (
        F.layer_norm(x, (8,)),
        F.rms_norm(x, (8,)),
        F.batch_norm(x.transpose(1, 2), None, None, training=True),
        F.dropout(x, 0.1),
    ),
    "written": lambda x: (
        x.clone().add_(1),
        x.clone().mul_(x[:1]),
        x.clone().masked_fill_(x > 0, 0),
        x.clone().copy_(x[0]),
        x.clone().t_() if x.dim() < 3 else x,
    ),
    "images": lambda x: (
        F.conv1d(x.transpose(1, 2), torch.ones(3, 8, 2)),
        F.interpolate(x.transpose(1, 2), scale_factor=2.0),
        F.max_pool1d(x, 2),
    ),
    "types": lambda x: (
        torch.view_as_complex(x.contiguous().view(x.size(0), -1, 4, 2)),
        x.contiguous().view(torch.int32)[1:],
        x.contiguous().view(torch.int64),
        x[:, 1:].contiguous().view(torch.int16),
        torch.view_as_real(torch.complex(x, x)[1:]),
        torch.complex(x, x).imag.sum(1),
        (torch.complex(x, x).conj() * 2).mT,
        torch.complex(x, x).conj().imag,
        x[0, 0].view(torch.uint8),
    ),
    "complex": lambda x: (
        lambda z: (
            z * z[:1],
            z + x,
            z.conj() * x[:, :1].double(),
            z.mT.conj() / z.mT,
            z * 2 - 1j,
            x * 1j,
            1 - z,
            z.abs(),
            z.mT.angle(),
            z.exp(),
            -z,
            z != z[0],
            z.sgn(),
            z.sum(1),
            z.conj().mT.conj_physical(),
            (z * z).real.softmax(-1),
            z.expand(2, -1, -1, -1) * x.double(),
            torch.sub(z, z[:, :1], alpha=2j),
        )
    )(torch.complex(x, x)),
    "transforms": lambda x: (
        torch.fft.rfft(x),
        torch.fft.rfft(x, dim=1),
        torch.fft.irfft(torch.fft.rfft(x.mT)),
        torch.fft.irfft(torch.complex(x, x), dim=0),
        torch.fft.fft(x, dim=0),
        torch.fft.fft2(torch.complex(x, x)),
        torch.fft.rfft2(x),
        torch.fft.rfft2(x, dim=(2, 0)),
        torch.fft.irfft2(torch.complex(x, x), dim=(0, 1)),
        torch.fft.ifft(torch.complex(x, x).mT, dim=1),
        torch.fft.rfft(x, n=16),
        torch.fft.fft2(x.permute(2, 0, 1), dim=(2, 1)),
    ),
    "laid out": lambda x: (
        x[None].to(memory_format=torch.channels_last),
        x[None].clone(memory_format=torch.channels_last),
        x[None, None].to(torch.float64, memory_format=torch.channels_last_3d),
        x[:, None].contiguous(memory_format=torch.channels_last),
        torch.complex(x, x).mT.conj().clone(),
        torch.complex(x, x).conj().reshape(-1, 2),
        torch.randint_like(x.mT, 5),
        torch.normal(x, x.abs()),
        torch.normal(x.mT, x.mT[:1].abs()),
        torch.normal(x.mT, 1.0),
        torch.normal(0.5, x.mT.abs()),
        torch.normal(x[:1].expand(3, -1, -1), 2.0),
    ),
    "in place": lambda x: (x.clone().unsqueeze_(0), x.clone().transpose_(0, 1), x[:, :, 0].clone().t_(), x[:1].clone().squeeze_()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_cases(name: str, seed: int) -> None:
    rng = random.Random(seed)
    for tensor in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        sizes = check(CASES[name], (tensor,), rng, 0.8)
        assert sizes is not None or "view" in name or "attention" in name  # a view may be impossible


@pytest.mark.parametrize(
    "name",
    [
        "broadcast",
        "reductions",
        "products",
        "joined",
        "made",
        "sizes",
        "attention",
        "normalised",
        "views",
        "types",
        "complex",
        "transforms",
        "laid out",
    ],
)
def test_the_batch_is_not_fixed(name: str) -> None:
    sizes = Sizes()
    context = FakeContext(sizes)
    fake = context.from_tensor(x, {0: None, 1: None})
    with context:
        CASES[name](fake)
    assert all(sizes.simplify(index(s)).constant is None for s in sizes.symbols), [str(d) for d in sizes.decisions]


def test_unequal_sizes_are_equal_only_where_an_operator_says_so() -> None:
    sizes = Sizes(lambda: "here")
    context = FakeContext(sizes)
    a, b = context.from_tensor(x, {0: None}, "a"), context.from_tensor(y, {0: None}, "b")
    with context:
        _ = a.relu(), b.relu(), torch.cat([a, b]).shape
        assert not sizes.decisions
        _ = a + b
    assert [str(d) for d in sizes.decisions] == ["s1 == s0   # aten::add.Tensor at here"] or [str(d) for d in sizes.decisions] == [
        "s0 == s1   # aten::add.Tensor at here"
    ]
    assert a.shape[0] == b.shape[0] and len(sizes.decisions) == 1


def test_layouts_are_written_by_sizes() -> None:
    context = FakeContext(Sizes())
    image = torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    fake = context.from_tensor(image, {0: None, 2: None, 3: None})
    assert [str(s) for s in fake.stride()] == ["3*s1*s2", "1", "3*s2", "3"] and str(fake.shape) == "torch.Size([s0, 3, s1, s2])"
    part = context.from_tensor(torch.empty(6, 9)[:, :4], {0: None})
    assert part.stride() == (9, 1)
    moving = context.from_tensor(torch.empty(6, 9)[:, :4], {0: None}, "part", (0,))
    assert [str(s) for s in moving.stride()] == ["s5", "1"]


def test_torch_samples() -> None:
    pytest.importorskip("expecttest", reason="torch's operator database needs it")
    from torch.testing._internal.common_methods_invocations import op_db

    rng, traced = random.Random(0), 0
    wrong = []
    for op in op_db:
        if torch.float32 not in op.dtypes or op.name not in SAMPLED:
            continue
        torch.manual_seed(0)
        for s in itertools.islice(op.sample_inputs("cpu", torch.float32), 3):
            args = (s.input.detach() if isinstance(s.input, torch.Tensor) else s.input, *s.args)
            tensors = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
            if not tensors or any(t.layout is not torch.strided or torch._debug_has_internal_overlap(t) for t in tensors):
                continue
            try:
                args = pytree.tree_map_only(torch.Tensor, lambda t: resized(t.detach(), t.shape), args)
                traced += check(lambda *a, op=op, k=s.kwargs: op.op(*a, **k), args, rng) is not None
            except Exception as e:
                wrong.append(f"{op.name}: {e}")
    assert traced > 150 and not wrong, wrong


SAMPLED = set(
    "add sub mul div maximum where clamp lerp addcmul pow exp atan2 cat stack hstack gather index_select index_add index_copy scatter "
    "scatter_add masked_fill "
    "tril triu repeat tile flip roll sort topk argsort cumsum logcumsumexp softmax log_softmax logsumexp var_mean std mean amax aminmax "
    "norm dist matmul mm bmm "
    "addmm baddbmm mv outer einsum tensordot kron expand reshape view flatten unflatten squeeze unsqueeze permute transpose movedim narrow "
    "split chunk unbind "
    "diagonal diag_embed unfold as_strided slice_scatter select_scatter diff cov trapezoid meshgrid nn.functional.linear "
    "nn.functional.bilinear isclose "
    "nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm nn.functional.avg_pool2d nn.functional.max_pool2d "
    "nn.functional.conv2d "
    "nn.functional.adaptive_avg_pool2d nn.functional.interpolate nn.functional.mse_loss nn.functional.unfold nn.functional.pixel_shuffle "
    "nn.functional.gelu "
    "nn.functional.scaled_dot_product_attention nn.functional.pad constant_pad_nd nn.functional.cosine_similarity nn.functional.glu "
    "nn.functional.prelu".split()
)


def test_neither_sympy_nor_dynamo_is_imported() -> None:
    code = """
import sys, torch
from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
nn, F = torch.nn, torch.nn.functional
mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8))
images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).eval()
x, i = torch.ones(4, 5, 8), torch.ones(2, 3, 16, 16)
with torch.no_grad(), FakeContext(Sizes()) as c:
    y = mlp(c.from_tensor(x, {0: None, 1: None})); images(c.from_tensor(i, {0: None}))
    h = y.view(*y.shape[:2], 2, 4).transpose(1, 2)
    F.scaled_dot_product_attention(h, h, h).transpose(1, 2).reshape(y.shape).softmax(-1), torch.cat((y, -y), -1), y[:, 1:].sum(1)
assert not {'sympy', 'torch._dynamo', 'torch._inductor'} & set(sys.modules), [m for m in ('sympy', 'torch._dynamo') if m in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_backward_of_attention_is_not_fixed() -> None:
    """A model in training is compiled once for all batches and lengths."""
    real = torch.randn(2, 3, 7, 8, requires_grad=True)
    sizes = Sizes()
    context = FakeContext(sizes)
    fake = context.from_tensor(real, {0: None, 2: None})
    found = []
    for t in (real, fake):
        with context if t is fake else torch.enable_grad():
            out = F.scaled_dot_product_attention(t, t * 2, t + 1, is_causal=True)
            [gradient] = torch.autograd.grad(out.sum(), t)
        found.append(gradient)
    assert all(sizes.simplify(index(s)).constant is None for s in sizes.symbols), [str(d) for d in sizes.decisions]
    value = lambda n: index_of(n).evaluate({"s0": 2, "s1": 7}) if isinstance(n, torch.SymInt) else n
    assert tuple(map(value, found[1].shape)) == found[0].shape and tuple(map(value, found[1].stride())) == found[0].stride()
    q = real.detach()
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)
    gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(out, q, q, q, out, sums, 0.0, False)
    with FakeContext() as plain:
        fakes = [plain.from_tensor(t) for t in (out, q, q, q, out, sums)]
        assert [g.stride() for g in torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*fakes, 0.0, False)] == [
            g.stride() for g in gradients
        ]


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_what_is_written_along_a_dimension_is_contiguous(name: str) -> None:
    """Whatever the layout of the tensor that is written to."""
    x, ids = torch.zeros(2, 6, 5, 3).permute(0, 3, 2, 1), torch.tensor([2, 0])
    expected = getattr(x, name)(1, ids, x[:, :2])
    with FakeContext(Sizes()) as ctx:
        fake = ctx.from_tensor(x, {2: None, 3: None})
        got = getattr(fake, name)(1, ctx.from_tensor(ids), fake[:, :2])
    assert tuple(map(int, got.stride())) == expected.stride() == (90, 30, 6, 1)


def test_views_of_another_type_share_memory() -> None:
    context = FakeContext(Sizes())
    fake = context.from_tensor(torch.randn(6, 4), {0: None})
    with context:
        pairs = torch.view_as_complex(fake[1:].unflatten(1, (2, 2)))
        views = [pairs, pairs.conj(), torch.view_as_real(pairs.t()), fake.view(torch.int64), pairs.real, fake[:, 2:].view(torch.uint8)]
        assert pairs.conj().is_conj() and not pairs.conj().conj().is_conj()
        assert [int(v.storage_offset()) for v in views] == [2, 2, 4, 0, 4, 8]
        assert len({v.meta.untyped_storage()._cdata for v in (fake, *views)}) == 1  # type: ignore[attr-defined]
        for refused in (
            lambda: fake[:, 1:3].view(torch.int64),
            lambda: fake.t().view(torch.int16),
            lambda: torch.view_as_complex(fake.t()[:2].t()[:, ::2]),
        ):
            with pytest.raises(RuntimeError):
                refused()


@pytest.mark.parametrize("sizes", [(2, 8, 4, 6), (0, 8, 4, 6), (2, 0, 4, 6), (0, 4, 6), (2, 8, 4, 6, 6)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fn", [F.pixel_shuffle, F.pixel_unshuffle, torch.channel_shuffle])
def test_images_rearranged_of_symbolic_sizes(fn: Any, last: bool, sizes: tuple[int, ...]) -> None:
    """torch's kernels in Python promise other sizes, of nothing, and other layouts than its kernels for processors have."""
    real = torch.rand(sizes)
    if last and real.dim() == 4 and real.numel():
        real = real.contiguous(memory_format=torch.channels_last)
    expected = fn(real, 2)
    with FakeContext(Sizes()) as ctx:
        got = fn(ctx.from_tensor(real, {d: None for d in (-2 % real.dim(), real.dim() - 1)}), 2)
        assert [int(n) for n in got.shape] == list(expected.shape)
        assert [int(n) for n in got.stride()] == list(expected.stride())


def test_an_input_without_elements_that_begins_behind_its_storage():
    """Its other dimensions may be as long as they like: no memory is needed."""
    x = torch.empty(2000).as_strided((3, 0, 4), (18, 600, 2), 3)
    fake = FakeContext(Sizes()).from_tensor(x, {0: None, 2: None})
    assert (fake.size(1), fake.storage_offset()) == (0, 3)


ROLLED = {
    "rows": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(4, 3).t(),
    "expanded": lambda: torch.randn(4).expand(3, 4),
    "every second": lambda: torch.randn(3, 8)[:, ::2],
    "deep": lambda: torch.randn(2, 3, 4, 2, 2, 2).permute(5, 3, 1, 2, 0, 4),
    "none": lambda: torch.randn(0, 4),
    "one": lambda: torch.randn(5),
}


@pytest.mark.parametrize("make", ROLLED.values(), ids=ROLLED.keys())
def test_how_far_is_rolled_only_data_need_to_tell(make: Callable[[], torch.Tensor]) -> None:
    x = make()
    for told in ((0,), (-1,), (), (0, -1)):
        shifts = [2] * (len(told) or 1)
        context = FakeContext(sizes := Sizes(), sizes)
        fake, places = context.from_tensor(x), context.from_tensor(torch.tensor(2))
        with context:
            read = places.item()
            found = torch.roll(fake, [-read] * len(shifts), told)
        assert geometry(found) == geometry(torch.roll(x, shifts, told))
