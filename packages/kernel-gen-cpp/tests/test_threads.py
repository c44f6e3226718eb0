"""How many threads a nest is worth: by the sizes at hand, not by those that were guessed."""

import re

import pytest

from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Let, Load, LoopKernel, Nest, Phase, Store
from opmill_kernel_gen_cpp.kernel import kernel_text
from opmill_kernel_gen_cpp.target import AVX2

CASES = {c.name: c for c in cases()}
SYMBOLIC = [c for c in CASES.values() if c.name.startswith(("scan_symbolic", "symbolic_plain", "symbolic_multiple"))]


def worth(name: str, rows: int, columns: int) -> list[int]:
    """The threads that the nests of a kernel over ``s0`` rows of ``s1`` are worth."""
    text = kernel_text(CASES[name].kernel, "k", AVX2).body
    calls = re.findall(r"run_nest\([^;]*, ([^;,]*)\)[; ]", text)
    return [eval(c.replace("/", "//"), {"s_s0": rows, "s_s1": columns}) for c in calls]


@pytest.mark.parametrize("name", [c.name for c in SYMBOLIC])
def test_small_work_of_moving_sizes_wakes_no_thread(name: str) -> None:
    """A step of generation over a short cache entered a parallel region in each layer, and waited there for a thread that had nothing to
    do."""
    assert all(n <= 1 for n in worth(name, 2, 30))
    assert max(worth(name, 4096, 4096)) > 64


def test_work_grows_with_both_sizes() -> None:
    for case in SYMBOLIC:
        [first, *_] = worth(case.name, 512, 4096)
        assert first == pytest.approx(worth(case.name, 4096, 512)[0], rel=0.01)
        assert first == pytest.approx(worth(case.name, 512, 1024)[0] * 4, rel=0.1)


@pytest.mark.parametrize("mode", ["add", "mul", "max", "min"])
def test_threads_do_not_meet_in_a_place(mode: str) -> None:
    """Both read what is there, and what one writes is lost."""
    ids, n = Let("row", Load("ids", index("i"), "int64")), 1 << 20
    store = Store("acc", index("row"), Load("a", index("i"), "float32"), mode)  # type: ignore[arg-type]
    buffers = (
        Buffer("ids", "int64", "in", index(n)),
        Buffer("a", "float32", "in", index(n)),
        Buffer("acc", "float32", "inout", index(4)),
    )
    kernel = LoopKernel("combine", buffers, (Nest((Axis("i", index(n)),), (Phase(lets=(ids,), stores=(store,)),)),))
    assert "run_nest" not in kernel_text(kernel, "k", AVX2).body
