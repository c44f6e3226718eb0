"""Policies of activation checkpoints go with the graph, however the program makes them."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from opmill_bytecode_frontend import capture

NOTE = "_checkpoint_context_fn"
MM = torch.ops.aten.mm.default


def policy(ctx, func, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if func is MM else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(policy)


BOUND = functools.partial(create_selective_checkpoint_contexts, policy)


def of_a_function(x):
    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=contexts)


def bound_before(x):
    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=BOUND)


def bound_here(x):
    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))


def of_a_list(x):
    context_fn = functools.partial(create_selective_checkpoint_contexts, [MM], allow_cache_entry_mutation=True)
    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=context_fn)


def defined_here(x):
    saved = MM

    def chosen():
        return create_selective_checkpoint_contexts([saved])

    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=chosen)


def imported_around():
    from torch.utils.checkpoint import create_selective_checkpoint_contexts as create_selective_checkpoint_contexts

    def chosen():
        return create_selective_checkpoint_contexts(policy)

    return chosen


CHOSEN = imported_around()


def imported_elsewhere(x):
    return checkpoint(torch.sin, x @ x, use_reentrant=False, context_fn=CHOSEN)


FUNCTIONS = [of_a_function, bound_before, bound_here, of_a_list, defined_here, imported_elsewhere]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_graph_has_the_policy(function):
    graphs = []
    x = torch.randn(4, 4, requires_grad=True)
    out = capture(function, lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(x)
    torch.testing.assert_close(out, function(x))
    [made] = [m.meta[NOTE] for g in graphs for m in g.children() if NOTE in m.meta]
    ask = made()[0].policy_fn
    assert [ask(None, op) is CheckpointPolicy.MUST_SAVE for op in (MM, torch.ops.aten.sin.default)] == [True, False]


def test_without_a_policy_there_is_no_note():
    graphs = []
    x = torch.randn(4, 4, requires_grad=True)
    capture(lambda x: checkpoint(torch.sin, x, use_reentrant=False), lambda gm, inputs: graphs.append(gm) or gm.forward)(x)
    assert not [m for g in graphs for m in g.children() if NOTE in m.meta]
