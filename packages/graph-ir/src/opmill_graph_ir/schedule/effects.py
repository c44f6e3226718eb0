"""Which operators do more than their results say: those that draw random numbers move the generator on, those that exchange tensors with
other processes must find these ready, and views share memory."""

from __future__ import annotations

from functools import lru_cache

import torch

from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.raising import raises_for_content
from opmill_fake_tensors.symbols import Index

from ..lowered import Extern
from ..ops.records import record_of
from ..overloads import exchanges, overload
from .loop import Statement


def in_order(statement: Statement) -> bool:
    """Whether the statement takes numbers from the random generator, exchanges tensors, or is an operator of another library that gives
    nothing: it is then neither dropped nor moved across another."""
    return type(statement) is Extern and (statement.draws or _draws(statement.op) or exchanges(statement.op) or _says_nothing(statement))


def may_raise(statement: Statement) -> bool:
    """Whether the statement raises for some contents of what it reads."""
    if type(statement) is not Extern:
        return bool(statement.checks)
    found = overload(statement.op)
    if statement.op == "aten::pow.Tensor_Scalar" and isinstance(statement.args[1], Index):
        return True  # of a number that data tell, which may be negative
    return found is not None and raises_for_content(found._schema.name.removesuffix("_"), "int64", True)


def gives_views(node: Extern) -> bool:
    """Whether the results may lie in the memory of an argument."""
    found = overload(node.op)
    return record_of(node.op).shares or (found is not None and describe(found).gives_views)


def gives_memory(node: Extern) -> bool:
    """Whether it is known that nothing else shows the memory of a result. Schemas do not tell: oneDNN's backward of recurrent layers gives
    one tensor twice."""
    return record_of(node.op).own_memory


def _says_nothing(node: Extern) -> bool:
    return not node.results and not node.mutates and not node.op.startswith("aten::")


@lru_cache(None)
def _draws(op: str) -> bool:
    found = overload(op)
    return found is not None and torch.Tag.nondeterministic_seeded in found.tags
