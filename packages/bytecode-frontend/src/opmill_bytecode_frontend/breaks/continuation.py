"""Statements of generated code that know the line of the user's code that they stand for."""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import operator
import re
import types
from collections.abc import Iterable
from typing import Any

from ..eval_frame import skip

FUTURE = functools.reduce(operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))
"""The flags of all features that ``from __future__`` switches on."""
FUTURE &= ~__future__.nested_scopes.compiler_flag  # which is that of something else in code objects


class Placed(str):
    """A statement that stands for an instruction of the user's code: ``position`` is shown in tracebacks."""

    position: object = None

    @classmethod
    def at(cls, text: str, position: object) -> Placed:
        placed = cls(text)
        placed.position = position
        return placed


def indent(lines: list[str]) -> list[str]:
    """The statements one level deeper, where they were in the user's code."""
    return [Placed.at("    " + line, line.position) if isinstance(line, Placed) else "    " + line for line in lines]


def forgetting(lines: list[str], names: Iterable[str]) -> list[str]:
    """The statements, after which these variables, which hold exceptions, hold nothing, however that ends: an exception that was raised
    knows the frames that it went through, and a frame that knew it in turn would live until the next collection, with all that the user's
    variables hold."""
    cleared = " = ".join([*names, "None"])
    return lines if cleared == "None" else ["try:", *indent(lines), "finally:", f"    {cleared}"]


STUB_CALL = re.compile(r"\b_f\d+\(")
BOUND = re.compile(r"\s*(_[a-z]\d*) = ")


def bound_by(lines: Iterable[str]) -> list[str]:
    """The temporary variables that statements bind."""
    return list(dict.fromkeys(found[1] for line in lines if (found := BOUND.match(line))))


def releasing(lines: list[str], names: Iterable[str]) -> list[str]:
    """The statements of a frame, in which variables that nothing reads afterwards hold nothing while a frame inside of it runs: what they
    held (a generator and the objects of its variables, say) dies when that frame and what it calls let go of it, as in the program."""
    calls = [k for k, line in enumerate(lines) if STUB_CALL.search(line)]
    if len(calls) != 1 or any(line.lstrip().startswith(("for ", "while ")) for line in lines):
        return lines
    place = calls[0]
    call, done = lines[place], []
    for name in names:
        uses = re.compile(rf"(?<![\w.]){name}(?!\w)")
        if any(uses.search(line) for line in lines[place + 1 :]):
            continue
        if found := list(uses.finditer(call)):
            start, stop = found[-1].span()
            call = f"{call[:start]}({name}, {name} := None)[0]{call[stop:]}"
        else:
            done.append(name)
    margin = call[: len(call) - len(call.lstrip())]
    cleared = [f"{margin}{' = '.join([*done, 'None'])}"] if done else []
    return [*lines[:place], *cleared, Placed.at(call, getattr(lines[place], "position", None)), *lines[place + 1 :]]


def parameter_name(name: str) -> str:
    """The name of a parameter in generated text: another one where the text may mean a builtin by it. Names that are no identifiers are
    those that compilers gave: the parameters of resume functions (``.0``), variables of rewritten assert statements (``@py_assert1``)."""
    if hasattr(builtins, name):
        return SHADOWING + name
    return name if name.isidentifier() else "_arg" + re.sub(r"\W", lambda sign: "_" if sign[0] == "." else f"_{ord(sign[0]):x}_", name)


SHADOWING = "_own_"


def define(
    parameters: str, lines: list[str], code: types.CodeType, globals_: dict[str, object], table: dict[str, object]
) -> types.FunctionType:
    """A function with these statements whose frames look like those of ``code``: its names, its file, its globals; the statements are at
    the lines that they stand for, all others at its first one. What they refer to, the names of ``table`` and builtins, is in its
    closure."""
    tree = ast.parse("\n".join([f"def _function({parameters}):", *indent(lines)]))
    positions = {number: line.position for number, line in enumerate(lines, 2) if isinstance(line, Placed)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            place(node, positions.get(node.lineno), code.co_firstlineno)
    bound = {
        name: table[name] if name in table else vars(builtins)[name] for name in sorted(names) if name in table or hasattr(builtins, name)
    }
    maker = ast.parse(f"def _make({', '.join(bound)}):\n    return _function")
    defined = maker.body[0]
    assert isinstance(defined, ast.FunctionDef)
    defined.body.insert(0, tree.body[0])
    namespace: dict[str, Any] = {}
    features = code.co_flags & FUTURE  # what the statements compile in turn (exec, compile) inherits them
    exec(compile(maker, code.co_filename, "exec", features, dont_inherit=True), namespace)
    made = namespace["_make"](**bound)
    renamed = {SHADOWING + name: name for name in code.co_varnames}  # by which a call may name them
    own = made.__code__
    variables, cells = (tuple(renamed.get(name, name) for name in each) for each in (own.co_varnames, own.co_cellvars))
    own = own.replace(co_name=code.co_name, co_qualname=code.co_qualname, co_varnames=variables, co_cellvars=cells)
    skip(own)
    return types.FunctionType(own, globals_, code.co_name, None, made.__closure__)


def place(node: Any, position: Any, first: int) -> None:
    """Sets where in the user's file a node of generated code is."""
    node.lineno = node.end_lineno = first
    node.col_offset = node.end_col_offset = 0
    if position is not None and position.lineno is not None:
        node.lineno, node.end_lineno = position.lineno, position.end_lineno or position.lineno
        node.col_offset, node.end_col_offset = position.col_offset or 0, position.end_col_offset or 0
