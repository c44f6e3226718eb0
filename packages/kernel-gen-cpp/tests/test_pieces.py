"""Functions in pieces: each coefficient of each piece, against float64; and processors that look nothing up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from opmill_kernel_gen_cpp.emit.needs import Needs
from opmill_kernel_gen_cpp.emit.pieces import ERFCX, TANH, Pieces, in_pieces
from opmill_kernel_gen_cpp.target import AVX2, AVX512, NEON, SSE

EXACT: dict[str, tuple[Pieces, Callable[[torch.Tensor], torch.Tensor]]] = {
    "tanh": (TANH, torch.tanh),
    "erfcx": (ERFCX, torch.special.erfcx),
}


@pytest.mark.parametrize("name", EXACT)
def test_pieces_are_right_to_the_last_place(name: str) -> None:
    pieces, exact = EXACT[name]
    rows = torch.tensor([float.fromhex(n) for n in pieces.numbers]).view(-1, 32)
    x = torch.cat([torch.logspace(-30, 1, 300_001), torch.linspace(1e-3, 12, 300_001)])
    a = x.clamp_max(pieces.most)
    at = (a.view(torch.int32).clamp_min(pieces.lowest) >> 21) & 31
    t = a - rows[0, at]
    found = rows[-1, at].double()
    for row in reversed(rows[1:-1]):
        found = (found * t + row[at]).float().double()
    wanted = exact(a.double())
    place = torch.exp2(torch.floor(torch.log2(wanted)) - 23)
    assert ((found - wanted).abs() / place).max() < 1


@pytest.mark.parametrize(("target", "there"), [(AVX512, True), (AVX2, False), (SSE, False), (NEON, False)])
def test_only_where_one_instruction_looks_them_up(target, there: bool) -> None:
    needs = Needs()
    found = in_pieces(needs, TANH, target.bits // 32, target, "fma", "smaller")
    assert (found is not None) == there and any("lookup" in item for item in needs.items) == there
    assert in_pieces(Needs(), TANH, 4, target, "fma", "smaller") is None
