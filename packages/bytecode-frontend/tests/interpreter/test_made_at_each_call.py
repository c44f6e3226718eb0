"""Objects of which each call has another: carried over a break, given as an argument, made in the middle of a statement. What was captured
for a few of them serves all others."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import fractions
import functools
import hashlib
import inspect
import io
import itertools
import queue
import random
import re
import struct
import threading
import types
import uuid
import weakref
import zlib

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend import capture

CALLS = 11
SETTLED = 6
"""The last call that may lead to another capture; a function is given up after eight."""
numbers = itertools.count(1)


class Plain:
    def __init__(self, k=2):
        self.k = k


class Leaf(torch.nn.Module):
    pass


MAKERS = {
    "Generator": lambda: torch.Generator().manual_seed(3),
    "Match": lambda: re.match("a(.)", "ab"),
    "Signature": lambda: inspect.signature(Plain),
    "Parameter": lambda: inspect.Parameter("a", inspect.Parameter.POSITIONAL_ONLY),
    "Event": threading.Event,
    "Lock": threading.Lock,
    "Compress": zlib.compressobj,
    "BytesIO": lambda: io.BytesIO(b"x"),
    "StringIO": lambda: io.StringIO("x"),
    "array": lambda: array.array("i", [1]),
    "bytearray": lambda: bytearray(b"1"),
    "datetime": lambda: datetime.datetime(2000, 1, 1) + datetime.timedelta(next(numbers)),
    "timedelta": lambda: datetime.timedelta(next(numbers)),
    "Decimal": lambda: decimal.Decimal(next(numbers)),
    "Fraction": lambda: fractions.Fraction(next(numbers), 7),
    "UUID": lambda: uuid.UUID(int=next(numbers)),
    "Random": lambda: random.Random(3),
    "numpy generator": lambda: np.random.default_rng(3),
    "digest": lambda: hashlib.sha256(b"1"),
    "Queue": queue.Queue,
    "object": object,
    "of a class": Plain,
    "weak reference": lambda: weakref.ref(Plain()),
    "iterator": lambda: iter([1, 2]),
    "generator": lambda: (i for i in (1, 2)),
    "partial": lambda: functools.partial(Plain, 3),
    "function": lambda: lambda: 3,
    "class": lambda: type("Made", (), {"k": next(numbers)}),
    "bound method": lambda: Plain().__init__,
    "bound method in C": lambda: [].append,
    "Struct": lambda: struct.Struct("i"),
    "memoryview": lambda: memoryview(b"12"),
    "exception": lambda: ValueError("q"),
    "namespace": lambda: types.SimpleNamespace(k=2),
    "module": lambda: Leaf(),
    "float": lambda: next(numbers) / 3,
    "int": lambda: next(numbers),
    "complex": lambda: complex(next(numbers), 1),
    "str": lambda: f"text {next(numbers)}",
    "bytes": lambda: b"%d" % next(numbers),
    "range": lambda: range(next(numbers)),
    "slice": lambda: slice(0, next(numbers)),
    "Size": lambda: torch.Size([next(numbers)]),
    "list": lambda: [next(numbers)],
    "tuple": lambda: (next(numbers), object()),
    "dict": lambda: {"a": object()},
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "OrderedDict": lambda: collections.OrderedDict(a=object()),
    "deque": lambda: collections.deque([object()]),
    "tensor": lambda: torch.ones(4),
    "ndarray": lambda: np.ones(4),
    "number of NumPy": lambda: np.float32(next(numbers)),
    "threading.local": threading.local,
    "ContextVar": lambda: contextvars.ContextVar("a"),
    "no_grad": lambda: torch.no_grad(),
    "grad_fn": lambda: (torch.ones(2, requires_grad=True) * 2).grad_fn,
    "storage": lambda: torch.ones(2).untyped_storage(),
    "finfo": lambda: torch.finfo(torch.float32),
    "iinfo": lambda: torch.iinfo(torch.int16),
    "zip": lambda: zip([1]),
    "Future": lambda: torch.futures.Future(),
    "WeakSet": weakref.WeakSet,
    "Normal": lambda: torch.distributions.Normal(0.0, 1.0),
}


@torch._dynamo.disable
def make(kind):
    return MAKERS[kind]()


def carried(x, kind):
    made = make(kind)
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2, type(made).__name__


def handed_on(x, made):
    return x + 1, x * 2, type(made).__name__


def between(x, kind):
    return handed_on(x + 1, make(kind))


def given(x, kind):
    return handed_on(x, kind)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("program", [carried, given, between], ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore")
def test_few_captures_serve_all_calls(program, kind):
    graphs = []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    found = capture(program, backend=count)
    kept, seen = [], []
    for k in range(CALLS):
        x = torch.full((4,), float(k))
        made = MAKERS[kind]() if program is given else kind
        kept.append(made)  # so that no two are at one address
        mine, want = found(x, made), program(x, made)
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(mine, want, strict=True))
        seen.append(len(graphs))
    assert seen[-1] == seen[SETTLED], f"{program.__name__} of {kind}: {seen}"
