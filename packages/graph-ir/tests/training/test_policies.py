"""Selective activation checkpointing: what a policy keeps is kept, what it computes again is, and no more is held than eager holds."""

import functools
import math
import operator

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.capture.policies import NOTE, Unnamed, name_of
from opmill_graph_ir.capture.text import parse_graph, show_graph
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.planning.key import graph_key

aten, F = torch.ops.aten, torch.nn.functional


def region(x, w):
    for _ in range(3):
        x = F.gelu(torch.tanh(x @ w) @ w.t()) + x.sigmoid()
    return x


def every_second_product():
    """Policies may have a state, new for each checkpoint."""
    seen = []

    def policy(ctx, func, *args, **kwargs):
        if func is aten.mm.default:
            assert args[1].shape == (16, 16)
            seen.append(func)
        return CheckpointPolicy.MUST_SAVE if func is aten.mm.default and len(seen) % 2 else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def always(answer):
    return functools.partial(create_selective_checkpoint_contexts, functools.partial(answered, answer))


def answered(answer, ctx, func, *args, **kwargs):
    return answer


def of_loops(ctx, func, *args, **kwargs):
    return func in (aten.tanh.default, aten.sigmoid.default)


POLICIES = {
    "products": functools.partial(create_selective_checkpoint_contexts, [aten.mm.default]),
    "every second product": every_second_product,
    "loops": functools.partial(create_selective_checkpoint_contexts, of_loops),
    "all kept": always(CheckpointPolicy.MUST_SAVE),
    "none kept": always(CheckpointPolicy.MUST_RECOMPUTE),
    "rather none": always(CheckpointPolicy.PREFER_RECOMPUTE),
}


def graph_of(context_fn):
    inner = torch.fx.symbolic_trace(lambda x, w: (region(x, w),))
    inner.meta[NOTE] = context_fn
    graph = torch.fx.Graph()
    inputs = [graph.placeholder("x"), graph.placeholder("w")]
    called = graph.call_function(
        torch.ops.higher_order.tag_activation_checkpoint, (graph.get_attr("region"), *inputs), {"use_reentrant": False}
    )
    value = graph.call_function(operator.getitem, (called, 0))
    graph.output((graph.call_method("sum", (graph.call_method("sin", (value,)),)),))
    return torch.fx.GraphModule({"region": inner}, graph)


def inputs():
    torch.manual_seed(0)
    return torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)


def eager_bytes(context_fn):
    """Of the results that eager keeps by the policy."""
    x, w = inputs()
    contexts = []

    def remembered():
        contexts.extend(context_fn())
        return tuple(contexts)

    out = checkpoint(region, x, w, use_reentrant=False, context_fn=remembered)
    kept = {}
    for stored in contexts[0].storage.values():
        for each in stored.values():
            for item in each if isinstance(each, (list, tuple)) else [each]:
                t = getattr(item, "val", None)
                if isinstance(t, torch.Tensor):
                    kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    known = {t.untyped_storage().data_ptr() for t in (x, w, out)}
    return sum(size for place, size in kept.items() if place not in known)


def halves_of(context_fn):
    x, w = inputs()
    joint = capture_joint(graph_of(context_fn), [x, w])
    return joint, partition(joint)


def own(halves):
    """What is saved and is no input."""
    return [name for name in halves.saved if name not in halves.forward.inputs]


@pytest.mark.parametrize("name", POLICIES)
def test_no_more_is_held_than_eager_holds(name):
    with torch.enable_grad():
        eager = eager_bytes(POLICIES[name])
        joint, halves = halves_of(POLICIES[name])
    inside = [name for name in own(halves) if name != own_of_none(joint)]
    assert sum(4 * math.prod(halves.forward.metas[name].sizes) for name in inside) <= eager
    assert parse_graph(show_graph(joint.graph)).nodes == joint.graph.nodes


def own_of_none(joint):
    """What leaves the checkpoint: eager holds it for what comes after."""
    [sine] = [n for n in joint.graph.nodes if n.func is aten.sin.default]
    return sine.args[0].name


EXPECTED = {"products": 0, "every second product": 3, "loops": 3, "all kept": 0, "none kept": 6, "rather none": 6}
"""Products that are computed once more than where all is kept."""


def made_by(halves, names):
    return sorted(n.func.name().removeprefix("aten::") for n in halves.forward.nodes if set(n.results) & set(names))


def test_what_is_kept_and_what_is_computed_again():
    with torch.enable_grad():
        found = {name: halves_of(context)[1] for name, context in POLICIES.items()}
    again = {name: [n.func.name().removeprefix("aten::") for n in halves.backward.nodes] for name, halves in found.items()}
    products = {name: list.count("mm") - again["all kept"].count("mm") for name, list in again.items()}
    assert products == EXPECTED
    assert {"tanh", "sigmoid"} <= set(made_by(found["loops"], found["loops"].saved))
    assert "tanh" not in again["loops"] and "tanh" in again["none kept"]
    assert made_by(found["none kept"], own(found["none kept"])) == ["add.Tensor"]  # what leaves the checkpoint


@pytest.mark.parametrize("name", POLICIES)
def test_gradients(name):
    x, w = inputs()
    want = torch.autograd.grad(region(x, w).sin().sum(), [x, w])
    compiled = compile_graph(graph_of(POLICIES[name]), [x, w], options=GraphOptions(cache=False, verify=True), generators=())
    for a, b in zip(torch.autograd.grad(compiled(x, w)[0], [x, w]), want, strict=True):
        torch.testing.assert_close(a, b)


def test_keys_tell_policies_apart():
    x, w = inputs()
    keys = {name: graph_key(graph_of(context), [x, w], GraphOptions(), ()) for name, context in POLICIES.items()}
    assert None not in keys.values() and len({*keys.values()}) == len(keys)
    assert keys["products"] == graph_key(
        graph_of(functools.partial(create_selective_checkpoint_contexts, [aten.mm.default])), [x, w], GraphOptions(), ()
    )


def residual(x, w):
    return (x + F.gelu(x @ w),)


def test_a_chain_of_checkpoints_begins_with_the_last():
    """Its results are cheap to compute again, one from the other: all of the chain would be in memory at once."""
    graph = torch.fx.Graph()
    x, w = (graph.placeholder(name) for name in "xw")
    for _ in range(4):
        called = graph.call_function(
            torch.ops.higher_order.tag_activation_checkpoint, (graph.get_attr("region"), x, w), {"use_reentrant": False}
        )
        x = graph.call_function(operator.getitem, (called, 0))
    graph.output((graph.call_method("sum", (x,)),))
    with torch.enable_grad():
        halves = partition(capture_joint(torch.fx.GraphModule({"region": torch.fx.symbolic_trace(residual)}, graph), list(inputs())))
    assert made_by(halves, own(halves)) == ["add.Tensor"] * 3
    assert [n.func for n in halves.backward.nodes].count(aten.gelu.default) == 0


def test_what_has_no_name_has_no_key():
    x, w = inputs()
    policy = functools.partial(answered, x)  # a tensor
    with pytest.raises(Unnamed):
        name_of(policy)
    assert graph_key(graph_of(functools.partial(create_selective_checkpoint_contexts, policy)), [x, w], GraphOptions(), ()) is None
