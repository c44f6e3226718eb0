"""What ``torch.distributed``'s functions do, in operators that graphs can hold (``_c10d_functional``). Captured code runs these in their
place, and they are plain Python: where a graph ends in the middle, the rest runs as it is.

As in torch, what is written has no part in the record of autograd: a tensor that is reduced in place keeps the gradient that it had
before, and its version does not move (hence ``.data``). Until ``wait`` returns, what is written to is left as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

OPS = torch.ops._c10d_functional
OWN = torch.ops.opmill_exchange
"""See `exchange_operators`, which defines them before anything here is called."""


class Pending:
    """What a collective that was started with ``async_op=True`` gives, instead of a ``Work``, which it says to be: its results arrive by
    `wait`. What else it is asked waits first, since nothing tells of the results before."""

    def __init__(self, result: torch.Tensor, written: Sequence[tuple[torch.Tensor, Any]], outputs: Sequence[torch.Tensor]) -> None:
        self._result: torch.Tensor | None = result
        self._written, self._outputs = written, outputs

    __class__ = property(lambda self: c10d.Work)

    def wait(self, timeout: object = None) -> bool:
        """Fills what the collective writes to. True."""
        if self._result is not None:
            arrive(self._result, self._written)
            self._result = None
        return True

    def is_completed(self) -> bool:
        """True: it waits, for nothing arrives meanwhile, and a program that asks until it has would never end."""
        return self.wait()

    def is_success(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.wait()

    def exception(self) -> None:
        """None: an exchange that fails raises where it is waited for."""

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written."""
        self.wait()
        return list(self._outputs)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """One that has the tensors that were written already."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self.result())
        return future

    def source_rank(self) -> int:
        raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call.")


def arrive(result: torch.Tensor, written: Sequence[tuple[torch.Tensor, Any]]) -> None:
    """Waits for ``result`` and copies its parts: each of ``written`` is a tensor with the first and the last row of ``result``, seen as a
    matrix with one row for each, or with None for all of it."""
    result = OPS.wait_tensor(result)
    for tensor, rows in written:
        tensor.data.copy_((result if rows is None else result[rows[0] : rows[1]]).reshape(tensor.shape))


def ended(
    result: torch.Tensor, written: Sequence[tuple[torch.Tensor, Any]], outputs: Sequence[torch.Tensor], async_op: bool
) -> Pending | None:
    """What an exchange gives: work to wait for if ``async_op``, else None, when the result has arrived in what it is written to.
    ``written`` are the memory of ``outputs``, which are the program's tensors."""
    if async_op:
        return Pending(result, written, outputs)
    arrive(result, written)
    return None


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory as numbers that are not complex: as many as there are."""
    tensor = tensor.data
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its dimensions in the order in which they lie in memory, which is that in which backends send it."""
    if tensor.is_contiguous():
        return tensor
    return tensor.permute(sorted(range(tensor.dim()), key=lambda d: tensor.stride(d), reverse=True))


def all_reduce(tensor: torch.Tensor, op: str, group: c10d.ProcessGroup | None = None, async_op: bool = False) -> Pending | None:
    """``torch.distributed.all_reduce``."""
    name = c10d._group_or_default_group(group).group_name
    numbers = as_it_lies(real(tensor))
    return ended(OPS.all_reduce(numbers, op, name), [(numbers, None)], [tensor], async_op)


def broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    group: c10d.ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Pending | None:
    """``torch.distributed.broadcast``: what waits for the result where ``async_op``, None otherwise."""
    group = c10d._group_or_default_group(group)
    source = c10d._canonicalize_group_rank(group, src, group_src, return_global=False)
    return ended(OPS.broadcast(real(tensor), source, group.group_name), [(real(tensor), None)], [tensor], async_op)


