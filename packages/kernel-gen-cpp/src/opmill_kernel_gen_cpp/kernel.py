"""A loop kernel as C++ text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Buffer, LoopKernel, Nest

from . import threads
from .emit.needs import Needs
from .emit.types import TYPES
from .nest import write_nest
from .prepare.partial import in_parts
from .target import Target

HEADER = "// Generated from loop IR. Vectors are the compiler's own; no header is included."


@dataclass(frozen=True)
class KernelText:
    """``body`` defines extern "C" function ``entry``; ``prelude`` (name, text) must stand before it."""

    entry: str
    body: str
    prelude: tuple[tuple[str, str], ...]


def kernel_text(kernel: LoopKernel, entry: str, target: Target) -> KernelText:
    """The text of a kernel, under the name ``entry``."""
    needs = Needs()
    functions, calls, checks = [], [], 0
    whole, scratch = in_parts(kernel)
    for n, nest in enumerate(whole.nests):
        written = write_nest(whole, nest, f"{entry}_{n}", checks, needs, target)
        functions.append(written.text)
        checks += sum(len(p.checks) for p in nest.phases)
        count = _count(written.count)
        small = isinstance(count, int) and count * written.cost < 2 * threads.GRAIN
        serial = any(s.mode != "set" for p in nest.phases for s in p.stores) or count == 1 or small
        if not serial:
            needs.add("threads", threads.PRELUDE)
            grain = max(1, int(threads.GRAIN / max(written.cost, 1e-9)))
            call = f"run_nest({written.name}, p, s, {written.count}, {grain})"
        else:
            call = f"{written.name}(p, s, 0, {written.count})"
        calls.append(f"  if (const long failed = {call}) return failed;" if nest_checks(nest) else f"  {call};")
    symbols = [f"  const long s_{name} = s[{k}];" for k, name in enumerate(kernel.symbols) if any(f"s_{name}" in c for c in calls)]
    pointers = _with_scratch(len(kernel.buffers), scratch) if scratch else []
    head = f'extern "C" long {entry}(void* const* {"given" if scratch else "p"}, const long* s) {{'
    main = "\n".join([head, *pointers, *symbols, *calls, "  return 0;", "}"])
    return KernelText(entry, "\n".join([*functions, main]), tuple(needs.items.items()))


def _with_scratch(given: int, scratch: tuple[Buffer, ...]) -> list[str]:
    """Declares scratch memory on the stack, its pointers after the given ones."""
    lines = [f"  {TYPES[b.dtype].c} {b.name}[{b.numel.constant}];" for b in scratch]
    names = [*(f"given[{k}]" for k in range(given)), *(b.name for b in scratch)]
    return [*lines, f"  void* const p[] = {{{', '.join(names)}}};"]


def nest_checks(nest: Nest) -> bool:
    return any(p.checks for p in nest.phases)


def _count(text: str) -> int | str:
    """The number of outer points, where it is one."""
    try:
        product = 1
        for factor in text.split(" * "):
            product *= int(eval_count(factor))
        return product
    except ValueError:
        return text


def eval_count(text: str) -> int:
    """A number, or ((n + m) / k)."""
    if m := re.fullmatch(r"\(\((\d+) \+ (\d+)\) / (\d+)\)", text):
        return (int(m[1]) + int(m[2])) // int(m[3])
    return int(text)


def source(texts: list[KernelText]) -> str:
    """One translation unit of several kernels."""
    prelude: dict[str, str] = {}
    for text in texts:
        for name, item in text.prelude:
            prelude.setdefault(name, item)
    return "\n".join([HEADER, *(t for t in prelude.values() if t), *(t.body for t in texts), ""])
