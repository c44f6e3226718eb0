"""Programs with assert statements: apart from the tests, where pytest writes them anew."""


def asserts(x, m, i):
    assert i.item() < 6, "too many"
    assert m.any()
    return x[m] * 2


def caught(x, m, i):
    try:
        assert m.any()
    except AssertionError:
        return x * 3
    return x * 2
