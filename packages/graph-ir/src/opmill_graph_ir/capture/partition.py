"""Splits a joint graph into a forward and a backward graph, and decides what the forward saves for the backward.

What depends on a tangent is backward, and so are the exchanges with other processes that formulas of autograd make. What the forward's
outputs need is forward. Of the forward's values that the backward reads, views and cheap pointwise values may be computed again (they fuse
into their readers), and so may what norms return (``normalized.py``); what is saved is chosen so that it has the fewest bytes. Autograd's
formulas read what eager would have saved, so the memory held between the two is at most eager's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import torch

from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.symbols import index
from opmill_runtime_cache.devices.registry import traits_of

from ..ops.records import record_of
from .clean import must_run
from .cut import INFINITE, Network
from .graph import AtenGraph, Meta, Node, Output, OutputTensor, values_in
from .histories import keep_before, left_in_place
from .joint import Joint, moves_on
from .normalized import ways
from .places import is_gradient
from .sizes import roots_of, sizes_behind, symbols_in

_LONGEST_CHAIN = 3
"""Values of the backward that are computed again one from the other."""
_LITTLE = 4096
"""Bytes that are kept rather than that others may not write to what they were computed of."""
_UNKNOWN = 8192
"""What a size that depends on data counts as."""


@dataclass
class Backward:
    """The backward of a part of the graph. ``graph.inputs`` are its tangents, then ``saved`` by name: inputs and held values of the
    forward, and values that it computed; then ``sizes``, the symbols that it uses."""

    graph: AtenGraph
    saved: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass
class Halves:
    """``forward.outputs`` are the user's outputs, then the saved values that are none of them; then ``sizes``, the symbols that the
    backwards use. ``backwards``: one for each of ``Joint.parts``, None for what is spent. ``saved``: what they take, by name. ``left``:
    those of them that the forward leaves in an input or a held tensor, by its name, and the backward reads there."""

    forward: AtenGraph
    backwards: tuple[Backward | None, ...]
    saved: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def graphs(self) -> list[AtenGraph]:
        """The forward, then the backwards that there are."""
        return [self.forward, *(b.graph for b in self.backwards if b is not None)]

    @property
    def backward(self) -> AtenGraph:
        """Of a graph with one part: its backward."""
        [backward] = self.backwards
        assert backward is not None
        return backward.graph


def partition(joint: Joint, *, exact: bool = False) -> Halves:
    """The two graphs of a joint one, or more where parts of it are differentiated one after the other. ``exact``: what is computed again
    must be what it was to the last bit."""
    try:
        return _partition(joint, exact)
    except _Spoiled as spoiled:
        keep_before(joint.graph, spoiled.names)
        return _partition(joint, exact)


class _Spoiled(Exception):
    """The backward needs what the tensors of these ``names`` held before the forward writes to them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = names


def _partition(joint: Joint, exact: bool) -> Halves:
    graph = joint.graph
    makers = {r: n for n in graph.nodes for r in (*n.results, *_bound(n)) if r}
    tangents = graph.inputs[joint.inputs :]
    late = _depending(graph, tangents, [n for n in graph.nodes if _of_backward(n)])
    outputs = graph.outputs[: joint.outputs]
    roots = [*_values(outputs), *graph.mutations.values()]
    roots += [r for n in graph.nodes if id(n) not in late and moves_on(n) for r in n.results if r]
    roots += [symbol for n in graph.nodes if id(n) not in late for symbol in _bound(n)]
    needed = [n for n in graph.nodes if id(n) not in late and not is_gradient(n.origin) and must_run(n, graph)]
    forward = _closure(graph, makers, [*roots, *(name for n in needed for name in _needs(n, graph))]) | set(map(id, needed))
    again = ways(graph, () if exact else (n for n in graph.nodes if id(n) in forward))
    left = left_in_place(graph, joint.counted.keys() - set(joint.grown))  # those that begin a new history are results
    split = _Split(
        graph, {**makers, **again.makers}, again.passing, forward, late, tangents, list(_values(outputs)), frozenset(joint.targets), left
    )
    backwards = tuple(
        None if part.spent else split.backward(part.tangents, [graph.outputs[joint.outputs + k] for k in part.gradients])
        for part in joint.parts
    )
    saved = dict.fromkeys(name for b in backwards if b for name in b.saved)
    sizes = dict.fromkeys(name for b in backwards if b for name in b.sizes)
    known = {o.value for o in outputs if isinstance(o, OutputTensor) and o.sizes is None}
    known |= {graph.mutations[name] for name in joint.as_left}
    left = {name: place for name, place in left.items() if name in split.read_in_place}
    outside = {*graph.inputs, *graph.held, *graph.constants, *left}
    extra = [OutputTensor(name) for name in saved if name not in known and name not in outside]
    first = _graph(graph, [n for n in graph.nodes if id(n) in forward], graph.inputs[: joint.inputs], [*outputs, *extra], graph.held)
    first.mutations = dict(graph.mutations)
    first.outputs += map(index, sizes)
    return Halves(first, backwards, tuple(saved), tuple(sizes), left)


