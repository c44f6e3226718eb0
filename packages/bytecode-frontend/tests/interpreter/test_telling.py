"""What functions tell of objects that may hold themselves: the text is that of the object at hand, whichever it is."""

import dataclasses
import reprlib

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture


@dataclasses.dataclass
class Setting:
    name: str
    size: int = 1
    inner: object = None


@dataclasses.dataclass
class Named(Setting):
    scale: float = 1.0


class Row:
    def __init__(self, items):
        self.items = items

    @reprlib.recursive_repr("<again>")
    def __repr__(self):
        return f"Row({', '.join(map(repr, self.items))})"


def within_itself(made):
    getattr(made, "items", []).append(made)
    if isinstance(made, Setting):
        made.inner = made
    return made


MADE = {
    "a data class": lambda n: Setting("a", n),
    "of another": lambda n: Named("b", n, Setting("c"), n / 2),
    "one of the program's": lambda n: Row([n, "x", Setting("a", n)]),
    "within itself": lambda n: within_itself(Setting("a", n)),
    "a row within itself": lambda n: within_itself(Row([n])),
    "twice": lambda n: (lambda s: Setting("a", n, [s, s]))(Setting("b", n)),
    "one holds the other": lambda n: (lambda a, b: setattr(a, "inner", b) or a)(a := Setting("a", n), Row([a])),
}
TEXTS = {
    "repr": "repr(o)",
    "str": "str(o) + f'{o}'",
    "format": "'{!r:>60}'.format(o)",
    "in a list": "repr([o, (o,)])",
    "made here": "repr(Setting('here', len(x), o)), repr(Row([Setting('here')]))",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("made", MADE)
def test_the_text_is_that_of_the_object(made, text):
    names = {"Setting": Setting, "Row": Row}
    exec(f"def program(o, x):\n    return x * 2, {TEXTS[text]}", names)
    breaks: list = []
    compiled = capture(names["program"], "eager", on_break=breaks.append)
    for n in (1, 2, 3, 4, 5):
        o, x = MADE[made](n), torch.ones(n + 1)
        assert same(names["program"](o, x), compiled(o, x)), n
    if text in ("repr", "made here") and made in ("a data class", "of another", "one of the program's"):
        assert not breaks


def test_where_the_object_is_being_told_outside():
    class Told:
        def __init__(self):
            self.compiled = lambda x: (x + 1, repr(self))

        @reprlib.recursive_repr()
        def __repr__(self):
            return f"Told({self.compiled(torch.ones(2))[1]})"

    plain, other = Told(), Told()
    other.compiled = capture(other.compiled, "eager")
    for _ in range(3):
        assert repr(plain) == repr(other) and plain.compiled(torch.ones(2))[1] == other.compiled(torch.ones(2))[1]
