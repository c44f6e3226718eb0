"""Where the tensors of a kernel lie that says so by itself, and not by nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opmill_fake_tensors.strides import extent

from ..capture.graph import Meta
from ..loops.index import ZERO, Index, index
from ..loops.ir import Buffer, Expr, Load, Placed, Read, Role
from ..schedule.rewrite import Rewriter
from .context import Context, View


class Memory:
    """The buffers of a kernel, by the program's names."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.read: dict[str, str] = {}
        self.made: dict[str, str] = {}

    def placed(self, view: View) -> Placed:
        """A tensor that is read."""
        found = self._strided(view)
        if found is None:
            found = self._strided(self.ctx.materialise(view))
        assert found is not None, view
        name, strides, offset = found
        return Placed(self.read.setdefault(name, f"b{len(self.read)}"), offset, strides)

    def _strided(self, view: View) -> tuple[str, tuple[int, ...], int] | None:
        arg = self.ctx.strided(view)
        strides = [i.constant for i in (self.ctx.buffers[arg.buffer].strides if arg.strides is None else arg.strides)]
        offset = (arg.offset or ZERO).constant
        known = tuple(n for n in strides if n is not None)
        sized = all(n.constant is not None for n in self.ctx.buffers[arg.buffer].sizes)
        return (arg.buffer, known, offset) if len(known) == len(strides) and offset is not None and sized else None

    def result(self, name: str, dtype: str) -> Placed:
        """A tensor that is written."""
        meta = replace(self.ctx.metas[name], dtype=dtype)
        self.ctx.views[name], placed = self.made_as(name, meta)
        return placed

    def made_as(self, name: str, meta: Meta) -> tuple[View, Placed]:
        """The same of any tensor."""
        view = self.ctx.buffer(name, meta)
        self.ctx.fixed.add(name)
        self.made[name] = f"b{len(self.read) + len(self.made)}"
        return view, Placed(self.made[name], 0, meta.strides)

    def load(self, function: Expr, others: Sequence[Placed], dtypes: Sequence[str]) -> Expr:
        """A function that loads from memory what it reads."""

        def load(read: Read) -> Expr:
            k = int(read.buffer[1:])
            offset = index(others[k].offset)
            for i, stride in zip(read.indices, others[k].strides, strict=True):
                offset = offset + i * stride
            return Load(others[k].buffer, offset, dtypes[k])

        return Rewriter(rule=load)(function)

    def buffers(self) -> tuple[Buffer, ...]:
        out = []
        roles: tuple[tuple[dict[str, str], Role], ...] = (self.read, "in"), (self.made, "out")
        for names, role in roles:
            for old, new in names.items():
                info = self.ctx.buffers[old]
                numel = extent(_numbers(info.sizes), _numbers(info.strides))
                out.append(Buffer(new, info.dtype, role, index(numel)))
        return tuple(out)


def _numbers(values: Sequence[Index]) -> list[int]:
    return [value.evaluate({}) for value in values]


__all__ = ["Memory"]
