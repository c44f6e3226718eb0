"""Emitted code does what its source form does."""

import types

import pytest

from opmill_bytecode_frontend.bytecode import Emitter, Position, Program, assemble


def build(emitter, *parameters, free=(), cells=(), closure=None):
    program = Program("f", "f", "emitted.py", 1, argcount=len(parameters), varnames=list(parameters))
    program.freevars, program.cellvars = list(free), list(cells)
    program.instructions = emitter.instructions
    return types.FunctionType(assemble(program), {"__builtins__": __builtins__}, "f", None, closure)


def started(cells=(), free=0):
    emitter = Emitter(Position(1, 1, 0, 0))
    emitter.prologue(cells, free)
    return emitter


def test_calls():
    e = started()
    e.load_callable(dict)
    e.load_const([("p", 1)])
    e.load_fast("a")
    e.load_const(2)
    e.call(3, ["x", "y"])
    e.load_method("items")
    e.call(0)
    e.store_fast("items")
    e.load_global_callable("sorted")
    e.load_fast("items")
    e.call(1)
    e.store_fast("items")
    e.load_global("dict")
    e.prepare_call()
    e.load_fast("items")
    e.build_tuple(1)
    e.load_const("z")
    e.load_const(3)
    e.build_map(1)
    e.call_ex(kwargs=True)
    e.return_value()
    assert build(e, "a")(7) == {"p": 1, "x": 7, "y": 2, "z": 3}


@pytest.mark.parametrize("symbol", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_stay_right_when_specialised(symbol):
    e = started()
    e.load_fast("a")
    e.load_fast("b")
    e.compare(symbol)
    label = e.label()
    e.pop_jump_if("true", label)
    e.load_const("no")
    e.return_value()
    e.place(label)
    e.load_const("yes")
    e.return_value()
    compare = build(e, "a", "b")
    oracle = eval(f"lambda a, b: 'yes' if a {symbol} b else 'no'")
    for _ in range(50):
        for pair in [(1, 2), (2, 2), (3, 2), (1.5, 2.5), (float("nan"), 1.0), ("a", "b"), ("b", "b")]:
            assert compare(*pair) == oracle(*pair)


def test_loops():
    e = started()
    e.build_list(0)
    e.load_fast("items")
    e.get_iter()
    top, end = e.label(), e.label()
    e.place(top)
    e.for_iter(end)
    e.copy(1)
    e.binary_op("*")
    e.list_append(2)
    e.jump(top)
    e.end_for(end)
    e.list_to_tuple()
    e.return_value()
    assert build(e, "items")(range(5)) == (0, 1, 4, 9, 16)


def test_cells_and_functions():
    def inner():
        return shared  # noqa: F821 - the cell is given below

    cell = types.CellType(1)
    code = inner.__code__.replace(co_freevars=("shared",), co_code=_reader("shared"), co_names=())
    e = started(free=1)
    e.load_closure("shared")
    e.build_tuple(1)
    e.load_const(code)
    e.make_function(closure=True)
    e.return_value()
    made = build(e, free=["shared"], closure=(cell,))()
    assert made() == 1
    cell.cell_contents = 2
    assert made() == 2


def _reader(name):
    e = Emitter()
    e.prologue(free=1)
    e.load_deref(name)
    e.return_value()
    program = Program("g", "g", "g.py", 1, freevars=[name])
    program.instructions = e.instructions
    return assemble(program).co_code


@pytest.mark.parametrize("symbol", ["-", "+", "~", "not"])
def test_unary(symbol):
    e = started()
    e.load_fast("a")
    e.unary_op(symbol)
    e.return_value()
    assert build(e, "a")(5) == eval(f"{symbol} 5")


def test_contexts_and_rotations():
    e = started()
    for value in (1, 2, 3, 4):
        e.load_const(value)
    e.rotate_down(4)
    e.build_tuple(4)
    e.return_value()
    assert build(e)() == (4, 1, 2, 3)
