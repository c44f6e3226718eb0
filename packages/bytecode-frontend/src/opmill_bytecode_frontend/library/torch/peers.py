"""Exchanges with one other process: messages, and what one process has of all (``reduce``, ``gather``, ``scatter``). Over Gloo, they are
operators of the graph; elsewhere, and where torch refuses them, they run between two graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.sequence import ListValue, SequenceValue
from ..registry import named
from .distributed import OF_GLOO, exchange, group_of, number_of, reduction, refuse, same, tensors_of

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

_C10D = "torch.distributed.distributed_c10d."
_MESSAGES = ("send", "recv", "isend", "irecv")


def check(vm: Interpreter, name: str, given: dict[str, Value]) -> None:
    """Refuses what torch's function would refuse, what is no matter of two processes that are known, and other backends: over NCCL
    messages are in the order of a stream, or put together. Says which process is meant."""
    group = group_of(vm, name, given["group"])
    if torch.distributed.get_backend(group) != "gloo":
        refuse(vm, name, "only Gloo's are part of graphs")
    [tensor] = tensors_of(vm, name, "tensor", given["tensor"])
    many = next((v for p, v in given.items() if p.endswith("_list")), ConstantValue(None))
    parts = tensors_of(vm, name, "_list", many) if isinstance(many, SequenceValue) and vm.unpack(many) else []
    fake, alike = tensor.fake, [part.fake for part in parts]
    if any(t.dtype is not fake.dtype or t.device != fake.device or not same(tuple(t.shape), tuple(fake.shape)) for t in alike):
        refuse(vm, name, "its tensors are not alike")
    if any(not t.is_contiguous() for t in (fake, *alike)):
        refuse(vm, name, "a tensor is not contiguous")
    if fake.dtype not in OF_GLOO and not (fake.dtype.is_complex and name in (*_MESSAGES, "scatter")):
        refuse(vm, name, f"Gloo has no {fake.dtype}")
    peer = _peer(vm, name, group, given)
    for end in ("dst", "src"):
        if end in given:
            given[end] = ConstantValue(torch.distributed.get_global_rank(group, peer))
            given[f"group_{end}"] = ConstantValue(peer)
    if name in ("gather", "scatter") and len(parts) != (group.size() if group.rank() == peer else 0):
        refuse(vm, name, "there is not a tensor for each process, or there are some where none belong")
    if "tag" in given and type(number_of(given["tag"])) is not int:
        refuse(vm, name, "the tag is no number")
    if "op" in given and reduction(vm, name, given["op"]) in ("band", "bor", "bxor", "avg") and fake.dtype.is_floating_point:
        refuse(vm, name, "a reduction that floats do not have")


def _peer(vm: Interpreter, name: str, group: torch.distributed.ProcessGroup, given: dict[str, Value]) -> int:
    """The number of the other process, or of the one that has all, in the group."""
    ends = ("dst", "group_dst") if "dst" in given else ("src", "group_src")
    whole, own = (number_of(given[end]) for end in ends)
    if (whole is None) == (own is None):
        if own is not None or name not in ("gather", "scatter"):
            refuse(vm, name, "no process is named, or two are")
        whole = 0
    ranks = torch.distributed.get_process_group_ranks(group)
    found = ranks.index(whole) if own is None and isinstance(whole, int) and whole in ranks else own
    if type(found) is not int or found not in range(len(ranks)) or (name in _MESSAGES and found == group.rank()):
        refuse(vm, name, "there is no such process, or it is this one")
    return found


for _name in (*_MESSAGES, "reduce", "gather", "scatter"):
    exchange(_name, checked=check)


@named(_C10D + "batch_isend_irecv")
def batch(vm: Interpreter, p2p_op_list: Value) -> Value:
    """Over Gloo each message by itself, in their order, as torch does it there."""
    items = vm.unpack(p2p_op_list) if isinstance(p2p_op_list, SequenceValue) else []
    started = []
    for item in items:
        if item.python_type() is not torch.distributed.P2POp:
            refuse(vm, "batch_isend_irecv", f"of {item.describe()}")
        function, tensor, group, peer, tag = (vm.getattr(item, part) for part in ("op", "tensor", "group", "group_peer", "tag"))
        sends = function.real() is torch.distributed.isend
        given = {"tensor": tensor, "group": group, "tag": tag, "dst" if sends else "src": ConstantValue(None)}
        check(vm, "isend" if sends else "irecv", given | {"group_dst" if sends else "group_src": peer})
        started.append((function, tensor, group, tag, "group_dst" if sends else "group_src", peer))
    if not started:
        refuse(vm, "batch_isend_irecv", "of nothing")
    works = [vm.call(function, [tensor], {"group": group, "tag": tag, end: peer}) for function, tensor, group, tag, end, peer in started]
    return ListValue(works)


_BETWEEN = {
    **dict.fromkeys(("barrier", "monitored_barrier"), "nothing tells which steps of a graph have to be over"),
    **dict.fromkeys(
        ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list"),
        "what others send are objects, which are known when they have come",
    ),
    "_coalescing_manager": "what is exchanged in it is sent together, which other processes wait for",
    **dict.fromkeys(("new_group", "new_subgroups", "split_group"), "all processes make a group together, once"),
}
"""Functions that run between two graphs, and why."""


def _between(function: str) -> None:
    @named(_C10D + function)
    def call(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return refuse(vm, function, _BETWEEN[function])


for _name in _BETWEEN:
    _between(_name)

__all__: list[str] = []
