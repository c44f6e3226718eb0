"""Sets, dictionaries and what holds itself: as CPython's own tests of them saw them behind graph breaks."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch

from opmill_bytecode_frontend import capture


class Shown:
    def __repr__(self):
        return repr(self.value)


class Counted(int):
    def __init__(self, *args):
        self.hashes = 0

    def __hash__(self):
        self.hashes += 1
        return int.__hash__(self)


class Alike:
    """All have one hash, and being compared depends on a name that the program changes."""

    compared = 0

    def __eq__(self, other):
        Alike.compared += ready
        return self is other

    def __hash__(self):
        return 7


class Frozen(frozenset):
    pass


ready = 0


def holds_itself(kind):
    item = Shown()
    item.value = kind([item])
    return repr(item.value), item.value, next(iter(item.value)).value is item.value


def hashes_of_keys():
    table = dict.fromkeys([Counted(k) for k in range(5)])
    keys = list(table)
    made = set(table), frozenset(table), dict.fromkeys(set(table)), dict.fromkeys(frozenset(table), 1), dict.fromkeys(table)
    return [key.hashes for key in keys], [len(each) for each in made]


def keys_of_one_hash():
    global ready
    ready = 0
    first = {Alike() for _ in range(4)}
    ready = 1
    Alike.compared = 0
    torch.ones(2).tolist()
    second = dict.fromkeys(first)
    return len(first), len(second), Alike.compared


def copies():
    frozen, derived = frozenset([1]), Frozen([1])
    return frozen.copy() is frozen, derived.copy() is derived, type(derived.copy())


class Nothing:
    known = None

    def __getattr__(self, name):
        raise AttributeError


class Told:
    def __getattr__(self, name):
        raise AttributeError("text", name="another", obj=5)


def what_an_error_tells():
    found = []
    for cls in (Nothing, Told):
        try:
            cls().unknown
        except AttributeError as error:
            found.append((error.name, type(error.obj).__name__, error.args))
    return found


def between(x, body):
    y = x + 1
    result = body()
    x.tolist()
    return y * 2, result


BODIES = {
    "a set that holds itself": lambda: holds_itself(set)[::2],
    "a frozenset that holds itself": lambda: holds_itself(frozenset)[::2],
    "a tuple that holds itself": lambda: holds_itself(tuple)[::2],
    "a list that holds itself": lambda: holds_itself(list)[::2],
    "hashes of keys": hashes_of_keys,
    "keys of one hash": keys_of_one_hash,
    "copies": copies,
    "what an error tells": what_an_error_tells,
}


@pytest.mark.parametrize("name", BODIES)
def test_between_two_operations(name):
    wanted = BODIES[name]()
    assert capture(between)(torch.ones(2), BODIES[name])[1] == wanted


@pytest.mark.parametrize("kind", [set, frozenset, tuple, list])
def test_what_holds_itself_leaves_as_one_object(kind):
    result = capture(between)(torch.ones(2), lambda: holds_itself(kind))[1]
    assert next(iter(result[1])).value is result[1] and result[2]


def test_a_subscript_of_a_class_of_captured_code_is_of_that_class():
    import collections
    from typing import Generic, TypeVar, Union

    T = TypeVar("T")

    def f(x):
        Group = collections.namedtuple("Group", "key group")

        class Box(Generic[T]):
            pass

        made, box = Group[int, list](x + 1, [2]), Box[int]()
        return type(made) is Group, type(box) is Box, made.key, (Group | str) == Union[Group, str], (int | Box) == Union[int, Box]

    same, box, key, *unions = capture(f)(torch.ones(2))
    assert same and box and key.tolist() == [2.0, 2.0] and unions == [True, True]


def test_a_coroutine_is_not_copied():
    import copy

    async def waits():
        pass

    def f(x):
        y, found = x + 1, []
        coroutine = waits()
        for copied in (copy.copy, copy.deepcopy):
            try:
                copied(coroutine)
            except TypeError as error:
                found.append(str(error))
        coroutine.close()
        return y, found

    assert capture(f)(torch.ones(2))[1] == f(torch.ones(2))[1] and f(torch.ones(2))[1]


def test_an_object_that_says_whether_a_function_is_abstract_is_asked():
    import abc

    class Refuses:
        def __bool__(self):
            raise ValueError("asked")

    def f(x):
        y = x + 1
        try:

            class C(metaclass=abc.ABCMeta):
                def bar(self):
                    pass

                bar.__isabstractmethod__ = Refuses()
                foo = property(bar)
        except ValueError as error:
            return y, str(error)
        return y, ""

    assert capture(f)(torch.ones(2))[1] == "asked"


def test_names_of_an_enumeration_are_stored_as_its_body_does():
    import enum

    def f(x):
        y = x + 1

        class Dupes(enum.Enum):
            first = primero = enum.auto()
            second = enum.auto()
            third = enum.auto()

        try:

            class Colour(enum.Enum):
                red = 1
                green = 2
                red = 3
        except TypeError as error:
            text = str(error)
        else:
            text = "no error"
        return y, [member.name for member in Dupes], Dupes.primero is Dupes.first, Dupes.third.value, text

    assert capture(f)(torch.ones(2))[1:] == f(torch.ones(2))[1:]


def test_what_is_compiled_behind_a_break_has_the_features_of_the_program():
    space: dict = {"torch": torch}
    source = """
