"""Recurrent layers of oneDNN in training. The operator of torch keeps what its backward needs only while gradients are recorded, which no
plan does: this one always keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.symbolic import any_symbolic
from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.plan.model import Call, Plan

from .definitions import definitions
from .errors import GraphError

PACKETS = ("aten::mkldnn_rnn_layer",)
SPACE = "opmill_keeping"


@lru_cache(None)
def keeping(packet: str) -> Any:
    """The operator that gives what ``packet`` (one of ``PACKETS``) gives while gradients are recorded."""
    name = packet.partition("::")[2]
    like = getattr(torch.ops.aten, name).default

    def run(*args: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return like(*args)

    def shapes(name: str, overload: str, args: Any, kwargs: Any) -> Any:
        """As seen when it runs once: how much is kept is oneDNN's affair."""
        if any_symbolic(args):
            raise GraphError(
                "GI017", f"gradients of {packet} at sizes that move", why="what it keeps for its backward is known of given sizes alone"
            )
        found = run(*(torch.zeros_like(a, device=HOST) if isinstance(a, torch.Tensor) else a for a in args))
        return tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in found)

    with definitions(SPACE) as library:
        library.define(str(like._schema).removeprefix("aten::"))
        library.impl(name, run, "CPU")
        operator = getattr(getattr(torch.ops, SPACE), name).default
        operator.opmill_shapes = shapes
    return operator


def define_for(plans: Iterable[Plan]) -> None:
    """Makes known the operators that these plans call."""
    names = {"aten" + step.op[len(SPACE) :] for plan in plans for step in plan.steps if type(step) is Call and step.op.startswith(SPACE)}
    for packet in PACKETS:
        if names & {packet, f"{packet}.default"}:
            keeping(packet)
