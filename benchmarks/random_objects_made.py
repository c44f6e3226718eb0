"""Classes and functions that ``random_objects_*.toml`` makes objects of."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import functools
import logging
import typing
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    """A module whose attributes, hooks and tables programs change."""

    def __init__(self, k: int = 1) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((2,), float(k)))
        self.register_buffer("b", torch.zeros(2))
        self.act = nn.ReLU()
        self.k: Any = k
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.b += 1
        return self.act(x * self.w + self.b * self.k)


class Deeper(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 10

    def extra_repr(self) -> str:
        return f"k={self.k}"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Layer(1), Deeper(2)
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Identity()])
        for parameter in self.layers.parameters():
            nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(x))
        for layer in self.layers:
            x = layer(x)
        return x


class Positive:
    """A descriptor that is told its name, and counts."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.count = "_" + name, 0

    def __get__(self, holder: Any, owner: type) -> Any:
        if holder is None:
            return self
        self.count += 1
        return holder.__dict__.get(self.name, -1)

    def __set__(self, holder: Any, value: Any) -> None:
        if value == 0:
            raise ValueError("not positive")
        holder.__dict__[self.name] = value

    def __delete__(self, holder: Any) -> None:
        del holder.__dict__[self.name]


class Plain:
    """A descriptor that only reads: the object's own table comes first."""

    def __get__(self, holder: Any, owner: type) -> Any:
        return "class" if holder is None else ("plain", len(holder.__dict__))


class Described:
    size = Positive()
    plain = Plain()
    kinds: typing.ClassVar[list[str]] = []

    def __init_subclass__(cls, *, tag: Any = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.kinds.append(cls.__name__)
        cls.tag = tag

    def __class_getitem__(cls, key: Any) -> Any:
        return cls.__name__, key


class Derived(Described, tag="derived"):
    @property
    def twice(self) -> Any:
        return self.size * 2


class Fallback:
    """Has ``__getattr__``, slots and a counter of what was missed."""

    __slots__ = ("a", "missed")

    def __init__(self) -> None:
        self.a, self.missed = 1, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("x"):
            self.missed += 1
            return self.missed
        raise AttributeError(f"none of {name}", name=name, obj=self)


class Proxy:
    """Sends all on to another object, and notes it."""

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_seen", [])

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        self._seen.append(name)
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._seen.append((name, value))
        setattr(self._target, name, value)

    def __delattr__(self, name: str) -> None:
        self._seen.append(("del", name))
        delattr(self._target, name)


@functools.total_ordering
class Version:
    def __init__(self, *parts: int) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> Any:
        return self.parts == other.parts if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.parts < other.parts if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return "v" + ".".join(map(str, self.parts))


class Row(typing.NamedTuple):
    a: Any
    b: Any = 2

    @property
    def both(self) -> Any:
        return self.a, self.b


class Table(typing.TypedDict, total=False):
    a: int
    b: list[int]


@dataclasses.dataclass(order=True)
class Sorted:
    rank: int
    name: str = dataclasses.field(default="n", compare=False)
    items: list[Any] = dataclasses.field(default_factory=list, repr=False, compare=False)
    made: int = dataclasses.field(init=False, default=0, compare=False)
    total: dataclasses.InitVar[int] = 5

    def __post_init__(self, total: int) -> None:
        self.made = total + self.rank


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    a: int = 1
    t: Any = None


class Mode(enum.Enum):
    TRAIN = "train"
    EVAL = "eval"
    DEFAULT = TRAIN

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.EVAL if value == "e" else None

    def flip(self) -> Mode:
        return Mode.EVAL if self is Mode.TRAIN else Mode.TRAIN


class Rank(enum.IntEnum):
    LOW = 1
    HIGH = enum.auto()


class Word(str, enum.Enum):  # noqa: UP042
    A = "a"
    B = "b"


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> Any: ...

    def twice(self) -> Any:
        return self.area() * 2


class Square(Shape):
    side: Any = 2

    def area(self) -> Any:
        return self.side**2


class Loaded:
    """Pickled and copied by what it says of itself."""

    def __init__(self, a: Any = 1) -> None:
        self.a, self.log = a, []

    def __getstate__(self) -> Any:
        self.log.append("get")
        return {"a": self.a}

    def __setstate__(self, state: Any) -> None:
        self.a, self.log = state["a"], ["set"]


class Copied:
    def __init__(self) -> None:
        self.items, self.deep = [1], 0

    def __copy__(self) -> Copied:
        made = Copied()
        made.items, made.deep = self.items, self.deep - 1
        return made

    def __deepcopy__(self, memo: Any) -> Copied:
        made = Copied()
        memo[id(self)] = made
        made.items, made.deep = list(self.items), self.deep + 1
        return made


def coroutine_like() -> Iterator[Any]:
    """What is sent into it decides what it gives; it has a tail that runs when it is closed."""
    seen: list[Any] = []
    try:
        while True:
            try:
                got = yield list(seen)
            except KeyError as error:
                seen.append(("key", error.args))
                continue
            if got == 3:
                return seen
            seen.append(got)
    finally:
        seen.append("closed")


def delegating() -> Iterator[Any]:
    given = yield from coroutine_like()
    yield ("inner", given)
    return "all"


@contextlib.contextmanager
def managed(seen: list[Any], swallow: bool = False) -> Iterator[Any]:
    seen.append("in")
    try:
        yield len(seen)
    except ValueError as error:
        seen.append(("error", error.args))
        if not swallow:
            raise
    finally:
        seen.append("out")


@contextlib.contextmanager
def pushed(seen: list[Any], k: int) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(seen, k > 2))
        stack.callback(seen.append, ("callback", k))
        stack.push(lambda *error: seen.append(error[0] and error[0].__name__) or k > 1)
        yield stack


