"""Which matrix products are loops, together with what follows them: by running both.

Operators of a library do one product as fast as anybody; what it takes for a kernel of its own to read the result, scale it or add to it
and store it again is saved where the product is a loop of that kernel. Products that look alike are decided together, so that blocks that
repeat stay alike."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from opmill_runtime_cache.devices.registry import find, traits_of
from opmill_runtime_cache.store import Store

from ..capture.graph import AtenGraph, Node, values_in
from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator, MeasuringGenerator
from ..loops.index import Index
from ..loops.ir import HALF
from ..lowered import BufferArg, BufferInfo, Extern
from ..ops.records import record_of
from ..schedule.steps import ExternStep, KernelStep, Schedule, Step

Choice = Mapping[str, bool]
GAIN = 0.97
"""Of the operators' time: loops are taken only if they are below, so that noise chooses nothing."""


def choose(graph: AtenGraph, scheduled: Callable[[Choice], Schedule], seconds: Callable[[Sequence[Step], Schedule], float]) -> Choice:
    """The results of products that are loops, and whether these compute their operands. ``scheduled``: the schedule with such ones;
    ``seconds``: how long some steps of one take."""
    taken: dict[str, bool] = {}
    kinds = alike(graph)
    current = scheduled(taken) if kinds else None
    for names, computing in itertools.product(kinds, (False, True)):
        tried = taken | dict.fromkeys(names, computing)
        other = scheduled(tried)
        assert current is not None
        before, after = _apart(current, other)
        if 0 < len(after) < len(before) and seconds(after, other) < GAIN * seconds(before, current):
            taken, current = tried, other
    return taken


def alike(graph: AtenGraph) -> list[frozenset[str]]:
    """Products of half precision and known sizes on a GPU, those of equal operands and readers together."""
    readers: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        for value in values_in((node.args, node.kwargs)):
            readers[value.name].append(node.func.name())
    found: dict[object, set[str]] = defaultdict(set)
    for node in graph.nodes:
        if (name := node.results[0] if node.results else None) and _is_candidate(graph, node, name):
            operands = tuple(graph.metas[v.name] for v in values_in((node.args, node.kwargs)))
            found[node.func.name(), operands, tuple(sorted(readers[name]))].add(name)
    return [frozenset(names) for names in found.values()]


def _is_candidate(graph: AtenGraph, node: Node, result: str) -> bool:
    if record_of(node.func.name()).kind != "product":
        return False
    metas = [graph.metas[v.name] for v in (*values_in(node.args), *values_in(node.kwargs))] + [graph.metas[result]]
    known = all(type(n) is int for m in metas for n in (*m.sizes, *m.strides)) and not any(0 in m.sizes for m in metas)
    return known and all(m.dtype in HALF and traits_of(m.device).matrix_units for m in metas)


def _apart(first: Schedule, second: Schedule) -> tuple[list[Step], list[Step]]:
    """The steps that only one of two schedules has."""
    a, b = ([(_looks(s, program), s) for s in program.steps] for program in (first, second))
    return _beyond(a, b), _beyond(b, a)


def _beyond(ours: list[tuple[object, Step]], theirs: list[tuple[object, Step]]) -> list[Step]:
    left = Counter(looks for looks, _ in theirs)
    out = []
    for looks, step in ours:
        if left[looks]:
            left[looks] -= 1
        else:
            out.append(step)
    return out


def _looks(step: Step, program: Schedule) -> object:
    """What the time of a step depends on."""
    if isinstance(step, KernelStep):
        return step.kernel, step.sizes, step.device
    return step.node.op, tuple(_place(b, program) for b in _buffers(step.node)), repr(sorted(step.node.kwargs.items()))


_Place = tuple[str, str, tuple[Index, ...], tuple[Index, ...]]


def _place(arg: BufferArg, program: Schedule) -> _Place:
    """Type, device, sizes, strides of an operand."""
    info: BufferInfo = program.buffers[arg.buffer]
    if arg.sizes is None:
        return info.dtype, info.device, info.sizes, info.strides
    return info.dtype, info.device, arg.sizes, arg.strides or ()


def _buffers(node: Extern) -> Iterable[BufferArg]:
    for arg in node.args:
        for item in arg if isinstance(arg, tuple) else (arg,):
            if type(item) is BufferArg:
                yield item


@dataclass
class Clock:
    """Times steps on the device that they are for; infinite where that cannot be done."""

    generator: MeasuringGenerator
    settings: GeneratorOptions
    store: Store
    known: dict[object, float] = field(default_factory=dict)

    def __call__(self, steps: Sequence[Step], program: Schedule) -> float:
        """Seconds of all together."""
        return sum(self._seconds(step, program) for step in steps)

    def _seconds(self, step: Step, program: Schedule) -> float:
        looks = _looks(step, program)
        if looks not in self.known:
            try:
                self.known[looks] = self._kernel(step) if isinstance(step, KernelStep) else self._operator(step, program)
            except (KernelBuildError, RuntimeError):  # too large for the memory that is free, or a stream that records
                self.known[looks] = float("inf")
        return self.known[looks]

    def _kernel(self, step: KernelStep) -> float:
        if any(type(size) is str for size in step.sizes):
            return float("inf")
        [found] = self.generator.seconds([step.kernel], replace(self.settings, device=step.device), self.store)
        return found

    def _operator(self, step: ExternStep, program: Schedule) -> float:
        """A product alone: nothing else gives way to loops here."""
        node = step.node
        if record_of(node.op).kind != "product" or len(node.results) != 1 or node.results[0] is None or node.kwargs:
            return float("inf")
        operands = [_tensor(_place(arg, program)) for arg in _buffers(node)]
        place = operands[0].device
        device = find(place.type)
        assert device is not None
        with torch.no_grad():
            if node.out_variant is None:
                return device.seconds(lambda: _packet(node.op)(*operands), place.index)
            out = _tensor(_place(BufferArg(node.results[0]), program))
            return device.seconds(lambda: _packet(node.op)(*operands, out=out), place.index)


def clock_of(generators: Sequence[KernelGenerator], settings: GeneratorOptions, store: Store) -> Clock | None:
    """What times steps, where that is wanted and somebody can; eager's rounding is that of its own operators."""
    if not settings.measure or settings.precise:
        return None
    able = next((g for g in generators if isinstance(g, MeasuringGenerator)), None)
    return None if able is None else Clock(able, settings, store)


def _packet(name: str) -> Callable[..., torch.Tensor]:
    found: Callable[..., torch.Tensor] = getattr(torch.ops.aten, name.removeprefix("aten::"))
    return found


def _tensor(place: _Place) -> torch.Tensor:
    dtype, device, sizes, strides = place
    numbers = [[n.evaluate({}) for n in part] for part in (sizes, strides)]
    return torch.empty_strided(*numbers, dtype=getattr(torch, dtype), device=device).normal_()


__all__ = ["Clock", "alike", "choose", "clock_of"]
