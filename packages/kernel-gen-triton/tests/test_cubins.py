"""Kernels become cubins for compute capability 9.0, without a GPU."""

import os
import signal
import subprocess
import sys

import pytest

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.contract import contract_of
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import cases
from opmill_kernel_gen_triton import generator as module
from opmill_kernel_gen_triton.generator import ARTIFACT, TritonKernelGenerator
from opmill_kernel_gen_triton.pool import Pool
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

pytestmark = pytest.mark.triton
CASES = {c.name: c for c in cases()}
OPTIONS = GeneratorOptions("cuda:0")
SAMPLE = (
    "symbolic_plain_map_3_21 gather softmax_5x33 layernorm_64x700 large_sum_full argmax_full_float64 welford_column_float32 scatter_add "
    "transposed_33x70 "
    "floordiv_float32 pow_float64 cast_float64_bfloat16 cast_float32_uint8 two_nests padded xor_middle_bool prod_row_int64 digamma_float64 "
    "scan_sum_row_float32 scan_logaddexp_row_float64 scan_affine_column_float32 scan_argmax_row_uint8 "
    "sort_row_float32 sort_first_bfloat16 sort_one_int8 sort_long_float16 sort_column_descending sort_whole_bool sort_short_int32 "
    "sort_most_uint8"
).split()


@pytest.fixture(scope="module")
def generator():
    made = TritonKernelGenerator(90)
    yield made
    made._pool.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def built(generator, store):
    kernels = [CASES[n].kernel for n in SAMPLE]
    return dict(zip(SAMPLE, generator.build(kernels, OPTIONS, store), strict=True))


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, built, store) -> None:
    ref, kernel = built[name], CASES[name].kernel
    data, contract, artifact = unseal(store.get(ARTIFACT, ref.key))
    assert contract == contract_of(kernel) and not ref.meta
    assert data.arch == 90 and data.sizes == kernel.symbols
    assert data.checks == sum(len(p.checks) for n in kernel.nests for p in n.phases)
    for step in data.steps:
        assert step.forms[-1].align == 1 and not step.forms[-1].fits, "the last form runs anywhere"
        for form in step.forms:
            assert artifact[form.offset : form.offset + 4] == b"\x7fELF"
            assert form.offset + form.size <= len(artifact) and 1 <= form.warps <= 32 and form.shared <= 227 * 1024
            assert form.scratch == form.profile == 0


def test_forms_and_arguments(built, store) -> None:
    launched = {name: unseal(store.get(ARTIFACT, ref.key))[0] for name, ref in built.items()}
    [step] = launched["symbolic_plain_map_3_21"].steps
    assert [(f.align, f.index_bits, f.fits) for f in step.forms] == [(16, 32, ("s0*s1",)), (1, 32, ("s0*s1",)), (16, 64, ()), (1, 64, ())]
    assert [(a.kind, a.index) for a in step.args] == [("buffer", 0), ("buffer", 1), ("size", 0), ("size", 1)]
    [step] = launched["gather"].steps
    assert [a.kind for a in step.args] == ["buffer", "buffer", "buffer", "error", "check"]
    split = launched["large_sum_full"]
    assert len(split.steps) == 2 and split.scratch == 512 and {a.kind for a in split.steps[1].args} == {"buffer", "scratch"}


def test_built_once(built, generator, store, monkeypatch) -> None:
    monkeypatch.setattr(Pool, "compile_all", lambda self, jobs: pytest.fail("compiled again"))
    kernels = [CASES[n].kernel for n in SAMPLE]
    assert generator.build(kernels[::-1], OPTIONS, store) == [built[n] for n in SAMPLE[::-1]]
    assert TritonKernelGenerator(90).build(kernels, OPTIONS, store) == list(built.values())


