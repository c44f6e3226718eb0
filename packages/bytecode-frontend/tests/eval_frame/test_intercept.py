"""The frame hook: who is offered, what runs instead, what is left behind."""

import gc
import sys
import threading
import weakref

import pytest

from opmill_bytecode_frontend.eval_frame import intercept, is_installed, skip


def add(a, b=2, *rest, c=3, d, **more):
    """Takes every kind of parameter."""
    return ("add", a, b, rest, c, d, more)


def double(x):
    return x * 2


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def replace(function, replacement):
    return lambda code, called: replacement if code is function.__code__ else None


@pytest.fixture(autouse=True)
def _nothing_is_left_installed():
    assert not is_installed()
    yield
    assert not is_installed()


def test_nothing_is_offered_outside():
    seen = []
    with intercept(lambda code, function: seen.append(code.co_name)):
        assert is_installed()
        double(1)
    double(2)
    assert seen == ["double"]


def test_the_function_object_is_given():
    seen = []
    with intercept(lambda code, function: seen.append((code, function))):
        double(1)
    assert seen == [(double.__code__, double)]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {"d": 4}), ((1, 5, 6, 7), {"d": 4, "c": 0}), ((1,), {"b": 3, "d": 4, "e": 5, "f": 6})],
)
def test_the_replacement_gets_the_arguments(args, kwargs):
    expected = add(*args, **kwargs)

    def replacement(*args, **kwargs):
        return add(*args, **kwargs)

    def instead(*args, **kwargs):
        return ("instead", replacement(*args, **kwargs))

    with intercept(replace(add, instead)):
        assert add(*args, **kwargs) == ("instead", expected)


def test_bad_arguments_raise_as_without_hook():
    with intercept(replace(double, lambda x: x)), pytest.raises(TypeError, match="positional argument"):
        double()


def test_callees_of_unreplaced_functions_are_offered():
    def outer():
        return [double(x) for x in (1, 2)] + list(map(double, (3,)))

    with intercept(replace(double, lambda x: -x)):
        assert outer() == [-1, -2, -3]


def test_the_replacement_runs_without_interception():
    calls = []

    def replacement(x):
        calls.append(x)
        return double(x) + 1

    with intercept(replace(double, replacement)):
        assert double(3) == 7
        assert double(4) == 9
    assert calls == [3, 4]


def test_recursion():
    seen = []
    with intercept(lambda code, function: seen.append(1) if code is fibonacci.__code__ else None):
        assert fibonacci(10) == 55
    assert len(seen) == 177


def test_deep_recursion_is_still_an_exception():
    def down(n):
        return down(n + 1)

    with intercept(lambda code, function: None), pytest.raises(RecursionError):
        down(0)


def test_exceptions_leave_through_the_replacement():
    def fail(x):
        raise KeyError(x)

    with intercept(replace(double, fail)), pytest.raises(KeyError):
        double(1)
    assert double(1) == 2


def test_an_exception_of_the_callback_is_raised_by_the_call():
    def broken(code, function):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"), intercept(broken):
        double(1)
    assert sys.exception() is None


def test_skipped_code_is_not_offered_but_its_callees_are():
    def outer(x):
        return double(x)

    skip(outer.__code__)
    seen = []
    with intercept(lambda code, function: seen.append(code.co_name)):
        outer(1)
    skip(outer.__code__, False)
    with intercept(lambda code, function: seen.append(code.co_name)):
        outer(1)
    assert seen == ["double", "outer", "double"]


def test_generators_run_as_they_are():
    def count(n):
        for i in range(n):
            yield double(i)

    seen = []
    with intercept(lambda code, function: seen.append(code.co_name)):
        started = count(3)
        assert next(started) == 0
    assert list(started) == [2, 4]
    assert seen == ["double"]


def test_contexts_nest_and_suspend():
    def minus(x):
        return -x

    with intercept(replace(double, minus)):
        with intercept(None):
            assert double(1) == 2
        with intercept(replace(double, str)):
            assert double(1) == "1"
        assert double(1) == -1


def test_other_threads_are_left_alone():
    results, inside, done = {}, threading.Event(), threading.Event()

    def other():
        inside.wait(100)
        results["other"] = double(2)
        with intercept(replace(double, lambda x: "other")):
            results["own"] = double(2)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with intercept(replace(double, lambda x: "main")):
        inside.set()
        assert done.wait(100)
        results["main"] = double(2)
    thread.join()
    assert results == {"other": 4, "own": "other", "main": "main"}


def test_replaced_frames_free_their_arguments():
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)

    def many(a, *rest, **named):
        cell = lambda: (a, rest)  # noqa: E731 - makes `a` a cell
        return cell

    with intercept(replace(many, lambda *a, **k: None)):
        for _ in range(100):
            many(thing, thing, named=thing)
    before = sys.getrefcount(None)
    del thing
    gc.collect()
    assert alive() is None
    assert before


def test_reference_counts_stay(n=2000):
    value = object()
    with intercept(replace(double, lambda x: x)):
        double(value)
        before = sys.getrefcount(value), sys.getrefcount(double.__code__), sys.getrefcount(double)
        for _ in range(n):
            double(value)
        after = sys.getrefcount(value), sys.getrefcount(double.__code__), sys.getrefcount(double)
    assert after == before


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="callback"), intercept(3):
        pass
