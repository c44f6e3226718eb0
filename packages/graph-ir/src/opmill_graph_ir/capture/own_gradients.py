"""Gradients by another operator than the steps that autograd writes down.

Where autograd looks at the data first (are there zeros?), what it writes down for fakes is the way that is right for all data, and much
longer. torch has operators for such gradients as a whole: these stand in the graph instead, as loops or, where they have none, as they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from .graph import values_in
from .record import Recorder, meta_of

aten = torch.ops.aten
Rule = Callable[[Recorder, Any, Any], FakeTensor | None]


def set_gradients(recorder: Recorder, outputs: Sequence[FakeTensor]) -> None:
    """What autograd has recorded of ``outputs`` gives the gradients of ``RULES`` from now on. Its own steps are dead then."""
    if not any(node.func in _OPERATORS for node in recorder.state.graph.nodes):
        return
    seen: set[Any] = set()
    todo = [output.grad_fn for output in outputs]
    while todo:
        step = todo.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        todo += [following for following, _ in step.next_functions]
        if (rule := RULES.get(step.name())) is not None:
            _change(recorder, step, rule)


def _change(recorder: Recorder, step: Any, rule: Rule) -> None:
    before = [0]

    def begin(_: Any) -> None:
        before[0] = len(recorder.state.graph.nodes)

    def change(gradients: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
        if gradients[0] is None or not isinstance(given[0], FakeTensor):
            return None
        written = len(recorder.state.graph.nodes)
        if (other := rule(recorder, step, given[0])) is None:
            return None
        _drop_lookups(recorder, before[0], written)
        return (other, *gradients[1:])

    step.register_prehook(begin)
    step.register_hook(change)


def _drop_lookups(recorder: Recorder, start: int, end: int) -> None:
    """Of what autograd wrote down, what looks up elements and what is made of them: they raise where there is no such place, so that nobody
    else would drop them."""
    nodes, dead = recorder.state.graph.nodes, set[str | None]()
    for node in nodes[start:end]:
        if node.func in _LOOKUPS or any(v.name in dead for v in values_in((node.args, node.kwargs))):
            dead.update(node.results)
    nodes[start:end] = [node for node in nodes[start:end] if not dead.intersection(node.results)]


def _of_cumprod(recorder: Recorder, step: Any, gradient: FakeTensor) -> FakeTensor | None:
    x, result = step._saved_self, step._saved_result
    if not (x.dtype == result.dtype == gradient.dtype and x.dtype.is_floating_point and x.dim()):
        return None
    dim = step._saved_dim if step._saved_dim < x.dim() else step._saved_dim - 2**64  # counted from the end it is told without its sign
    if not (x.is_contiguous() and result.is_contiguous()):
        return None
    found = recorder.fake_of(meta_of(x))
    recorder.record(aten.cumprod_backward.default, [gradient, x, dim, result], [found])
    return found


RULES: dict[str, Rule] = {"CumprodBackward0": _of_cumprod}
_OPERATORS = frozenset((aten.cumprod.default,))
_LOOKUPS = frozenset((aten.gather.default, aten.scatter.value))

__all__ = ["set_gradients"]
