"""Functions that do not wait for each other are one launch, whatever they do: a program's number says whose part it does. (One token of a
language model is a chain of hundreds of launches of a few microseconds; what turns queries and what writes keys and values stand beside
each other in it.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Expr, Nest
from opmill_graph_ir.schedule.rewrite import Rewriter

from . import walk
from .emit.types import ARCH, PROGRAMMATIC
from .nest import GUARD, HEADER, Function, Param
from .pack import POINTERS

_PROGRAMS = 4096
"""Of all functions of a launch: with more of them the device is busy, and registers of the greediest function would be what counts."""
_WARPS = 4
"""Up to which a function may have more of them than it asks for."""
_MOST = 8
"""Functions of a launch."""
_NUMBER = "tl.program_id(0)"
_MARK = "@triton.jit\n"
_GUARD = "".join(f"{line}\n" for line in GUARD)


@dataclass(frozen=True)
class Part:
    """A function in its forms, and what it checks for which points; ``indirect``: it goes where values tell."""

    forms: tuple[Function, ...]
    checks: frozenset[tuple[Any, ...]]
    indirect: bool


def part_of(forms: tuple[Function, ...], nest: Nest) -> Part:
    """What is known of the nest that a function is written of."""
    lets = {let.name: let.value for phase in nest.phases for let in phase.lets}
    checks = frozenset((nest.axes, phase.axes, _whole(c.condition, lets)) for phase in nest.phases for c in phase.checks)
    return Part(forms, checks, walk.indirect(nest))


def _whole(condition: Expr, lets: dict[str, Expr]) -> Expr:
    """A condition without names for what it is made of."""
    while (made := Rewriter(names=lets)(condition)) != condition:
        condition = made
    return condition


def together(name: str, parts: Sequence[Part]) -> list[tuple[Function, ...]]:
    """Functions that may run at once, those that fit together as one: called ``name`` and a number."""
    out: list[tuple[Function, ...]] = []
    groups: list[list[Part]] = []
    for part in parts:
        found = next((g for g in groups if _fits(g, part)), None) if _is_plain(part) else None
        if found is not None:
            found.append(part)
        elif _is_plain(part):
            groups.append([part])
        else:
            out.append(part.forms)
    for k, group in enumerate(groups):
        functions = [part.forms[0] for part in group]
        out.append((functions[0] if len(group) == 1 else _joined(f"{name}_{k}" if k else name, functions),))
    return out


def _is_plain(part: Part) -> bool:
    first = part.forms[0]
    return len(part.forms) == 1 and not first.wide and first.stages == 1 and first.grid.constant is not None


def _fits(group: Sequence[Part], part: Part) -> bool:
    functions = [p.forms[0] for p in (*group, part)]
    programs, warps = sum(f.grid.constant or 0 for f in functions), {f.warps for f in functions}
    pointers = {p.name for f in functions for p in map(_outer, f.params)}
    few = len(functions) <= _MOST and len(pointers) <= POINTERS and programs <= _PROGRAMS
    return few and (len(warps) == 1 or max(warps) <= _WARPS) and all(_may_run_at_once(p, part) for p in group)


def _may_run_at_once(a: Part, b: Part) -> bool:
    """Neither goes where only a check of the other says that it may."""
    return not (a.indirect and not b.checks <= a.checks) and not (b.indirect and not a.checks <= b.checks)


def _joined(name: str, functions: Sequence[Function]) -> Function:
    helpers: dict[str, None] = {}
    params: dict[str, Param] = {}
    parts, calls, constants = [], [], []
    begin = 0
    for k, f in enumerate(functions):
        *before, main = f.text.removeprefix(HEADER).split(_MARK)
        helpers.update(dict.fromkeys(filter(str.strip, before)))
        part = f"{name}_part{k}"
        parts.append(main.replace(f"def {f.name}(", f"def {part}(program, ", 1).replace(_NUMBER, "program").replace(_GUARD, ""))
        own = [_outer(p) for p in f.params]
        params.update((p.name, p) for p in own)
        blocks = [(n if n == ARCH else f"{n}_{k}", size) for n, size in f.constants]
        constants += [b for b in blocks if b not in constants]
        given = ", ".join([f"program - {begin}" if begin else "program", *(p.name for p in own), *(n for n, _ in blocks)])
        begin += f.grid.constant or 0
        condition = "else:" if k == len(functions) - 1 else f"{'el' if k else ''}if program < {begin}:"
        calls.append(f"    {condition}\n")
        if _GUARD in main:
            calls.append(f"        if {ARCH} >= {PROGRAMMATIC}:\n            gdc_wait()\n        if tl.load(error_ptr) == 0:\n    ")
        calls.append(f"        {part}({given})\n")
    constants = [*(c for c in constants if c[0] != ARCH), (ARCH, 0)]
    signature = ", ".join([*params, *(f"{n}: tl.constexpr" for n, _ in constants)])
    body = f"def {name}({signature}):\n    program = {_NUMBER}\n{''.join(calls)}"
    text = HEADER + "".join(_MARK + part.rstrip("\n") + "\n\n\n" for part in (*helpers, *parts)) + _MARK + body
    warps = max(f.warps for f in functions)
    return replace(
        functions[0], name=name, text=text, params=tuple(params.values()), constants=tuple(constants), grid=index(begin), warps=warps
    )


def _outer(p: Param) -> Param:
    """A parameter of a part as one of the whole: buffers have one name for all parts."""
    return replace(p, name=f"{p.buffer}_ptr") if p.kind == "buffer" else p


__all__ = ["part_of", "together"]
