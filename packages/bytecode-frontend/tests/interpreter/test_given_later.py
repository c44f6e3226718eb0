"""Classes that get a method of the data model, or lose it, between calls: what a class had not is looked for again."""

from __future__ import annotations

import collections
import copy
import enum
import logging
import re
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

ROWS = [
    ("__call__", "callable(o)", lambda s, *a: 7),
    ("__call__", "collections.defaultdict(o)['k']", lambda s: 4),
    ("__next__", "next(o)", lambda s: 7),
    ("__iter__", "[*o]", lambda s: iter([5])),
    ("__iter__", "5 in o", lambda s: iter([5])),
    ("__iter__", "sum(o)", lambda s: iter([5])),
    ("__getitem__", "list(o)", lambda s, k: k + 7 if k < 2 else [][k]),
    ("__getitem__", "7 in o", lambda s, k: k + 7 if k < 2 else [][k]),
    ("__getitem__", "list(reversed(o))", lambda s, k: k),
    ("__len__", "list(reversed(o))", lambda s: 0),
    ("__len__", "not o", lambda s: 3),
    ("__bool__", "not o", lambda s: True),
    ("__contains__", "5 in o", lambda s, k: k == 5),
    ("__eq__", "o in [1]", lambda s, t: True),
    ("__hash__", "{o: 1}.get(5)", lambda s: 5),
    ("__radd__", "x + o", lambda s, t: "radd"),
    ("__round__", "round(o)", lambda s, n=0: "round"),
    ("__divmod__", "divmod(o, 2)", lambda s, t: "dm"),
    ("__rdivmod__", "divmod(2, o)", lambda s, t: "rdm"),
    ("__index__", "range(o)", lambda s: 2),
    ("__index__", "'ab' * o", lambda s: 2),
    ("__index__", "[1, 2] * o", lambda s: 2),
    ("__str__", "str(o)", lambda s: "str"),
    ("__repr__", "f'{o}'", lambda s: "repr"),
    ("__format__", "f'{o}'", lambda s, f: "fmt" + f),
    ("__copy__", "copy.copy(o) == 'c'", lambda s: "c"),
    ("__deepcopy__", "copy.deepcopy([o]) == ['d']", lambda s, m: "d"),
    ("__reduce__", "copy.copy(o) == 5", lambda s: (int, (5,))),
    ("__reduce_ex__", "copy.deepcopy(o) == 5", lambda s, p: (int, (5,))),
    ("__getstate__", "vars(copy.copy(o))", lambda s: {"st": 1}),
    ("__setstate__", "vars(copy.copy(o)).get('st')", lambda s, st: s.__dict__.update(st=2)),
    ("__enter__", "entered(o)", lambda s: "in"),
    ("__getattr__", "hasattr(o, 'zz')", lambda s, k: k),
    ("__getattribute__", "o.a", lambda s, k: k),
    ("__getattribute__", "hasattr(o, 'nn')", lambda s, k: k),
    ("__setattr__", "(setattr(o, 'q', 1), vars(o))", lambda s, k, v: None),
    ("__dir__", "dir(o) == ['d']", lambda s: ["d"]),
    ("keys", "dict(o)", lambda s: ["k"]),
    ("keys", "{**o}", lambda s: []),
    ("__class_getitem__", "type(o)[1]", classmethod(lambda c, k: (c.__name__, k))),
    ("__init_subclass__", "type('S', (type(o),), {}).__name__", classmethod(lambda c: 1 / 0)),
    ("late", "o.late", property(lambda s: 5)),
    ("late", "o.late()", lambda s: 6),
]
OF_TUPLES = ("o.late", "o.late()", "not o", "str(o)", "f'{o}'", "callable(o)", "[*o]", "sum(o)", "{o: 1}.get(5)", "round(o)", "next(o)")


def entered(o: Any) -> Any:
    with o as found:
        return found


def outcomes(base: type, question: str, name: str, method: Any, wrapped: Any) -> list[str]:
    names = {"BASE": base, "collections": collections, "copy": copy, "entered": entered, "__name__": __name__}
    exec("class C(BASE): pass\nclass D(C): pass", names)
    exec(f"def program(o, x):\n try: return {question}, x + 1\n except Exception as e: return type(e).__name__, str(e), x + 1", names)
    first, second, function, found = names["C"], names["D"], wrapped(names["program"]), []
    o = second()
    o.a = 1
    for change in (
        lambda: None, lambda: setattr(first, name, method), lambda: setattr(second, name, method), lambda: delattr(second, name),
        lambda: delattr(first, name),
    ):  # fmt: skip
        change()
        found.append(re.sub("0x[0-9a-f]+", "", str(function(o, torch.ones(2)))))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("base", "name", "question", "method"),
    [(base, *row) for base in (object, ValueError, tuple) for row in ROWS if base is not tuple or row[1] in OF_TUPLES],
    ids=lambda part: getattr(part, "__name__", type(part).__name__ if not isinstance(part, str) else part),
)
def test_a_method_comes_and_goes(base: type, name: str, question: str, method: Any) -> None:
    want = outcomes(base, question, name, method, lambda function: function)
    assert outcomes(base, question, name, method, lambda function: capture(function, "eager")) == want


