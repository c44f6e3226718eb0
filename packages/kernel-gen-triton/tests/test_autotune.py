"""Kernels chosen by measuring: what is tried, what is kept, what happens where nothing can be measured. The clock is a function here."""

from contextlib import nullcontext

import pytest
import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import cases
from opmill_kernel_gen_triton import autotune, toolchain
from opmill_kernel_gen_triton.budget import DEFAULT
from opmill_kernel_gen_triton.dots.shape import OF_FLOATS, SHAPES
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

KERNEL = next(c.kernel for c in cases() if c.name == "softmax_64x700")
PLAIN, MEASURED = GeneratorOptions("cuda:0"), GeneratorOptions("cuda:0", measure=True)


def test_variants_begin_with_what_the_cost_model_takes() -> None:
    tried = autotune.variants(DEFAULT, [*SHAPES, *OF_FLOATS])
    assert tried[0] == DEFAULT and len(set(tried)) == len(tried)


@pytest.mark.parametrize(
    ("name", "tiles"),
    [("product_whole_bfloat16_plain", SHAPES), ("product_whole_float32_plain", OF_FLOATS), ("softmax_64x700", ())],
)
def test_tiles_are_tried_of_what_is_multiplied(name, tiles) -> None:
    assert tuple(autotune.tiles_of(next(c.kernel for c in cases() if c.name == name))) == tiles


def sealed(store, ref):
    return unseal(store.get(ref.artifact_kind, ref.key))


@pytest.fixture
def timed(monkeypatch):
    """Stands for a device; gives the list of the ways that were offered, the third of which is the fastest."""
    offered: list = []
    monkeypatch.setattr(toolchain, "arch_of", lambda device: 90)
    monkeypatch.setattr(toolchain, "device_name", lambda device: "a device")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(autotune, "fastest", lambda kernel, ways, device: offered.append(ways) or 2)
    return offered


@pytest.mark.triton
def test_the_fastest_is_kept_and_found_again(timed, tmp_path) -> None:
    generator, store = TritonKernelGenerator(90), Store(tmp_path)
    [plain] = generator.build([KERNEL], PLAIN, store)
    assert not timed
    [measured] = generator.build([KERNEL], MEASURED, store)
    [ways] = timed
    assert measured.key != plain.key and len(ways) >= 3
    assert sealed(store, measured)[::2] == ways[2] and sealed(store, plain)[0] == ways[0][0]
    assert len({step.forms[0].warps for data, _ in ways for step in data.steps}) > 1
    [again] = TritonKernelGenerator(90).build([KERNEL], MEASURED, store)
    assert again == measured and len(timed) == 1


@pytest.mark.triton
def test_without_the_device_nothing_is_measured(tmp_path) -> None:
    store = Store(tmp_path)
    [plain] = TritonKernelGenerator(90).build([KERNEL], PLAIN, store)
    [measured] = TritonKernelGenerator(90).build([KERNEL], MEASURED, store)
    assert sealed(store, measured) == sealed(store, plain)


def test_noise_chooses_nothing(monkeypatch) -> None:
    times = iter([1.0, 0.99, 0.98, 1.0, 0.7, 0.9])
    monkeypatch.setattr(autotune, "seconds", lambda *_: next(times))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    ways = [(None, b"")] * 3
    assert autotune.fastest(KERNEL, ways, torch.device("cuda", 0)) == 0
    assert autotune.fastest(KERNEL, ways, torch.device("cuda", 0)) == 1


def test_what_cannot_be_run_is_left_as_it_is(monkeypatch) -> None:
    def fails(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(autotune, "seconds", fails)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    assert autotune.fastest(KERNEL, [(None, b"")] * 3, torch.device("cuda", 0)) == 0


def test_functions_that_are_run_are_named_by_their_code(monkeypatch) -> None:
    """They stay in the process, and one name for two of them would run the wrong one."""
    names = []
    monkeypatch.setattr(autotune, "_memory", lambda *_: ({}, []))
    monkeypatch.setattr(autotune, "CudaKernel", lambda name, data, cubins: names.append(name))
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(autotune.cuda, "start", lambda *_: 1 / 0)
    for code in (b"one", b"two", b"one"):
        with pytest.raises(ZeroDivisionError):
            autotune.seconds(KERNEL, None, code, torch.device("cuda", 0))
    assert names[0] == names[2] != names[1]
