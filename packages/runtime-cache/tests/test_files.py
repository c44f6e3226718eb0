"""A folder of a file system of fsspec."""

import uuid

import pytest

from opmill_runtime_cache.store.entry import PARTIAL

pytest.importorskip("fsspec")
from opmill_runtime_cache.store.files import Files


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path):
    return Files(str(tmp_path / "shared") if request.param == "local" else f"memory://{uuid.uuid4().hex}/")


def test_what_is_written_is_read_and_what_is_missing_is_left_out(files):
    files.write("plan/k", b"one")
    files.write("plan/deep/er/k", b"")
    assert files.read(["plan/k", "plan/deep/er/k", "plan/j", "gone/k"]) == {"plan/k": b"one", "plan/deep/er/k": b""}
    files.write("plan/k", b"two")
    assert files.read(["plan/k"]) == {"plan/k": b"two"}


def test_one_creates_and_the_others_are_told(files):
    assert files.create("claims/k", b"first") and not files.create("claims/k", b"second")
    assert files.read(["claims/k"]) == {"claims/k": b"first"}
    files.remove("claims/k")
    files.remove("claims/k")
    assert files.read(["claims/k"]) == {} and files.create("claims/k", b"third")


def test_nothing_half_written_stays(tmp_path):
    files = Files(str(tmp_path))
    for _ in range(3):
        files.write("plan/k", b"x" * 1000)
    assert [path.name for path in (tmp_path / "plan").iterdir()] == ["k"] and not list(tmp_path.rglob(f"{PARTIAL}*"))


def test_a_file_that_cannot_be_read_is_not_taken_for_missing(tmp_path):
    files = Files(str(tmp_path))
    files.write("plan/k", b"x")

    def refuses(names, on_error):
        return dict.fromkeys(names, PermissionError("no"))

    files._system.cat = refuses
    try:
        with pytest.raises(PermissionError):
            files.read(["plan/k"])
    finally:
        del files._system.cat
