"""Triton text that people edit: shown with its launches, read again, and built or interpreted instead of what was generated."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import EditableGenerator, GeneratorOptions
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.options import GraphOptions
from opmill_kernel_gen_triton.claim import refusal
from opmill_kernel_gen_triton.debug import InterpretedKernels, as_for_gpu, run
from opmill_kernel_gen_triton.edited import read, shown
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

CASES = {case.name: case for case in cases() if refusal(case.kernel) is None}
OPTIONS = GeneratorOptions("cuda:0")
PLAIN = next(name for name, case in CASES.items() if not case.sizes and len(kernel_text(case.kernel).functions) == 1)


def test_both_generators_are_editable() -> None:
    assert isinstance(TritonKernelGenerator(90), EditableGenerator) and isinstance(InterpretedKernels(), EditableGenerator)


@pytest.mark.parametrize("name", CASES)
def test_what_nobody_edited_is_the_kernel_itself(name: str) -> None:
    text = kernel_text(CASES[name].kernel)
    assert read(text, shown(text)) == text


def edited(old: str, new: str) -> str:
    whole = shown(kernel_text(CASES[PLAIN].kernel))
    assert old in whole
    return whole.replace(old, new, 1)


def test_launches_are_edited_with_it() -> None:
    [[function]] = kernel_text(CASES[PLAIN].kernel).functions
    name, block = function.constants[0]
    whole = edited(f"warps={function.warps}, stages={function.stages}", "warps=8, stages=3").replace(
        f"{name}={block}", f"{name}={2 * block}"
    )
    [[found]] = read(kernel_text(CASES[PLAIN].kernel), whole).functions
    assert found == replace(function, warps=8, stages=3, constants=((name, 2 * block), *function.constants[1:]))


def test_the_number_of_programs_may_depend_on_sizes() -> None:
    case = next(
        case for case in CASES.values() if len(case.kernel.symbols) == 1 and kernel_text(case.kernel).functions[0][0].grid.constant is None
    )
    text, symbol = kernel_text(case.kernel), case.kernel.symbols[0]
    whole = shown(text).replace(f"programs={text.functions[0][0].grid},", f"programs=({symbol} + 6)//7,")
    assert read(text, whole).functions[0][0].grid.evaluate({symbol: 15}) == 3


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("# launch k_", "# k_", "there have to be these comments"),
        ("warps=", "wraps=", "has to tell"),
        ("warps=", "warps=many ", "invalid literal"),
        ("programs=", "programs=two ways ", "launch of"),
        ("def k_", "def other_", "one function"),
        ("def k_", "def k_(:\ndef k_", "line"),
        ("BLOCK: tl.constexpr, ", "BLOCK: tl.constexpr, more, ", "is launched with"),
    ],
)
def test_what_is_no_longer_the_kernel_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(KernelBuildError, match=why) as found:
        read(kernel_text(CASES[PLAIN].kernel), edited(old, new))
    assert found.value.code == "KT006"


@pytest.mark.triton
def test_the_edited_text_is_what_is_interpreted() -> None:
    case = CASES[PLAIN]
    lines = shown(kernel_text(case.kernel)).splitlines()
    silent = [re.sub(r"tl\.store\(.*", "pass", line) for line in lines]
    assert silent != lines
    got, untouched = case.buffers(0), case.buffers(0)
    run(case.kernel, got, case.sizes, text=read(kernel_text(case.kernel), "\n".join(silent)))
    assert all(torch.equal(got[name], untouched[name]) for name in got)


@pytest.mark.triton
def test_edited_text_is_compiled(tmp_path) -> None:
    generator, store, kernel = TritonKernelGenerator(90), Store(tmp_path), CASES[PLAIN].kernel
    [plain] = generator.build([kernel], OPTIONS, store)
    [[function]] = kernel_text(kernel).functions
    whole = edited(f"warps={function.warps}", f"warps={2 * function.warps}")
    ref = generator.build_text(kernel, whole, OPTIONS, store)
    assert ref == generator.build_text(kernel, whole, OPTIONS, store) != plain
    [form, *_] = unseal(store.get(ref.artifact_kind, ref.key))[0].steps[0].forms
    assert form.warps == 2 * function.warps
    assert generator.build([kernel], OPTIONS, store) == [plain]
    with pytest.raises(KernelBuildError, match="KT003"):
        generator.build_text(kernel, edited("tl.load(", "tl.lode("), OPTIONS, store)
    generator._pool.close()


@pytest.mark.triton
def test_a_program_runs_the_text_of_a_folder(tmp_path) -> None:
    x, options = torch.linspace(-1, 1, 37), GraphOptions(cache=False, override=str(tmp_path))

    def result():
        graph = torch.fx.symbolic_trace(lambda x: (torch.exp(x) * 2,))
        return as_for_gpu(graph, [x], options=options)[0](x)[0]

    torch.testing.assert_close(result(), torch.exp(x) * 2)
    [file] = tmp_path.glob("*.py")
    file.write_text(file.read_text().replace("2.0", "3.0"))
    torch.testing.assert_close(result(), torch.exp(x) * 3)
