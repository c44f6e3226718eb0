"""Graphs inside of graphs: how the function that an operator runs becomes an aten graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.strides import like as strides_like
from opmill_fake_tensors.symbols import index

from ..errors import GraphError
from .control import ControlOperator
from .graph import AtenGraph, Meta, OutputTensor
from .record import Recorder, meta_of
from .sizes import size_of, symbols_in, unify

Traced = Callable[[Recorder, Sequence[FakeTensor]], Sequence[Any]]
"""What a body computes: fakes of its inputs to fakes of its outputs, written down by the recorder."""


def body(
    outer: Recorder, run: Traced, inputs: Sequence[FakeTensor], like: Sequence[Meta] | None = None, *, differentiate: bool = False
) -> AtenGraph:
    """The graph of ``run`` for inputs like these. Its outputs are dense, or laid out as ``like`` says.

    ``differentiate``: gradients are recorded while it runs. Raises ``GraphError`` GI014 for outputs that are not as ``like`` says, or are
    no tensors; GI015 where an input is written."""
    with closing(Recorder(outer.names, differentiate=differentiate, sizes=outer.sizes)) as inner:
        inner.state.origin = outer.state.origin
        with _own_place(outer), torch.set_grad_enabled(differentiate), inner:
            fakes = [inner.add_input(t) for t in inputs]
            items = run(inner, fakes)
            if like is not None and len(like) != len(items):
                raise GraphError("GI014", f"a body gives {len(items)} tensors where another gives {len(like)}", where=outer.state.origin)
            outputs = [_output(inner, item, None if like is None else like[k]) for k, item in enumerate(items)]
        graph = inner.state.graph
        if graph.held or any(t.base.outside and t.base.version for _, t in inner.state.tracks.values()):
            raise GraphError(
                "GI015", "a body that writes what it is given, or holds tensors", where=outer.state.origin, hint="clone before writing"
            )
        graph.outputs = [OutputTensor(inner.track(fake).base.value) for fake in outputs]
    unify(graph)
    return graph


@contextmanager
def _own_place(outer: Recorder) -> Iterator[None]:
    """Decisions about sizes are said to be made where the inner recorder is, for as long as it is there."""
    where = None if outer.sizes is None else outer.sizes.where
    try:
        yield
    finally:
        if outer.sizes is not None and where is not None:
            outer.sizes.where = where


def _output(inner: Recorder, item: Any, like: Meta | None) -> FakeTensor:
    """``item`` in memory of its own."""
    if not isinstance(item, torch.Tensor):
        raise GraphError("GI014", f"a body gives {item!r}", where=inner.state.origin, why="only tensors leave it")
    found = meta_of(item)
    if like is not None and (like.dtype, like.sizes, like.device) != (found.dtype, found.sizes, found.device):
        raise GraphError("GI014", f"a body gives {found} where {like} is expected", where=inner.state.origin)
    strides = tuple(map(size_of, strides_like(item.shape, item.stride()))) if like is None else like.strides
    return inner.copy_of(item, Meta(found.dtype, found.sizes, strides, found.device))  # type: ignore[arg-type]


def outputs_of(graph: AtenGraph) -> list[Meta]:
    """What the tensors look like that a body returns."""
    return [graph.metas[o.value] for o in graph.outputs if isinstance(o, OutputTensor)]


def record(
    outer: Recorder, kind: str, bodies: Sequence[AtenGraph], groups: Sequence[Any], results: Sequence[Meta], *more: Any
) -> list[FakeTensor]:
    """Writes down an operator that runs ``bodies``, and gives fakes of what it returns. ``groups`` are its arguments, the last of them the
    operands, to which the sizes that bodies use are added; ``more`` are arguments behind these."""
    used = {name for graph in bodies for name in symbols_in(graph)}
    names = [] if outer.sizes is None else [name for name in outer.sizes.symbols if name in used]
    for graph in bodies:
        graph.inputs += names
    fakes = [outer.fake_of(meta) for meta in results]
    *first, operands = groups
    outer.record(ControlOperator(kind, tuple(bodies)), [*first, [*operands, *map(index, names)], *more], fakes)
    return fakes
