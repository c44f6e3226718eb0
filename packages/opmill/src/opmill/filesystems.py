"""Which file system a folder is on, and whether other machines are asked for what is in it."""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_REMOTE = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "afs", "9p", "fuse.")
"""How the names of file systems of other machines begin."""
_LOCAL_FUSE = ("fuse.lxcfs", "fuse.portal", "fuse.gvfsd-fuse", "fuse.overlayfs", "fuse.fuse-overlayfs")


def network_filesystem(folder: str | os.PathLike[str]) -> str:
    """The name of the file system of ``folder``, or of what of its path there is, where that is of another machine; else, and where the
    system does not say, empty."""
    kind = _filesystem(os.path.realpath(folder))
    return kind if kind.startswith(_REMOTE) and kind not in _LOCAL_FUSE else ""


def _filesystem(path: str) -> str:
    try:
        rows = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return ""
    around = [(_plain(row[1]), row[2]) for row in rows if len(row) > 2]
    found = [(len(mount), number, kind) for number, (mount, kind) in enumerate(around) if _is_in(path, mount)]
    return max(found)[2] if found else ""


def _is_in(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def _plain(mount: str) -> str:
    """Spaces and the like are written as octal numbers."""
    return mount.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1", "replace").decode(errors="replace")


__all__ = ["network_filesystem"]
