"""Where a node of an FX graph comes from: its line, and the label around it."""

from __future__ import annotations

from typing import Any

import torch

from .graph import NO_LABEL

BACKWARD = "backward"
"""Where gradients come from, as far as nothing else is known."""


def origin_of(node: torch.fx.Node) -> str:
    """``file:line`` of the innermost frame that the frontend noted, or what somebody said instead (``meta["origin"]``); the node's name
    where nothing is known."""
    return str(node.meta.get("origin", "")) or line_of(node.meta.get("stack_trace")) or node.name


def gradient_of(origin: str) -> str:
    """The origin of what the gradient of an operator is made of."""
    return f"{BACKWARD} of {origin}" if origin else BACKWARD


def is_gradient(origin: str) -> bool:
    """Whether an origin is that of a gradient."""
    return origin == BACKWARD or origin.startswith(f"{BACKWARD} of ")


def writing(target: str, origin: str | None) -> str:
    """The origin of a write to an input, by that of the operator that computes what is written."""
    return f"write {target} {origin or ''}".strip()


def line_of(trace: str | None) -> str:
    """``file:line`` of the last frame of a traceback's text; empty where there is none."""
    if trace and (start := trace.rfind('File "')) >= 0:
        file, _, rest = trace[start + 6 :].partition('", line ')
        return f"{file}:{rest.partition(',')[0].partition(chr(10))[0]}"
    return ""


_WITHIN = "gradient of "
"""How origins begin of gradients that are part of what the graph computes."""


class Origins:
    """Where operators that are differentiated come from, by autograd's number of each: so gradients tell what they are the gradients of."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def now(self, origin: str) -> str:
        """Where the operator that runs now comes from. ``origin``: its line, or ``BACKWARD`` while autograd runs for the graph's caller."""
        node = torch._C._current_autograd_node()
        of = "" if node is None else self._of.get(node._sequence_nr(), "")
        if origin == BACKWARD:
            return gradient_of(of)
        if of:  # of a backward that the program runs itself
            origin = of if of.startswith(_WITHIN) else f"{_WITHIN}{of}"
        # Autograd has made its node when the operator runs; the last node is another operator's where this one is not differentiated.
        self._of.setdefault(torch.autograd._get_sequence_nr() - 1, origin)
        return origin


def label_of(node: torch.fx.Node) -> int:
    """The number of the innermost label that the node is inside of (``labels_of`` has its name), -1 for none."""
    label: int = node.meta.get("label", NO_LABEL)
    return label


def labels_of(module: Any) -> tuple[tuple[str, int], ...]:
    """The labels of a graph in the order in which they opened: the name of each, and the number of the one around it (-1: none)."""
    return tuple(getattr(module, "meta", {}).get("labels", ()))


def place_of(module: Any) -> str:
    """``file.py:line`` where the graph begins: the program's line, if the frontend noted it, else that of the first operator; empty where
    neither is known."""
    traces = [module.meta.get("where"), *(n.meta.get("stack_trace") for n in module.graph.nodes if n.op.startswith("call_"))]
    return next(filter(None, map(line_of, traces)), "").rpartition("/")[2]


__all__ = ["BACKWARD", "Origins", "gradient_of", "is_gradient", "label_of", "labels_of", "origin_of", "place_of", "writing"]
