"""Schedules as text, and back: kernels by number, the buffers, and then the steps in order.

kernel 0:
    kernel exp()
      in b0: float32[8]
      out b1: float32[8]
    nest i0<8
      phase
        set b1[i0] = exp(b0[i0])
input x: float32[8]
temporary y: float32[8]
takes x
launch 0 exp(x, y; 8) of exp   # model.py:3
call mm = aten::mm (y, y)
return y
"""

from __future__ import annotations

from functools import partial

from opmill_runtime_cache.devices.host import HOST

from ..inner_texts import COMMENT, Writing, apart
from ..loops.text import parse, read_lines, show
from ..lowered import Extern
from .steps import ExternStep, KernelStep, Schedule, Step
from .text import ProgramParser, heading, outside, show_call, show_output


def show_schedule(schedule: Schedule) -> str:
    """The schedule as text."""
    inner = Writing()
    lines = heading(schedule.lowered, schedule.buffers.values()) + outside(schedule.lowered)
    lines += [_launch(s, inner) if isinstance(s, KernelStep) else show_call(s.node, inner) for s in schedule.steps]
    lines.append("return " + ", ".join(map(show_output, schedule.lowered.outputs)))
    return "\n".join([*inner.lines, *lines]) + "\n"


def _launch(step: KernelStep, inner: Writing) -> str:
    number = inner.number("kernel", step.kernel, partial(show, step.kernel))
    sizes = f"; {', '.join(map(str, step.sizes))}" if step.sizes else ""
    device = "" if step.device == HOST else f" on {step.device}"
    of = f" of {', '.join(step.sources)}" if step.sources else ""
    origin = f"   # {step.origin}" if step.origin else ""
    return f"launch {number} {step.kernel.name}({', '.join(step.arguments)}{sizes}){device}{of}{origin}"


def parse_schedule(text: str) -> Schedule:
    """The schedule that ``text`` shows. Raises GraphError GI042 with the line that cannot be read."""
    parser = _Parser()
    read_lines(text, parser.line, "a schedule")
    return Schedule(parser.lowered().outside(), parser.steps, parser.buffers)


class _Parser(ProgramParser):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def line(self, line: str) -> None:
        if line.startswith("launch "):
            self.steps.append(self.launch(line))
            return
        super().line(line)
        if len(self.statements) > sum(type(step) is ExternStep for step in self.steps):
            call = self.statements[-1]
            assert isinstance(call, Extern), "a loop that is no kernel"
            self.steps.append(ExternStep(call))

    def launch(self, line: str) -> KernelStep:
        line, origin = apart(line, COMMENT)
        line, _, sources = line.partition(" of ")
        line, _, device = line.partition(" on ")
        head, _, given = line.removesuffix(")").partition("(")
        arguments, _, sizes = given.partition("; ")
        kernel = self.inner.made(int(head.split()[1]), parse)
        numbers = tuple(int(n) if n.lstrip("-").isdigit() else n for n in sizes.split(", ") if n)
        names = tuple(n for n in arguments.split(", ") if n)
        return KernelStep(kernel, names, numbers, origin, device or HOST, tuple(n for n in sources.split(", ") if n))


__all__ = ["parse_schedule", "show_schedule"]
