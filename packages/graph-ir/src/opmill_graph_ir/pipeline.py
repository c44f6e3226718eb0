"""The pipeline: every step from an FX graph to a plan that can be called, in order. The driver runs this list, and nothing beside it.

A step is named by ``module:function`` of this package, which is imported when the step runs: a plan from the store needs no compiler. What
it gives prints after it where ``print_after`` names it, and is held against the laws of its kind where ``verify`` asks.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Representation:
    """A form that a program has between steps. ``show``: its text; ``parse``: the way back, empty where there is none; ``verify``: raises
    where a law is broken, empty where there are none."""

    show: str
    parse: str = ""
    verify: str = ""


REPRESENTATIONS: dict[str, Representation] = {
    "FX graph": Representation("capture.module_text:show_module", "capture.module_text:parse_module", "capture.laws:verify_module"),
    "aten graph": Representation("capture.text:show_graph", "capture.text:parse_graph", "capture.laws:verify_graph"),
    "lowered program": Representation("schedule.text:show_lowered", "schedule.text:parse_lowered", "schedule.laws:verify_lowered"),
    "loop program": Representation("schedule.text:show_program", "schedule.text:parse_program", "schedule.laws:verify_program"),
    "schedule": Representation("schedule.whole_text:show_schedule", "schedule.whole_text:parse_schedule", "schedule.laws:verify_schedule"),
    "kernel texts": Representation("planning.kernels:show_texts"),
    "plan": Representation("planning.text:show_plan", "planning.text:parse_plan", "planning.text:verify_plan"),
}


@dataclass(frozen=True)
class Step:
    """``run`` is called with the compilation, and gives pairs of a part ("forward", "backward") and what it made of it, of the kind
    ``gives``. One that is ``on`` "scheduling" is called with the ``Scheduling`` of each graph, and gives what it made; one ``on`` "program"
    changes the program in that, unless each statement is to be a kernel of its own. ``when``: for which graphs it is.
    ``without``: what is called instead where the options skip the step, empty for nothing; None: programs need it."""

    name: str
    takes: str
    gives: str
    what: str
    run: str
    on: Literal["compilation", "scheduling", "program"] = "compilation"
    when: Literal["", "inference", "training"] = ""
    without: str | None = None


@dataclass(frozen=True)
class Until:
    """Steps that are repeated until ``done`` says so of the compilation."""

    what: str
    done: str
    steps: tuple[Step | Until, ...]


PASSES = (
    Step(
        "statements",
        "lowered program",
        "loop program",
        "loops over unique axes, one statement for each write",
        "schedule.steps:statements",
        on="scheduling",
    ),
    Step(
        "dce",
        "loop program",
        "loop program",
        "statements whose results nobody reads are dropped",
        "schedule.steps:dce",
        on="scheduling",
        without="",
    ),
    Step(
        "cse",
        "loop program",
        "loop program",
        "loops that compute what an earlier one did are dropped",
        "schedule.cse:remove_common",
        on="program",
        without="",
    ),
    Step(
        "update in place",
        "loop program",
        "loop program",
        "copies of which parts are written become writes into their source",
        "schedule.updates:update_in_place",
        on="program",
        without="",
    ),
    Step(
        "parts",
        "loop program",
        "loop program",
        "parts of what stands in memory are written there, where nobody needs it as it was",
        "schedule.parts:write_parts",
        on="program",
        without="",
    ),
    Step(
        "inline",
        "loop program",
        "loop program",
        "producers are computed where they are read",
        "schedule.inline:inline",
        on="program",
        without="",
    ),
    Step(
        "places",
        "loop program",
        "loop program",
        "what is looked up at a place that positions tell is read there",
        "schedule.places:read_known_places",
        on="program",
        without="",
    ),
    Step(
        "invariant sums",
        "loop program",
        "loop program",
        "sums that do not vary along an axis are taken once",
        "schedule.invariant:take_once",
        on="program",
        without="",
    ),
    Step(
        "vectors",
        "loop program",
        "loop program",
        "sums of vectors are taken where these are multiplied by matrices",
        "schedule.vectors:sum_where_multiplied",
        on="program",
        without="",
    ),
    Step(
        "dce again",
        "loop program",
        "loop program",
        "those that all readers have inlined are dropped",
        "schedule.steps:dce",
        on="scheduling",
        without="",
    ),
    Step(
        "turn scans",
        "loop program",
        "loop program",
        "scans that are read from their end run backward",
        "schedule.backward_scans:turn_scans",
        on="program",
        without="",
    ),
    Step(
        "rows",
        "loop program",
        "loop program",
        "what nobody sees lies in rows where rows are summed",
        "schedule.rows:lay_in_rows",
        on="program",
        without="",
    ),
    Step(
        "fuse",
        "loop program",
        "loop program",
        "loops in the order of the nests that they are put into",
        "schedule.steps:fused",
        on="scheduling",
        without="schedule.steps:apart",
    ),
    Step(
        "emit",
        "loop program",
        "schedule",
        "nests become kernels: axes coalesced, values rematerialized, short axes unrolled",
        "schedule.steps:emitted",
        on="scheduling",
    ),
)
"""How one lowered program is scheduled."""

SCHEDULING: tuple[Step | Until, ...] = (
    Step(
        "repeats",
        "aten graph",
        "aten graph",
        "blocks that come over and over are cut to four",
        "compiling:cut_repeats",
        without="compiling:uncut",
    ),
    Until(
        "every block that was left out can be put back",
        "compiling:is_scheduled",
        (
            Step("lower", "aten graph", "lowered program", "operators with a record become loops over buffers", "compiling:lowered"),
            *PASSES,
            Step("schedule", "schedule", "schedule", "the schedule of a block is repeated for those left out", "compiling:extended"),
        ),
    ),
)
"""From an aten graph to its schedule."""

PLANNING: tuple[Step | Until, ...] = (
    Step("bodies", "aten graph", "plan", "graphs inside of control operators become plans of their own", "compiling:planned_bodies"),
    Until(
        "every kernel is built, or what it came from is left to torch",
        "compiling:is_built",
        (
            Step(
                "products",
                "aten graph",
                "aten graph",
                "which matrix products on a GPU are loops, by running both ways",
                "compiling:chosen_products",
                without="compiling:products_as_they_are",
            ),
            *SCHEDULING,
            Step(
                "alike",
                "schedule",
                "schedule",
                "kernels that do the same one after the other, for other buffers, are one on a device with a grid",
                "compiling:joined_alike",
                without="",
            ),
            Step(
                "overlap",
                "schedule",
                "schedule",
                "exchanges with other processes start early and are waited for late",
                "compiling:overlap",
                without="",
            ),
            Step(
                "early",
                "schedule",
                "schedule",
                "kernels are told which inputs they may read before they wait",
                "compiling:read_ahead",
                without="",
            ),
            Step("generate", "schedule", "kernel texts", "kernels, by the first generator that claims them", "compiling:generated"),
        ),
    ),
    Step("operators", "aten graph", "schedule", "a graph whose kernels cannot be had is torch's own operators", "compiling:left_to_torch"),
    Step("plan", "schedule", "plan", "memory by lifetime; slots and steps", "compiling:planned"),
)
"""From aten graphs to plans."""

PIPELINE: tuple[Step | Until, ...] = (
    Step("graph", "FX graph", "FX graph", "the graph as it came", "backend:given"),
    Step("key", "FX graph", "FX graph", "a name for the graph with all that its plan depends on", "backend:find_key"),
    Step("load", "FX graph", "plan", "a plan that is in the store under this name; the rest is left out then", "backend:load"),
    Step(
        "functionalize",
        "FX graph",
        "aten graph",
        "one run over fakes: operators as values, writes at the end",
        "compiling:functional",
        when="inference",
    ),
    Step(
        "freeze",
        "aten graph",
        "aten graph",
        "what is made of weights that stay is taken out; they are folded and packed",
        "compiling:frozen",
        when="inference",
    ),
    Step(
        "joint", "FX graph", "aten graph", "the same with autograd: forward and backward in one graph", "compiling:joint", when="training"
    ),
    Step(
        "broadcast products",
        "aten graph",
        "aten graph",
        "products of matrices that are written as sums over broadcast products are made by a library",
        "compiling:multiplied",
        without="",
    ),
    Step(
        "causal",
        "aten graph",
        "aten graph",
        "attention is causal, or has no mask, where the mask is made of positions alone and says so",
        "compiling:without_masks",
        without="",
    ),
    Step(
        "layouts",
        "aten graph",
        "aten graph",
        "images between convolutions of half precision lie channels last",
        "compiling:laid_out",
        without="",
    ),
    Step(
        "padding",
        "aten graph",
        "aten graph",
        "operands of products on GPUs lie in aligned matrices",
        "compiling:padded",
        without="",
    ),
    Step(
        "log softmax",
        "aten graph",
        "aten graph",
        "where its gradient needs the sums alone, it is taken apart",
        "compiling:in_parts",
        when="training",
        without="",
    ),
    Step(
        "selections",
        "aten graph",
        "aten graph",
        "gradients of what masks select are laid in their order",
        "compiling:selections",
        when="training",
        without="",
    ),
    Step(
        "wide products",
        "aten graph",
        "aten graph",
        "products on GPUs that are handed out wider than their operands are written so",
        "compiling:widened",
        when="training",
        without="",
    ),
    Step(
        "partition",
        "aten graph",
        "aten graph",
        "forward and backward apart; what is saved, and what is computed again",
        "compiling:partitioned",
        when="training",
    ),
    Step(
        "stages",
        "aten graph",
        "aten graph",
        "the backward in stretches that hand out gradients early, or once more without tangents that mostly do not come",
        "compiling:staged",
        when="training",
    ),
    *PLANNING,
    Step("store", "plan", "plan", "the plan is kept under its name", "backend:keep"),
    Step("bind", "plan", "plan", "the native executable", "backend:bound"),
)


def steps(items: Sequence[Step | Until] = PIPELINE) -> Iterator[Step]:
    """All steps in order, each of a repeated group once."""
    for item in items:
        if isinstance(item, Step):
            yield item
        else:
            yield from steps(item.steps)


NAMES = tuple(step.name for step in steps())
"""Names of all steps, in order."""
OPTIONAL = {step.name: step.what for step in steps() if step.without is not None}
"""Steps that may be skipped, and what they do: a program without one of them is as right."""
UNCOMPILED = ("graph", "key", "load")
"""Steps that also a plan from the store goes through."""


Observer = Callable[[Step, Sequence[tuple[str, Any]], float, Callable[[Any], str]], None]
"""``observe(step, made, seconds, show)`` is told of each step that was run: pairs of a part and what it made of that, whose text ``show``
gives."""


class State(Protocol):
    """What the steps work on."""

    options: Any
    report: Any
    finished: bool

    @property
    def trains(self) -> bool: ...

    observe: Observer | None

    def on_each(self, function: Callable[[Any], object]) -> Iterable[tuple[str, object]]: ...


_IMPORT = Step("import", "", "", "modules of the compiler, for the first graph of a process", "")


class Work(Protocol):
    """A program that is being scheduled; ``fusion``: whether statements may become one kernel."""

    program: Any
    fusion: bool


def applied(on: str, function: Callable[[Any], object], work: Work) -> object:
    """What a step with that ``on`` makes of ``work``."""
    if on == "scheduling":
        return function(work)
    if work.fusion:
        function(work.program)
    return work.program


def run(items: Sequence[Step | Until], state: State) -> None:
    """Runs the steps on ``state`` until it is finished."""
    for item in items:
        if state.finished:
            return
        if isinstance(item, Until):
            while not found(item.done)(state):
                run(item.steps, state)
        elif not item.when or state.trains == (item.when == "training"):
            chosen = item.without if item.name in state.options.skip else item.run
            if not chosen:
                continue
            begun = time.perf_counter()
            function = found(chosen)
            if state.report.imported(took := time.perf_counter() - begun) and state.observe is not None:
                state.observe(_IMPORT, (), took, str)
            timed: AbstractContextManager[None] = state.report.step(item.name)
            start = time.perf_counter()
            with timed:
                made = function(state) if item.on == "compilation" else state.on_each(functools.partial(applied, item.on, function))
            if state.observe is not None:
                made = list(made or ())
                state.observe(item, made, time.perf_counter() - start, found(REPRESENTATIONS[item.gives].show))
            _observe(item, made or (), state.options)


def _observe(step: Step, made: Iterable[tuple[str, object]], options: Any) -> None:
    shown, form = options.prints(step.name), REPRESENTATIONS[step.gives]
    if not shown and not options.verify:
        return
    for part, program in made:
        if shown:
            print(f"# after {step.name}{f' ({part})' if part else ''}\n{found(form.show)(program)}\n", file=sys.stderr)
        if options.verify and form.verify:
            found(form.verify)(program)


def found(name: str) -> Callable[..., Any]:
    """The function that ``module:function`` of this package names."""
    module, _, function = name.partition(":")
    result: Callable[..., Any] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return result


def described(items: Sequence[Step | Until] = PIPELINE) -> str:
    """The list for people: a line for each step, those that are repeated further in."""
    return "\n".join(_described(items, ""))


def _described(items: Sequence[Step | Until], margin: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Until):
            yield f"{margin}until {item.what}:"
            yield from _described(item.steps, margin + "  ")
        else:
            only = f" ({item.when})" if item.when else ""
            yield f"{margin}{item.name}: {item.takes} -> {item.gives}{only}: {item.what}"


__all__ = [
    "NAMES",
    "OPTIONAL",
    "PASSES",
    "PIPELINE",
    "PLANNING",
    "REPRESENTATIONS",
    "SCHEDULING",
    "UNCOMPILED",
    "Representation",
    "Step",
    "Until",
    "described",
    "found",
    "run",
    "steps",
]
