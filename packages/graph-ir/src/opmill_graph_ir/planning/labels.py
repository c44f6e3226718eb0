"""Where the program's labels open and close among the steps of a schedule.

Steps stand in an order of their own, and one kernel may compute what several labels enclose. Each step belongs to the label of most of what
it computes; each label opens before the first step of its own and closes behind the last, but no later than the next label beside it opens.
So each opens once, in the program's order, and inside of the label that is around it. One that has no step opens and closes where it would
have stood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opmill_runtime_cache.plan.model import Label

from ..capture.graph import NO_LABEL, AtenGraph
from ..schedule.steps import KernelStep, Schedule, Step

Labels = Sequence[tuple[str, int]]
"""Name of each label, and the number of the one around it."""


def label_spans(labels: Labels, graph: AtenGraph, schedule: Schedule) -> list[Label]:
    """The labels over the schedule's steps. ``graph``: the aten graph that the schedule computes."""
    inside = {result: node.label for node in graph.nodes for result in node.results if result}
    return spans(labels, [_label_of(step, inside) for step in schedule.steps])


def _label_of(step: Step, inside: Mapping[str, int]) -> int:
    sources = step.sources if isinstance(step, KernelStep) else (step.node.source,)
    counts = Counter(inside[source] for source in sources if source in inside)
    return counts.most_common(1)[0][0] if counts else NO_LABEL


def spans(labels: Labels, of_steps: Sequence[int]) -> list[Label]:
    """The same for the labels of the steps themselves, by their numbers."""
    first, last = [-1] * len(labels), [-1] * len(labels)
    for position, label in enumerate(of_steps):
        while label != NO_LABEL:
            first[label] = position if first[label] < 0 else first[label]
            last[label] = position + 1
            label = labels[label][1]
    inner: dict[int, list[int]] = {}
    for label, (_, around) in enumerate(labels):
        inner.setdefault(around, []).append(label)
    found: list[Label] = []

    def lay(around: int, low: int, high: int, depth: int) -> None:
        beside = inner.get(around, [])
        for number, label in enumerate(beside):
            begin = min(max(first[label], low), high)
            following = (first[later] for later in beside[number + 1 :] if first[later] >= begin)
            end = max(begin, min(last[label], high, *following))
            found.append(Label(labels[label][0], begin, end, depth))
            lay(label, begin, end, depth + 1)
            low = end

    lay(NO_LABEL, 0, len(of_steps), 0)
    return found


__all__ = ["label_spans"]
