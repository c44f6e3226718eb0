"""Transposed reads by squares of memory: right for every rest of rows and columns, for all widths of elements, and for sizes that move."""

import random

import pytest
import torch

from opmill_graph_ir.loops.cases import cast, op
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, IndexValue, Let, Load, LoopKernel, Nest, Phase, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.kernel import kernel_text
from opmill_kernel_gen_cpp.target import Target, host

ROWS, COLUMNS = (16, 17, 24, 31, 70, 136), (8, 9, 16, 23, 64, 130)


def _turned(seed: int, rows: Index, columns: Index, symbols: tuple[str, ...] = ()) -> LoopKernel:
    """out[i, j] of a[j, i] and what depends on i, on j, on both and on neither, some of it masked."""
    r = random.Random(seed)
    dtype = r.choice(["float32", "float32", "float64", "bfloat16", "int64", "uint8", "int32", "bool"])
    i, j = index("i"), index("j")
    wide = "float64" if dtype in ("float64", "int64") else "float32"
    apart = r.choice([0, 0, 3])
    inside = op("lt", IndexValue(i + j, "int64"), IndexValue(columns + 2, "int64"))
    others: list[Expr] = [
        Load("b", i, "float32"), Load("c", j, "float32"), Load("d", i * columns + j, "float32"), Load("c", index(0), "float32"),
        Load("a", j * (rows + apart) + i, dtype, inside, Const(0, dtype)), Const(1.5, "float32"), Load("b", rows - 1 - i, "float32"),
    ]  # fmt: skip
    value: Expr = Ref("first", wide)
    for other in r.sample(others, r.randint(0, 3)):
        value = op(r.choice(["add", "mul", "max"]), value, cast(other, wide))
    lets = (Let("first", cast(Load("a", j * (rows + apart) + i, dtype), wide)),)
    stores = [Store("out", i * columns + j, value)]
    if r.random() < 0.3:
        stores.append(Store("out1", i * columns + j, cast(Load("a", j * (rows + apart) + i, dtype), "float32")))
    buffers = [
        Buffer("a", dtype, "in", (rows + apart) * columns), Buffer("b", "float32", "in", rows), Buffer("c", "float32", "in", columns),
        Buffer("d", "float32", "in", rows * columns), Buffer("out", wide, "out", rows * columns),
    ]  # fmt: skip
    if len(stores) > 1:
        buffers.append(Buffer("out1", "float32", "out", rows * columns))
    return LoopKernel(
        f"turned{seed}", tuple(buffers), (Nest((Axis("i", rows), Axis("j", columns)), (Phase((), lets, stores=tuple(stores)),)),), symbols
    )


def _filled(kernel: LoopKernel, values: dict[str, int]) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    out = {}
    for b in kernel.buffers:
        n = b.numel.evaluate(values)
        out[b.name] = (
            torch.randint(0, 9, (n,), generator=g) if b.dtype.lstrip("u").startswith(("int", "bool")) else torch.randn(n, generator=g)
        ).to(getattr(torch, b.dtype))
    return out


def _differs(kernel: LoopKernel, runner: Runner, sizes: tuple[int, ...] = ()) -> float:
    got = _filled(kernel, dict(zip(kernel.symbols, sizes, strict=True)))
    want = {k: v.clone() for k, v in got.items()}
    assert runner.run(kernel, got, sizes) == evaluate(kernel, want, sizes) == 0
    return max(float((got[k].double() - want[k].double()).abs().max()) for k in ("out", "out1") if k in got)


KERNELS = [_turned(seed, index(random.Random(seed).choice(ROWS)), index(random.Random(-seed).choice(COLUMNS))) for seed in range(60)]


def test_turned_reads(store) -> None:
    runner = Runner(KERNELS, store)
    assert [(k.name, d) for k in KERNELS if (d := _differs(k, runner)) > 1e-5] == []


@pytest.mark.parametrize("bits", [128, 512])
def test_turned_reads_with_vectors_of_any_width(store, bits: int) -> None:
    kernels = KERNELS[:20]
    runner = Runner(kernels, store, CppKernelGenerator(Target(f"any{bits}", bits, host().flags, fma=host().fma)))
    assert [(k.name, d) for k in kernels if (d := _differs(k, runner)) > 1e-5] == []


def test_turned_reads_of_sizes_that_move(store) -> None:
    kernels = [_turned(seed, index("s0"), index("s1"), ("s0", "s1")) for seed in range(100, 116)]
    runner = Runner(kernels, store)
    sizes = [(1, 1), (7, 8), (8, 7), (16, 16), (33, 129), (130, 40)]
    assert [(k.name, s, d) for k in kernels for s in sizes if (d := _differs(k, runner, s)) > 1e-5] == []


def test_a_plain_turn_is_squares_alone() -> None:
    kernel = next(k for k in KERNELS if "square_" in kernel_text(k, "k", host()).body)
    assert kernel.nests
    copy = LoopKernel("copy", (Buffer("a", "float32", "in", index(64 * 48)), Buffer("out", "float32", "out", index(64 * 48))), (
        Nest((Axis("i", index(48)), Axis("j", index(64))), (Phase(stores=(Store("out", index("i") * 64 + "j", Load("a", index("j") * 48 + "i", "float32")),)),)),
    ))  # fmt: skip
    text = kernel_text(copy, "k", host()).body
    assert "square_" in text and "strided_" not in text
