"""Runs a torch-level FX graph once over fake tensors and gives the functional aten graph."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor, FakeTensorError
from opmill_fake_tensors.strides import extent
from opmill_fake_tensors.symbolic import item_at
from opmill_fake_tensors.symbols import Sizes
from opmill_fake_tensors.symbols.asking import demanded

from ..errors import GraphError
from ..wrapped import INSIDE
from .attention import PREPARED
from .cells import taken_apart
from .checks import ONE_HOT, one_hot
from .clean import clean
from .graph import AtenGraph, Meta, Output, OutputTensor
from .higher_order import ROWS, Run
from .inverse import shares_elements
from .outs import has_out, into_out
from .places import label_of, origin_of
from .record import Recorder, meta_of, shares
from .repeated_regions.forward import Repeated
from .sizes import environment_of, recorded, size_of, traced, unify


def functionalize(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> AtenGraph:
    """The functional aten graph of ``gm`` for inputs like these (tensors, fakes, symbolic sizes).

    Raises ``GraphError``: GI001 where gradients are needed, GI002 and GI003 where a write cannot be made functional, GI005 where
    inputs share memory and one is written, GI009 for an input that is neither a tensor nor a symbolic size. Whatever the fakes raise passes
    through."""
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        raise GraphError("GI001", "gradients are needed", why="an input requires grad", hint="run under torch.no_grad()")
    names = {id(t): n for n, t in (*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False))}
    recorder = Recorder(names, sizes=environment_of(example_inputs), repeats=INSIDE not in gm.meta)
    grad = torch.is_grad_enabled()
    try:
        with closing(recorder), recorder:
            result = interpret(gm, example_inputs, recorder)
            graph = finish(recorder, result, example_inputs)
    finally:
        torch.set_grad_enabled(grad)
    return clean(graph)


def interpret(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], recorder: Recorder) -> Any:
    """What ``gm`` returns for fakes of its inputs; the recorder, which must be entered, writes down what ran."""
    try:
        return _interpret(gm, example_inputs, recorder)
    except (RuntimeError, IndexError, TypeError, ValueError) as e:
        if "data is not allocated" in str(e):  # composite operators of torch that read tensors behind the dispatcher's back
            raise GraphError("GI008", "an operator reads the data of a tensor", where=recorder.state.origin) from None
        if isinstance(e, (FakeTensorError, GraphError)):
            raise
        why = f"{type(e).__name__}: {e}"  # eager may fail as well, and then says so itself
        raise GraphError("GI013", "an operator fails on tensors without data", where=recorder.state.origin, why=why) from e


def _interpret(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], recorder: Recorder) -> Any:
    inputs = [recorder.add_input(x) if isinstance(x, torch.Tensor) else recorder.add_size(x) for x in example_inputs]
    return _call_graph(gm, inputs, recorder)


def _call_graph(gm: Any, args: Sequence[Any], recorder: Recorder) -> Any:
    """What a graph module, or another function, gives for fakes."""
    if not isinstance(gm, torch.fx.GraphModule):
        return gm(*args)
    env: dict[torch.fx.Node, Any] = {}
    inputs = iter(args)
    nodes = list(gm.graph.nodes)
    repeated = Repeated(nodes, env, recorder, partial(_attribute, gm), origin_of, _is_opaque)
    position = 0
    while position < len(nodes):
        if (behind := repeated.behind(position)) != position:
            position = behind
            continue
        node = nodes[position]
        position += 1
        recorder.state.origin, recorder.state.label = origin_of(node), label_of(node)
        if node.op == "placeholder":
            env[node] = next(inputs)
        elif node.op == "get_attr":
            env[node] = repeated.held(node)
        else:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            if node.op == "output":
                return args[0]
            env[node] = _call_node(node, gm, args, kwargs, recorder)
    raise GraphError("GI006", "a graph without an output")


def _attribute(gm: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def _call_node(node: torch.fx.Node, gm: torch.fx.GraphModule, args: Sequence[Any], kwargs: dict[str, Any], recorder: Recorder) -> Any:
    target: Any = node.target
    if node.op == "call_module":
        return _call_module(gm.get_submodule(target), args, kwargs, recorder)
    if target == "item" and (number := _noted_float(node)) is not None:
        return number
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    if isinstance(target, torch._ops.HigherOrderOperator) and (row := ROWS.get(target.name())) is not None:
        return row(Run(recorder, _call_graph), *args, **kwargs)
    if target in _BY_MARKS:
        return _BY_MARKS[target](*args, **kwargs)
    if target in _DEMANDS:
        return _DEMANDS[target](args[0])
    if target is operator.getitem and isinstance(args[0], FakeTensor):
        return item_at(*args)
    if target in ONE_HOT:
        return one_hot(target, *args, **kwargs)
    if args and (cell := taken_apart(target, args)) is not None:
        return cell(*args, **kwargs)
    if (prepare := PREPARED.get(target)) is not None:
        args, kwargs = prepare(args, kwargs)
    if isinstance(target, type):  # of wrappers, whose objects may keep what they are given
        args, kwargs = _thawed(args), _thawed(kwargs)
    if has_out(target, args, kwargs):
        return into_out(target, args, kwargs, recorder.state.origin)
    return target(*args, **kwargs)


def _thawed(value: Any) -> Any:
    """Lists and dicts as the program has them, of those that stand in graphs, which nobody may change."""
    if isinstance(value, list):
        return [_thawed(item) for item in value]
    if isinstance(value, dict):
        return {key: _thawed(item) for key, item in value.items()}
    return tuple(map(_thawed, value)) if type(value) is tuple else value


def _is_opaque(node: torch.fx.Node) -> bool:
    """Whether what the node gives is not decided by its target and arguments alone, or is a matter of more than results."""
    return node.op == "call_module" or node.target == "item" or node.target in _DEMANDS


_BY_MARKS: dict[Any, Callable[..., Any]] = {
    torch.resolve_conj: lambda input: input.resolve_conj(),
    torch.resolve_neg: lambda input: input.resolve_neg(),
    torch.real: lambda input: input.real,
    torch.imag: lambda input: input.imag,
}
"""Functions that torch decides by marks of tensors, which fakes have in Python alone; their methods and attributes know."""


def _size(value: Any) -> None:
    demanded(value >= 0)


_DEMANDS: dict[Any, Callable[[Any], object]] = {
    torch._check: demanded,
    torch.ops.aten._assert_scalar.default: demanded,
    torch._check_is_size: _size,
    torch.ops.aten.sym_constrain_range_for_size.default: _size,
}
"""What a program, or torch's own tracer, says of sizes that only data tell."""


