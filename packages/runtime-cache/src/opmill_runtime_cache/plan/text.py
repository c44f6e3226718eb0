"""Plans as text: one line a step, with shapes and where it came from. ``parse(render(plan)) == plan``.

Each line is an expression or an assignment in Python's syntax, so Python's own parser reads it back. ``t3`` is slot 3, ``k0`` kernel 0;
a specification reads ``float32[8, s0](s0, 1)``: sizes, then strides; what follows ``#`` is the step's origin.
"""

import ast
import math
import re
import struct
from collections.abc import Callable
from typing import Any

from ..devices.host import HOST
from ..errors import PlanFormatError
from .expr import compile_size
from .model import (
    Alloc,
    Arg,
    Call,
    Check,
    ComplexArg,
    Constant,
    Define,
    Expr,
    Free,
    Item,
    KernelRef,
    Label,
    Launch,
    ListArg,
    Literal,
    Named,
    NoneOutput,
    Output,
    Plan,
    Size,
    SizeInput,
    SizeOf,
    SizeOfStep,
    SizeOutput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)
from .syntax import called, name_of, part

# ---- writing -------------------------------------------------------------------------------------------------------

_BARE_SIZE = re.compile(r"[A-Za-z0-9_ +\-*/%(),<>=!]+")
_ORIGIN = re.compile(r"[^\s\x00-\x1f\x7f\x85\u2028\u2029](?:[^\x00-\x1f\x7f\x85\u2028\u2029]*[^\s\x00-\x1f\x7f\x85\u2028\u2029])?")


