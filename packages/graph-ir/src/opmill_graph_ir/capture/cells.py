"""Cells of recurrent layers as products and what follows on these, where torch has one kernel for the rest.

That kernel is as good as a fused loop forward. Its backward is as many calls as without it, and what stands around a cell - a projection, a
loop over steps, gradients that are summed over these - cannot be fused with it. On processors torch takes cells apart itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

Cell = Callable[..., Any]


def _gated_recurrent_unit(
    x: torch.Tensor, h: torch.Tensor, w_x: torch.Tensor, w_h: torch.Tensor, b_x: torch.Tensor | None = None, b_h: torch.Tensor | None = None
) -> torch.Tensor:
    """The new state; of Cho et al. (2014), https://arxiv.org/abs/1406.1078, as torch has it."""
    of_x, of_h = (torch.nn.functional.linear(*each).chunk(3, -1) for each in ((x, w_x, b_x), (h, w_h, b_h)))
    reset, keep = (torch.sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    new = torch.tanh(of_x[2] + reset * of_h[2])
    return (h - new) * keep + new


def _long_short_term_memory(
    x: torch.Tensor,
    state: Sequence[torch.Tensor],
    w_x: torch.Tensor,
    w_h: torch.Tensor,
    b_x: torch.Tensor | None = None,
    b_h: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new output and state; of Hochreiter and Schmidhuber (1997), with gates that forget."""
    h, c = state
    gates = torch.nn.functional.linear(x, w_x, b_x) + torch.nn.functional.linear(h, w_h, b_h)
    write, keep, new, show = gates.chunk(4, -1)
    c = torch.sigmoid(keep) * c + torch.sigmoid(write) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(c), c


CELLS: dict[object, Cell] = {torch.gru_cell: _gated_recurrent_unit, torch.lstm_cell: _long_short_term_memory}


def taken_apart(target: object, args: Sequence[Any]) -> Cell | None:
    """What computes a cell by its parts; None for other functions, and on processors."""
    try:
        cell = CELLS.get(target)
    except TypeError:
        return None
    on_grid = cell is not None and isinstance(args[0], torch.Tensor) and traits_of(str(args[0].device)).grid
    return cell if on_grid else None


__all__ = ["taken_apart"]
