"""Aten graphs as text, and back.

    input x: float32[8, 16]
    held w: float32[16, 4] strides [1, 16]
    mm: float32[8, 4] = aten::mm(x, w)   # model.py:3
    relu: float32[8, 4] = aten::relu(mm)
    return relu

Values are bare names; sizes that are no numbers are ``size(s0 + 1)``. Graphs that control operators run come first, by number. Contents of
held tensors and constants are no part of the text, nor is what was assumed of sizes beyond their ranges.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from opmill_fake_tensors.symbols import Sizes, Symbol
from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.plan.syntax import called, elements, items, name_of, noted, notes, part

from ..dense import Size, contiguous
from ..inner_texts import COMMENT, Reading, Writing, apart
from ..loops.index import Index
from ..loops.text import ExpressionParser, parse_index, read_lines
from ..overloads import resolve
from .control import ControlOperator
from .graph import NO_LABEL, AtenGraph, Meta, Node, Output, OutputTensor, Value

LEAST = 2
"""The lower limit of a size of which nothing is said."""
CONTROL = "opmill::"
_SIZES = ExpressionParser()

# ---- printing --------------------------------------------------------------------------------------------------------------


def show_graph(graph: AtenGraph) -> str:
    """The graph as text."""
    inner = Writing()
    lines = [] if graph.sizes is None else list(map(_symbol, graph.sizes.symbols.values()))
    for kind, names in (("input", graph.inputs), ("held", graph.held), ("constant", graph.constants)):
        lines += [f"{kind} {name}: {looks(graph.metas[name]) if name in graph.metas else 'size'}" for name in names]
    for node in graph.nodes:
        left = ", ".join(f"{r}: {looks(graph.metas[r])}" if r else "_" for r in node.results)
        arguments = [*map(_arg, node.args), *(f"{k}={_arg(v)}" for k, v in node.kwargs.items())]
        notes = (
            [f"binds={[list(b) for b in node.binds]!r}"] * bool(node.binds)
            + ["again=True"] * node.again
            + [f"kept={node.kept}"] * (node.kept is not None)
            + [f"label={node.label}"] * (node.label != NO_LABEL)
            + ([f"bodies={_numbered(node.func, inner)}"] if isinstance(node.func, ControlOperator) else [])
        )
        told = f"; {', '.join(notes)}" if notes else ""
        where = f"   # {node.origin}" if node.origin else ""
        lines.append(f"{left or 'nothing'} = {node.func.name()}({', '.join(arguments)}){told}{where}")
    lines += [f"begin {name} at {offset}" for name, offset in graph.offsets.items()]
    lines += [f"write {target} <- {value}" for target, value in graph.mutations.items()]
    lines.append("return " + ", ".join(map(_output, graph.outputs)))
    return "\n".join([*inner.lines, *lines]) + "\n"


def _numbered(operator: ControlOperator, inner: Writing) -> list[int]:
    return [inner.number("body", id(body), partial(show_graph, body)) for body in operator.bodies]


def _symbol(symbol: Symbol) -> str:
    """``size s0 = 8``, with what is known of it beside the number of the captured call."""
    low = f" from {symbol.low}" if symbol.low != LEAST else ""
    high = "" if symbol.high is None else f" to {symbol.high}"
    return f"size {symbol.name} = {symbol.hint}{low}{high}{f' as {symbol.definition}' if symbol.definition else ''}"


def looks(meta: Meta) -> str:
    """What a value looks like, as texts of graphs have it: ``float32[16, 4] strides [1, 16] on cuda:0``."""
    strides = "" if meta.strides == contiguous(meta.sizes) else f" strides {_listed(meta.strides)}"
    marks = " opaque" * meta.opaque + f" multiplied {meta.multiplied}" * (meta.multiplied != 0)
    return f"{meta.dtype}{_listed(meta.sizes)}{strides}{marks}{'' if meta.device == HOST else f' on {meta.device}'}"


def _listed(sizes: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _arg(arg: Any) -> str:
    if isinstance(arg, Value):
        return arg.name
    if isinstance(arg, Index):
        return f"size({arg})"
    if isinstance(arg, (list, tuple)):
        inside = ", ".join(map(_arg, arg))
        return f"[{inside}]" if isinstance(arg, list) else f"({inside}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, float) and not math.isfinite(arg):
        return f"number({str(arg)!r})"
    if isinstance(arg, complex):
        return f"complex({str(arg.real)!r}, {str(arg.imag)!r})"
    if isinstance(arg, torch.device):
        return f"device({str(arg)!r})"
    return repr(arg)  # numbers, strings, torch.float32, torch.strided, ...


def _output(out: Output) -> str:
    if isinstance(out, Index):
        return f"size({out})"
    if not isinstance(out, OutputTensor):
        return _arg(out)
    notes = [f"dtype={out.dtype!r}"] * bool(out.dtype) + ["detached=True"] * out.detached + [f"twin={out.twin}"] * bool(out.twin)
    if out.sizes is not None:
        notes.insert(0, f"view=({_listed(out.sizes)}, {_listed(out.strides or ())}, {out.offset})")
    return f"tensor({', '.join([out.value, *notes])})" if notes else out.value


# ---- parsing ---------------------------------------------------------------------------------------------------------------


def parse_graph(text: str, tensors: Mapping[str, torch.Tensor] | None = None) -> AtenGraph:
    """The graph that ``text`` shows. ``tensors``: held ones and constants by name; zeros otherwise. Raises GraphError GI042 with the line
    that cannot be read."""
    parser = _Parser(tensors or {})
    read_lines(text, parser.line, "an aten graph")
    return parser.graph


class _Parser:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.graph, self.tensors, self.inner = AtenGraph(), tensors, Reading()

    def line(self, line: str) -> None:
        if self.inner.takes(line):
            return
        line, origin = apart(line.strip(), COMMENT)
        head, _, rest = line.partition(" ")
        graph = self.graph
        if head in ("input", "held", "constant"):
            name, _, shown = rest.partition(": ")
            if shown != "size":
                graph.metas[name] = parse_looks(shown)
            if head == "input":
                graph.inputs.append(name)
            elif head == "held":
                graph.held.append(name)
                graph.held_tensors.append(self.tensor(name))
            else:
                graph.constants[name] = self.tensor(name)
        elif head == "begin":
            name, _, offset = rest.partition(" at ")
            graph.offsets[name] = int(offset)
        elif head == "write":
            target, _, value = rest.partition(" <- ")
            graph.mutations[target] = value
        elif head == "size":
            self.symbol(rest)
        elif head == "return":
            graph.outputs = list(map(self.output, items(rest)))
        else:
            self.node(line, origin)

    def symbol(self, rest: str) -> None:
        name, _, told = rest.partition(" = ")
        told, _, definition = told.partition(" as ")
        hint, *limits = told.split()
        bounds = dict(zip(limits[::2], map(int, limits[1::2]), strict=True))
        sizes = self.graph.sizes = self.graph.sizes or Sizes()
        low, value = bounds.get("from", LEAST), None if hint == "None" else int(hint)
        if definition:
            assert str(sizes.derived(definition, low=low)) == name, "sizes that follow from others are named by their position"
        else:
            sizes.new(value, low=low, high=bounds.get("to"), name=name)

    def node(self, line: str, origin: str) -> None:
        left, _, right = line.partition(" = ")
        name, _, arguments = right.partition("(")
        shown, remarks = apart(arguments, "; ")
        call, told = called(f"f({shown}"), notes(remarks)
        results = [] if left == "nothing" else [self.result(r) for r in _results(left)]
        func: Any
        if "bodies" not in told:
            func = resolve(name)
        else:
            func = ControlOperator(name.removeprefix(CONTROL), tuple(self.inner.made(n, parse_graph) for n in told["bodies"]))
        kwargs = {k.arg: self.arg(k.value) for k in call.keywords if k.arg is not None}
        binds = tuple(tuple(b) for b in told.get("binds", ()))
        args = tuple(map(self.arg, call.args))
        self.graph.nodes.append(
            Node(func, args, kwargs, tuple(results), origin, binds, told.get("again", False), told.get("label", NO_LABEL), told.get("kept"))
        )

    def result(self, text: str) -> str | None:
        if text == "_":
            return None
        name, _, shown = text.partition(": ")
        self.graph.metas[name] = parse_looks(shown)
        return name

    def tensor(self, name: str) -> torch.Tensor:
        meta = self.graph.metas[name]
        if name in self.tensors:
            return self.tensors[name]
        return torch.empty_strided(meta.sizes, meta.strides, dtype=getattr(torch, meta.dtype), device=meta.device).zero_()

    def arg(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return Value(node.id)
        if isinstance(node, (ast.List, ast.Tuple)):
            kind = list if isinstance(node, ast.List) else tuple
            return kind(map(self.arg, node.elts))
        if isinstance(node, ast.Attribute):  # torch.float32
            return getattr(torch, node.attr)
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            if name == "size":
                return parse_index(ast.unparse(node.args[0]))
            values = list(map(ast.literal_eval, node.args))
            if name == "device":
                return torch.device(*values)
            return complex(*map(float, values)) if name == "complex" else float(*values)
        return ast.literal_eval(node)

    def output(self, node: ast.expr) -> Output:
        if isinstance(node, ast.Name):
            return OutputTensor(node.id)
        if not isinstance(node, ast.Call) or name_of(node.func) != "tensor":
            return self.arg(node)
        view = {k.arg: k.value for k in node.keywords}.get("view")
        told = noted([k for k in node.keywords if k.arg != "view"])
        if view is not None:
            sizes, strides, offset = part(view, ast.Tuple).elts
            told |= {"sizes": _sizes(elements(sizes)), "strides": _sizes(elements(strides)), "offset": _size(offset)}
        return OutputTensor(name_of(node.args[0]), **told)


def parse_looks(text: str) -> Meta:
    """What a value looks like, as ``looks`` writes it."""
    dtype, _, rest = text.partition("[")
    shown, _, rest = rest.partition("]")
    sizes = _sizes(items(shown))
    strides = contiguous(sizes)
    if rest.startswith(" strides ["):
        shown, _, rest = rest.removeprefix(" strides [").partition("]")
        strides = _sizes(items(shown))
    opaque, rest = rest.startswith(" opaque"), rest.removeprefix(" opaque")
    multiplied = 0
    if rest.startswith(" multiplied "):
        number, _, rest = rest.removeprefix(" multiplied ").partition(" ")
        multiplied, rest = int(number), f" {rest}" if rest else ""
    return Meta(dtype, sizes, strides, rest.removeprefix(" on ") or HOST, opaque, multiplied)


def _sizes(nodes: Sequence[ast.expr]) -> tuple[Size, ...]:
    return tuple(map(_size, nodes))


def _size(node: ast.expr) -> Size:
    size = _SIZES.index_of(node)
    return size if size.constant is None else size.constant


def _results(text: str) -> list[str]:
    """Results that stand one behind the other; commas inside of brackets do not part them."""
    parts, depth, start = [], 0, 0
    for k, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    return [*parts, text[start:].strip()]


__all__ = ["looks", "parse_graph", "parse_looks", "show_graph"]
