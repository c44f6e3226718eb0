"""Forward and backward of a torch-level FX graph in one aten graph: autograd itself runs on the fakes while they are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor, no_hooks_on_saved_tensors
from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.strides import like as strides_like
from opmill_runtime_cache.devices.registry import traits_of, types

from ..errors import GraphError
from ..wrapped import INSIDE
from ..wrapped.nodes import OtherGradient, refuse_mixed, refuse_wrapper
from .backward_components import groups
from .clean import clean
from .functionalize import finish, interpret, overlaps_itself
from .graph import NO_LABEL, AtenGraph, Meta, Node, Output, OutputTensor, Value
from .histories import ResultsRecorder, new_histories, read_by, refused_as_leaf, sources_of, written_once
from .masks import keep_as_truths
from .own_gradients import set_gradients
from .places import BACKWARD
from .record import Recorder
from .repeated_regions.backward import NotRepeated
from .replay import Replay, replay_of
from .sizes import environment_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Part:
    """One of the backwards of a graph. ``tangents`` are numbers in ``Joint.differentiable``, ``gradients`` numbers in ``Joint.targets``; a
    target stands there once for each part that has a gradient for it. ``spent``: why there is none, where the program has freed what it
    needs."""

    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    spent: str = ""


@dataclass
class Joint:
    """``graph.inputs`` are the call's inputs, then one tangent for each differentiable output; ``graph.outputs`` are the forward's
    outputs, then one gradient for each of ``targets``, the inputs and held values that have one.

    ``differentiable`` holds positions of outputs. The same tensor returned twice has one tangent, at its first position; ``repeated``
    pairs each later position with the first. ``derived`` are positions of outputs that are inputs, held values or views of these or of
    another output: they are made after the graph has run, as views that autograd knows. Where views share a memory that is itself no
    output, it is one more: ``bases`` has a position of a view of each, and ``outputs`` counts them. Behind these stands what each of
    ``grown`` becomes, inputs and held values that begin a new history; ``as_left`` are those of them that a backward may read as they are
    when the forward ends, ``linear`` those whose contents before no gradient depends on. ``counted``: how many of the writes to each input
    or held value autograd counts. ``replay``: what it takes to run the graph again.
    ``parts``: the backwards that can run one after the other."""

    graph: AtenGraph
    inputs: int
    outputs: int
    differentiable: tuple[int, ...]
    repeated: tuple[tuple[int, int], ...]
    tangents: tuple[Meta, ...]
    targets: tuple[str, ...]
    replay: Replay
    parts: tuple[Part, ...]
    derived: tuple[int, ...] = ()
    bases: tuple[int, ...] = ()
    grown: tuple[str, ...] = ()
    as_left: frozenset[str] = frozenset()
    linear: frozenset[str] = frozenset()
    counted: Mapping[str, int] = field(default_factory=dict)


def needs_gradients(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether eager would record a backward for this graph."""
    tensors = (*example_inputs, *gm.parameters(), *gm.buffers())
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)


def capture_joint(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], repeats: bool = True) -> Joint:
    """The joint graph of ``gm`` for inputs like these. ``repeats``: blocks that are like those before them need not run.

    What is written behind autograd's back (``no_grad``, ``detach``) may require grad; another write to it raises in eager, and here.

    Raises ``GraphError`` GI001 where a custom autograd node would not mean the same as eager's: outputs that share memory though autograd
    does not know; and what :func:`functionalize` raises."""
    try:
        return _capture(gm, example_inputs, repeats=repeats and INSIDE not in gm.meta)
    except NotRepeated:
        return _capture(gm, example_inputs, repeats=False)
    except GraphError as error:
        if not refused_as_leaf(error, example_inputs):
            raise
        return _capture(gm, example_inputs, repeats=False, kind=ResultsRecorder)


def _capture(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], repeats: bool, kind: type[Recorder] = Recorder) -> Joint:
    names = {id(t): n for n, t in (*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False))}
    recorder = kind(names, differentiate=True, sizes=environment_of(example_inputs), repeats=repeats)
    with closing(recorder), recorder, torch.enable_grad(), no_hooks_on_saved_tensors():
        result = interpret(gm, example_inputs, recorder)
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        grown = new_histories(recorder, example_inputs)
        if grown and recorder.late:
            raise NotRepeated
        derived, bases = _derive(recorder, items)
        first, repeated = _first_positions(items)
        for position in derived:
            first.pop(id(items[position]), None)
        differentiable = [*first.values(), *range(len(items), len(items) + len(grown))]
        items += grown.values()
        as_left = written_once(recorder, grown)
        recorder.state.origin, recorder.state.label = BACKWARD, NO_LABEL
        tangents = [_tangent(recorder, items[k]) for k in differentiable]
        set_gradients(recorder, [items[k] for k in differentiable])
        parts, targets, gradients = _differentiate(recorder, [items[k] for k in differentiable], tangents)
        count = len(recorder.state.graph.inputs) - len(tangents)
        counted = {name: fake._version for name, fake in recorder.outside().items() if not fake.is_inference()}
        graph = finish(recorder, [*items, *gradients], example_inputs)
        counted = {name: counted[name] for name in graph.mutations if name in counted}
        if any(isinstance(o, OutputTensor) and o.dtype for o in graph.outputs):
            raise GraphError("GI003", "an output of a graph with gradients that is a view of another element type")
    _layout_gradients(graph, len(items), len(tangents))
    _forget_running_statistics(graph)
    keep_as_truths(graph)
    clean(graph)
    metas = tuple(graph.metas[name] for name in graph.inputs[count:])
    return Joint(
        graph,
        count,
        len(items),
        tuple(differentiable),
        tuple(repeated),
        metas,
        tuple(targets),
        replay_of(graph, grown),
        parts,
        tuple(derived),
        tuple(bases),
        tuple(grown),
        as_left,
        frozenset(grown).difference(read_by(graph, graph.outputs[len(items) :])),
        counted,
    )


