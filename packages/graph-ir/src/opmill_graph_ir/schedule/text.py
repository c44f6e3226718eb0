"""Programs of loops as text, and back: what lowering gives, and what the passes of scheduling transform.

Buffers come first, then statements in order. A loop names its axes, those that it reduces or scans behind ``over``, and then what it does
at each point, in the notation of kernels; elements are named by position in their buffer: ``y[i0, i1] = exp(x[i1, i0])``. An operator of
torch's is a call of its full name with buffers as ``x`` or, through a strided view, ``x.view([sizes], [strides], offset)``.

    input x: float32[8, 16]
    temporary y: float32[16, 8] strides [1, 16] free   # exp
    loop a<16 b<8 of exp   # exp model.py:3
      set y[a, b] = exp(x[b, a])
    return y
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.plan.model import ComplexArg, Literal, Named
from opmill_runtime_cache.plan.syntax import called, elements, expression, items, name_of, noted, notes, part

from ..capture.text import parse_graph, show_graph
from ..dense import contiguous
from ..inner_texts import COMMENT, Reading, Writing, apart
from ..loops.index import Index, index
from ..loops.ir import Axis, Check, Expr, Let, Read, Reduction, Scan
from ..loops.text import MODES, ExpressionParser, constant, parse, read_lines, show, show_expr, show_index
from ..lowered import BufferArg, BufferInfo, BufferRole, Cumulate, Extern, Lowered, Node, Pointwise, Reduce, Scatter, TensorOutput
from .loop import Loop, Program, Write

# ---- printing --------------------------------------------------------------------------------------------------------------


def show_lowered(program: Lowered) -> str:
    """A lowered program as text. Contents of constants are shown in hexadecimal digits."""
    inner = Writing()
    lines = heading(program, program.buffers.values()) + outside(program)
    for node in program.nodes:
        lines += _node(node, inner)
    lines.append("return " + ", ".join(map(show_output, program.outputs)))
    return "\n".join([*inner.lines, *lines]) + "\n"


def outside(program: Lowered) -> list[str]:
    """Lines about constants, conditions and inputs."""
    lines = [f"bytes {name} {data.hex()}" for name, data in program.constants.items()]
    lines += [f"demand {condition!r}, {message!r}" for condition, message in program.checks]
    return [*lines, f"takes {', '.join(program.inputs)}".strip()]


def show_program(program: Program) -> str:
    """A program in the midst of scheduling as text."""
    inner = Writing()
    lines = heading(program, program.buffers.values())
    for statement in program.statements:
        if isinstance(statement, Extern):
            lines.append(show_call(statement, inner))
            continue
        lines.append(f"loop{_domain(statement.axes, statement.inner)}{_of(statement.sources)}{_comment(statement.origin)}")
        lines += _body(statement.lets, statement.checks, statement.reductions, statement.scans)
        lines += [_set(w.buffer, w.indices, w.value, w.mode, w.first) for w in statement.writes]
    lines.append("return " + ", ".join(sorted(program.outputs)))
    return "\n".join([*inner.lines, *lines]) + "\n"


def heading(program: Lowered | Program, buffers: Iterable[BufferInfo]) -> list[str]:
    """Lines about sizes and buffers."""
    lines = [f"size {name} = {program.definitions.get(name, value)}" for name, value in program.symbols.items()]
    for info in buffers:
        free = "" if info.fixed else " free"
        where = "" if info.device == HOST else f" on {info.device}"
        strides = "" if info.strides == _rows(info.sizes) else f" strides {_sizes(info.strides)}"
        stays = f" multiplied {info.multiplied}" * (info.multiplied != 0)
        may = " opaque" * info.opaque + stays + " computing" * (info.name in program.computing)
        lines.append(f"{info.role} {info.name}: {info.dtype}{_sizes(info.sizes)}{strides}{where}{free}{may}{_comment(info.origin)}")
    return lines


def _rows(sizes: Sequence[Index]) -> tuple[Index, ...]:
    return tuple(map(index, contiguous(sizes)))


def _sizes(sizes: Sequence[Index]) -> str:
    return f"[{', '.join(map(show_index, sizes))}]"


def _comment(text: str) -> str:
    return f"   # {text}" if text else ""


def _of(sources: Sequence[str]) -> str:
    return f" of {', '.join(sources)}" if sources else ""


def _axes(axes: tuple[Axis, ...]) -> str:
    return "".join(f" {a.name}<{show_index(a.extent).replace(' ', '')}" for a in axes)


def _domain(axes: tuple[Axis, ...], inner: tuple[Axis, ...]) -> str:
    return _axes(axes) + (f" over{_axes(inner)}" if inner else "")


def _body(lets: Sequence[Let], checks: Sequence[Check], reductions: Sequence[Reduction], scans: Sequence[Scan]) -> list[str]:
    lines = [f"  let {let.name} = {show_expr(let.value)}" for let in lets]
    lines += [f"  check {show_expr(c.condition)}, {c.error!r}, {c.message!r}" for c in checks]
    lines += [f"  {r.op} {', '.join(r.names)}: {r.dtype} = {show_expr(r.value)}" for r in reductions]
    for s in scans:
        lines.append(f"  scan.{'back.' if s.reverse else ''}{s.op} {', '.join(s.names)}: {s.dtype} = {'; '.join(map(show_expr, s.values))}")
    return lines


def _set(buffer: str, at: Sequence[Index], value: Expr, mode: str = "set", first: int | None = None) -> str:
    return f"  {mode}{'' if first is None else f'.first{first}'} {show_expr(Read(buffer, tuple(at), value.dtype))} = {show_expr(value)}"


def _node(node: Node, inner: Writing) -> list[str]:
    if isinstance(node, Extern):
        return [show_call(node, inner)]
    at = tuple(index(a.name) for a in node.axes)
    tail = _of((node.source,) if node.source else ()) + _comment(node.origin)
    if isinstance(node, Pointwise):
        return [f"pointwise{_axes(node.axes)}{tail}", *_body(node.lets, node.checks, (), ()), _set(node.buffer, at, node.value)]
    if isinstance(node, Scatter):
        base = f" from {node.base}" if node.base else ""
        head = f"scatter{_axes(node.axes)}{base}{tail}"
        return [head, *_body(node.lets, node.checks, (), ()), _set(node.buffer, node.indices, node.value, node.mode)]
    if isinstance(node, Reduce):
        head, body = f"reduce{_domain(node.axes, node.inner)}", _body(node.lets, node.checks, node.reductions, ())
        first = None
    else:
        head, body = f"cumulate.{node.along}{_axes(node.axes)}", _body(node.lets, node.checks, (), node.scans)
        first = node.first
    return [head + tail, *body, *(_set(b, at, v, first=first) for b, v in zip(node.buffers, node.values, strict=True))]


def show_call(node: Extern, inner: Writing) -> str:
    """An operator of torch's, or a kernel in the place of one."""
    arguments = [*map(_arg, node.args), *(f"{k}={_arg(v)}" for k, v in node.kwargs.items())]
    notes = [f"out={node.out_variant!r}"] if node.out_variant else []
    notes += [f"mutates={list(node.mutates)!r}"] if node.mutates else []
    notes += [f"binds={[list(b) for b in node.binds]!r}"] if node.binds else []
    notes += [f"bodies={[inner.number('body', id(b), partial(show_graph, b)) for b in node.bodies]}"] if node.bodies else []
    notes += ["draws=True"] if node.draws else []
    notes += [f"source={node.source!r}"] if node.source else []
    notes += [f"kernel={inner.number('kernel', node.kernel, partial(show, node.kernel))}"] if node.kernel is not None else []
    left = ", ".join("_" if r is None else r for r in node.results)
    told = f"; {', '.join(notes)}" if notes else ""
    return f"call {left or 'nothing'} = {node.op} ({', '.join(arguments)}){told}{_comment(node.origin)}"