def _noted_float(node: torch.fx.Node) -> float | None:
    """The number that torch's own tracer passes as a tensor of one element; it guards it when asked for it."""
    noted = node.meta.get("example_value")
    return float(noted) if isinstance(noted, torch.SymFloat) and noted.node.has_hint() else None


def _call_module(module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any], recorder: Recorder) -> Any:
    """The module on fakes of its own tensors, so that autograd sees the fakes too."""
    tensors: dict[str, torch.Tensor] = {n: recorder.from_tensor(t) for n, t in (*module.named_parameters(), *module.named_buffers())}
    return torch.func.functional_call(module, tensors, tuple(args), kwargs)


def finish(recorder: Recorder, result: Any, example_inputs: Sequence[Any]) -> AtenGraph:
    """The recorded graph with its outputs and mutations said."""
    graph = recorder.state.graph
    graph.sizes = recorder.sizes  # also where nothing came behind the operator that made one known
    items = result if isinstance(result, (list, tuple)) else (result,)
    bases = {id(t.base): t.base for _, t in recorder.state.tracks.values()}
    for base in bases.values():
        if base.outside is not None and base.written:
            graph.mutations[base.outside] = base.value
    if graph.mutations:
        refuse_shared(graph, example_inputs)
    uses = Counter(id(recorder.track(i).base) for i in items if isinstance(i, FakeTensor))
    graph.outputs = [_output(recorder, item, uses) for item in items]
    unify(graph)
    graph.outputs = _twins(items, graph.outputs)
    return graph


