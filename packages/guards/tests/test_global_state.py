"""Switches of torch: each one is noticed, natively as in Python."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from opmill_guards import GuardSet, probe  # noqa: E402
from opmill_guards.kinds import global_state  # noqa: E402


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic(warn_only: bool) -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def functorch() -> Iterator[None]:
    level = torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield
    finally:
        assert level == torch._C._functorch._vmap_decrement_nesting()


@contextmanager
def forced_eager() -> Iterator[None]:
    """As ``torch.compiler.set_stance`` leaves it."""
    name = "torch._dynamo.eval_frame"
    module, before = types.ModuleType(name), sys.modules.get(name)
    module._stance = types.SimpleNamespace(stance="force_eager")  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


SWITCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast half": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "default dtype": default_dtype,
    "device": lambda: torch.device("meta"),
    "device cpu": lambda: torch.device("cpu"),
    "function mode": TorchFunctionMode,
    "dispatch mode": TorchDispatchMode,
    "no torch function": torch._C.DisableTorchFunction,
    "no subclasses": torch._C.DisableTorchFunctionSubclass,
    "deterministic": lambda: deterministic(False),
    "deterministic, warning": lambda: deterministic(True),
    "functorch": functorch,
    "forced eager": forced_eager,
    "forward differentiation": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switch_on_and_captured(switch: str) -> None:
    probe.configure()
    outside = GuardSet([global_state.capture()])
    outside_tree = outside.native(())
    assert outside_tree.check()
    context = SWITCHES[switch]()
    with context:
        assert not outside_tree.check()
        assert outside.explain({}) is not None
        inside = GuardSet([global_state.capture()])
        inside_tree = inside.native(())
        assert inside_tree.check() and inside.check({})
    assert not inside_tree.check() and not inside.check({})
    assert outside_tree.check()


def test_pairs_of_switches() -> None:
    probe.configure()
    states = {}
    for name, context in SWITCHES.items():
        with context():
            states[name] = GuardSet([global_state.capture()]).native(())
    for name, context in SWITCHES.items():
        with context():
            holding = {other for other, tree in states.items() if tree.check()}
        assert holding == ({name} if name not in ("function mode", "dispatch mode") else holding & {"dispatch mode"})


def test_tracing_is_seen() -> None:
    probe.configure()
    outside = GuardSet([global_state.capture()])
    tree, answers = outside.native(()), []

    def traced(x: Any) -> Any:
        inside = GuardSet([global_state.capture()])
        answers.append((tree.check(), outside.check({}), inside.native(()).check(), inside.check({})))
        return x + 1

    torch.jit.trace(traced, (torch.ones(2),), check_trace=False)
    assert answers == [(False, False, True, True)] and tree.check()


def test_another_thread_has_its_own_switches() -> None:
    tree = GuardSet([global_state.capture()]).native(())
    answers = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: answers.append(tree.check()))
        thread.start()
        thread.join()
        answers.append(tree.check())
    assert answers == [True, False]


def test_switches_to_ignore() -> None:
    tree = GuardSet([global_state.capture(ignore=("grad_mode",))]).native(())
    with torch.no_grad():
        assert tree.check()


def test_all_switches_are_native_for_this_torch() -> None:
    assert all(probe.has_switch(name) for name in (*probe._SYMBOLS, "forced_eager") if name not in ("global_context", "requires_grad"))


BEGUN_UNDER_A_DEFAULT_DEVICE = """
import torch
torch.set_default_device({device!r})
from opmill_guards import GuardSet, probe
from opmill_guards.kinds import global_state
assert probe.configure(), "tensors are checked in Python"
guards, asked = GuardSet([global_state.capture()]), []
for name, read in global_state.READERS.items():
    global_state.READERS[name] = lambda name=name, read=read: (asked.append(name), read())[1]
tree = guards.native(())
assert tree.check() and not asked, asked
torch.set_default_device("meta")
assert not tree.check()
torch.set_default_device(None)
assert not tree.check()
with torch.device({device!r}):
    assert tree.check()
"""


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_process_that_has_a_default_device_from_its_start_is_checked_natively(device: str) -> None:
    program = BEGUN_UNDER_A_DEFAULT_DEVICE.format(device=device)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_explains() -> None:
    guards = GuardSet([global_state.capture()])
    with torch.no_grad():
        failure = guards.explain({})
    assert failure is not None and (failure.expected, failure.found) == ("grad_mode True", "grad_mode False")


def test_the_current_device_counts_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]
    monkeypatch.setattr(global_state, "_several_gpus", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    guards = GuardSet([global_state.capture()])
    assert guards.check({})
    current[0] = 1
    assert not guards.check({}) and "cuda_device" in str(guards.explain({}))
    current[0] = 0
    assert guards.check({})


def test_one_device_is_not_asked_about() -> None:
    if torch.cuda.device_count() < 2:
        assert "cuda_device" not in dict(global_state.capture().values)
