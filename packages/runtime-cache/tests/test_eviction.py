"""Which entries go when a store is too large."""

import os
import time

from opmill_runtime_cache.store.entry import PARTIAL
from opmill_runtime_cache.store.eviction import BUILDING, entries_of, evict
from opmill_runtime_cache.store.private import SECRET


def file(path, size=10, age=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_was_used_longest_ago_goes_until_a_fifth_is_free(tmp_path):
    files = [file(tmp_path / "plan" / f"k{age}", 10, age) for age in range(10)]
    assert evict(tmp_path, 100) == 100 and all(f.exists() for f in files)
    assert evict(tmp_path, 99) == 70
    assert [f.exists() for f in files] == [True] * 7 + [False] * 3


def test_secrets_and_what_is_being_made_are_no_entries(tmp_path):
    kept = [file(tmp_path / SECRET, 1000), file(tmp_path / BUILDING / "x.so", 1000), file(tmp_path / "plan" / "locks.lock", 1000)]
    kept.append(file(tmp_path / "plan" / f"{PARTIAL}1", 1000))
    entry = file(tmp_path / "plan" / SECRET, 7)
    assert [(size, path) for _, size, path in entries_of(tmp_path)] == [(7, str(entry))]
    assert evict(tmp_path, 0) == 0 and not entry.exists() and all(f.exists() for f in kept)


def test_what_crashed_writers_left_goes_after_a_day(tmp_path):
    day = 24 * 3600
    old = [file(tmp_path / "plan" / name, age=day + 60) for name in (f"{PARTIAL}1", "k.lock")]
    young = [file(tmp_path / "plan" / name, age=day - 60) for name in (f"{PARTIAL}2", "j.lock")]
    assert entries_of(tmp_path) == []
    assert not any(f.exists() for f in old) and all(f.exists() for f in young)


def test_an_entry_that_somebody_else_removed_counts_as_gone(tmp_path, monkeypatch):
    files = [file(tmp_path / "plan" / f"k{age}", 10, age) for age in range(4)]
    found = entries_of(tmp_path)
    files[3].unlink()
    monkeypatch.setattr("opmill_runtime_cache.store.eviction.entries_of", lambda root: found)
    assert evict(tmp_path, 39) == 30 and files[2].exists()