def _twins(items: Sequence[Any], outputs: Sequence[Output]) -> list[Output]:
    """The outputs; views that are alike are told from each other where they are objects of their own."""
    seen: dict[Output, list[int]] = {}
    told = []
    for item, out in zip(items, outputs, strict=True):
        if isinstance(out, OutputTensor) and out.sizes is not None:
            objects = seen.setdefault(out, [])
            if id(item) not in objects:
                objects.append(id(item))
            out = replace(out, twin=objects.index(id(item)))
        told.append(out)
    return told


def refuse_shared(graph: AtenGraph, example_inputs: Sequence[Any]) -> None:
    """Raises GI005 where what is written may be seen at another place, too: plans check of their calls what is checked of the example
    here."""
    given = [*zip(graph.inputs, example_inputs, strict=False), *zip(graph.held, graph.held_tensors, strict=True)]
    with torch._C._DisableTorchDispatch():
        spans = sorted(
            (*_span(t), name in graph.mutations) for name, t in given if isinstance(t, torch.Tensor) and not isinstance(t, FakeTensor)
        )
    reach = reach_of_written = 0
    for start, end, written in spans:
        if start < reach_of_written or (written and start < reach):
            raise GraphError("GI005", "an input that shares memory with another is written", hint="clone it first")
        reach, reach_of_written = max(reach, end), max(reach_of_written, end if written else 0)
    for name in graph.mutations:
        if overlaps_itself(graph.metas[name], graph.sizes):
            raise GraphError("GI005", "an input whose elements share memory is written", hint="clone it first")


def _span(t: torch.Tensor) -> tuple[int, int]:
    """The addresses of memory from a tensor's first element to behind its last."""
    if not t.numel():
        return 0, 0
    start = t.data_ptr()
    return start, start + extent(t.shape, t.stride()) * t.itemsize


def overlaps_itself(meta: Meta, environment: Sizes | None) -> bool:
    """Whether two positions may be one element in memory: then a write to one shows at the other."""
    return shares_elements(traced(meta.sizes, environment), traced(meta.strides, environment))


def _output(recorder: Recorder, item: Any, uses: Mapping[int, int]) -> Output:
    """``uses``: how many outputs lie in a memory, by the identity of its base."""
    if isinstance(item, FakeTensor):
        track = recorder.track(item)
        base = track.base
        value = base.outside or base.value
        root = base.root
        if not track.chain:
            return OutputTensor(value)
        meta = meta_of(item)
        dtype = meta.dtype if item.dtype != root.dtype else None
        marked = item.meta.is_conj() or item.meta.is_neg()
        if (dtype or marked) and base.outside is None and uses[id(base)] == 1 and not overlaps_itself(meta, recorder.sizes):
            return OutputTensor(recorder.value_of(item).name)  # nobody sees that it is a view
        start = root.storage_offset() * root.itemsize
        if marked or (root.is_complex() and not shares(root, item)) or (dtype and start % item.itemsize):
            raise GraphError("GI003", "an output that is a view marked as conjugated or negated")
        detached = base.outside is not None and root.requires_grad and not item.requires_grad
        return OutputTensor(value, meta.sizes, meta.strides, size_of(item.storage_offset() - start // item.itemsize), detached, dtype)
    if isinstance(item, torch.Tensor):
        return _output(recorder, recorder.from_tensor(item), uses)
    if item is None or isinstance(item, (bool, int, float)):
        return item
    if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return recorded(item)
    raise GraphError("GI006", f"an output of type {type(item).__name__}")
