"""Kernels as text, one statement a line, and back: ``parse(show(kernel)) == kernel``.

Expressions are Python expressions: ``add(b0[8*i0 + j0], float32(1.5))``, ``cast.bfloat16(v0)``, ``int64.at(i0)``,
``b0.where(mask, index, other)`` for a masked load. Floats are written exactly; infinities and NaN in quotes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any

from opmill_runtime_cache.plan.syntax import items, name_of

from ..errors import GraphError
from .index import Index, floordiv, index, mod
from .ir import (
    Attention,
    AttentionPart,
    Axis,
    Buffer,
    Check,
    Const,
    Expr,
    IndexValue,
    Let,
    Load,
    LoopKernel,
    Nest,
    Op,
    Phase,
    Placed,
    Read,
    Reduction,
    Ref,
    Role,
    Scan,
    Store,
    StoreMode,
)
from .primitives import PRIMITIVES

# ---- printing --------------------------------------------------------------------------------------------------------------


def show(kernel: LoopKernel) -> str:
    """The kernel as text."""
    lines = [f"kernel {kernel.name}({', '.join(kernel.symbols)})"]
    lines += [f"  {b.role} {b.name}: {b.dtype}[{show_index(b.numel)}]{' early' * b.early}{_comment(b.origin)}" for b in kernel.buffers]
    lines += [] if kernel.attention is None else _attention(kernel.attention)
    for nest in kernel.nests:
        lines.append(f"nest{_axes(nest.axes)}{_comment(nest.origin)}")
        for phase in nest.phases:
            lines.append(f"  phase{_axes(phase.axes)}")
            lines += [f"    let {let.name} = {show_expr(let.value)}" for let in phase.lets]
            lines += [f"    check {show_expr(c.condition)}, {c.error!r}, {c.message!r}" for c in phase.checks]
            lines += [f"    {r.op} {', '.join(r.names)}: {r.dtype} = {show_expr(r.value)}" for r in phase.reductions]
            lines += [
                f"    scan.{_direction(s)}{s.op} {', '.join(s.names)}: {s.dtype} = {'; '.join(map(show_expr, s.values))}"
                for s in phase.scans
            ]
            lines += [f"    {s.mode}{_part(s)} {s.buffer}[{show_index(s.index)}] = {show_expr(s.value)}" for s in phase.stores]
    return "\n".join(lines) + "\n"


_SIZES = ("batch", "heads", "shared", "queries", "keys", "width", "depth", "scale", "query_block", "key_block")
_FUNCTIONS = ("score", "kept", "slope")


def _attention(found: Attention) -> Iterator[str]:
    yield f"attention {found.part} {found.dtype} {' '.join(f'{name}={getattr(found, name)!r}' for name in _SIZES)}"
    yield from (f"  place {name} {p.buffer} {p.offset} {' '.join(map(str, p.strides))}" for name, p in found.operands)
    yield from (f"  function {name} = {show_expr(f)}" for name, f in zip(_FUNCTIONS, found.functions()))


def show_index(i: Index) -> str:
    """An index expression as text, which ``parse_index`` reads."""
    return str(i)


def show_expr(e: Expr) -> str:
    """An expression as text."""
    return _SHOW[type(e)](e)


def _direction(scan: Scan) -> str:
    return "back." if scan.reverse else ""


def _part(store: Store) -> str:
    return "" if store.first is None else f".first{store.first}"


def _axes(axes: tuple[Axis, ...]) -> str:
    return "".join(f" {a.name}<{show_index(a.extent).replace(' ', '')}" for a in axes)


def _comment(text: str) -> str:
    return f"   # {text}" if text else ""


def _show_const(e: Const) -> str:
    odd = isinstance(e.value, float) and not math.isfinite(e.value)
    return f"{e.dtype}({str(e.value)!r})" if odd else f"{e.dtype}({e.value!r})"


def _show_load(e: Load) -> str:
    if e.mask is None:
        return f"{e.buffer}[{show_index(e.index)}]"
    other = "" if e.other is None else f", {show_expr(e.other)}"
    return f"{e.buffer}.where({show_expr(e.mask)}, {show_index(e.index)}{other})"


def _show_read(e: Read) -> str:
    at = ", ".join(map(show_index, e.indices)) if e.indices else "()"
    if e.mask is None:
        return f"{e.buffer}[{at}]"
    other = "" if e.other is None else f", {show_expr(e.other)}"
    return f"{e.buffer}.where({show_expr(e.mask)}, [{at if e.indices else ''}]{other})"


def _show_op(e: Op) -> str:
    typed = "" if e.dtype == _inferred(e.name, e.args) else f".{e.dtype}"
    return f"{e.name}{typed}({', '.join(map(show_expr, e.args))})"


def _inferred(name: str, args: tuple[Expr, ...]) -> str | None:
    result = PRIMITIVES[name].result if name in PRIMITIVES else "any"
    return {"bool": "bool", "same": args[-1].dtype if args else None}.get(result)


_SHOW = {
    Const: _show_const,
    IndexValue: lambda e: f"{e.dtype}.at({show_index(e.index)})",
    Load: _show_load,
    Op: _show_op,
    Read: _show_read,
    Ref: lambda e: e.name,
}

# ---- parsing ---------------------------------------------------------------------------------------------------------------


def parse(text: str) -> LoopKernel:
    """The kernel that ``text`` shows. Raises GraphError GI042 with the line that cannot be read."""
    parser = _Parser()
    read_lines(text, parser.line, "a kernel")
    return parser.kernel()


def read_lines(text: str, read: Callable[[str], object], what: str) -> None:
    """Hands each line that is not empty to ``read``. Raises GraphError GI042 with the line that it cannot take."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            read(line)
        except (SyntaxError, ValueError, KeyError, TypeError, AttributeError, LookupError, AssertionError) as e:
            raise GraphError("GI042", f"line {number} of {what} cannot be read: {line.strip()}", why=str(e)) from e


