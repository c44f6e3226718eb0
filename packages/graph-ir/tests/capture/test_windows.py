"""Attention within a window of positions becomes a kernel that goes over the window alone."""

import math
import random

import pytest
import torch
from joint_text import lines, shown

from opmill_graph_ir.capture import windows
from opmill_graph_ir.capture.attending import AttentionOperator, with_dense_attention
from opmill_graph_ir.capture.causal import leave_to_kernels
from opmill_graph_ir.capture.text import parse_graph
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.ops.lower import lower

HEADS, WIDTH = 2, 16


def text(queries: int, keys: int, more: str, result: str = "y, _, _, _, _, _, _, _, _", leaving: str = "y") -> str:
    """``more`` makes truths ``m`` of places ``q0`` [queries, 1] of queries and ``k0`` [keys] of keys."""
    q, k, pairs = f"[1, {HEADS}, {queries}, {WIDTH}]", f"[1, {HEADS}, {keys}, {WIDTH}]", f"[{queries}, {keys}]"
    return lines(f"""
input q: bfloat16{q} on cuda:0
input k: bfloat16{k} on cuda:0
input v: bfloat16{k} on cuda:0
a: int64[{queries}] on cuda:0 = aten::arange({queries}, device=device('cuda:0'), pin_memory=False)
k0: int64[{keys}] on cuda:0 = aten::arange({keys}, device=device('cuda:0'), pin_memory=False)
q0: int64[{queries}, 1] on cuda:0 = aten::unsqueeze(a, 1)
{more}
hidden: bfloat16[] on cuda:0 = aten::scalar_tensor(-65504.0, dtype=torch.bfloat16, device=device('cuda:0'))
shown: bfloat16[] on cuda:0 = aten::scalar_tensor(0.0, dtype=torch.bfloat16, layout=torch.strided, device=device('cuda:0'))
b: bfloat16{pairs} on cuda:0 = aten::where.self(m, shown, hidden)
e: bfloat16[1, {HEADS}, {queries}, {keys}] strides [0, 0, {keys}, 1] on cuda:0 = aten::expand(b, [1, {HEADS}, {queries}, {keys}])
{_typed(result, q)} = aten::_scaled_dot_product_cudnn_attention(q, k, v, e, {result[-1] != "_"})
return {leaving}
""")


def _typed(result: str, sizes: str) -> str:
    names = result.split(", ")
    looks = [f"bfloat16{sizes} on cuda:0", f"float32[1, {HEADS}, {sizes.split(', ')[2]}, 1] on cuda:0"]
    return ", ".join(n if n == "_" else f"{n}: {look}" for n, look in zip(names, looks + [""] * 7, strict=True))


def band(queries: int, keys: int, before: int, behind: int) -> str:
    """Keys from ``before`` in front of a query's place to ``behind`` after it."""
    pairs, column = f"[{queries}, {keys}]", f"[{queries}, 1]"
    return f"""f: int64{column} on cuda:0 = aten::sub.Tensor(q0, {before})
l: int64{column} on cuda:0 = aten::add.Tensor(q0, {behind})
m1: bool{pairs} on cuda:0 = aten::ge.Tensor(k0, f)
m2: bool{pairs} on cuda:0 = aten::le.Tensor(k0, l)
m: bool{pairs} on cuda:0 = aten::bitwise_and.Tensor(m1, m2)"""


def rewritten(program: str):
    graph = parse_graph(program)
    leave_to_kernels(graph)
    return graph


def test_a_sliding_window_needs_no_mask() -> None:
    graph = rewritten(text(1024, 1024, band(1024, 1024, 255, 0)))
    *_, attention, end = shown(graph).splitlines()
    assert attention.endswith("opmill::attention(q, k, v, [], [])")
    assert (len(graph.nodes), end) == (1, "return y")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (text(256, 256, band(256, 256, 31, 0)), "short"),
        (text(1024, 1024, band(1024, 1024, 1000, 0)), "wide"),
        (text(1024, 1024, band(1024, 1024, 31, -32)), "of nothing"),
        (text(1024, 1024, band(1024, 1024, 31, -1)), "first query sees none"),
        (text(1024, 1024, band(1024, 1024, 255, 0), "y, s, _, _, _, _, _, _, _", "y, s"), "its sums are wanted"),
        (text(1024, 1024, band(1024, 1024, 255, 0)).replace("bfloat16", "float32"), "single precision"),
        (text(1024, 1024, band(1024, 1024, 255, 0)).replace(f"{WIDTH}]", "24]"), "no such tiles"),
        (text(1024, 1024, "m: bool[1024, 1024] on cuda:0 = aten::eq.Tensor(k0, q0)"), ""),
    ],
)
def test_what_stays(program: str, why: str) -> None:
    graph = rewritten(program)
    assert (not any(isinstance(n.func, AttentionOperator) for n in graph.nodes)) == bool(why), why


