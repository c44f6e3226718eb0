"""Sizes between the two worlds of a capture: ``torch.SymInt`` while operators run on fakes, expressions in the graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.symbols import Decision, Index, Relation, Sizes, index_of, sizes_of, sym_int

from ..dense import Size
from .graph import AtenGraph, Meta, Node, Output, OutputTensor

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def size_of(value: Any) -> Size:
    """An ``int`` or a ``torch.SymInt`` as a size."""
    if type(value) is torch.SymInt:
        return _plain(index_of(value))
    return int(value)


def _plain(value: Index) -> Size:
    return value if (known := value.constant) is None else known


def recorded(arg: Any) -> Any:
    """An argument of an operator as a graph has it. A symbolic float or truth value is assumed to be what it is."""
    kind = type(arg)
    if kind is torch.SymInt:
        return size_of(arg)
    if kind is torch.SymFloat:
        return float(arg)
    if kind is torch.SymBool:
        return bool(arg)
    return kind(map(recorded, arg)) if kind in (list, tuple) else tuple(map(recorded, arg)) if kind is torch.Size else arg


def traced(arg: Any, sizes: Sizes | None) -> Any:
    """The reverse: sizes as torch takes them."""
    if isinstance(arg, Index):
        assert sizes is not None
        return sym_int(sizes, arg)
    return type(arg)(traced(a, sizes) for a in arg) if type(arg) in (list, tuple) else arg


def environment_of(values: Iterable[Any]) -> Sizes | None:
    """The environment of the symbols in these inputs (fakes, SymInts); None where there are none."""
    for value in values:
        found = sizes_of(value)
        if found is None and isinstance(value, FakeTensor):
            found = next((s for n in (*value.shape, *value.stride()) if (s := sizes_of(n)) is not None), None)
        if found is not None:
            return found
    return None


def example_values(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """What each placeholder stands for: the symbolic value that its maker noted, else the example itself."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(places) != len(example_inputs):
        return list(example_inputs)
    noted = (n.meta.get("example_value") for n in places)
    return [v if _is_symbolic(v) else x for v, x in zip(noted, example_inputs, strict=True)]


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value._has_symbolic_sizes_strides
    return isinstance(value, _SYMBOLIC)


def symbols_in(graph: AtenGraph) -> list[str]:
    """The size symbols that a graph uses, in the order of their environment."""
    if graph.sizes is None:
        return []
    names = [*graph.inputs, *graph.held, *(r for n in graph.nodes for r in n.results if r)]
    metas = [graph.metas[n] for n in names if n in graph.metas]
    numbers = [n for m in metas for n in (*m.sizes, *m.strides)]
    numbers += [i for n in graph.nodes for i in _numbers((n.args, n.kwargs))] + [i for o in graph.outputs for i in _numbers_of_output(o)]
    used = frozenset[str]().union(*(n.symbols for n in numbers if isinstance(n, Index)))
    return [name for name in graph.sizes.symbols if name in used]


def _numbers(arg: Any) -> list[Index]:
    if isinstance(arg, Index):
        return [arg]
    items = arg.values() if isinstance(arg, dict) else arg if isinstance(arg, (list, tuple)) else ()
    return [i for a in items for i in _numbers(a)]


def _numbers_of_output(out: Output) -> list[Index]:
    return _numbers((*(out.sizes or ()), *(out.strides or ()), out.offset) if isinstance(out, OutputTensor) else out)


def unbound(metas: Iterable[Meta | None], bound: Collection[str], environment: Sizes | None) -> Iterator[tuple[str, int, int]]:
    """Symbols that depend on data and are sizes of these results, each with where it shows first."""
    if environment is None:
        return
    found = set(bound)
    for k, meta in enumerate(metas):
        for dim, size in enumerate(meta.sizes if meta is not None else ()):
            known = environment.symbols.get(name := str(size)) if isinstance(size, Index) else None
            if known is not None and known.hint is None and not known.definition and name not in found:
                found.add(name)
                yield name, k, dim


