"""The cache on disk: warm, damaged, unwritable, shared. Always the right result; at most one warning."""

import json
import stat
from pathlib import Path

import pytest

CODE = """
import json, re, sys, warnings, torch
import opmill
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).eval()
x = torch.randn(3, 16)
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    found = opmill.compile(model, fullgraph=True)(x)
    right = bool(torch.allclose(found, model(x), atol=1e-5))
ours = [str(w.message) for w in caught if re.match(r"\\[?[A-Z]{2}\\d{3}", str(w.message))]
loaded = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
print(json.dumps({"right": right, "warnings": ours, "loaded": loaded}))
"""


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def files(cache: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in cache.rglob("*") if path.is_file() and "lock" not in str(path)}


def run(script, **environment):
    return json.loads(script(CODE, **environment).splitlines()[-1])


GOOD = {"right": True, "warnings": [], "loaded": []}


def test_cold_then_warm(script, cache):
    assert run(script) == GOOD
    written = files(cache)
    assert written
    assert run(script) == GOOD
    assert files(cache).keys() == written.keys()


def test_the_cache_is_private(script, cache):
    run(script)
    assert [path.name for path in cache.iterdir() if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage", [truncate, flip, lambda data: b"", lambda data: data + b"x"], ids=["truncated", "altered", "empty", "longer"]
)
def test_a_damaged_entry_is_compiled_again(script, cache, damage):
    assert run(script) == GOOD
    for path, data in files(cache).items():
        path.write_bytes(damage(data))
    again = run(script)
    assert again["right"] and len(again["warnings"]) <= 1
    assert run(script) == GOOD


def test_a_folder_that_cannot_be_made(script, tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = run(script, OPMILL_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert found["right"] and len(found["warnings"]) == 1


# Permissions do not stop a privileged user, so the disk's refusal is made where the operating system would say it.
REFUSING = """
import errno, os
def refusing(function):
    def call(path, *rest, **keywords):
        writes = function.__name__ != "open" or (rest and rest[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and {folder!r} in str(path):
            raise OSError(errno.{name}, os.strerror(errno.{name}), str(path))
        return function(path, *rest, **keywords)
    return call
for name in ("open", "mkdir", "replace", "rename"):
    setattr(os, name, refusing(getattr(os, name)))
"""


@pytest.mark.parametrize("name", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize("folder_exists", [True, False])
def test_a_full_or_read_only_disk(script, cache, name, folder_exists):
    if folder_exists:
        run(script)
        for path in files(cache):
            path.unlink()
    found = json.loads(script(REFUSING.format(folder=str(cache), name=name) + CODE).splitlines()[-1])
    assert found["right"] and len(found["warnings"]) == 1


def test_two_processes_at_once(script, cache):
    processes = [script.start(CODE) for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        assert json.loads(out.splitlines()[-1]) == GOOD
    assert list(cache.rglob(".tmp-*")) == []
    assert run(script) == GOOD


def test_without_a_compiler_one_warning_and_torchs_operators(script, tmp_path):
    found = run(script, PATH=str(tmp_path), CXX="")
    assert found["right"] and len(found["warnings"]) == 1 and found["loaded"] == []


def test_a_private_cache_writes_nothing_to_the_shared_one(script, cache):
    code = CODE.replace("fullgraph=True)", 'fullgraph=True, options={"cache": False})')
    assert json.loads(script(code).splitlines()[-1]) == GOOD
    assert not cache.exists() or not files(cache)
