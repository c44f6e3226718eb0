"""A private directory of sealed entries. Every failure of the file system leaves as OSError; `Store` decides what then."""

import os
import stat
import time
from pathlib import Path

from .entry import seal, unseal, write_atomically
from .eviction import evict

_TOUCH_AFTER_S = 60.0


class Damaged(Exception):
    """An entry does not match its checksum; it has been removed."""


class Directory:
    """Entries of one directory, named by kind and key. Safe for many threads and processes: files appear by rename."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root, self.max_bytes = root, max_bytes
        self._allowance: int | None = None  # bytes that may be written before the directory is measured again

    def prepare(self) -> None:
        """Creates the root. Raises PermissionError where another user owns it, OSError where it cannot be made."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(self.root)
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise PermissionError(f"{self.root} belongs to user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.chmod(self.root, 0o700)

    def path(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key

    def lock_path(self, kind: str, key: str) -> Path:
        folder = self.root / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{kind}-{key}.lock"

    def read(self, kind: str, key: str) -> memoryview | None:
        """The payload; None where there is none. Raises Damaged, OSError."""
        path = self.path(kind, key)
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        payload = unseal(kind, key, data)
        if payload is None:
            path.unlink(missing_ok=True)
            raise Damaged(str(path))
        if age > _TOUCH_AFTER_S:
            _touch(path)
        return payload

    def write(self, kind: str, key: str, payload: bytes) -> None:
        data = seal(kind, key, payload)
        path = self.path(kind, key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, data)
        self._make_room(len(data))

    def remove(self, kind: str, key: str) -> None:
        self.path(kind, key).unlink(missing_ok=True)

    def _make_room(self, written: int) -> None:
        """Measuring means a walk over all files, so it is done once per eighth of the bound written."""
        if self._allowance is not None and written < self._allowance:
            self._allowance -= written
            return
        left = self.max_bytes - evict(self.root, self.max_bytes)
        self._allowance = max(0, min(left, self.max_bytes // 8))


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        pass  # a read-only disk still serves reads
