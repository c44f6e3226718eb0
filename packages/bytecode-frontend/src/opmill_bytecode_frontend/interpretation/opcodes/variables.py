"""Constants, locals, cells, globals, names, stack shuffling."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from opmill_fake_tensors.passing import interrupting
from opmill_guards.guard import Absent, Is
from opmill_guards.source import Pinned

from ...effects.lifetimes import refuse_ending
from ...effects.reads import note_cell, note_global
from ...values.base import MISSING, Lazy, Value
from ...values.classes import ModuleObject
from ...values.constant import ConstantValue
from ...values.functions import CellValue
from ...values.mapping import DictValue
from ...values.sequence import TupleValue
from ...values.warned import called_at_capture
from ..missing_modules import absolute, stays_missing
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ...values.base import Machine
    from ..frame import Frame
    from ..machine import Interpreter


NULL = MISSING
NAMESPACE = ConstantValue("the names of a class body")


@opcode("RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "EXTENDED_ARG", "JUMP_BACKWARD_NO_INTERRUPT_", "NOT_TAKEN")
def nop(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Nothing that a capture has to follow."""


@opcode("LOAD_CONST")
def load_const(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes a constant of the code."""
    value = ins.argval
    kind = type(value)
    if kind is tuple:
        frame.push(constant_tuple(vm, value))
    else:
        frame.push(vm.fresh(value) if kind is frozenset or kind is types.CodeType else ConstantValue(value))


def constant_tuple(vm: Interpreter, value: tuple[object, ...]) -> object:
    """A tuple among a function's constants: one object, wherever it is carried."""
    known = vm.known.get(id(value))
    if known is not None and known[0] is value:
        if type(known[1].source) is not Pinned:
            vm.guard(Is(known[1].source, value))
        return known[1]
    made = cast(TupleValue, vm.fresh(value))
    made.source, made.obj = Pinned(value, "constant"), value
    return vm.know(value, made)


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes a local variable; raises UnboundLocalError where it has no value."""
    frame.push(read_local(vm, frame, ins.argval))


def read_local(vm: Interpreter, frame: Frame, name: str) -> object:
    """A local variable. Raises the program's UnboundLocalError."""
    value = frame.locals.get(name, MISSING)
    if value is MISSING:
        vm.throw(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")
    if type(value) is Lazy:
        value = frame.locals[name] = vm.wrap(value.obj, value.source)
    return value


@opcode("LOAD_FAST_LOAD_FAST")
def load_fast_twice(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes two local variables."""
    frame.push(read_local(vm, frame, ins.argval[0]))
    frame.push(read_local(vm, frame, ins.argval[1]))


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """A comprehension begins whose variable has this name, too."""
    name = ins.argval
    if name in frame.cells:
        frame.aside[name] = frame.cells.pop(name)
        frame.push(frame.aside[name])
    else:
        frame.push(frame.locals.pop(name, MISSING))


@opcode("STORE_FAST")
def store_fast(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a local variable."""
    write_local(frame, ins.argval, frame.pop())


def write_local(frame: Frame, name: str, value: object) -> None:
    """Assigns a variable of the frame, or removes it (MISSING). Comprehensions keep cells of the same name aside meanwhile."""
    if name in frame.cells:  # a comprehension ends that had a cell of this name for itself
        del frame.cells[name]
    if value is MISSING:
        frame.locals.pop(name, None)
    elif frame.aside and frame.aside.get(name) is value:  # it ends, and the function's own cell comes back
        frame.cells[name] = frame.aside.pop(name)
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


@opcode("STORE_FAST_LOAD_FAST")
def store_load(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a local variable, and pushes another one."""
    write_local(frame, ins.argval[0], frame.pop())
    frame.push(read_local(vm, frame, ins.argval[1]))


@opcode("STORE_FAST_STORE_FAST")
def store_twice(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops two values into local variables."""
    write_local(frame, ins.argval[0], frame.pop())
    write_local(frame, ins.argval[1], frame.pop())


@opcode("DELETE_FAST")
def delete_fast(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Takes a local variable its value."""
    if frame.locals.pop(ins.argval, MISSING) is MISSING:
        vm.throw(UnboundLocalError, f"cannot access local variable '{ins.argval}' where it is not associated with a value")


@opcode("LOAD_CLOSURE")
def load_closure(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes the cell of a variable, for a function that is being made."""
    if ins.argval in frame.cells:
        frame.push(frame.cells[ins.argval])
    else:
        frame.push(read_local(vm, frame, ins.argval))  # the prologue of a resume function, which is given cells


@opcode("MAKE_CELL")
def make_cell(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Gives a variable that inner functions see its cell."""
    frame.cells[ins.argval] = CellValue(frame.locals.pop(ins.argval, MISSING))


@opcode("STORE_CLOSURE")
def store_closure(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """What the slot of a cell holds: in the prologue of a resume function a cell that it is given, elsewhere what a comprehension has or
    brings back."""
    value = frame.pop()
    if isinstance(value, CellValue) and ins.argval in frame.cells and frame.aside.get(ins.argval) is not value:
        frame.cells[ins.argval] = value
    else:
        write_local(frame, ins.argval, value)


@opcode("LOAD_CLASSDEREF", until=(3, 11))
def load_class_deref(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """In the body of a class: pushes a name of that class, or else the variable of the function around it."""
    frame.push(read_local(vm, frame, ins.argval)) if ins.argval in frame.locals else load_deref(vm, frame, ins)


@opcode("LOAD_LOCALS", since=(3, 12))
def load_locals(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes the names of the body of a class."""
    frame.push(NAMESPACE)


@opcode("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", since=(3, 12))
def load_from_namespace(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """In the body of a class: pushes a name of that class, or else a cell's value or a global."""
    if frame.pop() is not NAMESPACE:
        vm.unsupported("FE062", f"instruction {ins.opname}", "it reads the names of another scope")
    if ins.argval in frame.locals:
        frame.push(read_local(vm, frame, ins.argval))
    elif ins.opname.endswith("DEREF"):
        load_deref(vm, frame, ins)
    else:
        frame.push(vm.read_global(frame.globals, ins.argval))


@opcode("LOAD_DEREF")
def load_deref(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes what a cell holds; raises NameError where it is empty."""
    value = frame.cells[ins.argval].get(vm)
    if value is MISSING:
        unbound(vm, frame, ins.argval)
    if type(value) is Lazy:
        value = vm.wrap(value.obj, value.source)
        frame.cells[ins.argval].content = value
    if vm.effects.reads is not None:
        note_cell(vm.effects.reads, frame.cells[ins.argval], ins.argval, value)
    frame.push(value)


def unbound(vm: Interpreter, frame: Frame, name: str) -> NoReturn:
    """Raises what Python says of a variable without a value."""
    if name in frame.code.co_freevars:
        message = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        vm.throw_about(NameError, message, name=ConstantValue(name))
    raise vm.throw(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")


@opcode("STORE_DEREF")
def store_deref(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a cell."""
    frame.cells[ins.argval].set(vm, frame.pop())


@opcode("DELETE_DEREF")
def delete_deref(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Empties a cell."""
    if frame.cells[ins.argval].get(vm) is MISSING:
        unbound(vm, frame, ins.argval)
    frame.cells[ins.argval].set(vm, MISSING)
    frame.cells[ins.argval].obj = None


@opcode("LOAD_GLOBAL")
def load_global(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes a global or a builtin; what was found is guarded."""
    value = vm.read_global(frame.globals, ins.argval)
    if vm.effects.reads is not None:
        note_global(vm.effects.reads, frame.globals, ins.argval, value)
    null_first = sys.version_info < (3, 13)
    if ins.flag & 1 and null_first:
        frame.push(NULL)
    frame.push(value)
    if ins.flag & 1 and not null_first:
        frame.push(NULL)


@opcode("LOAD_NAME")
def load_name(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """In the body of a class: pushes a name of that class, a global or a builtin."""
    if ins.argval in frame.locals:
        frame.push(read_local(vm, frame, ins.argval))
    else:
        frame.push(vm.read_global(frame.globals, ins.argval))


@opcode("STORE_NAME")
def store_name(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """In the body of a class: pops a value into a name."""
    frame.locals[ins.argval] = frame.pop()


@opcode("DELETE_NAME")
def delete_name(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """In the body of a class: forgets a name."""
    if frame.locals.pop(ins.argval, MISSING) is MISSING:
        vm.no_name(ins.argval)


@opcode("STORE_GLOBAL")
def store_global(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a global; it is assigned when the graph has run."""
    vm.effects.store_global(frame.globals, ins.argval, frame.pop())


@opcode("DELETE_GLOBAL")
def delete_global(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Forgets a global; it is deleted when the graph has run."""
    vm.read_global(frame.globals, ins.argval)
    vm.effects.store_global(frame.globals, ins.argval, None)


@opcode("PUSH_NULL")
def push_null(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes what stands where a method's object would."""
    frame.push(NULL)


@opcode("POP_TOP", "END_FOR")
def pop_top(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Drops the topmost value."""
    refuse_ending(frame.pop())


@opcode("COPY")
def copy(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes a value of the stack, so many from the top, once more."""
    frame.push(frame.stack[-ins.argval])


@opcode("SWAP")
def swap(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Exchanges the topmost value with another one."""
    stack = frame.stack
    stack[-1], stack[-ins.argval] = stack[-ins.argval], stack[-1]


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes AssertionError, as ``assert`` raises it whatever the name means."""
    frame.push(vm.wrap(AssertionError))


@opcode("IMPORT_NAME")
def import_name(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops the names and the level of an import, and pushes the module."""
    fromlist, level = frame.pop(), frame.pop()
    globals_: dict[str, object] = {
        k: frame.globals.get(k) for k in ("__name__", "__package__", "__spec__", "__path__") if k in frame.globals
    }
    names: Sequence[str] = vm.plain(fromlist) or ()
    table, modules = vm.known.get(id(sys.modules), (None, None))
    if table is sys.modules and isinstance(modules, DictValue) and modules.version:
        vm.unsupported("FE021", f"import of {ins.argval}", "captured code has written to sys.modules")
    try:
        module = __import__(ins.argval, globals_, None, names and ("__name__",), level.constant())
        found = vm.wrap(module)
        for name in names if hasattr(module, "__path__") else ():
            if not given_by_package(vm, found, name):
                __import__(ins.argval, globals_, None, (name,), level.constant())
    except Exception as exc:
        full = absolute(ins.argval, level.constant(), globals_)
        if full is not None and interrupting(exc) is None:
            stays_missing(vm, full, exc)
        vm.throw_real(exc)
    frame.push(found)


def given_by_package(vm: Interpreter, package: Value, name: str) -> bool:
    """Whether a package has a name that is imported from it: what it has not may be a module below it. Its own ``__getattr__`` is asked
    by Python first, and may do more than tell."""
    names = vars(package.real()) if isinstance(package, ModuleObject) else {}
    if name in names or "__getattr__" not in names:
        return name in names
    if cast(ModuleObject, package).asks_program(cast("Machine", vm), name):
        vm.unsupported("FE021", f"import of {name} from {package.describe()}", "the package's own __getattr__ is asked at each import")
    return bool(called_at_capture(vm, hasattr, [package.real(), name], {}))


@opcode("IMPORT_FROM")
def import_from(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes a name of the module on the stack: an attribute, or the module of that name below it."""
    module, name = frame.stack[-1], ins.argval
    found = vm.attempt(lambda: vm.getattr(module, name), AttributeError)
    if found is None:
        full = f"{module.constant().__name__}.{name}"
        if full not in sys.modules:
            vm.guard(Absent(Pinned(sys.modules, "sys.modules"), full))
            if hasattr(module.constant(), "__path__"):
                stays_missing(vm, full)
            refuse_import(vm, module.constant(), name)
        found = vm.wrap(sys.modules[full])
    frame.push(found)


def refuse_import(vm: Interpreter, module: types.ModuleType, name: str) -> NoReturn:
    """Raises what Python says of a name that a module has not: of one like it, whose code is not asked again."""
    like = types.ModuleType(module.__name__)
    vars(like).update({each: vars(module)[each] for each in ("__file__", "__spec__", "__path__") if each in vars(module)})
    try:
        exec(f"from like import {name}", {"__builtins__": {"__import__": lambda *_: like}})
    except ImportError as exc:
        vm.throw_real(exc)
    raise AssertionError(name)
