"""What steps of a schedule are thought to take on a machine: a model for comparing orders, not a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..loops.index import Index
from ..lowered import BufferArg, BufferInfo
from ..schedule.loop import buffer_args
from ..schedule.memory import guessed_bytes
from ..schedule.steps import ExternStep, Schedule, Step

Group = tuple[int, bool]
"""Processes of a group, and whether they are all on one host."""


@dataclass(frozen=True)
class Machine:
    """``flops``: of products, each second, by type; ``memory``: bytes a second that loops read and write; ``launch``: seconds of the
    smallest step. ``inside`` and ``between``: bytes a second that each process sends, on one host and between hosts; ``latency``: seconds
    of one message. ``groups``: what is known of a group of processes by its name."""

    flops: float = 400e12
    memory: float = 2.5e12
    launch: float = 4e-6
    inside: float = 300e9
    between: float = 45e9
    latency: float = 8e-6
    groups: Callable[[str], Group] = field(default=lambda name: (2, True))


def seconds(step: Step, schedule: Schedule, machine: Machine) -> float:
    """Of a step that computes: the longer of its arithmetic and its memory."""
    moved = sum(guessed_bytes(schedule, b) for b in step.reads() | step.writes())
    arithmetic = flops(step, schedule) if isinstance(step, ExternStep) else 0
    return max(machine.launch, moved / machine.memory, arithmetic / machine.flops)


def exchange_seconds(step: ExternStep, schedule: Schedule, machine: Machine) -> float:
    """Of an exchange, as rings do it: each process sends all but its own part, twice where a sum comes back to all."""
    name = step.node.op.partition("::")[2]
    size, inside = machine.groups(group_of(step))
    if size < 2:
        return machine.launch
    moved = max(sum(guessed_bytes(schedule, b) for b in names) for names in (step.reads(), step.writes()))
    rounds = 2 if name.startswith("all_reduce") else 1
    messages = rounds * math.ceil(math.log2(size))
    return messages * machine.latency + rounds * moved * (size - 1) / size / (machine.inside if inside else machine.between)


def group_of(step: ExternStep) -> str:
    """The name of the group of processes: the last text among the arguments."""
    texts = [value for arg in step.node.args if type(value := getattr(arg, "value", None)) is str]
    return texts[-1] if texts else ""


def flops(step: ExternStep, schedule: Schedule) -> int:
    """Of products and attention, two for each multiplication; 0 for all else."""
    node = step.node
    name = node.op.partition("::")[2].partition(".")[0]
    tensors = [_sizes(arg, schedule) for arg in buffer_args((*node.args, *node.kwargs.values()))]
    if name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "_scaled_mm", "_int_mm"):
        left, right = tensors[-2:] if name in ("mm", "bmm", "_int_mm") else tensors[1:3] if name != "_scaled_mm" else tensors[:2]
        return 2 * math.prod(left) * right[-1]
    if "attention" in name:
        backward = "backward" in name
        query, key, value = tensors[1:4] if backward else tensors[:3]
        forward = 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        return forward * 5 // 2 if backward else forward
    if name.startswith("convolution"):
        return 2 * _numel(schedule.buffers[sorted(step.writes())[0]], schedule) * math.prod(tensors[1][1:])
    return 0


def _numel(info: BufferInfo, schedule: Schedule) -> int:
    return math.prod(_known(info.sizes, schedule))


def _sizes(arg: BufferArg, schedule: Schedule) -> list[int]:
    return _known(arg.sizes if arg.sizes is not None else schedule.buffers[arg.buffer].sizes, schedule)


def _known(sizes: Iterable[Index], schedule: Schedule) -> list[int]:
    """Sizes at the values that symbols had when the graph was captured."""
    hints = {name: hint or 1 for name, hint in schedule.lowered.symbols.items()}
    return [size.evaluate(hints) for size in sizes]


__all__ = ["Group", "Machine", "exchange_seconds", "flops", "group_of", "seconds"]