def f(x):
    y = x + 1
    names = {}
    exec("a: int = 1", names)
    return y, names["__annotations__"], eval(compile("lambda b: b", "", "eval")).__code__.co_flags
"""
    for future, annotation in (("", int), ("from __future__ import annotations", "int")):
        exec(compile(future + source, "program", "exec", dont_inherit=True), space)
        result = capture(space["f"])(torch.ones(2))
        assert result[1:] == space["f"](torch.ones(2))[1:] and result[1] == {"a": annotation}


class Whole(int):
    pass


class Real(float):
    pass


class Gives:
    def __init__(self, **methods):
        self.methods = methods

    def __int__(self):
        return self.methods["whole"]

    def __float__(self):
        return self.methods["real"]

    def __index__(self):
        return self.methods["index"]


ASKING = {
    "int": (int, dict(whole=Whole(3))),
    "a plain int": (int, dict(whole=3)),
    "float": (float, dict(real=Real(2.5))),
    "complex": (complex, dict(real=Real(2.5))),
    "index": (operator.index, dict(index=True)),
    "item": (lambda value: [1, 2, 3][value], dict(index=True)),
    "range": (lambda value: list(range(value)), dict(index=Whole(2))),
    "repeated": (lambda value: [1] * value, dict(index=Whole(2))),
    "hex": (hex, dict(index=Whole(20))),
}


@pytest.mark.parametrize("name", ASKING)
def test_numbers_of_derived_classes_that_conversions_give_are_warned_of(name):
    ask, methods = ASKING[name]

    def f(x):
        y = x + 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = ask(Gives(**methods))
        return y, result, type(result), [str(each.message) for each in caught]

    assert capture(f)(torch.ones(2))[1:] == f(torch.ones(2))[1:]


class Liar:
    asked = 0

    @property
    def __class__(self):
        Liar.asked += 1
        return int

    def five(self):
        return 5


class Holder:
    liar = Liar()


A_LIAR, LIARS, HOLDER = Liar(), [Liar()], Holder()


@pytest.mark.parametrize("breaks", [False, True])
def test_the_program_is_not_asked_for_the_class_of_an_object(breaks):
    def f(x, liar):
        y = x + 1
        here, there, inside, attribute = liar, A_LIAR, LIARS[0], HOLDER.liar
        if breaks:
            x.tolist()
        return y, here is liar, there.five(), inside.five(), attribute.five(), [liar, A_LIAR]

    compiled, liar, Liar.asked = capture(f), Liar(), 0
    for _ in range(2):
        assert compiled(torch.ones(2), liar)[1:] == (True, 5, 5, 5, [liar, A_LIAR])
    assert Liar.asked == 0


def test_without_room_for_a_look_the_function_itself_runs():
    from opmill_guards import CompiledFunction

    def on_miss(compiled, args, kwargs):
        raise RecursionError("no room")

    assert CompiledFunction(lambda x: x + 1, on_miss)(2) == 3
