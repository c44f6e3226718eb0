"""Operators of others that write to their arguments: called on the memory itself where nobody else reads it, on a copy elsewhere."""

import pytest
import torch

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import Call, Launch

_LIBRARY = torch.library.Library("opmill_test_in_place", "FRAGMENT")
_LIBRARY.define("double_(Tensor x, Tensor(a!) out, SymInt[] n) -> ()")
_LIBRARY.define("double(Tensor x, Tensor out, SymInt[] n) -> Tensor")


def _double(x, out, n):
    assert list(n) == list(x.shape)
    out.copy_(2 * x + out)


for _key in ("CPU", "Meta"):
    _LIBRARY.impl("double_", _double if _key == "CPU" else lambda x, out, n: None, _key)
    _LIBRARY.impl("double", (lambda x, out, n: out + 2 * x) if _key == "CPU" else (lambda x, out, n: torch.empty_like(out)), _key)
double_ = torch.ops.opmill_test_in_place.double_
_LIBRARY.define("swap(Tensor(a!) x, int n, *, Tensor(b!) y, str how='now') -> ()")  # without a functional form


def _swap(x, n, *, y, how="now"):
    assert n == 3 and how in ("now", "then")
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept * n)


_LIBRARY.impl("swap", _swap, "CPU")
_LIBRARY.impl("swap", lambda x, n, *, y, how="now": None, "Meta")
swap = torch.ops.opmill_test_in_place.swap
_LIBRARY.define("move(Tensor(a!) x, Tensor by, Tensor(b!) y) -> (Tensor, Tensor)")  # returns what it did not write, too
_LIBRARY.define("took(Tensor(a!) x) -> Tensor")


def _move(x, by, y):
    before = x.clone()
    x.add_(by)
    y.mul_(by)
    return before.sum(0), x @ y.t()


for _name, _run, _shapes in (
    ("move", _move, lambda x, by, y: (x.new_empty(x.shape[1:]), x.new_empty(x.shape[0], y.shape[0]))),
    ("took", lambda x: x.mul_(2).sum(1), lambda x: x.new_empty(x.shape[:1])),
):
    _LIBRARY.impl(_name, _run, "CPU")
    _LIBRARY.impl(_name, _shapes, "Meta")
move, took = torch.ops.opmill_test_in_place.move, torch.ops.opmill_test_in_place.took


_LIBRARY.define(
    "spread(Tensor x, Tensor(a!)[] to, Tensor(b!)? sum=None, *, Tensor(c!)[]? also=None) -> Tensor"
)  # writes what it is given of these


def _spread(x, to, sum=None, *, also=None):
    for k, t in enumerate(to):
        t.add_(x.sum() * k)
    if sum is not None:
        sum.add_(x.sum())
    for t in also or ():
        t.mul_(2)
    return x * 3


_LIBRARY.impl("spread", _spread, "CPU")
_LIBRARY.impl("spread", lambda x, to, sum=None, *, also=None: torch.empty_like(x), "Meta")
spread = torch.ops.opmill_test_in_place.spread


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def fresh(x):
    y = torch.zeros_like(x)
    double_(x, y, [4, 6])
    return (y + 1,)


def read_before_too(x):
    y = x.sin()
    z = y + 1
    double_(x, y, [4, 6])
    return y, z, y * z


def the_input(x):
    z = x * 3
    double_(z, x, [4, 6])
    return (x + z,)


def a_view(x):
    y = x.new_ones(8, 6)
    double_(x, y[2:6], [4, 6])
    return (y,)


def again_and_again(x):
    y = torch.zeros_like(x)
    for _ in range(3):
        double_(y + x, y, [4, 6])
    return (y,)


def a_returned_value(x):
    y = x.cos()
    w = y.clone()
    double_(x, w, [4, 6])
    return y, w


def complex_numbers(x):
    y = torch.complex(x, x)
    z = y * 2
    double_(y, z, [4, 6])
    return (torch.view_as_real(z),)


def of_others(x):
    y, z = x.sin(), x.cos()
    swap(y, 3, y=z)
    w = y + z
    swap(x, 3, y=y, how="then")
    return w, y, z


def results_beside_writes(x):
    y, z = x.sin(), x.cos()
    total, product = move(y, x, z)
    first, _ = move(x[1:], x[1:] * 2, z[:3])
    return y, z, total + 1, product, first


def one_result_beside_a_write(x):
    y = x + 1
    return took(y) * 2, y, took(x)


def results_that_nobody_reads(x):
    y = x + 1
    move(y, x, y * 2)
    return (y,)


def lists_and_options(x):
    y, z, total = x.sin(), x.cos(), x.sum()
    out = [spread(x, [y, z, x.clone()]), spread(x, [z[1:2], z[2:]], total), spread(x, [], None), spread(x, [])]
    out.append(spread(y, [x], sum=total, also=[z]))
    return (*out, y, z, total)


PROGRAMS = [
    lists_and_options,
    results_beside_writes,
    one_result_beside_a_write,
    results_that_nobody_reads,
    of_others,
    fresh,
    read_before_too,
    the_input,
    a_view,
    again_and_again,
    a_returned_value,
    complex_numbers,
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("fusion", [True, False])
def test_as_eager(function, fusion):
    x = torch.randn(4, 6)
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(Of(function)), [x], options=GraphOptions(cache=False, verify=True, fusion=fusion))
        for _ in range(2):
            a = torch.randn(4, 6)
            b = a.clone()
            for found, wanted in zip((*run(a), a), (*function(b), b), strict=True):
                torch.testing.assert_close(found, wanted)


def test_memory_that_is_written_twice_by_one_operator():
    def twice(x):
        y = x * 1
        torch._foreach_maximum_([y, y[1:]], [x + 1, x[1:]])
        return (y,)

    def apart(x):
        y = x * 1
        torch._foreach_maximum_([*(y[k] for k in range(4)), y[:0]], [*(x[k] + 1 for k in range(4)), x[:0]])
        return (y,)

    x = torch.randn(4, 6)
    with torch.no_grad():
        with pytest.raises(GraphError, match="GI002"):
            compile_graph(torch.fx.symbolic_trace(Of(twice)), [x], options=GraphOptions(cache=False))
        run = compile_graph(torch.fx.symbolic_trace(Of(apart)), [x], options=GraphOptions(cache=False, verify=True))
        torch.testing.assert_close(run(x)[0], apart(x)[0])


def plan_of(function):
    with torch.no_grad():
        return compile_graph(torch.fx.symbolic_trace(Of(function)), [torch.randn(4, 6)], options=GraphOptions(cache=False)).plan


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
def test_nothing_is_copied_where_nobody_else_reads():
    def three_times(x):
        y = torch.zeros_like(x)
        for _ in range(3):
            double_(x, y, [4, 6])
        return (y,)

    steps = [s for s in plan_of(three_times).steps if type(s) in (Call, Launch)]
    written = [s.args[1].index for s in steps if type(s) is Call and s.op == "opmill_test_in_place::double_"]
    assert len(written) == 3 and len(set(written)) == 1
    assert len(steps) <= 5
