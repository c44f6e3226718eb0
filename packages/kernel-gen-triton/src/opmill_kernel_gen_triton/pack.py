"""Nests of a kernel that do the same to different buffers, and do not wait for each other, are one launch: a program's number says whose
part it does. (The running statistics of a network's batch norms are a hundred nests and more of a few elements each.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmill_graph_ir.loops.canonical import BufferUse, Canonical, canonical
from opmill_graph_ir.loops.ir import Buffer, LoopKernel, Nest

from . import walk

POINTERS = 192
"""Parameters of a launch: the driver takes 4 KiB of them, and each costs its programs an instruction."""


@dataclass(frozen=True)
class Pack:
    """The one nest of ``kernel``, done for each of ``members``: the buffers that ``kernel``'s stand for, in its order."""

    kernel: LoopKernel
    members: tuple[tuple[str, ...], ...]


def pack(nests: Sequence[Nest], buffers: Sequence[Buffer]) -> list[Nest | Pack]:
    """The nests in an order that does the same; those that are done together as a :class:`Pack`."""
    return [part for batch in batches(nests, buffers) for part in batch]


def batches(nests: Sequence[Nest], buffers: Sequence[Buffer]) -> list[list[Nest | Pack]]:
    """The same by what may run at once."""
    uses = {b.name: BufferUse(b.dtype, b.numel) for b in buffers}
    made_of: list[list[Nest | Pack]] = []
    for batch in _independent(nests):
        out: list[Nest | Pack] = []
        made_of.append(out)
        groups: dict[object, list[tuple[Nest, Canonical | None]]] = {}
        for number, nest in enumerate(batch):
            made = canonical([nest], uses.__getitem__) if len(batch) > 1 and _plain(nest) else None
            key: object = number if made is None or made.sizes else (made.kernel, number * len(made.arguments) // POINTERS)
            groups.setdefault(key, []).append((nest, made))
        for found in groups.values():
            nest, first = found[0]
            out.append(
                nest if len(found) == 1 or first is None else Pack(first.kernel, tuple(m.arguments for _, m in found if m is not None))
            )
    return made_of


def _independent(nests: Sequence[Nest]) -> Iterator[list[Nest]]:
    """Runs of nests none of which touches what another one of them writes."""
    batch: list[Nest] = []
    read: set[str] = set()
    written: set[str] = set()
    for nest in nests:
        reads, writes = walk.read(nest), walk.written(nest)
        if reads & written or writes & (read | written):
            yield batch
            batch, read, written = [], set(), set()
        batch.append(nest)
        read |= reads
        written |= writes
    if batch:
        yield batch


def _plain(nest: Nest) -> bool:
    """Whether it neither checks anything nor goes where values tell, which checks may protect."""
    return not any(p.checks for p in nest.phases) and not walk.indirect(nest)


__all__ = ["Pack", "batches", "pack"]
