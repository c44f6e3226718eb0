"""Every kernel of the shared table against the reference interpreter."""

import pytest

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import cases
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_kernel_gen_cpp.generator import CppKernelGenerator

CASES = {c.name: c for c in cases()}
REFUSED = {f"{name}_{dtype}" for name in ("erfinv", "digamma") for dtype in ("float32", "float64")}
REFUSED |= {n for n in CASES if n.startswith(("philox_", "coin_", "sort_"))}


@pytest.fixture(scope="module")
def runner(store) -> Runner:
    return Runner([c.kernel for c in CASES.values() if c.name not in REFUSED], store)


def test_claims_all_but_the_known_ones() -> None:
    generator = CppKernelGenerator()
    refused = {c.name for c in CASES.values() if generator.claims(c.kernel, GeneratorOptions()) is not None}
    assert refused == REFUSED


@pytest.mark.parametrize("group", range(8))
def test_agrees_with_reference(runner: Runner, group: int) -> None:
    names = [n for n in sorted(CASES) if n not in REFUSED][group::8]
    assert [d for n in names if (d := disagreement(CASES[n], runner)) is not None] == []