def test_heads_that_are_repeated_are_not_written_out() -> None:
    program = text(1024, 1024, band(1024, 1024, 255, 0))
    for name in "kv":
        own, wide = "[1, 1, 1024, 16]", "[1, 1, 2, 1024, 16]"
        program = program.replace(
            f"input {name}: bfloat16[1, 2, 1024, 16] on cuda:0",
            f"""input {name}1: bfloat16{own} on cuda:0
{name}2: bfloat16[1, 1, 1, 1024, 16] on cuda:0 = aten::unsqueeze({name}1, 2)
{name}3: bfloat16{wide} strides [16384, 16384, 0, 16, 1] on cuda:0 = aten::expand({name}2, [1, 1, 2, 1024, 16])
{name}4: bfloat16{wide} on cuda:0 = aten::clone({name}3, memory_format=torch.contiguous_format)
{name}: bfloat16[1, 2, 1024, 16] on cuda:0 = aten::_unsafe_view({name}4, [1, 2, 1024, 16])""",
        )
    inputs = [line for line in program.splitlines() if line.startswith("input")]
    graph = rewritten("\n".join([*inputs, *(line for line in program.splitlines() if line not in inputs)]))
    [node] = graph.nodes
    assert [v.name for v in node.args[:3]] == ["q", "k1", "v1"]
    dense = [n.func.name() for n in with_dense_attention(graph).nodes]
    assert dense.count("aten::clone") == 2 and dense[-1] == "aten::_scaled_dot_product_cudnn_attention"


@pytest.mark.parametrize("seed", range(12))
def test_windows_at_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_FEWEST", 1)
    draw = random.Random(seed)
    queries, keys = draw.randint(20, 60), draw.randint(20, 60)
    shift = keys - queries
    before, behind = draw.randint(0, 6) - min(shift, 0), draw.randint(0, 6) + max(shift, 0)
    graph = rewritten(text(queries, keys, band(queries, keys, before, behind)))
    places = torch.arange(queries)[:, None], torch.arange(keys)
    kept = (places[1] >= places[0] - before) & (places[1] <= places[0] + behind)
    few = kept.sum() <= kept.numel() / 2 and bool(kept.any(1).all())
    assert (len(graph.nodes) == 1) == few
    if not few:
        return
    [extern] = lower(graph).nodes
    torch.manual_seed(seed)
    q, k, v = (torch.randn(1, HEADS, n, WIDTH).bfloat16() for n in (queries, keys, keys))
    names = [b.name for b in extern.kernel.buffers]
    memory = dict(zip(names, (q, k, v, torch.empty_like(q)), strict=True))
    evaluate(extern.kernel, memory, wide=True)
    scores = (q.double() @ k.double().transpose(-2, -1) / math.sqrt(WIDTH)).masked_fill(~kept, -math.inf)
    torch.testing.assert_close(memory[names[-1]].double(), scores.softmax(-1) @ v.double(), rtol=1e-2, atol=1e-2)


# ---- with gradients ------------------------------------------------------------------------------------------------------


def in_training(queries: int, keys: int, more: str, kind: str = "cudnn", wanted: str = "gq, gk, gv") -> str:
    """The joint graph of the same."""
    sizes = f"[1, {HEADS}, {queries}, {WIDTH}]"
    q, k = (f"bfloat16[1, {HEADS}, {n}, {WIDTH}] on cuda:0" for n in (queries, keys))
    results = ", ".join(w if w == "_" else f"{w}: {q if w == 'gq' else k}" for w in wanted.split(", "))
    masked = text(queries, keys, more).splitlines()[:-2]
    inputs = sum(line.startswith("input") for line in masked)
    masked.insert(inputs, f"input g: {q}")
    seeds = "n: int64[] on cuda:0, p: int64[] on cuda:0"
    if kind == "cudnn":
        sums = f"float32[1, {HEADS}, {queries}, 1]"
        forward = f"_, _, _, _, {seeds}, _ = aten::_scaled_dot_product_cudnn_attention(q, k, v, e, True)"
        backward = (
            f"aten::_scaled_dot_product_cudnn_attention_backward(g, q, k, v, y, s, n, p, e, None, None, {queries}, {keys}, 0.0, False)"
        )
    else:
        sums, results = f"float32[1, {HEADS}, {-(-queries // 32) * 32}]", f"{results}, _"
        masked = [line.replace("-65504.0", "-3e38") for line in masked]
        forward = f"{seeds} = aten::_scaled_dot_product_efficient_attention(q, k, v, e, True)"
        given = "g, q, k, v, e, y, s, n, p, 0.0, [True, True, True, False]"
        backward = f"aten::_scaled_dot_product_efficient_attention_backward({given})"
    leaving = ", ".join(["y", *(w for w in wanted.split(", ") if w != "_")])
    return "\n".join(
        [*masked, f"y: bfloat16{sizes} on cuda:0, s: {sums} on cuda:0, {forward}", f"{results} = {backward}", f"return {leaving}"]
    )


