"""Devices by name."""

import warnings

import pytest
import torch

from opmill_runtime_cache.devices import registry
from opmill_runtime_cache.errors import ExecutorWarning


def test_own_devices_are_found_by_name_type_number_and_kind_of_kernel():
    cpu, cuda = registry.find("cpu"), registry.find("cuda:1")
    assert cpu.type == "cpu" and cuda.type == "cuda" and registry.find("cuda") is cuda
    assert registry.of_type(cpu.number) is cpu and registry.of_type(cuda.number) is cuda and registry.of_type(10**6) is None
    assert all(registry.runner(kind) is device for device in (cpu, cuda) for kind in device.kinds) and registry.runner("none") is None
    assert {"cpu", "cuda"} <= set(registry.types())


def test_numbers_in_native_code_tell_devices_apart():
    found = [registry.number_of(name) for name in ("cpu", "cuda:0", "cuda:1")]
    assert len(set(found)) == 3
    with pytest.raises(KeyError):
        registry.number_of("nowhere:0")


def test_of_a_device_without_plug_in_nothing_is_known():
    assert registry.find("nowhere") is None and not registry.traits_of("nowhere").grid and not registry.traits_of("nowhere").processor
    assert registry.traits_of("cpu").processor and registry.traits_of("cuda:0").grid


def test_a_plug_in_that_cannot_be_loaded_is_left_out_with_a_warning(monkeypatch):
    class Entry:
        name, value = "broken", "package:DEVICE"

        def load(self):
            raise ImportError("no library")

    class Other(Entry):
        name = "other"

        def load(self):
            return "a device"

    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry(), Other()])
    registry._outside.cache_clear()
    try:
        with pytest.warns(ExecutorWarning, match=r"RC074.*broken.*no library"):
            assert dict(registry._outside()) == {"other": "a device"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            registry._outside()
    finally:
        registry._outside.cache_clear()
    assert torch.device("cpu").type == "cpu"
