"""The store: what goes in comes out, whatever happens to the disk or to other processes."""

import errno
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmill_runtime_cache.errors import StoreWarning
from opmill_runtime_cache.store import Store, default_store, directory, key_of, temporary_folder

KEY = key_of("an artifact")


def files(store: Store) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file() and not {"locks", "build", "key"} & set(path.parts)]


def test_put_get_path(tmp_path):
    store = Store(tmp_path / "cache")
    assert store.get("cpu-so", KEY) is None and store.path("cpu-so", KEY) is None and not store.contains("cpu-so", KEY)
    store.put("cpu-so", KEY, b"payload")
    store.put("plan", KEY, b"")
    assert store.get("cpu-so", KEY) == b"payload" and store.get("plan", KEY) == b""
    assert store.path("cpu-so", KEY).read_bytes().startswith(b"payload")
    assert Store(tmp_path / "cache").get("cpu-so", KEY) == b"payload"
    store.put("cpu-so", KEY, b"newer")
    assert store.get("cpu-so", KEY) == b"newer"
    store.remove("cpu-so", KEY)
    assert store.get("cpu-so", KEY) is None


def test_entries_are_private(tmp_path):
    store = Store(tmp_path / "cache")
    store.put("plan", KEY, b"x")
    assert (store.root / "v2").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files(store))
    assert (store.root / "v2" / "key").stat().st_mode & 0o777 == 0o600


def levels(store: Store) -> dict[str, Path]:
    """Everything between an entry and the root of its store."""
    file = store.put("plan", KEY, b"x")
    return {"file": file, "prefix": file.parent, "kind": file.parent.parent, "layout": file.parent.parent.parent}


