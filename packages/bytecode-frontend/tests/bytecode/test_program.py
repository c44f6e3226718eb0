"""Instructions as data."""

import sys

import pytest

from opmill_bytecode_frontend.bytecode import Instruction, assemble, decode


def branches(x, y):
    if x > y:
        return 1
    return x < y


def test_comparisons_in_front_of_a_jump_give_truths_from_3_13_on():
    comparisons = [ins for ins in decode(branches.__code__).instructions if ins.opname == "COMPARE_OP"]
    assert [ins.gives_truth for ins in comparisons] == [sys.version_info >= (3, 13), False]


def test_nothing_else_does():
    assert not Instruction("TO_BOOL", flag=16).gives_truth
    assert not Instruction("COMPARE_OP", "<", flag=2).gives_truth


def test_free_variables_are_received_first_of_all():
    cell = 1

    def function():
        return cell

    program = decode(function.__code__)
    assert assemble(program).co_freevars == ("cell",)
    program.instructions = [each for each in program.instructions if each.opname != "COPY_FREE_VARS"]
    with pytest.raises(ValueError, match="has 1 free variables and begins by receiving 0"):
        assemble(program)
