"""Attention with functions of the user's in it, compiled as for a GPU and interpreted: against all scores at once in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch._higher_order_ops.flex_attention import flex_attention

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.higher_order import flex_fused
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.compiling import scheduled
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.spec import complaints
from opmill_graph_ir.loops.text import parse, show
from opmill_graph_ir.ops.flex import with_attention_by_kernels
from opmill_kernel_gen_triton.attention.shape import shape_of
from opmill_kernel_gen_triton.budget import DEFAULT, AttentionShape, Budget
from opmill_kernel_gen_triton.debug import compiled_for_gpu, on_gpu, run

pytestmark = pytest.mark.triton

SCORES = {
    "plain": lambda s, b, h, i, j, *_: s,
    "slopes": lambda s, b, h, i, j, slopes, *_: s + slopes[h] * (i - j),
    "bias": lambda s, b, h, i, j, slopes, bias, *_: s + bias[h, i, j],
    "capped": lambda s, b, h, i, j, *_: torch.tanh(s / 2) * 2,
    "batches": lambda s, b, h, i, j, *_: s * (b + 1) + j,
    "in the mask": lambda s, b, h, i, j, *_: torch.where(i >= j, s, -math.inf),
}
MASKS = {
    "all": None,
    "causal": lambda b, h, i, j, *_: i >= j,
    "window": lambda b, h, i, j, *_: (i >= j) & (i - j <= 9),
    "ahead": lambda b, h, i, j, *_: (j - i < 21) & (i - j < 12),
    "documents": lambda b, h, i, j, slopes, bias, document: document[i] == document[j],
    "causal documents": lambda b, h, i, j, slopes, bias, document: (document[i] == document[j]) & (j <= i),
    "prefix": lambda b, h, i, j, *_: (i >= j) | (j < 7),
    "late rows": lambda b, h, i, j, *_: i + 3 <= j,
    "even heads": lambda b, h, i, j, *_: (h % 2 == 0) & (j < 40),
}
CASES = [
    *((score, mask, torch.float32, 2, 2, 70, 70, 16, 16) for score, mask in (("plain", m) for m in MASKS)),
    *((score, "causal", torch.float32, 2, 1, 70, 70, 16, 16) for score in SCORES),
    ("capped", "causal", torch.bfloat16, 4, 2, 130, 130, 64, 64),
    ("slopes", "window", torch.float16, 4, 1, 128, 128, 32, 64),
    ("plain", "causal", torch.bfloat16, 2, 2, 33, 150, 128, 128),
    ("bias", "all", torch.bfloat16, 2, 2, 150, 33, 64, 32),
    ("plain", "window", torch.bfloat16, 1, 1, 300, 300, 64, 64),
    ("plain", "ahead", torch.float16, 1, 1, 257, 257, 16, 16),
    ("plain", "all", torch.bfloat16, 1, 1, 64, 128, 256, 256),
    ("slopes", "documents", torch.bfloat16, 2, 1, 96, 96, 32, 32),
    ("plain", "all", torch.bfloat16, 1, 1, 1, 77, 64, 64),
]


@pytest.fixture(autouse=True)
def _with_tensor_cores(monkeypatch):
    monkeypatch.setattr(flex_fused, "traits_of", lambda device: SimpleNamespace(matrix_units=True))


def module_of(function, count: int) -> torch.fx.GraphModule:
    names = ", ".join(f"a{k}" for k in range(count))
    return torch.fx.symbolic_trace(eval(f"lambda {names}: f({names})", {"f": function}))


def program(score: str, mask: str, scale: float, results: int, blocks: tuple = ()) -> torch.fx.GraphModule:
    """flex_attention of (query, key, value, slopes, bias, document, *tensors among what ``blocks`` tell of the mask)."""
    graph, kept = torch.fx.Graph(), MASKS[mask] or (lambda b, h, i, j, *_: b.new_ones((), dtype=torch.bool))
    inputs = [graph.placeholder(name) for name in ("q", "k", "v", "slopes", "bias", "document")]
    root = torch.nn.Module()
    root.score, root.kept = module_of(SCORES[score], 8), module_of(kept, 7)
    block = tuple(graph.placeholder(f"b{k}") if isinstance(b, torch.Tensor) else b for k, b in enumerate(blocks or (1,) * 12))
    block = (*block, graph.get_attr("kept"))
    others = tuple(inputs[3:6])
    call = graph.call_function(flex_attention, (*inputs[:3], graph.get_attr("score"), block, scale, {}, others, others))
    graph.output(tuple(graph.call_function(lambda x, k: x[k], (call, k)) for k in range(results)))
    return torch.fx.GraphModule(root, graph)


def reference(score: str, mask: str, scale: float, q, k, v, *others, blocks=None):
    """Output, logarithm of the sums, to base 2. ``blocks``: of each pair 0 for one that does not count, 2 for one that does, 1 where the
    mask says which."""
    k, v = (t.repeat_interleave(q.size(1) // t.size(1), 1) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * scale
    at = [torch.arange(n).reshape([n if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    changed = SCORES[score](scores, *at, *others).expand(scores.shape)
    if MASKS[mask] is not None:
        kept = MASKS[mask](*at, *others)
        kept = kept if blocks is None else (blocks == 2) | (blocks == 1) & kept
        changed = torch.where(kept.expand(scores.shape), changed, -math.inf)
    empty = changed.amax(-1) == -math.inf
    weights = torch.where(empty.unsqueeze(-1), 0.0, torch.where(empty.unsqueeze(-1), 0.0, changed).softmax(-1))
    sums = torch.where(empty, 0.0, changed.masked_fill(empty.unsqueeze(-1), 0.0).logsumexp(-1))
    return weights @ v, torch.where(empty, -math.inf, sums / math.log(2))


def tensors(dtype, heads, own, queries, keys, width, depth, requires_grad=False):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, m, d) for n, m, d in ((heads, queries, width), (own, keys, width), (own, keys, depth)))
    q = torch.randn(2, queries, heads, width).transpose(1, 2)
    q, k, v = (t.to(dtype).requires_grad_(requires_grad) for t in (q, k, v))
    longest = max(queries, keys)
    return q, k, v, torch.rand(heads), torch.randn(heads, longest, longest), torch.arange(longest, dtype=torch.int32) // 37


def close(got, want, dtype):
    bound = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    assert torch.equal(got.isinf(), want.isinf())
    error = (got.double() - want.double()).nan_to_num(0.0)
    assert not got.isnan().any() and error.norm() <= bound * want.nan_to_num(0.0, 0.0, 0.0).norm().clamp(min=1e-3) + 1e-9, error.norm()


def tangents_of(joint) -> list[torch.Tensor]:
    """Of the output and of the logarithms, laid out as autograd gives them."""
    metas = joint.tangents
    return [torch.empty_strided(m.sizes, m.strides, dtype=getattr(torch, m.dtype)).copy_(torch.randn(m.sizes)) for m in metas]


def attending(kernels) -> list:
    return [k for k in kernels if k.attention is not None]


@pytest.mark.parametrize(("score", "mask", "dtype", "heads", "own", "queries", "keys", "width", "depth"), CASES)
def test_forward(score, mask, dtype, heads, own, queries, keys, width, depth) -> None:
    given, scale = tensors(dtype, heads, own, queries, keys, width, depth), 0.3
    with torch.no_grad():
        graph = on_gpu(functionalize(program(score, mask, scale, 3), given))
        assert attending(scheduled(with_attention_by_kernels(graph))[1].kernels()), "torch's operators"
        got, sums, largest = compiled_for_gpu(graph)[0](*given)
        want, logarithms = reference(score, mask, scale, *(t.double() if t.dtype == dtype else t for t in given))
    close(got, want, dtype)
    close(sums, logarithms, dtype)
    assert torch.equal(largest.isinf(), logarithms.isinf()) and (largest <= sums + 1e-3).all()
    assert got.stride() == torch.empty_like(given[0][..., :1].expand(2, heads, queries, depth)).stride() or 1 in (heads, queries)


def gradients_are_right(score, mask, dtype, heads, own, queries, keys, width, depth, budget=DEFAULT) -> None:
    given, scale = tensors(dtype, heads, own, queries, keys, width, depth, requires_grad=True), 0.3
    joint = capture_joint(program(score, mask, scale, 2), given)
    call = compiled_for_gpu(on_gpu(joint.graph), budget)[0]
    exact = [t.detach().double().requires_grad_() if t.dtype == dtype and k < 3 else t for k, t in enumerate(given)]
    want, sums = reference(score, mask, scale, *exact)
    tangents = tangents_of(joint)
    with torch.no_grad():
        results = call(*(t.detach() for t in given), *tangents)
    finite = torch.where(sums.isinf(), 0.0, sums)
    found = torch.autograd.grad([want, finite], exact[:3], [t.double() for t in tangents])
    for name, gradient in zip(joint.targets, results[2:], strict=True):
        close(gradient, found[int(name[1:])], dtype)


@pytest.mark.parametrize(("score", "mask", "dtype", "heads", "own", "queries", "keys", "width", "depth"), CASES)
def test_gradients(score, mask, dtype, heads, own, queries, keys, width, depth) -> None:
    gradients_are_right(score, mask, dtype, heads, own, queries, keys, width, depth)


@pytest.mark.parametrize("score, mask", [*(("plain", mask) for mask in MASKS), ("slopes", "causal"), ("capped", "window")])
def test_gradients_of_steps_that_multiply_for_the_next(score, mask) -> None:
    """Stretches of the loop end and begin anywhere."""
    budget = Budget(attention=AttentionShape(32, 16, 4, 2, ahead=True))
    gradients_are_right(score, mask, torch.float32, 2, 1, 70, 64, 16, 16, budget)


@pytest.mark.parametrize(("score", "mask"), [("slopes", "causal documents"), ("capped", "window"), ("bias", "late rows")])
def test_kernels_are_what_they_say(score, mask) -> None:
    """Legal, as text and back, and of one value with the reference interpreter."""
    given = tensors(torch.float32, 4, 2, 50, 60, 16, 32, requires_grad=True)
    joint = capture_joint(program(score, mask, 0.25, 2), given)
    kernels = attending(scheduled(with_attention_by_kernels(on_gpu(joint.graph)))[1].kernels())
    assert [k.attention.part for k in kernels] == ["forward", "keys", "queries"]
    for kernel in kernels:
        assert not list(complaints(kernel)) and parse(show(kernel)) == kernel
        memory = {b.name: torch.randn(b.numel.evaluate({})).to(getattr(torch, b.dtype)) for b in kernel.buffers}
        for name, placed in kernel.attention.operands:
            if name == "sums" and kernel.attention.part != "forward":
                memory[placed.buffer].fill_(20.0)
        wide = {n: t.double() if t.dtype == torch.float32 else t.clone() for n, t in memory.items()}
        evaluate(kernel, wide, wide=True)
        assert not run(kernel, memory)
        for b in kernel.buffers:
            if b.role == "out":
                close(memory[b.name], wide[b.name], torch.float32)


def test_large_tiles_are_for_masks_that_end_on_one_side() -> None:
    def tiles(score: str, mask: str) -> list[AttentionShape]:
        given = tensors(torch.bfloat16, 2, 2, 512, 512, 128, 128, requires_grad=True)
        graph = on_gpu(capture_joint(program(score, mask, 0.3, 2), given).graph)
        kernels = attending(scheduled(with_attention_by_kernels(graph))[1].kernels())
        return [shape_of(k.attention, DEFAULT) for k in kernels]

    causal, window, changed, documents = (
        tiles(*case) for case in (("plain", "causal"), ("plain", "window"), ("capped", "causal"), ("plain", "documents"))
    )
    assert [s.steps for s in causal] == [128, 128, 128]
    for others in (window, changed, documents):
        assert all(a.rows * a.steps < b.rows * b.steps for a, b in zip(others, causal, strict=True))


def test_symbolic_sizes_are_those_of_the_call() -> None:
    """Scores of long sequences are not in memory where lengths have changed before, either."""
    given, scale = tensors(torch.bfloat16, 4, 2, 50, 50, 32, 32, requires_grad=True), 0.3
    sizes = Sizes()
    context, (batch, length, documents) = (
        FakeContext(sizes),
        (sizes.new(n, name=name) for name, n in (("rows", 2), ("length", 50), ("documents", 50))),
    )
    moving = [{0: batch, 2: length}] * 3 + [{}, {}, {0: documents}]
    examples = [context.from_tensor(t, at) if at else t for t, at in zip(given, moving, strict=True)]
    joint = capture_joint(program("slopes", "causal documents", scale, 2), examples)
    kernels = attending(scheduled(with_attention_by_kernels(on_gpu(joint.graph)))[1].kernels())
    assert [k.attention.part for k in kernels] == ["forward", "keys", "queries"]


@pytest.mark.parametrize("how", ["looked up", "of captured", "odd width"])
def test_others_stay_with_torch(how, monkeypatch) -> None:
    """What only data tell where to read, gradients of what functions read, other head dimensions."""
    given = list(tensors(torch.float32, 2, 2, 20, 20, 24 if how == "odd width" else 16, 16, requires_grad=True))
    monkeypatch.setitem(SCORES, "plain", lambda s, b, h, i, j, slopes, bias, document: s + slopes[document[i]])
    if how == "of captured":
        given[3].requires_grad_()
    score = "plain" if how == "looked up" else "slopes"
    joint = capture_joint(program(score, "causal", 0.3, 2), given)
    assert not attending(scheduled(with_attention_by_kernels(on_gpu(joint.graph)))[1].kernels())
    exact = [t.detach().double().requires_grad_() if k < 4 else t for k, t in enumerate(given)]
    want, sums = reference(score, "causal", 0.3, *exact)
    tangents = tangents_of(joint)
    with torch.no_grad():
        results = compiled_for_gpu(on_gpu(joint.graph))[0](*(t.detach() for t in given), *tangents)
    found = torch.autograd.grad([want, sums], exact[:4], [t.double() for t in tangents])
    for name, gradient in zip(joint.targets, results[2:], strict=True):
        close(gradient, found[int(name[1:])], torch.float32)