def _arg(value: object) -> str:
    if isinstance(value, BufferArg):
        if value.sizes is None:
            return value.buffer
        offset = "" if value.offset is None else f", {show_index(value.offset)}"
        return f"{value.buffer}.view({_sizes(value.sizes)}, {_sizes(value.strides or ())}{offset})"
    if isinstance(value, Index):
        return f"size({show_index(value)})"
    if isinstance(value, Literal):
        odd = isinstance(value.value, float) and not math.isfinite(value.value)
        return f"number({str(value.value)!r})" if odd else repr(value.value)
    if isinstance(value, Named):
        return f"{value.kind}({value.name!r})"
    if isinstance(value, ComplexArg):
        return f"complex({str(value.real)!r}, {str(value.imag)!r})"
    assert isinstance(value, (tuple, list)), value
    return f"[{', '.join(map(_arg, value))}]"


def show_output(out: TensorOutput | Index | None) -> str:
    """What leaves a program, as text."""
    if not isinstance(out, TensorOutput):
        return "None" if out is None else f"size({show_index(out)})"
    shown = _arg(BufferArg(out.buffer, out.sizes, out.strides, out.offset))
    notes = [f"dtype={out.dtype!r}"] * bool(out.dtype) + ["detached=True"] * out.detached + [f"twin={out.twin}"] * bool(out.twin)
    return f"tensor({', '.join([shown, *notes])})" if notes else shown


# ---- parsing ---------------------------------------------------------------------------------------------------------------


