"""Numerics, statistics, signals, images and filters as scientists write them with NumPy: a second collection."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_programs import floats, program

np = pytest.importorskip("numpy", minversion="2.0")


@program(floats(3))
def of_lorenz_rk4(s: Any) -> Any:
    def f(u):
        return np.array([10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]])

    h = 0.01
    for _ in range(3):
        k1 = f(s)
        k2 = f(s + h / 2 * k1)
        k3 = f(s + h / 2 * k2)
        k4 = f(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return s


@program(floats(24))
def of_heat_fd(u: Any) -> Any:
    u = u.copy()
    for _ in range(4):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u, u.max(), u.sum()


@program(floats(6, 4))
def of_laplace2d(u: Any) -> Any:
    v = u.copy()
    v[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return v, np.abs(v - u).max()


@program(floats(6, 4))
def of_zscore_cols(m: Any) -> Any:
    return (m - m.mean(0)) / m.std(0, ddof=1), np.corrcoef(m, rowvar=False)


@program(floats(24))
def of_ar1_fit(x: Any) -> Any:
    d = np.column_stack([np.ones(len(x) - 1), x[:-1]])
    c, res, rk, sv = np.linalg.lstsq(d, x[1:], rcond=None)
    return c, rk


@program(floats(6, 4))
def of_kmeans_step(m: Any) -> Any:
    c = m[:2]
    d = ((m[:, None] - c[None]) ** 2).sum(-1)
    l = d.argmin(1)
    return np.stack([m[l == k].mean(0) for k in range(2)]), l


@program(floats(24), whole=False)
def of_masked_mean(x: Any) -> Any:
    a = np.ma.masked_less(x, 0)
    return a.mean(), a.filled(0.0), a.count()


@program(floats(24), whole=False)
def of_structured(x: Any) -> Any:
    r = np.zeros(len(x), dtype=[("t", "f8"), ("k", "i4")])
    r["t"] = x
    r["k"] = np.arange(len(x))
    return np.sort(r, order="t")["k"]


@program(floats(24), whole=False)
def of_vectorized(x: Any) -> Any:
    f = np.vectorize(lambda v: v * 2 if v > 0 else -v)
    return f(x)


@program(floats(24), whole=False)
def of_trimmed(x: Any) -> Any:
    return np.trim_zeros(np.where(np.abs(x) < 0.5, 0, x))


@program(floats(24))
def of_generator(x: Any) -> Any:
    g = np.random.default_rng(7)
    return x + g.normal(size=x.shape), g.integers(0, 5, 3), g.permutation(x)


@program(floats(24))
def of_spectrum(x: Any) -> Any:
    w = np.hanning(len(x))
    f = np.fft.rfft(x * w)
    ps = np.abs(f) ** 2 / np.sum(w**2)
    return np.fft.rfftfreq(len(x), 0.1), ps, ps.argmax()


@program(floats(24))
def of_autocorr(x: Any) -> Any:
    x = x - x.mean()
    r = np.correlate(x, x, "full")[len(x) - 1 :]
    return r / r[0]


@program(floats(24))
def of_savgol(x: Any) -> Any:
    c = np.linalg.pinv(np.vander(np.arange(-2, 3), 3, increasing=True))[0]
    return np.convolve(x, c[::-1], mode="valid")


@program(floats(24))
def of_rolling(x: Any) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, 5)
    return w.mean(1), w.max(1), np.median(w, axis=1)


@program(floats(24))
def of_trapz(x: Any) -> Any:
    t = np.linspace(0, 1, len(x))
    return np.trapezoid(x, t), np.cumsum((x[1:] + x[:-1]) / 2 * np.diff(t))


@program(floats(6, 4))
def of_rotation(m: Any) -> Any:
    a = np.deg2rad(30.0)
    r = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    return m[:, :2] @ r.T, np.hypot(m[:, 0], m[:, 1]), np.arctan2(m[:, 1], m[:, 0])


@program(floats(6, 4))
def of_gram_schmidt(m: Any) -> Any:
    q = []
    for v in m.T:
        for u in q:
            v = v - (u @ v) * u
        q.append(v / np.linalg.norm(v))
    return np.array(q)


@program(floats(6, 4))
def of_power_iter(m: Any) -> Any:
    s = m.T @ m
    v = np.ones(4) / 2
    for _ in range(5):
        v = s @ v
        v /= np.linalg.norm(v)
    return v, v @ s @ v


@program(floats(6, 4))
def of_softmax_ce(m: Any) -> Any:
    z = m - m.max(1, keepdims=True)
    l = z - np.log(np.exp(z).sum(1, keepdims=True))
    y = np.arange(6) % 4
    return -l[np.arange(6), y].mean(), np.eye(4)[y]


@program(floats(24))
def of_newton(x: Any) -> Any:
    y = np.abs(x) + 1
    r = y.copy()
    for _ in range(6):
        r = 0.5 * (r + y / r)
    return r, np.allclose(r * r, y)


@program(floats(24))
def of_hist_cdf(x: Any) -> Any:
    h, e = np.histogram(x, bins=5, range=(-3, 3))
    return h, e, np.cumsum(h) / h.sum(), np.digitize(x, e)


@program(floats(24))
def of_quant(x: Any) -> Any:
    q1, q3 = np.percentile(x, [25, 75])
    return np.clip(x, q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)), q3 - q1


@program(floats(24))
def of_bootstrap(x: Any) -> Any:
    g = np.random.RandomState(0)
    i = g.randint(0, len(x), (20, len(x)))
    return x[i].mean(1).std()


@program(floats(6, 4))
def of_distances(m: Any) -> Any:
    g = m @ m.T
    d = np.diag(g)[:, None] + np.diag(g)[None] - 2 * g
    d = np.sqrt(np.maximum(d, 0))
    np.fill_diagonal(d, np.inf)
    return d.argmin(1), d.min()


@program(floats(24))
def of_horner(x: Any) -> Any:
    return np.polyval([1.0, -2, 0.5], x), np.polynomial.polynomial.polyval(x, [1.0, 2, 3])


@program(floats(6, 4))
def of_logsum(m: Any) -> Any:
    return np.logaddexp.reduce(m, axis=1), np.logaddexp(m[:, 0], m[:, 1])


@program(floats(24))
def of_onehot_count(x: Any) -> Any:
    k = np.floor(x).astype(int)
    u, c = np.unique(k, return_counts=True)
    return u, c, u[c.argmax()]


@program(floats(24))
def of_groupby(x: Any) -> Any:
    k = np.arange(len(x)) % 3
    return np.array([x[k == i].sum() for i in range(3)]), np.bincount(k, weights=x), np.add.reduceat(x, [0, 5, 11])


@program(floats(24))
def of_interp(x: Any) -> Any:
    xp = np.sort(x)
    return np.interp(np.linspace(-1, 1, 7), xp, np.arange(len(x)) * 1.0), np.searchsorted(xp, [0.0, 0.5])


@program(floats(24))
def of_monte_pi(x: Any) -> Any:
    g = np.random.default_rng(3)
    u = g.random((100, 2))
    return 4 * np.mean((u**2).sum(1) < 1) + 0 * x[0]


@program(floats(24))
def of_complexes(x: Any) -> Any:
    z = x[:12] + 1j * x[12:]
    return np.abs(z), np.angle(z), z.conj() * z, np.exp(1j * np.pi * x[:3]), z.real.mean()


@program(floats(6, 4))
def of_einsums(m: Any) -> Any:
    return np.einsum("ij,kj->ik", m, m), np.einsum("ii", m[:4]), np.tensordot(m, m, axes=([0], [0]))


@program(floats(24))
def of_meshes(x: Any) -> Any:
    a, b = np.meshgrid(x[:3], x[3:7], indexing="ij")
    return np.exp(-(a**2 + b**2)), np.gradient(x, 0.1), np.indices((2, 3))


@program(floats(6, 4), whole=False)
def of_markov(m: Any) -> Any:
    t = np.abs(m[:4])
    t /= t.sum(1, keepdims=True)
    return np.linalg.matrix_power(t, 5), np.linalg.eigvals(t).real.max()


@program(floats(6, 4))
def of_image(m: Any) -> Any:
    g = ((m - m.min()) / np.ptp(m) * 255).astype(np.uint8)
    return g, np.pad(g, 1, mode="edge"), np.flipud(g), np.rot90(g), g.mean()


@program(floats(24))
def of_datesx(x: Any) -> Any:
    d = np.datetime64("2024-01-01") + np.arange(3)
    return d.astype("datetime64[M]").astype(int) + x[:3].astype(int)


@program(floats(24))
def of_nanstuff(x: Any) -> Any:
    y = x.copy()
    y[::3] = np.nan
    return np.nanmean(y), np.nan_to_num(y), np.isnan(y).sum(), np.nanpercentile(y, 50)


@program(floats(6, 4))
def of_sortby(m: Any) -> Any:
    i = np.lexsort((m[:, 1], np.round(m[:, 0])))
    return m[i], np.argsort(m, axis=0, kind="stable"), np.argpartition(m[:, 2], 2)[:2].size


@program(floats(6, 4))
def of_pca(m: Any) -> Any:
    c = m - m.mean(0)
    u, s, vt = np.linalg.svd(c, full_matrices=False)
    return s**2 / (s**2).sum(), np.abs(c @ vt.T[:, :2])


@program(floats(24), whole=False)
def of_boolean(x: Any) -> Any:
    b = x > 0
    return np.logical_xor.accumulate(b), np.count_nonzero(b), np.flatnonzero(np.diff(b.astype(int))), b.any() and not b.all()


@program(floats(6, 4))
def of_ols_stats(m: Any) -> Any:
    y = m[:, 0]
    d = np.c_[np.ones(6), m[:, 1:3]]
    b = np.linalg.solve(d.T @ d, d.T @ y)
    r = y - d @ b
    s2 = r @ r / (6 - 3)
    return b, np.sqrt(np.diag(s2 * np.linalg.inv(d.T @ d))), 1 - r @ r / ((y - y.mean()) @ (y - y.mean()))


@program(floats(24))
def of_kalman(x: Any) -> Any:
    m, v = 0.0, 1.0
    out = []
    for z in x[:6]:
        v = v + 0.1
        k = v / (v + 0.5)
        m = m + k * (z - m)
        v = (1 - k) * v
        out.append(m)
    return np.asarray(out), v


@program(floats(24), whole=False)
def of_recarray(x: Any) -> Any:
    r = np.rec.fromarrays([x, x * 2], names="a,b")
    return r.a.sum() + r.b.max()
