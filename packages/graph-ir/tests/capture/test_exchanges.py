"""Operators that exchange tensors with other processes: kept, in order, waited for, on memory of their own."""

import pytest
import torch
import torch.distributed as dist

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import Alloc, Call

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed"),
    pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed"),
]
SPACE = "_c10d_functional::"


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(torch.ops._c10d_functional, x)


def traced(function):
    return torch.fx.symbolic_trace(Of(function))


def compiled(function, x):
    with torch.no_grad():
        return compile_graph(traced(function), [x], options=GraphOptions(cache=False, verify=True))


def names_of(function, x):
    with torch.no_grad():
        return [n.func.name().removeprefix(SPACE).removeprefix("aten::") for n in functionalize(traced(function), [x]).nodes]


def unread(c, x):
    c.wait_tensor(c.all_reduce(x, "sum", "0"))
    return (x + 1,)


def twice(c, x):
    return (c.wait_tensor(c.all_reduce(x, "sum", "0")) + c.wait_tensor(c.all_reduce(x, "sum", "0")),)


def waited_by_name_alone(c, x):
    h = c.all_reduce(x * 2, "sum", "0")
    row = h[0]
    c.wait_tensor(h)
    return h + 1, row * 2


def meanwhile(c, x):
    h = c.wait_tensor(c.all_reduce(x * 2, "sum", "0"))
    y = (x.sin() + 1).softmax(-1) @ x
    return (h + y,)


def in_place(c, x):
    y = x * 3
    c.all_reduce_(y, "sum", "0")
    c.wait_tensor(y)
    return (y + 1,)


def of_an_input(c, x):
    c.wait_tensor(x)
    return x + 1, x


def gathered(c, x):
    y = x.sin()
    h = c.all_gather_into_tensor(y, 1, "0")
    z = (x.cos() + 1).exp().sum(0)
    return c.wait_tensor(h) + z, y


def scattered(c, x):
    h = c.wait_tensor(c.reduce_scatter_tensor(x.exp(), "sum", 1, "0"))
    return (c.wait_tensor(c.all_to_all_single(h.t(), [x.shape[1]], [x.shape[1]], "0")) * 2,)


PROGRAMS = [unread, twice, waited_by_name_alone, meanwhile, in_place, of_an_input, gathered, scattered]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager(function):
    x = torch.randn(6, 6)
    run, given = compiled(function, x), x.clone()
    found, wanted = run(given), traced(function)(x)
    assert torch.equal(given, x)
    assert not run.report.operators_only
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


def test_every_exchange_stays():
    x = torch.randn(4, 4)
    assert names_of(unread, x).count("all_reduce") == 1 and names_of(unread, x).count("wait_tensor") == 1
    assert names_of(twice, x).count("all_reduce") == 2


def test_waits_come_right_before_their_readers():
    found = names_of(meanwhile, torch.randn(4, 4))
    assert found.index("all_reduce") < found.index("mm") < found.index("wait_tensor") < len(found) - 1


def test_what_is_written_in_place_has_arrived():
    found = names_of(lambda c, x: (c.all_reduce_(x, "sum", "0") + 1,), torch.randn(4, 4))
    assert found.index("all_reduce") < found.index("wait_tensor") < found.index("add.Tensor")


def test_steps_are_in_the_order_of_the_program():
    def many(c, x):
        a = c.all_reduce(x * 2, "sum", "0")
        b = c.all_reduce(x * 3, "max", "0")
        d = c.broadcast(x * 4, 0, "0")
        return c.wait_tensor(d) + c.wait_tensor(b) + c.wait_tensor(a), x.sum()

    plan = compiled(many, torch.randn(4, 4)).plan
    calls = [s for s in plan.steps if type(s) is Call and s.op.startswith(SPACE)]
    assert [s.op.removeprefix(SPACE) for s in calls[:3]] == ["all_reduce", "all_reduce", "broadcast"]
    assert [s.args[1].value for s in calls[:2]] == ["sum", "max"]


def test_what_others_read_is_not_in_the_arena():
    """Memory of the arena has other owners before the exchange ends."""
    plan = compiled(gathered, torch.randn(64, 64)).plan
    [gather] = [s for s in plan.steps if type(s) is Call and s.op.startswith(SPACE + "all_gather")]
    [made] = [s for s in plan.steps if type(s) is Alloc and s.slot == gather.args[0].index]
    assert made.offset is None


def test_gradients_of_exchanges():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            h = torch.ops._c10d_functional_autograd.all_to_all_single(x @ self.w, [x.shape[0]], [x.shape[0]], "0")
            return (torch.ops._c10d_functional.wait_tensor(h).sin().sum(),)

    x, grads = torch.randn(4, 4), []
    model = Model()
    gm = torch.fx.symbolic_trace(model)
    run = compile_graph(gm, [x], options=GraphOptions(cache=False, verify=True))
    for call in (model, run):
        model.w.grad = None
        call(x)[0].backward()
        grads.append(model.w.grad)
    torch.testing.assert_close(*grads)


def test_a_derivative_of_a_derivative_does_not_exchange_again():
    from opmill_graph_ir.errors import GraphError

    x = torch.randn(4, 4, requires_grad=True)
    run = compile_graph(
        traced(lambda c, x: (c.wait_tensor(c.all_reduce(x.detach(), "sum", "0")) * x.exp(),)), [x], options=GraphOptions(cache=False)
    )
    with pytest.raises(GraphError, match="GI007"):
        torch.autograd.grad(run(x)[0].sum(), x, create_graph=True)
