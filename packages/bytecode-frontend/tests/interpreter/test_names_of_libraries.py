"""Names of the standard library and of torch that a program reads: what they lead to at the call, also where somebody has put another there."""

import collections
import json
import logging
import math
import random
import string
import types
import warnings

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

ROWS = {
    "a list": (warnings, "filters", "len(warnings.filters)", lambda n: [None] * n),
    "a dictionary": (logging, "_levelToName", "sorted(logging._levelToName)", lambda n: {n: "x"}),
    "an object": (logging, "root", "logging.root.name", lambda n: types.SimpleNamespace(name=f"r{n}")),
    "a function": (math, "sqrt", "math.sqrt(4)", lambda n: lambda x: n),
    "a number": (math, "tau", "math.tau", lambda n: n),
    "a text": (string, "digits", "string.digits", lambda n: "d" * n),
    "a class": (collections, "Counter", "collections.Counter('a')", lambda n: lambda text: (text, n)),
    "of a package": (json.decoder, "FLAGS", "json.decoder.FLAGS", lambda n: n),
    "an instance": (random, "_inst", "type(random._inst).__name__", lambda n: [n] if n % 2 else (n,)),
    "a function of torch's": (torch.nn.functional, "relu", "F.relu(x)", lambda n: lambda x: x * n),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_a_program_reads_is_what_is_there(monkeypatch, row):
    module, name, text, made = ROWS[row]
    names = {"F": torch.nn.functional} | {
        m.__name__.partition(".")[0]: m for m in (warnings, logging, math, string, collections, json, random, torch)
    }
    exec(f"def program(x):\n    return x + 1, {text}", names)
    compiled, x = capture(names["program"], "eager"), torch.ones(2)
    assert same(names["program"](x), compiled(x))
    for n in (1, 2, 2, 3):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, made(n))
            assert same(names["program"](x), compiled(x)), n
        assert same(names["program"](x), compiled(x))
