"""What is installed: kernel generators and graph backends, found by entry point. Nothing here knows a generator or backend by name."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, MetadataPathFinder, entry_points
from typing import Any

from msgspec import Struct

from .errors import UsageValueError
from .options import unknown

GENERATORS = "opmill.kernel_generators"
BACKENDS = "torch_dynamo_backends"
Backend = Callable[..., Callable[..., Sequence[Any]]]


class Found(Struct, frozen=True):
    """One kernel generator: its entry-point name, the object (None where it failed to load) and why it cannot be used (None: it can)."""

    name: str
    generator: Any | None
    reason: str | None


def _entries(group: str) -> Mapping[str, EntryPoint]:
    return _of_group(group, tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _of_group(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name. To select them took most of what it costs to compile a further module of a known kind."""
    return {entry.name: entry for entry in _installed(path).select(group=group)}


@functools.lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> Any:
    """All entry points of what is installed on ``sys.path``. Looking through it takes milliseconds: once, not once a group."""
    found = entry_points()
    if not found.select(group=BACKENDS, name="opmill"):  # which a package that this one requires has
        MetadataPathFinder.invalidate_caches()  # a folder that could not be read is an empty one to importlib, and is kept as such
        found = entry_points()
    return found


def find_generators(names: Sequence[str] | None = None) -> list[Found]:
    """Every installed kernel generator, or those of ``names`` in that order. Raises ``UsageValueError`` for a name nobody registered."""
    check_generators(names)
    installed = _entries(GENERATORS)
    return [_load(installed[name]) for name in (sorted(installed) if names is None else names)]


def check_generators(names: Sequence[str] | None) -> None:
    """Raises ``UsageValueError`` for a name nobody registered."""
    installed = _entries(GENERATORS) if names else {}
    for name in names or ():
        if name not in installed:
            raise unknown("OM007", "kernel generator", name, installed)


def _load(entry: EntryPoint) -> Found:
    # A generator from outside may fail in any way; one that cannot be loaded must not take the others with it.
    try:
        generator = entry.load()()
        return Found(entry.name, generator, generator.available())
    except MemoryError:
        raise  # no fault of the generator
    except Exception as error:
        return Found(entry.name, None, f"{type(error).__name__}: {error}")


def list_backends() -> list[str]:
    """The backend names that can be used without torch's own compiler: ``eager`` and those registered by installed packages."""
    return sorted({*OWN, *_entries(BACKENDS)})


def eager(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend that runs the captured graph as it is."""
    from opmill_bytecode_frontend.effects.labels import labelled  # there by now

    return labelled(graph_module).forward


vars(eager)["sizes_of_data"] = True
OWN: dict[str, Backend] = {"eager": eager}
"""Backends that need no package beside this one."""


def find_backend(name: str) -> Backend:
    """The backend registered as ``name``: ``eager``, an entry point, or, asked last, one of torch's own registry.

    Only the last imports torch's compiler. Raises ``UsageValueError`` naming the backends there are."""
    if name in OWN:
        return OWN[name]
    entry = _entries(BACKENDS).get(name)
    if entry is not None:
        return entry.load()
    registry = _torch_registry()
    if registry is None or name not in registry.list_backends(exclude_tags=()):
        known = {*list_backends(), *(registry.list_backends() if registry else ())}
        raise unknown("OM008", "backend", name, known)
    return registry.lookup_backend(name)


def _torch_registry() -> Any | None:
    """torch's own registry of backends. Imported by name: only a user who names one of torch's backends pays for it."""
    try:
        return importlib.import_module("torch._dynamo.backends.registry")
    except ImportError:
        return None


def check_backend(backend: object) -> None:
    """Raises unless ``backend`` is a callable or a known name."""
    if isinstance(backend, str):
        if backend not in list_backends():
            find_backend(backend)
    elif not callable(backend):
        raise UsageValueError(
            "OM008", f"backend must be a name or a callable, not {backend!r}", hint="opmill.list_backends() lists the names"
        )
