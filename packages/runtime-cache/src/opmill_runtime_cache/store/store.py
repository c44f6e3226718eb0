"""The artifact store: what was compiled once is found again, by this process and the next."""

import functools
import importlib
import os
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import platformdirs

from ..errors import StoreWarning
from ..forking import ForkLock
from .claims import Claim, claim
from .directory import Damaged, Directory
from .keys import check_name
from .private import NotPrivate
from .remote import Name, NoSecret, Remote, secret_from
from .turns import Lease, lease

if TYPE_CHECKING:
    import filelock

DEFAULT_MAX_BYTES = 4 << 30
DEFAULT_WAIT_S = 300.0
"""How long processes wait for another one that makes what they want, before they make it themselves."""
LOOK_S = 0.02
"""How often they look whether it is there."""
LAYOUT = "v2"
"""The folder below a store's root; another one whenever entries change their form."""
_TEMPORARY = "opmill-"


class Store:
    """Artifacts by (kind, key), on disk under ``root``.

    No method raises for the state of the disk: what cannot be read counts as absent, and where the directory cannot be written (full,
    read-only, owned by another user) entries go to a temporary directory of this process, with one warning. ``kind`` is
    a short lower-case name (``"cpu-so"``), ``key`` is file-name safe (see `key_of`); other names raise ValueError.

    What is not here is looked for in ``remote``, a cache that machines share, and kept here as well; what is put here is sent there.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        max_bytes: int = DEFAULT_MAX_BYTES,
        lock_timeout_s: float = DEFAULT_WAIT_S,
        remote: Remote | None = None,
    ) -> None:
        self.root = Path(root).expanduser().absolute()
        self.max_bytes = max_bytes
        self.lock_timeout_s = lock_timeout_s
        self.remote = remote
        self._absent: set[Name] = set()  # in the remote: what was not there once is made here
        self._turns: dict[Name, int] = {}
        self._guard = ForkLock()
        self._warned: set[str] = set()
        self._main = Directory(self.root / LAYOUT, max_bytes)
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
        if self.remote is not None:
            self.remote.put(kind, key, bytes(data))
        return self._keep(kind, key, bytes(data))

    def _keep(self, kind: str, key: str, data: bytes) -> Path:
        main = self._directory()
        if main is not None:
            try:
                main.write(kind, key, data)
                return main.path(kind, key)
            except OSError as error:
                self._warn("write", f"[RC061] cannot write to the cache directory {self.root} ({error}); a temporary one is used instead")
        spare = self._spare_directory()
        spare.write(kind, key, data)
        return spare.path(kind, key)

    def remove(self, kind: str, key: str) -> None:
        """Forgets (kind, key), for this process also in the remote."""
        check_name(kind, key)
        self._absent.add((kind, key))
        for directory in (self._directory(), self._spare):
            if directory is not None:
                _without_error(directory.remove, kind, key)

    @property
    def portable(self) -> bool:
        """Whether keys have to be equal on all machines: they depend on nothing that an installation decides, as times of files."""
        return self.remote is not None

    def fetch(self, kind: str, keys: Iterable[str]) -> None:
        """Brings entries that are in the remote alone, all at once: looking for each in turn would cost as many answers of the network."""
        if self.remote is None:
            return
        main = self._directory() or self._spare_directory()
        self._bring([(kind, key) for key in keys if (kind, key) not in self._absent and not main.path(kind, key).exists()])

    def _bring(self, names: list[Name]) -> bool:
        """Takes entries from the remote; whether there was one."""
        if self.remote is None or not names:
            return False
        found = self.remote.fetch(names)
        self._absent.update(name for name in names if name not in found)
        for name, data in found.items():
            self._keep(*name, data)
        return bool(found)

    @contextmanager
    def turn(self, kind: str, key: str) -> Iterator[bool]:
        """For a block that makes (kind, key): while another process or machine makes it, this one waits. Gives whether it did, so that the
        entry may be there now. At most ``lock_timeout_s`` seconds, half of which for another machine, one warning, and the block runs: a
        process that hangs holds up no other. One that was killed is not waited for."""
        check_name(kind, key)
        name, me = (kind, key), threading.get_ident()
        if self._turns.get(name) == me:  # made within itself
            yield False
            return
        held, waited = self._first(kind, key)
        leased: Lease | None = None
        if held is not None:
            self._turns[name] = me
            if not waited and self.remote is not None:
                leased, waited = lease(self.remote, name, self.lock_timeout_s / 2, lambda: self._bring([name]))
                if waited and leased is None and not self.contains(kind, key):
                    self._warn_late(self.lock_timeout_s / 2)
        try:
            yield waited
        finally:
            if leased is not None:
                leased.release()
            if held is not None:
                self._turns.pop(name, None)
                held.release()

    def _first(self, kind: str, key: str) -> tuple[Optional["filelock.FileLock"], bool]:
        """The lock, or None, and whether another process had it. All who wait go on at once when the entry comes: it is read without the
        lock, and who loads what takes long would hold up the next one."""
        held = self._acquire(kind, key, 0.0)
        if held is not None or self.lock_timeout_s <= 0:
            return held, False
        of_no_use = self._find_here(kind, key)[1] is not None  # which is why it is made anew
        until = time.monotonic() + self.lock_timeout_s
        while (began := time.monotonic()) < until:
            if not of_no_use and self._find_here(kind, key)[1] is not None:
                return None, True
            look = min(LOOK_S, until - began)
            held = self._acquire(kind, key, look)
            if held is not None or time.monotonic() - began < look:  # there are no locks
                return held, True
        self._warn_late(self.lock_timeout_s)
        return None, True

    def _warn_late(self, waited_s: float) -> None:
        self._warn("late", f"[RC067] waited {waited_s:g} seconds for another process that compiles the same; it is compiled here as well")

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

    def _acquire(self, kind: str, key: str, timeout_s: float | None = None) -> Optional["filelock.FileLock"]:
        import filelock  # what is in the cache needs no lock

        directory = self._directory() or self._spare_directory()
        try:
            held = filelock.FileLock(
                directory.lock_path(kind, key), timeout=self.lock_timeout_s if timeout_s is None else timeout_s, mode=0o600
            )
            held.acquire(poll_interval=LOOK_S / 2)
        except (OSError, RuntimeError, NotImplementedError):  # filelock.Timeout is an OSError
            return None
        return held

    def _find(self, kind: str, key: str) -> tuple[Directory, memoryview | None]:
        check_name(kind, key)
        found = self._find_here(kind, key)
        if found[1] is None and (kind, key) not in self._absent and self._bring([(kind, key)]):
            return self._find_here(kind, key)
        return found

    def _find_here(self, kind: str, key: str) -> tuple[Directory, memoryview | None]:
        for directory in (self._directory(), self._spare):
            if directory is None:
                continue
            try:
                payload = directory.read(kind, key)
            except Damaged as damaged:
                self._warn("damaged", f"[RC060] a damaged cache entry was removed and will be made anew: {damaged}")
                continue
            except NotPrivate as error:
                self._warn("private", f"[RC064] a cache entry is not read, since others may have written it: {error}")
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
                held = temporary_folder(_memory_folder())
                weakref.finalize(self, held.release)
                self._spare = Directory(held.path / LAYOUT, self.max_bytes)
                self._spare.prepare()
            return self._spare

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder of its own for a block that makes artifacts. What a process that is killed leaves in it goes when the next one
        starts."""
        main = self._directory()
        try:
            held = (main or self._spare_directory()).workspace()
        except OSError:
            held = self._spare_directory().workspace()
        try:
            yield held.path
        finally:
            held.release()

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


