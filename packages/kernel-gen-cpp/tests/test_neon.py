"""Kernels for 64-bit ARM: every kernel of the shared table against the reference, cross-compiled and emulated where there is what that
needs (``nox -s neon``; on Debian ``apt-get install g++-aarch64-linux-gnu qemu-user``), and what their texts say, everywhere."""

import pytest
from emulated import EmulatedRunner, required
from test_cases import CASES, REFUSED

from opmill_graph_ir.loops.cases import Case
from opmill_kernel_gen_cpp.build import text_of
from opmill_kernel_gen_cpp.debug import disagreement
from opmill_kernel_gen_cpp.emit import isa
from opmill_kernel_gen_cpp.kernel import source
from opmill_kernel_gen_cpp.target import AVX2, NEON, TARGETS

NAMES = sorted(n for n in CASES if n not in REFUSED)


@pytest.fixture(scope="module")
def runner(store, tmp_path_factory) -> EmulatedRunner:
    required()
    return EmulatedRunner([CASES[n].kernel for n in NAMES], store, tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("group", range(16))
def test_agrees_with_reference(runner: EmulatedRunner, group: int) -> None:
    assert [d for n in NAMES[group::16] if (d := disagreement(CASES[n], runner)) is not None] == []


def whole_text(case: Case) -> str:
    return source([text_of(case.kernel, "kernel", NEON)])


def test_no_text_asks_for_instructions_of_other_processors() -> None:
    assert [n for n in NAMES if "ia32" in whole_text(CASES[n])] == []


def test_functions_are_instructions_or_torch_s_vector_functions() -> None:
    """Each in one of the two: lanes that are looped over take ten times as long."""
    text = "\n".join(whole_text(CASES[n]) for n in NAMES)
    assert {
        name for name in ("frintm", "frintp", "frintz", "frintn", "fsqrt", "fmla", "fcvtl", "fcvtn") if f'"{name} ' not in text
    } == set()
    assert {name for name in ("sinf4", "log2f4", "expd2", "tanhd2") if f"Sleef_{name}_u10advsimd" not in text} == set()


def test_instructions_fit_the_register() -> None:
    for target in TARGETS.values():
        assert isa.instruction(target, "sqrt", "f32", 2 * target.bits) is None
    assert isa.instruction(NEON, "fma", "f64", 128) and isa.instruction(AVX2, "fma", "f32", 256)
    assert not isa.instruction(TARGETS["sse4"], "fma", "f32", 128) and not isa.instruction(TARGETS["generic"], "sqrt", "f32", 128)
