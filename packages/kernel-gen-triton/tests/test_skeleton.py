"""The skeleton is found, imports without triton, and refuses politely."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GROUP, GeneratorOptions, KernelGenerator
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.store import Store

KERNEL = LoopKernel("empty", (), ())


def generator() -> KernelGenerator:
    [entry] = entry_points(group=GROUP, name="triton")
    return entry.load()()


def test_discovered_and_typed() -> None:
    found = generator()
    assert isinstance(found, KernelGenerator)
    assert found.name == "triton"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_claims_nothing(device: str) -> None:
    reason = generator().claims(KERNEL, GeneratorOptions(device=device))
    assert reason
    assert ("not a CUDA device" in reason) == (device == "cpu")


def test_says_why_it_is_not_available() -> None:
    assert "riton" in (generator().available() or "")


def test_build_is_a_numbered_error(tmp_path) -> None:
    assert generator().build([], GeneratorOptions("cuda:0"), Store(tmp_path)) == []
    with pytest.raises(KernelBuildError, match="KT001"):
        generator().build([KERNEL], GeneratorOptions("cuda:0"), Store(tmp_path))


def test_imports_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from opmill_kernel_gen_triton.generator import TritonKernelGenerator as G\n"
        "assert 'torch._inductor' not in sys.modules and 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