def parse_index(text: str) -> Index:
    """The expression that ``str`` shows. Raises SyntaxError."""
    return _Parser().index(text)


MODES: dict[str, StoreMode] = {"set": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}
_ROLES: dict[str, Role] = {"in": "in", "out": "out", "inout": "inout"}


def constant(expr: Expr | None) -> Const | None:
    """The expression, which is a constant where there is one."""
    if expr is not None and type(expr) is not Const:
        raise ValueError(f"{show_expr(expr)} is no constant")
    return expr


class ExpressionParser:
    """Reads expressions. ``dtypes`` are those of buffers, ``types`` those of what has a name in a loop."""

    def __init__(self) -> None:
        self.dtypes: dict[str, str] = {}
        self.types: dict[str, str] = {}

    def element(self, buffer: str, at: ast.expr, mask: Expr | None, other: Expr | None) -> Expr:
        """What stands for ``buffer[at]``."""
        return Load(buffer, self.index_of(at), self.dtypes[buffer], mask, constant(other))

    def axes(self, text: str) -> tuple[Axis, ...]:
        return tuple(Axis(name, self.index(extent)) for name, _, extent in (a.partition("<") for a in text.split()))

    def index(self, text: str) -> Index:
        return self.index_of(ast.parse(text, mode="eval").body)

    def let(self, rest: str) -> Let:
        name, _, value = rest.partition(" = ")
        expr = self.expr(value)
        self.types[name] = expr.dtype
        return Let(name, expr)

    def check(self, rest: str) -> Check:
        condition, error, message = items(rest)
        return Check(self.expr_of(condition), ast.literal_eval(error), ast.literal_eval(message))

    def running(self, head: str, rest: str) -> Reduction | Scan:
        left, _, value = rest.partition(" = ")
        listed, _, dtype = left.partition(": ")
        names = tuple(listed.split(", "))
        *how, op = head.split(".")
        found: Reduction | Scan
        if how:
            found = Scan(names, op, tuple(map(self.expr, value.split("; "))), dtype, "back" in how)
        else:
            found = Reduction(names, op, self.expr(value), dtype)
        for k, name in enumerate(names):
            self.types[name] = "int64" if k and (how or op.startswith("arg")) else dtype
        return found

    def expr(self, text: str) -> Expr:
        return self.expr_of(ast.parse(text, mode="eval").body)

    def expr_of(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Name):
            return Ref(node.id, self.types[node.id])
        if isinstance(node, ast.Subscript):
            return self.element(name_of(node.value), node.slice, None, None)
        assert isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute):
            return self.method(name_of(node.func.value), node.func.attr, node.args)
        name = name_of(node.func)
        if name not in PRIMITIVES:
            return Const(_constant(node.args[0], name), name)
        args = tuple(map(self.expr_of, node.args))
        return Op(name, args, _inferred(name, args) or "")

    def method(self, owner: str, name: str, args: list[ast.expr]) -> Expr:
        if name == "at":
            return IndexValue(self.index_of(args[0]), owner)
        if name == "where":
            other = self.expr_of(args[2]) if len(args) > 2 else None
            return self.element(owner, args[1], self.expr_of(args[0]), other)
        return Op(owner, tuple(map(self.expr_of, args)), name)

    def index_of(self, node: ast.expr) -> Index:
        if isinstance(node, ast.Name):
            return index(node.id)
        if isinstance(node, ast.Constant):
            return index(int(ast.literal_eval(node)))
        if isinstance(node, ast.UnaryOp):
            return -self.index_of(node.operand)
        assert isinstance(node, ast.BinOp)
        left, right = self.index_of(node.left), self.index_of(node.right)
        return _BINARY[type(node.op)](left, right)


