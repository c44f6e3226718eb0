"""The opmill command."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import opmill
from opmill import cli, doctor
from opmill.diagnose import limits
from opmill.pipeline import NAMES


def test_doctor_tells_of_torch_and_the_cache(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["doctor"]) in (0, 1)
    printed = capsys.readouterr().out
    assert opmill.__version__ in printed and "torch" in printed and "not made yet" in printed


def test_cache_info_and_clear_touch_only_what_the_store_made(capsys, monkeypatch, tmp_path):
    from opmill_runtime_cache.store import Store

    monkeypatch.setenv("COLUMNS", "300")
    Store(tmp_path).put("plan", "abcdef", b"x" * 2000)
    (tmp_path / "mine.txt").write_text("kept")
    assert cli.main(["cache", "info", "--dir", str(tmp_path)]) == 0
    assert "1 files, 2 KiB" in capsys.readouterr().out
    assert cli.main(["cache", "clear", "--dir", str(tmp_path)]) == 0
    assert Store(tmp_path).get("plan", "abcdef") is None and (tmp_path / "mine.txt").read_text() == "kept"


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["no-such-command"])
    assert stopped.value.code == 2 and "no-such-command" in capsys.readouterr().err


def test_doctor_shows_what_is_known_of_operators(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["doctor", "--operators", "softshrink"]) == 0
    shown = capsys.readouterr().out
    rows = {cells[0]: cells for line in shown.splitlines() if (cells := [c.strip() for c in line.strip("│").split("│")])}
    assert rows["softshrink"][1:8] == ["activations", "pointwise", "own rule", "computed again", "any", "", "softshrink_backward"]
    assert "softshrink_backward" in rows and "relu" not in rows


def test_doctor_of_an_operator_without_a_record(capsys):
    assert cli.main(["doctor", "--operators", "no such operator"]) == 1
    assert "torch's own" in capsys.readouterr().out


def test_the_pipeline_is_shown_from_bytecode_to_the_executable(capsys):
    assert cli.main(["pipeline"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("capture: bytecode -> FX graph") and shown[-1].startswith("bind: plan -> plan")
    assert [line.partition(":")[0].strip() for line in shown if not line.strip().startswith("until")] == list(NAMES)


def test_doctor_builds_before_it_says_ready(capsys, monkeypatch, tmp_path):
    """A compiler that says its version and cannot compile."""
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "g++ (broken) 12.0" && exit 0\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    found = [each for each in cli.find_generators() if each.name == "cpp"]
    if not found:
        pytest.skip("no C++ kernels are installed")
    monkeypatch.setattr(cli, "find_generators", lambda: found)
    status = cli.main(["doctor"])
    told = capsys.readouterr().out
    assert status == 1 and "ready" not in told and "KC001" in told


class Everywhere:
    """A kernel generator that claims to make kernels for everything."""

    name = "everywhere"

    def claims(self, kernel, options):
        return None

    def build(self, kernels, options, store):
        raise RuntimeError(f"no compiler for {options.device}")


def test_doctor_tries_each_device(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(doctor, "types", lambda: ["cpu", "some"])
    monkeypatch.setattr(torch, "some", SimpleNamespace(is_available=lambda: True, device_count=lambda: 2), raising=False)
    assert doctor.devices() == ["cpu", "some:0", "some:1"]
    told = {"cpu": "no compiler for cpu", "some:0": "no compiler for some:0", "some:1": "no compiler for some:1"}
    assert doctor.trials(Everywhere()) == {device: f"cannot build: {text}" for device, text in told.items()}
    monkeypatch.setattr(cli, "find_generators", lambda: [SimpleNamespace(name="everywhere", reason=None, generator=Everywhere())])
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert all(f"{device}: cannot build: {text}" in shown for device, text in told.items()) and "ready" not in shown


def test_doctor_measures_what_the_machine_can_do_and_keeps_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    cli.main(["doctor"])
    shown = capsys.readouterr().out
    assert "cpu at most" in shown and "GB/s of 256 MiB" in shown and "GFLOP/s" in shown
    monkeypatch.setattr(limits, "measured", lambda *_: pytest.fail("measured"))
    assert limits.flops_of("cpu", "bfloat16") > 0
    limits.limits_of.cache_clear()


def test_the_package_is_the_command(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, torch\nprint(torch.compile(lambda x: x + 1)(torch.ones(2)).tolist(), sys.argv[1:])")
    done = subprocess.run([sys.executable, "-m", "opmill", "run", str(script), "a", "--b"], capture_output=True, text=True, check=True)
    assert done.stdout == "[2.0, 2.0] ['a', '--b']\n"
