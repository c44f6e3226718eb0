"""Who asks says what it needs to know of sizes that only data tell."""

import pytest
import torch

from opmill_fake_tensors.symbols import Sizes, sym_int
from opmill_fake_tensors.symbols.asking import check, demanded, known_from_data, positive, surely, typically


@pytest.fixture
def sizes():
    return Sizes()


@pytest.fixture
def n(sizes):
    return sym_int(sizes, sizes.new(5))


@pytest.fixture
def u(sizes):
    return sym_int(sizes, sizes.new(None, low=0))


@pytest.mark.parametrize("ask", [typically, surely, demanded])
def test_sizes_of_the_call_decide(sizes, n, ask):
    assert ask(True) is True and ask(False) is False
    assert ask(n > 3) is True and ask(n > 7) is False
    assert [str(d.relation) for d in sizes.decisions] == ["s0 >= 4", "7 >= s0"]
    assert sizes.asserted == []


def test_of_data(sizes, u):
    assert typically(u > 1) is True and surely(u > 1) is False
    assert typically(u == 0) is False and surely(u >= 0) is True
    assert sizes.asserted == []
    assert demanded(u > 1) is True
    assert [str(d.relation) for d in sizes.asserted] == ["u0 >= 2"]
    assert surely(u > 1) is True
    assert sizes.decisions == []


def test_positive(sizes, n, u):
    assert positive(0) == 1 and positive(3) == 3
    assert positive(u) is u
    assert int(positive(n)) == 5


def test_known_from_data(n, u):
    assert [known_from_data(each) for each in (3, n, u)] == [False, False, True]


def test_check_raises_what_it_is_told():
    check(True, "fits", "ValueError")
    with pytest.raises(ValueError, match="does not fit"):
        check(False, "does not fit", "ValueError")
    with pytest.raises(RuntimeError) as told:
        check(False, "", "RuntimeError")
    assert told.value.args == ()


def test_torchs_own_truths_are_asked(n):
    assert isinstance(n > 3, torch.SymBool)