def parse_lowered(text: str) -> Lowered:
    """The program that ``text`` shows. Raises GraphError GI042 with the line that cannot be read."""
    parser = ProgramParser()
    read_lines(text, parser.line, "a lowered program")
    return parser.lowered()


def parse_program(text: str) -> Program:
    """The program that ``text`` shows, whose next fresh name is none of those in it. Raises GraphError GI042 with the line that cannot be
    read."""
    parser = ProgramParser()
    read_lines(text, parser.line, "a program")
    program = Program([], parser.buffers, {o.buffer for o in parser.outputs if isinstance(o, TensorOutput)})
    program.symbols, program.definitions, program.computing = parser.symbols, parser.definitions, frozenset(parser.computing)
    for each in parser.statements:
        if isinstance(each, Extern):
            program.statements.append(each)
            continue
        program.statements.append(each.loop())
        program.extents.update({a.name: a.extent if (n := a.extent.constant) is None else n for a in (*each.axes, *each.inner)})
    program.fresh = 1000 * (1 + len(program.extents))
    return program


class _Statement:
    """A loop being read."""

    def __init__(self, kind: str, axes: tuple[Axis, ...], inner: tuple[Axis, ...], base: str | None) -> None:
        self.kind, self.axes, self.inner, self.base = kind, axes, inner, base
        self.origin, self.sources = "", tuple[str, ...]()
        self.lets: list[Let] = []
        self.checks: list[Check] = []
        self.reductions: list[Reduction] = []
        self.scans: list[Scan] = []
        self.writes: list[Write] = []

    def loop(self) -> Loop:
        assert self.kind == "loop", self.kind
        reductions, lets, checks, scans = tuple(self.reductions), tuple(self.lets), tuple(self.checks), tuple(self.scans)
        return Loop(self.axes, tuple(self.writes), self.inner, reductions, lets, checks, self.origin, scans, self.sources)


def _lowered(each: _Statement | Extern) -> Node:
    if isinstance(each, Extern):
        return each
    lets, checks, origin, first = tuple(each.lets), tuple(each.checks), each.origin, each.writes[0]
    source = ", ".join(each.sources)
    buffers, values = tuple(w.buffer for w in each.writes), tuple(w.value for w in each.writes)
    if each.kind == "pointwise":
        return Pointwise(first.buffer, each.axes, first.value, lets, checks, origin, source)
    if each.kind == "scatter":
        return Scatter(first.buffer, each.base, each.axes, first.indices, first.value, first.mode, lets, checks, origin, source)
    if each.kind == "reduce":
        return Reduce(buffers, each.axes, each.inner, tuple(each.reductions), values, lets, checks, origin, source)
    along = int(each.kind.removeprefix("cumulate."))
    return Cumulate(buffers, each.axes, along, tuple(each.scans), values, lets, checks, origin, first.first, source)


_ROLES: dict[str, BufferRole] = {"input": "input", "held": "held", "constant": "constant", "temporary": "temporary"}


