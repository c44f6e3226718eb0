"""What programs of NumPy are made of: codes, orders, sets, broadcasting, strides, outputs, writes, sums of products, positions."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_programs import counts, floats, integers, pixels, program, truths

np = pytest.importorskip("numpy", minversion="2.0")


# encoding
@program(counts(7))
def onehot(k: Any) -> Any:

    o = np.zeros((k.size, 6))
    o[np.arange(k.size), k] = 1
    return o


@program(pixels(6))
def bits(x: Any) -> Any:
    return np.unpackbits(x[:, None], axis=1), np.packbits(np.unpackbits(x))


@program(counts(20))
def rle(x: Any) -> Any:
    idx = np.flatnonzero(np.r_[True, x[1:] != x[:-1]])
    return x[idx], np.diff(np.r_[idx, x.size])


@program(pixels(6))
def binary_digits(x: Any) -> Any:
    return (x[:, None] >> np.arange(8)) & 1


@program(counts(9))
def label_encode(x: Any) -> Any:
    c, inv, cnt = np.unique(x, return_inverse=True, return_counts=True)
    return inv, cnt / cnt.sum(), -(cnt / cnt.sum() * np.log2(cnt / cnt.sum())).sum()


@program(counts(4), counts(4))
def ravel_idx(a: Any, c: Any) -> Any:
    return np.ravel_multi_index((a, c), (6, 6)), np.unravel_index(a * 6 + c, (6, 6))


# sorting, ranking
@program(floats(20))
def topk(x: Any) -> Any:
    i_ = np.argpartition(-x, 5)[:5]
    return x[np.sort(i_)], np.sort(np.partition(x, 4)[:5]), np.partition(x, 10)[10]


@program(floats(20))
def ranks(x: Any) -> Any:
    r = np.empty(len(x), int)
    r[np.argsort(x, kind="stable")] = np.arange(len(x))
    return r


@program(floats(20))
def argsorted(x: Any) -> Any:
    return x[np.argsort(x)], x[np.argsort(-x)[:3]]


@program(floats(8, 3))
def sortrows(x: Any) -> Any:
    return x[np.lexsort((x[:, 1], x[:, 0]))], np.sort(x, axis=0)[::-1]


@program(floats(9))
def bins(x: Any) -> Any:
    e = np.linspace(-2, 2, 5)
    k = np.digitize(x, e)
    return k, np.searchsorted(e, x, side="right"), np.bincount(k, minlength=6)


# sets
@program(counts(8), counts(8))
def sets(a: Any, c: Any) -> Any:
    return np.union1d(a, c), np.intersect1d(a, c), np.setdiff1d(a, c), np.setxor1d(a, c), np.isin(a, c)


@program(counts(8), whole=False)
def trimmed(a: Any) -> Any:
    return np.trim_zeros(a)


# broadcasting, stride tricks
@program(floats(5, 3), floats(4, 3))
def cdist(a: Any, c: Any) -> Any:
    return np.sqrt(((a[:, np.newaxis, :] - c[np.newaxis]) ** 2).sum(2)), np.sqrt(
        np.maximum((a**2).sum(1)[:, None] + (c**2).sum(1) - 2 * a @ c.T, 0)
    )


@program(floats(6))
def toeplitz(x: Any) -> Any:
    return x[np.abs(np.arange(6)[:, None] - np.arange(6))]


@program(floats(4, 5))
def outers(x: Any) -> Any:
    return np.outer(x[0], x[1]), x[:, :, None] * x[:, None, :], np.multiply.outer(x[0], x[1])


@program(floats(12))
def strided(x: Any) -> Any:
    return np.lib.stride_tricks.as_strided(x, shape=(5, 4), strides=(x.strides[0] * 2, x.strides[0])) * 1.0


@program(floats(3, 4))
def grids(x: Any) -> Any:
    yy, xx = np.mgrid[0:3, 0:4]
    ii, jj = np.indices((3, 4))
    o1, o2 = np.ogrid[0:3, 0:4]
    return x * yy + xx, x * ii - jj, x + o1 * o2


@program(floats(4, 4))
def tri(x: Any) -> Any:
    return np.tril(x) + np.triu(x, 1).T, x[np.triu_indices(4, 1)], x[np.tril_indices(4)], np.diag(np.diag(x)), np.diagflat(x[0])


# out, where, dtype
@program(floats(6), floats(6))
def outs(a: Any, c: Any) -> Any:
    o = np.empty(6)
    np.multiply(a, c, out=o)
    np.divide(a, c, out=o, where=c > 0)
    np.sqrt(np.abs(o), out=o)
    return o


@program(floats(6))
def where_zero(a: Any) -> Any:
    return np.divide(1.0, a, out=np.zeros_like(a), where=a != 0), np.log(a, where=a > 0, out=np.full_like(a, -1.0))


@program(floats(4, 5), truths(4, 5))
def where_sum(a: Any, m: Any) -> Any:
    return np.sum(a, where=m), np.mean(a, axis=1, where=m | True), a.max(where=m, initial=-9.0, axis=0), np.sum(a, axis=0, initial=2.0)


@program(integers(4, 5))
def dtypes(a: Any) -> Any:
    return (
        a.sum(dtype=np.float32),
        np.mean(a, dtype=np.float64),
        a.astype("float32"),
        np.add(a, a, dtype=np.float64),
        np.cumsum(a, axis=0, dtype=float),
        a.astype(np.int8).astype(np.complex64),
    )


@program(floats(5, 5))
def out_reduce(a: Any) -> Any:
    o = np.zeros(5)
    a.sum(axis=0, out=o)
    p = np.zeros((5, 5))
    np.matmul(a, a, out=p)
    np.dot(a, a, out=p)
    np.cumsum(a, axis=1, out=p)
    np.clip(a, -1, 1, out=a)
    return o, p, a


# in place slices
@program(floats(6, 6))
def slices(a: Any) -> Any:
    a[1:4, 1:4] += 1
    a[:, 0] = 0
    a[-1] *= 2
    a[::2] -= a[1::2]
    a[..., -1] = np.arange(6)
    a[1], a[2] = a[2].copy(), a[1].copy()
    return a


@program(floats(6, 6))
def gauss(a: Any) -> Any:
    a = a + 6 * np.eye(6)
    for k in range(5):
        a[k + 1 :] -= np.outer(a[k + 1 :, k] / a[k, k], a[k])
    return np.triu(a)


@program(floats(5, 4), counts(3))
def fancy(a: Any, k: Any) -> Any:
    k = k % 4
    a[:, k] += 1.0
    a[[0, 1], [1, 2]] = 7
    a[a > 1] *= -1
    a[k] = a[k] * 2
    return a, a[[2, 0]][:, [1, 3]], a[1:3][:, ::-1]


@program(floats(10), counts(10))
def addat(v: Any, k: Any) -> Any:
    o = np.zeros(6)
    np.add.at(o, k, v)
    c = np.zeros((6, 6), int)
    np.add.at(c, (k, k[::-1]), 1)
    return o, c


@program(floats(10), counts(10))
def maxat(v: Any, k: Any) -> Any:
    o = np.full(6, -np.inf)
    np.maximum.at(o, k, v)
    m = np.ones(6)
    np.multiply.at(m, k, v)
    return o, m


# einsum
@program(floats(2, 3, 4), floats(2, 4, 5))
def einsums(a: Any, c: Any) -> Any:
    return (
        np.einsum("bij,bjk->bik", a, c),
        np.einsum("bij->b", a),
        np.einsum("bij,bij->bi", a, a),
        np.einsum("...ij->...ji", a),
        np.einsum("ii->i", a[0, :3, :3]),
        np.einsum("ij,jk", a[0], c[0]),
    )


@program(floats(4, 3))
def attention(q: Any) -> Any:
    s_ = np.einsum("id,jd->ij", q, q) / np.sqrt(3)
    s_ = np.where(np.tri(4, dtype=bool), s_, -np.inf)
    w = np.exp(s_ - s_.max(-1, keepdims=True))
    return (w / w.sum(-1, keepdims=True)) @ q


# misc
@program(floats(9))
def piecewise(x: Any) -> Any:
    return np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2])


@program(floats(9), whole=False)
def vectorized(x: Any) -> Any:
    return np.vectorize(lambda v: v * 2 + 1)(x)


@program(floats(4, 5))
def along(x: Any) -> Any:
    return np.apply_along_axis(lambda r: r / np.linalg.norm(r), 1, x), np.apply_along_axis(np.sum, 0, x)


@program(counts(5))
def chosen(k: Any) -> Any:
    return np.choose(k % 3, [k, k * 10, k * 100])


@program(floats(3, 4), integers(3, 4))
def tests(x: Any, k: Any) -> Any:
    np.testing.assert_allclose(x, x + 1e-12)
    np.testing.assert_array_equal(k, k)
    np.testing.assert_equal(x.shape, (3, 4))
    return x * 2


@program(floats(3))
def dates(x: Any) -> Any:
    d = np.datetime64("2024-01-01") + np.arange(3)
    days = (d - d[0]).astype(float)
    return x * days


@program(floats(6))
def complexes(x: Any) -> Any:
    z = x[:3] + 1j * x[3:]
    return z * z.conj(), np.abs(z), np.angle(z), z.real, z.imag, np.exp(z), np.sqrt(z), z**2


@program(floats(6), whole=False)
def masked(x: Any) -> Any:
    return np.ma.masked_less(x, 0).mean(), np.ma.array(x, mask=x > 1).filled(0)


@program(floats(3), whole=False)
def structured(x: Any) -> Any:
    a = np.zeros(3, dtype=[("x", float), ("y", int)])
    a["x"] = x
    return a["x"] * 2


@program(floats(4, 4))
def norms(a: Any) -> Any:
    return (
        np.linalg.norm(a),
        np.linalg.norm(a, axis=1),
        np.linalg.norm(a, 1),
        np.linalg.norm(a[0], np.inf),
        np.linalg.norm(a, "fro"),
        np.linalg.norm(a, 2),
        np.linalg.cond(a),
        np.linalg.matrix_rank(a),
        np.linalg.det(a),
        np.trace(a),
    )


@program(floats(4, 3))
def stacks(a: Any) -> Any:
    return (
        np.vstack([a, a]),
        np.hstack([a, a]),
        np.dstack([a, a]),
        np.split(a, 2),
        np.array_split(a, 3),
        np.r_[a[0], 0, a[1]],
        np.c_[a, a[:, 0]],
        np.concatenate((a, a), axis=None),
    )


@program(floats(5))
def rng_of_time(x: Any) -> Any:
    return (
        np.geomspace(1, 100, 5) * x,
        np.logspace(0, 2, 5) + x,
        np.linspace(0, 1, 5, endpoint=False) * x,
        np.linspace(x[0], x[1], 4),
        np.arange(0, 1, 0.2) * x,
    )


@program(floats(6))
def logic(x: Any) -> Any:
    return (
        np.logical_and.reduce([x > -1, x < 1]),
        np.any(x > 2),
        np.all(np.isfinite(x)),
        np.count_nonzero(x > 0),
        (~(x > 0)).sum(),
        np.sign(x),
        np.argwhere(x > 0).ravel(),
    )


@program(floats(6))
def nanfns(x: Any) -> Any:
    y = x.copy()
    y[::2] = np.nan
    return np.nanmean(y), np.nanargmax(y), np.nanpercentile(y, 50), np.nan_to_num(y, nan=-1), np.where(np.isnan(y), np.nanmean(y), y)


@program(floats(4, 5))
def argred(x: Any) -> Any:
    k = x.argmax(1)
    return (
        k,
        np.take_along_axis(x, k[:, None], axis=1)[:, 0],
        x[np.arange(4), k],
        np.unravel_index(np.argmax(x), x.shape),
        np.argmax(x, axis=0),
    )


@program(floats(5))
def floatfns(x: Any) -> Any:
    return (
        np.floor(x),
        np.modf(x),
        np.frexp(x),
        np.ldexp(x, 2),
        np.trunc(x),
        np.round(x, 2),
        np.spacing(x),
        np.nextafter(x, 1.0),
        np.sinc(x),
        np.i0(x),
        np.exp2(x),
        np.logaddexp2(x, x),
    )


@program(floats(5), whole=False)
def iterate(x: Any) -> Any:
    return [v * 2 for v in x], sum(x), max(x), min(x), float(x[0]) + 1, x.tolist(), [int(v > 0) for v in x], list(enumerate(x)), sorted(x)


@program(floats(3, 4))
def iterate2(x: Any) -> Any:
    o = np.zeros((3, 4))
    for idx in np.ndindex(3, 4):
        o[idx] = x[idx] * 2
    for (r, c), v in np.ndenumerate(x):
        o[r, c] += v
    return o, x.flat[3], x.flatten()[::3], x.size, x.nbytes


@program(floats(12))
def newaxes(x: Any) -> Any:
    return (
        np.atleast_2d(x),
        np.expand_dims(x, (0, 2)),
        x.reshape(3, -1, order="F"),
        x.reshape((3, 4)).T.ravel(),
        np.moveaxis(x.reshape(2, 3, 2), 0, -1),
        np.rollaxis(x.reshape(2, 3, 2), 2),
        np.resize(x, (2, 3)),
        np.tile(x, 2),
    )
