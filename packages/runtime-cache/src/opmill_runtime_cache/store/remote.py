"""A cache that machines share, at a URL of fsspec (``file://``, ``s3://``, ``https://``, ``memory://``).

Nothing here raises, or waits longer than a limit, for the state of the network: what does not come in time counts as absent, and the first
operation that fails or takes too long ends the use of the cache in this process, with one warning.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..errors import StoreWarning
from .entry import seal, unseal
from .files import READ_ONLY, Files
from .keys import check_name

Name = tuple[str, str]
"""The kind and the key of an entry."""
T = TypeVar("T")
_LAYOUT = "v2"
_SHORTEST_SECRET = 32


class NoSecret(ValueError):
    """There is no secret to check the entries of a shared cache with, or it is too short."""


def secret_from(text: str | None) -> bytes:
    """The key that entries are sealed with, made of what the user gave as a secret. Raises NoSecret for less than 32 characters."""
    if text is None or len(text.strip()) < _SHORTEST_SECRET:
        raise NoSecret(f"a shared cache needs a secret of at least {_SHORTEST_SECRET} characters, in OPMILL_CACHE_KEY or in a file")
    return hashlib.sha256(b"opmill shared cache\0" + text.strip().encode()).digest()


@dataclass(frozen=True)
class Limits:
    """Seconds. ``answer``: for one operation of the file system. ``look``: between two looks for an entry that another machine is making;
    ``beat``: between two signs of life of the machine that makes one; ``dead``: without a sign until another one makes it."""

    answer: float = 10.0
    look: float = 0.5
    beat: float = 5.0
    dead: float = 20.0


class Remote:
    """Sealed entries by (kind, key) below ``url``. Operations run in threads of their own, which are left behind where they hang.

    ``secret``: see `secret_from`. What was not sealed with it counts as absent. Safe for many threads, processes and machines."""

    def __init__(self, url: str, secret: bytes, limits: Limits = Limits()) -> None:
        self.url, self.limits = url, limits
        self._secret = secret
        self._warned: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """A state without threads: at the start, and in a forked child, which has none of its parent's."""
        self._process = os.getpid()
        self._files: Files | None = None
        self._state = threading.Condition()
        self._jobs: deque[Callable[[Files], object]] = deque()
        self._writer: threading.Thread | None = None
        self._working = False
        self._usable = self._writable = True

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"

    @property
    def usable(self) -> bool:
        """Whether it has answered so far."""
        self._same_process()
        return self._usable

    @property
    def writable(self) -> bool:
        """Whether it has taken what was sent so far."""
        return self.usable and self._writable

    # ---- entries ------------------------------------------------------------------------------------------------------------

    def fetch(self, names: Iterable[Name]) -> dict[Name, bytes]:
        """Of the entries of these names those that are there and were sealed with the secret. They are asked for together."""
        paths = {name: path_of(*name) for name in names}
        if not paths:
            return {}
        found = self.within(lambda files: files.read(list(paths.values()))) or {}
        entries = {}
        for name, path in paths.items():
            if (data := found.get(path)) is None:
                continue
            payload = unseal(*name, data, self._secret)
            if payload is None:
                self._warn(
                    "foreign", f"[RC068] entries of the shared cache {self.url} are damaged or sealed with another key, and not used"
                )
            else:
                entries[name] = bytes(payload)
        return entries

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Sends an entry in the background, after all that was sent before."""
        path, data = path_of(kind, key), seal(kind, key, payload, self._secret)
        self.later(lambda files: files.write(path, data))

    def later(self, job: Callable[[Files], object]) -> None:
        """Runs ``job`` in the background, after all those before it."""
        if not self.writable:
            return
        with self._state:
            self._jobs.append(job)
            if self._writer is None:
                atexit.register(self.flush)
                self._writer = threading.Thread(target=self._write, name="opmill-cache-writer", daemon=True)
                self._writer.start()
            self._state.notify_all()

    def flush(self) -> None:
        """Waits until all is sent, as long as for one answer. The end of the process does so, too."""
        if self._process == os.getpid():
            with self._state:
                self._state.wait_for(lambda: not (self._jobs or self._working), self.limits.answer)

    def _write(self) -> None:
        while True:
            with self._state:
                self._working = False
                self._state.notify_all()
                self._state.wait_for(lambda: bool(self._jobs))
                job = self._jobs.popleft()
                self._working = True
            self.within(job)

    # ---- its limits ---------------------------------------------------------------------------------------------------------

    def within(self, action: Callable[[Files], T]) -> T | None:
        """What ``action`` gives; None where the file system fails or takes too long, or did so before."""
        if not self.usable:
            return None
        done, results, errors = threading.Event(), [], []

        def work() -> None:
            try:
                if self._files is None:
                    self._files = Files(self.url)
                results.append(action(self._files))
            except BaseException as error:
                errors.append(error)
            done.set()

        threading.Thread(target=work, name="opmill-cache", daemon=True).start()
        if not done.wait(self.limits.answer):
            self._end(f"it did not answer within {self.limits.answer:g} seconds")
            return None
        if errors:
            self._failed(errors[0])
        return results[0] if results else None

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, READ_ONLY) and threading.current_thread() is self._writer:
            self._writable = False
            with self._state:
                self._jobs.clear()
            if not isinstance(error, NotImplementedError):  # plain web servers only give
                self._warn("read only", f"[RC069] the shared cache {self.url} is only read: {type(error).__name__}: {error}")
        else:
            self._end(f"{type(error).__name__}: {error}")

    def _end(self, why: str) -> None:
        self._usable = False
        with self._state:
            self._jobs.clear()
        self._warn("end", f"[RC066] the shared cache {self.url} is not used any more: {why}")

    def _same_process(self) -> None:
        if self._process != os.getpid():
            self._begin()

    def _warn(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(message, StoreWarning, stacklevel=2)


def path_of(kind: str, key: str) -> str:
    """Where an entry lies below the URL. Raises ValueError for names that are none."""
    check_name(kind, key)
    return f"{_LAYOUT}/{kind}/{key[:2]}/{key}"