def temporary_folder(parent: str | None = None) -> Claim:
    """A folder in ``parent`` (None: the system's temporary folder) that goes with the process, or, where that is killed, with the next one
    that asks for one."""
    return claim(Path(parent or tempfile.gettempdir()).resolve(), _TEMPORARY)


def default_root() -> Path:
    """``OPMILL_CACHE_DIR``, or else the user's cache directory."""
    return Path(os.environ.get("OPMILL_CACHE_DIR") or platformdirs.user_cache_dir("opmill", appauthor=False))


def open_remote(url: str | None = None, key_file: str | os.PathLike[str] | None = None) -> Remote | None:
    """The shared cache at ``url`` (None: ``OPMILL_CACHE_URL``), one per URL and process; None where none is asked for. Its secret is what
    ``key_file`` holds, or else ``OPMILL_CACHE_KEY``. Raises NoSecret without one, ImportError without fsspec, OSError for the file."""
    url = url or os.environ.get("OPMILL_CACHE_URL")
    if not url:
        return None
    secret = secret_from(Path(key_file).expanduser().read_text() if key_file is not None else os.environ.get("OPMILL_CACHE_KEY"))
    if (url, secret) not in _remotes:
        importlib.import_module("fsspec")
        _remotes[url, secret] = Remote(url, secret)
    return _remotes[url, secret]


_remotes: dict[tuple[str, bytes], Remote] = {}
_stores: dict[tuple[Path, Remote | None], Store] = {}


def default_store() -> Store:
    """The store under `default_root`, and `open_remote` behind it; one per root and process."""
    root, remote = default_root(), remote_of_environment()
    return _stores.setdefault((root, remote), Store(root, remote=remote))


def remote_of_environment() -> Remote | None:
    """`open_remote` for what the environment says, with a warning instead of an error."""
    try:
        return open_remote()
    except (NoSecret, ImportError) as error:
        _warn_unused(str(error))
        return None


@functools.cache
def _warn_unused(why: str) -> None:
    warnings.warn(f"[RC065] the shared cache of OPMILL_CACHE_URL is not used: {why}", StoreWarning, stacklevel=3)