def _differentiate(
    recorder: Recorder, outputs: list[FakeTensor], tangents: list[FakeTensor]
) -> tuple[tuple[Part, ...], list[str], list[Any]]:
    """The parts of the backward, written down one after the other: with the targets of all, by name, and their gradients."""
    sources = sources_of(recorder)
    found = groups(outputs)
    if len(found) > 1 and recorder.late:
        raise NotRepeated  # autograd does not see what is behind blocks that did not run
    parts: list[Part] = []
    targets: list[str] = []
    gradients: list[Any] = []
    for group in found:
        try:
            pairs = _gradients(recorder, [outputs[k] for k in group], [tangents[k] for k in group], sources)
        except OtherGradient as other:
            if other.flat and other.position >= 0:
                refuse_mixed(outputs, tangents, sources[recorder.state.graph.inputs[other.position]])
            raise
        except (RuntimeError, AttributeError) as error:
            if isinstance(error, NotImplementedError) or any(said in str(error) for said in _REFUSALS):
                raise GraphError("GI001", "a backward that autograd refuses", why=str(error).partition(" Hint")[0]) from None
            if _FREED not in str(error):
                raise
            parts.append(Part(group, (), str(error)))
            continue
        parts.append(Part(group, tuple(range(len(targets), len(targets) + len(pairs)))))
        targets += pairs
        gradients += [_as_stored(recorder, g) for g in pairs.values()]
    return tuple(parts), targets, gradients


@contextmanager
def outside_of_autocast() -> Iterator[None]:
    """Backwards run behind the block that their forward was called in: casts of the program's own ones are what is left of it."""
    before = [device for device in types() if torch.is_autocast_enabled(device)]
    for device in before:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for device in before:
            torch.set_autocast_enabled(device, True)


_FREED = "backward through the graph a second time"
_SPOILED = "modified by an inplace operation"
_REFUSALS = (_SPOILED, "expected to contain only concrete integers", "RaggedNode")
"""How autograd says that a program has freed, or written over, what is needed, and jagged tensors that an operator has no gradient."""


def _gradients(recorder: Recorder, outputs: list[FakeTensor], tangents: list[FakeTensor], sources: dict[str, FakeTensor]) -> dict[str, Any]:
    """The gradients that there are, by the name of what they are for."""
    if not outputs or not sources:
        return {}
    with outside_of_autocast():
        found = torch.autograd.grad(outputs, list(sources.values()), tangents, allow_unused=True, retain_graph=True)
    for name, gradient in zip(sources, found, strict=True):
        refuse_wrapper(gradient, recorder.state.graph.inputs.index(name) if name in recorder.state.graph.inputs else -1)
    gradients = dict(zip(sources, found, strict=True))
    for late in recorder.late:
        gradients |= late.gradients(gradients)
    return {name: g for name, g in gradients.items() if g is not None}


def moves_on(node: Node) -> bool:
    """Whether the operator changes what its results do not show: it draws random numbers, or takes part in an exchange with other
    processes."""
    return torch.Tag.nondeterministic_seeded in node.func.tags or describe(node.func).exchanges


def _forget_running_statistics(graph: AtenGraph) -> None:
    """The backward of a batch norm in training takes running statistics and does not read them."""
    for node in graph.nodes:
        if node.func is aten.native_batch_norm_backward.default and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def _first_positions(items: Sequence[Any]) -> tuple[dict[int, int], list[tuple[int, int]]]:
    first: dict[int, int] = {}
    repeated = []
    for position, item in enumerate(items):
        if isinstance(item, FakeTensor) and item.requires_grad and first.setdefault(id(item), position) != position:
            repeated.append((position, first[id(item)]))
    return first, repeated


def _as_stored(recorder: Recorder, gradient: Any) -> Any:
    """A gradient that is a view of another element type, or conjugated: as a tensor of its own."""
    root = recorder.track(gradient).base.root
    plain = gradient.dtype == root.dtype and not gradient.meta.is_conj() and not gradient.meta.is_neg()
    return gradient if plain else gradient.clone()