def _size(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    bare = _BARE_SIZE.fullmatch(size) and _reads_back(size)
    return size if bare else repr(size)


def _reads_back(size: str) -> bool:
    try:
        compile_size(size)
        [argument] = called(f"f({size})").args
    except (PlanFormatError, SyntaxError, ValueError):
        return False
    return not isinstance(argument, ast.Constant) and not _is_negative(argument) and ast.get_source_segment(f"f({size})", argument) == size


def _is_negative(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _many(items: Any) -> str:
    return ", ".join(items)


def _tuple(sizes: tuple[Size, ...]) -> str:
    return "(" + _many(map(_size, sizes)) + ("," if len(sizes) == 1 else "") + ")"


def _shape(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> str:
    return f"[{_many(map(_size, sizes)) or '()'}]({_many(map(_size, strides))})"


def _spec(spec: TensorSpec) -> str:
    text = spec.dtype + _shape(spec.sizes, spec.strides)
    if spec.device != HOST:
        text = text[:-1] + (", " if spec.strides else "") + f"device={spec.device!r})"
    return text


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return f"bits({struct.unpack('<Q', struct.pack('<d', value))[0]:#x})" if math.isnan(value) else f"real({str(value)!r})"


_ARGS: dict[type, Callable[[Any], str]] = {
    Slot: lambda arg: f"t{arg.index}",
    Expr: lambda arg: f"size({_size(arg.value)})",
    ListArg: lambda arg: "[" + _many(map(_arg, arg.items)) + "]",
    Literal: lambda arg: _number(arg.value) if type(arg.value) is float else repr(arg.value),
    Named: lambda arg: f"named({arg.kind!r}, {arg.name!r})",
    ComplexArg: lambda arg: f"pair({_number(arg.real)}, {_number(arg.imag)})",
}


def _arg(arg: Arg) -> str:
    return _ARGS[type(arg)](arg)


def _options(**options: tuple[Any, Any]) -> str:
    """``, name=value`` for every option that is not its default."""
    return "".join(f", {name}={value}" for name, (value, default) in options.items() if value != default)


def _call(step: Call) -> str:
    arguments = [repr(step.op), *map(_arg, step.args)]
    if step.kwargs:
        arguments.append("**{" + _many(f"{name!r}: {_arg(arg)}" for name, arg in step.kwargs.items()) + "}")
    if step.specs:
        arguments.append(f"specs=[{_many('None' if spec is None else _spec(spec) for spec in step.specs)}]")
    if step.bodies:
        arguments.append(f"bodies={step.bodies}")
    results = _many("_" if slot is None else f"t{slot}" for slot in step.results)
    return (f"[{results}] = " if step.results else "") + f"call({_many(arguments)})"


_STEPS: dict[type, Callable[[Any], str]] = {
    Alloc: lambda s: f"t{s.slot} = alloc({_spec(s.spec)}{_options(at=('' if s.offset is None else _size(s.offset), ''))})",
    View: lambda s: (
        f"t{s.slot} = view(t{s.base}, view{_shape(s.sizes, s.strides)}, {_size(s.offset)}{_options(dtype=(repr(s.dtype), 'None'))})"
    ),
    Launch: lambda s: (
        f"launch({_many([f'k{s.kernel}', *(f't{slot}' for slot in s.slots)])}"
        + _options(sizes=(_tuple(s.sizes), "()"), writes=(s.writes, ()), checks=(s.checks, ()))
        + ")"
    ),
    Call: _call,
    Free: lambda s: f"free({_many(f't{slot}' for slot in s.slots)})",
    Check: lambda s: f"check({_size(s.condition)}, {s.message!r}{_options(error=(repr(s.error), repr('RuntimeError')))})",
    Define: lambda s: f"{s.symbol} = define({_size(s.value)})",
    Item: lambda s: f"{s.symbol} = item(t{s.slot})",
    SizeOfStep: lambda s: f"{s.symbol} = sizeof(t{s.slot}, {s.dim})",
}

_OUTPUTS: dict[type, Callable[[Any], str]] = {
    SlotOutput: lambda o: f"t{o.slot}",
    SizeOutput: lambda o: f"size({_size(o.value)})",
    NoneOutput: lambda o: "None",
}


def _input(item: TensorInput | SizeInput) -> str:
    name = _options(name=(repr(item.name), "''"))
    if type(item) is SizeInput:
        return f"{item.symbol} = size_input({name[2:]})"
    name += ", opaque=True" * item.opaque + f", multiplied={item.multiplied}" * (item.multiplied != 0)
    return f"t{item.slot} = {'held' if item.held else 'input'}({_spec(item.spec)}{name})"


_INDENT = "    "
"""Before the lines of a plan inside of another."""


def _with_origin(line: str, origin: str) -> str:
    if not origin:
        return line
    return f"{line}  # {origin}" if _ORIGIN.fullmatch(origin) else f"{line}  #! {origin!r}"


def render(plan: Plan) -> str:
    """The plan as text."""
    options = _options(exclusive=(plan.exclusive, ()), device=(repr(plan.device), repr(HOST)))
    lines = [f"plan({plan.name!r}, slots={plan.slots}, arena={_size(plan.arena)}{options})"]
    lines += map(_input, plan.inputs)
    lines += [f"{binding.symbol} = bind(t{binding.slot}, {binding.dim}{', stride=True' * binding.stride})" for binding in plan.bindings]
    lines += [f"t{item.slot} = constant({_spec(item.spec)}, {item.data.hex()!r})" for item in plan.constants]
    for number, ref in enumerate(plan.kernels):
        lines.append(f"k{number} = kernel({ref.kind!r}, {ref.artifact_kind!r}, {ref.key!r}, {ref.entry!r}{_options(meta=(ref.meta, {}))})")
    for number, body in enumerate(plan.bodies):
        lines += [f"b{number} = body()", *(_INDENT + line for line in render(body).splitlines())]
    lines += [f"label({label.name!r}, {label.begin}, {label.end}{_options(depth=(label.depth, 0))})" for label in plan.labels]
    lines += [_with_origin(_STEPS[type(step)](step), getattr(step, "origin", "")) for step in plan.steps]
    lines.append(f"output({_many(_OUTPUTS[type(output)](output) for output in plan.outputs)})")
    return "\n".join(lines) + "\n"


# ---- reading -------------------------------------------------------------------------------------------------------


class _Line:
    """One line, parsed: the names assigned to, the function called, its arguments."""

    def __init__(self, text: str) -> None:
        self.text = text
        statement = ast.parse(text).body[0]
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            [target] = statement.targets
            targets = target.elts if isinstance(target, ast.List) else [target]
        else:
            statement = part(statement, ast.Expr)
        call = part(statement.value, ast.Call)
        self.targets = list(map(name_of, targets))
        self.function = name_of(call.func)
        self.args: list[ast.expr] = call.args
        self.spread = next((keyword.value for keyword in call.keywords if keyword.arg is None), None)
        self.options = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        self.origin = _origin(text.encode()[statement.end_col_offset :].decode().strip())

    def source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def size(self, node: ast.expr) -> Size:
        if isinstance(node, ast.Constant) or _is_negative(node):
            literal: int | str = ast.literal_eval(node)
            return literal
        return self.source(node)

    def literal(self, name: str, default: Any) -> Any:
        return ast.literal_eval(self.options[name]) if name in self.options else default

    def sizes(self, nodes: list[ast.expr]) -> tuple[Size, ...]:
        return tuple(map(self.size, nodes))

    def shape(self, node: ast.expr) -> tuple[str, tuple[Size, ...], tuple[Size, ...], str]:
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
        inner = node.func.slice
        sizes = self.sizes(inner.elts if isinstance(inner, ast.Tuple) else [inner])
        device = next((ast.literal_eval(keyword.value) for keyword in node.keywords), HOST)
        return self.source(node.func.value), sizes, self.sizes(node.args), device

    def spec(self, node: ast.expr) -> TensorSpec:
        return TensorSpec(*self.shape(node))

    def slot(self, node: ast.expr) -> int:
        return _numbered("t", self.source(node))

    def arg(self, node: ast.expr) -> Arg:
        if isinstance(node, ast.List):
            return ListArg(tuple(map(self.arg, node.elts)))
        if isinstance(node, ast.Name):
            return Slot(self.slot(node))
        if isinstance(node, ast.Call):
            return _CALLED[name_of(node.func)](self, node.args)
        return Literal(ast.literal_eval(node))

    def number(self, node: ast.expr) -> float:
        value = self.arg(node)
        assert isinstance(value, Literal) and isinstance(value.value, float)
        return value.value


_CALLED: dict[str, Callable[[_Line, list[ast.expr]], Arg]] = {
    "size": lambda line, args: Expr(line.size(args[0])),
    "named": lambda line, args: Named(*map(ast.literal_eval, args)),
    "pair": lambda line, args: ComplexArg(line.number(args[0]), line.number(args[1])),
    "bits": lambda line, args: Literal(struct.unpack("<d", struct.pack("<Q", ast.literal_eval(args[0])))[0]),
    "real": lambda line, args: Literal(float(ast.literal_eval(args[0]))),
}


def _origin(rest: str) -> str:
    if rest.startswith("#! "):
        return str(ast.literal_eval(rest[3:]))
    return rest.removeprefix("# ")


def _numbered(letter: str, name: str) -> int:
    if not re.fullmatch(letter + "[0-9]+", name):
        raise ValueError(f"{name!r} is not {letter} and a number")
    return int(name[1:])


class _Reader:
    """The parts of the plan read so far."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.parts: dict[str, list[Any]] = {
            "inputs": [],
            "bindings": [],
            "constants": [],
            "kernels": [],
            "bodies": [],
            "labels": [],
            "steps": [],
        }
        self.outputs: tuple[Output, ...] | None = None

    def line(self, line: _Line) -> None:
        part, build = _LINES[line.function]
        if part == "head":
            self.head = build(line)
        elif part == "outputs":
            self.outputs = build(line)
        else:
            self.parts[part].append(build(line))


def _read_tensor(line: _Line) -> TensorInput:
    return TensorInput(
        _numbered("t", line.targets[0]),
        line.spec(line.args[0]),
        line.function == "held",
        line.literal("name", ""),
        line.literal("opaque", False),
        line.literal("multiplied", 0),
    )


def _read_view(line: _Line) -> View:
    _, sizes, strides, _ = line.shape(line.args[1])
    return View(
        _numbered("t", line.targets[0]), line.slot(line.args[0]), sizes, strides, line.size(line.args[2]), line.literal("dtype", None)
    )


def _read_alloc(line: _Line) -> Alloc:
    offset = line.size(line.options["at"]) if "at" in line.options else None
    return Alloc(_numbered("t", line.targets[0]), line.spec(line.args[0]), offset, line.origin)


def _read_launch(line: _Line) -> Launch:
    sizes = line.options.get("sizes")
    return Launch(
        _numbered("k", line.source(line.args[0])),
        tuple(map(line.slot, line.args[1:])),
        line.sizes(sizes.elts) if isinstance(sizes, ast.Tuple) else (),
        line.literal("writes", ()),
        line.literal("checks", ()),
        line.origin,
    )


def _read_call(line: _Line) -> Call:
    kwargs = {}
    if isinstance(line.spread, ast.Dict):
        kwargs = {ast.literal_eval(k): line.arg(v) for k, v in zip(line.spread.keys, line.spread.values, strict=True) if k is not None}
    results = tuple(None if name == "_" else _numbered("t", name) for name in line.targets)
    listed = line.options.get("specs")
    specs = tuple(line.spec(node) if isinstance(node, ast.Call) else None for node in listed.elts) if isinstance(listed, ast.List) else ()
    args = tuple(map(line.arg, line.args[1:]))
    return Call(ast.literal_eval(line.args[0]), args, kwargs, results, line.origin, specs, line.literal("bodies", ()))


def _read_output(line: _Line, node: ast.expr) -> Output:
    if isinstance(node, ast.Constant):
        return NoneOutput()
    return SizeOutput(line.size(node.args[0])) if isinstance(node, ast.Call) else SlotOutput(line.slot(node))


def _read_kernel(line: _Line) -> KernelRef:
    kind, artifact_kind, key, entry = map(ast.literal_eval, line.args)
    return KernelRef(kind, artifact_kind, key, entry, line.literal("meta", {}))


def _read_label(line: _Line) -> Label:
    name, begin, end = map(ast.literal_eval, line.args)
    return Label(name, begin, end, line.literal("depth", 0))


_LINES: dict[str, tuple[str, Callable[[_Line], Any]]] = {
    "plan": (
        "head",
        lambda line: {
            "name": ast.literal_eval(line.args[0]),
            "slots": line.literal("slots", 0),
            "arena": line.size(line.options["arena"]),
            "exclusive": line.literal("exclusive", ()),
            "device": line.literal("device", HOST),
        },
    ),
    "input": ("inputs", _read_tensor),
    "held": ("inputs", _read_tensor),
    "size_input": ("inputs", lambda line: SizeInput(line.targets[0], line.literal("name", ""))),
    "bind": (
        "bindings",
        lambda line: SizeOf(line.targets[0], line.slot(line.args[0]), ast.literal_eval(line.args[1]), line.literal("stride", False)),
    ),
    "constant": (
        "constants",
        lambda line: Constant(_numbered("t", line.targets[0]), line.spec(line.args[0]), bytes.fromhex(ast.literal_eval(line.args[1]))),
    ),
    "kernel": ("kernels", _read_kernel),
    "body": ("bodies", lambda line: []),
    "label": ("labels", _read_label),
    "alloc": ("steps", _read_alloc),
    "view": ("steps", _read_view),
    "launch": ("steps", _read_launch),
    "call": ("steps", _read_call),
    "free": ("steps", lambda line: Free(tuple(map(line.slot, line.args)))),
    "check": ("steps", lambda line: Check(line.size(line.args[0]), ast.literal_eval(line.args[1]), line.literal("error", "RuntimeError"))),
    "define": ("steps", lambda line: Define(line.targets[0], line.size(line.args[0]))),
    "item": ("steps", lambda line: Item(line.targets[0], line.slot(line.args[0]))),
    "sizeof": ("steps", lambda line: SizeOfStep(line.targets[0], line.slot(line.args[0]), ast.literal_eval(line.args[1]))),
    "output": ("outputs", lambda line: tuple(_read_output(line, node) for node in line.args)),
}
"""What each function's line adds, and to which part of the plan."""


def parse(text: str) -> Plan:
    """The plan that `render` wrote as ``text``; empty lines and comment lines are skipped. Raises PlanFormatError (RC004)."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            if line.startswith(_INDENT):
                reader.parts["bodies"][-1].append(line.removeprefix(_INDENT))
                continue
            reader.line(_Line(line.strip()))
        except (SyntaxError, ValueError, AttributeError, KeyError, IndexError, TypeError, AssertionError, struct.error) as error:
            raise PlanFormatError(
                "RC004", what="a line of the plan cannot be read", where=f"line {number}: {line.strip()}", why=repr(error)
            ) from None
    if not reader.head or reader.outputs is None:
        raise PlanFormatError("RC004", what="the text is not a whole plan", why="it lacks plan(...) or output(...)")
    reader.parts["bodies"] = [parse("\n".join(lines)) for lines in reader.parts["bodies"]]
    parts: dict[str, Any] = {name: tuple(items) for name, items in reader.parts.items()}
    return Plan(**reader.head, **parts, outputs=reader.outputs)
