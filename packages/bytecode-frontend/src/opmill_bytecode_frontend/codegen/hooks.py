"""Handles of hooks leave captured code as what putting the hook gives."""

from __future__ import annotations

from ..errors import Unsupported
from ..library.torch.hooks import HandleValue
from ..values.handle_ids import HandleId
from .rebuild import Rebuilder, rebuilds


@rebuilds(HandleValue)
def handle(r: Rebuilder, value: HandleValue) -> str:
    """The hook is put here, and not with all else that changes: before it, none of the same tensor may be left."""
    effects = r.vm.effects
    at = next((k for k, call in enumerate(effects.calls) if call is value.effect), None)
    if value.effect is None or at is None:
        raise Unsupported("FE070", "the handle of a hook leaves the captured code", "the hook is a part of the graph, or was removed")
    put, given, _ = effects.calls[at]
    if any(call[1][:1] == given[:1] for call in effects.calls[:at]):
        raise Unsupported("FE070", "the handle of a hook leaves the captured code", "there are hooks that come before it")
    del effects.calls[at]
    return r.assign(value, f"{r.constants.name(put)}({', '.join(map(r.expr, given))})")


@rebuilds(HandleId)
def handle_id(r: Rebuilder, value: HandleId) -> str:
    """The number of a handle that captured code makes, counted from the first."""
    return f"({r.first_handle()} + {value.offset})"
