"""``locals()`` again and again, in every kind of frame, and code whose variables are names of a module."""

from __future__ import annotations

import types

import pytest
import torch

from opmill_bytecode_frontend import capture


def asked_twice(x):
    names = locals()
    names["more"] = 5
    y = x + 1
    same = names is locals()
    return y, sorted(names), names["more"], same


def taken_away(x):
    names = locals()
    names["y"] = names["z"] = 1
    y = x + 1
    first = sorted(locals())
    del y
    return x, first, sorted(vars())


def of_free_variables(x):
    y = x + 1

    def inside():
        names = locals()
        names["more"] = y
        return names is locals(), sorted(names), y

    return inside()


def in_a_loop(x):
    kept = []
    for i in range(3):
        kept.append(locals())
        kept[-1][f"turn {i}"] = i
    return x + 1, len({id(each) for each in kept}), sorted(kept[0])


def generated(x):
    names = locals()
    yield sorted(names)
    y = x + 1
    yield locals() is names
    yield sorted(names)
    yield y


def of_a_generator(x):
    return list(generated(x))


def behind_a_break(x):
    names = locals()
    names["more"] = 1
    print("a break")
    return x + 1, names["more"], sorted(names)


def across_a_break(x):
    names = locals()
    names["more"] = 1
    print("a break")
    return x + 1, names is locals(), sorted(names)


def breaks_in_a_loop(x):
    kept = []
    for i in range(3):
        kept.append(locals())
        kept[-1][f"turn {i}"] = i
        print("a break")
    return x + 1, len({id(each) for each in kept}), sorted(kept[0])


PROGRAMS = [asked_twice, taken_away, of_free_variables, in_a_loop, of_a_generator, behind_a_break, across_a_break, breaks_in_a_loop]


@pytest.mark.parametrize("f", PROGRAMS)
def test_the_table_of_variables(f):
    compiled = capture(f, "eager")
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(f(torch.ones(2)))


TEXTS = [
    "x = 5; said.append(x); del x",
    "x = 5\nprint(x)\nsaid.append('x' in globals())\ndel x\ntry: x\nexcept NameError as e: said.append(str(e))",
    "y = torch.ones(2) + 1\nprint('a break')\nz = y + 1\nsaid.append(z.tolist())",
    "def f(): return x\nx = 1\nsaid.append(f())\nx = 2\nsaid.append(f())",
    "locals()['q'] = 3\nsaid.append(q)",
    "class A:\n    x = 1\nsaid.append(A.x)",
    "for i in range(3): said.append(i)\nsaid.append(sorted(k for k in globals() if k[0] != '_'))",
]


@pytest.mark.parametrize("inlined", [False, True], ids=["alone", "called"])
@pytest.mark.parametrize(
    "text, mode", [(text, mode) for mode in ("exec", "single") for text in TEXTS if mode == "exec" or "\n" not in text]
)
def test_functions_of_module_code(text, mode, inlined):
    code = compile(text, "<text>", mode)
    said, names = [], []
    for compiling in (False, True):
        space = {"said": [], "torch": torch}
        made = types.FunctionType(code, space)

        def calling(x, made=made):
            made()
            return x + 1

        f = calling if inlined else made
        f = capture(f, "eager") if compiling else f
        for _ in range(2):
            f(torch.ones(1)) if inlined else f()
        said.append(str(space["said"]))
        names.append(sorted(space))
    assert said[0] == said[1] and names[0] == names[1]
