"""Every code object of the standard library survives decoding and assembling."""

import sysconfig
import types
import warnings
from pathlib import Path

import pytest

from opmill_bytecode_frontend.bytecode import Program, assemble, decode

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "__pycache__"}
GROUPS = sorted({path.relative_to(LIBRARY).parts[0] for path in LIBRARY.glob("*/**/*.py")} - LEFT_OUT)
MODULES = sorted(path.name for path in LIBRARY.glob("*.py"))


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def compiled(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None


def meaning(program: Program):
    """A program without indices and identities: what must not change."""
    number = {instruction: place for place, instruction in enumerate(program.instructions)}
    handlers = [i.handler and (number[i.handler.target], i.handler.depth, i.handler.lasti) for i in program.instructions]
    targets = [i.target and number[i.target] for i in program.instructions]
    plain = [(i.opname, repr(i.argval), i.flag, i.position) for i in program.instructions]
    return plain, targets, handlers, program.consts, program.freevars, program.cellvars, program.parameters, program.flags


def check(code):
    program = decode(code)
    again = assemble(program)
    where = f"{code.co_filename}:{code.co_qualname}"
    assert meaning(decode(again)) == meaning(program), where
    assert again.co_stacksize >= code.co_stacksize or not code.co_stacksize > 1, where
    if set(program.varnames[program.parameter_count :]) & set(program.cellvars):
        return  # a comprehension's variable that is a cell moves to another slot
    assert list(again.co_positions()) == list(code.co_positions()), where
    assert again == code, where
    for attribute in ("co_code", "co_linetable", "co_exceptiontable", "co_consts", "co_names", "co_varnames", "co_flags"):
        assert getattr(again, attribute) == getattr(code, attribute), (where, attribute)


@pytest.mark.parametrize("letter", sorted({name[0] for name in MODULES}))
def test_modules(letter):
    for name in MODULES:
        if name.startswith(letter) and (top := compiled(LIBRARY / name)):
            for code in code_objects(top):
                check(code)


@pytest.mark.parametrize("group", GROUPS)
def test_packages(group):
    for path in sorted((LIBRARY / group).glob("**/*.py")):
        if not LEFT_OUT.isdisjoint(path.relative_to(LIBRARY).parts) or not (top := compiled(path)):
            continue
        for code in code_objects(top):
            check(code)


def test_long_jumps_and_many_constants():
    body = "\n".join(f"        x = x + {n}.5 if x != {n} else g{n}(x)" for n in range(3000))
    source = f"def f(x):\n    for i in range(2):\n        if x is None: break\n        try:\n            x += 1\n        except E: pass\n{body}\n    return x\n"
    space = {}
    exec(compile(source, "long.py", "exec"), space)
    check(space["f"].__code__)
    assert types.FunctionType(assemble(decode(space["f"].__code__)), space)(5000) == space["f"](5000)


def test_reassembling_moves_everything_when_instructions_are_added():
    from opmill_bytecode_frontend.bytecode import Instruction

    def f(n):
        total = 0
        for i in range(n):
            try:
                total += 10 // (i - 2)
            except ZeroDivisionError as error:
                total += len(str(error))
        return total

    program = decode(f.__code__)
    spread = []
    for instruction in program.instructions:
        spread.append(instruction)
        if instruction.opname not in ("FOR_ITER", "KW_NAMES", "PRECALL", "COMPARE_OP", "END_FOR"):
            spread += [Instruction("NOP", position=instruction.position, handler=instruction.handler) for _ in range(150)]
    program.instructions = spread
    assert types.FunctionType(assemble(program), {})(6) == f(6)


def test_a_jump_out_of_the_program_is_refused():
    def f(x):
        return 1 if x else 2

    program = decode(f.__code__)
    jump = next(i for i in program.instructions if i.target is not None)
    program.instructions.remove(jump.target)
    with pytest.raises(ValueError, match="out of the program"):
        assemble(program)
