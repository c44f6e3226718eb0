"""Process- and thread-wide switches of torch.

:func:`capture` takes down the switches of ``READERS``. Natively each is one call of a C++ function; torch function modes, where there are
any, are compared in Python (a default device is such a mode: it is compared by its device, any other mode by identity). The level of
forward-mode differentiation is a global of ``torch.autograd.forward_ad``, which the native tree reads as such.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .. import probe
from ..guard import Equals, GlobalState
from ..source import Item, Pinned, Source
from ..texts import short
from .kind import Builder, Kind, Read

_AUTOCAST_DEVICES = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13}


def _torch() -> Any:
    import torch

    return torch


def _autocast(device: str) -> Callable[[], Any]:
    def read() -> Any:
        torch = _torch()
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    return read


def _function_modes() -> tuple[Any, ...]:
    torch = _torch()
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    context = getattr(sys.modules.get("torch.utils._device"), "DeviceContext", None)
    return tuple(("device", str(mode.device)) if type(mode) is context else mode for mode in modes)


def _function_state() -> int:
    c = _torch()._C
    return 2 if c._is_torch_function_all_disabled() else 0 if c._is_torch_function_enabled() else 1


def _functorch() -> bool:
    return _torch()._C._functorch.peek_interpreter_stack() is not None


def _forward_level() -> Source:
    return Item(Pinned(vars(_torch().autograd.forward_ad), "torch.autograd.forward_ad.__dict__"), "_current_level")


READERS: dict[str, Callable[[], Any]] = {
    "grad_mode": lambda: _torch().is_grad_enabled(),
    "inference_mode": lambda: _torch().is_inference_mode_enabled(),
    **{f"autocast.{device}": _autocast(device) for device in _AUTOCAST_DEVICES},
    "autocast_cache": lambda: _torch().is_autocast_cache_enabled(),
    "default_dtype": lambda: _torch().get_default_dtype(),
    "function_modes": _function_modes,
    "function_state": _function_state,
    "dispatch_modes": lambda: _torch()._C._len_torch_dispatch_stack(),
    "functorch": _functorch,
    "forward_ad": lambda: _torch().autograd.forward_ad._current_level,
    "tracing": lambda: _torch()._C._get_tracing_state() is not None,
    "forced_eager": probe.forced_eager,
    "deterministic": lambda: _torch().are_deterministic_algorithms_enabled(),
    "anomalies": lambda: _torch().is_anomaly_enabled(),
    "cuda_device": lambda: _torch()._C._cuda_getDevice() if _torch().cuda.is_initialized() else 0,
    "deterministic_warn": lambda: _torch().is_deterministic_algorithms_warn_only_enabled(),
}


def capture(*, ignore: tuple[str, ...] = ()) -> GlobalState:
    """The switches as they are now; ``ignore`` names those that do not matter."""
    passed = ignore if _several_gpus() else (*ignore, "cuda_device")
    return GlobalState(tuple((name, read()) for name, read in READERS.items() if name not in passed))


@cache
def _several_gpus() -> bool:
    return bool(_torch().version.cuda) and _torch().cuda.device_count() > 1


def _native(name: str, value: Any) -> list[tuple[str, int, int]] | None:
    """Native facts that say the same as the switch's value, None where there are none."""
    facts: list[tuple[str, int, int]] | None = None
    if name.startswith("autocast."):
        device = _AUTOCAST_DEVICES[name.removeprefix("autocast.")]
        facts = [("autocast", device, int(value is not None))]
        if value is not None:
            code = probe.dtype_code(value)
            facts = None if code is None else [*facts, ("autocast_dtype", device, code)]
    elif name == "default_dtype":
        code = probe.dtype_code(value)
        facts = None if code is None else [(name, 0, code)]
    elif name == "function_modes":
        facts = [(name, 0, 0)] if value == () else None
    elif name == "functorch":
        facts = [("key_included", probe.functorch_key(), int(value))]
    elif isinstance(value, (bool, int)):
        facts = [(name, 0, int(value))]
    return facts if facts is not None and all(probe.has_switch(fact[0]) for fact in facts) else None


def _default_devices(modes: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the native leaf takes to hold the modes, where each is a default device: how to read one, its class, the devices. Empty where
    there is none, or another mode."""
    torch = _torch()
    if not modes or not all(isinstance(mode, tuple) for mode in modes) or not probe.has_switch("function_modes"):
        return ()
    return (
        torch._C._get_function_stack_at,
        sys.modules["torch.utils._device"].DeviceContext,
        tuple(torch.device(mode[1]) for mode in modes),
    )


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(
            a is b or (isinstance(a, tuple) and isinstance(b, tuple) and a == b) for a, b in zip(found, expected)
        )
    return bool(found == expected)


def _check(guard: GlobalState, read: Read) -> bool:
    return all(_same(READERS[name](), value) for name, value in guard.values)


def _compile(guard: GlobalState, into: Builder) -> None:
    facts: list[tuple[str, int, int]] = []
    for name, value in guard.values:
        if name == "forward_ad":
            into.add(Equals(_forward_level(), value))
            continue
        if name == "function_modes" and (devices := _default_devices(value)):
            into.first("default devices", devices)
            continue
        native = _native(name, value)
        if native is None:
            into.first("call", lambda _, read=READERS[name], value=value: _same(read(), value))
        else:
            facts += native
    into.first("global", tuple(facts))


def _describe(guard: GlobalState, read: Read) -> tuple[str, str]:
    differences = [(name, value, READERS[name]()) for name, value in guard.values if not _same(READERS[name](), value)]
    return (
        ", ".join(f"{name} {short(expected)}" for name, expected, _ in differences),
        ", ".join(f"{name} {short(found)}" for name, _, found in differences),
    )


def _sources(guard: GlobalState) -> tuple[Source, ...]:
    return ()


KIND = Kind(GlobalState, -1, _check, _compile, _describe, _sources)