def all_gather_into_tensor(
    output: torch.Tensor, input: torch.Tensor, group: c10d.ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """``torch.distributed.all_gather_into_tensor``."""
    group = c10d._group_or_default_group(group)
    gathered = OPS.all_gather_into_tensor(real(input).reshape(-1), group.size(), group.group_name)
    return ended(gathered, [(real(output), None)], [output], async_op)


def all_gather(
    outputs: Sequence[torch.Tensor], input: torch.Tensor, group: c10d.ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """``torch.distributed.all_gather`` by functional operators."""
    group = c10d._group_or_default_group(group)
    flat = real(input).reshape(-1)
    gathered, size = OPS.all_gather_into_tensor(flat, group.size(), group.group_name), flat.shape[0]
    return ended(gathered, [(real(output), (k * size, (k + 1) * size)) for k, output in enumerate(outputs)], outputs, async_op)


def reduce_scatter_tensor(
    output: torch.Tensor, input: torch.Tensor, op: str, group: c10d.ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """``torch.distributed.reduce_scatter_tensor``."""
    group = c10d._group_or_default_group(group)
    scattered = OPS.reduce_scatter_tensor(real(input).reshape(-1), op, group.size(), group.group_name)
    return ended(scattered, [(real(output), None)], [output], async_op)


def reduce_scatter(
    output: torch.Tensor, inputs: Sequence[torch.Tensor], op: str, group: c10d.ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """``torch.distributed.reduce_scatter``."""
    group = c10d._group_or_default_group(group)
    given = torch.cat([real(t).reshape(-1) for t in inputs])
    return ended(OPS.reduce_scatter_tensor(given, op, group.size(), group.group_name), [(real(output), None)], [output], async_op)


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: c10d.ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """``torch.distributed.all_to_all_single``; without split sizes all parts are of one size."""
    group = c10d._group_or_default_group(group)
    count = group.size()
    taken = list(output_split_sizes) if output_split_sizes else [output.shape[0] // count] * count
    given = list(input_split_sizes) if input_split_sizes else [input.shape[0] // count] * count
    return ended(OPS.all_to_all_single(real(input), taken, given, group.group_name), [(real(output), None)], [output], async_op)


def all_to_all(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], group: c10d.ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """``torch.distributed.all_to_all``."""
    group = c10d._group_or_default_group(group)
    given, taken = [real(t).reshape(-1) for t in inputs], [real(t).numel() for t in outputs]
    exchanged = OPS.all_to_all_single(torch.cat(given), taken, [t.shape[0] for t in given], group.group_name)
    ends = [sum(taken[: k + 1]) for k in range(len(taken))]
    return ended(exchanged, [(real(t), (end - size, end)) for t, end, size in zip(outputs, ends, taken)], outputs, async_op)


def isend(tensor: torch.Tensor, dst: int, group: c10d.ProcessGroup | None, tag: int, group_dst: int) -> Pending:
    """``torch.distributed.isend``; here and below ends are known, by their own numbers and by those in the group."""
    group = c10d._group_or_default_group(group)
    return Pending(OWN.sent(real(tensor), group_dst, tag, group.group_name), [], [tensor])


def irecv(tensor: torch.Tensor, src: int, group: c10d.ProcessGroup | None, tag: int, group_src: int) -> Pending:
    """``torch.distributed.irecv`` from a process that is known."""
    group = c10d._group_or_default_group(group)
    result = OWN.received(real(tensor), group_src, tag, group.group_name)
    return Pending(result, [(real(tensor), None)], [tensor])


def send(tensor: torch.Tensor, dst: int, group: c10d.ProcessGroup | None, tag: int, group_dst: int) -> None:
    """``torch.distributed.send``."""
    isend(tensor, dst, group, tag, group_dst).wait()


def recv(tensor: torch.Tensor, src: int, group: c10d.ProcessGroup | None, tag: int, group_src: int) -> int:
    """``torch.distributed.recv`` from a process that is known: its number."""
    irecv(tensor, src, group, tag, group_src).wait()
    return src


def reduce(tensor: torch.Tensor, dst: int, op: str, group: c10d.ProcessGroup | None, async_op: bool, group_dst: int) -> Pending | None:
    """``torch.distributed.reduce``."""
    group = c10d._group_or_default_group(group)
    result = OWN.reduced(real(tensor), op, group_dst, group.group_name)
    return ended(result, [(real(tensor), None)], [tensor], async_op)


def gather(
    tensor: torch.Tensor,
    gather_list: Sequence[torch.Tensor] | None,
    dst: int,
    group: c10d.ProcessGroup | None,
    async_op: bool,
    group_dst: int,
) -> Pending | None:
    """``torch.distributed.gather``."""
    group = c10d._group_or_default_group(group)
    outputs = list(gather_list) if gather_list else []
    flat = tensor.data.reshape(-1)
    result, size = OWN.gathered(flat, len(outputs), group_dst, group.group_name), flat.shape[0]
    return ended(result, [(output.data, (k * size, (k + 1) * size)) for k, output in enumerate(outputs)], outputs, async_op)


def scatter(
    tensor: torch.Tensor,
    scatter_list: Sequence[torch.Tensor] | None,
    src: int,
    group: c10d.ProcessGroup | None,
    async_op: bool,
    group_src: int,
) -> Pending | None:
    """``torch.distributed.scatter``."""
    group = c10d._group_or_default_group(group)
    parts = [real(part) for part in scatter_list] if scatter_list else []
    result = OWN.scattered(real(tensor), parts, group_src, group.group_name)
    return ended(result, [(real(tensor), None)], [tensor], async_op)
