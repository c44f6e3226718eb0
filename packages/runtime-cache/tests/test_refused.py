"""What cannot be bound, loaded or trusted, each with its number."""

import os
import types

import pytest
import torch

from opmill_runtime_cache.devices import registry
from opmill_runtime_cache.errors import BindError, ExecutorWarning, StoreWarning
from opmill_runtime_cache.executor.kernels import kernel_entry
from opmill_runtime_cache.executor.reference import ReferenceExecutable, load_constant, span
from opmill_runtime_cache.plan.model import Alloc, Constant, KernelRef, Plan, SlotOutput, TensorSpec
from opmill_runtime_cache.store import Store


def test_kernels_of_a_kind_that_nothing_runs(tmp_path):
    with pytest.raises(BindError, match="RC034.*'elsewhere'"):
        kernel_entry(KernelRef("elsewhere", "so", "key", "entry"), Store(tmp_path))


@pytest.mark.parametrize(("offset", "arena"), [(64, 64), (8, 256)])
def test_memory_that_does_not_lie_in_the_arena(offset, arena):
    """Checked in each call, too: sizes may depend on it, and plans are data from a file."""
    plan = Plan("outside", 1, (), (SlotOutput(0),), (Alloc(0, TensorSpec("float32", (4,), (1,)), offset),), arena=arena)
    with pytest.raises(BindError, match="RC037"):
        ReferenceExecutable(plan, [], [])()


def test_a_constant_whose_bytes_do_not_fill_it():
    spec = TensorSpec("float32", (4,), (1,))
    assert torch.equal(load_constant(Constant(0, spec, bytes(16))), torch.zeros(4))
    with pytest.raises(BindError, match="RC038"):
        load_constant(Constant(0, spec, bytes(12)))


@pytest.mark.parametrize(("sizes", "strides"), [((3, -1), (1, 1)), ((3, 2), (-2, 1))])
def test_sizes_that_turn_out_negative(sizes, strides):
    with pytest.raises(BindError, match="RC040"):
        span(sizes, strides)
    assert span((0, -1), strides) == 0


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
def test_an_entry_that_others_may_have_written(tmp_path):
    store = Store(tmp_path / "store")
    path = store.put("plan", "ab" * 32, b"payload")
    path.chmod(0o666)
    with pytest.warns(StoreWarning, match="RC064"):
        assert Store(tmp_path / "store").get("plan", "ab" * 32) is None


def test_a_device_of_another_package_that_cannot_be_loaded(monkeypatch):
    def load():
        raise ImportError("a part is missing")

    entry = types.SimpleNamespace(name="broken", value="elsewhere:Broken", load=load)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry._outside.cache_clear()
    try:
        with pytest.warns(ExecutorWarning, match="RC074.*a part is missing"):
            assert not registry._outside()
    finally:
        registry._outside.cache_clear()
