"""Folders for the time that a process works in them. What a killed process leaves is removed by the next one that looks.

Beside a folder lies a file of its name and ``.owner`` that the owner holds locked: the system lets go of the lock when the process is gone,
however it went, and on whatever machine or in whatever container that shares the disk it was.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # no locks: nothing is taken for abandoned
    fcntl = None  # type: ignore[assignment]

_OWNER = ".owner"
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Claim:
    """A folder that is this process's until `release`, which removes it."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self._process = path, handle, os.getpid()

    def release(self) -> None:
        if self._handle < 0:
            return
        if os.getpid() == self._process:  # a forked child must not remove its parent's files
            shutil.rmtree(self.path, ignore_errors=True)
            Path(f"{self.path}{_OWNER}").unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = -1


def claim(parent: Path, prefix: str) -> Claim:
    """A new folder in ``parent``, after removing those of that prefix whose owners are gone. Raises OSError."""
    sweep(parent, prefix)
    for attempt in range(8):
        path = parent / f"{prefix}{secrets.token_hex(6)}"
        owner = f"{path}{_OWNER}"
        handle = os.open(owner, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Another's sweep may have come in between; where files cannot be locked at all, none ever does.
            if (_lock(handle) and _is_at(handle, owner)) or attempt == 7:
                os.mkdir(path, 0o700)
                return Claim(path, handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise OSError(f"no folder can be made in {parent}")


@contextmanager
def claimed(parent: Path, prefix: str) -> Iterator[Path]:
    """`claim` for a block."""
    held = claim(parent, prefix)
    try:
        yield held.path
    finally:
        held.release()


def sweep(parent: Path, prefix: str) -> None:
    """Removes the user's folders of that prefix whose owners are gone. What cannot be removed stays."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix) and name.endswith(_OWNER)]
    except OSError:
        return
    for name in names:
        try:
            _sweep(parent / name)
        except OSError:
            continue


def _sweep(owner: Path) -> None:
    status = os.lstat(owner)
    if not stat.S_ISREG(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        return
    handle = os.open(owner, _FLAGS)
    try:
        if _lock(handle) and _is_at(handle, str(owner)):
            shutil.rmtree(str(owner).removesuffix(_OWNER), ignore_errors=True)
            owner.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
