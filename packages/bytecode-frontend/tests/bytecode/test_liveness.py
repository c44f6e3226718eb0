"""Liveness against what happens when the other variables are taken away."""

import types

import pytest

from opmill_bytecode_frontend.bytecode import Instruction, Program, assemble, decode, liveness, stack_depths
from opmill_bytecode_frontend.bytecode.versions import OPCODES


def straight(a, b, c):
    d = a + b
    a = d * 2
    return a, c


def looping(a, b, c):
    total = 0
    for i in range(a):
        if i % 2:
            total += b
        else:
            b = c
            c = i
    return total


def guarded(a, b, c):
    try:
        d = a
        a = b // c
        d = 5
    except ZeroDivisionError:
        return d, b
    return a


def nested(a, b, c):
    def inner():
        return a + c

    c = b
    x = [y + b for y in range(a)]
    return inner(), x


FUNCTIONS = [straight, looping, guarded, nested]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_dead_variables_may_be_overwritten_anywhere(function):
    program = decode(function.__code__)
    live = liveness(program)
    depths = stack_depths(program)
    poison = object()
    for place, instruction in enumerate(program.instructions):
        before = program.instructions[place - 1] if place else None
        if instruction not in depths or before is None or before.opname in ("KW_NAMES", "PRECALL", "FOR_ITER", "END_FOR"):
            continue
        if not any(i.opname == "RESUME" for i in program.instructions[:place]) or instruction.opname in ("END_FOR", "PRECALL"):
            continue
        dead = [name for name in program.varnames if name not in live[instruction] and name not in program.cellvars]
        added = []
        for name in dead:
            added += [Instruction("LOAD_CONST", poison), Instruction("STORE_FAST", name)]
        changed = decode(function.__code__)
        changed.instructions[place:place] = added
        again = types.FunctionType(assemble(changed), globals())
        for args in [(4, 5, 6), (3, 1, 0), (1, 2, 3)]:
            assert again(*args) == function(*args), (instruction, dead)


def test_parameters_are_live_where_locals_is_called():
    def f(a, b):
        return locals()

    program = decode(f.__code__)
    [start] = [i for i in program.instructions if i.opname == "RESUME"]
    assert liveness(program)[start] >= {"a", "b"}


def test_the_first_parameter_is_live_where_super_looks_for_it():
    class A:
        def f(self, x):
            return super().__repr__()

    program = decode(A.f.__code__)
    [start] = [i for i in program.instructions if i.opname == "RESUME"]
    assert "self" in liveness(program)[start]
    assert "x" not in liveness(program)[start]


def test_stores_kill():
    program = Program("f", "f", "f.py", 1, varnames=["x"])
    program.instructions = [
        Instruction("RESUME", 0),
        Instruction("LOAD_CONST", 1),
        Instruction("STORE_FAST", "x"),
        Instruction("LOAD_FAST", "x"),
        Instruction("RETURN_VALUE"),
    ]
    live = [sorted(liveness(program)[i]) for i in program.instructions]
    assert live == [[], [], [], ["x"], []]
    assert "RETURN_VALUE" in OPCODES
