"""Steps that an exchange does not need wait until it has started: gradients of weights, where what others wait for is the gradient of
activations. So something runs beside an exchange whose result is needed at once.

Exchanges go with what they are deferred with, and may so start behind one that they precede in the program. No process is kept waiting for
good by that, whatever it has compiled itself, as two rules hold. Exchanges of one group of processes keep their order. Who waits for an
exchange has started all that come before it in the program. Of those that are not complete take the first of the program: each process in
it has started it, or stands at a wait for a later one and has started it, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..schedule.steps import ExternStep, Schedule, Step
from .costs import group_of
from .dependences import Dependences, dependences, is_exchange, is_wait

WINDOW = 64
"""Steps before an exchange among which those are looked for that it does not need."""


@dataclass(frozen=True)
class Deferred:
    """Steps by their places in the schedule, in their new order. ``started``: of some waits the exchanges that start before them."""

    order: list[int]
    started: dict[int, set[int]]


def deferred(schedule: Schedule) -> Deferred:
    """Which steps wait until an exchange has company, and in which order all run then."""
    needs, steps = dependences(schedule), schedule.steps
    order, started = list(range(len(steps))), dict[int, set[int]]()
    for start, waits in needs.waits.items():
        if waits and not _has_company(order, order.index(start), steps, needs):
            _defer(order, order.index(start), steps, needs, started)
    return Deferred(order, started)


def _computes(step: Step) -> bool:
    """Whether it is worth to run beside an exchange: an operator of torch's, as products are."""
    return type(step) is ExternStep and not is_wait(step) and not is_exchange(step)


def _has_company(order: Sequence[int], place: int, steps: Sequence[Step], needs: Dependences) -> bool:
    """Whether something runs between the exchange and what first needs it."""
    late = {order[place]}
    for k in order[place + 1 :]:
        if needs.before[k] & late:
            late.add(k)
            if not is_wait(steps[k]):
                return False
        elif _computes(steps[k]):
            return True
    return True  # nothing here reads it


def _defer(order: list[int], place: int, steps: Sequence[Step], needs: Dependences, started: dict[int, set[int]]) -> None:
    """Puts what the exchange at that place does not need behind it."""
    exchange = order[place]
    needed, kept, moved = set(needs.before[exchange]), [exchange], list[int]()
    begin = place
    for k in reversed(order[max(0, place - WINDOW) : place]):
        if k in needed:
            needed |= needs.before[k]
            kept.append(k)
        elif _may_pass(k, kept, steps):
            moved.append(k)
        else:
            break
        begin -= 1
    if not any(_computes(steps[k]) for k in moved):
        return
    order[begin : place + 1] = [*reversed(kept), *reversed(moved)]
    for k in filter(lambda k: is_exchange(steps[k]), moved):
        for other in filter(lambda other: is_exchange(steps[other]) and other > k, kept):
            for wait in needs.waits[other]:
                started.setdefault(wait, set()).add(k)


def _may_pass(k: int, kept: Sequence[int], steps: Sequence[Step]) -> bool:
    """Whether a step may run behind these, that come after it now."""
    if not is_exchange(steps[k]):
        return True
    group = _group(steps[k])
    return bool(group) and not any(is_exchange(steps[other]) and _group(steps[other]) in ("", group) for other in kept)


def _group(step: Step) -> str:
    """That of an exchange; nothing where it is not known, as of graphs inside."""
    return group_of(step) if type(step) is ExternStep and not step.node.bodies else ""


__all__ = ["Deferred", "deferred"]
