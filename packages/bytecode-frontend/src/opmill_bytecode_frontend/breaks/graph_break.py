"""Graph breaks: an unsupported instruction runs natively, and each frame on the stack goes on after it in a resume function.

The function that ran the graph stays on the stack as the outermost frame until the frames inside have ended; these are short functions
("stubs") with the names and lines of the user's, so that tracebacks and ``sys._getframe`` show what they would show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from opmill_guards import TailCall, finish

from .._native import intercept
from ..bytecode import Instruction, Program, reads_names
from ..codegen.exceptions import read_field, written_field
from ..codegen.stubs import Expressions, Passed
from ..errors import Unsupported
from ..interpretation.frame import Frame
from ..resume import Parameter, ParameterKind
from ..values.base import MISSING, Value
from .bodies import Going, going_on
from .changing import changing
from .continuation import Placed, indent
from .natives import ROWS, runs_code
from .returning import Native

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


DENSE = frozenset("dequantize to_dense coalesce int_repr".split())
"""Methods that are asked of tensors that no graph holds: quantised and sparse ones."""


class Site(Struct, frozen=True):
    """A frame on the stack at a break. ``at``: the instruction that it is at, an index; ``handled``: the exception that it handles
    there."""

    frame: Frame
    at: int
    handled: Value | None

    @property
    def program(self) -> Program:
        return self.frame.prepared.program

    @property
    def handles(self) -> bool:
        """Whether it is this frame itself that handles an exception."""
        return self.handled is not None and self.handled is not self.frame.entered


def stack_of(vm: Interpreter) -> list[Site]:
    """The frames on the stack where the interpreter stopped, outermost first."""
    frame = vm.stopped
    found = [Site(frame, frame.pc, vm.handled)]
    while frame.caller is not None:
        inner, frame = frame, frame.caller
        found.append(Site(frame, frame.pc - 1, inner.entered))
    return found[::-1]


def statements(sites: list[Site], context: object, r: Expressions) -> list[str]:
    """What the outermost of the frames still does: run its instruction, or the frames inside; then its resume function goes on."""
    site, inner = sites[0], sites[1:]
    if inner:
        passed = Passed(r)
        lines = statements(inner, context, passed)
        callee = inner[0].frame
        called = f"{r.constants.name(finish)}({passed.define(callee.code, callee.globals, lines)})"
        step = callee.returned(site.frame, site.program.instructions[site.at], r, called)
    else:
        at = site.program.instructions[site.at]
        row = ROWS.get(at.opname)
        if row is None:
            raise Unsupported(
                "FE071", f"a graph break at {at.opname}", "this instruction cannot be run between two graphs", where=site.frame.where()
            )
        step = row(site.frame, at, r, context)
        if not at.opname.startswith("CALL"):
            step.offers = any(map(runs_code, site.frame.stack[len(site.frame.stack) - step.pops :]))
    return Leaving(site, r, context).statements(step)


def refuse_another_table(frame: Frame, site: Site) -> None:
    """Until Python 3.13 ``locals()`` gives one table however often it is called, but what follows a break is another frame."""
    if frame.names is None or sys.version_info >= (3, 13):
        return
    instructions = site.program.instructions
    if any(map(reads_names, instructions if frame.in_loop else instructions[site.at :])):
        why = "the table of its variables is asked for again"
        raise Unsupported("FE071", "a graph break behind a call of locals()", why, where=frame.where())


class Leaving(Struct, eq=False):
    """Puts together how a frame goes on: the native statements, what their exceptions lead to, the calls of resume functions."""

    site: Site
    r: Expressions
    context: Any
    assigned: dict[str, str] = {}
    """Variables that the native statements bind, and the names of their values."""

    def statements(self, step: Native) -> list[str]:
        frame = self.site.frame
        refuse_another_table(frame, self.site)
        at, *after = self.site.program.instructions[self.site.at : self.site.at + 2]
        stack = frame.stack[: len(frame.stack) - step.pops]
        lines: list[str] = [Placed.at(line, at.position) for line in step.statements]
        if step.ends:
            goes_on = []
        elif step.condition is None:
            place = self.made_dense(step, lines)
            following, results, done = self.absorb(place, step)
            goes_on = [done or self.leave(following, stack, results)]
        else:
            test, jumped, fell = step.condition
            target = step.target or at.target
            assert target is not None
            check = self.r.temporary("_t")
            lines.append(Placed.at(f"{check} = bool({test})", at.position))
            goes_on = [f"if {check}:", *indent([self.leave(target, stack, jumped)]), self.leave(after[0], stack, fell)]
        lines = self.handling(self.offering(lines) if step.offers else lines)
        if at.handler is not None and lines:
            self.r.forgets = True  # what the handler does not keep is gone before it runs
            raising = self.leave(at, frame.stack[: at.handler.depth], [], "_error")
            lines = ["_error = None", "try:", *indent(lines), "except BaseException as _caught:", "    _error = _caught"]
            lines += ["if _error is not None:", "    try:", *indent(indent([raising])), "    finally: _error = None"]
        return [*lines, *goes_on]

    def made_dense(self, step: Native, lines: list[str]) -> int:
        """Asks the result at once for what a graph may hold, where the program does that next; the place of the instruction behind."""
        instructions, place = self.site.program.instructions, self.site.at + 1
        while len(step.results) == 1 and (result := step.results[0]) is not None:
            load, *rest = [ins for ins in instructions[place : place + 4] if ins.opname not in ("PRECALL", "NOP", "CACHE")]
            if not rest or load.opname not in ("LOAD_METHOD", "LOAD_ATTR") or load.argval not in DENSE:
                break
            call = rest[0]
            if call.opname != "CALL" or call.argval or {load.handler, call.handler} != {instructions[self.site.at].handler}:
                break
            lines.append(Placed.at(f"{result} = ({result}).{load.argval}()", call.position))
            place = next(k for k in range(place, len(instructions)) if instructions[k] is call) + 1
        return place

    def absorb(self, place: int, step: Native) -> tuple[Instruction, list[str | None], str]:
        """What comes next and only moves the result: done here, so that the resume function need not look at the value."""
        instructions = self.site.program.instructions
        following = instructions[place]
        if len(step.results) != 1:
            return following, step.results, ""
        [result] = step.results
        after = instructions[place + 1] if len(instructions) > place + 1 else following
        if following.opname == "RETURN_VALUE" and result is not None:
            return following, step.results, f"return {result}"
        if following.opname == "POP_TOP":
            return after, [], self.returned_constant(after)
        if following.opname == "STORE_FAST" and result is not None:
            self.assigned[following.argval] = result
            return after, [], ""
        return following, step.results, ""

    def returned_constant(self, after: Instruction) -> str:
        """The return statement where nothing else is left to do."""
        if after.opname == "RETURN_CONST":
            return f"return {self.r.constants.name(after.argval)}"
        instructions = self.site.program.instructions
        last = instructions[instructions.index(after) + 1 :][:1]
        if after.opname == "LOAD_CONST" and last and last[0].opname == "RETURN_VALUE":
            return f"return {self.r.constants.name(after.argval)}"
        return ""

    def handling(self, lines: list[str]) -> list[str]:
        """Inside an exception handler the exception is the one being handled for what runs natively as well."""
        if not self.site.handles or not lines:
            return lines
        handled = self.site.handled
        assert handled is not None
        exc = self.r.expr(handled)
        position = getattr(handled, "raised_at", {}).get(id(self.site.frame))
        seen = "" if position is None else "if _raised is not None: "
        constants, cls = self.r.constants, handled.python_type()
        put_back = written_field(constants, cls, exc, "__traceback__", "_raised")
        kept = [f"    {seen}{put_back}", "    _raised = None"]  # this is not where it was raised; it knows the frame
        raising = [f"_raised = {read_field(constants, cls, exc, '__traceback__')}", "try:", Placed.at(f"    raise {exc}", position)]
        return [*raising, "except BaseException:", *kept, *indent(lines)]

    def offering(self, lines: list[str]) -> list[str]:
        """While the lines run, functions that they call are captured."""
        opened = f"{self.r.constants.name(intercept)}({self.r.constants.name(self.context.offer)})"
        return [f"with {opened}:", *indent(lines)]

    def leave(self, target: Instruction, stack: Sequence[object], results: list[str | None], error: str = "") -> str:
        """The return statement that goes on at ``target``, or that raises ``error`` there."""
        frame = self.site.frame
        bound = dict.fromkeys([*frame.locals, *frame.cells, *({} if error else self.assigned)])
        there = [*stack, *[MISSING if x is None else x for x in results]]
        going = going_on(frame, target, there, bound, bool(error), () if error else self.assigned)
        place = frame.prepared.index[id(target)]
        numbers = changing({p.name: self.given(p, stack, results, error) for p in going.resume.parameters})
        compiled = self.context.resumed(going.body, going.resume, (place, bool(error)), numbers)
        passed = [self.argument(p, going, stack, results, error) for p in going.resume.parameters]
        return f"return {self.r.constants.name(TailCall)}({', '.join([self.r.constants.name(compiled), *passed])})"

    def given(self, parameter: Parameter, stack: Sequence[object], results: list[str | None], error: str) -> object:
        """What a resume function is given for a variable or a place of the stack: a tracked value; a text for what is there when the
        program runs; nothing for its other parameters."""
        match parameter.kind:
            case ParameterKind.LOCAL if parameter.name in self.assigned and not error:
                return self.assigned[parameter.name]
            case ParameterKind.LOCAL:
                return self.site.frame.locals[parameter.name]
            case ParameterKind.STACK:
                return [*stack, *results][parameter.place]
        return MISSING

    def argument(self, parameter: Parameter, going: Going, stack: Sequence[object], results: list[str | None], error: str) -> str:
        """The expression that a resume function is given for one of its parameters."""
        frame, r, place = self.site.frame, self.r, parameter.place
        match parameter.kind:
            case ParameterKind.LOCAL if parameter.name in self.assigned and not error:
                return self.assigned[parameter.name]
            case ParameterKind.LOCAL:
                return r.expr(frame.locals[parameter.name])
            case ParameterKind.CELL:
                return r.expr(frame.cells[parameter.name])
            case ParameterKind.STACK:
                return r.expr(stack[place]) if place < len(stack) else str(results[place - len(stack)])
            case ParameterKind.EXCEPTION:
                return error
        inner = going.handler_inside(place)
        return r.expr(stack[inner] if inner is not None else self.site.handled)