class _Parser(ExpressionParser):
    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.symbols: tuple[str, ...] = ()
        self.buffers: list[Buffer] = []
        self.nests: list[tuple[tuple[Axis, ...], list[_Lines], str]] = []
        self.attention: list[str] = []
        self.places: list[tuple[str, Placed]] = []
        self.functions: dict[str, Expr] = {}

    def kernel(self) -> LoopKernel:
        nests = tuple(Nest(axes, tuple(p.phase() for p in phases), origin) for axes, phases, origin in self.nests)
        return LoopKernel(self.name, tuple(self.buffers), nests, self.symbols, self.attending() if self.attention else None)

    def attending(self) -> Attention:
        part, dtype, *told = self.attention
        numbers: dict[str, Any] = {name: ast.literal_eval(value) for name, _, value in (t.partition("=") for t in told)}
        parts: dict[str, AttentionPart] = {"forward": "forward", "keys": "keys", "queries": "queries"}
        score, kept, slope = (self.functions.get(name) for name in _FUNCTIONS)
        assert score is not None and kept is not None
        return Attention(parts[part], dtype, **numbers, operands=tuple(self.places), score=score, kept=kept, slope=slope)

    def of_attention(self, head: str, rest: str) -> None:
        if head == "attention":
            self.attention = rest.split()
            self.types |= {"score": "float32", "gradient": "float32"}
        elif head == "place":
            name, buffer, offset, *strides = rest.split()
            self.places.append((name, Placed(buffer, int(offset), tuple(map(int, strides)))))
        else:
            name, _, function = rest.partition(" = ")
            self.functions[name] = self.expr(function)

    def line(self, line: str) -> None:
        head, _, rest = line.strip().partition(" ")
        if line.startswith("kernel "):
            self.name, _, symbols = rest.rstrip(")").partition("(")
            self.symbols = tuple(s for s in symbols.split(", ") if s)
        elif line.startswith("nest"):
            rest, _, origin = rest.partition("# ")
            self.nests.append((self.axes(rest), [], origin.strip()))
        elif head in ("attention", "place", "function"):
            self.of_attention(head, rest)
        elif line.startswith("    "):
            self.statement(head, rest)
        elif head == "phase":
            self.nests[-1][1].append(_Lines(self.axes(rest)))
        else:
            self.buffer(head, rest)

    def buffer(self, role: str, rest: str) -> None:
        rest, _, origin = rest.partition("   # ")
        name, _, kind = rest.partition(": ")
        dtype, _, numel = kind.partition("[")
        numel, _, early = numel.rpartition("]")
        self.dtypes[name] = dtype
        self.buffers.append(Buffer(name, dtype, _ROLES[role], self.index(numel), origin, bool(early)))

    def statement(self, head: str, rest: str) -> None:
        phase = self.nests[-1][1][-1]
        if head == "let":
            phase.lets.append(self.let(rest))
        elif head == "check":
            phase.checks.append(self.check(rest))
        elif (mode := head.partition(".first"))[0] in MODES and "[" in rest.partition(" = ")[0]:
            target, _, value = rest.partition(" = ")
            buffer, _, at = target.partition("[")
            first = int(mode[2]) if mode[2] else None
            phase.stores.append(Store(buffer, self.index(at.rstrip("]")), self.expr(value), MODES[mode[0]], first))
        else:
            found = self.running(head, rest)
            into: list[Any] = phase.scans if isinstance(found, Scan) else phase.reductions
            into.append(found)


class _Lines:
    """A phase being read."""

    def __init__(self, axes: tuple[Axis, ...]) -> None:
        self.axes = axes
        self.lets: list[Let] = []
        self.checks: list[Check] = []
        self.reductions: list[Reduction] = []
        self.scans: list[Scan] = []
        self.stores: list[Store] = []

    def phase(self) -> Phase:
        return Phase(self.axes, tuple(self.lets), tuple(self.checks), tuple(self.reductions), tuple(self.stores), tuple(self.scans))


def _constant(node: ast.expr, dtype: str) -> bool | int | float:
    value = ast.literal_eval(node)
    return float(value) if isinstance(value, str) else value


_BINARY = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}

__all__ = ["ExpressionParser", "parse", "parse_index", "read_lines", "show", "show_expr", "show_index"]
