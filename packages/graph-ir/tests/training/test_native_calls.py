"""Differentiated calls in native code: what they hand to autograd, and what they leave to Python, is the same as all of it in Python."""

import gc
import weakref

import pytest
import torch
from training_cases import Of, Of2

F = torch.nn.functional


def several(m, x):
    y = torch.tanh(x @ m.w)
    return y * m.b, y.sum(0).exp(), (x > 0).long(), y.detach() * 2


def types(m, x):
    y = torch.tanh(x @ m.w)
    return y.double() * m.b, y.bfloat16() * 3, torch.complex(y, y) * 1j


MODULES = {
    "one output": lambda: Of(lambda m, x: torch.tanh(x @ m.w) * m.b),
    "several outputs": lambda: Of(several),
    "an output that is saved": lambda: Of(lambda m, x: torch.sigmoid(x * m.b)),
    "without parameters": lambda: Of(lambda m, x: x.sin() * x),
    "dropout": lambda: Of(lambda m, x: F.dropout(x @ m.w, 0.5) * m.b),
    "several types": lambda: Of(types),
    "no gradient for the input": lambda: Of(lambda m, x: x.detach().exp() * m.b),
}


def given(seed=5):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.fixture(params=["natively", "in Python"])
def pair(request, twins):
    def made(what, *inputs):
        pair = twins(MODULES[what]() if isinstance(what, str) else what, *(inputs or [given()]))
        graph = pair.compiled.executable
        assert graph.native is not None, "nothing of this is tested"
        if request.param == "in Python":
            graph.native = None
        return pair

    return made


def floating(out):
    return [o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad]


def grads(module, inputs):
    return [*(p.grad for p in module.parameters()), *(x.grad for x in inputs)]


def summed(call, module, inputs):
    out = call(*inputs)
    sum(o.abs().double().sum() for o in floating(out)).backward()
    return [*(out if isinstance(out, tuple) else (out,)), *grads(module, inputs), torch.rand(2)]


def kept(call, module, inputs):
    outs = floating(call(*inputs))
    for _ in range(2):
        torch.autograd.backward(outs, [torch.ones_like(o) for o in outs], retain_graph=True)
    return grads(module, inputs)


def batched(call, module, inputs):
    [out, *_] = floating(call(*inputs))
    tangents = torch.eye(out.numel(), dtype=out.dtype).view(-1, *out.shape)
    towards = [t for t in (*inputs, *module.parameters())]
    return torch.autograd.grad(out, towards, tangents, is_grads_batched=True, allow_unused=True)


def one_by_one(call, module, inputs):
    outs = floating(call(*inputs))
    return [g for o in outs for g in torch.autograd.grad(o, inputs, torch.ones_like(o), retain_graph=True, allow_unused=True)]


USES = {use.__name__: use for use in (summed, kept, batched, one_by_one)}


@pytest.mark.parametrize(("what", "use"), [(what, use) for what in MODULES for use in USES if (what, use) != ("dropout", "batched")])
def test_gradients(what, use, pair):
    pair(what).same(USES[use], given())


@pytest.mark.parametrize("what", ["one output", "several outputs", "dropout", "without parameters"])
def test_second_derivatives(what, pair):
    def penalty(call, module, inputs):
        [out, *_] = floating(call(*inputs))
        [first] = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        (first.square().sum() + out.sum()).backward()
        return [first, *grads(module, inputs)]

    pair(what).same(penalty, given())


TANGENTS = {
    "transposed": lambda: torch.randn(4, 3).t(),
    "expanded": lambda: torch.ones(()).expand(3, 4),
    "negative": lambda: torch._neg_view(torch.randn(3, 4)),
    "zeros without memory": lambda: torch._efficientzerotensor((3, 4)),
    "every second": lambda: torch.randn(3, 8)[:, ::2],
    "a parameter": lambda: torch.nn.Parameter(torch.randn(3, 4)),
    "inference mode's": lambda: torch.inference_mode()(torch.ones)(3, 4),
}


@pytest.mark.parametrize("which", TANGENTS)
def test_tangents_of_all_layouts(which, pair):
    def use(call, module, inputs):
        out = call(*inputs)
        torch.manual_seed(1)
        out.backward(TANGENTS[which]())
        return grads(module, inputs)

    pair("one output").same(use, given())


