"""Operators of the program whose gradient a graph cannot hold: its Python asks for data, or runs what does not say what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.autograd.function import BackwardCFunction

from opmill_fake_tensors.errors import FakeTensorError

from ..values.base import Machine
from .questions import is_the_programs, name_of
from .said import tensors

if TYPE_CHECKING:
    from .recorder import Recorder


def demand_gradients(recorder: Recorder, vm: Machine, function: object, given: Sequence[object], result: object) -> None:
    """Ends the graph (FE045) before a call whose backward cannot be one. Autograd runs Python of the program there: it is run on fakes
    once, with nothing written down, as a backend would do; a backend that fails in it could compile none of the graph. Where no graph may
    end, the backend has to see."""
    if not isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or not vm.may_break:
        return
    if not is_the_programs(str(function).replace(".", "::", 1)):
        return
    sources = [t for t in tensors(given) if t.requires_grad]
    made = [t for t in tensors([result]) if sources and isinstance(t.grad_fn, BackwardCFunction)]
    if not made:
        return
    try:
        with recorder.context:
            torch.autograd.grad(made, sources, [torch.empty_like(t) for t in made], retain_graph=True, allow_unused=True)
    except FakeTensorError as error:
        vm.unsupported("FE045", f"the gradient of {name_of(function)}", str(error).partition(": ")[2])
    except Exception:  # the program's own, which is raised where its backward runs
        return


__all__ = ["demand_gradients"]
