"""Signals, statistics, images, regression, interpolation and simulation, as scientists write them with NumPy."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_programs import counts, floats, pixels, program, rising, truths

np = pytest.importorskip("numpy", minversion="2.0")


# signal processing
@program(floats(64))
def spectrum(x: Any) -> Any:
    w = np.hanning(len(x))
    X = np.fft.rfft(x * w)
    p = np.abs(X) ** 2 / len(x)
    return np.fft.rfftfreq(len(x), d=0.01), 10 * np.log10(p + 1e-12), np.angle(X)


@program(floats(64))
def lowpass(x: Any) -> Any:
    X = np.fft.fft(x)
    fr = np.fft.fftfreq(x.size, 1 / 64.0)
    X[np.abs(fr) > 8] = 0
    return np.fft.ifft(X).real


@program(floats(80))
def stft(x: Any) -> Any:
    frames = np.lib.stride_tricks.sliding_window_view(x, 16)[::8]
    return np.abs(np.fft.rfft(frames * np.hamming(16), axis=-1)).T


@program(floats(64))
def moving_average(x: Any) -> Any:
    c = np.cumsum(np.insert(x, 0, 0))
    return (c[5:] - c[:-5]) / 5.0


@program(floats(40))
def autocorr(x: Any) -> Any:
    x = x - x.mean()
    r = np.correlate(x, x, mode="full")[x.size - 1 :]
    return r / r[0]


@program(floats(40), floats(5))
def fir(x: Any, h: Any) -> Any:
    return np.convolve(x, h / np.sum(np.abs(h)), "same")


@program(floats(32))
def envelope(x: Any) -> Any:
    N = len(x)
    X = np.fft.fft(x)
    h = np.zeros(N)
    h[0] = h[N // 2] = 1
    h[1 : N // 2] = 2
    return np.abs(np.fft.ifft(X * h))


@program(floats(50))
def zero_crossings(x: Any) -> Any:
    return np.where(np.diff(np.signbit(x)))[0]


@program(floats(30))
def detrend(x: Any) -> Any:
    t = np.arange(x.size)
    A = np.vstack([t, np.ones_like(t)]).T
    m, c = np.linalg.lstsq(A, x, rcond=None)[0]
    return x - (m * t + c)


@program(floats(33))
def shifted(x: Any) -> Any:
    return np.fft.fftshift(np.fft.fft(x)), np.fft.ifftshift(x), np.unwrap(x * 3)


# statistics
@program(floats(30, 4))
def zscore(x: Any) -> Any:
    return (x - x.mean(axis=0, keepdims=True)) / x.std(axis=0, ddof=1)


@program(floats(50))
def describe(x: Any) -> Any:
    q1, m, q3 = np.percentile(x, [25, 50, 75])
    iqr = q3 - q1
    return m, iqr, x[(x < q1 - 1.5 * iqr) | (x > q3 + 1.5 * iqr)]


@program(floats(50))
def moments(x: Any) -> Any:
    d = x - np.mean(x)
    v = np.mean(d**2)
    return np.mean(d**3) / v**1.5, np.mean(d**4) / v**2 - 3


@program(floats(30), floats(30))
def ttest(a: Any, b_: Any) -> Any:
    na, nb = len(a), len(b_)
    va, vb = a.var(ddof=1), b_.var(ddof=1)
    return (a.mean() - b_.mean()) / np.sqrt(va / na + vb / nb)


@program(floats(20, 3))
def mahalanobis(x: Any) -> Any:
    mu = x.mean(0)
    S = np.cov(x, rowvar=False)
    d = x - mu
    return np.sqrt(np.einsum("ij,jk,ik->i", d, np.linalg.inv(S), d))


@program(floats(20), floats(20))
def pearson_rank(a: Any, b_: Any) -> Any:
    ra = np.argsort(np.argsort(a, kind="stable"), kind="stable")
    rb = b_.argsort(kind="stable").argsort(kind="stable")
    return np.corrcoef(ra, rb)[0, 1]


@program(floats(100))
def histo(x: Any) -> Any:
    h, e = np.histogram(x, bins=10, range=(-3, 3), density=True)
    return h, (e[:-1] + e[1:]) / 2


@program(floats(100))
def histo_data(x: Any) -> Any:
    return np.histogram(x, bins=8)


@program(floats(50), floats(50))
def histo2(x: Any, y: Any) -> Any:
    return np.histogram2d(x, y, bins=4, range=[[-2, 2], [-2, 2]])[0]


@program(counts(40), floats(40))
def groupmean(k: Any, v: Any) -> Any:
    s_ = np.bincount(k, weights=v, minlength=6)
    c = np.bincount(k, minlength=6)
    return s_ / np.maximum(c, 1)


@program(floats(25))
def ecdf(x: Any) -> Any:
    xs = np.sort(x)
    return xs, np.arange(1, len(xs) + 1) / len(xs)


@program(floats(6, 5))
def softmax_ce(z: Any) -> Any:
    z = z - z.max(axis=1, keepdims=True)
    e = np.exp(z)
    p = e / e.sum(axis=1, keepdims=True)
    return p, -np.log(p[np.arange(6), [0, 1, 2, 3, 4, 0]]).mean()


# image filters
@program(pixels(8, 9, 3))
def gray(im: Any) -> Any:
    return np.dot(im[..., :3], [0.299, 0.587, 0.114]).astype(np.uint8)


@program(floats(10, 12))
def sobel(im: Any) -> Any:
    p = np.pad(im, 1, mode="edge")
    gx = p[:-2, 2:] - p[:-2, :-2] + 2 * (p[1:-1, 2:] - p[1:-1, :-2]) + p[2:, 2:] - p[2:, :-2]
    gy = p[2:, :-2] - p[:-2, :-2] + 2 * (p[2:, 1:-1] - p[:-2, 1:-1]) + p[2:, 2:] - p[:-2, 2:]
    return np.hypot(gx, gy), np.arctan2(gy, gx)


@program(floats(10, 10))
def boxblur(im: Any) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(np.pad(im, 1, mode="reflect"), (3, 3))
    return w.mean(axis=(-1, -2))


@program(floats(9, 9))
def medianfilter(im: Any) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(im, (3, 3))
    return np.median(w.reshape(7, 7, 9), axis=-1)


@program(pixels(6, 6))
def threshold(im: Any) -> Any:
    out = np.where(im > 127, 255, 0).astype(np.uint8)
    return out, np.clip(im.astype(np.int16) + 40, 0, 255).astype(np.uint8)


@program(pixels(8, 8))
def equalize(im: Any) -> Any:
    h = np.bincount(im.ravel(), minlength=256)
    c = h.cumsum()
    c = (c - c.min()) * 255 // (c.max() - c.min())
    return c.astype(np.uint8)[im]


@program(floats(8, 8))
def pool(im: Any) -> Any:
    return im.reshape(4, 2, 4, 2).max(axis=(1, 3)), im[::2, ::2], im[::-1, ::-1].copy()


@program(floats(6, 8))
def integral(im: Any) -> Any:
    ii = im.cumsum(0).cumsum(1)
    ii = np.pad(ii, ((1, 0), (1, 0)))
    return ii[3:, 3:] - ii[:-3, 3:] - ii[3:, :-3] + ii[:-3, :-3]


# regression, PCA
@program(floats(20, 3), floats(20))
def ols(X: Any, y: Any) -> Any:
    X1 = np.column_stack([np.ones(len(X)), X])
    beta = np.linalg.solve(X1.T @ X1, X1.T @ y)
    r = y - X1 @ beta
    return beta, 1 - (r @ r) / np.sum((y - y.mean()) ** 2)


@program(floats(20, 3), floats(20))
def ridge(X: Any, y: Any) -> Any:
    return np.linalg.inv(X.T.dot(X) + 0.1 * np.eye(X.shape[1])).dot(X.T).dot(y)


@program(floats(20, 4))
def pca(X: Any) -> Any:
    Xc = X - X.mean(axis=0)
    C = Xc.T @ Xc / (len(X) - 1)
    w, v = np.linalg.eigh(C)
    o = w[::-1]
    return o / o.sum(), (Xc @ v[:, ::-1][:, :2]) ** 2


@program(floats(20, 4))
def pca_svd(X: Any) -> Any:
    Xc = X - X.mean(0)
    U, S, Vt = np.linalg.svd(Xc, full_matrices=False)
    return S**2 / 19, np.abs(Xc @ Vt.T[:, :2])


@program(floats(30), floats(30))
def fit(x: Any, y: Any) -> Any:
    return np.polyfit(x, y, 2)


@program(floats(9))
def polynomials(x: Any) -> Any:
    p = np.polyval([1.0, -2.0, 3.0], x)
    d = np.polyder(np.array([1.0, 2.0, 3.0]))
    return p, np.polyval(d, x), np.polymul([1.0, 2.0], [3.0, 4.0]), np.polynomial.polynomial.polyval(x, [1.0, 2.0, 3.0])


@program(floats(9))
def chebyshev(x: Any) -> Any:
    return np.polynomial.chebyshev.chebval(np.tanh(x), [1.0, 0.5, 0.25])


@program(floats(6, 2))
def gd(X: Any) -> Any:
    w = np.zeros(2)
    y = X @ np.array([1.0, -2.0])
    for _ in range(5):
        w -= 0.1 * X.T @ (X @ w - y) / len(y)
    return w


@program(floats(12, 2), floats(3, 2), whole=False)
def kmeans(X: Any, C: Any) -> Any:
    for _ in range(3):
        lab = np.argmin(((X[:, None] - C[None]) ** 2).sum(-1), axis=1)
        C = np.array([X[lab == k].mean(axis=0) if np.any(lab == k) else C[k] for k in range(3)])
    return C, lab


@program(floats(12, 2), floats(3, 2))
def kmeans_onehot(X: Any, C: Any) -> Any:
    for _ in range(3):
        lab = np.argmin(np.linalg.norm(X[:, None] - C[None], axis=-1), axis=1)
        oh = np.eye(3)[lab]
        C = (oh.T @ X) / np.maximum(oh.sum(0)[:, None], 1)
    return C, lab


# interpolation
@program(rising(10), floats(10), floats(7))
def interp(xp: Any, fp: Any, x: Any) -> Any:
    return np.interp(x, xp, fp)


@program(floats(12))
def trapz(y: Any) -> Any:
    x = np.linspace(0, 1, 12)
    return np.trapezoid(y, x), np.gradient(y, x), np.gradient(y), np.diff(y, n=2)


@program(floats(6, 7))
def bilinear(im: Any) -> Any:
    y, x = 2.3, 4.6
    y0, x0 = int(np.floor(y)), int(np.floor(x))
    dy, dx = y - y0, x - x0
    return im[y0, x0] * (1 - dy) * (1 - dx) + im[y0 + 1, x0] * dy * (1 - dx) + im[y0, x0 + 1] * (1 - dy) * dx + im[y0 + 1, x0 + 1] * dy * dx


@program(floats(6, 7), floats(5), floats(5))
def bilinear_at(im: Any, y: Any, x: Any) -> Any:
    y, x = np.clip(np.abs(y), 0, 4.9), np.clip(np.abs(x), 0, 5.9)
    y0 = np.floor(y).astype(int)
    x0 = np.floor(x).astype(int)
    dy, dx = y - y0, x - x0
    return im[y0, x0] * (1 - dy) * (1 - dx) + im[y0 + 1, x0] * dy * (1 - dx) + im[y0, x0 + 1] * (1 - dy) * dx + im[y0 + 1, x0 + 1] * dy * dx


# simulation
@program(floats(10, 3))
def nbody(x: Any) -> Any:
    d = x[:, None] - x[None]
    r2 = (d**2).sum(-1) + 0.01
    np.fill_diagonal(r2, np.inf)
    return -(d / r2[..., None] ** 1.5).sum(1)


@program(truths(8, 8))
def life(g: Any) -> Any:
    g = g.astype(int)
    nb = sum(np.roll(np.roll(g, a, 0), c, 1) for a in (-1, 0, 1) for c in (-1, 0, 1) if (a, c) != (0, 0))
    return ((nb == 3) | ((g == 1) & (nb == 2))).astype(int)


@program(floats(20))
def heat(u: Any) -> Any:
    u = u.copy()
    for _ in range(4):
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


@program(floats(4))
def rk4(y: Any) -> Any:
    A = np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 2], [0, 0, -2, 0]])
    h = 0.1
    g = lambda v: A @ v
    for _ in range(3):
        k1 = g(y)
        k2 = g(y + h / 2 * k1)
        k3 = g(y + h / 2 * k2)
        k4 = g(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


@program(floats(5, 5))
def markov(a: Any) -> Any:
    p = np.exp(a)
    p /= p.sum(1, keepdims=True)
    return np.linalg.matrix_power(p, 8)[0]


@program(floats(10))
def walk(x: Any) -> Any:
    rng = np.random.default_rng(3)
    st = rng.choice([-1, 1], size=10)
    return np.cumsum(st) + x, rng.normal(size=10) * x


@program(floats(10))
def shuffle(x: Any) -> Any:
    rng = np.random.default_rng(0)
    p = rng.permutation(len(x))
    y = x.copy()
    rng.shuffle(y)
    return x[p], y
