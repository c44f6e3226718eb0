"""Text in, text out: what tests of passes are written with."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from dataclasses import replace

from opmill_graph_ir.loops.ir import Nest
from opmill_graph_ir.loops.text import parse, show
from opmill_graph_ir.schedule.laws import verify_program
from opmill_graph_ir.schedule.loop import Program
from opmill_graph_ir.schedule.text import parse_program, show_program


def after(rewrite: Callable[[Program], object], text: str) -> str:
    """The program behind the pass, which is legal before and behind it."""
    program = parse_program(textwrap.dedent(text))
    verify_program(program)
    rewrite(program)
    verify_program(program)
    return show_program(program).strip()


def nest_after(rewrite: Callable[[Nest, dict, Callable[[str], str]], Nest], text: str) -> str:
    """The kernel of one nest behind the pass, which is given the nest, the extents of its axes, and what makes names."""
    kernel = parse(textwrap.dedent(text).lstrip())
    [nest] = kernel.nests
    axes = (*nest.axes, *(a for phase in nest.phases for a in phase.axes))
    extents = {a.name: a.extent if a.extent.constant is None else a.extent.constant for a in axes}
    numbers = itertools.count()
    return show(replace(kernel, nests=(rewrite(nest, extents, lambda prefix: f"{prefix}{next(numbers)}"),))).strip()


def lines(text: str) -> str:
    return textwrap.dedent(text).strip()