def roots_of(names: Iterable[str], environment: Sizes | None) -> set[str]:
    """The symbols that depend on data which some symbols are, or are computed from."""
    found: set[str] = set()
    stack = list(names)
    while stack and environment is not None:
        symbol = environment.symbols.get(stack.pop())
        if symbol is None or symbol.hint is not None:
            continue
        if symbol.definition:
            stack += _NAME.findall(symbol.definition)
        else:
            found.add(symbol.name)
    return found


def sizes_behind(node: Node, graph: AtenGraph) -> set[str]:
    """Symbols that depend on data, made known by other nodes, that the node or the layout of its results uses."""
    if graph.sizes is None or not graph.sizes.data():
        return set()
    metas = [graph.metas[r] for r in node.results if r]
    used = {s for i in (*_numbers((node.args, node.kwargs)), *_numbers([(m.sizes, m.strides) for m in metas])) for s in i.symbols}
    return roots_of(used, graph.sizes) - {symbol for symbol, _, _ in node.binds}


def late_sizes(environment: Sizes | None) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """What follows from sizes that only data tell, and what is demanded of them, as conditions of a plan and messages."""
    if environment is None:
        return {}, ()
    definitions = {name: symbol.definition for name, symbol in environment.symbols.items() if symbol.definition}
    return definitions, tuple(
        dict.fromkeys((f"({d.relation.expr}) {d.relation.kind} 0", _demand(d, environment)) for d in environment.asserted)
    )


def _demand(decision: Decision, environment: Sizes) -> str:
    names = sorted(decision.relation.expr.symbols)
    origins = (f"{name} is {environment.symbols[name].origin}" for name in names if environment.symbols[name].hint is None)
    asked = " at ".join(part for part in (decision.operator, decision.where) if part) or "the program"
    return f"[RC059] {decision.relation} does not hold; asked by {asked}; {', '.join(origins)}"


_NAME = re.compile(r"[A-Za-z_]\w*")

# ---- equal sizes under one name ------------------------------------------------------------------------------------------


def unify(graph: AtenGraph) -> None:
    """Writes all sizes in terms of symbols that no decision of the capture has tied to others, and as numbers where it has decided them."""
    if graph.sizes is None:
        return
    sizes = _Simplifier(graph.sizes)
    graph.metas = {name: _meta(meta, sizes) for name, meta in graph.metas.items()}
    graph.nodes = [replace(n, args=_args(n.args, sizes), kwargs=_args(n.kwargs, sizes)) for n in graph.nodes]
    graph.outputs = [_output(o, sizes) for o in graph.outputs]


class _Simplifier(dict[Index, Size]):
    """Expressions as they are known to be, each found once."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def __missing__(self, value: Index) -> Size:
        simple = _plain(self.sizes.simplify(value))
        if isinstance(simple, Index) and self.sizes.has_hint(simple):
            number = self.sizes.hint(simple)
            if self.sizes.known(Relation(simple - number, "==")):
                simple = number
        self[value] = simple
        return simple


def _simple(value: Any, sizes: _Simplifier) -> Any:
    return sizes[value] if isinstance(value, Index) else value


def _meta(meta: Meta, sizes: _Simplifier) -> Meta:
    if all(type(n) is int for n in (*meta.sizes, *meta.strides)):
        return meta
    return Meta(meta.dtype, tuple(_simple(n, sizes) for n in meta.sizes), tuple(_simple(n, sizes) for n in meta.strides), meta.device)


def _args(arg: Any, sizes: _Simplifier) -> Any:
    if isinstance(arg, (list, tuple)):
        return type(arg)(_args(a, sizes) for a in arg)
    return {k: _args(a, sizes) for k, a in arg.items()} if isinstance(arg, Mapping) else _simple(arg, sizes)


def _output(out: Output, sizes: _Simplifier) -> Output:
    if not isinstance(out, OutputTensor) or out.sizes is None:
        return _simple(out, sizes)
    strides = tuple(_simple(n, sizes) for n in out.strides or ())
    return replace(out, sizes=tuple(_simple(n, sizes) for n in out.sizes), strides=strides, offset=_simple(out.offset, sizes))


__all__ = [
    "environment_of",
    "example_values",
    "late_sizes",
    "recorded",
    "size_of",
    "roots_of",
    "sizes_behind",
    "symbols_in",
    "traced",
    "unbound",
    "unify",
]
