"""Masks of attention that positions alone make: which are left to the kernel, and that values and gradients are eager's."""

import pytest
import torch
import torch.nn.functional as F
from joint_text import lines, shown
from torch.fx.experimental.proxy_tensor import make_fx

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.capture.causal import leave_to_kernels
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.capture.text import parse_graph
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

INF = float("inf")
L = 6


def of_transformers(n=L):
    """As transformers write it."""
    positions = (torch.arange(n) + 0)[None]
    documents = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch, rows = torch.arange(1)[:, None, None, None], positions[:, None, :, None]
    columns = positions[:, None, None, :]
    mask = positions.new_ones((), dtype=torch.bool) & (positions[batch, columns] <= positions[batch, rows])
    return (mask & (documents[batch, rows] == documents[batch, columns])).expand(1, -1, n, n)


CAUSAL = {
    "transformers": of_transformers,
    "tril": lambda: torch.ones(L, L, dtype=torch.bool).tril(),
    "triu": lambda: ~torch.triu(torch.ones(L, L, dtype=torch.bool), 1),
    "added": lambda: torch.triu(torch.full((L, L), -INF), diagonal=1),
    "filled": lambda: torch.zeros(L, L).masked_fill(torch.ones(L, L).tril() == 0, -INF),
    "least": lambda: torch.where(torch.arange(L)[:, None] >= torch.arange(L), 0.0, torch.finfo(torch.float32).min),
    "product": lambda: (1.0 - torch.ones(L, L).tril()) * torch.finfo(torch.float32).min,
    "greater": lambda: ~(torch.arange(L) > torch.arange(L).unsqueeze(1))[None, None],
    "wide window": lambda: (torch.arange(L) <= torch.arange(L)[:, None]) & (torch.arange(L) > torch.arange(L)[:, None] - L),
}
OPEN = {
    "ones": lambda: torch.ones(L, L, dtype=torch.bool),
    "zeros": lambda: torch.zeros(L, L),
    "all": lambda: (torch.arange(L) < L).expand(L, L),
}
OTHER = {
    "window": lambda: (torch.arange(L) <= torch.arange(L)[:, None]) & (torch.arange(L) > torch.arange(L)[:, None] - 3),
    "shifted": lambda: torch.ones(L, L, dtype=torch.bool).tril(1),
    "turned": lambda: torch.ones(L, L, dtype=torch.bool).triu(),
    "little": lambda: torch.triu(torch.full((L, L), -1e4), diagonal=1),
    "more": lambda: torch.triu(torch.full((L, L), 1.0), diagonal=1),
    "whole": lambda: torch.full((L, L), -INF),
    "data": lambda: torch.rand(L, L) > -1,
}


def attending(mask):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask())


def inputs(dtype=torch.float32, grad=False):
    torch.manual_seed(0)
    return [torch.randn(2, 3, L, 8, dtype=dtype).requires_grad_(grad) for _ in range(3)]


def traced(fn, given):
    """As a graph that differentiates attention itself."""
    return make_fx(fn, pre_dispatch=True)(*given)


def captured(fn, given):
    graph = functionalize(traced(fn, given), given)
    leave_to_kernels(graph)
    return graph


def attention_of(graph):
    """Whether it is causal and has a mask, for each node of attention."""
    found = [node for node in graph.nodes if "attention" in node.func.name()]
    return [(node.argument("is_causal") or False, node.argument("attn_mask") is not None) for node in found]


KINDS = {**dict.fromkeys(CAUSAL, (True, False)), **dict.fromkeys(OPEN, (False, False)), **dict.fromkeys(OTHER, (False, True))}


@pytest.mark.parametrize("name", KINDS)
def test_masks_that_positions_make(name: str) -> None:
    fn = attending((CAUSAL | OPEN | OTHER)[name])
    graph = captured(fn, inputs())
    assert attention_of(graph) == [KINDS[name]]
    if name not in OTHER:
        assert len(graph.nodes) == 1  # what made the mask is gone
    torch.testing.assert_close(run_lowered(lower(graph), inputs())[0], fn(*inputs()), equal_nan=True)


