"""Content-addressed keys."""

import functools
import hashlib
import os
import re
import sys
from pathlib import Path
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


@functools.cache
def sources_of(package: str, portable: bool = False) -> str:
    """A key for the state of an imported package's Python files (names, sizes, times of change; if ``portable``, names and contents, so
    that it is the same wherever the same is installed, for some milliseconds): what is made by other code is made anew. Of a module that is
    one file, that file alone."""
    module = sys.modules[package]
    roots = list(getattr(module, "__path__", ()))
    files = [module.__file__] if module.__file__ else []
    for root in roots:
        files += sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if name.endswith((".py", ".h")))
    base = len(os.path.dirname(files[0])) if files else 0
    if portable:
        return key_of(package, [(path[base:], hashlib.sha256(Path(path).read_bytes()).digest()) for path in files])
    return key_of(package, [(path[base:], found.st_size, found.st_mtime_ns) for path in files for found in [os.stat(path)]])


def check_name(kind: str, key: str) -> None:
    """Raises ValueError unless ``kind`` and ``key`` are safe as names of files."""
    if not _KIND.match(kind):
        raise ValueError(f"artifact kind {kind!r} must match {_KIND.pattern[:-2]}")
    if not _KEY.match(key):
        raise ValueError(f"artifact key {key!r} must match {_KEY.pattern[:-2]}")
