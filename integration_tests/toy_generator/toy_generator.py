"""The smallest useful kernel generator, written from outside: plain scalar C for pointwise float32 kernels.

Joined to opmill by its entry point alone. Shows what a generator must do: say what it claims, build what it claimed, put the artifact
into the store, and give a reference to it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.contract import contract_of
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.index import FloorDiv, Index
from opmill_graph_ir.loops.ir import Const, Expr, Load, LoopKernel, Nest, Op, Ref
from opmill_runtime_cache.plan.contract import encode
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

C_TYPES = {"float32": "float", "bool": "_Bool", "int64": "long long"}
FORMS = {
    # primitive -> C
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "exp": "expf({0})",
    "tanh": "tanhf({0})",
    "erf": "erff({0})",
    "gt": "({0} > {1})",
    "lt": "({0} < {1})",
    "where": "({0} ? {1} : {2})",
    "max": "({0} != {0} || {0} > {1} ? {0} : {1})",
}


class ToyGenerator:
    """``built`` lists the names of the kernels this process asked it for."""

    name = "toy"
    built: list[str] = []

    def available(self) -> str | None:
        return None if shutil.which("cc") else "no C compiler named cc"

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        if options.device != "cpu":
            return "CPU only"
        if any(buffer.dtype not in C_TYPES for buffer in kernel.buffers):
            return "float32, int64 and bool buffers only"
        for nest in kernel.nests:
            for phase in nest.phases:
                if phase.axes or phase.reductions or phase.checks:
                    return "pointwise only"
                if any(store.mode != "set" for store in phase.stores):
                    return "no atomic stores"
                values = [each.value for each in (*phase.lets, *phase.stores)]
                if not all(_known(part) for value in values for part in _parts(value)):
                    return "a value it has no C for"
        return None

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        return [self._build(kernel, store) for kernel in kernels]

    def _build(self, kernel: LoopKernel, store: Store) -> KernelRef:
        ToyGenerator.built.append(kernel.name)
        text = source(kernel)
        key = hashlib.sha256(text.encode()).hexdigest()
        if store.path("toy-so", key) is None:
            store.put("toy-so", key, compiled(text))
        return KernelRef(kind="cpu", artifact_kind="toy-so", key=key, entry="toy")


def compiled(text: str) -> bytes:
    """The shared object of a C source."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.c").write_text(text)
        command = ["cc", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-o", "kernel.so", "kernel.c", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise KernelBuildError("TG001", "the C compiler refused a kernel", why=done.stderr)
        return (Path(folder) / "kernel.so").read_bytes()


def source(kernel: LoopKernel) -> str:
    """C of a kernel: one loop nest a nest."""
    lines = ["#include <math.h>", "long long toy(void *const *pointers, const long long *sizes) {"]
    for number, buffer in enumerate(kernel.buffers):
        lines.append(f"  {C_TYPES[buffer.dtype]} *{buffer.name} = pointers[{number}];")
    lines += [f"  const long long {symbol} = sizes[{number}];" for number, symbol in enumerate(kernel.symbols)]
    for nest in kernel.nests:
        lines += _nest(nest)
    contract = f"const char toy_contract[] = {json.dumps(encode(contract_of(kernel)))};"  # what opmill holds each launch against
    return "\n".join([*lines, "  return 0;", "}", contract, ""])


def _nest(nest: Nest) -> Iterator[str]:
    for axis in nest.axes:
        yield f"  for (long long {axis.name} = 0; {axis.name} < {_index(axis.extent)}; {axis.name}++)"
    yield "  {"
    for phase in nest.phases:
        yield from (f"    const {C_TYPES[let.value.dtype]} {let.name} = {_value(let.value)};" for let in phase.lets)
        yield from (f"    {store.buffer}[{_index(store.index)}] = {_value(store.value)};" for store in phase.stores)
    yield "  }"


def _index(index: Index) -> str:
    terms = []
    for monomial, coefficient in index.terms:
        factors = [str(coefficient)]
        for atom in monomial:
            if isinstance(atom, str):
                factors.append(atom)
            else:
                sign = "/" if isinstance(atom, FloorDiv) else "%"  # indices are non-negative
                factors.append(f"(({_index(atom.numerator)}) {sign} ({_index(atom.denominator)}))")
        terms.append("*".join(factors))
    return " + ".join(terms) or "0"


def _parts(value: Expr) -> Iterator[Expr]:
    yield value
    if isinstance(value, Op):
        for argument in value.args:
            yield from _parts(argument)


def _known(value: Expr) -> bool:
    if isinstance(value, Op):
        return value.name in FORMS and value.dtype in C_TYPES
    if isinstance(value, Load):
        return value.mask is None and value.dtype in C_TYPES
    if isinstance(value, Const):
        return value.dtype == "float32" and abs(value.value) < 1e30
    return isinstance(value, Ref) and value.dtype in C_TYPES


def _value(value: Expr) -> str:
    if isinstance(value, Op):
        return FORMS[value.name].format(*map(_value, value.args))
    if isinstance(value, Load):
        return f"{value.buffer}[{_index(value.index)}]"
    if isinstance(value, Const):
        return f"((float){float(value.value).hex()})"
    return value.name
