"""Exceptions as Python has them: tracebacks, chains, notes, fields; ones that come from outside of captured code."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import traceback
import types

import pytest
import torch

from opmill_bytecode_frontend import capture


class Base:
    def __enter__(self):
        return self

    def __exit__(self, k, v, tb):
        self.seen = (k, v, tb is None, type(tb).__name__, v is not None and v.__traceback__ is tb)
        return True


def raiser(x, n=0):
    if n:
        return raiser(x, n - 1)
    raise KeyError("k")


def given_to_exit(x):
    b = Base()
    with b:
        raiser(x + 1, 2)
    return b.seen[0], b.seen[2:], x * 2


def walked(x):
    try:
        raiser(x)
    except KeyError as e:
        return e.__traceback__ is None, [f.name for f in traceback.extract_tb(e.__traceback__)], x * 2


def formatted(x):
    try:
        raiser(x, 1)
    except KeyError:
        s = traceback.format_exc()
        return s.split("\n")[-2], s.count("raiser"), x * 2


def set_and_replaced(x):
    e = ValueError(1)
    a = e.__traceback__
    try:
        raise e.with_traceback(None)
    except ValueError as g:
        b = g.__traceback__ is not None
        tb = g.__traceback__
        g.__traceback__ = None
        c = g.__traceback__
    try:
        raise RuntimeError("x").with_traceback(tb)
    except RuntimeError as h:
        names = [f.name for f in traceback.extract_tb(h.__traceback__)]
    return a, b, c, names, x + 1


def from_none(x):
    try:
        try:
            raiser(x)
        except KeyError:
            raise ValueError("v") from None
    except ValueError as e:
        return type(e.__context__).__name__, e.__cause__, e.__suppress_context__, x + 1


def chain_and_notes(x):
    try:
        try:
            raiser(x)
        except KeyError as k:
            raise ValueError("v") from k
    except ValueError as e:
        e.add_note("hi")
        e.add_note("there")
        k, v, tb = sys.exc_info()
        return (
            type(e.__context__).__name__,
            type(e.__cause__).__name__,
            e.__suppress_context__,
            e.__notes__,
            k is ValueError,
            v is e,
            tb is e.__traceback__,
            x + 1,
        )


def refusals(x):
    try:
        raise ValueError from 5
    except TypeError as e:
        s = str(e)
    try:
        raise 5
    except TypeError as e:
        s += str(e)
    try:
        raise int
    except TypeError as e:
        s += str(e)
    try:
        try:
            raise ValueError
        except 5:
            pass
    except TypeError as e:
        s += str(e)
    e = ValueError()
    for n, v in [("__cause__", 5), ("__context__", 5), ("__traceback__", 5)]:
        try:
            setattr(e, n, v)
        except TypeError as g:
            s += str(g)
    try:
        e.add_note(5)
    except TypeError as g:
        s += str(g)
    return s, x + 1


def by_hand(x):
    try:
        raiser(x)
    except KeyError as e:
        tb = e.__traceback__
        n = 0
        while tb is not None:
            n += 1
            l = tb.tb_lineno
            tb = tb.tb_next
    return n, l, x * 2


def exit_stack(x):
    out = []
    with contextlib.ExitStack() as st:
        st.push(lambda k, v, tb: out.append((k, tb is not None)) or True)
        raiser(x)
    return out, x + 1


def of_an_exception(x):
    try:
        raiser(x)
    except KeyError as e:
        return "".join(traceback.format_exception(e)).count("raiser"), x + 1


def in_finally(x):
    try:
        try:
            raiser(x)
        finally:
            y = sys.exc_info()[2] is not None
    except KeyError:
        pass
    return y, sys.exc_info(), x + 1


def of_a_function_in_c(x):
    try:
        open("/nonexistent/file")
    except OSError as e:
        return e.errno, e.filename, str(e), repr(e), x + 1


class My(ValueError):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b


def own_class(x):
    try:
        raise My(1, 2)
    except My as e:
        return repr(e), str(e), e.b, e.args, x + 1


def operating_system(x):
    try:
        raise OSError(2, "no", "fn")
    except OSError as e:
        return e.errno, e.filename, str(e), repr(e), e.args, type(e).__name__, x + 1


def context_manager(x):
    @contextlib.contextmanager
    def cm():
        try:
            yield 1
        except KeyError as e:
            raise ValueError("cm") from e

    try:
        with cm():
            raiser(x)
    except ValueError as e:
        return type(e.__cause__).__name__, [f.name for f in traceback.extract_tb(e.__traceback__)], x + 1


def kept(x):
    es = []
    for i in range(3):
        try:
            raise ValueError(i)
        except ValueError as e:
            es.append(e)
    return [(e.args, e.__context__) for e in es], x + 1


ALL = [
    given_to_exit,
    walked,
    formatted,
    set_and_replaced,
    from_none,
    chain_and_notes,
    refusals,
    by_hand,
    exit_stack,
    of_an_exception,
    in_finally,
    of_a_function_in_c,
    own_class,
    operating_system,
    context_manager,
    kept,
]


def of(function, make):
    """Two calls: the second one runs what the first one made."""
    made = make(function)
    return [[part if not isinstance(part, torch.Tensor) else part.tolist() for part in made(torch.ones(2))] for _ in range(2)]


@pytest.mark.parametrize("function", ALL)
def test_exceptions_inside_of_captured_code(function):
    assert of(function, capture) == of(function, lambda f: f)


@pytest.mark.parametrize(
    "function", [given_to_exit, from_none, chain_and_notes, refusals, exit_stack, in_finally, own_class, operating_system, kept]
)
def test_what_does_not_look_into_a_traceback_is_captured_whole(function):
    assert of(function, lambda f: capture(f, fullgraph=True)) == of(function, lambda f: f)


def test_exceptions_of_native_code_are_known_by_their_class():
    made = []

    def failing(x):
        if x.sum().item() > -100:
            raise ValueError("bad", [1])

    def f(x):
        for turn in range(2):
            try:
                failing(x)
            except ValueError as e:
                x = x * 2
                found = e
        return x, found.args[0], found.__traceback__ is not None, found.__context__

    compiled = capture(f, on_translation=made.append)
    want = f(torch.ones(2))
    counts = []
    for _ in range(4):
        got = compiled(torch.ones(2))
        assert got[0].tolist() == want[0].tolist() and got[1:] == want[1:]
        counts.append(len(made))
    assert counts[1] == counts[3]


def test_what_is_written_to_an_exception_of_before_the_call_stays():
    def f(x, e, other):
        e.__cause__, e.args = other, (1, 2)
        e.__suppress_context__ = False
        e.add_note("noted")
        try:
            raise e
        except ValueError as caught:
            same = caught is e
        return x + 1, same

    first, second = ValueError("a"), ValueError("a")
    want, got = f(torch.ones(2), first, KeyError()), capture(f, fullgraph=True)(torch.ones(2), second, KeyError())
    assert want[1] == got[1]
    for e in (first, second):
        assert type(e.__cause__) is KeyError and e.args == (1, 2) and not e.__suppress_context__ and e.__notes__ == ["noted"]


# ---- exceptions that are kept ------------------------------------------------------------------------------------------------------

KEPT: list = []


def deep(n):
    if n:
        return deep(n - 1)
    return [][n]


def returned(x):
    try:
        deep(2)
    except IndexError as e:
        kept = e
    return kept, x + 1


def chained(x):
    out = []
    try:
        try:
            deep(1)
        except IndexError as e:
            raise KeyError("k") from e
    except KeyError as f:
        out.append(f)
    try:
        try:
            deep(0)
        except IndexError:
            {}["q"]
    except KeyError as f:
        out.append(f)
    return out, x + 1


def caught_further_in(x):
    def f():
        try:
            deep(0)
        except IndexError as e:
            return e

    return [f()], x + 1


def stored_outside(x):
    try:
        _ = 1 // 0
    except ZeroDivisionError as e:
        KEPT.append(e)
    return x + 1


def only_the_traceback(x):
    try:
        deep(1)
    except IndexError as e:
        tb = e.__traceback__
    return tb, x + 1


def without_traceback(x):
    try:
        deep(1)
    except IndexError as e:
        kept = e.with_traceback(None)
    return kept, x + 1


def kept_over_a_break(x):
    try:
        deep(1)
    except IndexError as e:
        kept = e
        n = x.sum().tolist()
    return kept, n, x + 1


def frames(tb):
    return [(f.name, f.lineno, f.line) for f in traceback.extract_tb(tb)]


def looked_at(value):
    if isinstance(value, BaseException):
        links = looked_at(value.__context__), looked_at(value.__cause__), value.__suppress_context__
        return type(value).__name__, value.args, frames(value.__traceback__), links
    if isinstance(value, (list, tuple)):
        return [looked_at(v) for v in value]
    return frames(value) if isinstance(value, types.TracebackType) else str(value)


KEEPING = [returned, chained, caught_further_in, stored_outside, only_the_traceback, without_traceback, kept_over_a_break]


@pytest.mark.parametrize("function", KEEPING, ids=lambda f: f.__name__)
def test_exceptions_that_are_kept_show_where_they_came_up(function):
    x = torch.ones(2)
    compiled = capture(function, "eager", fullgraph=function is not kept_over_a_break)
    KEPT.clear()
    want = looked_at(function(x)), looked_at(KEPT)
    for _ in range(2):
        KEPT.clear()
        assert (looked_at(compiled(x)), looked_at(KEPT)) == want


def own_variables(x):
    a = 3  # noqa: F841
    y = x + 1
    gc.isenabled()
    frame = sys._getframe()
    return y, sorted(frame.f_locals), frame.f_locals["a"]


def own_line(x):
    y = x + 1
    frame = sys._getframe()
    gc.isenabled()
    return y, frame.f_lineno - frame.f_code.co_firstlineno


def current_variables(x):
    a = 3
    y = x + 1
    gc.isenabled()
    b = 4
    return y, sorted(inspect.currentframe().f_locals), a + b


def line_of_caller():
    return sys._getframe(1).f_lineno - sys._getframe(1).f_code.co_firstlineno


def line_behind_a_break(x):
    y = x + 1
    gc.isenabled()
    return y, line_of_caller()


@pytest.mark.parametrize("function", [own_variables, own_line, current_variables, line_behind_a_break])
def test_what_a_function_sees_of_its_frame_behind_a_break(function):
    captured = capture(function, "eager")
    for _ in range(3):
        x = torch.ones(2)
        expected, found = function(x), captured(x)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]
