"""What a compiler tells the user of, which is no outcome of the program."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("opmill.warnings")


def tell(warning: Warning, stacklevel: int) -> None:
    """Shows a warning as ``warnings.warn`` does, blaming the caller ``stacklevel`` levels up. Filters that make errors of warnings are for
    the program's own: it would fail compiled where it does not fail as it is. Such a warning is logged."""
    try:
        warnings.warn(warning, stacklevel=stacklevel + 1)
    except Warning as raised:
        if raised is not warning:
            raise
        _log(str(warning))


@contextmanager
def logged() -> Iterator[list[str]]:
    """Gives what is logged inside, also what was logged before: a test that makes errors of warnings means a compiler's own, too."""
    texts: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        texts.append(record.getMessage())
        return True

    _log.cache_clear()
    log.addFilter(keep)
    try:
        yield texts
    finally:
        log.removeFilter(keep)


@functools.lru_cache(1024)
def _log(text: str) -> None:
    """Says each thing once, as filters of warnings do."""
    log.warning("%s", text)


__all__ = ["logged", "tell"]
