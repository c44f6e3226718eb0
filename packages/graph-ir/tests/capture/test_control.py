"""Operators that run graphs say of them what schemas say of operators."""

import torch

from opmill_graph_ir.capture.control import ControlOperator, bodies_of
from opmill_graph_ir.capture.functionalize import functionalize


class Plain(torch.nn.Module):
    def forward(self, x):
        return (x + 1,)


class Drawing(torch.nn.Module):
    def forward(self, x):
        return (torch.rand_like(x),)


def graph(module):
    return functionalize(torch.fx.symbolic_trace(module), [torch.ones(2)])


def test_one_that_draws_is_known_to():
    plain, drawing = graph(Plain()), graph(Drawing())
    assert ControlOperator("cond", (plain, plain)).tags == ()
    assert ControlOperator("cond", (plain, drawing)).tags == (torch.Tag.nondeterministic_seeded,)


def test_names_and_schema():
    op = ControlOperator("while_loop", ())
    assert str(op) == op.name() == op._schema.name == "opmill::while_loop" and not op._schema.is_mutable


def test_the_same_bodies_are_another_operator():
    assert ControlOperator("cond", ()) != ControlOperator("cond", ())


def test_bodies_are_found_in_order():
    outer, first, second = graph(Plain()), graph(Plain()), graph(Plain())
    outer.nodes[0].func = ControlOperator("cond", (first, second))
    assert bodies_of(outer) == [first, second] and bodies_of(first) == []
