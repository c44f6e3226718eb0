"""An interpreted frame, and what is prepared once per code object."""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opmill_fake_tensors.lazily import cached_property

from ..bytecode import Instruction, Program, decode
from ..errors import Unsupported
from ..resume import Resume, State, states
from ..values.base import MISSING, Value
from ..values.functions import CellValue, FunctionValue

if TYPE_CHECKING:
    from ..values.mapping import DictValue
    from .opcodes.registry import Handler


class Prepared:
    """A decoded code object with handlers looked up."""

    def __init__(self, code: types.CodeType, handlers: dict[str, Handler]) -> None:
        self.program: Program = decode(code)
        self.instructions: list[Instruction] = self.program.instructions
        self.index = {id(ins): i for i, ins in enumerate(self.instructions)}
        self.handlers = [handlers.get(ins.opname) for ins in self.instructions]
        self.cells = set(code.co_cellvars) | set(code.co_freevars)
        self.resumes: dict[object, Resume] = {}
        """Resume functions made so far, by place and state."""

    @cached_property
    def states(self) -> dict[Instruction, State]:
        """The state of the stack before each instruction."""
        return states(self.program)


def refuse_module_code(code: types.CodeType, name: str, where: str = "") -> None:
    """The variables of code that is no function's own are names of the module it is run in."""
    if not code.co_flags & inspect.CO_NEWLOCALS:
        raise Unsupported("FE060", f"a function {name} made of a module's code", "its variables are the module's names", where=where)


_PREPARED: weakref.WeakKeyDictionary[types.CodeType, Prepared] = weakref.WeakKeyDictionary()


def prepare(code: types.CodeType, handlers: dict[str, Handler]) -> Prepared:
    """Decoding is cached for as long as the code object lives."""
    found = _PREPARED.get(code)
    if found is None or found.program.filename != code.co_filename or found.program.firstlineno != code.co_firstlineno:
        found = _PREPARED[code] = Prepared(code, handlers)
    return found


class Frame:
    """Locals, cells, stack and position of one interpreted call."""

    def __init__(
        self, prepared: Prepared, code: types.CodeType, function: FunctionValue | None, globals_: dict[str, object], depth: int
    ) -> None:
        self.prepared = prepared
        self.code = code
        self.function = function
        self.globals = globals_
        self.depth = depth
        self.locals: dict[str, Any] = {}
        self.cells: dict[str, CellValue] = {}
        self.aside: dict[str, CellValue] = {}
        """Cells of the function's own that a comprehension keeps on the stack while it has a variable of the same name."""
        self.names: DictValue | None = None
        """The table of all variables (``locals()``), once it has been asked for."""
        self.stack: list[Any] = []
        self.push: Callable[[object], None] = self.stack.append  # of the one list that this frame ever has
        self.pop: Callable[[], Any] = self.stack.pop
        self.pc = 0
        self.turns: dict[int, tuple[int, int]] = {}
        """Of each jump back: how often, and where from, by its target."""
        self.kwnames: tuple[str, ...] = ()
        self.caller: Frame | None = None
        self.caught_outside: bool | None = None
        """Whether a function that called this one may take what is raised here (`catching.is_caught`); None: not asked yet."""
        self.calling: object = None
        """The function that the instruction being run is about to call, ..."""
        self.goes_on: object = None
        """... how that instruction goes on with its result (`returning.Returned`), ..."""
        self.returned: Any = None
        """... and how the caller's instruction goes on with the result of this frame."""
        self.has_places = False
        """Whether the graph may end inside this frame: how each frame on the stack goes on afterwards is known."""
        self.place = 0
        self.entered: Value | None = None
        """The exception being handled when the frame began."""
        self.yielded: Value | None = None
        self.outer: Value | None = None
        """Of a generator: the exception that its caller handles, and ..."""
        self.handled: Value | None = None
        """... the one that it is itself in the midst of handling while it is suspended."""

    def begins(self, caller: Frame | None, handled: Value | None) -> None:
        """The frame runs, or goes on, called from another one, while an exception is being handled there."""
        self.caller, self.entered, self.caught_outside = caller, handled, None

    def popn(self, n: int) -> list[Any]:
        if n == 0:
            return []
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def jump(self, target: Instruction | None) -> None:
        index = self.prepared.index[id(target)]
        if index < self.pc:
            self.turns[index] = self.turns.get(index, (0, 0))[0] + 1, self.pc - 1
        self.pc = index

    def stores(self) -> int:
        """How many values the next instructions take from the stack and put into variables, one after the other."""
        count, instructions = 0, self.prepared.instructions
        for at in range(self.pc, len(instructions)):
            if (name := instructions[at].opname) not in ("STORE_FAST", "STORE_FAST_STORE_FAST"):
                break
            count += 1 if name == "STORE_FAST" else 2
        return count

    def delegate(self) -> object:
        """The iterator that a suspended generator delegates to (``yield from``), or None."""
        following = self.prepared.instructions[self.pc]
        delegates = self.pc > 0 and following.opname == "RESUME" and (following.argval or 0) & 3 == 2
        return self.stack[-1] if delegates else None

    def expects(self, function: object, goes_on: object) -> None:
        """The instruction being run will call ``function`` next, and nothing is left of it but ``goes_on`` when that has ended; None: no
        such call."""
        self.calling, self.goes_on = function, goes_on

    def calls(self, function: FunctionValue) -> bool:
        """Whether this is the call that the instruction being run expects, rather than one made on the way. True once."""
        calling, self.calling = self.calling, None
        return calling is not None and (calling is function or calling is function.obj)

    def makes(self, cls: type) -> bool:
        """Whether the instruction being run is a call of this class. True once."""
        calling, self.calling = self.calling, None
        return calling is cls

    @property
    def line(self) -> int | None:
        return self.prepared.instructions[max(0, self.pc - 1)].position.lineno

    @property
    def span(self) -> tuple[int | None, int | None, int | None, int | None]:
        """Lines and columns of the expression being run: first line, last line, first column, column behind the last."""
        at = self.prepared.instructions[max(0, self.pc - 1)].position
        return at.lineno, at.end_lineno, at.col_offset, at.end_col_offset

    @property
    def in_loop(self) -> bool:
        """Whether the instruction being run is inside of a loop of this frame's."""
        instructions, at = self.prepared.instructions, max(0, self.pc - 1)
        before = {id(each) for each in instructions[: at + 1]}
        return any(id(each.target) in before for each in instructions[at:] if each.target is not None)

    def where(self) -> str:
        return f"{self.code.co_filename}:{self.line}"


def callee_of(first: Value, second: Value, args: list[Value]) -> Value:
    """The function of the two places below a call's arguments; a receiver that stands beside it becomes the first of these."""
    if sys.version_info >= (3, 13):
        function, receiver = first, second
    else:
        function, receiver = (second, MISSING) if first is MISSING else (first, second)
    if receiver is not MISSING:
        args.insert(0, receiver)
    return function
