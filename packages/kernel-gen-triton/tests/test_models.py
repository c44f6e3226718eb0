"""Kernels of real graphs: captured and scheduled by graph-ir, interpreted against the reference, compiled to cubins."""

import warnings

import pytest
import torch
from torch import nn

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_kernel_gen_triton.debug import as_for_gpu, disagreement
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(torch.arange(16))
        y = self.norm(x)
        scores = (y @ y.transpose(1, 2) / 32**0.5).softmax(-1)
        return self.down(nn.functional.gelu(self.up(self.norm(x + scores @ y)))).mean((0, 1))


class Pools(nn.Module):
    """Largest elements and where they are, of windows that overlap and of parts of unequal size."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windows, parts = (
            nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True),
            nn.functional.adaptive_max_pool2d(x, (4, 3), return_indices=True),
        )
        return windows[0], windows[1], parts[0], parts[1]


def _image() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.Hardswish()).eval()


GRAPHS = {
    "block": (Block().eval(), (torch.randint(0, 50, (2, 16)),)),
    "image": (_image(), (torch.randn(2, 3, 13, 13),)),
    "pools": (Pools(), (torch.randn(2, 3, 13, 13),)),
    "mlp": (nn.Sequential(nn.Linear(20, 40), nn.SiLU(), nn.LayerNorm(40), nn.Linear(40, 3), nn.LogSoftmax(-1)), (torch.randn(5, 20),)),
}


class _Collector:
    """Takes every kernel, and builds none."""

    name = "collector"

    def __init__(self) -> None:
        self.kernels: list[LoopKernel] = []

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> None:
        return None

    def available(self) -> None:
        return None

    def build(self, kernels, options, store):
        self.kernels += list(dict.fromkeys(kernels))
        raise KernelBuildError("KT000", "collected")


def kernels_of(name: str, store: Store) -> list[LoopKernel]:
    model, inputs = GRAPHS[name]
    collector = _Collector()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_graph(torch.fx.symbolic_trace(model), inputs, store=store, generators=[collector])
    assert collector.kernels
    return collector.kernels


def _ranges(kernel: LoopKernel) -> dict[str, tuple[float, float]]:
    """Indices that are in range of every table; variances that are positive."""
    return {b.name: (0, 1) for b in kernel.buffers if b.dtype == "int64"} | {
        b.name: (0.1, 2.0) for b in kernel.buffers if b.dtype == "float32"
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_agree_with_reference(name: str, tmp_path) -> None:
    wrong = [
        d for k in kernels_of(name, Store(tmp_path)) if (d := disagreement(Case(k.name, k, ranges=_ranges(k), rtol=256.0))) is not None
    ]
    assert wrong == []


def test_of_several_nan_in_a_window_the_last_is_the_largest() -> None:
    x = torch.where(torch.arange(8) % 3 == 1, float("nan"), torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(Pools()), [x])
        torch.testing.assert_close(call(x), Pools()(x), rtol=0, atol=0, equal_nan=True)
    assert plan.kernels


@pytest.mark.parametrize("name", ["block", "pools"])
def test_compile_to_cubins(name: str, tmp_path) -> None:
    generator, options, store = TritonKernelGenerator(90), GeneratorOptions("cuda:0"), Store(tmp_path)
    kernels = kernels_of(name, store)
    assert [generator.claims(k, options) for k in kernels] == [None] * len(kernels)
    refs = generator.build(kernels, options, store)
    assert all(b"\x7fELF" in unseal(store.get(r.artifact_kind, r.key))[2][:4096] for r in refs)
