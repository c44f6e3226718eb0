"""Faults that are no wrong numbers of one call, planted in the packages: each is found by bisect(), check(), profile(), explain() or a log
alone, down to the operator, the kernel or the line."""

import re
import sys
from pathlib import Path

import pytest
import torch

import opmill
from opmill_graph_ir.loops.text import show
from opmill_kernel_gen_cpp import build

sys.path.insert(0, str(Path(__file__).parent))
from planted import FILE, LINE, Block, kernels_are_loaded_anew  # noqa: E402, F401 (the last is a fixture)


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), torch.nn.Softmax(-1)).eval()


def planted(monkeypatch, operator: str, statement: str, declared: str = "") -> None:  # type: ignore[no-untyped-def]
    """From now on kernels in which ``operator`` is computed begin with a statement of C++."""
    right = build.kernel_text

    def wrong(kernel, entry, target):  # type: ignore[no-untyped-def]
        text = right(kernel, entry, target)
        if operator not in show(kernel):
            return text
        body = re.sub(rf'(extern "C" long {entry}\([^)]*\) \{{)', rf"\1 {statement}", text.body)
        assert body != text.body
        return type(text)(text.entry, f"{declared}\n{body}", text.prelude)

    monkeypatch.setattr(build, "kernel_text", wrong)


def operators(found: opmill.Finding) -> list[str]:
    assert found.graph is not None
    return [node.name for node in found.graph.graph.nodes if node.op.startswith("call_")]


def bisected(model, tmp_path, of: str, x=None):  # type: ignore[no-untyped-def]
    found = opmill.bisect(model, of=of, options={"cache_dir": str(tmp_path)})(torch.randn(64, 16) if x is None else x)
    print(found)
    return found


def test_a_kernel_that_crashes(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    planted(monkeypatch, "tanh", "*(volatile int*)8 = 1;")
    with torch.no_grad():
        found = bisected(model, tmp_path, "crash")
    assert found.part == "backend" and "SIGSEGV" in str(found)
    assert any("tanh" in name for name in operators(found)) and len(operators(found)) == 1
    [kernel] = found.kernels
    assert "tanh" in kernel.loops and "dies of SIGSEGV" in kernel.problem
    assert any(f'{FILE}", line {LINE + 2}' in line for line in found.where)


def test_a_slow_kernel(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    planted(monkeypatch, "tanh", "usleep(300000);", 'extern "C" int usleep(unsigned);')
    with torch.no_grad():
        found = bisected(model, tmp_path, "time")
        assert found.part == "backend" and any("tanh" in name for name in operators(found))
        [kernel] = found.kernels
        assert "tanh" in kernel.loops and "us" in kernel.problem
        slowest = max(
            opmill.profile(model, calls=2, options={"cache_dir": str(tmp_path)})(torch.randn(64, 16)).steps, key=lambda s: s.seconds
        )
    assert "tanh" in slowest.name


def test_a_leak(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    planted(monkeypatch, "tanh", "volatile char* kept = (volatile char*)__builtin_malloc(100000); kept[0] = 1;")
    with torch.no_grad():
        found = bisected(model, tmp_path, "memory")
    assert found.part == "backend" and any("tanh" in name for name in operators(found)) and len(operators(found)) == 1
    assert re.search(r"each call keeps 1000\d\d bytes", str(found))


@pytest.mark.parametrize("of", ["crash", "memory"])
def test_nothing_is_found_where_nothing_is_wrong(model, tmp_path, of) -> None:  # type: ignore[no-untyped-def]
    with torch.no_grad():
        assert not bisected(model, tmp_path, of)


def test_what_there_is_to_bisect_is_said(model) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"OM027.*(.|\n)*'crash'"):
        opmill.bisect(model, of="speed")


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(30):
        x = x.sin() + 1
        if x.max() > 100:
            break
    return x


def test_a_break_in_a_hot_loop() -> None:
    told = opmill.explain(in_a_loop)(torch.ones(8))
    line = in_a_loop.__code__.co_firstlineno + 3
    assert any(f"{__file__}:{line} is inside of a loop" in advice for advice in told.advice)


def of_a_name(x: torch.Tensor, name: tuple[str, ...]) -> torch.Tensor:
    return x * len((*name, "s"))


def test_a_storm_of_recompiles() -> None:
    compiled = opmill.compile(of_a_name)
    with pytest.warns(opmill.OpmillWarning, match=r"FE090(.|\n)*name"):
        for number in range(10):
            compiled(torch.ones(3), ("step",) * number)
    last = opmill.explain(compiled)(torch.ones(3), ("step",) * 40).reasons[-1]
    line = of_a_name.__code__.co_firstlineno
    assert (
        last.where == f"{__file__}:{line}"
        and f"line {line + 1}" in str(last)
        and "^^^^" in str(last)
        and "name: expected length" in str(last)
    )
