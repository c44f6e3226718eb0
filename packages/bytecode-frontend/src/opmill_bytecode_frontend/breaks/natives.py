"""Instructions as Python statements: how an unsupported one runs natively between two graphs."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any, Callable

import torch

from opmill_guards.guard import Absent

from ..bytecode import Instruction
from ..codegen.stubs import Expressions
from ..errors import Unsupported
from ..interpretation.frame import Frame, callee_of
from ..interpretation.owners import EXEMPT, is_disabled, known_as
from ..values.base import MISSING, Value, name_in_c
from ..values.classes import ClassValue
from ..values.constant import ConstantValue
from ..values.exceptions import ExceptionObject
from ..values.functions import BuiltinValue, FunctionValue, MethodValue, PartialValue
from ..values.iterators import STOP, ExternalIterator, GeneratorValue
from ..values.modules import ModuleValue, runs_between
from ..values.objects import ObjectValue, find_in_mro
from ..values.sequence import SequenceValue
from .returning import Native, turn

#: Functions that read the frame of their caller when they are given fewer arguments.
READS_FRAME = {locals: 1, vars: 1, dir: 1, eval: 2, exec: 2}
#: Iterators of C that run nothing of the program.
EMPTY: list[Any] = [[], (), range(0), {}, {}.values(), {}.items(), set(), "", b""]
PLAIN_ITERATORS = frozenset(type(iter(kind)) for kind in EMPTY)
BINARY_OPS = frozenset("+ - * / // % ** @ << >> & | ^".split())


Row = Callable[[Frame, Instruction, Expressions, object], Native]
ROWS: dict[str, Row] = {}


def native(*opnames: str) -> Callable[[Row], Row]:
    """The decorated row says how these instructions run between two graphs."""

    def add(row: Row) -> Row:
        for name in opnames:
            ROWS[name] = row
        return row

    return add


def callee(value: Value, r: Expressions, context: Any) -> str:
    """The expression of what is called: a plain Python function is captured by itself."""
    if isinstance(value, FunctionValue) and value.obj is not None and worth_capturing(value.obj):
        return r.constants.name(context.compiled(value.obj))
    if isinstance(value, MethodValue) and isinstance(value.function, FunctionValue) and value.function.obj is not None:
        if worth_capturing(value.function.obj):
            compiled = context.compiled(value.function.obj)
            return f"{r.constants.name(types.MethodType)}({r.constants.name(compiled)}, {r.expr(value.owner)})"
    if (
        isinstance(value, ModuleValue)
        and not runs_between(value.obj)
        and not value.has_hooks()
        and type(value.obj).__call__ is torch.nn.Module.__call__
    ):
        forward = find_in_mro(type(value.obj).__mro__, "forward")[1]  # that of scripted modules is a descriptor, which raises
        if isinstance(forward, types.FunctionType) and "forward" not in value.obj.__dict__ and worth_capturing(forward):
            r.vm.guard(Absent(value.path, "forward"))
            return f"{r.constants.name(types.MethodType)}({r.constants.name(context.compiled(forward))}, {r.expr(value)})"
    return r.expr(value)


def may_call_back(function: Value, args: Sequence[object]) -> bool:
    """Whether a call that runs natively may run functions of the program: ones among its arguments, or ones that what is called knows.
    What a disabled function calls is not captured either."""
    if isinstance(function, MethodValue):
        return may_call_back(function.function, [function.owner, *args])
    if isinstance(function, FunctionValue):
        launches = (getattr(function.obj, "__module__", None) or "").startswith("triton.")  # of kernels, whose Python is no program
        return function.obj is None or not (launches or is_disabled(function.obj) or worth_capturing(function.obj))
    made = isinstance(function, ClassValue) and is_users(function.obj.__module__)
    return made or isinstance(function, (ObjectValue, GeneratorValue)) or any(map(runs_code, args))


def runs_code(value: object) -> bool:
    """Whether an operand may have functions of the program that an operation on it runs."""
    if isinstance(value, ExternalIterator):
        return type(value.obj) not in PLAIN_ITERATORS
    kinds = (FunctionValue, MethodValue, PartialValue, ObjectValue, GeneratorValue, ModuleValue)
    return isinstance(value, kinds) and type(value) is not ExceptionObject


def worth_capturing(fn: object) -> bool:
    """Whether a function that broken code calls is captured by itself: it is the program's, and nobody turned that off."""
    module = known_as(fn)[0] if isinstance(fn, types.FunctionType) else getattr(fn, "__module__", None) or ""
    return not is_disabled(fn) and is_users(module)


