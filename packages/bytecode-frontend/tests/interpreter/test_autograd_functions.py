"""What ``torch.autograd.Function``, function transforms and checkpoints may do that a graph cannot hold: the program does as it does
plainly."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from conftest import same
from opmill_bytecode_frontend import Unsupported, capture
from opmill_bytecode_frontend.graph.switches import in_dual_level, switches


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
