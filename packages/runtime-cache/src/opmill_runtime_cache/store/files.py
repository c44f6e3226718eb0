"""A folder of a file system of fsspec: what the shared cache needs of it. Every method may hang or raise anything."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from .entry import PARTIAL

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
READ_ONLY = (NotImplementedError, PermissionError)


class Files:
    """Files below ``url``, named by paths relative to it."""

    def __init__(self, url: str) -> None:
        import fsspec.core
        from fsspec.implementations.local import LocalFileSystem

        self._system: Any
        self._system, base = fsspec.core.url_to_fs(url)
        self._base = base.rstrip("/")
        self._by_renaming = isinstance(self._system, LocalFileSystem)  # others show a file only once it is whole

    def _at(self, name: str) -> str:
        return f"{self._base}/{name}"

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """Contents by name, of those that are there. File systems that can ask for several files at once do so."""
        found = self._system.cat([self._at(name) for name in names], on_error="return")
        contents = {}
        for name in names:
            got = found.get(self._at(name))
            if isinstance(got, bytes):
                contents[name] = got
            elif got is not None and not isinstance(got, MISSING):
                raise got
        return contents

    def write(self, name: str, data: bytes) -> None:
        """Makes a file hold ``data``; readers see all of it or what was there before."""
        folder, _, file = name.rpartition("/")
        self._system.makedirs(self._at(folder), exist_ok=True)
        if not self._by_renaming:
            self._system.pipe_file(self._at(name), data)
            return
        partial = self._at(f"{folder}/{PARTIAL}{secrets.token_hex(6)}-{file}")
        self._system.pipe_file(partial, data)
        self._system.mv(partial, self._at(name))

    def create(self, name: str, data: bytes) -> bool:
        """Writes a file unless there is one; False if there is. Some file systems cannot tell two that do so at once apart."""
        self._system.makedirs(self._at(name.rpartition("/")[0]), exist_ok=True)
        try:
            if self._by_renaming:
                with self._system.open(self._at(name), "xb") as file:
                    file.write(data)
            else:
                self._system.pipe_file(self._at(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        try:
            self._system.rm_file(self._at(name))
        except MISSING:
            pass
