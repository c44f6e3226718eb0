"""Gradients of compiled modules against eager's: which there are, their values, and when there are errors instead."""

import gc
import operator
import weakref

import pytest
import torch
from training_cases import CASES, XG, Of, Of2, X

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.errors import GraphError

F = torch.nn.functional


def grads(module, inputs=()):
    return [p.grad for p in module.parameters()] + [x.grad for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]


def backward_of_sum(call, module, inputs):
    out = call(*inputs)
    outs = out if isinstance(out, (tuple, list)) else (out,)
    sum(o.float().pow(2).sum() for o in outs if o.requires_grad).backward()
    return [*outs, *grads(module, inputs), *module.buffers()]


@pytest.mark.parametrize("case", CASES)
def test_as_eager(case, twins):
    make, *inputs = CASES[case]
    twins(make(), *inputs).same(backward_of_sum, *inputs)


def test_no_gradient_where_no_tangent_comes(twins):
    pair = twins(Of(lambda m, x: (x * m.b, (x @ m.w).sin())), XG)

    def use(k):
        def run(call, module, inputs):
            call(*inputs)[k].sum().backward()
            return grads(module, inputs)

        return run

    pair.same(use(0), XG)
    assert pair.module.w.grad is None and pair.module.b.grad is not None
    pair.same(use(1), XG)


def test_nothing_but_detached(twins):
    def use(call, module, inputs):
        whole, part, b = call(*inputs)
        assert not (whole.requires_grad or part.requires_grad or b.requires_grad)
        return [whole, part, b]

    twins(Of(lambda m, x: (x.detach(), x.detach()[1:], m.b.detach())), XG).same(use, XG)


def test_a_result_and_the_same_detached(twins):
    def use(call, module, inputs):
        y, whole, part = call(*inputs)
        assert y.requires_grad and not whole.requires_grad and not part.requires_grad
        whole.mul_(2)
        y.sum().backward()
        return [y.detach(), whole, part, *grads(module, inputs)]

    def f(m, x):
        y = x @ m.w + m.b
        return y, y.detach(), y.detach()[1:]

    twins(Of(f), XG).same(use, XG)


def test_retained_accumulated_and_freed(twins):
    def use(call, module, inputs):
        out = call(*inputs)
        loss = out.exp().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        call(*inputs).sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        return grads(module, inputs)

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_gradients_of_some_inputs(twins):
    def use(call, module, inputs):
        out = call(*inputs)
        tangent = torch.arange(12.0).reshape(4, 3).t()  # laid out otherwise than the output
        [gx] = torch.autograd.grad(out, inputs[:1], tangent, retain_graph=True)
        gw, gb = torch.autograd.grad(out, [module.w, module.b], torch.ones(()).expand(3, 4))
        return [gx, gw, gb]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_called_twice_before_backward(twins):
    def use(call, module, inputs):
        first, second = call(inputs[0]), call(inputs[0] * 2)
        (first * second).sum().backward()
        return [first, second, *grads(module, inputs)]

    twins(Of(lambda m, x: torch.tanh(torch.exp(x) @ m.w) * m.b), XG).same(use, XG)


