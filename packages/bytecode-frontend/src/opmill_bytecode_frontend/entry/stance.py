"""Whether to capture now: what the program says by ``torch.compiler.set_stance``, and whether somebody else writes down already what
runs."""

from __future__ import annotations

import types
from collections.abc import Iterable

import torch
from torch.fx import _symbolic_trace
from torch.utils._device import DeviceContext

#: Stances under which the first call of a function runs as it is, and the next one is captured.
LATER = ("eager_then_compile", "aot_eager_then_compile")
#: Stances under which nothing is captured; under the second, what was captured before is used where it fits.
NEVER = ("force_eager", "eager_on_recompile")


def watched() -> bool:
    """Whether a mode of the program, ``torch.jit.trace``, ``torch.fx.symbolic_trace`` or autograd's anomaly detection wants to see each
    operation: those of a capture are none."""
    modes = torch._C._len_torch_dispatch_stack() or any(map(is_of_program, range(torch._C._len_torch_function_stack())))
    return (
        bool(modes) or torch.is_anomaly_enabled() or torch._C._get_tracing_state() is not None or _symbolic_trace.is_fx_symbolic_tracing()
    )


def is_of_program(place: int) -> bool:
    """Whether the torch function mode at this place of the stack does more than to choose a device."""
    return type(torch._C._get_function_stack_at(place)) is not DeviceContext


def not_for_torch(code: types.CodeType) -> None:
    """Torch's own compiler, where code that it compiles has called this one, reads neither this compiler nor what that made."""
    hooks = torch._C._dynamo.eval_frame
    hooks.set_code_exec_strategy(code, hooks._FrameExecStrategy(hooks._FrameAction.SKIP, hooks._FrameAction.SKIP))


def refuse_to_recompile(name: str, where: str, reasons: Iterable[object]) -> None:
    """Raises RuntimeError: ``name`` fits nothing that was captured, and the stance is ``fail_on_recompile``."""
    hint = "call it with such arguments before torch.compiler.set_stance, or mark what changes as dynamic"
    more = "".join(f"\n  {line}" for line in (f"at: {where}", *(f"why: {reason}" for reason in reasons), f"hint: {hint}"))
    raise RuntimeError(f"FE092: {name} would be compiled, and the stance is 'fail_on_recompile'{more}")


__all__ = ["LATER", "NEVER", "not_for_torch", "refuse_to_recompile", "watched"]
