"""When two constants are the same."""

import itertools

import pytest

torch = pytest.importorskip("torch")
from opmill_guards.constants import holds_set, is_constant, key, same  # noqa: E402

NAN = float("nan")
DISTINCT = [
    0, 1, True, False, 0.0, -0.0, 1.0, NAN, 0j, complex(-0.0, 0), complex(0, NAN), "", "a", b"", b"a", None, ..., (), (1,), (1.0,), (True,), ((1,),),
    frozenset(), frozenset({1}), frozenset({1.0}), frozenset({True}), (frozenset({1}),), torch.float32, torch.device("cpu"), torch.strided,
    torch.contiguous_format, torch.Size([1]), torch.Size([]),
]  # fmt: skip


def test_constants_are_the_same_by_type_and_bits():
    for a, b in itertools.product(range(len(DISTINCT)), repeat=2):
        assert same(DISTINCT[a], DISTINCT[b]) is (a == b), (DISTINCT[a], DISTINCT[b])
    assert same((NAN, -0.0), (float("nan"), -0.0)) and not same((0.0,), (-0.0,))


def test_keys_are_hashable_and_are_the_same_where_the_constants_are():
    assert len({key(v) for v in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize(
    ("value", "constant"),
    [
        *((v, True) for v in (1, "a", (1, (2.0,)), frozenset({(1,)}), torch.float16, torch.Size([2]))),
        *((v, False) for v in ([], {}, set(), (1, []), object(), int, len, range(3), bytearray(), type("I", (int,), {})(3), torch.ones(1))),
    ],
    ids=lambda part: type(part).__name__ if type(part) is object else repr(part),
)
def test_what_never_changes(value, constant):
    assert is_constant(value) is constant


def test_sets_inside():
    assert holds_set((1, (frozenset(),))) and not holds_set((1, (2,))) and not holds_set("a")
