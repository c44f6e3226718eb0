"""The aten graph: values named once, operators without side effects, mutations and aliasing said at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from opmill_fake_tensors.symbols import Index, Sizes

from ..dense import Size, contiguous

NO_LABEL = -1


@dataclass(frozen=True)
class Meta:
    """What a value looks like; sizes and strides in elements. ``dtype`` by torch's name without prefix."""

    dtype: str
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    """Both of type ``Size``."""
    device: str
    opaque: bool = False
    """Whether it lies as only the library knows that made it: strides mean nothing then, and only operators take it."""
    multiplied: int = 0
    """Of a held matrix that stays: by how many rows it is multiplied in products that may keep it in a form of their own; 0 for none."""

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"

    def contiguous(self, sizes: Sequence[Size] | None = None) -> Meta:
        """Such a value in rows without gaps; with ``sizes``, of these."""
        found = self.sizes if sizes is None else tuple(sizes)
        return Meta(self.dtype, found, contiguous(found), self.device)


@dataclass(frozen=True)
class Value:
    """A tensor by name. Operators hold values where torch has tensors."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass
class Node:
    """``results = func(*args, **kwargs)``; arguments hold ``Value``s, sizes, torch constants and lists of these. A result that nobody can
    name is None."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[str | None, ...]
    origin: str = ""
    binds: tuple[tuple[str, int | None, int], ...] = ()
    """Size symbols that the node makes known: each with the result and the dimension that show it, or None where it is the number that the
    node reads."""
    again: bool = False
    """Whether the program asks that its results are computed again for the backward, not kept."""
    label: int = NO_LABEL
    """The innermost label of the program's that it is inside of, by its number in the FX graph's ``meta["labels"]``."""
    kept: bool | None = None
    """What the policy of a checkpoint asks: True, that its results are kept where the backward needs them; False, that they never are."""

    def argument(self, name: str) -> Any:
        """An argument by its name in the operator's schema; None where it is left out."""
        if name in self.kwargs:
            return self.kwargs[name]
        return next((a for a, declared in zip(self.args, self.func._schema.arguments, strict=False) if declared.name == name), None)

    def set_argument(self, name: str, value: Any) -> None:
        """Changes the one of this name; what stands by its place stays so, and those left out before it take their defaults."""
        declared = self.func._schema.arguments
        place = next(k for k, argument in enumerate(declared) if argument.name == name)
        if declared[place].kwarg_only:
            self.kwargs = {**self.kwargs, name: value}
            return
        before = [self.kwargs.get(a.name, a.default_value) for a in declared[len(self.args) : place]]
        self.kwargs = {k: v for k, v in self.kwargs.items() if k not in {a.name for a in declared[: place + 1]}}
        self.args = (*self.args[:place], *before, value, *self.args[place + 1 :])


@dataclass(frozen=True)
class OutputTensor:
    """A value as the user gets it; with ``sizes``, as a strided view of it (offset in elements). ``detached``: the value requires grad,
    and this view of it does not. ``dtype``: the type of a view that reads the memory otherwise (strides and offset are of such elements).
    ``twin`` counts the views before it that are alike and are other objects."""

    value: str
    sizes: tuple[Size, ...] | None = None
    strides: tuple[Size, ...] | None = None
    offset: Size = 0
    detached: bool = False
    dtype: str | None = None
    twin: int = 0


Output = OutputTensor | Index | int | float | bool | None


@dataclass
class AtenGraph:
    """``inputs`` come with each call, in order: tensors, and size symbols (of which ``metas`` says nothing); ``held`` values are the
    tensors given when the plan is bound, in the order of ``held_tensors`` (others behind them are made of weights then); ``constants``
    belong to the graph. ``mutations`` maps an input or held value to the value it holds after the call. ``sizes`` is the environment of its
    size symbols, None where all sizes are numbers."""

    inputs: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    held_tensors: list[torch.Tensor] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    metas: dict[str, Meta] = field(default_factory=dict)
    mutations: dict[str, str] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    sizes: Sizes | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    """Inputs and held values that must begin so many elements behind the beginning of their storage."""

    def beginnings(self) -> tuple[tuple[int, int], ...]:
        """``offsets`` by the inputs' positions."""
        return tuple((self.inputs.index(name), offset) for name, offset in self.offsets.items())

    def makers(self) -> dict[str, Node]:
        """The operator that gives each value."""
        return {name: node for node in self.nodes for name in node.results if name is not None}

    def readers(self) -> Counter[str]:
        """How often each value is read: by operators, as an output and as what is written to an input."""
        found = Counter(v.name for node in self.nodes for v in values_in((node.args, node.kwargs)))
        found.update(out.value for out in self.outputs if isinstance(out, OutputTensor))
        found.update(self.mutations.values())
        return found

    def origins(self) -> dict[str, str]:
        """Where in the program each value is computed: the origin of its operator. Inputs have none."""
        return {name: node.origin for name, node in self.makers().items()}

    def symbols(self) -> dict[str, int | None]:
        """The size symbols with their values in the captured call; None for those that depend on data."""
        return {} if self.sizes is None else {name: symbol.hint for name, symbol in self.sizes.symbols.items()}

    def __str__(self) -> str:
        lines = [
            f"{kind} {n}: {self.metas.get(n, 'a size')}" for kind, names in (("input", self.inputs), ("held", self.held)) for n in names
        ]
        lines += [f"constant {n}: {self.metas[n]}" for n in self.constants]
        for node in self.nodes:
            left = ", ".join(f"{r}: {self.metas[r]}" if r else "_" for r in node.results)
            arguments = [show(a) for a in node.args] + [f"{k}={show(v)}" for k, v in node.kwargs.items()]
            lines.append(
                f"{left} = {node.func.name().removeprefix('aten::')}({', '.join(arguments)})"
                + (f"   # {node.origin}" if node.origin else "")
            )
        lines += [f"{target} <- {value}" for target, value in self.mutations.items()]
        lines.append("return " + ", ".join(_show_output(o) for o in self.outputs))
        return "\n".join(lines)


def show(arg: Any) -> str:
    """An argument as text."""
    if isinstance(arg, (list, tuple)):
        return "[" + ", ".join(map(show, arg)) + "]"
    return str(arg)


def _show_output(out: Output) -> str:
    if isinstance(out, OutputTensor) and out.sizes is not None:
        typed = f".view({out.dtype})" if out.dtype else ""
        return f"{out.value}{typed}.as_strided({list(out.sizes)}, {list(out.strides or ())}, {out.offset})"
    return out.value if isinstance(out, OutputTensor) else str(out)


def values_in(arg: Any) -> list[Value]:
    """All values in an argument, in order."""
    found: list[Value] = []
    _collect(arg, found)
    return found


def _collect(arg: Any, found: list[Value]) -> None:
    if type(arg) is Value:
        found.append(arg)
    elif isinstance(arg, (list, tuple)):
        for a in arg:
            _collect(a, found)
    elif type(arg) is dict:
        for a in arg.values():
            _collect(a, found)


_HOLDING = frozenset((Value, tuple, list, dict))
"""Types of what values are in."""


def replace_values(arg: Any, new: Mapping[str, str]) -> Any:
    """``arg`` with values renamed."""
    kind = type(arg)
    if kind is Value:
        name = new.get(arg.name)
        return arg if name is None else Value(name)
    if kind is tuple or kind is list:
        return kind([replace_values(a, new) if type(a) in _HOLDING else a for a in arg])
    return {k: replace_values(v, new) for k, v in arg.items()} if kind is dict else arg
