"""The options of a cache that machines share, and what stands for them in the environment."""

import pytest
import torch

import opmill

SECRET = "0123456789abcdef" * 4


def squared(x):
    return (x * x).sum()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.delenv("OPMILL_CACHE_KEY", raising=False)
    monkeypatch.delenv("OPMILL_CACHE_URL", raising=False)
    opmill.reset()


def test_without_a_secret_it_is_refused():
    with pytest.raises(ValueError, match="OM022.*at least 32 characters"):
        opmill.compile(squared, options={"cache_url": "memory://nobody"})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="OM022.*missing"):
        opmill.compile(squared, options={"cache_url": "memory://nobody", "cache_key_file": tmp_path / "missing"})


@pytest.mark.parametrize("options", [{"cache_wait": -1}, {"cache_wait": 1.5}, {"cache_url": 3}])
def test_other_values_are_refused(options):
    with pytest.raises(ValueError, match="OM006"):
        opmill.compile(squared, options=options)


def test_what_one_folder_has_compiled_another_takes(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    shared = {"cache_url": f"file://{tmp_path}/shared", "cache_key_file": tmp_path / "secret"}
    x = torch.arange(4.0)
    for folder in ("one", "two"):
        opmill.reset()
        options = {**shared, "cache_dir": str(tmp_path / folder)}
        assert opmill.compile(squared, options=options)(x) == 14
        opmill.native.open_store(opmill.Options(**{k: str(v) for k, v in options.items()})).remote.flush()
    kinds = [{p.parts[-3] for p in (tmp_path / f / "v2").rglob("*") if len(p.name) == 64} for f in ("one", "two", "shared")]
    names = [{p.name for p in (tmp_path / f / "v2").rglob("*") if len(p.name) == 64} for f in ("one", "two", "shared")]
    assert names[0] == names[2] >= names[1]
    assert "graph-plan" in kinds[1] and "cpu-kernel" not in kinds[1]  # nothing was built but taken: the plan, and what it runs
