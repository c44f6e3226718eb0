"""Who makes an entry, among processes and machines that want it at once: the first one to come, while the others wait for it.

For speed alone: whoever has waited too long, or cannot ask, makes the entry as well, and all is as right as with one.

On one machine a lock of the system decides, which is free as soon as its holder is gone. Among machines it is a small file of the shared
cache, a *lease*, which its owner changes every few seconds: no clocks are compared, and a lease that has not changed for a while is
nobody's.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal

from .files import READ_ONLY, Files
from .remote import Name, Remote


class Lease:
    """The right of this process among all machines to make an entry, until `release`."""

    def __init__(self, remote: Remote, path: str) -> None:
        self._remote, self._path = remote, path
        self._owner, self._beats = secrets.token_hex(8), count()
        self._released = threading.Event()

    def sign(self) -> bytes:
        return f"{self._owner} {next(self._beats)}".encode()

    def begin(self) -> Lease:
        threading.Thread(target=self._beat, name="opmill-cache-lease", daemon=True).start()
        return self

    def _beat(self) -> None:
        while not self._released.wait(self._remote.limits.beat) and self._remote.writable:
            self._remote.within(self._renew)

    def _renew(self, files: Files) -> None:
        if not self._released.is_set():
            files.write(self._path, self.sign())

    def release(self) -> None:
        """What was put before is there before the lease is gone."""
        self._released.set()
        self._remote.later(lambda files: files.remove(self._path))


@dataclass(frozen=True)
class _Found:
    """A lease of somebody's: what it says, and since when, on this machine's clock."""

    sign: bytes
    since: float


def lease(remote: Remote, name: Name, wait_s: float, bring: Callable[[], bool]) -> tuple[Lease | None, bool]:
    """This process's lease for making an entry, or None: the entry came while another machine made it, the cache cannot be written, or
    ``wait_s`` seconds are over. And whether another machine was waited for. ``bring`` fetches the entry, and says whether it is there."""
    path = f"leases/{name[0]}-{name[1]}"
    mine = Lease(remote, path)
    until, seen, pause = time.monotonic() + wait_s, None, threading.Event()
    while remote.writable:
        got = remote.within(lambda files: _take(files, path, mine.sign()))
        if got is None:  # not to be had at all
            break
        if got is True:
            mine.begin()
            if not bring():
                return mine, seen is not None
            mine.release()  # it came between the look for it and the lease
            return None, True
        now = time.monotonic()
        if seen is None or seen.sign != got:
            seen = _Found(got, now)
        elif now - seen.since > remote.limits.dead:
            remote.within(lambda files: files.write(path, mine.sign()))
            return mine.begin(), True
        if now > until:
            break
        pause.wait(remote.limits.look)
        if bring():
            break
    return None, seen is not None


def _take(files: Files, path: str, sign: bytes) -> bytes | Literal[True] | None:
    """True where the lease is taken, else what it says; None where the files are only read."""
    try:
        if files.create(path, sign):
            return True
    except (*READ_ONLY, TypeError, ValueError):  # nothing can be written, or not as "only if it is not there"
        return None
    return files.read([path]).get(path, b"")