@dataclass
class _Split:
    """What is known while the backwards of ``graph`` are taken out of it, one after the other. ``makers``: what makes each value in a
    backward; ``passing``: values that no forward has. ``forward`` and ``late`` are nodes, by id: of the forward, and those that depend on
    tangents. ``leaving``: values that the forward returns or keeps for a backward before. ``weights``: what gradients are for. ``left``:
    what the forward leaves in inputs and held tensors; ``read_in_place``: of that, what eager's formulas read, which they do there."""

    graph: AtenGraph
    makers: dict[str, Node]
    passing: Set[str]
    forward: set[int]
    late: set[int]
    tangents: list[str]
    leaving: list[str]
    weights: frozenset[str]
    left: Mapping[str, str]
    read_in_place: set[str] = field(default_factory=set)

    def backward(self, tangents: Sequence[int], gradients: list[Output]) -> Backward:
        graph = self.graph
        nodes, saved, in_place = _backward(
            graph,
            self.makers,
            self.passing,
            self.forward,
            list(_values(gradients)),
            set(self.tangents),
            self.leaving,
            self.weights,
            self.left,
        )
        self.leaving += saved
        self.read_in_place |= in_place
        second = _graph(
            graph, _just_in_time(graph, self.makers, nodes, self.late), [*(self.tangents[k] for k in tangents), *saved], gradients, []
        )
        own = {symbol for n in second.nodes for symbol in _bound(n)}
        sizes = tuple(name for name in symbols_in(second) if not roots_of([name], graph.sizes) & own)
        second.inputs += sizes
        return Backward(second, tuple(saved), sizes)


def _bound(node: Node) -> list[str]:
    return [symbol for symbol, _, _ in node.binds]


def _needs(node: Node, graph: AtenGraph) -> list[str]:
    """What must be known before the node runs: values, and sizes that only data tell."""
    return [*(v.name for v in values_in((node.args, node.kwargs))), *sizes_behind(node, graph)]


def _values(outputs: Iterable[Output]) -> Iterable[str]:
    return (o.value for o in outputs if isinstance(o, OutputTensor))


def _of_backward(node: Node) -> bool:
    """Whether a node is an exchange with other processes that autograd's formulas make. Those of the forward's values alone might run in
    the forward as well; but the other processes meet it in the backward where they run uncompiled, or differentiate another graph."""
    return is_gradient(node.origin) and not node.again and describe(node.func).exchanges


def _depending(graph: AtenGraph, names: Iterable[str], first: Iterable[Node]) -> set[int]:
    """Nodes that need any of these values, or what these nodes give, and these themselves, by id."""
    reached, found, begin = set(names), set(), set(map(id, first))
    for node in graph.nodes:
        if id(node) in begin or any(name in reached for name in _needs(node, graph)):
            found.add(id(node))
            reached.update(r for r in (*node.results, *_bound(node)) if r)
    return found


