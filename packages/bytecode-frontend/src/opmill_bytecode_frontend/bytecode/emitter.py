"""Writing bytecode without naming what differs between Python versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from .program import NOWHERE, ExceptionHandler, Instruction, Position
from .versions import BINARY_OPERATORS, COMPARE_MASKS, COMPARE_SHIFT, LOAD_CLOSURE, OPCODES, STORE_CLOSURE, VERSION

_NULL_FIRST = VERSION < (3, 13)  # the NULL of a call lies below the callable, from 3.13 on above it
_UNARY = {"-": "UNARY_NEGATIVE", "not": "UNARY_NOT", "~": "UNARY_INVERT", "+": "UNARY_POSITIVE"}
_JUMP_IF = {"true": "TRUE", "false": "FALSE", "none": "NONE", "not_none": "NOT_NONE"}


class Emitter:
    """A growing list of instructions, all at ``position`` and under ``handler`` at the time that they are emitted.

    Every method appends to ``instructions`` and says in its docstring what it does to the value stack, top at the right.
    A jump goes to a label: an instruction made by `label` and put in its place by `place`.
    """

    def __init__(self, position: Position = NOWHERE) -> None:
        self.instructions: list[Instruction] = []
        self.position = position
        self.handler: ExceptionHandler | None = None

    # raw

    def emit(self, opname: str, argval: object = None, *, flag: int = 0, target: Instruction | None = None) -> Instruction:
        """Appends any instruction; prefer the methods that know the version."""
        instruction = Instruction(opname, argval, flag, target, self.position, self.handler)
        self.instructions.append(instruction)
        return instruction

    def extend(self, instructions: Iterable[Instruction]) -> None:
        """Appends finished instructions as they are."""
        self.instructions += instructions

    def label(self) -> Instruction:
        """A new jump target, not yet placed."""
        return Instruction("NOP", position=self.position)

    def place(self, label: Instruction) -> None:
        """Puts a label here."""
        label.position, label.handler = self.position, self.handler
        self.instructions.append(label)

    def prologue(self, cells: Sequence[str] = (), free: int = 0, *, resume: bool = True) -> None:
        """What a function starts with: receive ``free`` free variables, make ``cells``."""
        if free:
            self.emit("COPY_FREE_VARS", free)
        for name in cells:
            self.emit("MAKE_CELL", name)
        if resume:
            self.emit("RESUME", 0)

    # variables and constants

    def load_const(self, value: object) -> None:
        """``-> value``; any object may be a constant of a code object made at run time."""
        self.emit("LOAD_CONST", value)

    def load_fast(self, name: str) -> None:
        """``-> local``; the local must be bound for sure (3.12 on does not check)."""
        self.emit("LOAD_FAST", name)

    def load_fast_check(self, name: str) -> None:
        """``-> local``; raises UnboundLocalError when it is not bound."""
        self.emit("LOAD_FAST_CHECK" if VERSION >= (3, 12) else "LOAD_FAST", name)

    def store_fast(self, name: str) -> None:
        """``value ->``"""
        self.emit("STORE_FAST", name)

    def delete_fast(self, name: str) -> None:
        """Unbinds a local variable."""
        self.emit("DELETE_FAST", name)

    def load_deref(self, name: str) -> None:
        """``-> what the cell of name holds``"""
        self.emit("LOAD_DEREF", name)

    def store_deref(self, name: str) -> None:
        """``value ->``, into the cell of ``name``."""
        self.emit("STORE_DEREF", name)

    def delete_deref(self, name: str) -> None:
        """Empties the cell of ``name``."""
        self.emit("DELETE_DEREF", name)

    def load_closure(self, name: str) -> None:
        """``-> the cell of name itself``"""
        self.emit(LOAD_CLOSURE, name)

    def store_closure(self, name: str) -> None:
        """``cell ->``: makes it the cell of ``name``."""
        self.emit(STORE_CLOSURE, name)

    def make_cell(self, name: str) -> None:
        """Wraps the slot of ``name`` (an argument or nothing) into a new cell."""
        self.emit("MAKE_CELL", name)

    def load_global(self, name: str) -> None:
        """``-> global or builtin``"""
        self.emit("LOAD_GLOBAL", name)

    def store_global(self, name: str) -> None:
        """``value ->``"""
        self.emit("STORE_GLOBAL", name)

    def delete_global(self, name: str) -> None:
        """Unbinds a global variable."""
        self.emit("DELETE_GLOBAL", name)

    # attributes and items

    def load_attr(self, name: str) -> None:
        """``object -> object.name``"""
        self.emit("LOAD_ATTR", name)

    def store_attr(self, name: str) -> None:
        """``value, object ->``"""
        self.emit("STORE_ATTR", name)

    def delete_attr(self, name: str) -> None:
        """``object ->``"""
        self.emit("DELETE_ATTR", name)

    def binary_subscr(self) -> None:
        """``object, key -> object[key]``"""
        self.emit("BINARY_SUBSCR")

    def store_subscr(self) -> None:
        """``value, object, key ->``"""
        self.emit("STORE_SUBSCR")

    def delete_subscr(self) -> None:
        """``object, key ->``"""
        self.emit("DELETE_SUBSCR")

    # the stack

    def pop_top(self) -> None:
        """``value ->``"""
        self.emit("POP_TOP")

    def swap(self, count: int) -> None:
        """Exchanges the top with the ``count``-th value (2 is the one below)."""
        if count > 1:
            self.emit("SWAP", count)

    def copy(self, count: int) -> None:
        """Pushes the ``count``-th value once more (1 is the top)."""
        self.emit("COPY", count)

    def rotate_down(self, count: int) -> None:
        """Moves the top below ``count - 1`` others: ``a, b, top -> top, a, b`` for 3."""
        for number in range(count, 1, -1):
            self.emit("SWAP", number)

    def push_null(self) -> None:
        """``-> NULL``"""
        self.emit("PUSH_NULL")

    def nop(self) -> None:
        """Nothing."""
        self.emit("NOP")

    # calls

    def prepare_call(self) -> None:
        """``callable -> what call() expects below the arguments``; the arguments are loaded next."""
        self.push_null()
        if _NULL_FIRST:
            self.swap(2)

    def load_callable(self, value: object) -> None:
        """Loads a constant and prepares to call it."""
        if _NULL_FIRST:
            self.push_null()
        self.load_const(value)
        if not _NULL_FIRST:
            self.push_null()

    def load_global_callable(self, name: str) -> None:
        """Loads a global and prepares to call it."""
        self.emit("LOAD_GLOBAL", name, flag=1)

    def load_method(self, name: str) -> None:
        """``object -> object.name prepared to be called``"""
        if VERSION >= (3, 12):
            self.emit("LOAD_ATTR", name, flag=1)
        else:
            self.emit("LOAD_METHOD", name)

    def call(self, count: int, kwnames: Sequence[str] = ()) -> None:
        """``prepared callable, count arguments -> result``; the last ``len(kwnames)`` arguments are given by name."""
        if VERSION >= (3, 13) and kwnames:
            self.load_const(tuple(kwnames))
            self.emit("CALL_KW", count)
            return
        if kwnames:
            self.emit("KW_NAMES", tuple(kwnames))
        if "PRECALL" in OPCODES:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def call_ex(self, *, kwargs: bool = False) -> None:
        """``prepared callable, tuple[, dict] -> result``"""
        self.emit("CALL_FUNCTION_EX", int(kwargs))

    # containers

    def build_tuple(self, count: int) -> None:
        """``count values -> tuple``"""
        self.emit("BUILD_TUPLE", count)

    def build_list(self, count: int) -> None:
        """``count values -> list``"""
        self.emit("BUILD_LIST", count)

    def build_set(self, count: int) -> None:
        """``count values -> set``"""
        self.emit("BUILD_SET", count)

    def build_map(self, count: int) -> None:
        """``key, value, key, value... -> dict`` of ``count`` pairs."""
        self.emit("BUILD_MAP", count)

    def build_slice(self, count: int = 2) -> None:
        """``start, stop[, step] -> slice``"""
        self.emit("BUILD_SLICE", count)

    def build_string(self, count: int) -> None:
        """``count strings -> their concatenation``"""
        self.emit("BUILD_STRING", count)

    def unpack_sequence(self, count: int) -> None:
        """``iterable -> last, ..., first``: the first value ends on top."""
        self.emit("UNPACK_SEQUENCE", count)

    def list_append(self, depth: int = 1) -> None:
        """``value ->``, appended to the list that is ``depth``-th after the pop."""
        self.emit("LIST_APPEND", depth)

    def list_extend(self, depth: int = 1) -> None:
        """``iterable ->``, into the list that is ``depth``-th after the pop."""
        self.emit("LIST_EXTEND", depth)

    def dict_update(self, depth: int = 1) -> None:
        """``mapping ->``, into the dict that is ``depth``-th after the pop."""
        self.emit("DICT_UPDATE", depth)

    def list_to_tuple(self) -> None:
        """``list -> tuple``"""
        if VERSION >= (3, 12):
            self.emit("CALL_INTRINSIC_1", 6)
        else:
            self.emit("LIST_TO_TUPLE")

    # operators

    def binary_op(self, symbol: str) -> None:
        """``left, right -> left <symbol> right``; ``"+="`` and its like work in place."""
        if symbol not in BINARY_OPERATORS:
            raise ValueError(f"no binary operator {symbol!r}")
        self.emit("BINARY_OP", symbol)

    def unary_op(self, symbol: Literal["-", "+", "~", "not"]) -> None:
        """``value -> <symbol> value``"""
        if symbol == "+" and VERSION >= (3, 12):
            self.emit("CALL_INTRINSIC_1", 5)
            return
        if symbol == "not" and VERSION >= (3, 13):
            self.emit("TO_BOOL")
        self.emit(_UNARY[symbol])

    def compare(self, symbol: str) -> None:
        """``left, right -> left <symbol> right`` for ``== != < <= > >=``."""
        self.emit("COMPARE_OP", symbol, flag=COMPARE_MASKS[symbol] if COMPARE_SHIFT else 0)

    def is_op(self, *, invert: bool = False) -> None:
        """``left, right -> left is [not] right``"""
        self.emit("IS_OP", int(invert))

    def contains_op(self, *, invert: bool = False) -> None:
        """``item, container -> item [not] in container``"""
        self.emit("CONTAINS_OP", int(invert))

    # flow

    def jump(self, label: Instruction) -> None:
        """Goes to ``label``, forward or backward."""
        self.emit("JUMP", target=label)

    def pop_jump_if(self, condition: Literal["true", "false", "none", "not_none"], label: Instruction) -> None:
        """``value ->``; goes forward to ``label`` when the condition holds. Truth is taken as ``bool()`` does."""
        if VERSION >= (3, 13) and condition in ("true", "false"):
            self.emit("TO_BOOL")
        self.emit(f"POP_JUMP_IF_{_JUMP_IF[condition]}", target=label)

    def get_iter(self) -> None:
        """``iterable -> iterator``"""
        self.emit("GET_ITER")

    def for_iter(self, label: Instruction) -> None:
        """``iterator -> iterator, next``; at the end goes forward to ``label``, placed by `end_for`."""
        self.emit("FOR_ITER", target=label)

    def end_for(self, label: Instruction) -> None:
        """Places the label of `for_iter`: the loop ends here and the iterator is gone from the stack."""
        if VERSION >= (3, 12):
            label.opname = "END_FOR"  # the interpreter skips the very instruction that it jumps to
        self.place(label)
        if VERSION >= (3, 13):
            self.pop_top()

    def return_value(self) -> None:
        """``value ->``, returned."""
        self.emit("RETURN_VALUE")

    def raise_varargs(self, count: int = 1) -> None:
        """``[exception[, cause]] ->``, raised; 0 raises again what is being handled."""
        self.emit("RAISE_VARARGS", count)

    # exceptions, contexts, functions, imports

    def push_exc_info(self) -> None:
        """``exception -> what was handled before, exception``; the exception is now being handled."""
        self.emit("PUSH_EXC_INFO")

    def pop_except(self) -> None:
        """``what was handled before ->``: it is being handled again."""
        self.emit("POP_EXCEPT")

    def reraise(self) -> None:
        """``exception ->``, raised with its traceback as it is."""
        self.emit("RERAISE", 0)

    def before_with(self) -> None:
        """``manager -> bound __exit__, result of __enter__``"""
        self.emit("BEFORE_WITH")

    def make_function(self, *, defaults: bool = False, kwdefaults: bool = False, closure: bool = False) -> None:
        """``[defaults tuple][, kwdefaults dict][, tuple of cells], code -> function``"""
        present = [bit for bit, given in ((1, defaults), (2, kwdefaults), (8, closure)) if given]
        if VERSION < (3, 13):
            self.emit("MAKE_FUNCTION", sum(present))
            return
        self.emit("MAKE_FUNCTION")
        for bit in reversed(present):
            self.emit("SET_FUNCTION_ATTRIBUTE", bit)

    def import_name(self, name: str) -> None:
        """``level, fromlist -> module``"""
        self.emit("IMPORT_NAME", name)

    def import_from(self, name: str) -> None:
        """``module -> module, attribute``"""
        self.emit("IMPORT_FROM", name)