@pytest.mark.parametrize("level", ["file", "prefix", "kind", "layout", "key"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_to_is_not_read(tmp_path, level, mode):
    place = {**levels(Store(tmp_path)), "key": tmp_path / "v2" / "key"}[level]
    place.chmod(place.stat().st_mode | mode)
    store = Store(tmp_path)
    with pytest.warns(StoreWarning, match="RC06[34].*others may") as caught:
        assert store.get("plan", KEY) is None and store.path("plan", KEY) is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store.put("plan", KEY, b"made anew")
    assert store.get("plan", KEY) == b"made anew"


@pytest.mark.parametrize("level", ["file", "prefix", "kind", "layout"])
def test_links_are_not_followed(tmp_path, level):
    place = levels(Store(tmp_path))[level]
    aside = tmp_path / "aside"
    place.rename(aside)
    place.symlink_to(aside)
    with pytest.warns(StoreWarning, match="RC06"):
        assert Store(tmp_path).get("plan", KEY) is None


def test_a_folder_above_that_others_may_write_to(tmp_path):
    above = tmp_path / "above"
    Store(above / "cache").put("plan", KEY, b"x")
    above.chmod(0o777)
    with pytest.warns(StoreWarning, match="RC063.*others may write"):
        assert Store(above / "cache").get("plan", KEY) is None
    above.chmod(0o1777)  # as /tmp: everybody may remove his own alone
    assert Store(above / "cache").get("plan", KEY) == b"x"


def test_a_root_behind_a_link_is_a_root(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Store(tmp_path / "link").put("plan", KEY, b"x")
    assert Store(tmp_path / "real").get("plan", KEY) == b"x"


def test_an_entry_of_another_store_is_damaged(tmp_path):
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    here.put("plan", KEY, b"ours").write_bytes(there.put("plan", KEY, b"theirs").read_bytes())
    with pytest.warns(StoreWarning, match="RC060"):
        assert here.get("plan", KEY) is None


def test_a_cleared_store_begins_anew(tmp_path):
    old = Store(tmp_path)
    old.put("plan", KEY, b"old")
    shutil.rmtree(tmp_path / "v2")
    new = Store(tmp_path)
    new.put("plan", KEY, b"new")
    assert old.get("plan", KEY) == b"new"
    old.put("plan", key_of(2), b"of the old one")
    assert new.get("plan", key_of(2)) == b"of the old one"


SECRETS = "import sys, pathlib\nfrom opmill_runtime_cache.store import private\nprint(private.secret_of(pathlib.Path(sys.argv[1]), make=True).hex())"


def test_processes_make_one_secret(tmp_path):
    workers = [subprocess.Popen([sys.executable, "-c", SECRETS, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(4)]
    assert len({worker.communicate()[0] for worker in workers}) == 1
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600 and [p.name for p in tmp_path.iterdir()] == ["key"]


BUILDER = """
import sys, os, signal
from opmill_runtime_cache.store import Store, temporary_folder
import tempfile
tempfile.tempdir = sys.argv[2]
with Store(sys.argv[1]).workspace() as folder:
    (folder / "kernels.cpp").write_text("half")
    (temporary_folder().path / "more").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_was_making_goes_at_the_next_start(tmp_path):
    other = tmp_path / "temporary"
    other.mkdir()
    subprocess.run([sys.executable, "-c", BUILDER, str(tmp_path / "cache"), str(other)], check=False)
    build = tmp_path / "cache" / "v2" / "build"
    assert list(build.glob("*/kernels.cpp")) and list(other.glob("*/more"))
    store = Store(tmp_path / "cache")
    with store.workspace() as mine:
        assert [path for path in build.iterdir() if path.is_dir()] == [mine]
        Store(tmp_path / "cache").get("plan", KEY)  # another start: ours is still there
        assert mine.exists()
    assert not list(build.iterdir())
    temporary_folder(str(other)).release()
    assert not list(other.iterdir())


@pytest.mark.parametrize(
    "kind,key", [("../up", KEY), ("Plan", KEY), ("plan", "../../x"), ("plan", ""), ("plan", "a/b"), ("plan", "a.b"), ("plan", "k\n")]
)
def test_names_cannot_leave_the_root(tmp_path, kind, key):
    with pytest.raises(ValueError):
        Store(tmp_path).put(kind, key, b"")


@given(st.binary(max_size=60), st.data())
def test_any_damage_makes_an_entry_absent(tmp_path_factory, payload, data):
    store = Store(tmp_path_factory.mktemp("damage"))
    [path] = [store.put("plan", KEY, payload)]
    blob = bytearray(path.read_bytes())
    how = data.draw(st.sampled_from(["cut", "flip", "grow"]))
    if how == "cut":
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    elif how == "flip":
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        blob += data.draw(st.binary(min_size=1, max_size=4))
    path.write_bytes(bytes(blob))
    with pytest.warns(StoreWarning, match="RC060"):
        assert store.get("plan", KEY) is None
    assert not path.exists()
    store.put("plan", KEY, payload)
    assert store.get("plan", KEY) == payload


def test_an_entry_under_another_name_is_absent(tmp_path):
    store = Store(tmp_path)
    path = store.put("plan", KEY, b"mine")
    other = key_of("another")
    moved = store.root / "v2" / "plan" / other[:2] / other
    moved.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, moved)
    with pytest.warns(StoreWarning):
        assert store.get("plan", other) is None


def test_one_warning_for_many_damaged_entries(tmp_path):
    store = Store(tmp_path)
    for number in range(3):
        store.put("plan", key_of(number), b"data").write_bytes(b"bad")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [store.get("plan", key_of(number)) for number in range(3)] == [None] * 3
    assert len(caught) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written(tmp_path, monkeypatch, code):
    store = Store(tmp_path)
    store.put("plan", key_of("before"), b"kept")

    def refuse(path, data, folder):
        if tmp_path in path.parents:
            raise OSError(code, os.strerror(code))
        write(path, data, folder)

    write = directory.write_atomically
    monkeypatch.setattr(directory, "write_atomically", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.put("plan", KEY, b"one")
        store.put("plan", key_of(2), b"two")
        with store.lock("plan", KEY):
            pass
    assert [str(warning.message)[:7] for warning in caught] == ["[RC061]"]
    assert store.get("plan", KEY) == b"one" and store.get("plan", key_of(2)) == b"two" and store.get("plan", key_of("before")) == b"kept"
    assert store.path("plan", KEY).read_bytes().startswith(b"one")


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    store = Store(tmp_path / "file")
    with pytest.warns(StoreWarning, match="RC063"):
        store.put("plan", KEY, b"x")
    assert store.get("plan", KEY) == b"x"
    with store.lock("plan", KEY):
        pass


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    store = Store(small_disk)
    store.put("plan", key_of(0), b"early")
    with pytest.warns(StoreWarning, match="RC061.*[Nn]o space") as caught:
        for number in range(1, 6):
            store.put("plan", key_of(number), bytes([number]) * 30_000)
    assert len(caught) == 1
    assert store.get("plan", key_of(0)) == b"early"
    assert [store.get("plan", key_of(number)) for number in range(1, 6)] == [bytes([number]) * 30_000 for number in range(1, 6)]
    assert not [path for path in small_disk.rglob(".tmp-*")]


def test_a_root_of_another_user_is_refused(tmp_path, monkeypatch):
    Store(tmp_path).put("plan", KEY, b"planted")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    store = Store(tmp_path)
    with pytest.warns(StoreWarning, match="RC063.*belongs to user"):
        assert store.get("plan", KEY) is None


def test_eviction_drops_what_was_used_longest_ago(tmp_path):
    store = Store(tmp_path, max_bytes=20_000)
    for number in range(40):
        path = store.put("plan", key_of(number), bytes(952))
        os.utime(path, (1e9 + number, 1e9 + number))
        store.get("plan", key_of(0))  # used again and again: stays
    kept = [number for number in range(40) if store.contains("plan", key_of(number))]
    assert 0 in kept and 39 in kept and 1 not in kept
    assert sum(path.stat().st_size for path in files(store)) <= 20_000 * 9 // 8


def test_abandoned_files_are_swept(tmp_path):
    store = Store(tmp_path, max_bytes=1000)
    path = store.put("plan", KEY, b"x")
    litter = path.with_name(".tmp-left")
    litter.write_bytes(b"half")
    os.utime(litter, (1e9, 1e9))
    store.put("plan", key_of(1), bytes(500))
    assert not litter.exists()


WORKER = """
import sys, pathlib
from opmill_runtime_cache.store import Store, key_of
store, log = Store(sys.argv[1]), pathlib.Path(sys.argv[2])
for number in range(20):
    key = key_of(number)
    with store.lock("plan", key):
        found = store.get("plan", key)
        if found is None:
            with open(log, "a") as file:
                file.write(f"{number}\\n")
            store.put("plan", key, bytes([number]) * 5000)
    assert store.get("plan", key) == bytes([number]) * 5000
    store.put("shared", key_of("same"), bytes([number]) * 5000)
    data = store.get("shared", key_of("same"))
    assert data == data[:1] * 5000
"""


def test_processes_make_each_entry_once_and_never_see_half_of_one(tmp_path):
    command = [sys.executable, "-W", "error", "-c", WORKER, str(tmp_path / "cache"), str(tmp_path / "log")]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    for worker in workers:
        _, error = worker.communicate()
        assert worker.returncode == 0, error.decode()
    made = (tmp_path / "log").read_text().split()
    assert sorted(map(int, made)) == list(range(20))


def test_a_lock_of_a_crashed_process_is_free(tmp_path):
    code = "import sys, os\nfrom opmill_runtime_cache.store import Store\nlock = Store(sys.argv[1]).lock('plan', 'k')\nlock.__enter__()\nos._exit(1)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    with Store(tmp_path, lock_timeout_s=5).lock("plan", "k"):
        pass


def test_default_store_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "here"))
    assert default_store().root == tmp_path / "here" and default_store() is default_store()
