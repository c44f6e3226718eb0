"""Kernels may be started while what is before them in the stream still ends: they wait for that before they touch memory."""

import ast
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import cases
from opmill_kernel_gen_triton.claim import refusal
from opmill_kernel_gen_triton.generator import ARTIFACT, TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_runtime_cache.plan.launch import LaunchData
from opmill_runtime_cache.plan.sealed import unseal
from opmill_runtime_cache.store import Store

CASES = {c.name: c.kernel for c in cases()}
WAIT = "if ARCH >= 90:\n    gdc_wait()\n    gdc_launch_dependents()"
SAMPLE = "gather softmax_5x33 layernorm_64x700 large_sum_full scatter_add transposed_33x70 two_nests scan_affine_column_float32".split()


CLAIMED = [name for name, kernel in CASES.items() if refusal(kernel) is None]


@pytest.mark.parametrize("name", dict.fromkeys([*CLAIMED[::8], "two_nests"]))
def test_functions_begin_with_it(name: str) -> None:
    for function in (f for forms in kernel_text(CASES[name]).functions for f in forms):
        every = [n for n in ast.parse(function.text).body if isinstance(n, ast.FunctionDef)]
        parts = [n for n in every if n.name.startswith(f"{function.name}_part")]  # of nests beside each other: programs choose theirs first
        for one in parts or [n for n in every if n.name == function.name]:
            assert ast.unparse(one.body[0]) == WAIT


@pytest.mark.triton
@pytest.mark.parametrize("arch", [80, 90])
def test_machine_code_waits_before_it_touches_memory(arch: int, tmp_path: Path) -> None:
    import triton

    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not disassembler.exists():
        pytest.skip("this triton brings no disassembler")
    generator, store = TritonKernelGenerator(arch), Store(tmp_path)
    refs = generator.build([CASES[name] for name in SAMPLE], GeneratorOptions("cuda:0"), store)
    generator._pool.close()
    for name, ref in zip(SAMPLE, refs, strict=True):
        data, _, artifact = unseal(store.get(ARTIFACT, ref.key))
        for form in (f for step in data.steps for f in step.forms):
            file = tmp_path / "form.cubin"
            file.write_bytes(artifact[form.offset : form.offset + form.size])
            text = subprocess.run([disassembler, "-sass", file], capture_output=True, text=True, check=True).stdout
            order = re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?(ACQBULK|LDG|STG|ATOMG?|REDG?)\b", text, re.MULTILINE)
            assert set(order) - {"ACQBULK"}, name
            assert (order[0] == "ACQBULK", form.waits) == (arch >= 90, arch >= 90), name


def test_launch_data_of_before_says_that_nothing_waits() -> None:
    form = '{"offset":0,"size":1,"entry":"k","warps":1,"shared":0}'
    data = msgspec.json.decode(f'{{"arch":90,"sizes":[],"steps":[{{"grid":1,"args":[],"forms":[{form}]}}]}}', type=LaunchData)
    assert not data.steps[0].forms[0].waits
