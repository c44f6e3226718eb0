"""Registration of opcode handlers with the Python versions they serve."""

from __future__ import annotations

import sys
from typing import Any, Callable

Handler = Callable[[Any, Any, Any], Any]
HANDLERS: dict[str, Handler] = {}


def opcode(*names: str, since: tuple[int, int] = (3, 11), until: tuple[int, int] = (3, 99)) -> Callable[[Handler], Handler]:
    """The decorated handler serves these opcodes from Python ``since`` to ``until``, both included."""

    def add(handler: Handler) -> Handler:
        if since <= sys.version_info[:2] <= until:
            for name in names:
                HANDLERS[name] = handler
        return handler

    return add