def test_a_name_of_a_class_comes() -> None:
    class Given:
        pass

    def names(o: Any, x: Any) -> Any:
        return "later" in dir(o), "later" in dir(Given), x + 1

    captured = capture(names, "eager")
    assert captured(Given(), torch.ones(1))[:2] == (False, False)
    Given.later = 1
    assert captured(Given(), torch.ones(1))[:2] == (True, True)


def test_a_name_of_an_object_comes_in_captured_code() -> None:
    class Given:
        pass

    def names(o: Any, x: Any) -> Any:
        before = "new" in dir(o), "a" in dir(o)
        o.__dict__["new"] = 1
        return before, "new" in dir(o), x + 1

    o = Given()
    o.a = 1
    captured = capture(names, "eager")
    assert captured(o, torch.ones(1))[:2] == ((False, True), True)
    assert captured(Given(), torch.ones(1))[:2] == ((False, False), True)


class Kept:
    __slots__ = ("a", "count")

    def __init__(self, a: Any) -> None:
        self.a, self.count = a, 0


class Noting:
    """Notes what is asked of it."""

    def __init__(self, kept: Any) -> None:
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "asked", [])

    def __getattribute__(self, name: str) -> Any:
        if name in ("asked", "kept"):
            return object.__getattribute__(self, name)
        self.asked.append(name)
        return getattr(self.kept, name)


def test_an_object_of_another_class_is_not_asked_for_what_was_assumed() -> None:
    def f(o: Any, x: Any) -> Any:
        return o.count, x * o.a

    captured, other = capture(f, "eager"), Noting(Kept(3))
    for o in (Kept(1), Kept(2), other, other):
        assert str(captured(o, torch.ones(1))) == str(f(o, torch.ones(1)))
    assert other.asked == ["count", "a"] * 4


class Doubled(property):
    def __set__(self, holder: Any, value: Any) -> None:
        holder.__dict__["set"] = value * 2


class Described:
    plain = property(lambda self: 1)
    own = Doubled(lambda self: 2)


Described.later = property(lambda self: 3)
Described.other = Described.plain


@pytest.mark.parametrize("name", ["plain", "later", "other", "own"])
def test_properties_refuse_in_their_own_words(name: str) -> None:
    def f(o: Any, x: Any) -> Any:
        seen = []
        for change in (lambda: setattr(o, name, 1), lambda: delattr(o, name)):
            try:
                change()
            except AttributeError as error:
                seen.append(str(error))
        return seen, vars(o), x + 1

    assert str(capture(f, "eager")(Described(), torch.ones(1))) == str(f(Described(), torch.ones(1)))


def test_a_logger_is_asked_as_it_is() -> None:
    def f(logger: Any, x: Any) -> Any:
        before = logger.isEnabledFor(logging.INFO)
        logger.disabled = not logger.disabled
        return before, logger.isEnabledFor(logging.INFO), x + 1

    captured = capture(f, "eager")
    for level in (logging.INFO, logging.ERROR, logging.INFO):
        one, other = logging.Logger("one", level), logging.Logger("other", level)
        for _ in range(3):
            assert captured(one, torch.ones(1))[:2] == f(other, torch.ones(1))[:2]


class Mode(enum.Enum):
    TRAIN = 1


class Nothing:
    __copy__ = __deepcopy__ = None

    def __init__(self) -> None:
        self.a = [1]


def test_what_only_a_class_has_and_what_is_none() -> None:
    def f(x: Any) -> Any:
        made, deep = copy.copy(Nothing()), copy.deepcopy(Nothing())
        return bool(Mode.TRAIN), not Mode.TRAIN, 1 if Mode.TRAIN else 2, made.a, deep.a, x + 1

    assert str(capture(f, "eager", fullgraph=True)(torch.ones(1))) == str(f(torch.ones(1)))


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_handler_of_the_program_gets_a_record_where_it_stands() -> None:
    def f(logger: Any, lines: Any, x: Any) -> Any:
        logger.info("first %s", 1)
        seen = list(lines)
        lines.clear()
        logger.info("second")
        return seen, x + 1

    captured = capture(f, "eager")
    quiet = logging.Logger("quiet", logging.INFO)
    quiet.addHandler(logging.NullHandler())
    assert captured(quiet, [], torch.ones(1))[0] == []
    for _ in range(2):
        handler = Collecting()
        quiet.addHandler(handler)
        assert captured(quiet, handler.lines, torch.ones(1))[0] == ["first 1"] and handler.lines == ["second"]
        quiet.removeHandler(handler)
