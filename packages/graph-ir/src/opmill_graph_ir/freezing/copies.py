"""What is made of weights that stay, for each set of weights that a graph is called with.

A call looks at the address and the version counter of every weight (natively, see ``runtime-cache/native/frozen.cpp``). Where all are as
they were when a copy was made, that copy runs; else one is made. A copy goes when one of its tensors does, when one has changed, and when
there are too many of them. It holds no parameter, but the memory of each: no other tensor can come to lie there while the copy lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors.telling import tell
from opmill_runtime_cache import _native
from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.forking import ForkLock
from opmill_runtime_cache.plan.codec import decode
from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.store import Store

from ..errors import GraphWarning
from .weights import Weights

COPIES = 128
"""Sets of weights that one graph keeps copies for; with more, the oldest goes."""
_WORTH = 4
"""Calls that a copy has to serve for having been worth making."""
_STATISTICS = 1 << 16
"""Bytes up to which what is no parameter is compared whole in each call: some microseconds for all norms of a large model."""
_PATIENCE = 8
"""Copies in a row that were not, after which the graph runs with weights that change."""


class FrozenCopies:
    """``run(*inputs)`` runs ``plan`` with what ``weights`` makes of the weights among the inputs. ``held``: tensors that the plan holds
    besides; ``binder``: what makes plans callable; ``sample``: look into the weights, too; ``unfrozen(inputs)`` gives what runs where they
    do not stay, or None."""

    def __init__(
        self,
        weights: Weights,
        plan: Plan,
        held: Sequence[torch.Tensor],
        binder: Callable[..., Any],
        store: Store,
        sample: bool,
        unfrozen: Callable[[Sequence[Any]], Callable[..., Any] | None],
    ) -> None:
        self._weights, self._plan, self._held, self._binder, self._store = weights, plan, tuple(held), binder, store
        self._sample, self._unfrozen = sample, unfrozen
        self._make = bind(decode(weights.plan), [], store)
        self._references: dict[int, tuple[weakref.ref[torch.Tensor], ...]] = {}
        self._wasted = 0
        self._instead: Callable[..., Any] | None = None
        self._lock = ForkLock()
        self.run = _native.Frozen(weights.positions, weights.count, self._missed)

    def clear(self) -> int:
        """Forgets all copies; how many there were. Weights are promised to stay again."""
        with self._lock:
            count = sum(self.run.remove(token) is not None for token in self.run.tokens)
            self._references.clear()
            self._wasted, self._instead = 0, None
            return count

    def _missed(self, *inputs: Any) -> Any:
        """A call that no copy serves."""
        with self._lock:
            if self._instead is None:
                self._drop_stale()
                if self._wasted >= _PATIENCE:
                    self._give_up(inputs)
            run = None if self._instead is not None else self._copy([inputs[k] for k in self._weights.positions])
        if run is None:
            assert self._instead is not None
            return self._instead(*inputs)
        frozen = set(self._weights.positions)
        return run(*(x for k, x in enumerate(inputs) if k not in frozen))

    def _copy(self, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
        with torch.inference_mode(False), torch.no_grad():
            made = self._make(*tensors)
            kept = [tensors[k].detach() for k in self._weights.kept]
            run = self._binder(self._plan, [*self._held, *kept, *made], self._store)
        memory = [t.detach() for t in tensors]
        looked_at = tuple(-_bytes(t) if _may_change_silently(t) else _bytes(t) if self._sample else 0 for t in tensors)
        token = self.run.add(tuple(tensors), run, looked_at, memory)
        forget = _forgetting(weakref.ref(self), token)
        self._references[token] = tuple(weakref.ref(t, forget) for t in tensors)
        while len(self._references) > COPIES:
            self._drop(next(iter(self._references)))
        return run

    def _drop_stale(self) -> None:
        """Lets go of copies of tensors that have changed since; whether these were worth making."""
        for token, references in list(self._references.items()):
            tensors = tuple(reference() for reference in references)
            if None in tensors or not self.run.is_fresh(token, tensors):
                served = self._drop(token)
                self._wasted = self._wasted + 1 if served is not None and served < _WORTH else 0

    def _drop(self, token: int) -> int | None:
        self._references.pop(token, None)
        return self.run.remove(token)

    def _give_up(self, inputs: Sequence[Any]) -> None:
        self._wasted = 0
        self._instead = self._unfrozen(inputs)
        if self._instead is not None:
            warning = GraphWarning(
                "GI034: a graph runs unfrozen\n  why: its weights changed between calls, time and again\n  hint: thaw it once they stay"
            )
            tell(warning, 4)


def _forgetting(owner: weakref.ref[FrozenCopies], token: int) -> Callable[[Any], None]:
    def forget(_: Any) -> None:
        copies = owner()
        if copies is not None:
            copies._drop(token)

    return forget


def _may_change_silently(tensor: torch.Tensor) -> bool:
    """Whether it may be running statistics: kernels of norms write these, and count no write."""
    return type(tensor) is torch.Tensor and tensor.dim() == 1 and tensor.is_floating_point() and tensor.nbytes <= _STATISTICS


def _bytes(tensor: torch.Tensor) -> int:
    """How many bytes of a tensor can be looked at."""
    plain = traits_of(tensor.device.type).host and tensor.layout is torch.strided and tensor.is_contiguous()
    return tensor.numel() * tensor.element_size() if plain else 0


__all__ = ["COPIES", "FrozenCopies"]