def test_training_steps_then_inference(twins):
    def use(call, module, inputs):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = call(*inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            return [*losses, call(*inputs), *module.parameters()]

    twins(Of(lambda m, x: F.gelu(x @ m.w) + m.b), X).same(use, X)


def test_hooks(twins):
    def use(call, module, inputs):
        seen = []
        inputs[0].register_hook(lambda g: seen.append(g) or g * 2)
        module.w.register_hook(lambda g: g * 3)
        module.b.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        out = call(*inputs)
        out.register_hook(lambda g: g + 1)
        out.retain_grad()
        out.sum().backward()
        return [*sorted(seen, key=torch.Tensor.dim), out.grad, *grads(module, inputs)]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_frozen_parameter(twins):
    module = Of(lambda m, x: torch.tanh(x @ m.w) * m.b)
    module.w.requires_grad_(False)
    pair = twins(module, X)
    pair.same(backward_of_sum, X)
    assert pair.module.w.grad is None


def test_input_that_is_computed_from_a_parameter(twins):
    def use(call, module, inputs):
        call(inputs[0] * module.b).sum().backward()
        return grads(module, inputs)

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


# ---- writes between forward and backward ---------------------------------------------------------------------------


def raises_as_eager(pair, spoil, *inputs):
    def use(call, module, given):
        out = call(*given)
        with torch.no_grad():
            spoil(out, module, given)
        outs = out if isinstance(out, (tuple, list)) else (out,)
        try:
            sum(o.sum() for o in outs if o.requires_grad).backward()
        except RuntimeError as error:
            return [str(error).partition(":")[0]]
        return grads(module, given)

    want, got = pair.run(use, *inputs)
    assert isinstance(want[0], str), "eager does not mind"
    assert got == want


SPOILED = {
    "an input": (lambda m, x: x @ m.w, lambda out, m, given: given[0].add_(1)),
    "a parameter": (lambda m, x: x @ m.w, lambda out, m, given: m.w.add_(1)),
    "an output": (lambda m, x: (x * m.b).exp(), lambda out, m, given: out.add_(1)),
    "a view of what is saved": (lambda m, x: (x * m.b).exp().t(), lambda out, m, given: out.add_(1)),
    "a detached output": (lambda m, x: [o for t in [(x * m.b).exp()] for o in (t, t.detach())], lambda out, m, given: out[1].add_(1)),
    "a detached view": (
        lambda m, x: [o for t in [(x * m.b).exp()] for o in (t.sum(), t.detach()[0])],
        lambda out, m, given: out[1].add_(1),
    ),
    "a detached input": (lambda m, x: (x @ m.w, x.detach()), lambda out, m, given: out[1].add_(1)),
    "a view of a buffer": (lambda m, x: (x * m.b * m.s, m.s[:2]), lambda out, m, given: out[1].add_(1)),
}


@pytest.mark.parametrize("what", SPOILED)
def test_written_between_forward_and_backward(what, twins):
    fn, spoil = SPOILED[what]
    raises_as_eager(twins(Of(fn), XG), spoil, XG)


# ---- outputs that share memory -------------------------------------------------------------------------------------


def test_outputs_without_gradient_share_memory_as_in_eager(twins):
    def use(call, module, inputs):
        x, y = inputs
        out, part, detached = call(x, y)
        with torch.no_grad():
            y.fill_(7)
        shared = part.data_ptr() == y[1].data_ptr(), detached.data_ptr() == x.data_ptr()
        part.requires_grad_()  # as any leaf
        return [out, part, *shared]

    twins(Of2(lambda m, x, y: (x * m.b, y[1], x.detach())), XG, X).same(use, XG, X)


HANDED_ON = {
    "the tangent itself": lambda m, x: x + 1,
    "the tangent of two": lambda m, x: x + m.w[:3],
    "a part each": lambda m, x: torch.cat([x, m.w]),
    "columns each": lambda m, x: torch.cat([x, m.w[:3]], 1),
    "every second": lambda m, x: torch.stack([x, m.w[:3]], -1),
    "one value for a row": lambda m, x: (x + m.b).sum(1),
    "transposed": lambda m, x: x.t().contiguous(),
    "a part each of a value": lambda m, x: torch.cat([x, m.w]) * 2,
    "columns each of a value": lambda m, x: torch.cat([x, m.w[:3]], 1) * 2,
    "one value": lambda m, x: (x + m.w[:3]) * 2,
}


@pytest.mark.parametrize("what", HANDED_ON)
def test_gradients_lie_in_tangents_and_in_each_other_as_in_eager(what, twins):
    def use(call, module, inputs):
        out = call(*inputs)
        tangent = torch.randn(out.shape)
        towards = [*inputs, module.w, module.b]
        found = [g for g in torch.autograd.grad(out, towards, tangent, allow_unused=True) if g is not None]
        same = [g is tangent for g in found]
        strides = [g.stride() for g in found]
        lie = [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in (tangent, *found) for b in found]
        for _ in range(2):
            call(*inputs).backward(tangent.clone())
        return [*found, *grads(module, inputs), same, strides, lie]

    twins(Of(HANDED_ON[what]), XG).same(use, XG)


def test_gradients_of_two_views_of_one_value_are_summed_up_apart(twins):
    """Eager's lie in the same memory, and each takes what the other sums up."""
    pair = twins(Of(lambda m, x: (x.view(12) + m.w[:3].view(12)) * 2), XG)
    given = XG.detach().clone().requires_grad_()
    for _ in range(2):
        pair.call(given).sum().backward()
    assert given.grad.eq(4).all() and pair.module.w.grad[:3].eq(4).all()


ALIASES = {
    "an input": lambda m, x: (x, x * m.b),
    "nothing but an input": lambda m, x: x,
    "a view of an input": lambda m, x: (x[0], x * m.b),
    "a view with a step": lambda m, x: (x[1:, ::2].t(), x * m.b),
    "all of an input as a view": lambda m, x: (x.view(3, 4), x * m.b),
    "a parameter": lambda m, x: (m.w, x * m.b),
    "a view of a parameter": lambda m, x: (m.w.t(), x @ m.w),
    "two views of one value": lambda m, x: (x * m.b).chunk(2),
    "a value and a view of it": lambda m, x: [o for t in [(x * m.b).exp()] for o in (t[1], t, t.t())],
    "one view twice": lambda m, x: [o for t in [x[0]] for o in (t, t, t)],
    "views of what is written": lambda m, x: (x * m.b).mul_(2).unbind(0),
    "some that overlap": lambda m, x: [o for t in [(x * m.b).sin()] for o in (t[:2], t[1:], t.expand(2, 3, 4))],
}


@pytest.mark.parametrize("what", ALIASES)
def test_differentiable_aliases(what, twins):
    twins(Of(ALIASES[what]), XG).same(backward_of_sum, XG)

    def memories(call, module, inputs):
        out = call(*inputs)
        outs = [*(out if isinstance(out, (tuple, list)) else (out,)), *inputs, module.w]
        return [
            [a is b for a in outs for b in outs],
            [[a.data_ptr() - b.data_ptr() for b in outs if b._base is a._base is not None] for a in outs],
        ]

    twins(Of(ALIASES[what]), XG).same(memories, XG)


def test_a_write_to_one_of_two_views_is_seen_by_the_other(twins):
    def use(call, module, inputs):
        first, second = call(*inputs)
        first.mul_(3)
        (first * second).sum().backward()
        return [first, second, *grads(module, inputs)]

    twins(Of(lambda m, x: [o for t in [(x * m.b) + 1] for o in (t[:2], t[1:])]), XG).same(use, XG)


def test_what_needs_no_gradient_and_is_a_part_of_an_operators_result_may_be_written(twins):
    def use(call, module, inputs):
        part, result = call(*inputs)
        part.mul_(result.sum())
        part.sum().backward()
        return [part, *grads(module, inputs)]

    twins(Of(lambda m, x: (torch.sort(x.detach(), dim=-1)[0][..., :2], x * m.b)), XG).same(use, XG)


def test_gradient_penalty_through_two_views(twins):
    def use(call, module, inputs):
        first, second = call(*inputs)
        [g] = torch.autograd.grad((first * second).sum(), inputs, create_graph=True)
        g.pow(2).sum().backward()
        return [g, *grads(module, inputs)]

    twins(Of(lambda m, x: torch.tanh(x @ m.w).chunk(2, -1)), XG).same(use, XG)


def test_a_view_that_autograd_does_not_know_is_refused(twins):
    with pytest.raises(GraphError, match="GI001"):
        twins(Of(lambda m, x: [o for t in [x * m.b] for o in (t, t.detach().requires_grad_())]), XG)


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


@pytest.mark.parametrize("of", [lambda x: [x], lambda x: [x[:1]], lambda x: [x * 2] * 2])
def test_a_view_with_a_gradient_of_its_own_is_not_made_anew(of):
    def program(x):
        made = of(x)
        return [*made[:-1], Turned.apply(made[-1])]

    graph = torch.fx.Graph()
    graph.output(graph.call_function(program, (graph.placeholder("x"),)))
    with pytest.raises(GraphError, match="GI001"):
        capture_joint(torch.fx.GraphModule({}, graph), [torch.ones(3, requires_grad=True)])


WRITES = {
    "before it is used": lambda m, x: (m.w.detach().mul_(0.5).sum() * 0 + x @ m.w).tanh() * m.b,
    "after it was used": lambda m, x: [y for y in [(x + m.w[:3]).tanh() * m.b] for _ in [m.w.detach().mul_(0.9)]][0],
    "of an input": lambda m, x: (x.detach().clamp_(-1, 1).sum() * 0 + x.exp()) * m.b,
    "of a row": lambda m, x: (m.w.detach()[1].zero_().sum() * 0 + x @ m.w.t()).sin(),
    "and it is a result": lambda m, x: [m.w.detach().copy_(x.detach().t() @ x.detach()), x @ m.w, m.w, m.w[0]][1:],
    "to be renormed": lambda m, x: (F.embedding((x > 0).long(), m.w, max_norm=0.7) * m.b).sum(1),
}


@pytest.mark.parametrize("what", WRITES)
def test_writes_behind_autograd_to_what_requires_grad(what, twins):
    def use(call, module, inputs):
        module.w._version_before = module.w._version
        found = [*backward_of_sum(call, module, inputs), *inputs, *backward_of_sum(call, module, inputs), *inputs, module.w]
        assert module.w.is_leaf and (module.w._version > module.w._version_before) == (what != "of an input")
        return found

    twins(Of(WRITES[what]), XG).same(use, XG)


def test_what_the_backward_needs_and_is_written_behind_autograd_is_left_to_eager(twins):
    with pytest.raises((GraphError, RuntimeError), match="GI001|modified by an inplace operation"):
        twins(Of(lambda m, x: [y for y in [x @ m.w] for _ in [m.w.detach().mul_(0.9)]][0]), XG)


# ---- the second derivative -----------------------------------------------------------------------------------------


def penalty(call, module, inputs):
    out = call(*inputs)
    [g] = torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)
    (out.sum() + g.pow(2).sum()).backward()
    return [out, g, *grads(module, inputs)]


