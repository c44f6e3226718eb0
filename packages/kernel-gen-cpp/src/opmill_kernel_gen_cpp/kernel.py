"""A loop kernel as C++ text."""

from __future__ import annotations

import json
from dataclasses import dataclass

from opmill_graph_ir.generator.contract import contract_of
from opmill_graph_ir.loops.ir import Buffer, LoopKernel, Nest
from opmill_runtime_cache.plan.contract import encode

from . import threads
from .contraction.match import contraction_of
from .contraction.write import write_contraction
from .emit.index_text import UNKNOWN, index_text
from .emit.needs import Needs
from .emit.types import TYPES
from .nest import Written, write_nest
from .passes.once import shared_once
from .passes.outline import Alike, alike
from .passes.partial import in_parts
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
    needs = Needs(target.family)
    functions, calls, checks = [], [], 0

    def contracts(nest: Nest) -> bool:
        return contraction_of(nest, kernel, target) is not None

    whole, scratch = shared_once(*in_parts(kernel, contracts), contracts)
    known: dict[LoopKernel, str] = {}
    twins = alike(whole, lambda nest: nest_checks(nest) or contraction_of(nest, whole, target) is not None)
    for n, (nest, twin) in enumerate(zip(whole.nests, twins, strict=True)):
        if twin is None:
            function, call = _function(whole, nest, f"{entry}_{n}", checks, needs, target)
        elif twin.kernel in known:
            function, call = "", known[twin.kernel]
        else:
            function, call = _function(twin.kernel, twin.kernel.nests[0], f"{entry}_{n}", checks, needs, target)
            known[twin.kernel] = call
        functions += [function] if function else []
        calls.append(call if twin is None else f"  {{ {_pointers(whole, twin)}{call} }}")
        checks += sum(len(p.checks) for p in nest.phases)
    symbols = [f"  const long s_{name} = s[{k}];" for k, name in enumerate(kernel.symbols) if any(f"s_{name}" in c for c in calls)]
    pointers = _with_scratch(len(kernel.buffers), scratch) if scratch else []
    head = f'extern "C" long {entry}(void* const* {"given" if scratch else "p"}, const long* s) {{'
    main = "\n".join([head, *pointers, *symbols, *calls, "  return 0;", "}"])
    said = json.dumps(encode(contract_of(kernel)))  # a string of JSON is one of C, too
    contract = f'extern "C" {{ extern const char {entry}_contract[]; const char {entry}_contract[] = {said}; }}'
    return KernelText(entry, "\n".join([*functions, main, contract]), tuple(needs.items.items()))


def _function(kernel: LoopKernel, nest: Nest, name: str, checks: int, needs: Needs, target: Target) -> tuple[str, str]:
    """The function that runs a nest, and the statement that calls it."""
    if (found := contraction_of(nest, kernel, target)) is not None:

        def ordinary(of: LoopKernel, inner: Nest, called: str) -> tuple[str, str, str]:
            made = write_nest(of, inner, called, checks, needs, target)
            return made.name, made.text, made.count

        product = write_contraction(kernel, nest, found, name, needs, target, ordinary)
        return product.text, f"  {product.call}"
    written = write_nest(kernel, nest, name, checks, needs, target)
    serial = any(s.mode != "set" for p in nest.phases for s in p.stores)  # two threads may meet in a place
    call = _call(written, serial, needs)
    return written.text, f"  if (const long failed = {call}) return failed;" if nest_checks(nest) else f"  {call};"


def _call(written: Written, serial: bool, needs: Needs) -> str:
    """Runs all units of a nest, shared among threads where the work at hand is worth them: sizes that move are read when it runs."""
    work = written.work.constant
    if serial or written.count == "1" or (work is not None and work < 2 * threads.GRAIN):
        return f"{written.name}(p, s, 0, {written.count})"
    needs.add("threads", threads.PRELUDE)
    symbols = {s: f"s_{s}" for s in written.work.symbols}
    worth = (
        str(work // threads.GRAIN)
        if work is not None
        else f"{index_text(written.work, symbols, dict.fromkeys(symbols, UNKNOWN), needs)} / {threads.GRAIN}"
    )
    return f"run_nest({written.name}, p, s, {written.count}, {worth})"


def _pointers(kernel: LoopKernel, twin: Alike) -> str:
    """Declares the pointers of a nest's own buffers, under the name of the kernel's, which are seen no more."""
    types = [TYPES[kernel.buffers[k].dtype].c for k, _ in twin.pointers]
    given = [  # what is empty may lie nowhere
        f"p[{k}] ? ({c}*)p[{k}] + {start} : ({c}*)p[{k}]" if start else f"p[{k}]"
        for c, (k, start) in zip(types, twin.pointers, strict=True)
    ]
    return f"void* const q[] = {{{', '.join(given)}}}; void* const* const p = q;"


def _with_scratch(given: int, scratch: tuple[Buffer, ...]) -> list[str]:
    """Declares scratch memory on the stack, its pointers after the given ones."""
    lines = [f"  {TYPES[b.dtype].c} {b.name}[{b.numel.constant}];" for b in scratch]
    names = [*(f"given[{k}]" for k in range(given)), *(b.name for b in scratch)]
    return [*lines, f"  void* const p[] = {{{', '.join(names)}}};"]


def nest_checks(nest: Nest) -> bool:
    """Whether a nest checks anything."""
    return any(p.checks for p in nest.phases)


def source(texts: list[KernelText]) -> str:
    """One translation unit of several kernels."""
    prelude: dict[str, str] = {}
    for text in texts:
        for name, item in text.prelude:
            prelude.setdefault(name, item)
    return "\n".join([HEADER, *(t for t in prelude.values() if t), *(t.body for t in texts), ""])
