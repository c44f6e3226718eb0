"""FX graphs as text, and back: what the frontend, or another, hands to the compiler.

    input x   # float32[8, 16]
    input weight = p_weight; held=True   # float32[16, 4]
    attribute scale: float32[4]
    linear = torch.nn.functional.linear(x, weight, None)   # float32[8, 4]  model.py:3
    size = .size(linear, 0)   # model.py:4
    relu = aten::relu.default(linear)   # float32[8, 4]  model.py:5
    return (relu,)

A call names the function by where it is found, a method of its first argument begins with a point, a module with ``self.``. Graphs that
higher-order operators run come first, by number. What cannot be named (a function of the user's, a mesh) is ``object('...')``.
"""

from __future__ import annotations

import ast
import enum
import math
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from opmill_runtime_cache.plan.syntax import called, expression, name_of, notes

from ..inner_texts import COMMENT, Reading, Writing, apart
from ..loops.text import read_lines
from .places import labels_of, origin_of
from .record import meta_of
from .text import looks, parse_looks

NOTED = ("held", "label")
"""What is said of a node, and matters to later steps."""
LOOKS = "looks"
"""Where a node that was read from a text has what that said it looks like."""
_LOOKS = re.compile(r"\w+\[")
_HOMES = (
    *("torch", "torch.nn.functional", "torch._C._nn", "torch.Tensor", "torch.special", "torch.linalg", "torch.fft"),
    *("operator", "builtins"),
)
"""Where functions are found that do not know it themselves."""

# ---- printing --------------------------------------------------------------------------------------------------------------


def show_module(gm: torch.fx.GraphModule) -> str:
    """The graph as text. Contents of tensors are no part of it."""
    inner = Writing()
    lines = [f"labels {list(labels)!r}"] if (labels := labels_of(gm)) else []
    for node in gm.graph.nodes:
        line = _LINES[node.op](gm, node, inner)
        told = ", ".join(f"{name}={node.meta[name]!r}" for name in NOTED if name in node.meta)
        comment = "  ".join(filter(None, (_looks(node), "" if (origin := origin_of(node)) == node.name else origin)))
        lines.append(line + (f"; {told}" if told else "") + (f"   # {comment}" if comment else ""))
    return "\n".join([*inner.lines, *lines]) + "\n"


def _looks(node: torch.fx.Node) -> str:
    value = node.meta.get("example_value", node.meta.get("val"))
    if LOOKS in node.meta:
        return str(node.meta[LOOKS])
    return looks(meta_of(value)) if isinstance(value, torch.Tensor) and value.layout == torch.strided else ""


def _input(gm: torch.fx.GraphModule, node: torch.fx.Node, inner: Writing) -> str:
    target = f" = {node.target}" if node.target != node.name else ""
    return f"input {node.name}{target}" + (f" or {_arg(node.args[0])}" if node.args else "")


def _attribute(gm: torch.fx.GraphModule, node: torch.fx.Node, inner: Writing) -> str:
    value = operator.attrgetter(str(node.target))(gm)
    target = f" = {node.target}" if node.target != node.name else ""
    if isinstance(value, torch.fx.GraphModule):
        number = inner.number("body", id(value), partial(show_module, value))
        return f"attribute {node.name}{target}: body {number}"
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return f"attribute {node.name}{target}: {_object(value)}"
    kind = " parameter" if isinstance(value, torch.nn.Parameter) else ""
    return f"attribute {node.name}{target}: {looks(meta_of(value))}{kind}{' requires grad' if value.requires_grad else ''}"


def _call(head: Callable[[Any], str]) -> Callable[[torch.fx.GraphModule, torch.fx.Node, Writing], str]:
    def line(gm: torch.fx.GraphModule, node: torch.fx.Node, inner: Writing) -> str:
        arguments = [*map(_arg, node.args), *(f"{name}={_arg(value)}" for name, value in node.kwargs.items())]
        return f"{node.name} = {head(node.target)}({', '.join(arguments)})"

    return line


_LINES: dict[str, Callable[[torch.fx.GraphModule, torch.fx.Node, Writing], str]] = {
    "placeholder": _input,
    "get_attr": _attribute,
    "call_function": _call(lambda target: name_of_function(target) or _object(target)),
    "call_method": _call(lambda target: f".{target}"),
    "call_module": _call(lambda target: f"self.{target}"),
    "output": lambda gm, node, inner: f"return {_arg(node.args[0])}",
}


