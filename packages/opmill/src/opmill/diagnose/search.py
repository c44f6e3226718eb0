"""The search behind ``opmill.bisect``: frontend or backend, module, graph, operators, steps of the compiler, kernels."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from ..compile import compile, compiling_anew, record_of
from ..graph_texts import listed
from ..pipeline import OPTIONAL
from ..settings import resolve_arguments
from .check import Checked, check, compare, observe_eager, observe_kept, reference_of
from .copies import Program, kept, modules_of
from .finding import Finding, KernelFault
from .graphs import Captured, CapturingBackend
from .launches import kernel_that_dies, kernels_that_race, slowest_kernel
from .minimize import Smallest
from .routes import KernelComparison, broken_law, compare_graph, judge_graph, routes, skipping, without_warnings
from .speed import eagerly
from .symptoms import Judge, dies, differs, is_slow


class Search:
    """``judge``: how what is looked for is seen; None: by comparing numbers. ``before``: what the program was compiled to before, if it
    was."""

    def __init__(
        self, program: Program, tolerance: float, arguments: dict[str, Any], judge: Judge | None = None, before: Before | None = None
    ) -> None:
        self.program, self.tolerance, self.arguments, self.judge, self.before = program, tolerance, arguments, judge, before
        self.settings = resolve_arguments(arguments)
        self.steps: list[str] = []

    def found(self) -> Finding:
        then = self._as_before()
        whole = self._check(self.program, **self.arguments)
        self.steps.append(f"compiled: {_verdict(whole)}")
        if whole and not then:
            return self._stale(then)
        if whole:
            return Finding("nothing", tuple(self.steps))
        frontend = self._check(self.program, **{**self.arguments, "backend": "eager", "mode": None, "options": None})
        self.steps.append(f'captured, and run as torch\'s own operators (backend="eager"): {_verdict(frontend)}')
        if not frontend:
            return self._in_frontend(frontend)
        if not self.settings.native:
            return Finding("backend", tuple(self.steps), fault=f"backend {self.settings.backend!r}", shown=whole)
        return self._in_backend(whole)

    def _check(self, program: Program, **arguments: Any) -> Checked:
        if self.judge is not None:
            eager, fresh = program.fresh(), program.fresh()
            with without_warnings():
                compiled = compiling_anew(arguments)(fresh.model)
                return self.judge(eagerly(eager.call), functools.partial(compiled, *fresh.args, **fresh.kwargs))
        return check(program.model, tolerance=self.tolerance, **arguments)(*program.args, **program.kwargs)

    # --- what was compiled before ---

    def _as_before(self) -> Checked:
        """What the specialisations of before give."""
        if self.before is None:
            return Checked(())
        eager, reference = observe_eager(self.program.fresh()), reference_of(self.program)
        seen = compare(eager, observe_kept(self.before.call, self.program), reference, self.tolerance)
        self.steps.append(f"as it was compiled before: {_verdict(seen)}")
        return seen

    def _stale(self, shown: Checked) -> Finding:
        """A result of before is given again: the first operator that differs between what was captured then and what is now."""
        assert self.before is not None
        graphs = [(captured.gm, listed(captured.gm).splitlines()) for captured in self._graphs()]
        for gm, now in graphs:
            then = min(self.before.graphs, key=lambda text: _changes(text.splitlines(), now), default="").splitlines()
            if number := next((k for k, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), 0):
                node = list(gm.graph.nodes)[number - 1]
                self.steps.append(f"it ran {then[number].strip()}, and has to run {now[number].strip()}")
                return Finding("guards", tuple(self.steps), "", _lines_of([node]), fault=_STALE, shown=shown)
        alike = [text.splitlines() for text in self.before.graphs] == [now for _, now in graphs]
        freezes = self.settings.native and self.settings.options.freeze
        fault = _STALE if not alike else _FROZEN if freezes else _KEPT
        return Finding("guards", tuple(self.steps), "", _source_of(self.program.model), fault=fault, shown=shown)

    # --- the frontend ---

    def _in_frontend(self, whole: Checked) -> Finding:
        """Goes down to the innermost module that is wrong when it is called alone."""
        program, shown, path = self.program, whole, []
        eager = {**self.arguments, "backend": "eager", "mode": None, "options": None}
        while (inner := self._first_wrong(program, eager)) is not None:
            name, program, shown = inner
            path.append(name)
            self.steps.append(f"module {'.'.join(path)} alone: {_verdict(shown)}")
        fault = "capturing the program's code"
        return Finding("frontend", tuple(self.steps), ".".join(path), _source_of(program.model), fault=fault, shown=shown)

    def _first_wrong(self, program: Program, arguments: dict[str, Any]) -> tuple[str, Program, Checked] | None:
        """The first module directly inside that is wrong by itself: its name, a call of it, and what differs."""
        for name, called in _children_called(program):
            if not (seen := self._check(called, **arguments)):
                return name, called, seen
        return None

    # --- the backend ---

    def _in_backend(self, whole: Checked) -> Finding:
        options = self.settings.options
        ways = routes(options)
        for number, captured in enumerate(self._graphs()):
            seen = self._compare(captured, ways[0].compile)
            self.steps.append(f"graph {number} ({_count(captured.gm)} operators) alone: {_verdict(seen)}")
            if not seen:
                return self._in_graph(captured, seen)
        self.steps.append("no graph is wrong alone: the fault needs several of them, or what lies between")
        return Finding("backend", tuple(self.steps), fault="several graphs together", shown=whole)

    def _graphs(self) -> list[Captured]:
        backend = CapturingBackend()
        arguments = {k: v for k, v in self.arguments.items() if k in ("fullgraph", "dynamic")}
        fresh = self.program.fresh()
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # what it raises is what is looked into: the graphs until then are there
            compile(fresh.model, backend=backend, **arguments)(*fresh.args, **fresh.kwargs)
        return [captured for captured in backend.graphs if captured.inputs is not None]

    def _compare(self, captured: Captured, make: Any) -> Checked:
        with torch.set_grad_enabled(captured.grad_mode):
            if self.judge is not None:
                return judge_graph(captured.gm, captured.inputs or (), make, self.judge)
            return compare_graph(captured.gm, captured.inputs or (), make, self.tolerance)

    def _in_graph(self, captured: Captured, seen: Checked) -> Finding:
        ways = routes(self.settings.options)

        def shows(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
            return not self._compare(Captured(gm, list(inputs), captured.grad_mode), ways[0].compile)

        search = Smallest(captured.gm, captured.inputs or (), shows)
        gm, inputs = search.found()
        small = Captured(gm, inputs, captured.grad_mode)
        still = self._compare(small, ways[0].compile)
        self.steps.append(f"{_count(gm)} of its operators show it, after {search.tried} graphs were tried")
        fault = ""
        for way in ways[1:]:
            without = self._compare(small, way.compile)
            self.steps.append(f"without {way.without}: {_verdict(without)}")
            if without:
                fault = way.fault
                break
        if fault in ("", _FUSING):
            fault = self._named(small, fault)
        kernels = self._faulty_kernels(small)
        law = broken_law(Program(gm, (), {}).fresh().model, inputs, self.settings.options) if self.judge is None else ""
        if law:
            self.steps.append(f"held against the laws of each step: {law}")
            fault = fault or law
        elif kernels and self.judge is differs:
            fault = "a race in a kernel"
        elif kernels and self.judge is None:
            fault = "the kernel generator: a kernel does not do what its loops say"
        elif fault == "lowering to loops, or the kernel made of them" and self.judge is None:
            fault = "lowering to loops"
            self.steps.append("each kernel does what its loops say")
        return Finding(
            "backend",
            tuple(self.steps),
            "",
            _lines_of(gm.graph.nodes),
            gm,
            tuple(inputs),
            fault or _WITHOUT_KERNELS,
            kernels,
            seen if still else still,
        )

    def _named(self, small: Captured, fault: str) -> str:
        """The fault, with the steps of the compiler that make it: those without which the graph is right."""
        before = [name for name in OPTIONAL if (name in _BEFORE_LOOPS) != bool(fault)]
        mend = []
        for way in skipping(self.settings.options, before):
            without = self._compare(small, way.compile)
            self.steps.append(f"without {way.without}: {_verdict(without)}")
            mend += [way.fault] if without else []
        told = f"in the step {' or '.join(map(repr, mend))}" if mend else ""
        return ": ".join(filter(None, (fault, told))) if mend else fault

    def _faulty_kernels(self, captured: Captured) -> tuple[KernelFault, ...]:
        with torch.set_grad_enabled(captured.grad_mode), without_warnings():
            if self.judge is dies:
                return kernel_that_dies(captured.gm, captured.inputs or (), self.settings.options)
            if self.judge is is_slow:
                return slowest_kernel(captured.gm, captured.inputs or (), self.settings.options)
            if self.judge is differs:
                return kernels_that_race(captured.gm, captured.inputs or (), self.settings.options)
        if self.judge is not None:
            return ()
        comparison = KernelComparison(self.settings.options)
        self._compare(captured, comparison.compile)
        return tuple(comparison.faults.values())


class Before(Struct, frozen=True):
    """What a program was compiled to before: what calls a copy of it so, and the captured graphs as texts."""

    call: Callable[[Any], Any]
    graphs: tuple[str, ...]


def before_of(compiled: Any) -> Before | None:
    """None of what was never called, or cannot be called with copies of its state."""
    own, found = kept(compiled), record_of(compiled)
    return None if own is None or found is None else Before(own, tuple(graph.text for graph in found[1].graphs))


def _changes(then: Sequence[str], now: Sequence[str]) -> int:
    return abs(len(then) - len(now)) + sum(a != b for a, b in zip(then, now, strict=False))


_STALE = "a specialisation of before is run again: no guard looks at what this line reads, which has changed since"
_FROZEN = "weights that were made constants (freeze) have changed since, and their copies run again: opmill.thaw(model) forgets them"
_KEPT = "the same graph as before gives another result: something that it keeps from call to call is stale"
_FUSING = "fusing loops"
_BEFORE_LOOPS = ("causal", "layouts", "padding", "log softmax", "selections", "wide products", "products", "repeats")
"""Steps that are taken whether loops are fused or not."""
_WITHOUT_KERNELS = "making the graph functional, its gradient, or the plan that runs it"


def _verdict(checked: Checked) -> str:
    return "right" if checked else f"wrong ({checked.wrong[0].name}: {checked.wrong[0].problem})"


def _count(gm: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def _children_called(program: Program) -> list[tuple[str, Program]]:
    """The modules directly inside of the program's, and what each was first called with in an eager run."""
    fresh = program.fresh()
    calls: dict[str, Program] = {}
    removers = []
    for module in modules_of(fresh.model):
        for name, child in module.named_children():

            def note(child: Any, args: Any, kwargs: Any, name: str = name) -> None:
                if name not in calls:
                    calls[name] = Program(child, args, kwargs).fresh()

            removers.append(child.register_forward_pre_hook(note, with_kwargs=True))
    try:
        torch.manual_seed(0)
        eagerly(fresh.call)()
    except Exception:
        pass
    finally:
        for remover in removers:
            remover.remove()
    for each in calls.values():
        for module in modules_of(each.model):
            module._forward_pre_hooks.clear()
            module._forward_pre_hooks_with_kwargs.clear()
    return list(calls.items())


def _source_of(model: Any) -> tuple[str, ...]:
    function = type(model).forward if isinstance(model, torch.nn.Module) else getattr(model, "__func__", model)
    code = getattr(function, "__code__", None)
    return (f"{code.co_filename}:{code.co_firstlineno} in {function.__qualname__}",) if code is not None else ()


def _lines_of(nodes: Iterable[fx.Node]) -> tuple[str, ...]:
    """Where in the program operators are, each line once."""
    found: dict[str, None] = {}
    for node in nodes:
        lines = [line.strip() for line in (node.stack_trace or "").strip().splitlines() if line.strip().startswith("File ")]
        if lines:
            found[lines[-1]] = None
    return tuple(found)