@contextlib.contextmanager
def erring() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Cells:
    """Functions that share variables."""

    def __init__(self) -> None:
        n, items = 0, []

        def add(k: int = 1) -> Any:
            nonlocal n
            n += k
            items.append(n)
            return n

        def drop() -> Any:
            nonlocal n, items
            n, items = 0, []

        def unbind() -> None:
            nonlocal n
            del n

        def give() -> Any:
            yield n
            yield list(items)

        self.add, self.drop, self.unbind, self.give = add, drop, unbind, give


def remembering(k: int, seen: list[int] = [], *, table: dict[int, int] = {}) -> Any:  # noqa: B006
    seen.append(k)
    table[k] = table.get(k, 0) + 1
    return list(seen), dict(table)


def factorial(k: int) -> int:
    return 1 if k < 2 else k * factorial(k - 1)


def dispatcher() -> Any:
    @functools.singledispatch
    def f(a: Any, *rest: Any) -> Any:
        return ("any", rest)

    @f.register
    def _(a: int, *rest: Any) -> Any:
        return ("int", a)

    @f.register(list)
    @f.register(tuple)
    def _(a: Any, *rest: Any) -> Any:
        return ("items", [f(each) for each in a])

    @f.register
    def _(a: torch.Tensor, *rest: Any) -> Any:
        return ("tensor", a + 1)

    return f


class Methods:
    @functools.singledispatchmethod
    def show(self, a: Any) -> Any:
        return "any"

    @show.register
    def _(self, a: int) -> Any:
        self.n = a
        return "int"

    @functools.cached_property
    def costly(self) -> Any:
        self.runs = getattr(self, "runs", 0) + 1
        return [self.runs]

    partial = functools.partialmethod(lambda self, a, b: (a, b), 1)


class Noted(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def a_logger() -> tuple[logging.Logger, Noted]:
    logger = logging.Logger("drawn", logging.INFO)
    noted = Noted()
    logger.addHandler(noted)
    return logger, noted


def warned(text: str, kind: type[Warning] = UserWarning) -> str:
    warnings.warn(text, kind, stacklevel=2)
    return text


class Global:
    count = 0
    table: typing.ClassVar[dict[str, Any]] = {}


COUNT = 0
HISTORY: list[Any] = []