def _tangent(recorder: Recorder, output: FakeTensor) -> FakeTensor:
    sizes = output.size()
    with torch._C._DisableTorchDispatch():
        like = torch.empty_strided(
            sizes, strides_like(sizes, output.stride()), dtype=output.dtype, device="meta"
        )  # dense where the output overlaps itself
    return recorder.add_fake_input(recorder.from_meta(like, output.device))


def _derive(recorder: Recorder, items: list[Any]) -> tuple[list[int], list[int]]:
    """``Joint.derived`` and ``Joint.bases``; the memories that views share are appended to ``items``."""
    derived: list[int] = []
    bases: list[int] = []
    groups: dict[int, list[int]] = {}
    for position, item in enumerate(items):
        if not (isinstance(item, FakeTensor) and item.requires_grad):
            continue
        base = recorder.track(item).base
        if base.outside is None:
            groups.setdefault(id(base), []).append(position)
        elif item is base.root or (
            item._base is base.root
            and not _by_strides(recorder, item)
            and not overlaps_itself(recorder.state.graph.metas[base.outside], recorder.sizes)
            and not has_own_way(item, base.root)
        ):
            derived.append(position)  # a strided view of elements that share memory would share their gradients out otherwise
        else:
            raise GraphError("GI001", "an output that requires grad shares memory with an input", hint="clone it first")
    for positions in groups.values():
        root = recorder.track(items[positions[0]]).base.root
        if len({id(items[k]) for k in positions}) == 1:
            continue
        if not root.requires_grad or any(
            items[k] is not root and (items[k]._base is not root or has_own_way(items[k], root) or _by_strides(recorder, items[k]))
            for k in positions
        ):
            raise GraphError("GI001", "two outputs that require grad share memory", hint="clone one of them")
        views = [k for k in positions if items[k] is not root]
        if len(views) == len(positions):
            items.append(root)
            bases.append(views[0])
        derived += views
    return sorted(derived), bases


def _by_strides(recorder: Recorder, view: FakeTensor) -> bool:
    """Whether the program made the view by strides of memory: its gradient is that of what it asked, and of no element that this does not
    show."""
    return any(step.func is aten.as_strided.default for step in recorder.track(view).chain)


def has_own_way(view: FakeTensor, root: FakeTensor) -> bool:
    """Whether the gradient of a view takes a way of the program's own (``torch.autograd.Function``), which a view made anew would not
    take."""
    step: Any = view.grad_fn
    while step not in (None, root.grad_fn) and not isinstance(step, torch.autograd.function.BackwardCFunction):
        step = step.next_functions[0][0] if step.next_functions else None
    return step not in (None, root.grad_fn)


def _layout_gradients(graph: AtenGraph, first: int, tangents: int) -> None:
    """Gradients that are, or lie in, another tensor. Of a tangent (the last ``tangents`` inputs) they are that itself or views of it, as in
    eager, and of one value they are views where these have no element in common; all others become tensors of their own: gradients are
    summed up in place. So do those on devices, where a recorded graph has to own what it gives."""
    given = {*graph.inputs[len(graph.inputs) - tangents :]}
    outside = {*graph.inputs, *graph.held} - given
    taken: dict[str, list[OutputTensor]] = {}
    for k in range(first, len(graph.outputs)):
        out: Output = graph.outputs[k]
        if not isinstance(out, OutputTensor):
            continue
        name, on_host = out.value, traits_of(graph.metas[out.value].device).host
        if name in given and on_host:
            continue
        others = taken.setdefault(name, [])
        if name not in outside and name not in given and (not others or (on_host and all(_apart(out, other) for other in others))):
            others.append(out)
            continue
        fresh = f"{name}_copy{k}"
        graph.metas[fresh] = graph.metas[name]
        graph.nodes.append(Node(aten.clone.default, (Value(name),), {}, (fresh,), BACKWARD))
        graph.outputs[k] = OutputTensor(fresh, out.sizes, out.strides, out.offset)


def _apart(one: OutputTensor, other: OutputTensor) -> bool:
    """Whether two views of a value are known to have no element in common: both are boxes in the same grid of strides, and lie beside each
    other along one of its axes."""
    if one.sizes is None or other.sizes is None or one.strides is None or one.strides != other.strides:
        return False
    numbers = (*one.sizes, *other.sizes, *one.strides, one.offset, other.offset)
    if not all(type(n) is int for n in numbers):
        return False
    axes = sorted(zip(one.strides, one.sizes, other.sizes, strict=True), reverse=True)
    places, apart, room = [one.offset, other.offset], False, None
    for stride, *sizes in axes:
        if stride <= 0:
            return False
        starts = [place // stride for place in places]
        places = [place % stride for place in places]
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        if room is not None and max(ends) * stride > room:
            return False  # a row reaches into the next
        apart |= ends[0] <= starts[1] or ends[1] <= starts[0]
        room = stride
    return apart
