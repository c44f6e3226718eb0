"""The frame evaluation hook; see ``native/``."""

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

_Callback = Callable[[CodeType, FunctionType], Callable[..., Any] | None]

def set_callback(callback: _Callback | None, /) -> _Callback | None: ...
def skip_code(code: CodeType, skipped: bool = True, /) -> None: ...
def is_installed() -> bool: ...
