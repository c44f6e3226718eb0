"""Content-addressed keys."""

import enum
import os
import sys
from dataclasses import dataclass

import pytest

from opmill_runtime_cache.store.keys import check_name, key_of, sources_of


def test_a_changed_source_is_another_key(tmp_path, monkeypatch):
    package = tmp_path / "edited_package"
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "inner/part.py", "inner/template.h", "notes.txt"):
        (package / file).write_text("1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("edited_package")

    def key():
        sources_of.cache_clear()
        return sources_of("edited_package")

    first = key()
    assert key() == first
    (package / "notes.txt").write_text("no source\n")
    assert key() == first
    seen = {first}
    for file in ("inner/part.py", "inner/template.h"):
        (package / file).write_text("another\n")
        seen.add(key())
    assert len(seen) == 3
    del sys.modules["edited_package"]


@dataclass
class _Options:
    width: int


def test_keys():
    assert (
        key_of("a", 1) == key_of("a", 1)
        and len({key_of("a", 1), key_of("a", "1"), key_of("a1"), key_of("a", 1.0), key_of(["a", 1]), key_of(b"a", 1)}) == 6
    )
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of(_Options(8)) != key_of(_Options(16))
    with pytest.raises(TypeError):
        key_of(object())


class _Kind(enum.Enum):
    ONE = "one"


def test_order_does_not_count_where_there_is_none():
    assert key_of({"b", "a"}) == key_of({"a", "b"}) and key_of([1, 2]) != key_of([2, 1])
    assert len({key_of(v) for v in (None, False, 0, 0.0, -0.0, "", b"", (), _Kind.ONE)}) == 9
    assert len(key_of()) == 64 and int(key_of(), 16)


def test_portable_keys_go_by_contents_and_the_others_by_times_too(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder / "carried_package").mkdir(parents=True)
        (tmp_path / folder / "carried_package" / "__init__.py").write_text("x = 1\n")
    found = {True: set(), False: set()}
    for number, folder in enumerate(("one", "two")):
        os.utime(tmp_path / folder / "carried_package" / "__init__.py", (number, number))
        with monkeypatch.context() as patched:
            patched.syspath_prepend(tmp_path / folder)
            __import__("carried_package")
            for portable in found:
                sources_of.cache_clear()
                found[portable].add(sources_of("carried_package", portable))
            del sys.modules["carried_package"]
    assert len(found[True]) == 1 and len(found[False]) == 2


@pytest.mark.parametrize(
    ("kind", "key", "right"),
    [("plan", "a", True), ("cpu-so", "A_-9", True), ("", "a", False), ("../x", "a", False), ("Plan", "a", False), ("plan", "a/b", False)]
    + [("plan", "", False), ("plan", "a" * 129, False), ("plan\n", "a", False), ("plan", "a\n", False), ("-x", "a", False)],
)
def test_names_are_names_of_files(kind, key, right):
    if right:
        check_name(kind, key)
    else:
        with pytest.raises(ValueError, match="must match"):
            check_name(kind, key)