def name_of_function(function: Any) -> str:
    """The name by which ``function_of`` finds the function; empty where it has none."""
    if isinstance(function, torch._ops.OpOverload):
        return f"{function.name()}{'' if function._overloadname != 'default' else '.default'}"
    if isinstance(function, torch._ops.OpOverloadPacket):
        return str(function).replace(".", "::", 1)
    if isinstance(function, torch._ops.HigherOrderOperator):
        return f"higher_order::{function.name()}"
    own = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", ""))
    owner = getattr(function, "__objclass__", None)
    homes = [getattr(function, "__module__", None), None if owner is None else owner.__module__, *_HOMES]
    for home in filter(None, homes):
        for name in dict.fromkeys((own, getattr(function, "__name__", ""))):
            if name and "<" not in name and _found(full := f"{home}.{name}") is function:
                return full
        module = sys.modules.get(home)
        if module is not None and "<" in own:  # made by a function (F.max_pool2d is)
            known = next((name for name, value in vars(module).items() if value is function), None)
            if known is not None:
                return f"{home}.{known}"
    return ""


def _found(name: str) -> Any:
    """What the longest imported module of the name has under the rest of it; None where there is nothing. Imports nothing."""
    parts = name.split(".")
    for k in range(len(parts) - 1, 0, -1):
        if (module := sys.modules.get(".".join(parts[:k]))) is not None:
            try:
                return operator.attrgetter(".".join(parts[k:]))(module)
            except AttributeError:
                continue
    return None


def _object(value: Any) -> str:
    return f"object({type(value).__qualname__!r})"


def _arg(arg: Any) -> str:
    if isinstance(arg, torch.fx.Node):
        return arg.name
    if isinstance(arg, enum.Enum):
        return f"member({f'{type(arg).__module__}.{type(arg).__qualname__}.{arg.name}'!r})"
    if (show := _SHOWN.get(type(arg))) is not None:
        return show(arg)
    if isinstance(arg, list):
        return f"[{', '.join(map(_arg, arg))}]"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{_arg(k)}: {_arg(v)}' for k, v in arg.items())}}}"
    return _object(arg)


_SHOWN: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((type(None), bool, int, str, torch.dtype, torch.layout, torch.memory_format), repr),
    float: lambda arg: repr(arg) if math.isfinite(arg) else f"number({str(arg)!r})",
    complex: lambda arg: f"complex({str(arg.real)!r}, {str(arg.imag)!r})",
    type(...): lambda arg: "...",
    slice: lambda arg: f"slice({_arg(arg.start)}, {_arg(arg.stop)}, {_arg(arg.step)})",
    tuple: lambda arg: f"({', '.join(map(_arg, arg))}{',' if len(arg) == 1 else ''})",
    torch.Size: lambda arg: f"Size([{', '.join(map(_arg, arg))}])",
    torch.device: lambda arg: f"device({str(arg)!r})",
}

# ---- parsing ---------------------------------------------------------------------------------------------------------------


def parse_module(text: str, given: Mapping[str, Any] | None = None) -> torch.fx.GraphModule:
    """The module with the graph that ``text`` shows. ``given``: tensors and modules by their path; zeros and empty modules otherwise. What
    fakes the frontend had for inputs is no part of the text. Raises GraphError GI042 with the line that cannot be read: also for what has
    no name."""
    parser = _Parser(given or {})
    read_lines(text, parser.line, "an FX graph")
    module = torch.fx.GraphModule(parser.root, parser.graph)
    if parser.labels:
        module.meta["labels"] = parser.labels
    return module


