"""Kernels' Triton as people see and edit it: one text of all functions, each under a comment that says how it is launched.

    # launch k_add_0: programs=(n + 1023) // 1024, warps=4, stages=1, XBLOCK=1024

What the comment says may be edited as the function may: the number of programs, warps, pipeline stages, and the compile-time parameters.
What a function is called and what it is given stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

from opmill_graph_ir.errors import GraphError, KernelBuildError
from opmill_graph_ir.loops.text import parse_index

from .emit.types import ARCH
from .kernel import KernelText
from .nest import Function

_HEAD = re.compile(r"^# launch (?P<name>\w+)(?P<wide> of 64-bit indices)?: (?P<told>.*)$", re.MULTILINE)


def shown(text: KernelText) -> str:
    """All functions of a kernel, in the order of launches, each in its forms."""
    return "\n".join(f"{_head(f)}\n{f.text}" for f in _functions(text))


def _functions(text: KernelText) -> Iterator[Function]:
    return (function for forms in text.functions for function in forms)


def _head(function: Function) -> str:
    wide = " of 64-bit indices" if function.wide else ""
    told = {"programs": function.grid, "warps": function.warps, "stages": function.stages, **_parameters(function)}
    return f"# launch {function.name}{wide}: {', '.join(f'{name}={value}' for name, value in told.items())}"


def _parameters(function: Function) -> dict[str, int]:
    """Compile-time parameters that are not told by the device."""
    return {name: value for name, value in function.constants if name != ARCH}


def read(text: KernelText, edited: str) -> KernelText:
    """The kernel as somebody edited what ``shown(text)`` gave. Raises ``KernelBuildError`` KT006 where it is no longer the same kernel:
    functions, parameters or comments are missing, or a number cannot be read."""
    heads = list(_HEAD.finditer(edited))
    functions = list(_functions(text))
    if [(h["name"], bool(h["wide"])) for h in heads] != [(f.name, f.wide) for f in functions]:
        _refuse(f"there have to be these comments, in this order, each before its function: {'; '.join(map(_head, functions))}")
    ends = [*(h.start() for h in heads[1:]), len(edited)]
    imports = edited[: heads[0].start()] if heads else ""
    made = iter([_function(f, h["told"], imports + edited[h.end() : end]) for f, h, end in zip(functions, heads, ends, strict=True)])
    return replace(text, functions=tuple(tuple(next(made) for _ in forms) for forms in text.functions))


def _function(function: Function, told: str, body: str) -> Function:
    """One function with its edited launch and body."""
    _check_signature(function, body)
    values = dict(part.strip().partition("=")[::2] for part in _apart(told))
    wanted = {"programs", "warps", "stages", *_parameters(function)}
    if values.keys() != wanted:
        _refuse(f"the launch of {function.name} has to tell {', '.join(sorted(wanted))}, and tells {', '.join(sorted(values))}")
    try:
        grid = parse_index(values["programs"])
        numbers = {name: int(value) for name, value in values.items() if name != "programs"}
    except (GraphError, ValueError, SyntaxError) as error:
        _refuse(f"the launch of {function.name}: {error}", error)
    constants = tuple((name, numbers.get(name, value)) for name, value in function.constants)
    return replace(function, text=body.strip("\n") + "\n", grid=grid, warps=numbers["warps"], stages=numbers["stages"], constants=constants)


def _apart(told: str) -> list[str]:
    """``name=value`` parts; commas inside of brackets belong to values."""
    return re.split(r",\s*(?=\w+=)", told)


def _check_signature(function: Function, body: str) -> None:
    """The function is there and takes what launches pass."""
    try:
        found = [each for each in ast.parse(body).body if isinstance(each, ast.FunctionDef) and each.name == function.name]
    except SyntaxError as error:
        _refuse(f"line {error.lineno} of {function.name}: {error.msg}", error)
    wanted = [*(p.name for p in function.params), *(name for name, _ in function.constants)]
    if len(found) != 1:
        _refuse(f"there has to be one function {function.name} behind its launch, and there are {len(found)}")
    names = [each.arg for each in found[0].args.args]
    if names != wanted:
        _refuse(f"{function.name} takes {', '.join(names)}, and is launched with {', '.join(wanted)}")


def _refuse(why: str, error: Exception | None = None) -> NoReturn:
    raise KernelBuildError("KT006", "edited Triton is no longer the same kernel", why=why, hint="mend or remove the file") from error


__all__ = ["read", "shown"]
