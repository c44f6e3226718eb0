"""Compiles a graph with wrappers among its inputs, its outputs, or in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.wrappers import Form
from opmill_runtime_cache.store import Store, key_of

from ..enabling import turns_gradients_on
from ..errors import GraphError
from . import ANEW, INSIDE, KEY, MARK
from .boundary import Sizes, WrappedGraph, carriers
from .input_views import views_taken_out
from .nodes import Looks, OtherGradient, Unwrap, Wrap, apart
from .stored import KIND, Ends, Names, Unnamed, meshes_of

_ATTEMPTS = 3
"""How often a graph is captured to know how its gradients look."""


def compile_wrapped(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    compile_plain: Callable[[torch.fx.GraphModule, list[Any]], Any],
    kept: tuple[Store, str | None] | None = None,
) -> WrappedGraph:
    """``compile_plain`` compiles a graph whose inputs and outputs are plain. ``kept``: where what was found out about the graph is kept,
    and the graph's key; None where it has none. Raises ``GraphError`` as ``compile_plain`` does, and GI060 to GI062."""
    opened = [apart(x) if isinstance(x, torch.Tensor) else (None, [x]) for x in inputs]
    forms = [form for form, _ in opened]
    differentiates = torch.is_grad_enabled() or turns_gradients_on(gm, inputs)
    wanted = [k for k, form in enumerate(forms) if form is not None and differentiates and inputs[k].requires_grad]
    gradients = {k: _supposed(inputs[k]) for k in wanted}
    calm = not differentiates or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
    gm, views = views_taken_out(gm, [k for k, form in enumerate(forms) if form is not None], inputs if calm else None)
    if kept is not None and kept[1] is not None and views is not None:
        kept = kept[0], key_of(kept[1], views.said)
    memory = Memory.of(gm, inputs, forms, kept)
    known = memory.read() if memory is not None else None
    if known is not None:
        gradients = known.gradients
        for position in gradients.keys() - wanted:
            opened[position] = None, [inputs[position].detach()]
    for _ in range(_ATTEMPTS + len(inputs)):
        places = _places(opened)
        module, unwrap = _between(gm, forms, gradients, places)
        if memory is not None:
            memory.mark(module, gradients, known is None)
        flat = _once([leaf for _, leaves in opened for leaf in leaves], places)
        flat += [carrier.requires_grad_() for k, looks in gradients.items() for carrier in _carriers(looks, inputs[k])]
        try:
            compiled = compile_plain(module, flat)
        except OtherGradient as other:
            position = other.position
            if other.flat:
                starts = [places[sum(len(leaves) for _, leaves in opened[:k])] for k in range(len(opened))]
                position = next((k for k, (form, _) in enumerate(opened) if form is None and starts[k] == other.position), -1)
                if position < 0:
                    what = "a wrapper that is the gradient of a plain tensor that the graph holds"
                    raise GraphError("GI061", what, hint="pass the tensor as an argument") from None
                opened[position] = None, [inputs[position].detach()]
            gradients, known = dict(sorted({**gradients, position: other.looks}.items())), None
            continue
        ends = known if known is not None and not unwrap.ran else Ends(gradients, unwrap.outs, unwrap.bound)
        if memory is not None and unwrap.ran:
            memory.write(ends)
        return WrappedGraph(compiled, forms, gradients, ends.outs, ends.bound, _sizes(flat, gradients), places, gm, views)
    raise GraphError("GI061", "gradients of a wrapper that look otherwise each time the graph is captured")


def _places(opened: Sequence[tuple[Form | None, Sequence[Any]]]) -> list[int]:
    """Of each plain tensor inside of the inputs, which plain input it is: one that says where rows lie is one input for all jagged tensors
    that have it, and where it is passed by itself."""
    first: dict[int, int] = {}
    places: list[int] = []
    for form, leaves in opened:
        for leaf, own in zip(leaves, (False,) if form is None else form.differentiated, strict=True):
            said = not own and isinstance(leaf, torch.Tensor) and not leaf.is_floating_point()
            places.append(first.setdefault(id(leaf) if said else -1 - len(places), len(first)))
    return places


