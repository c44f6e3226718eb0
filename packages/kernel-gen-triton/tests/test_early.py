"""What the kernel before does not write is read before a kernel waits for that."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.debug import interpreting, run
from opmill_kernel_gen_triton.generator import ARTIFACT, TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.tiling import DEFAULT
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store


def products(count: int) -> str:
    """A kernel that multiplies ``count`` matrices by one vector, a nest each; ``b0`` is the vector, then come matrices, then results."""
    matrices, results = range(1, count + 1), range(count + 1, 2 * count + 1)
    buffers = ["in b0: float32[512]", *(f"in b{m}: float32[131072] early" for m in matrices), *(f"out b{r}: float32[256]" for r in results)]
    nests = (
        f"nest i0<256\n  phase j0<512\n    sum v0: float32 = mul(b0[j0], b{m}[512*i0 + j0])\n  phase\n    set b{r}[i0] = v0\n"
        for m, r in zip(matrices, results, strict=True)
    )
    return "kernel product()\n" + "".join(f"  {line}\n" for line in buffers) + "".join(nests)


PRODUCT, TWO = products(1), products(2)
GATHERED = """kernel gathered()
  in b0: int64[256]
  in b1: float32[131072] early
  out b2: float32[256]
nest i0<256
  phase j0<512
    let v1 = b0[i0]
    sum v0: float32 = b1[512*v1 + j0]
  phase
    set b2[i0] = v0
"""


def order(kernel: LoopKernel) -> list[str]:
    """What a kernel loads, and where it waits."""
    [[function, *_]] = kernel_text(kernel).functions
    return re.findall(r"gdc_wait|(?<=load\()b\d", function.text.partition("@triton.jit")[2])


def test_matrices_are_read_before_the_wait_and_what_was_just_computed_after_it() -> None:
    assert order(parse(PRODUCT)) == ["b1", "gdc_wait", "b0"]


def test_nests_that_share_a_launch_read_early_what_all_of_them_may() -> None:
    kernel = parse(TWO)
    assert order(kernel)[:2] == ["b1", "gdc_wait"]
    first, second, *others = kernel.buffers[1:]
    late = replace(kernel, buffers=(kernel.buffers[0], first, replace(second, early=False), *others))
    assert order(late)[0] == "gdc_wait"


def test_places_that_are_read_themselves_wait() -> None:
    assert order(parse(GATHERED))[0] == "gdc_wait"


@pytest.mark.triton
@pytest.mark.parametrize("text", [PRODUCT, TWO])
def test_results_are_those_of_late_reads(text: str) -> None:
    if not interpreting():
        pytest.skip("needs the interpreter")
    kernel = parse(text)
    torch.manual_seed(0)
    buffers = {b.name: torch.randn(b.numel.constant) for b in kernel.buffers}
    expected = {name: t.clone() for name, t in buffers.items()}
    evaluate(kernel, expected)
    assert not run(kernel, buffers)
    for b in kernel.buffers:
        torch.testing.assert_close(buffers[b.name], expected[b.name], rtol=1e-4, atol=1e-4)


@pytest.mark.triton
def test_machine_code_reads_before_it_waits(tmp_path: Path) -> None:
    import triton

    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not disassembler.exists():
        pytest.skip("this triton brings no disassembler")
    generator, store = TritonKernelGenerator(90), Store(tmp_path)
    [ref] = generator.build([parse(PRODUCT)], GeneratorOptions("cuda:0"), store)
    generator._pool.close()
    data, _, artifact = unseal(store.get(ARTIFACT, ref.key))
    form = data.steps[0].forms[0]
    (tmp_path / "form.cubin").write_bytes(artifact[form.offset : form.offset + form.size])
    text = subprocess.run([disassembler, "-sass", tmp_path / "form.cubin"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?(ACQBULK|PREEXIT|LDG|STG)\b", text, re.MULTILINE)
    waits = found.index("ACQBULK")
    assert "LDG" in found[:waits] and "LDG" in found[waits:] and "STG" not in found[:waits] and form.waits


TURNS = """kernel turns()
  in b0: bfloat16[1024]
  in b1: bfloat16[16384] early
  in b2: bfloat16[16]
  out b3: bfloat16[16]
nest i0<16
  phase j0<1024
    sum v0: float32 = mul(cast.float32(b0[j0]), cast.float32(b1[1024*i0 + j0]))
  phase
    let v1 = cast.bfloat16(add(cast.float32(b2[i0]), v0))
    set b3[i0] = v1
"""
FEW = replace(DEFAULT, processors=1)
"""A device that sixteen rows are many for."""


def test_rows_of_a_product_with_a_vector_are_taken_in_turns() -> None:
    [[function]] = kernel_text(parse(TURNS), FEW).functions
    assert function.grid.constant == 8
    found = re.findall(r"gdc_wait|tl.sum|(?<=load\()b\d", function.text.partition("@triton.jit")[2])
    assert found == ["b1", "b1", "gdc_wait", "b2", "b2", "b0", "tl.sum", "tl.sum"]


@pytest.mark.triton
def test_rows_in_turn_give_what_rows_one_by_one_do() -> None:
    if not interpreting():
        pytest.skip("needs the interpreter")
    kernel = parse(TURNS)
    torch.manual_seed(0)
    buffers = {b.name: torch.randn(b.numel.constant).bfloat16() for b in kernel.buffers}
    x, matrix, addend = (buffers[f"b{k}"].double() for k in range(3))
    assert not run(kernel, buffers, budget=FEW)
    torch.testing.assert_close(buffers["b3"].double(), addend + matrix.view(16, 1024) @ x, rtol=8e-3, atol=1e-2)
