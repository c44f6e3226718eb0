"""Tensors that leave captured code: outputs of the graph, which are told what eager's know of themselves beside their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.wrappers import flattened, takes_operators

from ..errors import Unsupported
from ..graph.inference import of_inference
from ..graph.several import is_one_of_several, one_of_several
from ..graph.spent import is_spent, spent
from ..graph.versions import counted_apart, counted_by, counted_with, of_version, writes_to_own
from ..values.tensor import TensorValue
from .rebuild import Rebuilder, rebuilds

MARKS = ((FakeTensor.is_conj, torch.conj), (FakeTensor.is_neg, torch._neg_view))
"""What says of a tensor how its elements are to be read, and what marks it so, or no longer: graphs give tensors as they lie."""


@rebuilds(TensorValue)
def tensor(r: Rebuilder, value: TensorValue) -> str:
    """A tensor: its source, or an output of the graph."""
    if value.source is not None:
        return r.source(value.source)
    recorder = r.vm.recorder
    shown: Any = value
    if value.retained_at is not None:
        place = min(place for place in (value.first_use(), value.retained_at) if place is not None)
        why = "the tensor leaves the captured code, and its gradient is seen on it when the backward has run"
        raise Unsupported("FE033", "method retain_grad of a tensor", why, place=place)
    if recorder.went_back and is_spent(value.fake):
        shown = value.method(r.vm, "detach", [], {})
    recorder.leaving(shown)
    marks = [mark for is_marked, mark in MARKS if shown is value and type(shown.fake) is FakeTensor and is_marked(shown.fake)]
    for mark in marks:
        shown = recorder.call_function(r.vm, mark, [shown], {})
    r.outputs.append(shown)
    text = f"_g[{len(r.outputs) - 1}]"
    if is_plain(r, value) and (counted := counted_by(value.node)) is not None:
        text = r.assign(value, counting(r, value, counted, text))
    for mark in marks:
        text = r.assign(value, f"{r.constants.name(mark)}({text})")
    if shown is not value and not marks:
        text = r.assign(value, f"{r.constants.name(spent)}({text})")
    elif is_one_of_several(shown.fake):
        text = r.assign(value, f"{r.constants.name(one_of_several)}({text})")
    elif recorder.inference.made(shown.fake):
        text = r.assign(value, f"{r.constants.name(of_inference)}({text})")
    elif writes := writes_to_own(shown.fake, recorder.outside()):
        text = r.assign(value, f"{r.constants.name(of_version)}({text}, {writes})")
    if value.cls is torch.nn.Parameter:
        text = r.assign(value, f"{r.constants.name(torch.nn.Parameter)}({text}, {value.fake.requires_grad})")
    told = [(path, item) for path, part in within(r, value, "") for item in part.put_on().items()]
    if told:
        text = r.assign(value, text)
        r.body += [f"setattr({text}{path}, {name!r}, {r.expr(item)})" for path, (name, item) in told]
    return text


def is_plain(r: Rebuilder, value: TensorValue) -> bool:
    """Whether a tensor is no more than what a step of the graph gave, and has no history."""
    fake = value.fake
    if value.cls is not torch.Tensor or type(fake) is not FakeTensor or fake.requires_grad or value.put_on():
        return False
    return not fake.is_inference() and not r.vm.recorder.inference.made(fake)


def counting(r: Rebuilder, value: TensorValue, counted: torch.fx.Node, text: str) -> str:
    """The expression of a result ``text`` whose writes are counted as ``counted`` says: graphs tell which results share memory, not that
    writes to one are none to the other."""
    if counted.op == "placeholder":
        inputs = [each for each in r.vm.recorder.inputs if isinstance(each, TensorValue) and each.node is counted]
        sources = [each.source for each in inputs if each.source is not None and is_tensor_itself(each)]
        return f"{r.constants.name(counted_with)}({text}, {r.source(sources[0])})" if sources else text
    shown = [each for each in r.outputs if isinstance(each, TensorValue) and each is not value and counted_by(each.node) is counted]
    others = [known for each in shown if is_plain(r, each) and (known := r.known(each)) is not None]
    if others:
        return f"{r.constants.name(counted_with)}({text}, {others[0]})"
    return f"{r.constants.name(counted_apart)}({text}, {value.fake._version})"


def is_tensor_itself(value: TensorValue) -> bool:
    """Whether there is a plain tensor where an input comes from: no array, number or object around one, nor one with another memory now."""
    around = value.of_array or value.of_number or value.below or value.scalar is not None
    return not around and value.given is None and not value.aliased and type(value.fake) is FakeTensor


def within(r: Rebuilder, value: TensorValue, path: str) -> Iterator[tuple[str, TensorValue]]:
    """A tensor, and those of the captured code that lie in it where it is a wrapper, each with the attributes that lead there."""
    yield path, value
    for name in flattened(value.fake)[0] if takes_operators(type(value.fake)) else ():
        part = getattr(value.fake, name)
        if (known := r.vm.recorder.by_fake.get(id(part))) is not None and known.fake is part:
            yield from within(r, known, f"{path}.{name}")


__all__ = ["tensor"]
