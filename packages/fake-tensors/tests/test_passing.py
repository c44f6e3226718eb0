"""What may pass is told apart from what stays, and a folder that cannot be read is no empty one."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from opmill_fake_tensors import rules
from opmill_fake_tensors.imports import forget_orphans
from opmill_fake_tensors.lazily import submodules
from opmill_fake_tensors.passing import interrupting, may_pass, out_of_memory


def behind(cause: Exception | None = None, context: Exception | None = None) -> Exception:
    error = ValueError("b")
    error.__context__ = context
    if cause is not None:
        error.__cause__ = cause
    return error


CASES: list[tuple[Exception, bool, bool]] = [  # the exception, whether it may pass, whether it is a lack of memory
    (MemoryError(), True, True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True, True),
    (RuntimeError("can't start new thread"), True, True),
    (RuntimeError("shapes do not match"), False, False),
    (OSError(errno.EMFILE, "Too many open files"), True, False),
    (OSError(errno.ENOSPC, "No space left on device"), True, False),
    (FileNotFoundError(errno.ENOENT, "no such file"), False, False),
    (PermissionError(errno.EACCES, "no"), False, False),
    (KeyError("memory"), False, False),
]


@pytest.mark.parametrize(("error", "passes", "memory"), CASES, ids=repr)
def test_each_kind(error: Exception, passes: bool, memory: bool) -> None:
    assert (may_pass(error), out_of_memory(error)) == (passes, memory)


def test_what_an_exception_comes_from_counts() -> None:
    assert may_pass(behind(cause=OSError(errno.ENOMEM, "no memory")))
    assert may_pass(behind(context=MemoryError()))
    assert not may_pass(behind(cause=KeyError("a"), context=MemoryError()))
    looping = ValueError("a")
    looping.__context__ = KeyError("b")
    looping.__context__.__context__ = looping
    assert not may_pass(looping)


def test_a_table_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dict(rules.rules())
    assert "aten::add" in whole
    assert submodules(rules.__path__) == sorted(submodules(rules.__path__))
    rules.rules.cache_clear()

    def unreadable(folder: Any = ".") -> list[str]:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", unreadable)
        with pytest.raises(OSError, match="Cannot allocate"):
            rules.rules()
    assert dict(rules.rules()) == whole


def test_a_package_whose_import_failed_is_whole_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "opmill_half"
    package.mkdir()
    (tmp_path / "opmill_half_fault.py").write_text("fails = True\n")
    (package / "__init__.py").write_text(
        "from . import inner\nimport opmill_half_fault\nif opmill_half_fault.fails:\n    raise MemoryError\n"
    )
    (package / "inner").mkdir()
    (package / "inner" / "__init__.py").write_text("from . import most\n")
    (package / "inner" / "most.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MemoryError):
        importlib.import_module("opmill_half")
    assert forget_orphans() == ["opmill_half.inner", "opmill_half.inner.most"]
    sys.modules["opmill_half_fault"].fails = False  # type: ignore[attr-defined]
    assert importlib.import_module("opmill_half").inner.most.value == 1
    assert forget_orphans() == []
    for name in [name for name in sys.modules if name.startswith("opmill_half")]:
        del sys.modules[name]


class Limit:
    def __call__(self, *_: object) -> None:
        raise TimeoutError("too long")

    def method(self, *_: object) -> None:
        raise TimeoutError("too long")


def limit(*_: object) -> None:
    raise TimeoutError("too long")


@pytest.mark.parametrize("handler", [limit, Limit(), Limit().method], ids=["function", "object", "method"])
def test_what_a_handler_of_a_signal_raises(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ValueError) as caught:
            try:
                signal.raise_signal(signal.SIGUSR1)
            except TimeoutError as error:
                raise ValueError from error
        assert str(interrupting(caught.value)) == "too long"
        assert may_pass(caught.value)
        assert interrupting(TimeoutError("too long")) is None
    finally:
        signal.signal(signal.SIGUSR1, before)
