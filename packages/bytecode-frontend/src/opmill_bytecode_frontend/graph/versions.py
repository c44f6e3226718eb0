"""Version counters of what a graph writes to: backends count one write, eager each of them, and none of those through ``data``."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from opmill_fake_tensors.wrappers import takes_operators

if TYPE_CHECKING:
    from ..values.tensor import TensorValue


def written(fake: torch.Tensor) -> int:
    """How often a tensor was written to; those of inference mode do not count."""
    return 1 if fake.is_inference() else fake._version


def memory(fake: torch.Tensor) -> int:
    """Tells memory from other memory. Fakes of one memory have meta tensors that share storage."""
    try:
        return int(getattr(fake, "meta", fake).untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # a class that has none
        return id(fake)


#: Functions whose results may be views of their one tensor.
VIEWS = frozenset("getitem view reshape detach squeeze unsqueeze flatten narrow select alias as_strided".split())


def counted_by(node: torch.fx.Node | None) -> torch.fx.Node | None:
    """With whose writes those to a tensor are counted, of what has no history: the step that took a tensor's ``data``, for that and views
    of it, or the input that was detached. None where the graph itself has them counted."""
    detached = False
    while node is not None and (name := node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")) in VIEWS:
        detached = detached or name == "detach"
        node = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
    if node is None or node.op == "placeholder":
        return node if detached else None
    return node if node.target is getattr and node.args[1] == "data" else None


class Writes:
    """How many steps of a graph wrote to a memory, also through what counts its writes apart."""

    def __init__(self) -> None:
        self._steps: collections.Counter[int] = collections.Counter()

    def note(self, fake: torch.Tensor) -> None:
        self._steps[memory(fake)] += 1

    def to(self, fake: torch.Tensor) -> int:
        return self._steps[memory(fake)]


#: Functions that write running statistics without a count, and at which positions they take them.
SILENT: dict[object, tuple[int, int]] = {
    torch.nn.functional.batch_norm: (1, 2),
    torch.nn.functional.instance_norm: (1, 2),
    torch.batch_norm: (3, 4),
    torch.instance_norm: (3, 4),
    torch.native_batch_norm: (3, 4),
    torch.ops.aten.native_batch_norm.default: (3, 4),
}
STATISTICS = ("running_mean", "running_var")


def uncounted(value: TensorValue) -> bool:
    """Whether an input of the graph is only written to without a count: through its ``data``, by kernels that say nothing.

    Beyond processors statistics are counted all the same: what is made of weights that stay (``freeze``) cannot look at them.
    """
    on_processor = value.fake.device.type == "cpu"
    return written(value.fake) == 0 and value.node is not None and is_silently_written(value.node, statistics=on_processor)


def is_silently_written(node: torch.fx.Node, *, statistics: bool = True) -> bool:
    """Whether it, or a view of it, is written to without a count. ``statistics``: those of norms are looked for, too."""
    for user in node.users:
        name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
        written_to = [user.args[at] for at in SILENT.get(user.target, ()) if at < len(user.args)]
        if user.target is getattr and user.args[1] == "data":
            return True
        if statistics and user.target in SILENT and any(each is node for each in (*written_to, *map(user.kwargs.get, STATISTICS))):
            return True
        if name.startswith("_fused_") and name.endswith("_"):
            return True
        if name in VIEWS and is_silently_written(user, statistics=statistics):
            return True
    return False


def kept(*tensors: torch.Tensor) -> AbstractContextManager[object]:
    """Their counters are afterwards what they were."""
    return torch.autograd._unsafe_preserve_version_counter(tuple(t for t in tensors if not t.is_inference()))


def count(pairs: Iterable[tuple[torch.Tensor, int]], before: Sequence[int]) -> None:
    """Makes up for what the graph did not count. ``before``: what the counters said."""
    for (tensor, times), then in zip(pairs, before, strict=True):
        for _ in range(then + times - tensor._version):
            torch.autograd.graph.increment_version(tensor)


def writes_to_own(fake: torch.Tensor, outside: Iterable[torch.Tensor]) -> int:
    """How often a result of a graph was written to that lies in none of the tensors from ``outside`` it, as its version tells. 0 for what
    has a history: the backward may have kept it as it is."""
    if takes_operators(type(fake)) or fake.is_inference() or fake.requires_grad or fake._version == 0:
        return 0
    return 0 if any(memory(each) == memory(fake) for each in outside) else fake._version


def of_version(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """What a graph gave, with so many writes counted that it made to it."""
    if not (tensor.is_inference() or tensor.requires_grad) and tensor._version < count:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))
    return tensor


def counted_apart(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A tensor's ``data``, with so many writes counted that were made to it."""
    made = tensor.data
    if count:
        torch._C._autograd._unsafe_set_version_counter((made,), (count,))
    return made


def counted_with(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The same view of memory as one of ``other``, with whose writes its own are counted."""
    if tensor.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return tensor  # of a backend that gives copies
    where = tensor.shape, tensor.stride(), tensor.storage_offset()
    return other.detach().as_strided(*where) if tensor._is_view() else other.as_strided(*where).detach()


def versions(*tensors: torch.Tensor) -> list[int]:
    """Version counters of tensors; those of inference mode have none, and give a number that no other has."""
    return [t._version if not t.is_inference() else 1 << 62 for t in tensors]


__all__ = [
    "Writes",
    "count",
    "counted_apart",
    "counted_by",
    "counted_with",
    "kept",
    "memory",
    "of_version",
    "uncounted",
    "versions",
    "writes_to_own",
    "written",
]
