"""How vectors are read and written: every lane from its place, and nothing beside the tensors, whatever steps, masks and lengths."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, IndexValue, Let, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.target import AVX2, AVX512, SSE, Target, host
from opmill_runtime_cache.store import Store as Folder

DTYPES = ("float32", "float64", "bfloat16", "int8", "int64", "bool")
STEPS = (1, 2, 3, 4, 5, -1)
LENGTHS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 20, 31, 33, 49)
FIRST = 3


def _kernel(dtype: str, step: int, form: str, known: int | None) -> LoopKernel:
    """``out[i] = in[step * i]``, or only from the fourth element on, or in the order of ``order``."""
    n = index("n") if known is None else index(known)
    at = index("i") * step + (n - 1 if step < 0 else 0)
    mask = Op("ge", (IndexValue(index("i"), "int64"), Const(FIRST, "int64")), "bool") if form == "masked" else None
    if form == "ordered":
        at = index("place")
    source = Load("in", at - step * FIRST if mask else at, dtype, mask)
    lets, buffers = (), [Buffer("in", dtype, "in", n * abs(step)), Buffer("out", dtype, "out", n)]
    if form == "ordered":
        lets = (Let("place", Load("order", index("i"), "int64")),)
        buffers.insert(0, Buffer("order", "int64", "in", n))
    name = f"{form}_{dtype}_{step}_{known}".replace("-", "back")
    nest = Nest((Axis("i", n),), (Phase(lets=lets, stores=(Store("out", index("i"), source),)),))
    return LoopKernel(name, tuple(buffers), (nest,), () if known else ("n",))


def _neighbours(dtype: str, of: int) -> LoopKernel:
    """``out[i, j] = in[j // of] + in[j % of]``, with as many columns as three vectors have lanes, and some."""
    i, j, columns = index("i"), index("j"), 60
    extents = {"i": 5, "j": columns}
    value = Op("add", (Load("in", floordiv(j, of, extents), dtype), Load("in", mod(j, of, extents), dtype)), dtype)
    buffers = (Buffer("in", dtype, "in", index(columns)), Buffer("out", dtype, "out", index(5 * columns)))
    axes = (Axis("i", index(5)), Axis("j", index(columns)))
    return LoopKernel(f"neighbours_{dtype}_{of}", buffers, (Nest(axes, (Phase(stores=(Store("out", i * columns + j, value),)),)),))


def _kernels() -> list[tuple[LoopKernel, int, str, int | None]]:
    made = []
    for dtype, step, form, known in itertools.product(DTYPES, STEPS, ("plain", "masked", "ordered"), (None, 37)):
        if step == 1 if form == "ordered" else step <= (5 if dtype == "float32" else 3):
            made.append((_kernel(dtype, step, form, known), step, form, known))
    return made


def _placed(dtype: str, numel: int) -> tuple[torch.Tensor, object]:
    """Memory that ends where a page begins that may not be touched."""
    from test_bounds import _between  # type: ignore[import-not-found]

    size = getattr(torch, dtype).itemsize
    memory, pages = _between(-(-numel * size // 32) * 8 or 8, at_end=True)
    return memory.view(torch.uint8)[memory.numel() * 4 - numel * size :].view(getattr(torch, dtype)), pages


def _check(runner: Runner, kernel: LoopKernel, step: int, form: str, n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    dtype = kernel.buffers[-1].dtype
    source = torch.randint(0, 2 if dtype == "bool" else 100, (n * abs(step),), generator=generator).to(getattr(torch, dtype))
    want = source[::step].clone() if step > 0 else source.flip(0)
    buffers, keep = {}, []
    for buffer in kernel.buffers:
        buffers[buffer.name], pages = _placed(buffer.dtype, n * abs(step) if buffer.name == "in" else n)
        keep.append(pages)
    buffers["in"].copy_(source)
    if form == "masked":
        want = torch.cat([want.new_zeros(min(FIRST, n)), want[: max(n - FIRST, 0)]])
    if form == "ordered":
        buffers["order"].copy_(torch.randperm(n, generator=generator))
        want = want[buffers["order"]]
    print(kernel.name, n, flush=True)
    assert runner.run(kernel, buffers, (n,)) == 0
    assert torch.equal(buffers["out"], want), (kernel.name, n, buffers["out"], want)


def _run(folder: str, target: Target) -> None:
    made = _kernels()
    runner = Runner([kernel for kernel, *_ in made], Folder(Path(folder)), CppKernelGenerator(target))
    for kernel, step, form, known in made:
        for n in LENGTHS if known is None else (known,):
            _check(runner, kernel, step, form, n)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_elements_that_lanes_share(store: Folder, dtype: str) -> None:
    kernels = {of: _neighbours(dtype, of) for of in (2, 3, 4, 5, 8, 16, 20)}
    runner = Runner(list(kernels.values()), store)
    x, j = torch.arange(1, 61).to(getattr(torch, dtype)), torch.arange(60)
    for of, kernel in kernels.items():
        out = torch.empty(5, 60, dtype=x.dtype)
        assert runner.run(kernel, {"in": x, "out": out}) == 0
        assert torch.equal(out, (x[j // of] + x[j % of]).expand(5, 60)), of


def _runs_here(target: Target) -> bool:
    wider = {"avx512": (AVX512, AVX2, SSE), "avx2": (AVX2, SSE), "sse4": (SSE,)}
    return os.name == "posix" and target in wider.get(host().name, ())


@pytest.mark.parametrize("target", [AVX512, AVX2, SSE], ids=lambda t: t.name)
def test_lanes_come_from_their_places(tmp_path: Path, target: Target) -> None:
    if not _runs_here(target):
        pytest.skip(f"needs a processor with {target.name}")
    command = [sys.executable, __file__, str(tmp_path), target.name]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert run.returncode == 0, f"the process ended with {run.returncode} in {run.stdout.splitlines()[-1:]}: {run.stderr[-2000:]}"


if __name__ == "__main__":
    _run(sys.argv[1], {t.name: t for t in (AVX512, AVX2, SSE)}[sys.argv[2]])
