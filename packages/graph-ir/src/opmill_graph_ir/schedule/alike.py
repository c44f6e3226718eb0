"""Kernels that do the same to other buffers, one directly after the other, are one kernel on devices with a grid: weights that are rounded
for mixed precision, say, each a launch of a few microseconds that half fills the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.canonical import BufferUse, canonical
from ..loops.ir import Expr, Load, Nest
from .coalesce import map_phase
from .rewrite import Rewriter
from .steps import KernelStep, Schedule, Step

_MOST = 8
"""Kernels that are one: a program asks which of them it is part of."""


def join_alike(schedule: Schedule) -> Schedule:
    """The schedule with such kernels joined where the first of them was."""
    return replace(schedule, steps=[step for run in _runs(schedule.steps) for step in _joined(run)])


def _runs(steps: list[Step]) -> Iterator[list[Step]]:
    """The steps in order; together those that go over their points one by one, and none of which touches what another one writes."""
    run: list[Step] = []
    read: set[str] = set()
    written: set[str] = set()
    for step in steps:
        plain = isinstance(step, KernelStep) and _is_plain(step)
        if run and (not plain or not _is_plain(run[0]) or step.writes() & (read | written) or step.reads() & written):
            yield run
            run, read, written = [], set(), set()
        run.append(step)
        read |= step.reads()
        written |= step.writes()
    if run:
        yield run


def _is_plain(step: Step) -> bool:
    if not isinstance(step, KernelStep) or step.sizes or step.kernel.attention is not None or len(step.kernel.nests) != 1:
        return False
    phases = step.kernel.nests[0].phases
    return traits_of(step.device).grid and not any(p.axes or p.checks or p.scans or any(s.mode != "set" for s in p.stores) for p in phases)


def _joined(run: list[Step]) -> Iterator[Step]:
    groups: dict[object, list[Step]] = {}
    for number, step in enumerate(run):
        key = (step.kernel, step.device) if isinstance(step, KernelStep) and _is_plain(step) else number
        if len(groups.get(key, ())) == _MOST:
            yield _one([s for s in groups.pop(key) if isinstance(s, KernelStep)])
        groups.setdefault(key, []).append(step)
    for group in groups.values():
        if len(group) == 1:
            yield group[0]
        else:
            yield _one([s for s in group if isinstance(s, KernelStep)])


def _one(steps: list[KernelStep]) -> KernelStep:
    """Steps of one kernel, done at once."""
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
