"""What ``torch.autograd.Function``, function transforms and checkpoints may do that a graph cannot hold: the program does as it does
plainly."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from conftest import same
from opmill_bytecode_frontend import Unsupported, capture
from opmill_bytecode_frontend.graph.thread_state import in_dual_level, switches


class Unmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return first * 7 if second is None else first + second


class Telling(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        print("backward")
        return grad * 2


class Squared(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5 * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 7 * ctx.saved_tensors[0]


class WithRule(Squared):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, dims, x):
        return WithRule.apply(x) * 10, dims[0]


def gradient_that_nobody_computed(x):
    return Unmaterialized.apply(x)[0]


def backward_that_prints(x):
    return Telling.apply(x) + Telling.apply(x + 1)


def rule_of_vmap(x):
    return torch.vmap(WithRule.apply)(x)


def vmap_of_what_requires_grad(x):
    return torch.vmap(Squared.apply)(x)


def under_grad(x):
    return torch.func.grad(lambda a: Squared.apply(a).sum())(x) + x


def under_jvp(x):
    return torch.func.jvp(Squared.apply, (x,), (x,))[1]


def checkpoint_that_prints(x):
    def inner(x):
        print("inside")
        return x.sin().exp()

    return checkpoint(inner, x, use_reentrant=False) + 1


SEEN: list[int] = []


def checkpoint_that_appends(x):
    def inner(x):
        SEEN.append(len(SEEN))
        return x.sin().exp()

    return checkpoint(inner, x, use_reentrant=False) + 1


class Noted:
    def __enter__(self):
        SEEN.append(1)

    def __exit__(self, *exc):
        SEEN.append(2)


def checkpoint_under_contexts(x):
    return checkpoint(torch.sin, x, use_reentrant=False, context_fn=lambda: (Noted(), Noted())) + 1


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__ and not isinstance(value, type)]


def trained(fn, capsys):
    SEEN.clear()
    x = torch.linspace(-2, 3, 4, requires_grad=True)
    out = fn(x)
    (out * 2).sum().backward()
    return out.detach(), x.grad, list(SEEN), capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*jit.script")
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_the_program_does_as_it_does_plainly_and_a_refusal_leaves_nothing_behind(fn, capsys):
    want = trained(fn, capsys)
    before = switches(), torch._C._functorch.get_dynamic_layer_stack_depth()
    assert same(want, trained(capture(fn), capsys))
    with pytest.raises(Unsupported, match="FE015|FE016|FE083"):
        capture(fn, fullgraph=True)(torch.ones(3, requires_grad=True))
    assert before == (switches(), torch._C._functorch.get_dynamic_layer_stack_depth()) and not in_dual_level()


def saved_by_choice(x):
    def policy(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

    by_partial = checkpoint(torch.sin, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
    return by_partial + checkpoint(torch.cos, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))


def test_choices_of_what_a_checkpoint_saves_stay_in_the_graph(capsys):
    assert same(trained(saved_by_choice, capsys), trained(capture(saved_by_choice, fullgraph=True), capsys))


def test_vmap_without_a_rule_of_its_own_is_captured(check):
    check(lambda a, b: torch.vmap(Squared.apply)(a) + b)


class Halved(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.mark_dirty(x)
        ctx.save_for_backward(w)
        return x.mul_(0.5), w * 2

    @staticmethod
    def backward(ctx, grad, more):
        return grad * 5, more * 3


def written_and_returned(x):
    y = x * 3
    z, w = Halved.apply(y, x)
    return z is y, y * z, w


def known_by_another_name(x):
    y = x.detach() * 3
    y.tag = "kept"
    known = [y]
    z, _ = Halved.apply(y, x)
    y = z + 1
    return known[0] is z, z.tag, known[0] * y, z.requires_grad


def from_before(x):
    y = x * 1
    return written_by_the_program(y)


def written_by_the_program(y):
    z, _ = Halved.apply(y, y * 2)
    return z is y, z * 3


@pytest.mark.parametrize("backend", ["eager", lambda gm, inputs: gm], ids=["eager", "own"])
@pytest.mark.parametrize("program", [written_and_returned, known_by_another_name, from_before, written_by_the_program])
def test_what_is_marked_as_written_is_the_same_object(program, backend):
    for make in (lambda x: x, lambda x: x * 1):  # a leaf, and what was computed before the call
        found = []
        for call in (program, capture(program, backend)):
            x = torch.arange(4.0).requires_grad_()
            given = make(x)
            try:
                result = call(given)
            except RuntimeError as error:
                found.append(str(error))
                continue
            sum(t.sum() for t in result if isinstance(t, torch.Tensor) and t.requires_grad).backward()
            found.append([result, given, x.grad])
        assert type(found[0]) is type(found[1]) and (same(*found) if isinstance(found[0], str) else same(*map(plain, found)))


def plain(found):
    (result, *rest) = found
    return [[t.detach() if isinstance(t, torch.Tensor) else t for t in result], *(t.detach() for t in rest)]


PARTS = {
    "unbind": lambda y: y.unbind(0),
    "split": lambda y: y.split(1),
    "split_with_sizes": lambda y: y.split([1, 1]),
    "chunk": lambda y: y.chunk(2),
    "iter": tuple,
    "tensor_split": lambda y: y.tensor_split(2),
    "unsafe_chunk": lambda y: torch.unsafe_chunk(y, 2),
    "select": lambda y: (y[0], y[1]),
}
WRITES = {
    "add_": lambda a: a.add_(1),
    "iadd": lambda a: a.__iadd__(2),
    "setitem": lambda a: a.__setitem__(0, 1.0),
    "copy_": lambda a: a.copy_(torch.ones_like(a)),
    "of a view": lambda a: a.view(-1).mul_(2),
    "foreach": lambda a: torch._foreach_add_([a], 1.0),
    "data": lambda a: a.data.add_(1),
}


@pytest.mark.parametrize("seen", ["leaf", "computed", "computed without gradients"])
@pytest.mark.parametrize("write", WRITES)
def test_writes_that_autograd_refuses(write, seen):
    """Views that come several of one function, of leaves, from no_grad: the graph's own operators know of it, and what runs behind a break
    does not."""
    for part in PARTS.values():

        def program(x):
            y = x if seen == "leaf" else x * 2
            with torch.set_grad_enabled(seen != "computed without gradients"):
                a = part(y)[0]
            WRITES[write](a)
            return a * 2, y * 3

        found = []
        for call in (program, capture(program, "eager")):
            x = torch.arange(8.0).reshape(2, 4).requires_grad_()
            try:
                found.append([t.detach() for t in call(x)])
            except RuntimeError as error:
                found.append(str(error))
        assert same(*found)


@pytest.mark.parametrize("backend", ["eager", lambda gm, inputs: gm], ids=["eager", "own"])
def test_what_is_computed_again_draws_the_same_numbers(backend):
    def program(x):
        y = checkpoint(lambda t: torch.nn.functional.dropout(t * 2), x, use_reentrant=False)
        return checkpoint(lambda t: torch.rand_like(t) * t, y * 1, use_reentrant=False) + y

    compiled = capture(program, backend)
    for seed in range(2):
        found = []
        for call in (program, compiled):
            torch.manual_seed(seed)
            x = torch.ones(64, requires_grad=True)
            y = call(x)
            y.sum().backward()
            found.append([y.detach(), x.grad, torch.rand(1)])
        assert same(*found)


class Distances(Function):
    """Of each row to each other one, as kernels of Gaussian processes ask for them: often of rows to themselves."""

    @staticmethod
    def forward(ctx, a, b, scale, needless):
        ctx.alike = a is b
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return (a[:, None] - 2 * b[None, :]) * scale

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad.sum(1) * ctx.scale, (grad.sum(0) * -2 * ctx.scale if ctx.alike else grad.sum(0) * 100), None, None


TWICE = {
    "in both places": lambda x, y: Distances.apply(x, x, 3.0, y),
    "in three places": lambda x, y: Distances.apply(x, x, 3.0, x),
    "once": lambda x, y: Distances.apply(x, y, 3.0, y),
    "computed before": lambda x, y: (lambda z: Distances.apply(z, z, 0.5, y) * z.sum())(x.sin()),
}


@pytest.mark.parametrize("backend", ["eager", None])
@pytest.mark.parametrize("name", TWICE)
def test_a_tensor_in_several_places_gets_the_sum_of_their_gradients(name, backend):
    def run(function):
        x, y = (torch.arange(3.0, requires_grad=True) + k for k in (0, 1))
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        out = function(x, y)
        out.square().sum().backward()
        return out.detach(), x.grad, y.grad

    compiled = capture(TWICE[name], *([] if backend is None else [backend]), fullgraph=True)
    for got, wanted in zip(run(compiled), run(TWICE[name]), strict=True):
        assert (got is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(got, wanted)


class Threefold(Function):
    @staticmethod
    def forward(x, y, factor):
        return x * y, (x + y)[0], x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2], output[0])
        ctx.factor = inputs[2]
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad, row, _):
        x, y, product = ctx.saved_tensors
        return x * grad * ctx.factor + product + row, y * grad, None


def of_threefold(a, b):
    product, row, positive = Threefold.apply(a, b, 2.0)
    return (product * positive).sum() + row.sum()


BY_ONE_TRANSFORM = {
    "grad": lambda a, b: torch.func.grad(lambda x: Squared.apply(x).sum())(a) + b,
    "several": lambda a, b: torch.func.grad(of_threefold, argnums=(0, 1))(a, b),
    "one tensor twice": lambda a, b: torch.func.grad(lambda x: of_threefold(x, x))(a) + b,
    "value": lambda a, b: torch.func.grad_and_value(lambda x: of_threefold(x, b * 2))(a),
    "vjp": lambda a, b: torch.func.vjp(lambda x: Squared.apply(x) * 2, a)[1](b),
    "jacrev": lambda a, b: torch.func.jacrev(Squared.apply)(a[0]) + b,
}


@pytest.mark.parametrize("name", BY_ONE_TRANSFORM)
def test_one_transform_that_differentiates_asks_for_the_backward_of_the_program(name, check):
    check(BY_ONE_TRANSFORM[name])


BY_SEVERAL = {
    "grad of grad": lambda a, b: torch.func.grad(lambda x: torch.func.grad(lambda y: (Squared.apply(y) * y).sum())(x).sum())(a) + b,
    "grad of vmap": lambda a, b: torch.func.grad(lambda x: torch.vmap(lambda y: Squared.apply(y).sum())(x).sum())(a) + b,
    "vmap of grad": lambda a, b: torch.vmap(torch.func.grad(lambda y: Squared.apply(y).sum()))(a) + b,
    "outside as well": lambda a, b: torch.autograd.grad(
        torch.func.grad(lambda y: (Squared.apply(y) * y).sum())(a.requires_grad_()).sum(), a
    )[0],
}


@pytest.mark.parametrize("name", BY_SEVERAL)
def test_what_is_differentiated_twice_or_batched_is_what_the_program_gives(name):
    a, b = torch.rand(3, 3, generator=torch.Generator().manual_seed(1)), torch.ones(3, 3)
    assert same(BY_SEVERAL[name](a.clone(), b), capture(BY_SEVERAL[name])(a.clone(), b))


DERIVED = """
import sys
import torch
from opmill_bytecode_frontend import capture

def derived(a):
    out, pull = torch.func.vjp(lambda x: x * 2, a)
    return torch.func.grad(lambda x: (x**2).sum())(a) + pull(out)[0] + torch.func.hessian(lambda x: (x**3).sum())(a)[0]

a = torch.arange(3.0)
found = capture(derived, "eager", fullgraph=True)(a)
assert "torch._dynamo" not in sys.modules
assert torch.equal(found, derived(a))
"""


def test_derivatives_are_captured_where_torchs_own_compiler_was_never_imported():
    subprocess.run([sys.executable, "-c", DERIVED], check=True)
