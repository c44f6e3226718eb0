"""Logs by topic, counters, and switching everything off."""

import logging
import subprocess
import sys

import pytest
import torch

import opmill
from opmill.logs import TOPICS
from opmill.metrics import COUNTED, counters, export_to, reset_counters


@pytest.fixture(autouse=True)
def quiet_again():  # type: ignore[no-untyped-def]
    yield
    opmill.set_logs()


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1 if y.sum() > 100 else y - 1


def use(name: str, capsys) -> str:  # type: ignore[no-untyped-def]
    opmill.set_logs(name)
    compiled = opmill.compile(branch, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    compiled(torch.ones(2, 2))
    told: str = capsys.readouterr().err
    return told


def test_a_topic_is_shown_and_no_other(capsys) -> None:  # type: ignore[no-untyped-def]
    told = use("breaks", capsys)
    assert "opmill.breaks: FE" in told and f"{__file__}:{branch.__code__.co_firstlineno + 2}" in told
    assert all(f"opmill.{name}:" not in told for name in set(TOPICS) - {"breaks"})
    assert use("breaks", capsys).count("opmill.breaks:") == 1  # a break is told once


@pytest.mark.parametrize(
    ("name", "text"),
    [("recompiles", "is compiled again"), ("guards", "TensorMatch("), ("graph", "mul"), ("time", "operators in")],
)
def test_each_topic_tells_its_own(name, text, capsys) -> None:  # type: ignore[no-untyped-def]
    told = use(name, capsys)
    assert f"opmill.{name}:" in told and text in told


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("loops", ["opmill.loops: graph 0", "kernel ", "nest ", "set "]),
        ("kernels", ["1 kernels, 1 launches", "\n  mul+sum", f"{__file__}:"]),
    ],
)
def test_kernels_and_their_loops_are_told(name, texts, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("opmill_kernel_gen_cpp")
    opmill.set_logs(name)
    opmill.compile(lambda x: (x * 2).sum(), options={"cache_dir": tmp_path})(torch.ones(3))
    told = capsys.readouterr().err
    assert all(text in told for text in texts), told


def test_nothing_is_shown_unasked(capsys) -> None:  # type: ignore[no-untyped-def]
    opmill.set_logs()
    opmill.compile(branch, backend="eager")(torch.ones(3))
    assert capsys.readouterr().err == ""


def test_an_unknown_topic_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"OM016[\s\S]*braeks[\s\S]*breaks"):
        opmill.set_logs("braeks")


def test_programs_that_configure_logging_see_lines_too(caplog) -> None:  # type: ignore[no-untyped-def]
    with caplog.at_level(logging.INFO, logger="opmill.breaks"):
        opmill.compile(branch, backend="eager")(torch.ones(3))
    assert any(record.name == "opmill.breaks" for record in caplog.records)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=True)


CODE = "import torch, opmill; f = lambda x: x + 1; g = opmill.compile(f, backend='eager'); g(torch.ones(2)); print(g is f)"


def test_the_environment_asks_for_topics() -> None:
    assert "opmill.graph" in run(CODE, OPMILL_LOGS="graph,time").stderr


def test_the_environment_switches_all_off() -> None:
    assert run(CODE, OPMILL_DISABLE="1").stdout.strip() == "True"
    assert run(CODE, OPMILL_DISABLE="0").stdout.strip() == "False"


def test_counters_count() -> None:
    reset_counters()
    compiled = opmill.compile(branch, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    first = counters()
    assert first["graphs"] == 2 and first["captures"] >= 2 and first["breaks"] == 1 and first["recompiles"] == 0
    compiled(torch.ones(3))
    assert counters() == first
    compiled(torch.ones(2, 2))
    assert counters()["recompiles"] >= 1 and counters()["breaks"] == 1
    reset_counters()
    assert not any(counters().values())


def test_counters_are_offered_to_a_meter(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import types

    api = types.ModuleType("opentelemetry.metrics")
    api.Observation = lambda value: value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", types.ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", api)
    offered = {}

    class Meter:
        def create_observable_counter(self, name, callbacks, unit, description):  # type: ignore[no-untyped-def]
            offered[name] = callbacks[0]

    export_to(Meter())
    opmill.compile(branch, backend="eager")(torch.ones(3))
    assert set(offered) == {f"opmill.{name}" for name in COUNTED}
    assert offered["opmill.graphs"](None) == [counters()["graphs"]]
