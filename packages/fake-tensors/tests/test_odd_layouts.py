"""Operators of all families on tensors that lie oddly, at random, beside eager: sizes, types, strides, marks of conjugation and negation,
and what results share with arguments."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from opmill_fake_tensors import DataDependent, FakeContext, NoFakeKernel

op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
SAMPLES = 4
#: name -> why what a fake says is not compared
APART = {
    "resolve_conj": "torch asks its C++ for a mark that fakes have in Python; their method knows, and captures call that",
    "resolve_neg": "torch asks its C++ for a mark that fakes have in Python; their method knows, and captures call that",
    "tensor_split": "torch reads the places from the memory of a tensor: what calls it there ends a graph",
    "_batch_norm_with_update": "of no public function",
    "jiterator": "torch's C++ launches it without asking the dispatcher, which is where fakes are met",
}


def lying_oddly(rng: random.Random, x: torch.Tensor) -> torch.Tensor:
    """A tensor of these sizes and of this type, which often lies otherwise; no view that knows of another one."""
    way, rank, x = rng.randrange(6), x.dim(), x.detach()
    if way == 0 and rank > 1:
        order = rng.sample(range(rank), rank)
        x = x.permute(order).contiguous().permute([order.index(d) for d in range(rank)])
    elif way == 1 and rank and x.numel():
        dim = rng.randrange(rank)
        x = torch.repeat_interleave(x, 2, dim).unfold(dim, 1, 2).squeeze(-1)
    elif way == 2 and rank and x.numel():
        x = x.narrow(dim, 0, 1).expand(x.shape) if x.size(dim := rng.randrange(rank)) > 1 else x
    elif way == 3 and x.numel():
        before = 1 if x.device.type == "cpu" else 4  # some of torch's own kernels fault where rows of vectors begin between two
        x = torch.cat([x.reshape(-1)[:1].expand(before), x.reshape(-1)])[before:].view(x.shape)
    elif way == 4 and x.is_complex():
        return x.conj()
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def geometry(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x if isinstance(x, (int, str, torch.dtype)) else type(x)
    return tuple(x.shape), x.dtype, x.stride() if x.numel() else (), x.is_conj(), x.is_neg()


def root(x: torch.Tensor) -> torch.Tensor:
    return x if x._base is None else x._base


def shared(results: list[Any], given: list[torch.Tensor]) -> list[Any]:
    """Which arguments each result is, or is a view of, and how far from their beginning it begins."""

    def how(x: torch.Tensor, y: torch.Tensor) -> Any:
        return "itself" if x is y else x.storage_offset() - y.storage_offset() if x.dtype is y.dtype else "other type"

    return [[(i, how(x, y)) for i, y in enumerate(given) if root(x) is root(y)] for x in results if isinstance(x, torch.Tensor)]


def outcome(op: Any, args: Any) -> Any:
    given = [t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    results = pytree.tree_leaves(op(args[0], *args[1], **args[2]))
    return [geometry(x) for x in results], shared(results, given)


def compared(op: Any, dtype: torch.dtype, device: str = "cpu") -> int:
    """How many calls were compared."""
    count = 0
    for number, sample in enumerate(itertools.islice(op.sample_inputs(device, dtype), SAMPLES)):
        rng = random.Random(f"{op.name} {number}")
        args = (sample.input, sample.args, sample.kwargs)
        tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
        if any(t.layout is not torch.strided or t.is_quantized for t in tensors):
            continue
        args = pytree.tree_map_only(torch.Tensor, lambda t, rng=rng: lying_oddly(rng, t), args)
        try:
            with FakeContext() as context:
                got = outcome(op, pytree.tree_map_only(torch.Tensor, context.from_tensor, args))
        except (DataDependent, NoFakeKernel):
            continue
        except Exception as error:
            got = error
        try:
            want = outcome(op, args)
        except Exception:
            continue  # what eager refuses fakes may take: the operator refuses it when it runs
        assert not isinstance(got, Exception), (got, [geometry(t) for t in tensors])
        assert got == want, [geometry(t) for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
        count += 1
    return count


DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
CASES = [
    pytest.param(op, dtype, device, id=f"{op.name} {op.variant_test_name} {dtype} {device}".replace("torch.", "").replace(" cpu", ""))
    for device in DEVICES
    for op in op_db
    for dtype in (torch.float32, torch.complex64)
    if dtype in op.supported_dtypes(device)
]


@pytest.mark.parametrize(("op", "dtype", "device"), CASES)
def test_as_eager(op: Any, dtype: torch.dtype, device: str) -> None:
    if reason := APART.get(op.name.partition("_")[0] if op.name.startswith("jiterator") else op.name):
        pytest.skip(reason)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compared(op, dtype, device)


def test_most_operators_are_compared() -> None:
    torch.manual_seed(0)
    names = ("add", "mul", "sum", "cat", "matmul", "where", "fft.hfft", "ldexp", "view_copy", "normal", "imag", "conj", "addmv", "expand")
    for op in op_db:
        if op.name in names:
            assert sum(compared(op, dtype) for dtype in (torch.float32, torch.complex64) if dtype in op.supported_dtypes("cpu")), op.name
