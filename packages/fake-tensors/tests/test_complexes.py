"""Pointwise operators of complex numbers beside eager, over layouts, marks of conjugation and both kinds of sizes."""

import pytest
import torch
from beside_eager import as_eager, layouts

CALLS = {
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "conj_physical": torch.conj_physical,
    "conjugated and resolved": lambda x: x.conj().resolve_conj(),
    "conjugated, times two": lambda x: x.conj() * 2,
    "abs of conjugated": lambda x: x.conj().abs(),
    "angle": torch.angle,
    "sgn": torch.sgn,
    "exp": torch.exp,
    "imaginary part of conjugated": lambda x: x.conj().imag + 1,
    "real part of conjugated": lambda x: x.conj().real + 1,
    "view as real": lambda x: torch.view_as_real(x.clone()),
    "to double": lambda x: x.conj().to(torch.complex128),
    "power": lambda x: 2.0**x,
    "beside a real one": lambda x: x + x.abs(),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name):
    for x in layouts(3, 4, 5, dtype=torch.complex64):
        as_eager(CALLS[name], x)
    as_eager(CALLS[name], torch.tensor(1 + 2j))
