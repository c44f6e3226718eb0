"""The opmill command."""

import pytest

import opmill
from opmill import cli


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
