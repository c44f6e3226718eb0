"""What is assumed of the layout of an array holds for arrays that lie so, and says which sizes are others."""

import pytest

np = pytest.importorskip("numpy")

from opmill_bytecode_frontend.assumptions.layouts import Laid, side_by_side  # noqa: E402

A = np.zeros((2, 3), np.float32)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("array", "exact", "open_"),
    [(A, True, True), (A.copy(), True, True), (np.zeros((5, 3), np.float32), False, True), (np.zeros((2, 4), np.float32), False, False),
     (A.astype(np.float64), False, False), (np.asfortranarray(A), False, False), (np.zeros((2, 6), np.float32)[:, ::2], False, False),
     (read_only(A), False, False), (A[0], False, False)],
    ids="same copied longer wider other-type turned with-gaps read-only a-row".split(),
)  # fmt: skip
def test_holds(array, exact, open_):
    assert Laid(A.dtype, (2, 3), A.strides)(array) is exact
    assert Laid(A.dtype, (None, 3), None)(array) is open_


def test_changed():
    assert Laid(A.dtype, (2, 3), A.strides).changed(np.zeros((4, 5), np.float32)) == {0, 1}
    assert Laid(A.dtype, (None, 3), None).changed(np.zeros((4, 5), np.float32)) == {1}
    assert Laid(A.dtype, (2, 3), A.strides).changed(A.astype(np.float64)) == set()
    assert Laid(A.dtype, (2, 3), A.strides).changed([1, 2]) == set()


def test_told():
    assert str(Laid(A.dtype, (None, 3), None)) == "is float32[?, 3]"


@pytest.mark.parametrize(
    ("array", "lies"), [(A, True), (A.T, False), (A[:, :2], False), (np.zeros(()), True), (np.zeros((1, 3))[:, ::-1], False)]
)
def test_side_by_side(array, lies):
    assert side_by_side(array) is lies
