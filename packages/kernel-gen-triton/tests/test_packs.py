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
    """Those of each size as a pack, and these beside each other."""
    made = statistics(20)
    assert len(kernel_text(made).functions) == 1 and [type(p) for p in pack(made.nests, made.buffers)] == [Pack] * 3
    same(made, Budget())


def test_others_stand_beside_each_other(tmp_path: object) -> None:
    """Sums and updates of other buffers are one launch; what reads a sum comes later."""
    sizes = {"t": 16 * 40, "a": 16, "b": 16, "c": 8, "d": 8, "e": 16}
    made = kernel([summed("t", "a", 40, 16), moved("c", "d", 8, 0.5), moved("b", "e", 16, 0.5), moved("a", "b", 16, 0.5)], sizes)
    first, second = (f for [f] in kernel_text(made).functions)
    assert [p.buffer for p in first.params] == ["t", "a", "c", "d", "b", "e"] and [p.buffer for p in second.params] == ["a", "b"]
    same(made, Budget())
    store = Store(tmp_path)
    [ref] = TritonKernelGenerator(90, workers=1).build([made], GeneratorOptions("cuda:0"), store)
    assert [step.grid for step in unseal(store.get(ref.artifact_kind, ref.key))[0].steps] == [first.grid.constant, second.grid.constant]


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


def placed(source: str, target: str, at: str, checked: bool) -> ir.Nest:
    """``target[at[i]] = source[i]``, with a check of the places or without."""
    place = ir.Load(at, index("i"), "int64")
    inside = op("logical_and", op("ge", place, ir.Const(0, "int64")), op("lt", place, ir.Const(8, "int64")))
    checks = (ir.Check(inside, "IndexError", "outside"),) if checked else ()
    store = ir.Store(target, index("p"), ir.Load(source, index("i"), "float32"))
    return ir.Nest(axes(i=8), (ir.Phase(lets=(ir.Let("p", place),), checks=checks, stores=(store,)),), "place")


@pytest.mark.parametrize("places", [[0, 3, 1, 2, 7, 5, 4, 6], [0, 3, 1, 2, 9, 5, 4, 6]])
@pytest.mark.parametrize(("checked", "launches"), [((True, True), 1), ((True, False), 2)])
def test_what_a_check_protects_comes_later(checked: tuple[bool, bool], launches: int, places: list[int]) -> None:
    nests = [placed("a", "b", "at", checked[0]), placed("c", "d", "at", checked[1]), moved("e", "f", 8, 0.5)]
    buffers = tuple(ir.Buffer(n, "int64" if n == "at" else "float32", "inout", index(8)) for n in ("a", "b", "c", "d", "e", "f", "at"))
    made = ir.LoopKernel("many", buffers, tuple(nests))
    assert len(kernel_text(made).functions) == launches
    memory = {b.name: torch.tensor(places) if b.name == "at" else torch.randn(8) for b in buffers}
    wanted = {n: t.clone() for n, t in memory.items()}
    assert run(made, memory) == evaluate(made, wanted, ()) == int(max(places) > 7)
    if max(places) < 8:
        assert all(torch.equal(memory[n], wanted[n]) for n in "bd")


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
