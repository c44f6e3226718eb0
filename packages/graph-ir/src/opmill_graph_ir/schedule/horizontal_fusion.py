"""Kernels that do the same to other buffers, one directly after the other, are one kernel on devices with a grid: weights that are rounded
for mixed precision, say, each a launch of a few microseconds that half fills the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TypeGuard

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.canonical import BufferUse, canonical
from ..loops.ir import Expr, Load, Nest
from .coalesce import map_phase
from .effects import gives_views
from .rewrite import Rewriter
from .steps import ExternStep, KernelStep, Schedule, Step

_MOST = 8
"""Kernels that are one: a program asks which of them it is part of."""


def join_alike(schedule: Schedule) -> Schedule:
    """The schedule with such kernels joined where the first of them was."""
    return replace(schedule, steps=list(_joined(schedule.steps)))


def _joined(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps in order; those are joined within runs of steps that go over their points one by one, and none of which touches what
    another one writes, or memory that has two names."""
    shown = {b for s in steps if isinstance(s, ExternStep) and gives_views(s.node) for b in s.reads() | s.writes()}
    run: list[KernelStep] = []
    read: set[str] = set()
    written: set[str] = set()
    for step in steps:
        if step.writes() & (read | written | shown) or step.reads() & (written | shown) or not _is_plain(step):
            yield from _of_run(run)
            run, read, written = [], set(), set()
        if _is_plain(step) and shown.isdisjoint(step.reads() | step.writes()):
            run.append(step)
            read |= step.reads()
            written |= step.writes()
        else:
            yield step
    yield from _of_run(run)


def _is_plain(step: Step) -> TypeGuard[KernelStep]:
    if not isinstance(step, KernelStep) or step.sizes or step.kernel.attention is not None or len(step.kernel.nests) != 1:
        return False
    phases = step.kernel.nests[0].phases
    return traits_of(step.device).grid and not any(p.axes or p.checks or p.scans or any(s.mode != "set" for s in p.stores) for p in phases)


def _of_run(run: Sequence[KernelStep]) -> Iterator[Step]:
    groups: dict[object, list[KernelStep]] = {}
    for step in run:
        key = step.kernel, step.device
        if len(groups.get(key, ())) == _MOST:
            yield _one(groups.pop(key))
        groups.setdefault(key, []).append(step)
    yield from map(_one, groups.values())


def _one(steps: Sequence[KernelStep]) -> KernelStep:
    """Steps of one kernel, done at once."""
    if len(steps) == 1:
        return steps[0]
    uses = {a: BufferUse(b.dtype, b.numel) for s in steps for a, b in zip(s.arguments, s.kernel.buffers, strict=True)}
    made = canonical([_over_arguments(step) for step in steps], uses.__getitem__)
    origin = "; ".join(dict.fromkeys(o for s in steps for o in s.origin.split("; ") if o))
    sources = tuple(dict.fromkeys(name for s in steps for name in s.sources))
    return replace(steps[0], kernel=made.kernel, arguments=made.arguments, origin=origin, sources=sources)


def _over_arguments(step: KernelStep) -> Nest:
    """The nest of a step's kernel, over the program's buffers."""
    [nest] = step.kernel.nests
    renamed = _Renamed({b.name: a for a, b in zip(step.arguments, step.kernel.buffers, strict=True)})
    phases = (map_phase(p, renamed, p.axes) for p in nest.phases)
    return replace(
        nest, phases=tuple(replace(p, stores=tuple(replace(s, buffer=renamed.buffers[s.buffer]) for s in p.stores)) for p in phases)
    )


class _Renamed(Rewriter):
    def __init__(self, buffers: dict[str, str]) -> None:
        super().__init__()
        self.buffers = buffers

    def _load(self, expr: Load) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        return Load(self.buffers[expr.buffer], expr.index, expr.dtype, mask, expr.other)

    _RULES: ClassVar[dict[type, Callable[..., Expr]]] = {**Rewriter._RULES, Load: _load}


__all__ = ["join_alike"]
