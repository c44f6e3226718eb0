"""Classes that the program patches between calls: methods of the data model, descriptors and hooks are replaced, come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Getter:
    def __init__(self, n: int) -> None:
        self.n = n

    def __get__(self, instance: Any, owner: Any) -> int:
        return self.n


class Descriptor(Getter):
    def __set__(self, instance: Any, value: int) -> None:
        instance.__dict__["v"] = value * self.n

    def __delete__(self, instance: Any) -> None:
        instance.__dict__["v"] = self.n


class Slotted:
    __slots__ = ("a",)


def attribute(n: int) -> property:
    return property(lambda self: n, lambda self, v: vars(self).update(v=v * n), lambda self: vars(self).update(v=n))


def answer(n: int) -> Callable[..., int]:
    return lambda self=None, *args: n


def stored(n: int) -> Callable[..., None]:
    return lambda self, key, value: vars(self).update({str(key): value * n})


def stored_in_class(n: int) -> Callable[..., None]:
    return lambda cls, key, value: type.__setattr__(cls, key, value * n)


def emptied(n: int) -> Callable[..., None]:
    return lambda self, key: vars(self).update({str(i): i for i in range(n)})


def initialized(n: int) -> Callable[..., None]:
    return lambda self: vars(self).update(w=n)


def newly_made(n: int) -> Callable[..., Any]:
    def new(cls: type) -> Any:
        made: Any = object.__new__(cls)
        made.w = n
        return made

    return new


def reads(x, cls, o):
    return x * o.a


def reads_of_class(x, cls, o):
    return x * cls.a


def asks(x, cls, o):
    return x if hasattr(o, "a") else x * 3


def writes(x, cls, o):
    o.a = 3
    return x * vars(o)["v"]


def writes_and_reads(x, cls, o):
    o.a = 3
    return x * o.a


def deletes(x, cls, o):
    o.v = 1
    del o.a
    return x * o.v


def own_getter(x, cls, o):
    return x * cls.a.fget(None)


def writes_through_a_hook(x, cls, o):
    o.q = 3
    return x * vars(o)["q"]


def deletes_through_a_hook(x, cls, o):
    o.__dict__["v"] = 1
    del o.v
    return x * len(vars(o))


def writes_to_the_class(x, cls, o):
    cls.q = 3
    return x * vars(cls)["q"]


def writes_an_item(x, cls, o):
    o[0] = 2
    return x * vars(o)["0"]


def makes(x, cls, o):
    return x * cls().w


def calls_of_class(x, cls, o):
    return x * cls(1)


def through_super(x, cls, o):
    return x * super(cls, o).b()


def unknown_of_class(x, cls, o):
    return x * cls.zzz


def checked(x, cls, o):
    return x if isinstance(1, cls) else x * 3


def of(text: str) -> Callable[..., Any]:
    function: Callable[..., Any] = eval(f"lambda x, cls, o: {text}")
    function.__name__ = text
    return function


ON_CLASSES: list[tuple[Callable[..., Any], str, Callable[[int], Any]]] = [
    *((use, "a", make) for use in (reads, reads_of_class, asks, writes, deletes) for make in (attribute, Getter, Descriptor, int)),
    (own_getter, "a", attribute), (writes_through_a_hook, "__setattr__", stored), (deletes_through_a_hook, "__delattr__", emptied),
    (writes_an_item, "__setitem__", stored), (makes, "__init__", initialized), (makes, "__new__", newly_made), (through_super, "b", answer),
    (of("x * len(o)"), "__len__", answer), (of("x if o else x * 3"), "__bool__", lambda n: lambda self: n > 2),
    (of("x if o else x * 3"), "__len__", lambda n: lambda self: n - 2), (of("x if o == 1 else x * 3"), "__eq__", lambda n: lambda self, other: n > 2),
    (of("x if o < 1 else x * 3"), "__lt__", lambda n: lambda self, other: n > 2), (of("x * sum(o)"), "__iter__", lambda n: lambda self: iter([n])),
    (of("x * o()"), "__call__", answer), (of("x * o.zzz"), "__getattr__", answer), (asks, "__getattr__", answer),
    (of("x * (o + 1)"), "__add__", answer), (of("x * (1 + o)"), "__radd__", answer),
    (of("x * -o"), "__neg__", answer), (of("x * o[0]"), "__getitem__", answer), (of("x if 1 in o else x * 3"), "__contains__", lambda n: lambda self, v: n > 2),
    (of("x * [1, 2, 3, 4, 5][o]"), "__index__", answer), (of("x * int(o)"), "__int__", answer), (of("x * next(o)"), "__next__", answer),
    (of("x * len(f'{o:9}')"), "__format__", lambda n: lambda self, spec: "a" * n), (of("x * cls[1]"), "__class_getitem__", lambda n: classmethod(lambda cls, k: n)),
]  # fmt: skip
ON_METACLASSES: list[tuple[Callable[..., Any], str, Callable[[int], Any]]] = [
    (checked, "__instancecheck__", lambda n: lambda cls, o: n > 2), (calls_of_class, "__call__", answer), (unknown_of_class, "__getattr__", answer),
    *((unknown_of_class, "zzz", make) for make in (attribute, Descriptor, int)), (writes_to_the_class, "__setattr__", stored_in_class),
]  # fmt: skip


def outcome(call: Callable[..., Any], cls: type, made: Any = None) -> Any:
    try:
        return call(torch.ones(1), cls, object.__new__(cls) if made is None else made).item()
    except Exception as exc:
        return repr(exc)
    finally:
        if "q" in vars(cls):
            type.__delattr__(cls, "q")


@pytest.mark.parametrize("steps", [(2, 4, 2), (None, 2, None), (4, None, 2)], ids=["replaced", "appears", "vanishes"])
@pytest.mark.parametrize(
    ("use", "name", "make", "where"), [(*row, w) for w in (0, 1) for row in ON_CLASSES] + [(*row, 2) for row in ON_METACLASSES]
)
def test_what_is_patched_is_seen(
    use: Callable[..., Any], name: str, make: Callable[[int], Any], where: int, steps: tuple[Any, ...]
) -> None:
    class Meta(type):
        pass

    class Base:
        pass

    class Derived(Base, metaclass=Meta):
        pass

    patched = (Derived, Base, Meta)[where]
    compiled = capture(use)
    for n in steps:
        if n is not None:
            setattr(patched, name, make(n))
        elif name in vars(patched):
            delattr(patched, name)
        assert outcome(compiled, Derived) == outcome(use, Derived)


SHADOWING: dict[str, Callable[[int], Any]] = {
    "property": attribute, "getter": Getter, "descriptor": Descriptor, "number": int, "slot of another class": lambda n: vars(Slotted)["a"],
}  # fmt: skip


@pytest.mark.parametrize("before", [None, *SHADOWING])
@pytest.mark.parametrize("after", [None, *SHADOWING])
@pytest.mark.parametrize("use", [reads, asks, writes_and_reads], ids=lambda use: use.__name__)
@pytest.mark.parametrize("inherited", [False, True])
def test_what_instances_have_is_asked_for_behind_data_descriptors(
    use: Callable[..., Any], before: str | None, after: str | None, inherited: bool
) -> None:
    """Which may come to a class, and go."""

    class Base:
        pass

    class Derived(Base):
        pass

    patched = Base if inherited else Derived
    compiled = capture(use)
    for step, n in ((before, 2), (after, 4), (before, 2), (None, 0)):
        if step is not None:
            setattr(patched, "a", SHADOWING[step](n))
        elif "a" in vars(patched):
            delattr(patched, "a")
        told = []
        for call in (use, compiled):
            instance = Derived()
            vars(instance)["a"] = 7
            told.append((outcome(call, Derived, instance), vars(instance)))
        assert told[0] == told[1]


@pytest.mark.parametrize("steps", [(2, 4, 2), (None, 2, None, 2), (4, None, 2, None)], ids=["replaced", "appears", "vanishes"])
@pytest.mark.parametrize(
    ("use", "name", "make", "where"), [(*row, w) for w in (0, 1) for row in ON_CLASSES if row[0] is not makes and row[1] != "__eq__"]
)
def test_what_is_patched_on_classes_of_modules_is_seen(
    use: Callable[..., Any], name: str, make: Callable[[int], Any], where: int, steps: tuple[Any, ...]
) -> None:
    class Base(torch.nn.Module):
        pass

    class Derived(Base):
        pass

    patched = (Derived, Base)[where]
    compiled, modules = capture(use), (Derived(), Derived())
    for n in steps:
        if n is not None:
            setattr(patched, name, make(n))
        elif name in vars(patched):
            delattr(patched, name)
        for module in modules:
            for left in ("v", "q", "a", "0"):
                vars(module).pop(left, None)
        assert outcome(compiled, Derived, modules[0]) == outcome(use, Derived, modules[1])