@pytest.mark.parametrize("name", [*CAUSAL, *OPEN])
def test_gradients(name: str) -> None:
    given = inputs(grad=True)
    joint = capture_joint(traced(attending((CAUSAL | OPEN)[name]), given), given)
    leave_to_kernels(joint.graph)
    assert attention_of(joint.graph) == [(name in CAUSAL, False)] * 2
    halves = partition(joint)
    found = run_lowered(lower(halves.forward), [x.detach() for x in given])
    known = dict(zip(joint.graph.inputs, given, strict=False))
    known |= {o.value: t for o, t in zip(halves.forward.outputs, found, strict=True)}
    tangent = torch.randn_like(found[0])
    known[joint.graph.inputs[joint.inputs]] = tangent
    gradients = run_lowered(lower(halves.backward), [known[n].detach() for n in halves.backward.inputs])
    exact = [x.detach().double().requires_grad_() for x in given]
    wanted = F.scaled_dot_product_attention(*exact, is_causal=name in CAUSAL)
    torch.testing.assert_close(found[0].double(), wanted.detach(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(gradients, torch.autograd.grad(wanted, exact, tangent.double()), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)


def test_sizes_that_are_symbols() -> None:
    sizes = Sizes()
    n, context = sizes.new(L, name="s0"), FakeContext(sizes)
    given = [context.from_tensor(t, {2: n}) for t in inputs()]
    graph = torch.fx.Graph()
    q, k, v = (graph.placeholder(name) for name in "qkv")
    length = graph.call_method("size", (q, 2))
    mask = graph.call_function(of_transformers, (length,))
    graph.output(graph.call_function(F.scaled_dot_product_attention, (q, k, v), {"attn_mask": mask}))
    found = functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), given)
    leave_to_kernels(found)
    assert attention_of(found) == [(True, False)]
    assert [d for d in sizes.decisions if d.relation.kind == "=="] == []


def test_more_keys_than_queries_keep_their_mask() -> None:
    def longer(q, k, v):
        mask = torch.ones(L, 2 * L, dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, torch.cat([k, k], 2), torch.cat([v, v], 2), attn_mask=mask)

    assert attention_of(captured(longer, inputs())) == [(False, True)]


@pytest.mark.parametrize(("dtype", "masked"), [(torch.float16, True), (torch.bfloat16, False), (torch.float32, False)])
def test_the_least_number_hides_where_scores_cannot_reach_it(dtype: torch.dtype, masked: bool) -> None:
    mask = lambda: torch.triu(torch.full((L, L), torch.finfo(dtype).min, dtype=dtype), diagonal=1)  # noqa: E731
    assert attention_of(captured(attending(mask), inputs(dtype))) == [(not masked, masked)]


ON_A_GPU = """
input q: bfloat16[1, 2, 64, 16] on cuda:0
input k: bfloat16[1, 2, 64, 16] on cuda:0
input v: bfloat16[1, 2, 64, 16] on cuda:0
p: int64[64] on cuda:0 = aten::arange(64, device=device('cuda:0'), pin_memory=False)
r: int64[64, 1] on cuda:0 = aten::unsqueeze(p, 1)
m: bool[64, 64] on cuda:0 = aten::le.Tensor(p, r)
hidden: bfloat16[] on cuda:0 = aten::scalar_tensor(-65504.0, dtype=torch.bfloat16, device=device('cuda:0'))
shown: bfloat16[] on cuda:0 = aten::scalar_tensor(0.0, dtype=torch.bfloat16, layout=torch.strided, device=device('cuda:0'))
b: bfloat16[64, 64] on cuda:0 = aten::where.self(m, shown, hidden)
e: bfloat16[1, 2, 64, 64] strides [0, 0, 64, 1] on cuda:0 = aten::expand(b, [1, 2, 64, 64])
y: bfloat16[1, 2, 64, 16] on cuda:0, _, _, _, _, _, _, _, _ = aten::_scaled_dot_product_cudnn_attention(q, k, v, e, False)
return y
"""


def test_masks_of_truths_as_torch_hands_them_to_cudnn() -> None:
    graph = parse_graph(lines(ON_A_GPU))
    leave_to_kernels(graph)
    *_, attention, end = shown(graph).splitlines()
    assert attention.endswith("aten::_scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, True)")
    assert (len(graph.nodes), end) == (1, "return y")
    assert [node.op for node in lower(graph).nodes] == ["aten::_scaled_dot_product_cudnn_attention"]
