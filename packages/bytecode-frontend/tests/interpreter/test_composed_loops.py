"""Loops over what ``zip``, ``enumerate`` and ``map`` were made of, behind a break: one entry serves only calls whose iterators are built alike."""

from __future__ import annotations

import io
import struct
import types

import pytest
from differing import attempt

from opmill_bytecode_frontend import capture


def gathered(make, stream):
    for each in make(iter([1, 2, 3, 4]), iter((5, 6, 7, 8)), iter({9: 1, 10: 2, 11: 3})):
        stream.write(repr(each).encode())  # ends the graph in each turn, behind which nothing but the loop is left
    return "done"


def tupled(*given):
    return given


MADE = {
    "one": lambda a, b, c: zip(a),
    "two": lambda a, b, c: zip(a, b),
    "three": lambda a, b, c: zip(a, b, c),
    "of lengths": lambda a, b, c: zip(a, c),
    "the same twice": lambda a, b, c: zip(a, a),
    "strict": lambda a, b, c: zip(a, b, strict=True),
    "strict of lengths": lambda a, b, c: zip(a, c, strict=True),
    "nothing": lambda a, b, c: zip(),
    "counted": lambda a, b, c: enumerate(zip(a, b)),
    "counted from": lambda a, b, c: enumerate(zip(a, b), 3),
    "counted twice": lambda a, b, c: zip(enumerate(a), enumerate(b)),
    "counted and moved": lambda a, b, c: zip(enumerate(a), a),
    "pairs and one": lambda a, b, c: zip(zip(a, b), c),
    "strict pairs and one": lambda a, b, c: zip(zip(a, c, strict=True), b),
    "mapped": lambda a, b, c: map(tupled, a),
    "mapped two": lambda a, b, c: map(tupled, a, b),
    "mapped three": lambda a, b, c: map(tupled, a, b, c),
    "mapped the same": lambda a, b, c: map(tupled, a, a),
    "mapped pairs": lambda a, b, c: map(tupled, zip(a, b), c),
    "backwards": lambda a, b, c: zip(reversed([1, 2]), a),
}


@pytest.mark.parametrize("first", MADE)
def test_a_loop_over_one_kind_is_not_that_over_another(first):
    for second in MADE:
        own = types.FunctionType(gathered.__code__.replace(co_name=gathered.__name__), globals())
        compiled = capture(own, "eager")
        for name in (first, second, first):
            found = []
            for call in (gathered, compiled):
                stream = io.BytesIO()
                found.append((attempt(lambda call=call, name=name, stream=stream: call(MADE[name], stream)), stream.getvalue()))
            assert found[0] == found[1], (second, name)


def records(stream, count):
    first, second, third = zip(*(struct.unpack("bbb", stream.read(3)) for _ in range(count)))
    return first, second, third


def columns(stream, count):
    return tuple(map(tupled, *(list(stream.read(3)) for _ in range(count))))


@pytest.mark.parametrize("program", [records, columns])
def test_transposing_what_a_stream_gives_takes_all_of_it(program):
    compiled = capture(program, "eager")
    for count in (6, 4, 5, 3, 2, 4, 8, 1, 30):
        want, got = (call(io.BytesIO(bytes(range(100))), count) for call in (program, compiled))
        assert got == want