def _once(leaves: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The plain inputs."""
    return [leaves[places.index(k)] for k in range(max(places, default=-1) + 1)]


class Memory:
    """What the store keeps of a graph with wrappers, whose ``key`` it is."""

    def __init__(self, store: Store, key: str, names: Names, spaces: Sequence[str]) -> None:
        self.store, self.key, self.names, self.spaces = store, key, names, tuple(spaces)

    @classmethod
    def of(
        cls, gm: torch.fx.GraphModule, inputs: Sequence[Any], forms: Sequence[Form | None], kept: tuple[Store, str | None] | None
    ) -> Memory | None:
        """None where nothing is kept: the graph has no key, or sizes are symbolic."""
        if kept is None or kept[1] is None:
            return None
        leaves = [leaf for x in inputs for leaf in (apart(x)[1] if isinstance(x, torch.Tensor) else [x])]
        if any(type(n) is not int for leaf in leaves if isinstance(leaf, torch.Tensor) for n in (*leaf.shape, *leaf.stride())):
            return None
        if any(isinstance(leaf, torch.SymInt) for leaf in leaves):
            return None
        packages = {str(form.cls.__module__).partition(".")[0] for form in forms if form is not None} - {"torch"}
        return cls(kept[0], kept[1], Names(meshes_of(gm, forms)), sorted(packages))

    def read(self) -> Ends | None:
        data = self.store.get(KIND, self.key)
        return None if data is None else Ends.decoded(data, self.names)

    def write(self, ends: Ends) -> None:
        try:
            self.store.put(KIND, self.key, ends.encoded(self.names))
        except Unnamed:
            return

    def mark(self, module: torch.fx.GraphModule, gradients: dict[int, Looks], anew: bool) -> None:
        """Names a graph of plain tensors whose inputs have these gradients."""
        try:
            module.meta[KEY] = self.key, repr([[k, self.names.looks(looks)] for k, looks in gradients.items()])
        except Unnamed:
            return
        module.meta[ANEW] = anew
        module.meta[INSIDE] = ("_c10d_functional", "_c10d_functional_autograd", *self.spaces)


def _sizes(flat: Sequence[Any], gradients: dict[int, Looks]) -> Sizes | None:
    """What tells the sizes of gradients, where they are symbolic. Raises GraphError GI061 where nothing does."""
    sizes = Sizes.of(flat)
    if sizes is not None:
        sizes.of_call(gradients, flat)
    return sizes


def _supposed(x: Any) -> Looks:
    """A gradient like the tensor itself, or, where that has integers inside, a plain one."""
    looks = Looks.of(x)
    return looks if looks.differentiable else Looks(None, (tuple(x.shape),), (x.dtype,))


def _carriers(looks: Looks, like: Any) -> list[Any]:
    if not looks.differentiable:
        what, hint = "a gradient that is a wrapper with integers inside", "let its class give plain gradients"
        raise GraphError("GI061", what, why="integers have no gradient", hint=hint)
    sample = apart(like)[1][0]
    if not isinstance(sample, FakeTensor):
        return carriers(looks, like.device)
    with torch._C._DisableTorchDispatch():
        metas = [
            torch.empty_strided(tuple(n), (0,) * len(n), dtype=dtype, device="meta")
            for n, dtype in zip(looks.sizes, looks.dtypes, strict=True)
        ]
    return [sample.context.from_meta(meta, like.device) for meta in metas]


def _between(
    gm: torch.fx.GraphModule, forms: Sequence[Form | None], gradients: dict[int, Looks], which: Sequence[int]
) -> tuple[torch.fx.GraphModule, Unwrap]:
    """The graph with plain inputs and outputs. ``which``: of each tensor inside of the inputs, which plain input it is."""
    graph = torch.fx.Graph()
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given: list[torch.fx.Node] = []
    inside: list[list[torch.fx.Node]] = []
    numbers = iter(which)
    for node, form in zip(places, forms, strict=True):
        inside.append([])
        for k in range(1 if form is None else form.count):
            if (number := next(numbers)) == len(given):
                given.append(graph.placeholder(node.name if form is None else f"{node.name}_{k}"))
            inside[-1].append(given[number])
    carry = {k: [graph.placeholder(f"{places[k].name}_gradient_{i}") for i in range(len(looks.sizes))] for k, looks in gradients.items()}
    env: dict[torch.fx.Node, torch.fx.Node] = {}
    wraps = []
    for k, (node, form, own) in enumerate(zip(places, forms, inside, strict=True)):
        if form is None and k not in gradients:
            env[node] = own[0]
            own[0].meta = dict(node.meta)
            continue
        wraps.append(Wrap(k, form, gradients.get(k)))
        env[node] = graph.call_function(wraps[-1], (*own, *carry.get(k, ())))
    unwrap = Unwrap(wraps)
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(graph.call_function(unwrap, (torch.fx.node.map_arg(node.args[0], env.__getitem__), tuple(given))))
        elif node.op != "placeholder":
            env[node] = graph.node_copy(node, env.__getitem__)
    module = torch.fx.GraphModule(gm, graph)
    module.meta.update({key: value for key, value in gm.meta.items() if key != MARK})
    module.meta[INSIDE] = ("_c10d_functional", "_c10d_functional_autograd")
    return module, unwrap


__all__ = ["compile_wrapped"]
