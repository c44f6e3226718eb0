"""Random tensor programs through capture, lowering, scheduling, generated kernels and the native plan, against eager.

``benchmarks/fuzz_graphs.py`` and its neighbours run thousands; here are some, and those that showed bugs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from opmill_runtime_cache.store import Store

fuzz_graphs = pytest.importorskip("fuzz_graphs")
fuzz_networks = pytest.importorskip("fuzz_networks")
fuzz_states = pytest.importorskip("fuzz_states")
fuzz_schedules = pytest.importorskip("fuzz_schedules")
fuzz_training = pytest.importorskip("fuzz_training")
random_graphs = pytest.importorskip("random_graphs")
FIRST, COUNT = 200_000, 80


@pytest.fixture
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def rights(fuzzer: ModuleType, count: int, folder: Path) -> int:
    """How many of a fuzzer's first programs are compiled and right; none is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(fuzzer.verdicts(range(FIRST, FIRST + count), Store(folder), batch=60))
    bad = [f"seed {v.program.seed}: {v.kind}: {v.detail}\n{v.program.source}" for v in found if v.kind in ("crash", "wrong")]
    assert not bad, "\n".join(bad)
    return sum(v.kind == "right" for v in found)


def test_random_programs(inference: None, tmp_path: Path) -> None:
    assert rights(fuzz_graphs, COUNT, tmp_path) > COUNT * 0.9, "most programs must be compiled to kernels"


def test_gradients_of_random_programs(tmp_path: Path) -> None:
    assert rights(fuzz_training, COUNT // 2, tmp_path) > COUNT // 8


def test_random_networks(tmp_path: Path) -> None:
    assert rights(fuzz_networks, COUNT // 4, tmp_path) > COUNT // 8


def test_fused_kernels_of_random_programs(inference: None, tmp_path: Path) -> None:
    assert not list(fuzz_schedules.problems(range(60), Store(tmp_path)))


def test_random_programs_as_for_a_gpu() -> None:
    pytest.importorskip("triton", reason="kernels for GPUs are interpreted wherever triton is (pip install triton)")
    command = [sys.executable, fuzz_graphs.__file__.replace("fuzz_graphs", "fuzz_triton"), "--seed", str(FIRST), "--count", str(COUNT // 2)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300
    )  # another process: triton must learn at its import that it interprets
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.filterwarnings("ignore")
def test_random_modules_that_write_their_state() -> None:
    found = [fuzz_states.problem(fuzz_states.random_module(seed)) for seed in range(60, 76)]  # two of them were refused
    assert not any(found)
    assert found.count("") > 10


def test_what_is_run_on_gpus_runs_here_too() -> None:
    command = [sys.executable, fuzz_graphs.__file__.replace("fuzz_graphs", "fuzz_gpu"), "--device", "cpu", "--mode", "default"]
    done = subprocess.run([*command, "--seed", str(FIRST), "--count", "6", "--jobs", "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("'right': ") == 3, "programs, gradients and networks are judged"


def test_values_beside_a_pole_are_judged_by_how_far_rounding_moves_them() -> None:
    x = torch.tensor([6.5, 7.0])
    source = "def program(a0):\n    t0 = torch.tanh(a0)\n    t1 = torch.reciprocal(t0 - 1)\n    return (t1, )\n"
    program = random_graphs.Program(source, [x], 0, ([x.dtype], [x.dtype]), {0: ("t0", ()), 1: ("t1", ("t0",))})
    (want,) = program.function()(x)
    exact = fuzz_graphs.exactly(program, [x])

    def problem(got: torch.Tensor) -> str:
        return fuzz_graphs.judged(program, [x], ([got], [x]), ([want], [x]), exact)  # type: ignore[no-any-return]

    lower = torch.tanh(x) - torch.tensor([0.0, 1.2e-7])
    assert not torch.allclose(1 / (lower - 1), want), "the last place of tanh moves what is behind it"
    assert not problem(1 / (lower - 1))
    assert problem(want * 3)


def test_numbers_below_the_normal_ones_share_their_last_place() -> None:
    moved = pytest.importorskip("shaken").moved
    least, generator = 1.401298464324817e-45, torch.Generator().manual_seed(0)
    found = moved(torch.tensor([least] * 60 + [0.0, -0.0]), generator)
    assert {0.0, least, 2 * least} <= {*found[:60].abs().tolist()}, "so many units of the last place, which is as large as the number"
    assert not found[60:].any() and found[60:].signbit().tolist() == [False, True]
    x = torch.tensor([1e38, 3.0, -2e-38, float("inf"), float("-inf")])
    assert (
        torch.allclose(moved(x, generator), x, rtol=5e-7, atol=0)
        and moved(x.to(torch.complex64), generator).isfinite().tolist() == [True] * 3 + [False] * 2
    )


def test_overlaps_that_eager_leaves_undefined() -> None:
    x = torch.arange(12).view(3, 4)
    inside = [x[0], x[:1], x.t()[:3, :3], x.view(-1)[1:].as_strided((3, 4), (3, 1))]
    assert [random_graphs.half_overlap(t, o) for t, o in zip([x, x, x[:, :3], x], inside, strict=True)] == [True] * 4
    assert (
        not random_graphs.half_overlap(x, x.view(3, 4))
        and not random_graphs.half_overlap(x[1:], x[:1])
        and not random_graphs.half_overlap(x, x.clone())
    )
    assert random_graphs.is_overlapping(x.unfold(1, 2, 1)) and not random_graphs.is_overlapping(x.t()[None])
