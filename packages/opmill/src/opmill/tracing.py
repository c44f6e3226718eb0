"""What a program may say to, and ask of, the capture: leave this function alone; are you looking?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])


def disable(function: _F | None = None) -> Any:
    """Marks a function as never to be captured: compiled code calls it as it is, with a graph break before it. Also a decorator with
    ``()``."""
    if function is None:
        return disable

    @functools.wraps(function)
    def uncaptured(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # The mark torch's own disable leaves as well, so that either compiler honours both.
    vars(uncaptured)["_torchdynamo_disable"] = True
    return uncaptured


def is_compiling() -> bool:
    """True while the code that asks is being captured, False when it runs as it is."""
    return torch.compiler.is_compiling()