def test_gradient_penalty(twins):
    pair = twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG)
    pair.same(penalty, XG)
    pair.same(lambda c, m, i: penalty(lambda x: c(x.exp()), m, i), XG)  # of an input that has a history


def test_gradient_penalty_through_an_input_made_of_a_parameter(twins):
    def use(call, module, inputs):
        h = inputs[0] * module.b
        out = call(h)
        gh, gb = torch.autograd.grad(out.sum(), [h, module.b], create_graph=True)
        (gh.pow(2).sum() + gb.pow(2).sum()).backward()
        return [gh, gb, *grads(module, inputs)]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_third_derivative(twins):
    def use(call, module, inputs):
        g = call(*inputs).sum()
        for _ in range(3):
            [g] = torch.autograd.grad(g.sum(), inputs, create_graph=True)
        return [g]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_a_second_derivative_of_what_was_written_since_is_an_error(twins):
    pair = twins(Of(lambda m, x: torch.tanh(x.sum(0)) * m.b + m.w[0]), XG)
    kept = XG.detach().clone().requires_grad_() * 1
    out = pair.call(kept)
    with torch.no_grad():
        pair.module.w.add_(1)
    with pytest.raises(GraphError, match="GI007"):
        torch.autograd.grad(out.sum(), [pair.module.b], create_graph=True)


