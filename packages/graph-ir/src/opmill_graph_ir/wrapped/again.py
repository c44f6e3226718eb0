"""Gradients that look otherwise than a backward was compiled for: what they are the gradients of is computed once more, as captured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors.wrappers import Form

from ..differentiable import under_autocast
from ..errors import GraphError

COERCE = "__coerce_same_metadata_as_tangent__"


class OtherGradient(GraphError):
    """A gradient is of another class than its output, or has other metadata."""


def may_differ(tangent: Form | None) -> bool:
    """Whether gradients of an output may look otherwise than it was compiled for: its class does not say how another one is made such. What
    a sum of a wrapper is, and so its gradient, is often a plain tensor."""
    return tangent is not None and not hasattr(tangent.cls, COERCE)


class Again:
    """A call that can be computed once more: ``function`` as captured, and what it was given; ``inside``: the plain tensors in it."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any], inside: Sequence[Any]) -> None:
        self.function, self.inputs = function, tuple(inputs)
        self.tensors = [x for x in (*inputs, *inside) if isinstance(x, torch.Tensor) and not x.is_inference()]
        self.wanted = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        self.devices = dict.fromkeys(x.device for x in self.tensors)
        kinds = dict.fromkeys(device.type for device in self.devices)
        self.autocast = {kind: torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)}
        self.versions = self._versions()

    @property
    def differentiated(self) -> list[Any]:
        """Of what was given, what requires grad."""
        return [self.inputs[k] for k in self.wanted]

    def unwritten(self) -> bool:
        """Whether nothing has been written to what was given."""
        return self.versions == self._versions()

    def _drawn(self) -> list[tuple[torch.Tensor, Callable[[torch.Tensor], Any]]]:
        """The states of the generators of random numbers, and what sets each."""
        found: list[tuple[torch.Tensor, Callable[[torch.Tensor], Any]]] = [(torch.get_rng_state(), torch.set_rng_state)]
        for device in self.devices:
            own = getattr(torch, device.type, None)
            if own is not None and hasattr(own, "get_rng_state"):
                found.append((own.get_rng_state(device), functools.partial(own.set_rng_state, device=device)))
        return found

    def _versions(self) -> list[int]:
        return [x._version for x in self.tensors]

    def gradients(self, error: OtherGradient, outputs: Sequence[int], given: Sequence[Any]) -> Sequence[Any]:
        """Of ``differentiated``, for gradients ``given`` of the outputs of these numbers. Raises the error where the call cannot be
        repeated: what it read was written since, or it draws random numbers."""
        if not self.unwritten():
            raise error
        fresh = [x.detach().requires_grad_() if k in self.wanted else x for k, x in enumerate(self.inputs)]
        before = self._drawn()
        with torch.enable_grad(), under_autocast(self.autocast):
            found = self.function(*fresh)
        if any(not torch.equal(old, new) for (old, _), (new, _) in zip(before, self._drawn(), strict=True)):
            for state, restore in before:
                restore(state)
            raise error
        pairs = [(found[k], g) for k, g in zip(outputs, given, strict=True) if g is not None and found[k].requires_grad]
        tensors, came = [out for out, _ in pairs], [g for _, g in pairs]
        return torch.autograd.grad(tensors, [fresh[k] for k in self.wanted], came, allow_unused=True)
