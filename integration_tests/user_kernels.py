"""Triton kernels of a program's own in compiled code, against the program as it is: run by test_user_kernels.py, on CPU tensors by Triton's
interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import opmill
from opmill.compile import record_of
from opmill_bytecode_frontend.kernels.mutation_analysis import Indirect, written

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(y + i, tl.load(x + i, mask=m) * 2, mask=m)


@triton.jit
def add_to(total, x, n, scale, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(total + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)


@triton.jit
def put(p, o, v, m):
    q = p + o
    tl.store(q, v, mask=m)


@triton.jit
def scatter(a, b, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    put(out, tl.load(b + i, mask=i < n, other=0), tl.load(a + i, mask=i < n), i < n)


@triton.jit
def walk(x, out, n, K: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    p = x
    q = out
    for k in range(K):
        tl.store(q + i, tl.load(p + i, mask=i < n) + k, mask=i < n)
        p += n
        q += n


@triton.jit
def either(a, b, out, n, first: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    target = out
    if first:
        target = a
    tl.store(target + i, tl.load(b + i, mask=i < n), mask=i < n)


@triton.jit
def triple(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 3, mask=i < n)


@triton.jit
def through_pointers(table, n, B: tl.constexpr):
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(p + tl.arange(0, B), 1.0)


def once(call: Callable[[], Any], quantiles: Any) -> tuple[float, ...]:
    call()
    return (1.0, 1.0, 1.0)


@triton.autotune(configs=[triton.Config({"B": 32}), triton.Config({"B": 64})], key=["n"], do_bench=once)
@triton.jit
def tuned(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def outer(x, y, n, m, B: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    tl.store(y + i * m + j, tl.load(x + i * m + j, mask=j < m) * (i + 1), mask=j < m)


WRITES = {double: "y", add_to: "total", scatter: "out", walk: "out", either: "a out", triple: "x", tuned: "y"}


def plain(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), B=32)
    return y + 1


def grid_of_a_function(x):
    y, n = torch.empty_like(x), x.numel()
    double[lambda meta: (triton.cdiv(n, meta["B"]),)](x.sin(), y, n, B=16)
    return y.cos(), x


def atomics(x):
    total = torch.ones_like(x)
    add_to[(4,)](total, x * 2, x.numel(), 0.5, B=32)
    add_to[(4, 1)](total, x, x.numel(), 2.0, 32)
    return total * 2


def by_another_function(x):
    out, at = torch.zeros_like(x), torch.arange(x.numel() - 1, -1, -1, device=x.device)
    scatter[(4,)](x, at, out, x.numel(), B=32)
    return out + x


def loops(x):
    out = torch.empty_like(x)
    walk[(1,)](x, out, x.shape[1], K=x.shape[0], B=32)
    return out


def an_argument(x):
    z = x + 1
    triple[(4,)](x, x.numel(), B=32)
    return x * z


def views(x):
    y = torch.zeros(2 * x.numel(), device=x.device)
    triple[(1,)](y[3:], 5, B=8)
    double[(4,)](x, y[: x.numel()], x.numel(), B=32)
    return y


def one_after_the_other(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    double[(4,)](x, y, x.numel(), B=32)
    double[(4,)](y, z, x.numel(), B=32)
    triple[(4,)](y, x.numel(), B=32)
    return y, z, y - z


def autotuned(x):
    y, n = torch.empty_like(x), x.numel()
    tuned[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, n)
    return y * 2


def chosen(x):
    a, out = torch.zeros(40, device=x.device), torch.zeros(40, device=x.device)
    either[(1,)](a, x, out, 30, x.shape[0] == 10, B=32)
    return a, out


def one_memory_twice(x):
    double[(4,)](x, x.view(-1), x.numel(), B=32)
    return x + 1


def the_same_tensor_twice(x):
    y = x * 2
    double[(4,)](y, y, y.numel(), B=32)
    return y


def over_two_dimensions(x):
    y = torch.empty_like(x)
    outer[(x.shape[0], triton.cdiv(x.shape[1], 4))](x, y, *x.shape, B=4)
    return y


WHOLE = [
    over_two_dimensions,
    plain,
    grid_of_a_function,
    atomics,
    by_another_function,
    loops,
    an_argument,
    views,
    one_after_the_other,
    autotuned,
    chosen,
    the_same_tensor_twice,
]
BROKEN = [one_memory_twice]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 10)

    def forward(self, x):
        h = self.linear(x)
        m = torch.empty_like(h)
        double[(4,)](h.detach(), m, h.numel(), B=32)
        return h * m


def check(function: Callable[[Any], Any], fullgraph: bool) -> str:
    compiled = opmill.compile(function, fullgraph=fullgraph)
    with torch.no_grad():
        for shape in ((10, 10), (10, 10), (8, 8), (6, 9)):
            x = torch.randn(shape, device=DEVICE)
            y = x.clone()
            results = [r if isinstance(r, tuple) else (r,) for r in (function(x), compiled(y))]
            for wanted, found in zip((*results[0], x), (*results[1], y), strict=True):
                if wanted.stride() != found.stride() or not torch.allclose(wanted, found, atol=1e-6):
                    return f"differs at {shape}"
    record = record_of(compiled)
    assert record is not None
    return "".join(g.fallback for g in record[1].graphs)


def training() -> str:
    model = Model().to(DEVICE)
    compiled = opmill.compile(model, fullgraph=True)
    for _ in range(2):
        x, grads = torch.randn(10, 10, device=DEVICE), []
        for run in (model, compiled):
            model.zero_grad()
            run(x).sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*grads, strict=True)):
            return "gradients differ"
    return ""


def launched_by_triton(function: Callable[[Any], Any], shape: tuple[int, ...]) -> int:
    """How many launches of a compiled call Triton sees."""
    opmill.reset()
    compiled, x, seen = opmill.compile(function), torch.randn(shape, device=DEVICE), []
    run = triton.runtime.jit.JITFunction.run
    with torch.no_grad():
        wanted = compiled(x.clone())
        triton.runtime.jit.JITFunction.run = lambda self, *args, **kwargs: (seen.append(self), run(self, *args, **kwargs))[1]
        try:
            found = compiled(x.clone())
        finally:
            triton.runtime.jit.JITFunction.run = run
    assert all(torch.equal(a, b) for a, b in zip(_flat(wanted), _flat(found), strict=True))
    return len(seen)


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


NATIVE = [
    plain,
    grid_of_a_function,
    atomics,
    by_another_function,
    loops,
    an_argument,
    views,
    one_after_the_other,
    chosen,
    over_two_dimensions,
]
"""What a GPU runs without Triton, once it is compiled."""


def main() -> None:
    torch.manual_seed(0)
    names = {"total", "x", "y", "out", "a", "b", "table"}
    for kernel, wanted in WRITES.items():
        found = written(kernel) & names
        print(f"writes: {'right' if found == set(wanted.split()) else sorted(found)}")
    try:
        written(through_pointers)
        print("writes through pointers: not seen")
    except Indirect:
        print("writes through pointers: right")
    for function in (*WHOLE, *BROKEN):
        opmill.reset()
        try:
            found = check(function, function in WHOLE)
        except Exception as error:
            found = f"{type(error).__name__}: {error}".replace("\n", " | ")
        print(f"{function.__name__}: {found or 'right'}", flush=True)
    for function in NATIVE if DEVICE == "cuda" else ():
        count = launched_by_triton(function, (10, 10))
        print(f"{function.__name__} without Triton: {f'{count} launches' if count else 'right'}", flush=True)
    print(f"training: {training() or 'right'}")
    print(f"torch's compiler: {'imported' if 'torch._dynamo' in sys.modules else 'right'}")


if __name__ == "__main__":
    main()
