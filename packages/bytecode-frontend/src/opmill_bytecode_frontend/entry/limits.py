"""How long a capture may become, and what makes it grow: each turn of a loop is captured by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interpretation.frame import Frame

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


CHECK_EVERY = 1000
"""Instructions between two looks at what has grown."""
FINAL = ("FE065", "FE093")
"""Refusals after which the function runs as it is: a graph of what came before would be as long, and the next one again."""


def busiest_loop(frame: Frame | None) -> str:
    """File and line of the loop with the most turns among the calls that are running, and how many; empty where there is none."""
    most, text = 1, ""
    while frame is not None:
        for head, (turns, jump) in frame.turns.items():
            if turns > most:
                instructions = frame.prepared.instructions
                line = instructions[head if instructions[head].opname == "FOR_ITER" else jump].position.lineno
                most, text = turns, f"{frame.code.co_filename}:{line} ({turns} turns)"
        frame = frame.caller
    return text


def culprit(frame: Frame) -> str:
    """The loop that makes the capture long; without one the function."""
    loop = busiest_loop(frame)
    return f"the loop at {loop}" if loop else f"the function {frame.code.co_qualname}"


def check_growth(vm: Interpreter, frame: Frame, called: bool = False) -> int:
    """At how many instructions to look again. Raises Unsupported where there were too many of them, or of operations of the graph, or where
    Python computes for so long by itself that interpreting it leads nowhere: the call that led there then runs natively. ``called``: the
    frame is in a call of a builtin."""
    options, operations = vm.options, vm.recorder.operations
    if operations > options.graph_limit:
        hint = "compile what a turn does rather than the loop, or raise the option graph_limit"
        vm.unsupported(
            "FE093",
            f"a graph that grows too long in {culprit(frame)}",
            f"more than {options.graph_limit} operations in one graph, one for each turn",
            hint,
        )
    if vm.steps > options.max_steps:
        vm.unsupported(
            "FE065",
            f"a capture that grows too long in {culprit(frame)}",
            f"more than {options.max_steps} instructions",
            "loops on constants are unrolled",
        )
    if operations != vm.seen_operations:
        vm.seen_operations, vm.operated_at = operations, vm.steps
    elif vm.may_break and vm.steps - vm.operated_at > options.max_idle:
        outermost = frame
        while outermost.caller is not None:
            outermost = outermost.caller
        why = f"more than {options.max_idle} instructions without an operation on tensors"
        if (outermost is frame and not called) or not outermost.has_places:
            vm.unsupported("FE065", f"a capture that grows too long in {culprit(frame)}", why, "the function runs natively")
        vm.unsupported("FE094", f"computing without tensors in {culprit(frame)}", why, "the call runs natively", outermost.place)
    return int(vm.steps) + CHECK_EVERY


def growth(vm: Interpreter) -> str:
    """What a running capture has come to, in a line."""
    frame = vm.frame
    loop = busiest_loop(frame)
    where = f"in the loop at {loop}" if loop else f"at {frame.where()}" if frame is not None else "at its end"
    return f"{vm.recorder.operations} operations, {vm.steps} instructions, {where}"
