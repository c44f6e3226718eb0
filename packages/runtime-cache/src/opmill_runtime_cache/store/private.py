"""What may be read: folders and files that are the user's own and that nobody else can write to."""

import os
import secrets
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_AT = os.open in os.supports_dir_fd
SECRET = "key"
"""Name of the file with the secret that entries are sealed with."""
_SECRET_BYTES = 32


class NotPrivate(PermissionError):
    """A folder or file is another user's, or others may write to it."""


def check(status: os.stat_result, what: str | Path) -> None:
    """Raises NotPrivate unless the user owns it and nobody else may write to it."""
    if not hasattr(os, "getuid"):
        return
    if status.st_uid != os.getuid():
        raise NotPrivate(f"{what} belongs to user {status.st_uid}")
    if stat.S_IMODE(status.st_mode) & _OTHERS:
        raise NotPrivate(f"others may write to {what} (mode {stat.S_IMODE(status.st_mode):o})")


def check_above(path: Path) -> None:
    """Raises NotPrivate where another user could put something else in the place of ``path``, a path without links: each folder above it
    is the user's or root's, and either not writable for others or one in which everybody may remove his own things alone (like /tmp)."""
    if not hasattr(os, "getuid"):
        return
    for folder in path.parents:
        status = os.stat(folder)
        if status.st_uid not in (0, os.getuid()):
            raise NotPrivate(f"{folder}, above it, belongs to user {status.st_uid}")
        writers = status.st_mode & _OTHERS
        if writers == stat.S_IWGRP and _is_own_group(status.st_gid):
            continue
        if writers and not status.st_mode & stat.S_ISVTX:
            raise NotPrivate(f"others may write to {folder}, above it")


def _is_own_group(group: int) -> bool:
    """Whether it is the group that many systems make for each user, of the user's own name and with nobody else in it."""
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return found.gr_name == user and set(found.gr_mem) <= {user}


def open_below(root: Path, *names: str) -> int:
    """A descriptor for reading the file ``root/names``, a plain file; every folder from ``root`` on and the file itself are private, and
    none is a link. Raises NotPrivate, FileNotFoundError, OSError."""
    if not _AT:
        return os.open(root.joinpath(*names), os.O_RDONLY)
    folder = os.open(root, _FOLDER)
    try:
        check(os.fstat(folder), root)
        for depth, name in enumerate(names[:-1], 1):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
            check(os.fstat(folder), root.joinpath(*names[:depth]))
        file = os.open(names[-1], os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        status = os.fstat(file)
        check(status, root.joinpath(*names))
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{root.joinpath(*names)} is no plain file")
    except BaseException:
        os.close(file)
        raise
    return file


def make_below(root: Path, *names: str) -> Path:
    """Makes the folder ``root/names`` and those between; raises NotPrivate where one that is there is not private, or a link."""
    path = root
    for name in (None, *names):
        path = path if name is None else path / name
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass  # another process was first
            status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotPrivate(f"{path} is no folder")
        check(status, path)
    return path


def secret_of(root: Path, make: bool = False) -> bytes | None:
    """The user's secret in ``root``; made where there is none and ``make``, in one step, so that all processes see the same. None where
    there is none. Raises NotPrivate, OSError."""
    for _ in range(2 if make else 1):
        try:
            with os.fdopen(open_below(root, SECRET), "rb") as file:
                found = file.read(_SECRET_BYTES + 1)
            if len(found) == _SECRET_BYTES:
                return found
            if make:
                os.unlink(root / SECRET)  # a torn one seals nothing
        except FileNotFoundError:
            pass
        if make:
            _make_secret(root)
    return secret_of(root) if make else None


def _make_secret(root: Path) -> None:
    temporary = root / f".tmp-{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        try:
            os.link(temporary, root / SECRET)  # fails where another process was first
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not (root / SECRET).exists():
                os.replace(temporary, root / SECRET)
    finally:
        temporary.unlink(missing_ok=True)
