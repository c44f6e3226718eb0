"""A backward in stages: the same gradients, each handed out before what comes after it has run, and never read again by the graph."""

import pytest
import torch
from training_cases import CASES

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.gradient_buckets import split
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.staged import StagedBackward


def layers():
    torch.manual_seed(1)
    sizes = [(16, 32), (32, 32), (32, 32), (32, 4)]
    parts = [m for a, b in sizes for m in (torch.nn.Linear(a, b), torch.nn.LayerNorm(b), torch.nn.GELU())]
    return torch.nn.Sequential(*parts)


X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def backward_of_sum(call, module, inputs):
    out = call(*inputs)
    outs = out if isinstance(out, (tuple, list)) else (out,)
    sum(o.float().pow(2).sum() for o in outs if o.requires_grad).backward()
    grads = [p.grad for p in module.parameters()] + [x.grad for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return [*outs, *grads, *module.buffers()]


@pytest.mark.parametrize("case", CASES)
def test_as_eager_with_a_stage_for_each_gradient(case, twins):
    make, *inputs = CASES[case]
    twins(make(), *inputs, bucket_bytes=1).same(backward_of_sum, *inputs)


def stages_of(pair):
    return pair.compiled.executable.layout.stages


@pytest.mark.parametrize("bucket_bytes", [1, 1000, 5000])
def test_gradients_come_last_layer_first(bucket_bytes, twins):
    pair = twins(layers(), X, bucket_bytes=bucket_bytes)
    order = []
    for name, parameter in pair.module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))
    pair.call(X).sum().backward()
    stages = stages_of(pair)
    assert len(stages) > 1 and len(order) == len(set(order)) == len(list(pair.module.parameters()))
    names = [name for name, _ in pair.module.named_parameters()]
    targets = pair.compiled.executable.layout.targets
    held = {id(t): name for t, name in zip(pair.module.parameters(), names, strict=True)}
    of = [held[id(pair.compiled.executable.held[k])] for _, k in targets]
    given = [{of[g] for g in stage.gradients} for stage in stages]
    while order:  # autograd may choose an order inside a stage, not across two
        first = given.pop(0)
        assert set(order[: len(first)]) == first
        order = order[len(first) :]


def test_small_graphs_have_one_stage(twins):
    assert stages_of(twins(layers(), X, bucket_bytes=1 << 20)) == ()
    assert stages_of(twins(layers(), X)) == ()


def test_an_optimizer_in_hooks_of_parameters(twins):
    """Weights are written as soon as their gradients are there, while earlier layers' gradients, which depend on them, are still to
    come."""

    def step(parameter):
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.5)
            parameter.grad.fill_(torch.nan)

    def use(call, module, inputs):
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            module.zero_grad()
            call(*inputs).pow(2).sum().backward()
        return [p.detach() for p in module.parameters()]

    twins(layers(), X, bucket_bytes=1).same(use, X)


def test_parts_of_the_gradients_and_twice(twins):
    def use(call, module, inputs):
        parameters = list(module.parameters())
        out = call(*inputs).pow(2).sum()
        some = [torch.autograd.grad(out, parameters[k], retain_graph=True)[0] for k in (0, 5, -1)]
        out.backward(retain_graph=True)
        out.backward()
        return [*some, *(p.grad for p in parameters)]

    twins(layers(), X, bucket_bytes=1).same(use, X)


def test_second_derivatives(twins):
    def use(call, module, inputs):
        found = torch.autograd.grad(call(*inputs).pow(2).mean(), list(module.parameters()), create_graph=True)
        sum(g.pow(2).mean() for g in found).backward()
        return [p.grad for p in module.parameters()]

    twins(layers(), X, bucket_bytes=1).same(use, X)


def test_from_the_store(tmp_path):
    from opmill_runtime_cache.store import Store

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, *_):
            return False

    store, reports, grads = Store(tmp_path), [], []
    for _ in range(2):
        model = layers()
        traced = torch.fx.GraphModule(model, Tracer().trace(model))
        compiled = compile_graph(traced, [X], options=GraphOptions(bucket_bytes=1000), store=store, generators=())
        compiled(X)[0].sum().backward()
        reports.append(compiled.report.cached)
        grads.append([p.grad for p in model.parameters()])
        assert len(compiled.executable.layout.stages) > 1
    assert reports == [False, True]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_random_numbers_in_a_backward_keep_it_whole(monkeypatch):
    from opmill_graph_ir.capture.joint import capture_joint
    from opmill_graph_ir.capture.partition import partition

    model = layers()
    gm = torch.fx.symbolic_trace(model)
    joint = capture_joint(gm, [X])
    halves = partition(joint)
    assert len(split(halves, joint.targets, 1)[0]) > 1
    monkeypatch.setattr("opmill_graph_ir.gradient_buckets.moves_on", lambda node: True)
    assert split(halves, joint.targets, 1) == ([], [])


def test_saved_tensors_that_come_back_laid_out_otherwise(twins):
    def transposed(t):
        return t.t().contiguous().t() if t.dim() == 2 else t

    def use(call, module, inputs):
        with torch.autograd.graph.saved_tensors_hooks(transposed, lambda t: t):
            out = call(*inputs)
        out.pow(2).sum().backward()
        return [p.grad for p in module.parameters()]

    twins(layers(), X, bucket_bytes=1).same(use, X)


def test_what_was_used_is_dropped(twins, monkeypatch):
    pair = twins(layers(), X, bucket_bytes=1)
    pass_on, left = StagedBackward.pass_on, []

    def watch(self, number, rest):
        left.append(sum(t is not None for t in rest.pool))
        return pass_on(self, number, rest)

    monkeypatch.setattr(StagedBackward, "pass_on", watch)
    pair.call(X).sum().backward()
    assert len(left) == len(stages_of(pair)) and left[-1] == 0 and left[0] > 4