def test_a_second_derivative_where_nobody_else_keeps_the_input(twins):
    def use(call, module, inputs):
        out = call(inputs[0] * 1)
        gc.collect()
        [g] = torch.autograd.grad(out.sum(), [module.b], create_graph=True)
        (g.pow(2).sum() + out.sum()).backward()
        return [out, g, *grads(module, inputs)]

    pair = twins(Of(lambda m, x: torch.tanh(x.sum(0)) * m.b + m.w[0]), XG)
    pair.same(use, XG)
    x = XG * 1
    gone = weakref.ref(x)
    pair.call(x).sum().backward()
    del x
    assert gone() is None  # the backward lets go of it


# ---- results that are differentiated one after the other -------------------------------------------------------------

APART = {
    "nothing in common": lambda m, x: ((x * m.b).exp(), torch.tanh(m.w @ m.w)),
    "parameters in common": lambda m, x: ((x.detach() * m.b).exp(), torch.tanh(x @ m.w) * m.b),
    "cut in the middle": lambda m, x: [(h.square(), (h.detach() @ m.w).sigmoid() * m.b) for h in [torch.tanh(x * m.b)]][0],
    "what keeps nothing in common": lambda m, x: [(h.exp(), h.tanh()) for h in [x + m.b]][0],
    "two and one": lambda m, x: [(h.exp(), (x.detach() @ m.w).sin(), h.tanh() * 2) for h in [torch.sigmoid(x * m.b)]][0],
    "all": lambda m, x: [(h.exp(), h.tanh()) for h in [torch.sigmoid(x * m.b)]][0],
    "one result is saved for another": lambda m, x: [(h, h.detach() * (x @ m.w).exp()) for h in [torch.exp(x * m.b)]][0],
    "views of one memory": lambda m, x: [((x.detach() @ m.w * m.b).sin(), c[0], c[1]) for c in [torch.tanh(x * m.b).chunk(2)]][0],
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("what", APART)
def test_backwards_one_after_the_other(what, order, twins):
    def use(call, module, inputs):
        found = []
        outs = call(*inputs)
        for out in outs[::order]:
            try:
                (out.pow(2) if out.dim() else out).sum().backward()
            except RuntimeError as error:
                found.append(str(error)[:40])
            found += [None if g is None else g.clone() for g in grads(module, inputs)]
        return [*outs, *found]

    pair = twins(Of(APART[what]), XG)
    pair.same(use, XG)
    pair.same(backward_of_sum, XG)

    def penalty_of_each(call, module, inputs):
        first, *others = call(*inputs)
        [g] = torch.autograd.grad(first.sum(), [module.b if what != "nothing in common" else inputs[0]], create_graph=True)
        (g.pow(2).sum() + sum(o.sum() for o in others)).backward()
        return [g, *grads(module, inputs)]

    pair.same(penalty_of_each, XG)


def test_memory_of_one_part_goes_with_it(twins):
    pair = twins(Of(lambda m, x: (torch.tanh(x.detach() @ m.w), torch.sigmoid(x * m.b).exp())), XG)
    a, b = pair.call(XG)
    kept = b.grad_fn.saved_tensors
    a.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        _ = a.grad_fn.saved_tensors
    assert b.grad_fn.saved_tensors and kept


def test_a_result_whose_graph_the_program_has_freed(twins):
    """A step that asks for its gradients and returns the loss, which is not differentiated again; whoever does so is told what eager
    tells."""

    def step(m, x):
        loss = (torch.tanh(x @ m.w) * m.b).sum()
        gw, gb = torch.autograd.grad(loss, [m.w, m.b])
        return loss, gw, gb, (x * m.b).sum()

    def use(call, module, inputs):
        loss, gw, gb, other = call(*inputs)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        other.backward()
        return [loss, gw, gb, *grads(module, inputs)]

    module = Of(step)
    graph = torch.fx.Graph()
    x, w, b = graph.placeholder("x"), graph.get_attr("w"), graph.get_attr("b")
    loss = graph.call_method(
        "sum", (graph.call_function(torch.mul, (graph.call_function(torch.tanh, (graph.call_function(torch.matmul, (x, w)),)), b)),)
    )
    found = graph.call_function(torch.autograd.grad, (loss, [w, b]))
    other = graph.call_method("sum", (graph.call_function(torch.mul, (x, b)),))
    graph.output((loss, graph.call_function(operator.getitem, (found, 0)), graph.call_function(operator.getitem, (found, 1)), other))
    twins(module, XG, gm=lambda own: torch.fx.GraphModule(own, graph)).same(use, XG)


# ---- torch's own machinery around a graph --------------------------------------------------------------------------


def test_checkpoint(twins):
    from torch.utils.checkpoint import checkpoint

    def use(call, module, inputs):
        out = checkpoint(lambda x: call(x.sin()), inputs[0], use_reentrant=False)
        out.pow(2).sum().backward()
        return [out, *grads(module, inputs)]

    twins(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5)), XG).same(use, XG)


