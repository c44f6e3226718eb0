"""Operators for exchanges for which ``_c10d_functional`` has none, or none that says what it writes: messages between two processes, and
what one process has of all. Like those, they start an exchange and give tensors that ``wait_tensor`` waits for."""

from __future__ import annotations

from typing import cast

import torch
from torch.distributed import distributed_c10d as c10d

from opmill_fake_tensors.forking import ForkLock

SPACE = "opmill_exchange"
SCHEMAS = (
    "sent(Tensor x, int peer, int tag, str group) -> Tensor",
    "received(Tensor like, int peer, int tag, str group) -> Tensor",
    "reduced(Tensor x, str op, int root, str group) -> Tensor",
    "gathered(Tensor x, int count, int root, str group) -> Tensor",
    "scattered(Tensor like, Tensor[] parts, int root, str group) -> Tensor",
)
_lock = ForkLock()
_library: list[torch.library.Library] = []


def sent(x: torch.Tensor, peer: int, tag: int, group: str) -> torch.Tensor:
    """Sends to process ``peer`` of the group. One element without meaning, to wait for."""
    return _waited_for(x.new_empty(1), _group(group).send([x.contiguous()], peer, tag))


def received(like: torch.Tensor, peer: int, tag: int, group: str) -> torch.Tensor:
    """What process ``peer`` of the group sends, of these sizes."""
    made = _alike(like)
    return _waited_for(made, _group(group).recv([made], peer, tag))


def reduced(x: torch.Tensor, op: str, root: int, group: str) -> torch.Tensor:
    """The reduction over all processes at ``root``; elsewhere what the backend leaves there."""
    made, options = x.clone(memory_format=torch.contiguous_format), c10d.ReduceOptions()
    options.reduceOp = getattr(c10d.ReduceOp, op.upper())
    options.rootRank = root
    return _waited_for(made, _group(group).reduce([made], options))


def gathered(x: torch.Tensor, count: int, root: int, group: str) -> torch.Tensor:
    """At ``root`` the elements of all processes, which are ``count``; elsewhere, where that is 0, one element without meaning."""
    made, options = _together(x, count), c10d.GatherOptions()
    options.rootRank = root
    parts = [list(made.view(count, -1).unbind())] if count else []
    return _waited_for(made, _group(group).gather(parts, [x.contiguous()], options))


def scattered(like: torch.Tensor, parts: list[torch.Tensor], root: int, group: str) -> torch.Tensor:
    """This process's of the ``parts`` that ``root`` has, of the sizes of ``like``; elsewhere there are none."""
    made, options = _alike(like), c10d.ScatterOptions()
    options.rootRank = root
    given = [[part.contiguous() for part in parts]] if parts else []
    return _waited_for(made, _group(group).scatter([made], given, options))


def _group(name: str) -> c10d.ProcessGroup:
    return c10d._resolve_process_group(cast("c10d.GroupName", name))


def _waited_for(made: torch.Tensor, work: c10d.Work | None) -> torch.Tensor:
    if work is not None:  # some backends are done at once
        torch._C._distributed_c10d._register_work(made, work)
    return made


def _alike(like: torch.Tensor, *others: object) -> torch.Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _together(x: torch.Tensor, count: int, *others: object) -> torch.Tensor:
    return x.new_empty(count * x.numel() if count else 1)


_SHAPES = {
    "sent": lambda x, *others: x.new_empty(1),
    "received": _alike,
    "reduced": _alike,
    "gathered": _together,
    "scattered": _alike,
}


def define() -> None:
    """Makes the operators known to torch, once."""
    with _lock:
        if _library:
            return
        library = torch.library.Library(SPACE, "FRAGMENT")
        for schema in SCHEMAS:
            library.define(schema)
        for kernel in (sent, received, reduced, gathered, scattered):
            name = kernel.__name__
            library.impl(name, kernel, "CompositeExplicitAutograd")
            library.impl(name, _SHAPES[name], "Meta")
            for key in ("Autograd", "ADInplaceOrView"):
                library.impl(name, torch.library.fallthrough_kernel, key)
        _library.append(library)


__all__ = ["SPACE", "define"]
