"""Single instructions: for the registers and processors that have them."""

import pytest

from opmill_kernel_gen_cpp.emit.isa import instruction
from opmill_kernel_gen_cpp.target import AVX2, AVX512, GENERIC, NEON, SSE, choose


@pytest.mark.parametrize(
    ("target", "name", "bits", "found"),
    [
        (AVX512, "sqrt", 512, "sqrtps512"),
        (AVX512, "sqrt", 128, "sqrtps("),
        (AVX2, "sqrt", 512, None),
        (AVX2, "fma", 256, "vfmaddps256"),
        (AVX512, "scalef", 512, "scalefps512"),
        (AVX512, "getmant", 256, None),
        (AVX2, "getexp", 256, None),
        (SSE, "fma", 128, None),  # has no fma
        (SSE, "floor", 128, "roundps(x, 9)"),
        (NEON, "floor", 128, "frintm"),
        (NEON, "larger", 128, None),
        (GENERIC, "sqrt", 128, None),
    ],
)
def test_what_a_processor_has(target, name, bits, found):
    text = instruction(target, name, "f32", bits)
    assert text is None if found is None else found in text


@pytest.mark.parametrize(
    ("machine", "features", "name"),
    [
        ("aarch64", "", "neon"),
        ("x86_64", "sse4_2", "sse4"),
        ("x86_64", "sse4_2 avx2 fma f16c bmi2", "avx2"),
        ("x86_64", "sse4_2 avx2 fma f16c", "sse4"),
        ("x86_64", "avx512f avx512vl avx512dq avx512bw avx2 fma f16c bmi2", "avx512"),
        ("x86_64", "avx512f avx2 fma f16c bmi2", "avx2"),
        ("riscv64", "", "generic"),
    ],
)
def test_the_widest_target_that_runs(machine, features, name):
    assert choose(machine, set(features.split())).name == name
