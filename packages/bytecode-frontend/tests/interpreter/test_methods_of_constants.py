"""Methods of constants that give iterators and other new objects: each call has another one, at its beginning."""

import array
import difflib
import hashlib
import operator
import re
import shlex
import string
import struct
import types
import zlib

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

ITERATORS = [
    "PATTERN.finditer('a1b2')", "re.finditer('a', 'aba')", "range(3).__iter__()", "range(3).__reversed__()", "'abc'.__iter__()",
    "b'abc'.__iter__()", "(1, 2).__iter__()", "frozenset({5}).__iter__()", "iter(range(4))", "reversed(range(4))", "reversed('ab')",
    "string.Formatter().parse('a{b}c')", "struct.iter_unpack('h', b'abcd')", "range(0).__iter__()", "torch.Size([2, 3]).__iter__()",
    "types.MappingProxyType({'a': 1}).__iter__()", "range(10 ** 12).__iter__()",
]  # fmt: skip
USES = {
    "the first": "shown(next({0}, None))",
    "two of them": "(lambda i: (shown(next(i, None)), shown(next(i, None))))({0})",
    "in a loop": "[shown(each) for each, _ in zip({0}, range(3))]",
    "two iterators": "[shown(a) == shown(b) for a, b, _ in zip({0}, {0}, range(3))]",
    "its kind": "type({0}).__name__",
    "iterated": "(lambda i: iter(i) is i)({0})",
}
LISTS = ["PATTERN.findall('a1')", "'a b'.split()", "'a\\nb'.splitlines()", "int.mro()", "re.split(',', 'a,b')", "dir(3)"]


def shown(each):
    return each.group() if isinstance(each, re.Match) else each


MODULES = (array, difflib, hashlib, operator, re, shlex, string, struct, torch, types, zlib)
NAMES = {"PATTERN": re.compile(r"(\w)(\d)"), "shown": shown, **{module.__name__: module for module in MODULES}}


def agree(text):
    names = dict(NAMES)
    exec(f"def program(x):\n    y = x + 1\n    found = {text}\n    return y, found", names)
    compiled, x = capture(names["program"], "eager"), torch.ones(2)
    for _ in range(3):
        assert same(names["program"](x), compiled(x))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("made", ITERATORS)
def test_an_iterator_begins_at_each_call(made, use):
    agree(USES[use].format(made))


@pytest.mark.parametrize("made", LISTS)
def test_a_list_is_another_one_at_each_call(made):
    agree(f"(lambda new: (new.append(1), new)[1])({made})")


def test_one_that_leaves_is_at_its_beginning():
    def program(x):
        return x + 1, range(3).__iter__(), NAMES["PATTERN"].finditer("a1b2")

    compiled = capture(program, "eager")
    for _ in range(3):
        _, numbers, found = compiled(torch.ones(2))
        assert list(numbers) == [0, 1, 2] and [each.group() for each in found] == ["a1", "b2"]


STATEFUL = {
    "compressor": "(lambda c: c.compress(b'aaa') + c.flush())(zlib.compressobj())",
    "decompressor": "(lambda c: c.decompress(zlib.compress(b'a')) + c.flush())(zlib.decompressobj())",
    "hash": "(lambda h: (h.update(b'a'), h.hexdigest()))(hashlib.new('sha1', b'z'))",
    "another hash": "(lambda h: (h.update(b'a'), h.hexdigest()))(hashlib.sha256())",
    "bytes": "(lambda b: (b.append(1), bytes(b)))(bytearray(b'a'))",
    "bytes of a text": "(lambda b: (b.append(1), bytes(b)))(bytearray.fromhex('ab'))",
    "numbers": "(lambda a: (a.append(3), a.tolist()))(array.array('i', [1]))",
    "lexer": "(lambda s: (s.get_token(), s.get_token()))(shlex.shlex('a b'))",
    "matcher": "(lambda s: (s.set_seq1('ab'), s.ratio()))(difflib.SequenceMatcher(None, 'a', 'ab'))",
    "getters": "operator.itemgetter(1)('ab'), operator.attrgetter('real')(3), operator.methodcaller('upper')('a')",
    "structure": "struct.Struct('h').unpack(b'ab'), struct.Struct('h').size",
}


@pytest.mark.parametrize("text", STATEFUL.values(), ids=STATEFUL)
def test_what_has_a_state_is_made_at_each_call(text):
    agree(text)


def test_bound_methods_of_extensions_are_called_as_python_calls_them():
    """A descriptor of C crashes where it is bound without a class."""
    compress = zlib.compressobj().compress

    def program(x, decompress):
        return x + 1, compress(b""), decompress(zlib.compress(b"a"))

    compiled = capture(program, "eager")
    for _ in range(3):
        _, nothing, told = compiled(torch.ones(2), zlib.decompressobj().decompress)
        assert (bytes(nothing), told) in ((b"x\x9c", b"a"), (b"", b"a"))
