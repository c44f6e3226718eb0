"""What a machine can do at most is measured once, and kept beside the cache."""

import pytest

from opmill.diagnose import limits
from opmill.diagnose.limits import Limits, flops_of, keep, limits_of

ROW = Limits(((1 << 10, 100.0), (1 << 20, 10.0), (1 << 30, 20.0)), {"float32": 1e9})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    limits_of.cache_clear(), flops_of.cache_clear()
    yield tmp_path / "cache"
    limits_of.cache_clear(), flops_of.cache_clear()


@pytest.mark.parametrize(("moved", "speed"), [(1, 100.0), (1 << 10, 100.0), (1 << 11, 20.0), (1 << 30, 20.0), (1 << 40, 20.0)])
def test_few_bytes_may_lie_in_a_cache(moved, speed):
    assert ROW.bandwidth_of(moved) == speed and ROW.bandwidth == 20.0


def test_what_was_kept_is_not_measured_again(monkeypatch):
    monkeypatch.setattr(limits, "measured", lambda *_: pytest.fail("measured"))
    assert keep("cpu", ROW) and limits_of("cpu") == ROW


def test_what_was_not_kept_or_is_damaged_is_measured(monkeypatch, folder):
    monkeypatch.setattr(limits, "measured", lambda device, kinds: ROW)
    assert limits_of("cpu") == ROW
    limits_of.cache_clear()
    folder.mkdir()
    (folder / "limits.json").write_text('{"')
    assert limits_of("cpu") == ROW
    assert keep("cpu", ROW) and limits_of("cpu") == ROW


def test_a_folder_that_cannot_be_written_keeps_nothing(folder):
    folder.write_text("no folder")
    assert not keep("cpu", ROW)


def test_measuring_gives_numbers_that_can_be(monkeypatch):
    monkeypatch.setattr(limits, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(limits, "_COPIES", (1 << 12, 1 << 16))
    monkeypatch.setattr(limits, "_PRODUCTS", (16,))
    found = limits.measured("cpu")
    assert found.products.keys() == {"float32", "float64", "bfloat16"} and all(speed > 0 for speed in found.products.values())
    assert [size for size, speed in found.copies if speed > 0] == [1 << 12, 1 << 16]


def test_products_have_the_limit_of_their_type(monkeypatch):
    keep("cpu", Limits(ROW.copies, {"float32": 1e9, "bfloat16": 4e9}))
    monkeypatch.setattr(limits, "_fastest", lambda device, kind: {"float64": 5e8}[kind])
    assert [flops_of("cpu", kind) for kind in ("float32", "bfloat16", "float64", "float8_e4m3fn")] == [1e9, 4e9, 5e8, 8e9]


def test_a_type_that_is_not_multiplied_has_the_usual_limit(monkeypatch):
    keep("cpu", ROW)
    monkeypatch.setattr(limits, "_fastest", lambda device, kind: (_ for _ in ()).throw(RuntimeError("not implemented")))
    assert flops_of("cpu", "float16") == 1e9
