"""The artifact store: what was compiled once is found again, by this process and the next."""

import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import platformdirs

from ..errors import StoreWarning
from .directory import Damaged, Directory
from .keys import check_name

if TYPE_CHECKING:
    import filelock

DEFAULT_MAX_BYTES = 4 << 30


class Store:
    """Artifacts by (kind, key), on disk under ``root``.

    No method raises for the state of the disk: what cannot be read counts as absent, and where the directory cannot be written (full,
    read-only, owned by another user) entries go to a temporary directory of this process, with one warning. ``kind`` is
    a short lower-case name (``"cpu-so"``), ``key`` is file-name safe (see `key_of`); other names raise ValueError.
    """

    def __init__(self, root: str | os.PathLike[str], max_bytes: int = DEFAULT_MAX_BYTES, lock_timeout_s: float = 600.0) -> None:
        self.root = Path(root).expanduser().absolute()
        self.max_bytes = max_bytes
        self.lock_timeout_s = lock_timeout_s
        self._guard = threading.Lock()
        self._warned: set[str] = set()
        self._main = Directory(self.root / "v1", max_bytes)
        self._spare: Directory | None = None
        self._usable: bool | None = None

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r}, max_bytes={self.max_bytes})"

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes put under (kind, key), or None where there are none or they were damaged."""
        payload = self._find(kind, key)[1]
        return None if payload is None else bytes(payload)

    def path(self, kind: str, key: str) -> Path | None:
        """A file whose content starts with the bytes put under (kind, key), checked just now, or None.

        The file has 48 bytes of trailer after the payload, which loaders of ELF files do not mind.
        """
        directory, payload = self._find(kind, key)
        return None if payload is None else directory.path(kind, key)

    def contains(self, kind: str, key: str) -> bool:
        """Whether (kind, key) can be read, checksum included."""
        return self._find(kind, key)[1] is not None

    def put(self, kind: str, key: str, data: bytes) -> Path:
        """Stores ``data``, replacing what was there in one step; returns the file (see `path`)."""
        check_name(kind, key)
        main = self._directory()
        if main is not None:
            try:
                main.write(kind, key, bytes(data))
                return main.path(kind, key)
            except OSError as error:
                self._warn("write", f"[RC061] cannot write to the cache directory {self.root} ({error}); a temporary one is used instead")
        spare = self._spare_directory()
        spare.write(kind, key, bytes(data))
        return spare.path(kind, key)

    def remove(self, kind: str, key: str) -> None:
        """Forgets (kind, key)."""
        check_name(kind, key)
        for directory in (self._directory(), self._spare):
            if directory is not None:
                _without_error(directory.remove, kind, key)

    @contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Holds (kind, key) alone among all threads and processes that use this root.

        For speed alone (compile once instead of twice): results stay right without it, so a lock that cannot be had
        (a file system without locks, one held longer than ``lock_timeout_s``) is done without. A crashed holder's lock is free.
        """
        check_name(kind, key)
        held = self._acquire(kind, key)
        try:
            yield
        finally:
            if held is not None:
                held.release()

    def _acquire(self, kind: str, key: str) -> Optional["filelock.FileLock"]:
        import filelock  # what is in the cache needs no lock

        directory = self._directory() or self._spare_directory()
        try:
            held = filelock.FileLock(directory.lock_path(kind, key), timeout=self.lock_timeout_s, mode=0o600)
            held.acquire()
        except (OSError, RuntimeError, NotImplementedError):  # filelock.Timeout is an OSError
            return None
        return held

    def _find(self, kind: str, key: str) -> tuple[Directory, memoryview | None]:
        check_name(kind, key)
        for directory in (self._directory(), self._spare):
            if directory is None:
                continue
            try:
                payload = directory.read(kind, key)
            except Damaged as damaged:
                self._warn("damaged", f"[RC060] a damaged cache entry was removed and will be made anew: {damaged}")
                continue
            except OSError as error:
                self._warn("read", f"[RC062] cannot read from the cache directory {self.root} ({error})")
                continue
            if payload is not None:
                return directory, payload
        return self._main, None

    def _directory(self) -> Directory | None:
        """The directory under the root, made at first use; None where it cannot be used at all."""
        if self._usable is None:
            with self._guard:
                try:
                    self._main.prepare()
                    self._usable = True
                except OSError as error:
                    self._usable = self._main.root.is_dir() and not isinstance(error, PermissionError)
                    self._warn("root", f"[RC063] cannot use the cache directory {self.root} ({error}); a temporary one is used instead")
        return self._main if self._usable else None

    def _spare_directory(self) -> Directory:
        with self._guard:
            if self._spare is None:
                folder = tempfile.mkdtemp(prefix="opmill-", dir=_memory_folder())
                weakref.finalize(self, _remove_tree, folder, os.getpid())
                self._spare = Directory(Path(folder) / "v1", self.max_bytes)
                self._spare.prepare()
            return self._spare

    def _warn(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(message, StoreWarning, stacklevel=4)


def _without_error(action: Callable[[str, str], None], kind: str, key: str) -> None:
    try:
        action(kind, key)
    except OSError:
        pass


def _memory_folder() -> str | None:
    """A folder in memory where there is one: the disk may be the thing that is full."""
    shm = "/dev/shm"
    return shm if os.path.isdir(shm) and os.access(shm, os.W_OK) else None


def _remove_tree(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove its parent's files
        shutil.rmtree(folder, ignore_errors=True)


def default_root() -> Path:
    """``OPMILL_CACHE_DIR``, or else the user's cache directory."""
    return Path(os.environ.get("OPMILL_CACHE_DIR") or platformdirs.user_cache_dir("opmill", appauthor=False))


_stores: dict[Path, Store] = {}


def default_store() -> Store:
    """The store under `default_root`, one per root and process."""
    root = default_root()
    return _stores.setdefault(root, Store(root))
