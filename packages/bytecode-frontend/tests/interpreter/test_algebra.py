"""Products, linear algebra and Fourier transforms of arrays, against NumPy."""

import pytest

np = pytest.importorskip("numpy", minversion="2.0")
pytest.importorskip("torch")

from array_outcomes import as_numpy  # noqa: E402 - it needs NumPy

RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((4, 4)) + 4 * np.eye(4)
DEFINITE = SQUARE @ SQUARE.T
TALL, STACK, ROW = RNG.standard_normal((5, 4)), RNG.standard_normal((2, 3, 4)), RNG.standard_normal(4)

PROGRAMS = {
    "matmul": lambda: np.matmul(STACK, SQUARE),
    "matmul of rows": lambda: (np.matmul(ROW, SQUARE), np.matmul(SQUARE, ROW), np.matmul(ROW, ROW)),
    "dot": lambda: (np.dot(STACK, SQUARE), np.dot(ROW, ROW), np.dot(2.0, ROW)),
    "inner": lambda: (np.inner(STACK, TALL), np.inner(ROW, ROW)),
    "outer": lambda: (np.outer(ROW, TALL), np.outer(TALL, ROW)),
    "kron": lambda: np.kron(SQUARE, TALL),
    "cross": lambda: np.cross(TALL[:, :3], ROW[:3]),
    "vdot": lambda: np.vdot(SQUARE, DEFINITE),
    "tensordot": lambda: (np.tensordot(STACK, SQUARE, 1), np.tensordot(SQUARE, SQUARE, ([0, 1], [1, 0]))),
    "einsum": lambda: (np.einsum("bij,jk->bik", STACK, SQUARE), np.einsum("ii", SQUARE)),
    "inv": lambda: np.linalg.inv(SQUARE),
    "det": lambda: (np.linalg.det(SQUARE), np.linalg.slogdet(SQUARE)),
    "solve": lambda: (np.linalg.solve(SQUARE, TALL.T), np.linalg.solve(SQUARE, ROW)),
    "svd": lambda: np.linalg.svd(TALL, compute_uv=False),
    "pinv": lambda: np.linalg.pinv(TALL),
    "cholesky": lambda: np.linalg.cholesky(DEFINITE),
    "eigvalsh": lambda: np.linalg.eigvalsh(DEFINITE),
    **{
        f"fft.{name}": lambda name=name: getattr(np.fft, name)(TALL) for name in "fft ifft rfft irfft ihfft fft2 ifft2 rfft2 irfft2".split()
    },
    **{f"fft.{name}": lambda name=name: getattr(np.fft, name)(STACK) for name in "fftn ifftn rfftn irfftn".split()},
    **{f"fft.{name} of complex": lambda name=name: getattr(np.fft, name)(TALL + 1j) for name in "fft ifft irfft hfft fft2 ifft2".split()},
    "fft.ifft of a given length": lambda: np.fft.ifft(TALL, 7, 0, "ortho"),
    "fft.ifft, shared": lambda: (x := np.fft.ifft(TALL), x * 2, x.conj(), x.imag),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name):
    as_numpy(PROGRAMS[name])
