"""What a graph did before it failed, undone for the function that runs in its place: numbers drawn, and tensors written.

Generators of torch are put back into the states that they had. What runs the graph may say that it has written nothing (``begun`` of its
exception); where nobody says so, the tensors that the graph writes are copied before. Large ones are copied only where the program itself
handles what the graph raises. Else, where the graph had written to one of them, its exception is the outcome of the call as it is: what the
function changes besides tensors, which comes after its graph, has not been done then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from .chance_states import put_back
from .failing import Failing, is_counted_write, is_harmless, name_of
from .versions import SILENT, is_silently_written, versions

if TYPE_CHECKING:
    from ..values.tensor import TensorValue

#: Bytes that are copied at each call without being asked why.
LARGEST = 1 << 20
#: Operations that may have added a part when data make them raise, which torch does not count: adding again is another thing.
IN_PARTS = frozenset("index_add_ index_reduce_ index_put_ put_ scatter_add_ scatter_reduce_".split())


class Undoing(Struct, eq=False):
    """Runs ``graph``. ``drawn``: devices and generators that it takes random numbers from; ``written``: positions of inputs that are copied
    before; ``failing``: says whether the function runs in its place; ``caught``: whether the program may handle what the graph raises;
    ``parts``: whether it may have written to a tensor that does not count it."""

    graph: Callable[..., object]
    drawn: Sequence[torch.Generator | torch.device]
    written: Sequence[int]
    failing: Failing
    caught: bool
    parts: bool = False
    always: Sequence[torch.Generator] = ()
    """The generators, where these are the same in each call."""

    def __post_init__(self) -> None:
        if all(isinstance(each, torch.Generator) or each.type == "cpu" for each in self.drawn):
            self.always = generators(self.drawn)

    def __call__(self, *inputs: object) -> object:
        return self._run(self.graph, inputs)

    @property
    def direct(self) -> object:
        """For callers that make the call themselves, what the graph has for these."""
        found = getattr(self.graph, "direct", None)
        if found is None:
            return None
        run, recover = found
        return lambda *inputs: self._run(run, inputs), recover

    def _run(self, graph: Callable[..., object], inputs: Sequence[Any]) -> object:
        states = [(each, each.get_state()) for each in self.always or generators(self.drawn)]
        kept = self._kept([inputs[at] for at in self.written]) if self.written else ()
        try:
            return graph(*inputs)
        except Exception as error:
            if kept and not hasattr(error, "begun") and all(copy.can_be_put_back() for copy in kept):
                for copy in kept:
                    copy.put_back()
                error.begun = False  # type: ignore[attr-defined]
            if self.failing.again(error) is not None:
                put_back(states)
            raise

    def _kept(self, tensors: Sequence[torch.Tensor]) -> list[Copy]:
        whole = self.caught or sum(tensor.nbytes for tensor in tensors) <= LARGEST
        return [Copy(tensor, whole, self.parts) for tensor in tensors]


class Copy:
    """How often a tensor was written, and what it holds, where that is kept. ``parts``: it may be written where that says nothing."""

    def __init__(self, tensor: torch.Tensor, whole: bool, parts: bool) -> None:
        self.tensor, self.version, self.parts = tensor, versions(tensor), parts
        self.data = elements(tensor).clone() if whole else None

    def can_be_put_back(self) -> bool:
        return self.data is not None or (versions(self.tensor) == self.version and not self.parts)

    def put_back(self) -> None:
        if self.data is not None:  # also where nothing was counted: a part may have been written
            elements(self.tensor).copy_(self.data)
            torch._C._autograd._unsafe_set_version_counter((self.tensor,), tuple(self.version))


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """Each element of a tensor once: torch refuses to copy to an expanded one."""
    found = tensor.detach()
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            found = found.narrow(dim, 0, 1)
    return found


def writes_in_parts(graph: torch.fx.Graph) -> bool:
    """Whether a step of the graph may raise when it has written a part, or writes without a count."""
    return any(
        name_of(node) in IN_PARTS or node.target in SILENT or (node.target is getattr and node.args[1] == "data") for node in graph.nodes
    )


def generators(drawn: Sequence[torch.Generator | torch.device]) -> list[torch.Generator]:
    """Those of devices, and those of the program; none of a device whose work is being recorded, which refuses to tell its state."""
    found = []
    for each in drawn:
        if isinstance(each, torch.Generator) or each.type == "cpu":
            found.append(each if isinstance(each, torch.Generator) else torch.default_generator)
            continue
        module = torch.get_device_module(each)
        recording = getattr(module, "is_current_stream_capturing", None)
        all_of_them = getattr(module, "default_generators", ())
        index = module.current_device() if each.index is None else each.index
        if index < len(all_of_them) and not (recording is not None and recording()):
            found.append(all_of_them[index])
    return found


def copied(graph: torch.fx.Graph, inputs: Sequence[Any], outside: Sequence[torch.Tensor]) -> list[int]:
    """Positions of the inputs that a graph writes to, where writing them again from a copy is all that it takes to begin anew. ``inputs``:
    what is tracked for each; ``outside``: what stands for tensors that are not the graph's own."""
    if not all(is_harmless(node) or is_counted_write(node) or node.target in SILENT for node in graph.nodes):
        return []
    if any(fake.is_inference() for fake in outside):
        return []
    at = [
        i
        for i, value in enumerate(inputs)
        if isinstance(getattr(value, "obj", None), torch.Tensor)
        and (value.fake._version or (value.node is not None and is_silently_written(value.node)))
    ]
    return at if all(has_its_history(inputs[i]) for i in at) else []


def has_its_history(value: TensorValue) -> bool:
    """Whether autograd knows of a written tensor behind the graph what it knew before: nothing, or that gradients are summed up in it."""
    if not (value.obj.requires_grad or value.fake.requires_grad):
        return True
    return value.obj.requires_grad and value.obj.is_leaf and value.fake.requires_grad and value.fake.is_leaf


__all__ = ["Undoing", "copied", "writes_in_parts"]
