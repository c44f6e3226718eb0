"""One entry as a file: the payload, then a trailer that seals it.

The trailer comes last so that a shared object or a cubin can be loaded from the very file that carries its checksum
(loaders find everything from the ELF header at the start): payload and checksum can never be torn apart.
"""

import hashlib
import os
import struct
import tempfile
from pathlib import Path

_MAGIC = b"opmillE1"
_TRAILER = struct.Struct("<Q32s8s")


def _digest(kind: str, key: str, payload: bytes | memoryview) -> bytes:
    state = hashlib.sha256(f"{kind}/{key}/".encode())
    state.update(payload)
    return state.digest()


def seal(kind: str, key: str, payload: bytes) -> bytes:
    """``payload`` with its trailer: length, SHA-256 of name and payload, magic."""
    return payload + _TRAILER.pack(len(payload), _digest(kind, key, payload), _MAGIC)


def unseal(kind: str, key: str, data: bytes) -> memoryview | None:
    """The payload of a sealed entry; None when any byte is missing, added or changed, or it belongs to another name."""
    if len(data) < _TRAILER.size:
        return None
    payload = memoryview(data)[: -_TRAILER.size]
    length, digest, magic = _TRAILER.unpack_from(data, len(payload))
    if magic != _MAGIC or length != len(payload) or digest != _digest(kind, key, payload):
        return None
    return payload


def write_atomically(path: Path, data: bytes) -> None:
    """Makes ``path`` hold ``data`` in one step, readable by the owner alone. Raises OSError, leaving no partial file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