def is_users(module: object) -> bool:
    """Whether functions of a module may run a program's own operations: not those of Python, torch and opmill, but for torch's modules."""
    top = str(module).split(".")
    if top[0].startswith("opmill_") or module == "torch.nn.modules._functions":  # functions of autograd, which calls them itself
        return False
    return top[0] not in EXEMPT or top[:3] == ["torch", "nn", "modules"]


def refuse_reading_frame(frame: Frame, function: Any, args: Sequence[object]) -> None:
    """What reads the variables of its caller would read those of the generated function."""
    known = isinstance(function, BuiltinValue) and type(function.obj) is types.BuiltinFunctionType
    wanted = READS_FRAME.get(function.obj, 0) if known else 0
    if not args and isinstance(function, ClassValue) and function.obj is super:
        wanted = 1
    if wanted and not any(not (isinstance(a, ConstantValue) and a.value is None) for a in args[wanted - 1 :]):
        raise Unsupported(
            "FE071", f"a graph break at a call of {function.describe()}", "it reads the variables of its caller", where=frame.where()
        )


@native("CALL", "CALL_KW")
def call(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A call between two graphs, with the program's own objects."""
    stack = list(frame.stack)
    count, pops, names = ins.argval or 0, 2, frame.kwnames
    if ins.opname == "CALL_KW":
        names, pops = stack.pop().constant(), 3
    below = len(stack) - count
    args = stack[below:]
    function = callee_of(stack[below - 2], stack[below - 1], args)
    refuse_reading_frame(frame, function, args)
    split = len(args) - len(names)
    parts = [r.expr(a) for a in args[:split]] + [f"{k}={r.expr(v)}" for k, v in zip(names, args[split:])]
    result = r.temporary("_r")
    return Native(
        [f"{result} = {callee(function, r, context)}({', '.join(parts)})"], pops + count, [result], offers=may_call_back(function, args)
    )


@native("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A call with a sequence and a mapping of arguments."""
    stack = list(frame.stack)
    named = f", **{r.expr(stack.pop())}" if (ins.argval or 0) & 1 else ""
    args = stack.pop()
    if sys.version_info >= (3, 13):
        stack.pop()
    function = stack.pop()
    pops = len(frame.stack) - len(stack)
    if sys.version_info < (3, 13) and stack and stack[-1] is MISSING:
        pops += 1
    result = r.temporary("_r")
    given = list(args.items) if isinstance(args, SequenceValue) else []
    refuse_reading_frame(frame, function, given)
    called = f"{callee(function, r, context)}(*{r.expr(args)}{named})"
    return Native([f"{result} = {called}"], pops, [result], offers=may_call_back(function, given))


def operation(pops: int, template: str) -> Row:
    """A row for an instruction that is one expression over the values it pops, lowest first."""

    def row(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
        values = [r.expr(v) for v in frame.stack[-pops:]]
        result = r.temporary("_r")
        return Native([f"{result} = {template.format(*values, arg=ins.argval)}"], pops, [result])

    return row


def statement(pops: int, template: str) -> Row:
    """A row for an instruction that is one statement and pushes nothing."""

    def row(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
        return Native([template.format(*[r.expr(v) for v in frame.stack[-pops:]], arg=ins.argval)], pops)

    return row


ROWS |= {
    "UNARY_NEGATIVE": operation(1, "-{0}"),
    "UNARY_POSITIVE": operation(1, "+{0}"),
    "UNARY_NOT": operation(1, "not {0}"),
    "TO_BOOL": operation(1, "bool({0})"),
    "BINARY_SUBSCR": operation(2, "{0}[{1}]"),
    "BINARY_SLICE": operation(3, "{0}[{1}:{2}]"),
    "GET_ITER": operation(1, "iter({0})"),
    "STORE_SUBSCR": statement(3, "{1}[{2}] = {0}"),
    "DELETE_SUBSCR": statement(2, "del {0}[{1}]"),
    "STORE_ATTR": statement(2, "({1}).{arg} = {0}"),
    "DELETE_ATTR": statement(1, "del ({0}).{arg}"),
}


@native("COMPARE_OP")
def compare_op(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A comparison, or its truth in front of a jump."""
    template = "bool({0} {arg} {1})" if ins.gives_truth else "{0} {arg} {1}"
    return operation(2, template)(frame, ins, r, context)


@native("BINARY_OP")
def binary_op(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """An operator, in place or not."""
    left, right = [r.expr(v) for v in frame.stack[-2:]]
    result = r.temporary("_r")
    if ins.argval in BINARY_OPS:
        return Native([f"{result} = ({left}) {ins.argval} {right}"], 2, [result])
    return Native([f"{result} = {left}", f"{result} {ins.argval} {right}"], 2, [result])


@native("RAISE_VARARGS")
def raise_varargs(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A ``raise`` between graphs; a bare one is refused (FE071)."""
    if not ins.argval:
        raise Unsupported("FE071", "a graph break at a bare raise", "the exception came up earlier", where=frame.where())
    parts = [r.expr(value) for value in frame.stack[-ins.argval :]]
    return Native([f"raise {' from '.join(parts)}"], ins.argval, ends=True)


@native("CONTAINS_OP")
def contains_op(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """Whether an item is in a container."""
    item, container = [r.expr(v) for v in frame.stack[-2:]]
    result = r.temporary("_r")
    return Native([f"{result} = {item} {'not in' if ins.argval else 'in'} {container}"], 2, [result])


@native("LOAD_ATTR", "LOAD_METHOD")
def load_attr(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """An attribute; of a method that is called next, the bound one in place of function and object."""
    result = r.temporary("_r")
    pushed: list[str | None] = [result]
    if ins.opname == "LOAD_METHOD" or ins.flag & 1:
        pushed = [result, None] if sys.version_info >= (3, 13) else [None, result]
    return Native([f"{result} = ({r.expr(frame.stack[-1])}).{ins.argval}"], 1, pushed)


@native("FORMAT_VALUE")
def format_value(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """The text of a value in an f-string."""
    flags = ins.argval or 0
    pops = 2 if flags & 4 else 1
    value = r.expr(frame.stack[-pops])
    spec = r.expr(frame.stack[-1]) if flags & 4 else "''"
    convert = {0: "{}", 1: "str({})", 2: "repr({})", 3: "ascii({})"}[flags & 3].format(value)
    result = r.temporary("_r")
    return Native([f"{result} = format({convert}, {spec})"], pops, [result])


@native("UNARY_INVERT")
def invert(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """The ``~`` of a value."""
    result = r.temporary("_r")  # Python's compiler would compute ~True itself, and warn then
    return Native([f"{result} = {r.expr(frame.stack[-1])}", f"{result} = ~{result}"], 1, [result])


@native("BEFORE_WITH")
def before_with(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """How a manager is entered; it is left by code behind the break."""
    enter, leave, entered = (r.temporary("_r") for _ in range(3))
    found = f"{enter}, {leave} = {r.constants.name(context_methods)}({r.expr(frame.stack[-1])})"
    return Native([found, f"{entered} = {enter}()"], 1, [leave, entered])


def context_methods(manager: object) -> tuple[object, object]:
    """``__enter__`` and ``__exit__`` as a with statement looks for them: on the class."""
    cls, found = type(manager), []
    for name, told in (("__enter__", ""), ("__exit__", " (missed __exit__ method)")):
        method = find_in_mro(cls.__mro__, name)[1]
        if method is MISSING:
            raise TypeError(f"{name_in_c(cls)!r} object does not support the context manager protocol{told}")
        found.append(method.__get__(manager, cls) if hasattr(type(method), "__get__") else method)
    return found[0], found[1]


@native("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """The items of an iterable, as many as there are names."""
    names = [r.temporary("_r") for _ in range(ins.argval)]
    return Native([f"[{', '.join(names)}] = {r.expr(frame.stack[-1])}"], 1, list(reversed(names)))


@native("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A branch: which of two continuations runs is asked when the graph has run."""
    value = r.expr(frame.stack[-1])
    return Native([], 1, condition=(value if ins.opname.endswith("TRUE") else f"not {value}", [], []))


@native("FOR_ITER")
def for_iter(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """The next item of an iterator that the program itself has, or the end of the loop."""
    iterator, item = r.expr(frame.stack[-1]), r.temporary("_r")
    end = r.constants.name(STOP)
    return turn(frame, ins, r, [f"{item} = next({iterator}, {end})"], item, end)


@native("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(frame: Frame, ins: Instruction, r: Expressions, context: object) -> Native:
    """A branch that keeps the value it asks on one of its ways."""
    value = r.expr(frame.stack[-1])
    return Native([], 1, condition=(value if "TRUE" in ins.opname else f"not {value}", [value], []))
