"""Content-addressed keys."""

import hashlib
import re
from typing import Any

import msgspec

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_KIND = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


def key_of(*parts: Any) -> str:
    """A key of 64 hex digits for ``parts``: equal parts give equal keys in every process.

    Parts may be None, bool, int, float, str, bytes, lists, tuples, sets, dicts, dataclasses, enums and msgspec structs, nested;
    the order of dict keys and of sets does not matter. Raises TypeError for anything else.
    """
    return hashlib.sha256(_ENCODER.encode(parts)).hexdigest()


def check_name(kind: str, key: str) -> None:
    """Raises ValueError unless ``kind`` and ``key`` are safe as names of files."""
    if not _KIND.match(kind):
        raise ValueError(f"artifact kind {kind!r} must match {_KIND.pattern[:-2]}")
    if not _KEY.match(key):
        raise ValueError(f"artifact key {key!r} must match {_KEY.pattern[:-2]}")