def test_a_conjugate_tangent(pair):
    def use(call, module, inputs):
        out = call(*inputs)
        torch.manual_seed(1)
        out.backward(torch.randn(3, 2, dtype=torch.complex64).conj())
        return grads(module, inputs)

    pair(Of(lambda m, x: torch.view_as_complex(x.view(3, 2, 2)) * 1j * m.b[:2])).same(use, given())


def test_freed_graphs_and_written_inputs_are_refused_as_in_eager(pair):
    def freed(call, module, inputs):
        call(*inputs).sum().backward()
        out = call(*inputs).sum()
        out.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            out.backward()
        return grads(module, inputs)

    def written(call, module, inputs):
        out = call(*inputs)
        with torch.no_grad():
            module.w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        return []

    made = pair("one output")
    made.same(freed, given())
    made.same(written, given())


def test_hooks_bring_saved_tensors_back_laid_out_otherwise(pair):
    def use(call, module, inputs):
        stored = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: stored.append(t.clone()) or len(stored) - 1,
            lambda k: stored[k].mT.contiguous().mT if stored[k].dim() > 1 else stored[k],
        ):
            out = call(*inputs)
        out.sum().backward()
        assert stored
        return grads(module, inputs)

    pair("one output").same(use, given())


@pytest.mark.parametrize("spread", [lambda x: x[:1].expand(3, 4), lambda x: x.flatten().unfold(0, 4, 1)[:3]], ids=["expanded", "unfolded"])
def test_hooks_bring_back_what_lay_on_top_of_itself(spread, pair):
    """Copies of it do not, and hold its values several times; where these differ by then, there is no place for them."""
    plain = torch.randn(3, 4)

    def use(call, module, inputs):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1.0, lambda t: t):
            out = call(*inputs)
        out.sum().backward()
        return grads(module, inputs)

    made = pair(Of(lambda m, x: (x @ m.w).tanh()), spread(plain))
    made.same(use, spread(plain))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + torch.rand_like(t, memory_format=torch.contiguous_format), lambda t: t):
        out = made.call(spread(plain))
    with pytest.raises(Exception, match="GI064"):
        out.sum().backward()


def test_nothing_keeps_a_call_alive(pair):
    made = pair("one output")
    x = given()
    gone = weakref.ref(x)
    out = made.call(x)
    out.sum().backward()
    node = weakref.ref(out.grad_fn)
    del x, out
    gc.collect()
    assert gone() is None and node() is None


def test_what_grows_into_a_cycle_is_collected(pair):
    made = pair(Of2(lambda m, x, y: x * m.b + y), given(), given())
    x, y = given(), given() * 2  # no leaf: the call keeps it, for running again
    out = made.call(x, y)
    y.holder = out
    gone = weakref.ref(out.grad_fn)
    del x, y, out
    gc.collect()
    assert gone() is None


def test_exceptions_of_a_plan_leave_the_call(pair):
    made = pair("one output")
    with pytest.raises(Exception, match="RC05"):
        made.compiled.executable(torch.randn(2, 4, requires_grad=True))
    made.same(summed, given())


NO_GRADIENT = {
    "a norm that counts": lambda m, x: torch.linalg.vector_norm(x, 0),
    "a norm that counts, of a weight": lambda m, x: torch.linalg.vector_norm(m.b, 0) + x.detach().sum(),
    "its power": lambda m, x: torch.linalg.norm(x.flatten(), 0).square() * 2,
}


@pytest.mark.parametrize("name", NO_GRADIENT)
def test_a_result_requires_grad_that_no_gradient_comes_from(name, twins):
    """As eager's does: a program that takes its gradient goes on."""

    def use(call, module, inputs):
        out = call(*inputs)
        found = torch.autograd.grad(out, [*inputs, *module.parameters()], allow_unused=True)
        return [out.requires_grad, *(g is None for g in found)]

    want, got = twins(Of(NO_GRADIENT[name]), given()).run(use, given())
    assert want == got == [True, True, True, True]


def test_a_gradient_that_is_written_by_strides_needs_nothing_of_where_tangents_begin(twins):
    """The beginnings that a graph assumes are those of its inputs."""

    def use(call, module, inputs):
        call(*inputs).mul(2).sum().backward()
        return grads(module, inputs)

    wide = torch.randn(4, 4).requires_grad_()
    pair = twins(Of(lambda m, x: torch.as_strided_scatter(x * 2, m.b[:2], (2,), (3,), 1)), wide)
    assert not hasattr(pair.compiled.executable, "_offsets")
    pair.same(use, wide)