def _closure(graph: AtenGraph, makers: dict[str, Node], roots: Iterable[str]) -> set[int]:
    found: set[int] = set()
    stack = list(roots)
    while stack:
        node = makers.get(stack.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            stack += _needs(node, graph)
    return found


def _backward(
    graph: AtenGraph,
    makers: dict[str, Node],
    passing: Set[str],
    forward: set[int],
    roots: list[str],
    tangents: set[str],
    leaving: Sequence[str],
    weights: frozenset[str],
    left: Mapping[str, str],
) -> tuple[set[int], list[str], set[str]]:
    """The backward's nodes by id, the forward values that it takes, and those of them that it reads where the forward has left them.
    ``passing``: values that no forward has, ``leaving``: that are there anyway; ``weights``: what gradients are for; ``left``: see
    ``left_in_place``."""
    outside = {*graph.inputs, *graph.held, *graph.constants} - tangents
    given = {symbol for n in graph.nodes if id(n) in forward for symbol in _bound(n)}  # the forward returns these
    makers = {name: node for name, node in makers.items() if name not in given}
    _, needed = _reading(
        graph, makers, roots, {r for n in graph.nodes if id(n) in forward and not _is_view(n) for r in n.results if r} | outside
    )
    in_place = left.keys() & needed
    outside |= in_place
    free = {*graph.held, *graph.constants, *leaving, *outside.intersection(needed)}
    kept = frozenset(r for n in graph.nodes if n.kept for r in n.results if r)
    saved = _cheapest(graph, makers, passing, needed, free, weights, kept, in_place) | outside
    if ends := _ends_of_chains(graph, needed, saved | free):
        saved = _cheapest(graph, makers, passing, needed, free, weights, kept | ends, in_place) | outside
    nodes, taken = _reading(graph, makers, roots, saved)
    if spoiled := [name for name in graph.mutations if name in taken]:
        raise _Spoiled(spoiled)
    return nodes, [name for name in taken if name not in graph.constants], in_place.intersection(taken)


def _reading(graph: AtenGraph, makers: dict[str, Node], roots: list[str], known: Set[str]) -> tuple[set[int], list[str]]:
    """The nodes, by id, that make ``roots`` from values that are ``known``, and those of these that they take."""
    nodes: set[int] = set()
    taken: dict[str, None] = {}
    names = list(roots)
    while names:
        name = names.pop()
        node = makers.get(name)
        if name in known:
            taken.setdefault(name)
        elif node is not None and id(node) not in nodes:
            nodes.add(id(node))
            names += _needs(node, graph)
    return nodes, list(taken)


def _may_run_again(node: Node) -> bool:
    if node.again:
        return not moves_on(node) and not node.binds
    return len(node.results) == 1 and record_of(node.func.name()).recompute == "cheap"


def _is_copy(node: Node | None) -> bool:
    """Whether the program has made a copy (``clone()``): of memory that others may write to, it is there to be kept in place of that, as a
    queue of keys is that a step of training ends with writing to."""
    if node is None or node.again or node.func is not torch.ops.aten.clone.default:
        return False
    return node.kwargs.get("memory_format") in (None, torch.preserve_format)


def _exchanged_again(makers: dict[str, Node], needed: Iterable[str]) -> set[str]:
    """What checkpointed blocks got from other processes and the backward reads itself, as gathered weights: it comes again, as in eager.
    Sizes have no say in it: they may differ from process to process, and all must take part or none."""
    found: set[str] = set()
    for name in _through_views(makers, needed):
        node = makers.get(name)
        while node is not None and node.again and not node.kept and describe(node.func).exchanges:
            found.update(r for r in node.results if r)
            node = makers.get(node.args[0].name) if node.func.name() == "_c10d_functional::wait_tensor" else None
    return found


def _ends_of_chains(graph: AtenGraph, needed: Iterable[str], known: Set[str]) -> frozenset[str]:
    """Values on GPUs that are rather kept: else they would be computed again from one another in a long chain. The backward needs the last
    one first, as of a residual stream, so all of them would be computed and lie in memory from its beginning."""
    wanted, depths, found = set(needed), dict[str, int](), set[str]()
    producers = graph.makers()
    for node in graph.nodes:
        name = node.results[0] if len(node.results) == 1 else None
        if name is None or name in known or _is_view(node) or not _may_run_again(node):
            continue
        bases = _through_views(producers, (v.name for v in values_in((node.args, node.kwargs))))
        depth = max((depths.get(base, 0) for base in bases), default=0) + (name in wanted)
        if depth > _LONGEST_CHAIN and traits_of(graph.metas[name].device).grid:
            found.add(name)
            depth = 0
        depths[name] = depth
    return frozenset(found)


def _cheapest(
    graph: AtenGraph,
    makers: dict[str, Node],
    passing: Set[str],
    needed: list[str],
    free: Set[str],
    weights: frozenset[str],
    kept: Set[str],
    in_place: Set[str],
) -> set[str]:
    """The values to save so that all that are needed can be had, of the fewest bytes: a minimum cut between what cannot be computed
    again and what is needed, each value an edge as wide as it is large; of two as large an input is taken, which need not be written. What
    is ``free`` is there anyway, what is ``passing`` cannot be saved; an input is free where the backward reads it in any case, or it would
    live longer for our sake. A copy of what is outside is saved, and not what it is of; so is little that is computed of buffers and
    inputs, which a program may write to before the backward, and whatever is computed of what is read ``in_place``, which this program
    does write to. ``kept`` are computed once, ``weights`` are what gradients are for."""
    network, seen, stack, given = Network(), set(needed), list(needed), set(graph.inputs)
    outside, own = given.union(graph.held), graph.makers()
    written, symbols = {*in_place, *graph.mutations}, graph.symbols()  # their contents change when the forward ends, or later
    exchanged = _exchanged_again(makers, needed)

    def little(name: str, node: Node | None) -> bool:
        return node is not None and not node.again and own.get(name) is node and _bytes(graph.metas[name], symbols) <= _LITTLE

    for name in needed:
        network.add((name, True), "needed", INFINITE)
    while stack:
        name = stack.pop()
        node = makers.get(name)
        bases = list(_through_views(makers, (v.name for v in values_in((node.args, node.kwargs))))) if node is not None else []
        repeatable = node is not None and (name in exchanged or _may_run_again(node))
        again = repeatable and name not in kept and not written.intersection(bases)
        if again and outside.intersection(bases) and (_is_copy(node) or (little(name, node) and not weights.issuperset(bases))):
            again = False
        never = name in passing or (again and node is not None and (node.kept is False or name in exchanged))
        width = INFINITE if never else 2 * max(_bytes(graph.metas[name], symbols), 1) - (name in given)
        network.add((name, False), (name, True), 0 if name in free else width)
        if not again:
            network.add("given", (name, False), INFINITE)
            continue
        for base in bases:
            network.add((base, True), (name, False), INFINITE)
            if base not in seen:
                seen.add(base)
                stack.append(base)
    behind = network.sink_side("given", "needed")
    return {name for name in seen if (name, True) in behind and (name, False) not in behind}


def _bytes(meta: Meta, symbols: Mapping[str, int | None]) -> int:
    sizes = (n if isinstance(n, int) else n.evaluate({s: symbols[s] or _UNKNOWN for s in n.symbols}) for n in meta.sizes)
    return int(getattr(torch, meta.dtype).itemsize * math.prod(sizes))


def _just_in_time(graph: AtenGraph, makers: dict[str, Node], chosen: set[int], late: set[int]) -> list[Node]:
    """The chosen nodes in an order that is right, what is computed again right before it is first read: it lives for short."""
    out: list[Node] = []
    done: set[int] = set()
    for node in [n for n in graph.nodes if id(n) in chosen and id(n) in late] + [n for n in graph.nodes if id(n) in chosen]:
        stack = [node]
        while stack:
            found = (makers.get(name) for name in _needs(stack[-1], graph))
            missing = [n for n in found if n is not None and id(n) in chosen and id(n) not in done]
            if missing:
                stack += missing[:1]
                continue
            top = stack.pop()
            if id(top) not in done:
                done.add(id(top))
                out.append(top)
    return out


def _through_views(makers: dict[str, Node], names: Iterable[str]) -> Iterable[str]:
    for name in names:
        while name in makers and _is_view(makers[name]):
            name = values_in(makers[name].args)[0].name
        yield name


def _is_view(node: Node) -> bool:
    op = describe(node.func)
    return op.aliases and not op.writes


def _graph(joint: AtenGraph, nodes: list[Node], inputs: list[str], outputs: list[Output], held: list[str]) -> AtenGraph:
    """A graph of some of the joint graph's nodes; held values and constants that it does not read are dropped."""
    read = {v.name for n in nodes for v in values_in((n.args, n.kwargs))} | set(_values(outputs)) | set(joint.mutations if held else ())
    pairs = [(h, t) for h, t in zip(joint.held, joint.held_tensors, strict=True) if h in held and h in read]
    return AtenGraph(
        inputs,
        [h for h, _ in pairs],
        [t for _, t in pairs],
        {n: t for n, t in joint.constants.items() if n in read},
        nodes,
        joint.metas,
        {},
        outputs,
        joint.sizes,
    )
