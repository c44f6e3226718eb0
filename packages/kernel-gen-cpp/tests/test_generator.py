"""The generator's manners: keys, batches, other widths, failures."""

import errno
import os
import stat
from types import SimpleNamespace
from typing import Any

import pytest

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GROUP, GeneratorOptions, KernelGenerator
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Op, Phase
from opmill_graph_ir.loops.ir import Store as IrStore
from opmill_kernel_gen_cpp import toolchain
from opmill_kernel_gen_cpp.claim import refusal
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.kernel import kernel_text, source
from opmill_kernel_gen_cpp.target import AVX2, AVX512, GENERIC, NEON, SSE, TARGETS, choose, host
from opmill_runtime_cache.store import Store

CASES = {c.name: c for c in cases()}
OPTIONS = GeneratorOptions()
SOME = [
    "softmax_5x33", "layernorm_64x700", "gather", "padded", "cast_float32_bfloat16", "cast_float16_float32", "sum_column_float32",
    "argmax_row_float32", "welford_row_float64", "any_row_bool", "transposed_33x70", "tail_17", "mixed_widths", "large_sum_row",
    "pow_float32", "floor_float64", "where_int8", "division_in_index",
]  # fmt: skip


def test_entry_point_gives_a_generator() -> None:
    from importlib.metadata import entry_points

    [entry] = entry_points(group=GROUP, name="cpp")
    assert isinstance(entry.load()(), KernelGenerator)


def test_equal_kernels_are_built_once(store: Store, monkeypatch) -> None:
    kernel = CASES["tail_9"].kernel
    generator = CppKernelGenerator()
    first = generator.build([kernel, CASES["tail_8"].kernel, kernel], OPTIONS, store)
    assert first[0] == first[2] != first[1]
    monkeypatch.setattr(toolchain.Toolchain, "compile", lambda *a, **k: pytest.fail("compiled again"))
    assert generator.build([kernel], OPTIONS, store) == first[:1]


def test_a_lost_shared_object_is_built_again(tmp_path) -> None:
    store = Store(tmp_path)
    kernel = CASES["tail_9"].kernel
    [ref] = CppKernelGenerator().build([kernel], OPTIONS, store)
    store.remove(ref.artifact_kind, ref.key)
    [again] = CppKernelGenerator().build([kernel], OPTIONS, store)
    assert store.contains(again.artifact_kind, again.key)


def test_options_and_target_are_part_of_the_key(store: Store) -> None:
    compiler = toolchain.find()
    kernel = CASES["tail_9"].kernel
    keys = {CppKernelGenerator(t)._key(kernel, o, compiler) for t in (AVX2, AVX512) for o in (OPTIONS, GeneratorOptions(precise=True))}
    assert len(keys) == 4


def test_text_is_deterministic() -> None:
    for name in SOME:
        texts = {kernel_text(CASES[name].kernel, "k", AVX2).body for _ in range(2)}
        assert len(texts) == 1


@pytest.mark.parametrize("target", [AVX512, SSE, GENERIC], ids=lambda t: t.name)
@pytest.mark.skipif(host().name not in ("avx2", "avx512", "sse4"), reason="an x86 compiler is needed")
def test_other_widths_compile_and_run_where_they_can(target, tmp_path) -> None:
    kernels = [CASES[n].kernel for n in SOME]
    runner = Runner(kernels, Store(tmp_path), CppKernelGenerator(target))
    if target.bits <= host().bits:
        assert [d for n in SOME if (d := disagreement(CASES[n], runner)) is not None] == []


def test_target_from_features() -> None:
    assert choose("aarch64", set()) is NEON
    assert choose("x86_64", {"sse4_2"}) is SSE
    assert choose("x86_64", set()) is GENERIC
    everything = "avx512f avx512vl avx512dq avx512bw avx2 fma f16c bmi2 sse4_2".split()
    assert choose("x86_64", set(everything)) is AVX512
    assert choose("x86_64", {"avx2", "fma", "f16c", "bmi2", "sse4_2"}) is AVX2
    assert set(TARGETS) == {"avx512", "avx2", "sse4", "neon", "generic"}


def test_no_header_is_included() -> None:
    text = source([kernel_text(CASES[n].kernel, f"k_{n}", AVX2) for n in SOME])
    assert "#include" not in text


