"""One record for each operator: how it becomes loops, and every fact about it that another part of the compiler asks for.

A family file makes a :class:`Rows` and declares its operators in it; the folder is searched for such files. What other files need (which
operators may be computed again in a backward, which ones are indifferent to the layout of images, which ones write into memory that the
plan gives them) they ask of the record, so that nothing has to be added to a list elsewhere. An operator without a record is torch's own:
called as it is, never computed again, and aliasing as its schema says.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from opmill_fake_tensors.lazily import submodules

from ..errors import GraphError

Lowering = Callable[..., Any]
CHEAP = 90
"""What a pointwise operator may cost (``schedule.cost``, three transcendental functions are 60) to be computed again in a backward."""
Kind = Literal["other", "pointwise", "view", "creation", "product", "reduction", "random"]
Recompute = Literal["never", "dear", "cheap"]
Normalizes = Literal["", "rows", "groups", "channels"]
Complex = Literal["", "each part", "view", "indexed"]


class OperatorRecord(msgspec.Struct, frozen=True):
    """What is known of one overload. Only what differs from torch's own operator has to be said.

    ``name``: with namespace and overload (``"aten::add.Tensor"``; ``"aten::relu"`` for a default overload). ``family``: the file that
    declares it. ``lower``: takes the context, the node and the operator's arguments (tensors as ``View``s), and returns ``NotImplemented``
    where torch's operator shall be called.

    ``kind``: ``"pointwise"`` has as many elements as its broadcast operands, each made of one element of these; ``"view"`` gives other
    names to elements; ``"product"`` is a matrix product.

    ``recompute``: whether a backward may compute the result again instead of having it saved. ``"cheap"``: it may; ``"dear"``: it could, as
    one result by element of its operands, but that costs more than reading it back; ``"never"``: nothing is known.

    ``any_layout``: images may lie channels last in all operands and results, it becomes loops in either case. ``moves``: places or converts
    elements and computes with none, so types that loops only move are welcome. ``own_memory``: nothing else shows the memory of a
    result (schemas do not tell: some operators give one tensor twice). ``shares``: results lie in the memory of an operand although the
    schema does not say so. ``out``: the overload that writes into memory given by the plan; ``in_place``: the one that writes its first
    argument instead, and gives it.

    ``rounds_numbers``: numbers beside tensors in half precision are rounded as torch does. ``complex``: how numbers of two parts are
    lowered where no row in ``pairs.py`` says so: ``"each part"`` as real ones, ``"indexed"`` the first operand alone, ``"view"`` as
    positions. ``gradient``: the operator that autograd calls for its derivative, where that is one of torch's for this purpose.
    ``compares``: its tensors with one another. ``chooses``: results are elements of the first operand, or say where these are; see
    ``compared.py``. ``normalizes``: over what a norm finds the mean and the reciprocal deviation that are its second and third result."""

    name: str
    family: str = ""
    lower: Lowering | None = None
    kind: Kind = "other"
    recompute: Recompute = "never"
    any_layout: bool = False
    moves: bool = False
    own_memory: bool = False
    shares: bool = False
    out: str | None = None
    in_place: str | None = None
    rounds_numbers: bool = False
    complex: Complex = ""
    gradient: str = ""
    compares: bool = False
    chooses: bool = False
    normalizes: Normalizes = ""


def _torchs_own(*_: Any, **__: Any) -> Any:
    return NotImplemented


class Rows(dict[str, OperatorRecord]):
    """Records of a family by operator name. ``facts`` hold for all of them unless a row says otherwise; ``space``: the library that they
    belong to."""

    def __init__(self, *, space: str = "aten", **facts: Any) -> None:
        super().__init__()
        self.space, self.facts = space, facts

    def lowers(self, *names: str, **facts: Any) -> Callable[[Lowering], Lowering]:
        """Declares that the decorated function lowers these operators (names without the library), with these fields of their records.
        Raises GraphError GI041 for an operator that the family has."""

        def add(fn: Lowering) -> Lowering:
            for name in " ".join(names).split():
                if (full := f"{self.space}::{name}") in self:
                    raise GraphError("GI041", f"{full} has two rows", hint="keep one of them")
                self[full] = OperatorRecord(full, lower=fn, **{**self.facts, **facts})
            return fn

        return add

    def calls(self, *names: str, **facts: Any) -> None:
        """Declares facts about operators that are always torch's own."""
        for name in " ".join(names).split():
            self.lowers(name, **facts)(_torchs_own)

    def pointwise(self, *names: str, **facts: Any) -> Callable[[Lowering], Lowering]:
        """As :meth:`lowers`, for operators that make each element of one element of their operands, cheaply, in whatever layout."""
        return self.lowers(*names, **{"kind": "pointwise", "recompute": "cheap", "any_layout": True, **facts})


@functools.cache
def all_records() -> Mapping[str, OperatorRecord]:
    """The records of every family file beside this one; other files there have none. Raises GraphError GI041 for an operator in two
    families: which row was meant would be a matter of the files' names."""
    package = __name__.rpartition(".")[0]
    names = submodules(importlib.import_module(package).__path__)
    return joined({name: getattr(importlib.import_module(f"{package}.{name}"), "ROWS", {}) for name in names})


def joined(families: Mapping[str, Mapping[str, OperatorRecord]]) -> dict[str, OperatorRecord]:
    """All records of some families. Raises GraphError GI041 for an operator that two have."""
    out: dict[str, OperatorRecord] = {}
    for family, rows in families.items():
        for name, record in rows.items():
            if (other := out.get(name)) is not None:
                raise GraphError("GI041", f"{name} has rows in {other.family} and in {family}", hint="keep one of them")
            out[name] = msgspec.structs.replace(record, family=family)
    return out


def record_of(name: str) -> OperatorRecord:
    """The record of an operator by its full name; of one that no family declares, that of any of torch's own."""
    return all_records().get(name) or OperatorRecord(name)


__all__ = ["CHEAP", "Lowering", "OperatorRecord", "Rows", "all_records", "joined", "record_of"]