def test_compiled_inside_a_checkpoint(twins):
    """The checkpoint's hooks see what the compiled graph saves, not what is saved while it is compiled."""
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        pair = twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG)
        assert not seen
        pair.call(XG)
    assert seen


def test_autocast(twins):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4), torch.nn.Softmax(-1))
    with torch.autocast("cpu", torch.bfloat16):
        pair = twins(module, XG)

    def use(call, module, inputs):
        with torch.autocast("cpu", torch.bfloat16):
            out = call(*inputs)
        out.float().pow(2).sum().backward()
        return [out.float().bfloat16(), *(g.bfloat16() for g in grads(module, inputs))]

    pair.same(use, XG)


def test_saved_on_another_layout(twins):
    """Hooks may give back saved tensors laid out otherwise."""

    def use(call, module, inputs):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
            out = call(*inputs)
        out.sum().backward()
        return grads(module, inputs)

    x = torch.randn(4, 3).t().requires_grad_()
    twins(Of(lambda m, x: torch.tanh(x @ m.w.t()) * m.b), x).same(use, x)


def test_a_buffer_written_by_the_graph_counts_as_written(twins):
    def use(call, module, inputs):
        before = inputs[0] * module.b * module.s  # saves s
        out = call(*inputs)
        try:
            before.sum().backward()
        except RuntimeError as error:
            return [str(error).partition(":")[0]]
        return [out]

    twins(Of(lambda m, x: (x * m.b) + m.s.mul_(0.5).sum() * 0), XG).same(use, XG)


def test_an_input_made_in_inference_mode(twins):
    def use(call, module, inputs):
        with torch.inference_mode():
            x = inputs[0] * 2
        out = call(x)
        out.sum().backward()
        return [out, *grads(module)]

    twins(Of(lambda m, x: x + m.b), X).same(use, X)


def test_a_view_of_an_expanded_input_is_left_to_eager():
    """As a strided view of memory that its elements share, each would be given the mean of their gradients."""
    x = torch.ones(1).expand(5).detach().requires_grad_()
    with pytest.raises(GraphError, match="GI001"):
        capture_joint(torch.fx.symbolic_trace(lambda x: (x.unfold(0, 2, 1),)), [x])
