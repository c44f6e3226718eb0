"""How often what happened in this process: for dashboards, and for tests that want to see no recompile."""

from __future__ import annotations

import threading
from typing import Any

COUNTED = {
    "captures": "pieces of code that were captured",
    "graphs": "graphs that were given to a backend",
    "breaks": "different graph breaks",
    "recompiles": "calls that fitted nothing compiled before",
    "plans_from_cache": "graphs whose plan came from the cache",
    "plans_compiled": "graphs whose plan was made",
    "fallbacks": "graphs that run as torch's own operators after an error",
    "backend_seconds": "seconds that backends took",
}
"""Counters and what they count, since the process began or ``reset_counters`` was called."""

_lock = threading.Lock()
_counts: dict[str, float] = dict.fromkeys(COUNTED, 0)


def count(name: str, by: float = 1) -> None:
    """Adds to a counter."""
    with _lock:
        _counts[name] += by


def counters() -> dict[str, float]:
    """All counters of this process, by the names of :data:`COUNTED`."""
    with _lock:
        return dict(_counts)


def reset_counters() -> None:
    """Sets all counters to 0."""
    with _lock:
        _counts.update(dict.fromkeys(_counts, 0))


def export_to(meter: Any) -> None:
    """Offers each counter to an OpenTelemetry meter (``opentelemetry.metrics.get_meter(...)``) as ``opmill.NAME``; whatever exporter the
    program has, Prometheus' among them, reads them when it wants to. Needs ``opmill[opentelemetry]``."""
    from opentelemetry.metrics import Observation

    for name, what in COUNTED.items():
        unit = "s" if name.endswith("_seconds") else "1"
        meter.create_observable_counter(f"opmill.{name}", [lambda _, name=name: [Observation(counters()[name])]], unit, what)
