"""What a generator's variables hold dies where the plain function lets go of the generator: each kind of generator, suspended behind a
graph break inside of it, in each place that may hold it, one and two calls deep."""

from __future__ import annotations

import itertools

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.breaks.continuation import Placed, releasing

LOG: list[object] = []


@torch.compiler.disable
def B(): ...


class Told:
    def __del__(self):
        LOG.append("dead")


def made_in_a_class():
    class Own:
        def __del__(self):
            LOG.append("dead")

    return Own()


def behind(n):
    yield n
    B()
    told = Told()  # noqa: F841
    yield n + 1
    yield n


def twice(n):
    yield n
    B()
    told = Told()
    told = Told()  # noqa: F841
    yield n + 1
    yield n


def in_turns(n):
    for _ in range(2):
        B()
        told = made_in_a_class()  # noqa: F841
    yield n
    yield n + 1


def own_class(n):
    yield n
    turns = 2
    while turns > 0:
        turns -= 1
        B()

        class Own:
            def __del__(self):
                LOG.append("dead")

        told = Own()  # noqa: F841
    yield n + 1
    yield n


def before(n):
    told = Told()  # noqa: F841
    yield n
    B()
    yield n + 1
    yield n


def listed(g):
    LOG.append(list(zip([1, 2], g(3))))


def zipped(g):
    pairs = zip([1, 2], g(3))
    LOG.append([next(pairs), next(pairs)])
    pairs = None  # noqa: F841
    LOG.append("let go")


def in_a_list(g):
    held = [g(3)]
    LOG.append([next(held[0]), next(held[0])])
    held = None
    LOG.append("let go")


def in_a_variable(g):
    each = g(3)
    LOG.append([next(each), next(each)])
    del each
    LOG.append("let go")


def to_the_end(g):
    each = g(3)
    LOG.append([next(each), next(each)])
    LOG.append("end")


def walked(g):
    for k in g(3):
        LOG.append(k)
        if k == 4:
            break
    LOG.append("end")


def counted(g):
    for place, k in enumerate(g(3)):
        LOG.append(k)
        if place:
            break
    LOG.append("end")


def mapped(g):
    LOG.append(list(map(lambda a, b: (a, b), [1, 2], g(3))))


def unpacked(g):
    try:
        _, _ = g(3)
    except ValueError:
        LOG.append("more")


def sliced(g):
    LOG.append(list(itertools.islice(g(3), 2)))


def sought(g):
    LOG.append(4 in g(3))


def asked(g):
    LOG.append(any(x == 4 for x in g(3)))


def handed_on(g):
    def outer():
        yield from g(3)

    LOG.append(list(zip([1, 2], outer())))


def two(g):
    a, b = g(3), g(3)
    LOG.append([next(a), next(b), next(a), next(b)])
    a = None  # noqa: F841
    LOG.append("first")
    b = None  # noqa: F841
    LOG.append("second")


def direct(use, g):
    use(g)
    LOG.append("behind")


def deeper(use, g):
    LOG.append("in")
    direct(use, g)
    LOG.append("out")


GENERATORS = (behind, twice, in_turns, own_class, before)
USES = (listed, zipped, in_a_list, in_a_variable, to_the_end, walked, counted, mapped, unpacked, sliced, sought, asked, handed_on, two)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_where_it_dies(use, generator):
    for depth in (direct, deeper):

        def program(x, depth=depth):
            y = x * 2
            depth(use, generator)
            return x + y

        LOG.clear()
        program(torch.ones(1))
        expected = list(LOG)
        compiled = capture(program, "eager")
        for _ in range(2):
            LOG.clear()
            compiled(torch.ones(1))
            assert LOG == expected


@pytest.mark.parametrize(
    "lines, released",
    [
        (["_r = _f0(_v1)"], ["_v2 = None", "_r = _f0((_v1, _v1 := None)[0])"]),
        (["_r = _f0(_v1, _v2)", "return _v2"], ["_r = _f0((_v1, _v1 := None)[0], _v2)", "return _v2"]),
        (["_r = _f0(_v1[0], _v1[1])", "return _v2"], ["_r = _f0(_v1[0], (_v1, _v1 := None)[0][1])", "return _v2"]),
        (["_r = _f0(_v11, x._v1)", "return _v2"], ["_v1 = None", "_r = _f0(_v11, x._v1)", "return _v2"]),
        (["try:", "    _f0(_v1)", "except E:", "    _v1, _v2"],) * 2,  # read where it raises
        (["for k in _v1:", "    _f0(k)"],) * 2,  # read again in the next turn
        (["return _v1"],) * 2,  # no frame inside
    ],
)
def test_variables_hold_nothing_while_a_frame_inside_runs(lines, released):
    assert releasing(lines, ["_v1", "_v2"]) == released


def test_released_statements_keep_their_line():
    [cleared, call] = releasing([Placed.at("_r = _f0()", 7)], ["_v1"])
    assert (cleared, call.position) == ("_v1 = None", 7)
