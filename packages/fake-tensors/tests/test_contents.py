"""Which metas hold the same values."""

import torch

from opmill_fake_tensors.contents import Contents


def meta(*sizes, dtype=torch.int64):
    return torch.empty(sizes, dtype=dtype, device="meta")


def test_what_one_operator_makes_of_the_same_is_the_same():
    known, x, y = Contents(), meta(3), meta(3)
    first, second, other, typed = meta(3), meta(3), meta(3), meta(3)
    known.made("gt", (x, 1), first, view=False)
    known.made("gt", (x, 1), second, view=False)
    known.made("gt", (y, 1), other, view=False)
    known.made("gt", (x, 1.0), typed, view=False)  # 1 and 1.0 are equal in Python, and no one number
    assert known.same_as(second) is first and known.same_as(other) is other and known.same_as(typed) is typed
    deeper, again = meta(3), meta(3)
    known.made("not", (first,), deeper, view=False)
    known.made("not", (second,), again, view=False)
    assert known.same_as(again) is deeper


def test_of_floats_views_alone_are_followed():
    known, x = Contents(), meta(3, dtype=torch.float32)
    for view, same in ((False, False), (True, True)):
        one, two = x[1:], x[1:]
        known.made("f", (x, view), one, view=view)
        known.made("f", (x, view), two, view=view)
        assert (known.same_as(two) is one) is same


def test_a_write_ends_what_is_known_of_all_that_shares_the_memory():
    known, x, y = Contents(), meta(3), meta(3)
    made = {t: (meta(3), meta(3)) for t in (x, y)}
    for t, pair in made.items():
        for each in pair:
            known.made("gt", (t, 1), each, view=False)
        known.counts[id(t), "nonzero"] = t, 5
    known.written([x[1:]])
    assert all(known.same_as(made[t][1]) is made[t][0] for t in (x, y))  # both were computed before
    later = {t: meta(3) for t in (x, y)}
    for t, each in later.items():
        known.made("gt", (t, 1), each, view=False)
    assert known.same_as(later[x]) is later[x] and known.same_as(later[y]) is made[y][0]
    assert list(known.counts) == [(id(y), "nonzero")]


def test_two_tensors_from_outside_may_be_one():
    known, x, y = Contents(), meta(3), meta(3)
    known.entered(x)
    known.entered(y)
    known.counts[id(y), "nonzero"] = y, 5
    known.written([x])
    assert not known.counts


def test_an_integer_made_of_a_truth_holds_its_number_until_one_of_them_is_written():
    for written in (0, 1):
        known, x = Contents(), meta(1, dtype=torch.int64)
        truth, number = meta(1, dtype=torch.bool), meta(1, dtype=torch.int64)
        known.made("aten::eq", (x, 1), truth, view=False)
        known.made("aten::_to_copy", (truth, ("dtype", torch.int64)), number, view=False)
        assert known.number_in(number) is truth and known.number_in(truth) is truth and known.number_in(x) is x
        assert known.same_as(number) is number  # of another type
        known.written([(truth, number)[written]])
        assert known.number_in(number) is number
