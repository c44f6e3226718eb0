"""Special functions against mpmath, and against eager where values are special."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

mp = pytest.importorskip("mpmath")
mp.mp.dps = 30

special = torch.special
Functions = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[float], object], tuple[float, float]]


def _upper(x: float) -> object:
    return mp.erfc(mp.mpf(x) / mp.sqrt(2)) / 2


TABLE: dict[str, Functions] = {
    "i0": (special.i0, lambda x: mp.besseli(0, x), (-40, 40)),
    "i0e": (special.i0e, lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), (-90, 90)),
    "i1": (special.i1, lambda x: mp.besseli(1, x), (-40, 40)),
    "i1e": (special.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), (-90, 90)),
    "k0": (special.modified_bessel_k0, lambda x: mp.besselk(0, x), (0.01, 30)),
    "k1": (special.modified_bessel_k1, lambda x: mp.besselk(1, x), (0.01, 30)),
    "scaled k0": (special.scaled_modified_bessel_k0, lambda x: mp.exp(x) * mp.besselk(0, x), (0.01, 90)),
    "scaled k1": (special.scaled_modified_bessel_k1, lambda x: mp.exp(x) * mp.besselk(1, x), (0.01, 90)),
    "j0": (special.bessel_j0, lambda x: mp.besselj(0, x), (-40, 40)),
    "j1": (special.bessel_j1, lambda x: mp.besselj(1, x), (-40, 40)),
    "y0": (special.bessel_y0, lambda x: mp.bessely(0, x), (0.01, 40)),
    "y1": (special.bessel_y1, lambda x: mp.bessely(1, x), (0.01, 40)),
    "spherical j0": (special.spherical_bessel_j0, lambda x: mp.sin(x) / mp.mpf(x) if x else mp.mpf(1), (-20, 20)),
    "erfcx": (special.erfcx, lambda x: mp.exp(mp.mpf(x) ** 2) * mp.erfc(x), (-5, 60)),
    "log_ndtr": (special.log_ndtr, lambda x: mp.log(_upper(-x)), (-30, 6)),
    "erfinv": (torch.erfinv, lambda x: mp.erfinv(x), (-0.9999, 0.9999)),
    "ndtri": (special.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1), (1e-6, 1 - 1e-6)),
    "digamma": (torch.digamma, lambda x: mp.digamma(x), (-9.7, 30)),
    **{f"polygamma {n}": (lambda x, n=n: torch.polygamma(n, x), lambda x, n=n: mp.polygamma(n, x), (-4.7, 30)) for n in (1, 2, 3, 4, 5)},
    "mvlgamma": (lambda x: torch.mvlgamma(x, 3), lambda x: 1.5 * mp.log(mp.pi) + sum(mp.loggamma(x - j / 2) for j in range(3)), (1.5, 30)),
}  # fmt: skip


def points(low: float, high: float, dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return (torch.rand(24, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_accuracy(name: str, dtype: torch.dtype, as_loops: Callable[..., list[torch.Tensor]]) -> None:
    """Relative to the size of the function nearby: zeros of oscillating functions have no digits of their own."""
    fn, truth, (low, high) = TABLE[name]
    x = points(low, high, dtype)
    [got] = as_loops(fn, x)
    want = torch.tensor([float(mp.re(truth(v))) for v in x.tolist()], dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    beside = torch.tensor(
        [float(mp.re(truth(v) - truth(v * (1 + 4 * eps)))) for v in x.tolist()], dtype=torch.float64
    )  # what a rounded argument does
    allowed = (eps * 200 * want.abs().clamp_min(0.1 if name[0] in "jyd" else 0) + beside.abs()).clamp_min(1e-300)
    error = (got.double() - want).abs()
    worst = int((error / allowed).argmax())
    assert bool((error <= allowed).all()), (float(x[worst]), float(got[worst]), float(want[worst]))


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -2.0, 0.5, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("name", TABLE)
def test_special_values_are_eagers(name: str, as_loops: Callable[..., list[torch.Tensor]]) -> None:
    fn = TABLE[name][0]
    x = (
        EDGES.abs() + 1 if name == "mvlgamma" else EDGES[(EDGES >= 0) | EDGES.isnan()] if name == "polygamma 1" else EDGES
    )  # poles: eager has 1e32 there
    torch.testing.assert_close(as_loops(fn, x)[0], fn(x), rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("kind", "tuvw")
@pytest.mark.parametrize("prefix", ["", "shifted_"])
def test_chebyshev_polynomials(kind: str, prefix: str, as_loops: Callable[..., list[torch.Tensor]]) -> None:
    fn = getattr(special, f"{prefix}chebyshev_polynomial_{kind}")
    x = torch.cat([torch.linspace(-3, 3, 61, dtype=torch.float64), torch.tensor([1.0, -1.0, 0.0, 0.5, 1e6, -7.0], dtype=torch.float64)])
    for n in (-2.0, -0.5, 0.0, 1.0, 2.0, 5.0, 6.7, 9.0):
        order = torch.full_like(x, n)
        torch.testing.assert_close(as_loops(fn, x, order)[0], fn(x, order), rtol=1e-6, atol=1e-6)  # conditions are bad next to the ends


@pytest.mark.parametrize("order", range(9))
def test_polygammas_half_way_between_integers(order: int, as_loops: Callable[..., list[torch.Tensor]]) -> None:
    """Of even orders the reflected part is 0 there, and what is left as much as ten orders of magnitude smaller than its terms."""
    x = torch.tensor([-0.5, -1.5, -4.5, -8.5, -20.5])
    [found] = as_loops(lambda x: torch.polygamma(order, x), x)
    wanted = torch.tensor([float(mp.polygamma(order, mp.mpf(float(v)))) for v in x], dtype=torch.float64)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=0.0)