class ProgramParser(ExpressionParser):
    """Reads programs of loops line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Reading()
        self.buffers: dict[str, BufferInfo] = {}
        self.symbols: dict[str, int | None] = {}
        self.definitions: dict[str, str] = {}
        self.computing: list[str] = []
        self.constants: dict[str, bytes] = {}
        self.demands: list[tuple[str, str]] = []
        self.inputs: tuple[str, ...] = ()
        self.statements: list[_Statement | Extern] = []
        self.outputs: list[TensorOutput | Index | None] = []

    def lowered(self) -> Lowered:
        """What has been read, as lowering gives it."""
        return Lowered(
            tuple(_lowered(s) for s in self.statements),
            self.buffers,
            self.inputs,
            tuple(self.outputs),
            self.constants,
            self.symbols,
            self.definitions,
            tuple(self.demands),
            frozenset(self.computing),
        )

    def element(self, buffer: str, at: ast.expr, mask: Expr | None, other: Expr | None) -> Expr:
        items = at.elts if isinstance(at, (ast.Tuple, ast.List)) else [at]
        return Read(buffer, tuple(map(self.index_of, items)), self.dtypes[buffer], mask, constant(other))

    def line(self, line: str) -> None:
        if self.inner.takes(line):
            return
        line, origin = apart(line, COMMENT)
        head, _, rest = line.strip().partition(" ")
        if line.startswith("  "):
            self.point(head, rest)
        elif head == "size":
            name, _, value = rest.partition(" = ")
            known = value.isdigit()
            self.symbols[name] = int(value) if known else None
            if not known and value != "None":
                self.definitions[name] = value
        elif head in _ROLES:
            self.buffer(head, rest, origin)
        elif head == "bytes":
            name, _, digits = rest.partition(" ")
            self.constants[name] = bytes.fromhex(digits)
        elif head == "demand":
            self.demands.append(ast.literal_eval(f"({rest})"))
        elif head == "takes":
            self.inputs = tuple(n for n in rest.split(", ") if n)
        elif head == "call":
            self.statements.append(self.call(rest, origin))
        elif head == "return":
            self.outputs = list(map(self.output, items(rest)))
        else:
            rest, _, sources = f" {rest} ".partition(" of ")
            domain, _, base = rest.partition("from ")
            axes, _, inner = domain.partition("over ")
            loop = _Statement(head, self.axes(axes), self.axes(inner), base.strip() or None)
            loop.origin, loop.sources = origin, tuple(n for n in sources.strip().split(", ") if n)
            self.statements.append(loop)

    def buffer(self, role: str, rest: str, origin: str) -> None:
        name, _, kind = rest.partition(": ")
        dtype, _, kind = kind.partition("[")
        sizes, _, kind = kind.partition("]")
        extents = self.sizes(sizes)
        strides = _rows(extents)
        if kind.startswith(" strides ["):
            shown, _, kind = kind.removeprefix(" strides [").partition("]")
            strides = self.sizes(shown)
        words = kind.split()
        device = words[words.index("on") + 1] if "on" in words else HOST
        if "computing" in words:
            self.computing.append(name)
        self.dtypes[name] = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        multiplied = int(words[words.index("multiplied") + 1]) if "multiplied" in words else 0
        self.buffers[name] = BufferInfo(
            name, dtype, extents, strides, device, _ROLES[role], "free" not in words, origin, "opaque" in words, multiplied
        )

    def sizes(self, text: str) -> tuple[Index, ...]:
        return tuple(map(self.index_of, items(text)))

    def point(self, head: str, rest: str) -> None:
        loop = self.statements[-1]
        assert isinstance(loop, _Statement)
        mode, _, first = head.partition(".first")
        if head == "let":
            loop.lets.append(self.let(rest))
        elif head == "check":
            loop.checks.append(self.check(rest))
        elif mode in MODES and "[" in rest.partition(" = ")[0]:
            target, _, value = rest.partition(" = ")
            place = part(expression(target), ast.Subscript)
            read = self.element(name_of(place.value), place.slice, None, None)
            assert isinstance(read, Read)
            loop.writes.append(Write(read.buffer, read.indices, self.expr(value), MODES[mode], int(first) if first else None))
        else:
            found = self.running(head, rest)
            into: list[Any] = loop.scans if isinstance(found, Scan) else loop.reductions
            into.append(found)

    def call(self, rest: str, origin: str) -> Extern:
        left, _, right = rest.partition(" = ")
        op, _, arguments = right.partition(" ")
        shown, remarks = apart(arguments, "; ")
        given = called(f"f{shown}")
        told = notes(remarks)
        bodies = tuple(self.inner.made(number, parse_graph) for number in told.get("bodies", ()))
        kernel = self.inner.made(told["kernel"], parse) if "kernel" in told else None
        results = () if left == "nothing" else tuple(None if r == "_" else r for r in left.split(", "))
        return Extern(
            op,
            tuple(map(self.arg, given.args)),
            {k.arg: self.arg(k.value) for k in given.keywords if k.arg is not None},
            results,
            told.get("out"),
            tuple(told.get("mutates", ())),
            origin,
            tuple(tuple(b) for b in told.get("binds", ())),
            bodies,
            told.get("draws", False),
            told.get("source", ""),
            kernel,
        )

    def arg(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return BufferArg(node.id)
        if isinstance(node, ast.List):
            return tuple(map(self.arg, node.elts))
        if not isinstance(node, ast.Call):
            return Literal(ast.literal_eval(node))
        if isinstance(node.func, ast.Attribute):
            sizes, strides, *offset = node.args
            shape, steps = (tuple(map(self.index_of, elements(n))) for n in (sizes, strides))
            return BufferArg(name_of(node.func.value), shape, steps, self.index_of(offset[0]) if offset else None)
        kind = name_of(node.func)
        if kind == "size":
            return self.index_of(node.args[0])
        values = list(map(ast.literal_eval, node.args))
        if kind == "number":
            return Literal(float(values[0]))
        return ComplexArg(*map(float, values)) if kind == "complex" else Named(kind, values[0])

    def output(self, node: ast.expr) -> TensorOutput | Index | None:
        told: dict[str, Any] = {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tensor":
            told = noted(node.keywords)
            node = node.args[0]
        found = self.arg(node)
        if not isinstance(found, BufferArg):
            return found if isinstance(found, Index) else None
        return TensorOutput(found.buffer, found.sizes, found.strides, found.offset, **told)


__all__ = [
    "ProgramParser",
    "heading",
    "outside",
    "parse_lowered",
    "parse_program",
    "show_call",
    "show_lowered",
    "show_output",
    "show_program",
]
