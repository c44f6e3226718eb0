"""Switches of the thread and the process that captured code may set: grad mode, autocast, the default dtype, kernels of attention, what
libraries of devices are to do, whether tensors may be saved through hooks, and whether plain tensors are taken for replicated ones beside
tensors over a mesh."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _autograd

DEVICES = ("cpu", "cuda")
#: Kernels of scaled_dot_product_attention that may be turned off.
ATTENTION = tuple(name for name in "cudnn flash math mem_efficient overrideable".split() if hasattr(torch._C, f"_get_{name}_sdp_enabled"))
#: What tells whether operators take plain tensors beside tensors over a mesh, and what sets it; None where torch has an attribute for it.
REPLICATION = tuple(getattr(torch._C, f"_{verb}_dtensor_allow_implicit_replication", None) for verb in ("get", "set"))
#: What the libraries of GPUs are told: what sets it, what gives it, and their arguments. No operator on a processor asks for it. Switches
#: that set others with them come before those.
LIBRARIES = tuple(
    (setter, getter, given)
    for setter, getter, *given in (
        ("_set_cudnn_enabled", "_get_cudnn_enabled"),
        ("_set_cudnn_benchmark", "_get_cudnn_benchmark"),
        ("_set_cudnn_deterministic", "_get_cudnn_deterministic"),
        ("_set_cudnn_allow_tf32", "_get_cudnn_allow_tf32"),
        ("_set_cudnn_depthwise_kernel", "_get_cudnn_depthwise_kernel"),
        *(("_set_fp32_precision_setter", "_get_fp32_precision_getter", "cuda", part) for part in ("all", "conv", "rnn")),
    )
    if hasattr(torch._C, setter) and hasattr(torch._C, getter)
)


def switches() -> dict[object, tuple[object, ...]]:
    """Each switch as what sets it: key -> (function, arguments)."""
    found: dict[object, tuple[object, ...]] = {
        "grad": (torch._C._set_grad_enabled, torch.is_grad_enabled()),
        "cache": (torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()),
        "forward": (torch._C._set_fwd_grad_enabled, torch._C._is_fwd_grad_enabled()),
        "dtype": (torch._C._set_default_dtype, torch.get_default_dtype()),
        "anomaly": (torch.set_anomaly_enabled, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    }
    for device in DEVICES:
        found["enabled", device] = (torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
        found["dtype", device] = (torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
    for name in ATTENTION:
        found["attention", name] = (getattr(torch._C, f"_set_sdp_use_{name}"), getattr(torch._C, f"_get_{name}_sdp_enabled")())
    for setter, getter, given in LIBRARIES:
        found["library", setter, *given] = (getattr(torch._C, setter), *given, getattr(torch._C, getter)(*given))
    if (asks := REPLICATION[0]) is not None:
        found["replication"] = (REPLICATION[1], asks())
    refusal = _autograd._saved_tensors_hooks_get_disabled_error_message()  # function transforms allow none inside
    found["saved tensors"] = (
        (_autograd._saved_tensors_hooks_enable,) if refusal is None else (_autograd._saved_tensors_hooks_disable, refusal)
    )
    return found


def switched(before: dict[object, tuple[object, ...]], now: dict[object, tuple[object, ...]]) -> list[tuple[Any, ...]]:
    """What to call to come from one state to the other."""
    return [call for key, call in now.items() if before[key] != call]


def libraries_differ(before: dict[object, tuple[object, ...]]) -> bool:
    """Whether libraries of GPUs are told something else than they were."""
    return any(isinstance(key, tuple) and key[0] == "library" and before[key] != call for key, call in switches().items())


def autocast_nesting() -> int:
    """How many autocast blocks the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def in_dual_level() -> bool:
    """Whether the process is in a level of forward-mode differentiation; there is one at most."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False
