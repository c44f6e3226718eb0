"""Exceptions whose class has ways of its own to be written to or read (frozen ones of attrs and dataclasses, properties named as Python's
fields) leave captured code without their class being asked more than plainly."""

import pytest

from opmill_bytecode_frontend import capture


class Refused(Exception):
    pass


class Frozen(KeyError):
    """As attrs makes them."""

    def __init__(self, ref):
        object.__setattr__(self, "ref", ref)

    def __setattr__(self, name, value):
        if name not in ("__cause__", "__context__", "__traceback__", "__suppress_context__", "__notes__"):
            raise Refused(name)
        BaseException.__setattr__(self, name, value)


class Sealed(OSError):
    """Refuses all."""

    def __setattr__(self, name, value):
        raise Refused(name)


class Counting(ValueError):
    written: list[str] = []

    def __setattr__(self, name, value):
        self.written.append(name)
        super().__setattr__(name, value)


class Hiding(ValueError):
    """Has something else where Python keeps arguments and tracebacks."""

    args = property(lambda self: "hidden")
    __cause__ = property(lambda self: "no cause")
    __traceback__ = property(lambda self: "no traceback")


class Reading(RuntimeError):
    read: list[str] = []

    def __getattribute__(self, name):
        if name != "read" and not name.startswith("_"):
            Reading.read.append(name)
        return super().__getattribute__(name)


KINDS = (Frozen, Sealed, Counting, Hiding, Reading)


def raised(kind):
    raise kind("u")


def in_another(kind):
    try:
        return {}["u"]
    except KeyError:
        raise kind("u")  # noqa: B904


def from_another(kind):
    try:
        return {}["u"]
    except KeyError as error:
        raise kind("u") from error


def again_behind_a_break(kind):
    try:
        raise kind("u")
    except kind:
        print(end="")
        raise


def caught(kind):
    try:
        raised(kind)
    except kind as error:
        return error


def with_a_note(kind):
    try:
        raise kind("u")
    except kind as error:
        error.add_note("x")
        raise


def instead_of_another(kind):
    first, second = kind("u"), kind("v")
    try:
        raise first
    except kind:
        raise second from None


def in_a_group(kind):
    raise ExceptionGroup("g", [kind("u"), ValueError(1)])


def as_a_cause(kind):
    raise ValueError(1) from kind("u")


def of_before(kind):
    error = kind.__new__(kind, "u") if kind is Frozen else kind("u")
    try:
        raise error
    except kind as same:
        print(end="")
        return same is error, same


def of_its_class(kind):
    try:
        raise kind("u")
    except kind as error:
        print(end="")
        return error.__class__, str(error)


PROGRAMS = [
    *(raised, in_another, from_another, again_behind_a_break, caught, with_a_note, instead_of_another, in_a_group, as_a_cause, of_before),
    of_its_class,
]


def fields(error):
    """What an exception holds, whatever its class says."""
    if not isinstance(error, BaseException):
        return error
    links = [BaseException.__dict__[name].__get__(error) for name in ("__cause__", "__context__", "__suppress_context__")]
    traceback, lines = BaseException.__dict__["__traceback__"].__get__(error), []
    while traceback is not None:
        lines.append((traceback.tb_frame.f_code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    inner = [fields(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return type(error).__name__, repr(BaseException.args.__get__(error)), *map(fields, links), lines[1:], inner


def seen(function, kind):
    Counting.written.clear()
    Reading.read.clear()
    try:
        result = function(kind)
        result = tuple(map(fields, result)) if type(result) is tuple else fields(result)
    except Exception as error:
        result = "raised", fields(error)
    return result, list(Counting.written), list(Reading.read)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_class_is_not_asked(program, kind):
    compiled = capture(program, "eager")
    for _ in range(2):
        assert seen(compiled, kind) == seen(program, kind)
