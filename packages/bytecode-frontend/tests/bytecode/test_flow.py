"""Control flow of programs, on the code of the standard library."""

import argparse
import ast
import collections
import dis
import inspect
import textwrap
import types

import pytest

from opmill_bytecode_frontend.bytecode.decode import decode
from opmill_bytecode_frontend.bytecode.flow import falls_through, reachable, stack_depths, stack_size, successors

CODES = [
    member.__code__
    for module in (argparse, ast, collections, inspect, textwrap)
    for owner in (module, *(c for c in vars(module).values() if isinstance(c, type)))
    for member in vars(owner).values()
    if isinstance(member, types.FunctionType)
]


@pytest.mark.parametrize("part", range(4))
def test_the_stack_has_the_room_that_python_gives_it(part):
    """What is computed fits into what the compiler of Python reckoned, and is no more than one above for handlers."""
    for code in CODES[part::4]:
        found = stack_size(decode(code))
        assert found <= code.co_stacksize + 1, code.co_qualname


def test_depths_agree_on_all_paths():
    for code in CODES[::3]:
        program = decode(code)
        depths = stack_depths(program)
        assert depths[program.instructions[0]] == 0 and min(depths.values()) >= 0
        for instruction, following in successors(program).items():
            if instruction in depths:
                assert all(each in depths for each in following)


def test_what_follows():
    def function(x):
        while x:
            if x > 3:
                return 1
            x -= 1
        raise ValueError

    program = decode(function.__code__)
    after = successors(program)
    ends = [i for i, following in after.items() if not following]
    assert {i.opname for i in ends} <= {"RETURN_VALUE", "RAISE_VARARGS", "RETURN_CONST", "RERAISE"}
    jumps = [i for i in program.instructions if i.target is not None and falls_through(i)]
    assert jumps and all(len(after[i]) == 2 for i in jumps)
    assert reachable(program, program.instructions[0]) >= set(ends)


def test_handlers_are_reached():
    def function(x):
        try:
            x()
        except KeyError:
            return 1

    program = decode(function.__code__)
    found = {i.opname for i in reachable(program, program.instructions[0])}
    assert "CHECK_EXC_MATCH" in found and "CHECK_EXC_MATCH" in {i.opname for i in dis.get_instructions(function)}