def _odd(op: str, dtype: str) -> LoopKernel:
    value = Op(op, (Load("a", index("i"), dtype),), dtype)
    buffers = (Buffer("a", dtype, "in", index(4)), Buffer("out", dtype, "out", index(4)))
    return LoopKernel("odd", buffers, (Nest((Axis("i", index(4)),), (Phase(stores=(IrStore("out", index("i"), value),)),)),))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (_odd("digamma", "float32"), "primitive digamma: no function of a library"),
        (_odd("frobnicate", "float32"), "primitive frobnicate"),
        (_odd("exp", "complex64"), "element type complex64"),
        (_odd("exp", "bfloat16"), "primitive exp on bfloat16"),
        (LoopKernel("odd", (Buffer("a b", "float32", "in", index(1)),), ()), "name 'a b'"),
    ],
)
def test_refusals_say_why(kernel: LoopKernel, reason: str) -> None:
    assert refusal(kernel) == reason


def test_other_devices_are_refused() -> None:
    assert "not a CPU" in str(CppKernelGenerator().claims(CASES["tail_9"].kernel, GeneratorOptions(device="cuda:0")))


def test_without_compiler(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "neither g++ nor clang++" in (CppKernelGenerator().available() or "")
    with pytest.raises(KernelBuildError, match="KC003"):
        CppKernelGenerator().build([CASES["tail_9"].kernel], OPTIONS, Store(tmp_path / "store"))


def test_compiler_that_fails(monkeypatch, tmp_path) -> None:
    fake = tmp_path / "fake-cxx"
    fake.write_text('#!/bin/sh\ncase "$1" in --version) echo fake 1.0;; *) echo "kernels.cpp:1: error: no good" >&2; exit 1;; esac\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(fake))
    generator = CppKernelGenerator()
    assert generator.available() is None
    with pytest.raises(KernelBuildError, match="KC001") as error:
        generator.build([CASES["tail_9"].kernel], OPTIONS, Store(tmp_path / "store"))
    assert "no good" in str(error.value)


def test_compiler_that_does_not_run(monkeypatch, tmp_path) -> None:
    broken = tmp_path / "broken-cxx"
    broken.write_text("#!/bin/sh\nexit 3\n")
    os.chmod(broken, 0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(KernelBuildError, match="does not run"):
        CppKernelGenerator().build([CASES["tail_9"].kernel], OPTIONS, Store(tmp_path / "store"))


def test_compiler_is_found() -> None:
    assert CppKernelGenerator().available() is None


@pytest.mark.parametrize("passes", [True, False])
def test_a_compiler_that_fails_itself_is_asked_for_less(store: Store, tmp_path, monkeypatch, passes: bool) -> None:
    fake = tmp_path / "fails.sh"
    calm = '*" -O1 "*) exec g++ "$@" ;;' if passes else ""
    fake.write_text(
        f'#!/bin/sh\ncase " $* " in {calm} *" --version "*) echo fails 1.0 ;; *stub.cpp*) exec g++ "$@" ;; *) echo "internal compiler '
        f'error: in isel" >&2; exit 1 ;; esac\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(fake))
    if passes:
        assert disagreement(CASES["tail_17"], Runner([CASES["tail_17"].kernel], store)) is None
        return
    with pytest.raises(KernelBuildError, match="KC001"):
        CppKernelGenerator().build([CASES["tail_17"].kernel], OPTIONS, store)


def test_an_edit_that_is_refused_is_no_bug_of_the_generator(store: Store) -> None:
    with pytest.raises(KernelBuildError, match=r"KC001: .* an edited kernel[^$]*no_such_type") as error:
        CppKernelGenerator().build_text(CASES["tail_17"].kernel, "no_such_type kernel;", OPTIONS, store)
    assert "mend what was edited" in error.value.hint and "bug" not in error.value.hint


def test_a_compiler_that_cannot_be_run_now_is_asked_again(monkeypatch) -> None:
    """What it says of itself is kept, that it could not be run is not."""
    toolchain._identify.cache_clear()

    def no_process(*args: Any, **kwargs: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(toolchain.subprocess, "run", no_process)
        with pytest.raises(KernelBuildError, match="KC002"):
            toolchain.find()
    assert isinstance(toolchain.find(), toolchain.Toolchain)


@pytest.mark.parametrize(
    ("status", "said", "passes"),
    [(-9, "", True), (1, "cc1plus: out of memory allocating 65536 bytes", True), (1, ("g++: fatal error: Killed signal terminated "
        "program"), True),
     (1, "error: expected ';'", False)],
)  # fmt: skip
def test_a_compiler_that_lacks_something_is_told_from_one_that_refuses(monkeypatch, status: int, said: str, passes: bool) -> None:
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=status, stderr=said, stdout=""))
    with pytest.raises(KernelBuildError) as found:
        toolchain.Toolchain(("g++",), "g++ 12").compile("int x", ())
    assert isinstance(found.value.__cause__, OSError) is passes
    assert found.value.code == ("KC002" if passes else "KC001")
