"""Operators point by point beside eager: types that operands of all kinds promote to, layouts that they tell."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch
from beside_eager import as_eager, layouts

from opmill_fake_tensors.rules.pointwise import RECORDS

DTYPES = [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64]
NUMBERS = [2, 2.5, True, 1j]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.and_]
BINARY += [operator.lshift, operator.lt, operator.eq, torch.maximum, torch.atan2, torch.xlogy, torch.copysign, torch.fmod, torch.hypot]
BINARY += [torch.logical_or, torch.ldexp, torch.heaviside, torch.nextafter, torch.logaddexp, torch.gcd, torch.rsub]
SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), ()), ((1,), ()), ((0, 3), (1, 3)), ((2, 3, 4), (3, 1))]


@pytest.mark.parametrize("first", DTYPES, ids=str)
@pytest.mark.parametrize("call", BINARY, ids=lambda f: f.__name__)
def test_operands_of_two_types(call, first):
    for second, (a, b) in itertools.product(DTYPES, SHAPES):
        as_eager(call, torch.ones(a, dtype=first), torch.ones(b, dtype=second))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", BINARY, ids=lambda f: f.__name__)
def test_numbers_beside_tensors(call, dtype):
    for number in NUMBERS:
        for x in (*layouts(1, 3, dtype=dtype), *layouts(dtype=dtype)):
            as_eager(lambda x, number=number: call(x, number), x)
            as_eager(lambda x, number=number: call(number, x), x)


UNARY = sorted(n for n in RECORDS if hasattr(torch, n) and n not in ("where", "complex", "polar", "polygamma"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, dtype):
    for x in (*layouts(2, 3, 4, dtype=dtype), *layouts(dtype=dtype), *layouts(2, 0, dtype=dtype)):
        as_eager(getattr(torch, name), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_three_operands(dtype):
    for a, b in itertools.product(layouts(2, 3, dtype=dtype), layouts(2, 3)):
        as_eager(lambda a, b: torch.where(b > 0, a, b), a, b)
        as_eager(lambda a, b: torch.where(b > 0, a, 1.5), a, b)
        as_eager(lambda a, b: torch.where(b > 0, 2, 1.5), a, b)
        for name in ("addcmul", "addcdiv", "lerp"):
            as_eager(getattr(torch, name), a, b, b)
            as_eager(getattr(torch, name), a, b.to(dtype), a)
        as_eager(lambda a, b: torch.addcmul(a, b, b, value=2), a, b)
        as_eager(lambda a, b: torch.clamp(a, b, b), a, b)
        as_eager(lambda a: torch.clamp(a, 0.5, None), a)
        as_eager(lambda a: torch.clamp(a, None, 3), a)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [operator.iadd, operator.imul, operator.itruediv, operator.ipow, operator.iand, operator.ifloordiv])
def test_targets(call, dtype):
    for x in layouts(2, 3, dtype=dtype):
        for other in (
            torch.ones(3),
            torch.ones(3, dtype=torch.int64),
            torch.ones((), dtype=torch.float64),
            torch.ones(2, 2, 3),
            2,
            2.5,
            1j,
        ):
            as_eager(lambda x, other: call(x.clone(), other), x, other)
