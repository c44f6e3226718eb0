"""The generator is found, says what it cannot do, and is imported without triton."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torch

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GROUP, GeneratorOptions, KernelGenerator
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Op, Phase
from opmill_graph_ir.loops.ir import Store as Put
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.launch import Arg, Form, LaunchData, Step
from opmill_runtime_cache.plan.sealed import seal, unseal
from opmill_runtime_cache.store import Store

KERNEL = cases()[0].kernel


def test_discovered_and_typed() -> None:
    [entry] = entry_points(group=GROUP, name="triton")
    found = entry.load()()
    assert isinstance(found, KernelGenerator) and found.name == "triton"


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_not_available_without_a_device() -> None:
    assert "riton" in TritonKernelGenerator().available() or "CUDA" in TritonKernelGenerator().available()


@pytest.mark.triton
def test_old_devices_are_refused() -> None:
    assert "7.5" in (TritonKernelGenerator(75).available() or "")


def _kernel(value) -> LoopKernel:
    buffers = (Buffer("a", "float16", "in", index(4)), Buffer("out", value.dtype, "inout", index(4)))
    return LoopKernel("k", buffers, (Nest((Axis("i", index(4)),), (Phase(stores=(Put("out", index("i"), value, "add"),)),)),))


def test_claims_give_reasons() -> None:
    generator, options = TritonKernelGenerator(90), GeneratorOptions("cuda:0")
    assert "not a CUDA device" in generator.claims(KERNEL, GeneratorOptions("cpu"))
    half = Load("a", index("i"), "float16")
    assert generator.claims(_kernel(half), options) is None
    assert generator.claims(_kernel(Op("add", (half, half), "float16")), options) == "primitive add on float16"
    assert generator.claims(_kernel(Op("cast", (half,), "uint8")), options) == "atomic addition of uint8"
    assert generator.claims(_kernel(Op("cast", (half,), "complex64")), options) == "element type complex64"


def test_building_nothing_and_building_nowhere(tmp_path) -> None:
    assert TritonKernelGenerator().build([], GeneratorOptions("cuda:0"), Store(tmp_path)) == []
    with pytest.raises(KernelBuildError, match="KT001"):
        TritonKernelGenerator(75).build([KERNEL], GeneratorOptions("cuda:0"), Store(tmp_path))


def test_imports_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from opmill_kernel_gen_triton.generator import TritonKernelGenerator as G\n"
        "import opmill_kernel_gen_triton.debug\n"
        "assert 'not installed' in G(90).available()\n"
        "assert 'torch._inductor' not in sys.modules and 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_launch_data_survives_its_text() -> None:
    form = Form(64, 100, "k", 4, 0, 16, 32, ("s0*4",), 1 << 31)
    data = LaunchData(90, ("s0",), (Step("(s0 + 3)//4", (Arg("buffer", 1), Arg("scratch", 0, "s0*4")), (form,)),), "s0*4", 2)
    contract = Contract(("s0",), (Touched("float32", False, "s0"), Touched("int64", True, "s0")), 2)
    assert unseal(seal(data, contract, bytes(200))) == (data, contract, bytes(200))
