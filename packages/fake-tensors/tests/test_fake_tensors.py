"""Fakes report what eager would, know small values, and never import torch._dynamo."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from opmill_fake_tensors import DataDependent, FakeContext, FakeTensor, NoFakeKernel
from opmill_fake_tensors.symbols import Sizes

CASES = {
    "add": lambda x, y: x + y,
    "add of transposed": lambda x, y: x.t() + y.t(),
    "promotion": lambda x, y: (x > 0).to(torch.int32) * 2.5,
    "linear": lambda x, y: torch.nn.functional.linear(x, y, y[:, 0]),
    "softmax": lambda x, y: torch.softmax(x.t(), 0),
    "where": lambda x, y: torch.where(x > y, x, 1),
    "clone of strided": lambda x, y: x[:, ::2].clone(),
    "conv": lambda x, y: torch.nn.functional.conv2d(x.reshape(1, 4, 2, 2), torch.ones(3, 4, 1, 1)),
    "attention": lambda x, y: torch.nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]),
    "index": lambda x, y: x[torch.arange(2)],
    "imaginary part of a conjugate": lambda x, y: torch.complex(x, y).conj().imag,
}


@pytest.mark.parametrize("name", CASES)
def test_geometry_as_eager(name: str) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    expected = CASES[name](x, y)
    with FakeContext() as ctx:
        got = CASES[name](ctx.from_tensor(x), ctx.from_tensor(y))
    strides = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1] for t in (got, expected)]
    assert (got.shape, got.dtype, got.device) == (expected.shape, expected.dtype, expected.device) and strides[0] == strides[1]


@pytest.mark.parametrize(
    "read", [lambda x: x.sum().item(), torch.nonzero, lambda x: bool(x.sum() > 0), lambda x: x.tolist(), lambda x: x[x > 0]]
)
def test_data_is_refused(read) -> None:
    real = torch.ones(3)  # made outside: what factories make inside is small enough to be known
    with FakeContext() as ctx, pytest.raises(DataDependent):
        read(ctx.from_tensor(real))


def test_small_values_are_known_until_written() -> None:
    with FakeContext():
        c = torch.tensor([1, 2])
        view = c[0]
        assert (view + 1).item() == 2 and torch.arange(4).sum().item() == 6
        c.add_(1)
        with pytest.raises(DataDependent):
            view.item()


def test_gradient_flags() -> None:
    ctx = FakeContext()
    p = ctx.from_tensor(torch.nn.Parameter(torch.ones(2)))
    assert isinstance(p, torch.nn.Parameter) and p.is_leaf and (p * 2).requires_grad and not (p * 2).is_leaf
    assert ctx.from_tensor(torch.ones(2)).requires_grad is False


def test_dynamo_is_not_imported() -> None:
    code = (
        "import sys, torch, torch.fx\nfrom opmill_fake_tensors import FakeContext\n"
        "with FakeContext() as c:\n x = c.from_tensor(torch.ones(4, 4)); torch.nn.functional.layer_norm(torch.addmm(x, x, x), "
        "(4,)).softmax(-1).cumsum(0)\n"
        "torch.fx.symbolic_trace(torch.nn.Linear(2, 3))\nassert not {'torch._dynamo', 'torch._inductor'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_results_written_to_tensors_given() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    with FakeContext() as ctx:
        x, y, out = (ctx.from_tensor(t) for t in (a, b, torch.empty(5, 3).t()))
        assert torch.mm(x, y, out=out) is out
        assert out.stride() == (1, 3)
        assert torch.add(x, 1, out=torch.empty(3, 4)).shape == (3, 4)


@pytest.mark.parametrize("sizes", [None, Sizes()], ids=["numbers", "symbols"])
def test_numbers_under_levels_of_vmap(sizes):
    """Torch makes tensors of them, and hands these over as numbers again."""
    x = torch.randn(3, 4)
    with torch.no_grad(), FakeContext(sizes) as ctx:
        fake = ctx.from_tensor(x, {0: None} if sizes is not None else None)
        out = torch.vmap(torch.vmap(lambda r: torch.tanh(r / 20) * 20))(fake)
    assert out.shape == fake.shape and out.dtype == x.dtype


def test_what_was_computed_may_be_written_to() -> None:
    leaf = torch.ones(4, 4, requires_grad=True)
    for real in (leaf * 2, (leaf * 2)[1:], (leaf * 2).t()):
        with FakeContext() as context:
            fake = context.from_tensor(real)
            assert fake.requires_grad and not fake.is_leaf and fake.stride() == real.stride()
            fake.mul_(2)
            (gradient,) = torch.autograd.grad(fake.sum(), fake)
            assert gradient.shape == real.shape
        with FakeContext() as context, pytest.raises(RuntimeError, match="leaf"):
            context.from_tensor(leaf).mul_(2)


def test_tensors_stored_negated_are_refused() -> None:
    """Whoever reads the memory of one, a compiled kernel say, reads the negatives of its values."""
    imaginary = torch.ones(3, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    with FakeContext() as context, pytest.raises(NoFakeKernel, match="negatives"):
        context.from_tensor(imaginary)


@pytest.mark.parametrize("current", [None, 0, 1])
def test_gpus_without_a_number_are_the_current_one(current: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: current is not None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    context = FakeContext()
    made = context.run(torch.ops.aten.arange.default, (3,), {"device": torch.device("cuda")})
    assert made.device == torch.device("cuda", current or 0)
    assert context.run(torch.ops.aten.arange.default, (3,), {"device": torch.device("cuda:2")}).device == torch.device("cuda:2")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x[0, :2], (3, 3)),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda x: torch.nested.as_nested_tensor([x, x]),
    ],
    ids=["sparse", "quantized", "nested"],
)
@pytest.mark.filterwarnings("ignore")
def test_what_no_fake_is_like_is_refused(function):
    real = torch.arange(12.0).reshape(3, 4)
    with FakeContext() as ctx:
        with pytest.raises((NoFakeKernel, RuntimeError)):
            function(ctx.from_tensor(real))
    with pytest.raises(NoFakeKernel):
        FakeContext().from_tensor(function(real))


def test_marks_of_views_and_rounding():
    z = torch.randn(3, 4, dtype=torch.complex64)
    for real in (z, z.conj(), z.conj().t()):
        fake = FakeContext().from_tensor(real)
        assert (fake.is_conj(), fake.conj().is_conj(), fake.is_neg()) == (real.is_conj(), real.conj().is_conj(), False)
        assert fake.conj().imag.is_neg() == real.conj().imag.is_neg()
        assert not fake.resolve_conj().is_conj() and not fake.conj().imag.resolve_neg().is_neg()
        assert fake.conj().resolve_conj().stride() == real.conj().resolve_conj().stride()
    x = torch.randn(3, 4).t()
    want = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -128, 127)
    got = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(FakeContext().from_tensor(x), 0.1, 0, -128, 127)
    assert [(t.dtype, t.stride(), t.shape) for t in got] == [(t.dtype, t.stride(), t.shape) for t in want]


def test_numbers_of_foreign_operators_are_not_those_of_their_fake_kernels() -> None:
    library = torch.library.Library("fakes_numbers", "FRAGMENT")
    try:
        library.define("total(Tensor x) -> float")
        library.define("width(int n) -> int")
        library.impl("total", lambda x: float(x.sum()), "CPU")
        library.impl("total", lambda x: 1.0, "Meta")
        library.impl("width", lambda n: n, "CompositeExplicitAutograd")
        data = torch.ones(3)
        with FakeContext() as ctx:
            for call in (lambda: torch.ops.fakes_numbers.total(ctx.from_tensor(data)), lambda: torch.ops.fakes_numbers.width(3)):
                with pytest.raises(DataDependent):
                    call()
    finally:
        library._destroy()


@pytest.mark.parametrize(
    "transform", [torch.func.vmap, lambda fn: torch.func.grad(lambda x: fn(x).sum()), torch.func.jacrev, torch.func.jacfwd]
)
def test_fakes_of_computed_tensors_made_inside_of_transforms(transform: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    computed = leaf * 2
    with FakeContext() as ctx:
        made = []

        def fn(x: torch.Tensor) -> torch.Tensor:
            made.append(ctx.from_tensor(computed))
            return x * made[-1].sum()

        out = transform(fn)(ctx.from_tensor(torch.ones(4)))
    assert out.requires_grad and made[0].requires_grad and not made[0].is_leaf


def _marks(result: Any) -> list[Any]:
    return [(type(t), *((t.is_conj(), t.is_neg(), t.shape) if isinstance(t, torch.Tensor) else ())) for t in tree_leaves(result)]


def _is_part(t: torch.Tensor) -> bool:
    return t._is_view() or t.is_conj() or t.is_neg() or (t.layout is torch.strided and t.untyped_storage().nbytes() > t.nbytes)


def _conjugated(sample: Any) -> Any:
    def mark(leaf: Any) -> Any:
        plain = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.is_complex()
        return leaf.detach().conj() if plain else leaf

    return tree_map(mark, (sample.input, *sample.args)), sample.kwargs


@pytest.mark.filterwarnings("ignore")
def test_views_of_conjugates_are_marked_as_torch_marks_them() -> None:
    """Every operator with samples whose results are views, or views of a copy that nobody sees (``unsafe_split``)."""
    looked_at = 0
    asked_apart = ("resolve_conj", "imag", "tensor_split")  # the first two by methods of fakes, the last reads data
    for op in op_db:
        if torch.complex64 not in op.supported_dtypes("cpu") or op.name.startswith(("sparse", "jiterator")) or op.name in asked_apart:
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", torch.complex64), 2):
            args, kwargs = _conjugated(sample)
            with contextlib.suppress(RuntimeError, ValueError):
                want = op.op(*args, **kwargs)
                if not any(isinstance(t, torch.Tensor) and _is_part(t) for t in tree_leaves(want)):
                    continue
                with FakeContext() as ctx:
                    fakes = [tree_map(lambda x: ctx.from_tensor(x) if isinstance(x, torch.Tensor) else x, a) for a in args]  # noqa: B023
                    assert _marks(op.op(*fakes, **kwargs)) == [
                        (FakeTensor if m[0] is torch.Tensor else m[0], *m[1:]) for m in _marks(want)
                    ], op.name
                looked_at += 1
    assert looked_at > 60
