"""Operators whose graph runs once, where it stands."""

from __future__ import annotations

from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ..policies import policy_of
from .registry import Run, row


@row("wrap", "strict_mode", "invoke_subgraph_inline")
def wrapped(run: Run, function: Any, *args: Any, **options: Any) -> Any:
    """The graph stands for itself: options tell torch's compilers what they may do with it, and nothing of its values."""
    return run.inline(function, *args)


@row("wrap_activation_checkpoint", "tag_activation_checkpoint", "opmill_checkpoint")
def checkpointed(run: Run, function: Any, *args: Any, **options: Any) -> Any:
    """What it computes is computed again for the backward, but for what its policy keeps. What it returns is kept, as eager keeps it: or
    a chain of checkpoints would begin with the first, and all of it would be in memory at once."""
    state = run.recorder.state
    before = state.again, state.policy
    state.again, state.policy = True, policy_of(function)
    try:
        results = run.inline(function, *args)
    finally:
        state.again, state.policy = before
    items = results if isinstance(results, (list, tuple)) else [results]
    leaving = {run.recorder.track(t).base.value for t in items if isinstance(t, FakeTensor)}
    for node in state.graph.nodes:
        if not leaving.isdisjoint(node.results):
            node.again, node.kept = False, True
    return results


@row("invoke_subgraph")
def invoke_subgraph(run: Run, function: Any, _name: str, *args: Any) -> Any:
    """Each call is recorded anew, also where the name says that the graph was called before."""
    return run.inline(function, *args)


@row("wrap_with_set_grad_enabled")
def with_grad_mode(run: Run, enabled: bool, function: Any, *args: Any) -> Any:
    """The graph under ``torch.set_grad_enabled(enabled)``; the mode from before holds again behind it."""
    with torch.set_grad_enabled(enabled):
        return run.inline(function, *args)


@row("wrap_with_autocast")
def with_autocast(run: Run, device: str, dtype: Any, enabled: bool, cache: Any, function: Any, *args: Any) -> Any:
    """The graph under ``torch.autocast``, which decides the types that its operators compute in while they are recorded."""
    with torch.autocast(device, dtype, enabled, cache):
        return run.inline(function, *args)


@row("hints_wrapper")
def hinted(run: Run, function: Any, args: Any, kwargs: Any, hints: Any = None) -> Any:
    """Hints are for the compiler that asked for them, and are left out."""
    return run.inline(function, *args)


@row("associative_scan")
def associative_scan(run: Run, combine: Any, xs: Any, additional: Any = ()) -> Any:
    """In as many sweeps over halves as the number of rows has digits, as eager does it."""
    from torch._higher_order_ops.associative_scan import generic_associative_scan

    return tuple(generic_associative_scan(lambda *args: run.inline(combine, *args), list(xs), additional_inputs=tuple(additional)))
