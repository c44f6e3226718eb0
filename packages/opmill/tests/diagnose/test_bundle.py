"""A bundle holds what a report needs and no more, and runs elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opmill


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 7.25))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = (x * self.weight).sin()
        if y.sum() > 1e9:
            return y
        return y[index] + 1


ARGUMENTS = torch.full((3,), 1234.5), torch.tensor([2, 0])


def test_a_bundle_has_graphs_versions_and_no_numbers_of_the_users(tmp_path: Path) -> None:
    folder = opmill.bundle(Scaled(), tmp_path / "bundle")(*ARGUMENTS)
    told = json.loads((folder / "bundle.json").read_text())
    assert told["graphs"] == ["graph0.py", "graph1.py"] and "torch" in told["versions"]
    assert told["options"]["recompile_limit"] == opmill.Options().recompile_limit
    texts = "".join(path.read_text() for path in folder.glob("graph*.py"))
    assert "1234.5" not in texts and "7.25" not in texts and not list(folder.glob("*.pt"))
    assert "FE030" in (folder / "explain.txt").read_text()


def test_a_bundle_is_replayed(tmp_path: Path) -> None:
    folder = opmill.bundle(Scaled(), tmp_path)(*ARGUMENTS)
    seen = opmill.replay(folder)
    assert seen and len(seen.results) == 2 and "graph1.py: all" in str(seen)


def test_data_comes_along_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = opmill.bundle(Scaled(), tmp_path, data=True)(*ARGUMENTS)
    saved = torch.load(folder / "graph0.pt", weights_only=True)
    values = [*saved["inputs"], *saved["state"].values()]
    assert any(torch.equal(value, ARGUMENTS[0]) for value in values if value.shape == (3,))
    assert opmill.replay(folder)


def test_each_script_of_a_bundle_stands_alone(tmp_path: Path) -> None:
    folder = opmill.bundle(Scaled(), tmp_path)(*ARGUMENTS)
    code = "import runpy, sys; m = runpy.run_path(sys.argv[1]); print(m['Program']()(*m['inputs']())[0].shape)"
    done = subprocess.run([sys.executable, "-c", code, str(folder / "graph0.py")], capture_output=True, text=True, check=True)
    assert "torch.Size" in done.stdout


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="OM017"):
        opmill.replay(tmp_path)


def test_an_internal_error_writes_its_bundle_once_and_says_where(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fails(gm, inputs, **told):  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("opmill.native.native_compiler", lambda options: fails)
    monkeypatch.setattr("opmill.backend._bundled", [])
    with pytest.warns(opmill.OpmillWarning, match="ZeroDivisionError: planted; please report it with") as seen:
        assert torch.equal(opmill.compile(lambda x: x + 1)(torch.zeros(2)), torch.ones(2))
    [folder] = re.findall(r"report it with (\S+), which", str(seen[0].message))
    told = json.loads((Path(folder) / "bundle.json").read_text())
    assert "planted" in told["error"] and told["graphs"] == ["graph0.py"]
