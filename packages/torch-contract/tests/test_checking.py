"""How names, symbols and layouts are looked for."""

from pathlib import Path

import pytest
import torch

from opmill_torch_contract.checking import LAYOUT_PROBES, Missing, _finder, has_layout, has_name, torch_version
from opmill_torch_contract.layouts import LAYOUTS
from opmill_torch_contract.row import Row


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("torch.Tensor.add_", True),
        ("torch.nn.functional.gelu", True),
        ("torch.fx.experimental.proxy_tensor.make_fx", True),  # imported on the way
        ("torch._C._no_such_thing", False),
        ("torch.nn.functional.gelu.nothing", False),
        ("torch.no.such.module", False),
    ],
)
def test_names(name: str, there: bool) -> None:
    assert has_name(name) is there


def test_symbols_of_libraries(tmp_path: Path) -> None:
    has = _finder(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    assert has("aoti_torch_empty_strided") and not has("no_such_symbol_of_torch")
    assert not _finder(tmp_path / "gone.so")("aoti_torch_empty_strided")


def test_every_layout_has_a_probe_that_finds_it() -> None:
    assert {row.name for row in LAYOUTS} == LAYOUT_PROBES.keys() and all(has_layout(row.name) for row in LAYOUTS)


def test_a_layout_that_is_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        _cdata = 0x1234_5678_9ABC

    monkeypatch.setattr(torch, "empty", lambda *_: Elsewhere())
    assert not has_layout("tensor object")


def test_what_is_told() -> None:
    row = Row("torch.x", "all is slower")
    assert str(Missing(row, "name", False)) == "name torch.x: all is slower"
    assert str(Missing(row, "symbol", True)) == "symbol torch.x: all is slower (known of this version)"
    assert torch_version() == tuple(int(n) for n in torch.__version__.split(".")[:2])
