"""Exceptions in captured code, against Python: what is raised, what is around it, and what runs on the way."""

import contextlib

import pytest
from differing import attempt, differs, told


class Mine(ValueError):
    def __init__(self, code, text="t"):
        super().__init__(text)
        self.code = code


def _chain():
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise Mine(3) from e
    except Mine as e:
        return type(e.__cause__), e.__context__ is e.__cause__, e.__suppress_context__, e.code, e.args, str(e)


def _context():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            [][1]  # noqa: PLE0643
    except IndexError as e:
        first = type(e.__context__), e.__cause__, e.__suppress_context__
    try:
        try:
            raise KeyError
        except KeyError:
            raise Mine(1) from None
    except Mine as e:
        return first, e.__cause__, e.__suppress_context__, type(e.__context__)


def _finally():
    def inner(k):
        try:
            if k == 0:
                return told("returned")
            if k == 1:
                raise ValueError(k)
            told("plain")
        except ValueError as e:
            return told(e.args)
        else:
            told("else")
        finally:
            told("finally")
            if k == 3:
                return "from finally"
        return "end"

    return [inner(k) for k in range(4)]


def _loops():
    out = []
    for k in range(4):
        try:
            if k == 1:
                continue
            if k == 3:
                break
            out.append(k)
        finally:
            out.append(("f", k))
    return out


def _reraised():
    try:
        try:
            raise Mine(7)
        except ValueError:
            told("seen")
            raise
    except Mine as e:
        return e.code, attempt(lambda: _bare())


def _bare():
    raise  # noqa: PLE0704


def _unbound():
    try:
        raise KeyError
    except KeyError:
        pass
    return attempt(lambda: e)  # noqa: F821


def _local():
    try:
        raise KeyError
    except KeyError:
        pass
    return e  # noqa: F821


class Manager:
    def __init__(self, swallow):
        self.swallow = swallow

    def __enter__(self):
        return told("enter")

    def __exit__(self, kind, value, trace):
        told((kind, str(value)))
        return self.swallow


def _with():
    with Manager(True) as m, Manager(False):
        raise ValueError("x")
    after = m
    return after, attempt(lambda: _leaves())


def _leaves():
    with Manager(False):
        return 1 / 0


def _group():
    seen = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), Mine(3)])
    except* ValueError as g:
        seen.append([type(e) for e in g.exceptions])
    except* KeyError as g:
        seen.append([e.args for e in g.exceptions])
    return seen


def _tuple():
    kinds = (KeyError, ZeroDivisionError)
    try:
        1 // 0
    except kinds as e:
        return type(e), str(e)


def _suppressed():
    with contextlib.suppress(KeyError, IndexError):
        told("before")
        [][0]  # noqa: PLE0643
        told("never")
    return "after"


def _wrong():
    try:
        raise KeyError
    except 5:
        pass


PROGRAMS = {
    "cause": lambda x: _chain(),
    "context": lambda x: _context(),
    "finally": lambda x: _finally(),
    "finally in loops": lambda x: _loops(),
    "raised again": lambda x: _reraised(),
    "the name is gone": lambda x: (_unbound(), attempt(_local)),
    "with": lambda x: _with(),
    "groups": lambda x: _group(),
    "one of several": lambda x: _tuple(),
    "suppressed": lambda x: _suppressed(),
    "what is none": lambda x: [
        attempt(_wrong),
        attempt(lambda: _raises(5)),
        attempt(lambda: _raises(Mine)),
        attempt(lambda: _raises(KeyError("a", 1))),
    ],
    "notes": lambda x: _noted(),
    "asserted": lambda x: [attempt(lambda: _asserts(0)), attempt(lambda: _asserts(1))],
    "text": lambda x: (
        str(KeyError("a")),
        str(ValueError()),
        repr(Mine(1)),
        str(ValueError(1, 2)),
        str(OSError(2, "no")),
        KeyError("a").args,
        str(KeyError("a", "b")),
    ),
    "equal and hashed by identity": lambda x: (
        ValueError(1) == ValueError(1),
        len({ValueError(1), ValueError(1)}),
        isinstance(Mine(1), ValueError),
        issubclass(KeyError, LookupError),
    ),
    "attributes": lambda x: (
        attempt(lambda: [].nothing),
        attempt(lambda: "a".nothing()),
        attempt(lambda: nothing),  # noqa: F821
        attempt(lambda: (None).x),
        attempt(lambda: int("a")),
    ),  # noqa: F821
    "calls": lambda x: (
        attempt(lambda: _asserts()),
        attempt(lambda: _asserts(1, 2)),
        attempt(lambda: _asserts(y=1)),
        attempt(lambda: len()),
        attempt(lambda: 5()),
    ),
}


def _raises(e):
    raise e


def _noted():
    e = ValueError("a")
    e.add_note("n")
    return e.__notes__, attempt(lambda: e.add_note(3))


def _asserts(v):
    if not v:
        raise AssertionError("no", v)
    return v


@pytest.mark.parametrize("name", PROGRAMS)
def test_exceptions_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name != "calls")
