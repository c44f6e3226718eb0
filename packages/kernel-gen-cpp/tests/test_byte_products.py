"""Sums of products of bytes are exact: for few and many rows, depths that are no multiple of a vector, and where they wrap."""

import pytest
import torch

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Expr, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.emit.byte_products import is_of_bytes
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.kernel import kernel_text
from opmill_kernel_gen_cpp.target import AVX2, AVX512, AVX512_VNNI, GENERIC, SSE, Target, choose, host
from opmill_runtime_cache.store import Store as KernelStore

SHAPES = [(m, n, k) for m in range(1, 13) for n, k in ((7, 65), (66, 127), (40, 640))]
WRAPPING = (1, 3, (1 << 17) + 65)
"""A row whose sum of products of -128 is beyond 32 bits."""


def _product(m: int, n: int, k: int, step: int = 1, dtype: str = "int8") -> LoopKernel:
    """``out = a @ b.T`` of integers; ``step``: between the elements of a row of ``b``."""

    def wide(buffer: str, at: Index) -> Expr:
        return Op("cast", (Load(buffer, at, dtype),), "int32")

    row, column, depth = (Axis(name, index(size)) for name, size in (("m", m), ("n", n), ("k", k)))
    term = Op("mul", (wide("a", index("m") * k + "k"), wide("b", index("n") * k * step + index("k") * step)), "int32")
    summed = Phase((depth,), reductions=(Reduction(("total",), "sum", term, "int32"),))
    stored = Phase(stores=(Store("out", index("m") * n + "n", Ref("total", "int32")),))
    buffers = (
        Buffer("a", dtype, "in", index(m * k)),
        Buffer("b", dtype, "in", index(n * k * step)),
        Buffer("out", "int32", "out", index(m * n)),
    )
    return LoopKernel(f"product_{m}_{n}_{k}", buffers, (Nest((row, column), (summed, stored)),))


def _disagreements(shapes: list[tuple[int, int, int]], store: KernelStore, target: Target) -> list[tuple[object, ...]]:
    kernels = {shape: _product(*shape) for shape in shapes}
    runner, wrong = Runner(list(kernels.values()), store, CppKernelGenerator(target)), []
    for (m, n, k), kernel in kernels.items():
        generator = torch.Generator().manual_seed(m)
        for low, high in ((-128, 128), (-128, -127), (127, 128)):
            a = torch.randint(-128, 128, (m, k), generator=generator).to(torch.int8)
            b = torch.randint(low, high, (n, k), generator=generator).to(torch.int8)
            if high != 128 or low == 127:  # the same everywhere: the largest sums
                a[0] = -128
            out = torch.empty(m, n, dtype=torch.int32)
            assert runner.run(kernel, {"a": a, "b": b, "out": out}) == 0
            if not torch.equal(out, (a.long() @ b.long().T).int()):
                wrong.append((m, n, k, low))
    return wrong


def test_sums_are_exact(store) -> None:
    assert _disagreements([*SHAPES, WRAPPING], store, host()) == []


@pytest.mark.parametrize("target", [AVX512, AVX2, SSE, GENERIC], ids=lambda t: t.name)
@pytest.mark.skipif(host().name not in ("avx2", "avx512", "sse4"), reason="an x86 compiler is needed")
def test_sums_are_exact_without_the_instruction(target: Target, tmp_path) -> None:
    if target.bits > host().bits:
        pytest.skip(f"needs a processor with {target.name}")
    assert _disagreements([*SHAPES[::5], WRAPPING], KernelStore(tmp_path), target) == []


def test_which_sums_they_are() -> None:
    assert is_of_bytes(_product(2, 8, 64).nests[0])
    assert not is_of_bytes(_product(2, 8, 63).nests[0])
    assert not is_of_bytes(_product(2, 8, 64, step=2).nests[0])
    assert not is_of_bytes(_product(2, 8, 64, dtype="uint8").nests[0])


def test_a_row_is_read_once_for_four_columns() -> None:
    text = kernel_text(_product(1, 40, 640), "k", AVX2).body
    assert text.count("= load_i8x32(p_a") == 1
    assert text.count("= load_i8x32(p_b") == 4


def test_the_instruction_is_asked_for_where_it_is() -> None:
    known = set("avx512f avx512vl avx512dq avx512bw avx2 fma f16c bmi2 sse4_2".split())
    assert choose("x86_64", known) is AVX512
    assert choose("x86_64", known | {"avx512_vnni"}) is AVX512_VNNI