class _Parser:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self.graph, self.root, self.given, self.inner = torch.fx.Graph(), torch.nn.Module(), given, Reading()
        self.nodes: dict[str, torch.fx.Node] = {}
        self.labels: tuple[Any, ...] = ()

    def line(self, line: str) -> None:
        if self.inner.takes(line):
            return
        line, comment = apart(line.strip(), COMMENT)
        head, _, rest = line.partition(" ")
        if head == "labels":
            self.labels = tuple(ast.literal_eval(rest))
            return
        if head == "return":
            self.graph.output(self.arg(expression(rest)))
            return
        line, remarks = apart(line, "; ")
        head, _, rest = line.partition(" ")
        if head == "input":
            node = self.input(rest)
        elif head == "attribute":
            node = self.attribute(rest)
        else:
            node = self.call(*line.split(" = ", 1))
        self.nodes[node.name] = node
        node.meta |= notes(remarks)
        shown, _, origin = comment.partition("  ") if _LOOKS.match(comment) else ("", "", comment)
        node.meta |= {name: value for name, value in ((LOOKS, shown), ("origin", origin)) if value}

    def input(self, rest: str) -> torch.fx.Node:
        rest, _, default = rest.partition(" or ")
        name, _, target = rest.partition(" = ")
        return self.node(name, "placeholder", target or name, (self.arg(expression(default)),) if default else ())

    def attribute(self, rest: str) -> torch.fx.Node:
        left, _, shown = rest.partition(": ")
        name, _, target = left.partition(" = ")
        target = target or name
        if shown.startswith("body "):
            self.put(target, self.inner.made(int(shown.removeprefix("body ")), parse_module))
        elif target in self.given:
            self.put(target, self.given[target])
        else:
            shown, needs = shown.removesuffix(" requires grad"), shown.endswith(" requires grad")
            shown, parameter = shown.removesuffix(" parameter"), shown.endswith(" parameter")
            meta = parse_looks(shown)
            made = torch.empty_strided(meta.sizes, meta.strides, dtype=getattr(torch, meta.dtype), device=meta.device).zero_()
            self.put(target, torch.nn.Parameter(made, needs) if parameter else made.requires_grad_(needs))
        return self.node(name, "get_attr", target)

    def put(self, path: str, value: Any) -> None:
        *above, last = path.split(".")
        owner = self.root
        for name in above:
            if not hasattr(owner, name):
                setattr(owner, name, torch.nn.Module())
            owner = getattr(owner, name)
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            owner.register_buffer(last, value)
        else:
            setattr(owner, last, value)

    def call(self, name: str, right: str) -> torch.fx.Node:
        head, _, arguments = right.partition("(")
        call = called(f"f({arguments}")
        args = tuple(map(self.arg, call.args))
        kwargs = {k.arg: self.arg(k.value) for k in call.keywords if k.arg is not None}
        if head.startswith("."):
            return self.node(name, "call_method", head[1:], args, kwargs)
        if head.startswith("self."):
            path = head.removeprefix("self.")
            self.put(path, self.given.get(path, torch.nn.Module()))
            return self.node(name, "call_module", path, args, kwargs)
        return self.node(name, "call_function", function_of(head), args, kwargs)

    def node(self, name: str, op: str, target: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> torch.fx.Node:
        node = self.graph.create_node(op, target, tuple(args), dict(kwargs or {}), name)
        assert node.name == name, f"{name} names two things"
        return node

    def arg(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self.nodes[node.id]
        if isinstance(node, ast.List):
            return list(map(self.arg, node.elts))
        if isinstance(node, ast.Tuple):
            return tuple(map(self.arg, node.elts))
        if isinstance(node, ast.Dict):
            return {self.arg(k): self.arg(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
        if isinstance(node, ast.Attribute):  # torch.float32
            return getattr(torch, node.attr)
        if isinstance(node, ast.Call):
            return _MADE[name_of(node.func)](*map(self.arg, node.args))
        return ast.literal_eval(node)


def function_of(name: str) -> Any:
    """The function of that name. Raises LookupError where nothing that is imported has it."""
    if name.startswith("higher_order::"):
        return getattr(torch.ops.higher_order, name.removeprefix("higher_order::"))
    if "::" in name:
        space, _, rest = name.partition("::")
        packet, _, which = rest.partition(".")
        found = getattr(getattr(torch.ops, space), packet)
        return getattr(found, which) if which else found
    if (found := _found(name)) is None:
        raise LookupError(name)
    return found


_MADE: dict[str, Callable[..., Any]] = {
    "number": float,
    "complex": lambda real, imag: complex(float(real), float(imag)),
    "slice": slice,
    "Size": torch.Size,
    "device": torch.device,
    "member": function_of,
}

__all__ = ["function_of", "name_of_function", "parse_module", "show_module"]
