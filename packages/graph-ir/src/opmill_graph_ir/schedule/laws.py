"""Laws of programs of loops, as rows: what holds between any two passes. Each gives a sentence for every place where it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import GraphError
from ..loops.ir import Read
from ..loops.spec import verify_kernel
from ..lowered import Cumulate, Extern, Lowered, Pointwise, Reduce, Scatter, TensorOutput
from .loop import Loop, Program, buffer_args, reads_of, writes_of
from .rewrite import reads
from .steps import KernelStep, Schedule

BUG = "this is a bug of the compiler: please report it"


def _known_buffers(program: Program) -> Iterator[str]:
    for statement in program.statements:
        yield from (
            f"{name} is used and is no buffer" for name in sorted((reads_of(statement) | writes_of(statement)) - program.buffers.keys())
        )


def _written_before_read(program: Program) -> Iterator[str]:
    written = {name for name, info in program.buffers.items() if info.role != "temporary"}
    for statement in program.statements:
        own = writes_of(statement) if isinstance(statement, Loop) and statement.scans else set()
        yield from (f"{name} is read before it is written" for name in sorted(reads_of(statement) - written - own))
        written |= writes_of(statement)
    yield from (f"{name} leaves and is written nowhere" for name in sorted(program.outputs - written))


def _names_once(program: Program) -> Iterator[str]:
    """In one statement: a producer that was inlined leaves its names to its reader before it is dropped."""
    for statement in program.statements:
        if isinstance(statement, Loop):
            names = [a.name for a in (*statement.axes, *statement.inner)] + [let.name for let in statement.lets]
            names += [n for r in statement.reductions for n in r.names] + [n for s in statement.scans for n in s.names]
            yield from (f"{name} names two things" for name in names if name in program.symbols or names.count(name) > 1)


def _positions(program: Program) -> Iterator[str]:
    for statement in program.statements:
        if isinstance(statement, Loop):
            places = [(r.buffer, len(r.indices)) for r in statement.reads()] + [(w.buffer, len(w.indices)) for w in statement.writes]
            for name, count in places:
                if name in program.buffers and count != len(program.buffers[name].cells.sizes):
                    yield f"{name} of {len(program.buffers[name].cells.sizes)} dimensions is read or written at {count} positions"


def _one_axis_of_scans(program: Program) -> Iterator[str]:
    for statement in program.statements:
        if isinstance(statement, Loop) and statement.scans and len(statement.inner) != 1:
            yield f"a scan along {len(statement.inner)} axes"


PROGRAM_LAWS: tuple[Callable[[Program], Iterator[str]], ...] = (
    _known_buffers,
    _written_before_read,
    _names_once,
    _positions,
    _one_axis_of_scans,
)


def verify_program(program: Program) -> None:
    """Raises GraphError GI041 with the first law that is broken."""
    for law in PROGRAM_LAWS:
        for broken in law(program):
            raise GraphError("GI041", f"a program of loops breaks a law: {broken}", hint=BUG)


def verify_lowered(program: Lowered) -> None:
    """Raises GraphError GI041 where something is read that nothing wrote, or that is no buffer."""
    written = {name for name, info in program.buffers.items() if info.role != "temporary"}
    for node in program.nodes:
        if missing := sorted(_read(node) - written):
            raise GraphError(
                "GI041", f"a lowered program breaks a law: {missing[0]} is read before it is written", where=node.origin, hint=BUG
            )
        made = _made(node)
        if unknown := sorted(made - program.buffers.keys()):
            raise GraphError(
                "GI041", f"a lowered program breaks a law: {unknown[0]} is written and is no buffer", where=node.origin, hint=BUG
            )
        written |= made
    for out in program.outputs:
        if isinstance(out, TensorOutput) and out.buffer not in written:
            raise GraphError("GI041", f"a lowered program breaks a law: {out.buffer} leaves and is written nowhere", hint=BUG)


def _read(node: Pointwise | Reduce | Cumulate | Scatter | Extern) -> set[str]:
    if isinstance(node, Extern):
        return {a.buffer for a in buffer_args((*node.args, *node.kwargs.values()))}
    values = [*(let.value for let in node.lets), *(c.condition for c in node.checks)]
    values += [node.value] if isinstance(node, (Pointwise, Scatter)) else node.values
    values += [r.value for r in node.reductions] if isinstance(node, Reduce) else []
    values += [v for s in node.scans for v in s.values] if isinstance(node, Cumulate) else []
    base = {node.base} if isinstance(node, Scatter) and node.base else set()
    return base | {r.buffer for r in reads(*values) if isinstance(r, Read)}


def _made(node: Pointwise | Reduce | Cumulate | Scatter | Extern) -> set[str]:
    if isinstance(node, Extern):
        return {r for r in node.results if r} | set(node.mutates)
    return {node.buffer} if isinstance(node, (Pointwise, Scatter)) else set(node.buffers)


def verify_schedule(program: Schedule) -> None:
    """Raises GraphError GI040 or GI041: the laws of each kernel, and that steps read what is there."""
    for kernel in program.kernels():
        verify_kernel(kernel)
    known = {name for name, info in program.lowered.buffers.items() if info.role != "temporary"}
    for step in program.steps:
        if missing := sorted(step.reads() - step.writes() - known):
            raise GraphError("GI041", f"a schedule breaks a law: {missing[0]} is read before it is written", hint=BUG)
        known |= step.writes()
        if isinstance(step, KernelStep) and len(step.arguments) != len(step.kernel.buffers):
            raise GraphError("GI041", f"a schedule breaks a law: {step.kernel.name} is given {len(step.arguments)} buffers", hint=BUG)


__all__ = ["PROGRAM_LAWS", "verify_lowered", "verify_program", "verify_schedule"]
