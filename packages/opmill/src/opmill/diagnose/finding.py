"""What bisecting found, and how it is shown."""

from __future__ import annotations

import textwrap
from typing import Any

from msgspec import Struct
from torch import fx

from ..shown import InNotebooks
from .check import Checked
from .program import program_text


class KernelFault(Struct, frozen=True):
    """A kernel whose results are not those of its loops: the loops as text, what differs, and where its operators come from."""

    name: str
    loops: str
    problem: str
    origin: str


class Finding(InNotebooks, Struct, frozen=True):
    """What bisecting found. False as a condition where nothing is wrong.

    ``part``: ``"nothing"``, ``"frontend"``, ``"backend"``, or ``"guards"`` for results of before that are given again. ``steps``: what was
    tried, in order, and what it said. ``module``: the innermost module that is wrong by itself. ``where``: the lines of the program that
    the operators come from. ``graph`` and ``inputs``: the smallest graph that shows the fault. ``fault``: the step of the compiler that
    makes it. ``kernels``: kernels whose results are not those of their loops."""

    part: str
    steps: tuple[str, ...]
    module: str = ""
    where: tuple[str, ...] = ()
    graph: fx.GraphModule | None = None
    inputs: tuple[Any, ...] = ()
    fault: str = ""
    kernels: tuple[KernelFault, ...] = ()
    shown: Checked | None = None

    def __bool__(self) -> bool:
        return self.part != "nothing"

    def program(self) -> str:
        """A program that shows the fault by itself, with random inputs of the same kinds; empty where no graph was found."""
        return "" if self.graph is None else program_text(self.graph, self.inputs)

    def __str__(self) -> str:
        lines = [f"fault: {self.fault or self.part}" if self else "nothing is wrong"]
        lines += [f"  {step}" for step in self.steps]
        if self.module:
            lines.append(f"module: {self.module}")
        lines += [f"from: {line}" for line in self.where]
        if self.shown is not None:
            lines += [f"differs: {row.name}: {row.problem}" for row in self.shown.wrong]
        for kernel in self.kernels:
            lines += [f"kernel {kernel.name}: {kernel.problem}", textwrap.indent(kernel.loops, "  ")]
        if self.graph is not None:
            lines += ["program:", textwrap.indent(self.program(), "  ")]
        return "\n".join(lines)
