"""The arguments of one ``opmill.compile`` call, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from .discover import Backend, check_backend, check_generators
from .errors import UsageTypeError
from .options import Options, resolve_mode, resolve_options
from .shared_cache import shared_cache

NATIVE = "opmill"  # the backend that is this project's own; every other one gets its mode and options as they were given


class Settings(Struct, frozen=True):
    """Checked arguments. ``foreign`` holds the keyword arguments that a backend other than opmill's is called with. ``apart``: what is
    compiled with it shares no captures with what is compiled without it, or with another."""

    fullgraph: bool
    dynamic: bool | None
    backend: str | Backend
    mode: str
    options: Options
    foreign: Mapping[str, Any]
    apart: object = None

    @property
    def key(self) -> Any:
        """Equal for equal settings; a backend that is an object is itself."""
        backend = self.backend if isinstance(self.backend, str) else id(self.backend)
        return backend, self.fullgraph, self.dynamic, self.mode, self.options, repr(sorted(self.foreign.items())), self.apart

    @property
    def native(self) -> bool:
        """Whether graphs go to opmill's own backend."""
        return self.backend == NATIVE


def resolve(fullgraph: object, dynamic: object, backend: object, mode: object, options: Any) -> Settings:
    """Checks the arguments of ``opmill.compile``. Raises ``UsageTypeError`` or ``UsageValueError`` that names what there is."""
    if not isinstance(fullgraph, bool):
        raise UsageTypeError("OM002", f"fullgraph must be True or False, not {fullgraph!r}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise UsageTypeError("OM002", f"dynamic must be True, False or None, not {dynamic!r}")
    checked_mode = resolve_mode(cast("str | None", mode))
    check_backend(backend)
    checked_backend = cast("str | Backend", backend)
    if backend == NATIVE:
        checked = resolve_options(checked_mode, options)
        check_generators(checked.generators)
        if checked.cache_url or checked.cache_key_file:
            shared_cache(checked)
        return Settings(fullgraph, dynamic, NATIVE, checked_mode, checked, {})
    foreign: dict[str, Any] = {} if mode in (None, "default") else {"mode": mode}
    if isinstance(options, Options):
        return Settings(fullgraph, dynamic, checked_backend, checked_mode, options, foreign)
    if options:
        foreign["options"] = dict(options)
    return Settings(fullgraph, dynamic, checked_backend, checked_mode, resolve_options(checked_mode, None), foreign)


def resolve_arguments(arguments: Mapping[str, Any]) -> Settings:
    """The same for arguments by name, those that are not there being ``opmill.compile``'s own defaults; names of others are passed over."""
    named = ("fullgraph", False), ("dynamic", None), ("backend", NATIVE), ("mode", None), ("options", None)
    return resolve(*(arguments.get(name, default) for name, default in named))
