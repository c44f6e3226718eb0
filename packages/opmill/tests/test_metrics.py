"""Counters of a process: added to by threads, told by name, offered to a meter."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from opmill import metrics


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.setattr(metrics, "_counts", dict.fromkeys(metrics.COUNTED, 0))


def test_each_counter_is_told_with_what_it_counts():
    assert metrics.counters() == dict.fromkeys(metrics.COUNTED, 0)
    assert all(metrics.COUNTED.values())


def test_threads_add_to_one_counter():
    threads = [threading.Thread(target=lambda: [metrics.count("graphs") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics.count("backend_seconds", 0.5)
    assert metrics.counters()["graphs"] == 2000 and metrics.counters()["backend_seconds"] == 0.5


def test_what_is_told_is_a_copy():
    metrics.counters()["graphs"] = 9
    assert metrics.counters()["graphs"] == 0
    metrics.count("graphs")
    metrics.reset_counters()
    assert metrics.counters()["graphs"] == 0


def test_no_counter_of_another_name():
    with pytest.raises(KeyError):
        metrics.count("apples")


def test_a_meter_reads_them_when_it_wants_to(monkeypatch):
    module = ModuleType("opentelemetry.metrics")
    module.Observation = lambda value: value
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", module)
    offered = {}
    meter = SimpleNamespace(create_observable_counter=lambda name, callbacks, unit, what: offered.update({name: (callbacks, unit)}))
    metrics.export_to(meter)
    metrics.count("breaks")
    assert offered.keys() == {f"opmill.{name}" for name in metrics.COUNTED}
    [read], unit = offered["opmill.breaks"]
    assert read(None) == [1] and unit == "1" and offered["opmill.backend_seconds"][1] == "s"