def test_equal_kernels_are_compiled_once(generator, tmp_path, monkeypatch) -> None:
    jobs: list[dict] = []
    real = Pool.compile_all
    monkeypatch.setattr(Pool, "compile_all", lambda self, todo: jobs.extend(todo) or real(self, todo))
    kernel = CASES["tail_9"].kernel
    first, second = generator.build([kernel, kernel], OPTIONS, Store(tmp_path))
    assert first == second and len(jobs) == 2  # aligned and not


def test_damaged_artifact_is_compiled_again(generator, tmp_path) -> None:
    store, kernel = Store(tmp_path), CASES["tail_9"].kernel
    [ref] = generator.build([kernel], OPTIONS, store)
    path = store.path(ARTIFACT, ref.key)
    path.write_bytes(path.read_bytes()[:-100])
    assert generator.build([kernel], OPTIONS, store) == [ref]
    assert unseal(store.get(ARTIFACT, ref.key))[2][:4] == b"\x7fELF"


def test_key_follows_options_target_and_toolchain(generator, monkeypatch) -> None:
    kernel = CASES["tail_9"].kernel
    keys = {generator._key(kernel, OPTIONS, 90), generator._key(kernel, OPTIONS, 100)}
    keys.add(generator._key(kernel, GeneratorOptions("cuda:0", precise=True), 90))
    monkeypatch.setattr(module.toolchain, "triton_version", lambda: "triton 0")
    keys.add(generator._key(kernel, OPTIONS, 90))
    assert len(keys) == 4


def test_refused_text_is_a_numbered_error(generator) -> None:
    job = {"text": "import triton\n@triton.jit\ndef k(a):\n    nonsense(a)\n", "name": "k", "signature": {"a": "*fp32"}, "constants": {}}
    job |= {"aligned": [], "arch": 90, "warps": 1, "contracts": True}
    with pytest.raises(KernelBuildError, match="KT003") as caught:
        generator._pool.compile_all([job])
    assert "nonsense" in str(caught.value)


def test_kernels_are_made_smaller_until_their_shared_memory_suffices(generator, tmp_path, monkeypatch) -> None:
    kernel = CASES["transposed_130x64"].kernel
    built = lambda store: unseal(store.get(ARTIFACT, generator.build([kernel], OPTIONS, store)[0].key))[0].steps
    [before] = built(Store(tmp_path / "a"))
    most = max(form.shared for form in before.forms)
    monkeypatch.setattr(module, "shared_memory", lambda arch: most - 1)
    [after] = built(Store(tmp_path / "b"))
    assert 0 < max(form.shared for form in after.forms) < most
    monkeypatch.setattr(module, "shared_memory", lambda arch: -1)
    with pytest.raises(KernelBuildError, match="KT005"):
        generator.build([kernel], OPTIONS, Store(tmp_path / "c"))


def test_a_killed_worker_is_replaced(generator, tmp_path) -> None:
    generator.build([CASES["tail_1"].kernel], OPTIONS, Store(tmp_path / "a"))
    for process in generator._pool._all:
        process.kill()
        process.wait()
    assert generator.build([CASES["tail_1"].kernel], OPTIONS, Store(tmp_path / "b"))


def test_workers_stay_for_the_next_build(generator, tmp_path) -> None:
    names = ("tail_1", "tail_2", "tail_3", "tail_4")
    generator.build([CASES[n].kernel for n in names], OPTIONS, Store(tmp_path / "a"))
    before = list(generator._pool._all)
    generator.build([CASES[n].kernel for n in names], OPTIONS, Store(tmp_path / "b"))
    assert generator._pool._all == before and all(p.poll() is None for p in before)


def test_workers_end_with_their_parent(tmp_path) -> None:
    code = (
        "import os, sys\n"
        "from opmill_kernel_gen_triton.pool import Pool\n"
        "p = Pool(1); w = p._take(); print(w.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    for _ in range(2000):  # it reads the end of its input, then leaves
        try:
            state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        os.sched_yield()
        subprocess.run(["true"], check=True)
    pytest.fail("the worker is still there")