@pytest.mark.parametrize("kind", ["cudnn", "efficient"])
def test_both_halves_need_no_mask(kind: str) -> None:
    graph = rewritten(in_training(1024, 1024, band(1024, 1024, 127, 0), kind))
    *_, forward, a, b, product, rows, backward, end = shown(graph).splitlines()
    assert forward.endswith("s: float32[1, 2, 1024] on cuda:0, _ = opmill::attention(q, k, v, [], [])")
    assert backward.endswith("= opmill::attention_backward(q, k, v, g, s, gq_rows, [], [])")
    assert (len(graph.nodes), end) == (6, "return y, gq, gk, gv")
    dense = [n.func.name() for n in with_dense_attention(graph).nodes]
    name = f"aten::_scaled_dot_product_{kind}_attention"
    assert dense.count(name) == 2 and dense[-1] == f"{name}_backward"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (in_training(1024, 1024, band(1024, 1024, 400, 0)), "wide"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)).replace("return y", "return y, s"), "its sums are wanted"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)).replace("0.0, False)", "0.1, False)"), "some are dropped"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)).replace("g, q, k, v, y", "g, q, v, k, y"), "of something else"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)).replace("g, q, k, v, y", "g, q, k, v, q"), "of another output"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)).replace(f" {WIDTH}]", " 256]"), "wide heads"),
        (in_training(1024, 1024, band(1024, 1024, 127, 0)), ""),
    ],
)
def test_halves_that_stay(program: str, why: str) -> None:
    graph = rewritten(program)
    assert {isinstance(n.func, AttentionOperator) for n in graph.nodes if "attention" in n.func.name()} == {not why}, why


@pytest.mark.parametrize("wanted", ["gq, gk, gv", "_, _, gv", "gq, _, _"])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_at_random(seed: int, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_FEWEST", 1)
    draw = random.Random(seed)
    queries, keys = draw.randint(30, 60), draw.randint(30, 60)
    shift = keys - queries
    before, behind = draw.randint(0, 3) - min(shift, 0), draw.randint(0, 3) + max(shift, 0)
    graph = rewritten(in_training(queries, keys, band(queries, keys, before, behind), draw.choice(["cudnn", "efficient"]), wanted))
    places = torch.arange(queries)[:, None], torch.arange(keys)
    kept = (places[1] >= places[0] - before) & (places[1] <= places[0] + behind)
    assert any(isinstance(n.func, AttentionOperator) for n in graph.nodes) == (kept.sum() <= kept.numel() / 4 and bool(kept.any(1).all()))
    if not any(isinstance(n.func, AttentionOperator) for n in graph.nodes):
        return
    torch.manual_seed(seed)
    q, k, v = (torch.randn(1, HEADS, n, WIDTH).bfloat16() for n in (queries, keys, keys))
    g = torch.randn_like(q)
    found = run_lowered(lower(graph), [q, k, v, g], wide=True)
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    scores = (leaves[0] @ leaves[1].transpose(-2, -1) / math.sqrt(WIDTH)).masked_fill(~kept, -math.inf)
    output = scores.softmax(-1) @ leaves[2]
    gradients = torch.autograd.grad(output, leaves, g.double())
    named = dict(zip(("gq", "gk", "gv"), gradients, strict=True))
    for name, got in zip(wanted.replace(" ", "").replace("_,", "").replace(",_", "").split(","), found[1:], strict=True):
        torch.testing.assert_close(got.double(), named[name], rtol=3e-2, atol=3e-2)
