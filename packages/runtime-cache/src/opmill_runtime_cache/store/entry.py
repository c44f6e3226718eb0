"""One entry as a file: the payload, then a trailer that seals it.

The trailer comes last so that a shared object or a cubin can be loaded from the very file that carries its checksum
(loaders find everything from the ELF header at the start): payload and checksum can never be torn apart.
"""

import hashlib
import hmac
import os
import struct
import tempfile
from pathlib import Path

_MAGIC = b"opmillE2"
_TRAILER = struct.Struct("<Q32s8s")
PARTIAL = ".tmp-"
"""How names of files begin that are being written."""


def _digest(kind: str, key: str, payload: bytes | memoryview, secret: bytes) -> bytes:
    state = hmac.new(secret, f"{kind}/{key}/".encode(), hashlib.sha256)
    state.update(payload)
    return state.digest()


def seal(kind: str, key: str, payload: bytes, secret: bytes) -> bytes:
    """``payload`` with its trailer: length, HMAC-SHA-256 of name and payload under the user's ``secret``, magic."""
    return payload + _TRAILER.pack(len(payload), _digest(kind, key, payload, secret), _MAGIC)


def unseal(kind: str, key: str, data: bytes, secret: bytes) -> memoryview | None:
    """The payload of a sealed entry; None when any byte is missing, added or changed, it belongs to another name, or it was sealed with
    another secret."""
    if len(data) < _TRAILER.size:
        return None
    payload = memoryview(data)[: -_TRAILER.size]
    length, digest, magic = _TRAILER.unpack_from(data, len(payload))
    if magic != _MAGIC or length != len(payload) or not hmac.compare_digest(digest, _digest(kind, key, payload, secret)):
        return None
    return payload


def write_atomically(path: Path, data: bytes, folder: Path) -> None:
    """Makes ``path`` hold ``data`` in one step, readable by the owner alone, by way of a file in ``folder`` on the same disk. Raises
    OSError, leaving no partial file."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
