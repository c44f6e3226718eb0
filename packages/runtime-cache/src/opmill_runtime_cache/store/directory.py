"""A private directory of sealed entries. Every failure of the file system leaves as OSError; `Store` decides what then."""

import os
import stat
import time
import weakref
from pathlib import Path

from . import claims, private
from .entry import seal, unseal, write_atomically
from .eviction import BUILDING, evict

_TOUCH_AFTER_S = 60.0


class Damaged(Exception):
    """An entry does not match its checksum; it has been removed."""


class Directory:
    """Entries of one directory, named by kind and key. Safe for many threads and processes: files appear by rename."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root, self.max_bytes = root, max_bytes
        self._secret: bytes | None = None
        self._work: claims.Claim | None = None
        self._writer = 0  # the process whose that is
        self._allowance: int | None = None  # bytes that may be written before the directory is measured again

    def prepare(self) -> None:
        """Creates the root, and clears what killed processes left there. Raises NotPrivate where others own it or may write to it, or to a
        folder above it; OSError where it cannot be made."""
        self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = self.root.parent.resolve() / self.root.name  # links above are followed once
        private.check_above(self.root)
        private.make_below(self.root)
        if stat.S_IMODE(os.stat(self.root).st_mode) & 0o077:
            os.chmod(self.root, 0o700)
        claims.sweep(self.root / BUILDING, "")
        if self._secret is None:
            try:
                self._secret = private.secret_of(self.root, make=os.access(self.root, os.W_OK))
            except private.NotPrivate:
                raise
            except OSError:
                pass  # a full disk: nothing can be read then, and the first write says so

    def path(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key

    def lock_path(self, kind: str, key: str) -> Path:
        return private.make_below(self.root, "locks") / f"{kind}-{key}.lock"

    def workspace(self) -> claims.Claim:
        """A folder of this process's. Raises OSError."""
        return claims.claim(private.make_below(self.root, BUILDING), "work-")

    def _scratch(self) -> Path:
        """Where this process writes what is then moved into its place."""
        if self._work is None or self._writer != os.getpid() or not self._work.path.exists():
            self._work, self._writer = self.workspace(), os.getpid()
            weakref.finalize(self, self._work.release)
        return self._work.path

    def read(self, kind: str, key: str) -> memoryview | None:
        """The payload; None where there is none. Raises Damaged, NotPrivate, OSError."""
        try:
            with os.fdopen(private.open_below(self.root, kind, key[:2], key), "rb", buffering=0) as file:
                data = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        payload = self._unsealed(kind, key, data)
        if payload is None:
            self.path(kind, key).unlink(missing_ok=True)
            raise Damaged(str(self.path(kind, key)))
        if age > _TOUCH_AFTER_S:
            _touch(self.path(kind, key))
        return payload

    def _unsealed(self, kind: str, key: str, data: bytes) -> memoryview | None:
        payload = None if self._secret is None else unseal(kind, key, data, self._secret)
        if payload is None and (secret := private.secret_of(self.root)) not in (None, self._secret):
            self._secret = secret  # the cache was cleared, and another process began anew
            payload = unseal(kind, key, data, secret)
        return payload

    def write(self, kind: str, key: str, payload: bytes) -> None:
        secret = self._secret = private.secret_of(self.root, make=True)
        assert secret is not None
        data = seal(kind, key, payload, secret)
        private.make_below(self.root, kind, key[:2])
        write_atomically(self.path(kind, key), data, self._scratch())
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
