"""Rebuilding expressions over buffers: substitution of axes and names, replacement of reads, and what an expression uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from ..loops.index import Index
from ..loops.ir import Const, Expr, IndexValue, Load, Op, Ref
from ..lowered import Read

ReadRule = Callable[[Read], "Expr | None"]
"""Replaces a read whose indices are already rewritten; None keeps it."""


class Rewriter:
    """Substitutes ``symbols`` (axes and integer lets) in indices, renames references by ``names``, replaces reads by ``rule``.

    ``extents`` bound the symbols that remain, so that divisions simplify. Shared sub-expressions are rewritten once."""

    def __init__(
        self,
        symbols: Mapping[str, Index] | None = None,
        names: Mapping[str, Expr] | None = None,
        rule: ReadRule | None = None,
        extents: Mapping[str, int | Index] | None = None,
    ) -> None:
        self.symbols, self.names, self.rule, self.extents = symbols or {}, names or {}, rule, extents or {}
        self._memo: dict[Expr | Read, Expr] = {}

    @classmethod
    def replacing(cls, new: Mapping[Expr, Expr]) -> Rewriter:
        """Replaces whole sub-expressions."""
        made = cls()
        made._memo.update(new)
        return made

    def __call__(self, expr: Expr | Read) -> Expr:
        if (known := self._memo.get(expr)) is None:
            known = self._memo[expr] = self._RULES[type(expr)](self, expr)
        return known

    def index(self, index: Index) -> Index:
        return index.substitute(self.symbols, self.extents) if self.symbols else index

    def _const(self, expr: Const) -> Expr:
        return expr

    def _index_value(self, expr: IndexValue) -> Expr:
        new = self.index(expr.index)
        if (value := new.constant) is not None:
            return Const(
                float(value) if expr.dtype.startswith(("float", "bfloat")) else bool(value) if expr.dtype == "bool" else value, expr.dtype
            )
        return IndexValue(new, expr.dtype)

    def _op(self, expr: Op) -> Expr:
        args = tuple(self(a) for a in expr.args)
        return expr if args == expr.args else Op(expr.name, args, expr.dtype)

    def _ref(self, expr: Ref) -> Expr:
        return self.names.get(expr.name, expr)

    def _read(self, expr: Read) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        new = Read(expr.buffer, tuple(self.index(i) for i in expr.indices), expr.dtype, mask, expr.other)
        replaced = self.rule(new) if self.rule is not None else None
        return new if replaced is None else replaced

    def _load(self, expr: Load) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        return Load(expr.buffer, self.index(expr.index), expr.dtype, mask, expr.other)

    _RULES: ClassVar[dict[type, Callable[..., Expr]]] = {
        Const: _const,
        IndexValue: _index_value,
        Op: _op,
        Ref: _ref,
        Read: _read,
        Load: _load,
    }


def walk(*roots: Expr | Read) -> Iterator[Expr | Read]:
    """Every distinct sub-expression once, parents before children."""
    seen: set[Expr | Read] = set()
    stack = list(roots)
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        yield expr
        if type(expr) is Op:
            stack.extend(expr.args)
        elif isinstance(expr, (Read, Load)) and expr.mask is not None:
            stack.append(expr.mask)


def reads(*roots: Expr | Read) -> list[Read]:
    """Every distinct read in the expressions."""
    return [e for e in walk(*roots) if type(e) is Read]


def under_mask(expr: Expr, mask: Expr, anywhere: Callable[[Read], bool] = lambda read: False) -> Expr:
    """``expr`` with every read guarded by ``mask``: memory outside it is not touched. ``anywhere`` says of which reads that is not needed:
    they stay inside of their buffers in any case."""

    def guard(read: Read) -> Expr:
        if anywhere(read):
            return read
        if read.mask is not None:
            return Read(read.buffer, read.indices, read.dtype, Op("logical_and", (mask, read.mask), "bool"), read.other)
        zero: bool | int | float = False if read.dtype == "bool" else 0.0 if read.dtype.startswith(("float", "bfloat")) else 0
        return Read(read.buffer, read.indices, read.dtype, mask, Const(zero, read.dtype))

    return Rewriter(rule=guard)(expr)
