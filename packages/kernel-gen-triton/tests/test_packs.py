"""Nests that do the same to different buffers are one launch, and do what they did one after the other."""

from __future__ import annotations

import random

import pytest
import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import axes, op
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import run
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.pack import Pack, pack
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

pytestmark = pytest.mark.triton


def moved(source: str, target: str, size: int, factor: float) -> ir.Nest:
    """``target = 0.9 * target + factor * source``."""
    old, new = ir.Load(target, index("i"), "float32"), ir.Load(source, index("i"), "float32")
    value = op("add", op("mul", old, ir.Const(0.9, "float32")), op("mul", new, ir.Const(factor, "float32")))
    return ir.Nest(axes(i=size), (ir.Phase(stores=(ir.Store(target, index("i"), value),)),), f"move {target}")


def summed(source: str, target: str, rows: int, columns: int) -> ir.Nest:
    r = ir.Reduction(("s",), "sum", ir.Load(source, index("j") * columns + "i", "float32"), "float32")
    return ir.Nest(
        axes(i=columns),
        (ir.Phase(axes(j=rows), reductions=(r,)), ir.Phase(stores=(ir.Store(target, index("i"), ir.Ref("s", "float32")),))),
        "sum",
    )


def kernel(nests: list[ir.Nest], sizes: dict[str, int]) -> ir.LoopKernel:
    buffers = tuple(ir.Buffer(n, "float32", "inout", index(k)) for n, k in sizes.items())
    return ir.LoopKernel("many", buffers, tuple(nests))


def statistics(count: int) -> ir.LoopKernel:
    sizes = {f"{kind}{k}": 8 << (k % 3) for k in range(count) for kind in "mv"}
    return kernel([moved(f"m{k}", f"v{k}", 8 << (k % 3), 0.1) for k in range(count)], sizes)


def same(made: ir.LoopKernel, budget: Budget) -> None:
    memory = {b.name: torch.randn(b.numel.constant or 0) for b in made.buffers}
    wanted = {n: t.double() for n, t in memory.items()}
    evaluate(made, wanted, (), wide=True)
    assert run(made, memory, budget=budget) == 0
    for name, tensor in memory.items():
        torch.testing.assert_close(tensor.double(), wanted[name], atol=1e-5, rtol=1e-5)


def test_equal_nests_are_one_launch() -> None:
    made = statistics(20)
    assert len(kernel_text(made).functions) == 3
    same(made, Budget())


def test_a_launch_takes_no_more_pointers_than_the_driver_does() -> None:
    made = kernel([moved(f"m{k}", f"v{k}", 8, 0.1) for k in range(300)], {f"{kind}{k}": 8 for k in range(300) for kind in "mv"})
    functions = [f for [f] in kernel_text(made).functions]
    assert len(functions) == 4 and all(len(f.params) <= 194 for f in functions)
    same(made, Budget())


def test_what_waits_for_another_comes_later() -> None:
    """Of a chain each nest is alone; beside it others are together."""
    chain = [moved("a", "b", 8, 0.5), moved("b", "c", 8, 0.5), moved("c", "a", 8, 0.5)]
    assert pack(chain, kernel([], dict.fromkeys("abc", 8)).buffers) == chain
    beside = [moved("a", "b", 8, 0.5), moved("x", "y", 8, 0.5), moved("b", "c", 8, 0.5), moved("y", "z", 8, 0.5)]
    made = kernel(beside, dict.fromkeys("abcxyz", 8))
    assert [type(p) for p in pack(beside, made.buffers)] == [Pack, Pack]
    same(made, Budget())


@pytest.mark.parametrize("seed", range(12))
def test_random_nests_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {f"x{k}": rng.choice((8, 16)) for k in range(10)} | {f"t{k}": 16 * 40 for k in range(3)}
    small = [n for n in sizes if n.startswith("x")]
    nests = []
    for _ in range(14):
        source, target = rng.sample(small, 2)
        if rng.random() < 0.3:
            nests.append(summed(rng.choice(["t0", "t1", "t2"]), target, 40, sizes[target]))
        else:
            nests.append(moved(source, target, min(sizes[source], sizes[target]), rng.choice((0.1, 0.25))))
    made = kernel(nests, sizes)
    same(made, rng.choice((Budget(), Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2))))


def test_launch_data_names_the_buffers_of_every_member(tmp_path: object) -> None:
    made = kernel([moved(f"m{k}", f"v{k}", 8, 0.1) for k in range(3)], {f"{kind}{k}": 8 for k in range(3) for kind in "mv"})
    store = Store(tmp_path)
    [ref] = TritonKernelGenerator(90, workers=1).build([made], GeneratorOptions("cuda:0"), store)
    [step] = unseal(store.get(ref.artifact_kind, ref.key))[0].steps
    assert sorted(a.index for a in step.args) == list(range(6)) and step.grid == 3
