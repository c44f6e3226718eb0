"""torch.distributed's functions in captured code: in the graph, in order, with what they write written, and eager's gradients."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist

from opmill_bytecode_frontend import capture

pytestmark = [
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs torch.distributed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def alone():
    """A group of one process: what it exchanges with itself is known."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def two():
    """The first of two processes, of which the other one is not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


class Graphs(list):
    """A backend that runs graphs as they are, and keeps them."""

    def __call__(self, gm, example_inputs):
        self.append(gm)
        return gm.forward

    def exchanges(self):
        """The operators that exchange tensors, of all graphs in order."""
        return [
            str(n.target).removeprefix("_c10d_functional.").removesuffix(".default")
            for g in self
            for n in g.graph.nodes
            if "c10d" in str(n.target)
        ]


def count():
    return dist.get_world_size()


def all_reduce(x):
    dist.all_reduce(x)
    return x


def all_reduce_by_name(x):
    dist.all_reduce(op=dist.ReduceOp.MAX, tensor=x, group=dist.group.WORLD)
    return x


def part(x):
    y = x.exp()
    dist.all_reduce(y[1])
    return y


def later(x):
    work = dist.all_reduce(x, async_op=True)
    y = x.new_ones(4) * 2
    assert work.wait() and work.is_completed() and work.wait()
    return x + y


def gather(x):
    out = x.new_zeros(count() * 4, 4)
    dist.all_gather_into_tensor(out, x.detach())
    return out[:4] * x


def gather_stacked(x):
    out = x.new_zeros(count(), 4, 4)
    dist.all_gather_into_tensor(out, x.detach())
    return out[0] * x


def gather_list(x):
    out = [torch.zeros_like(x) for _ in range(count())]
    dist.all_gather(out, x.detach())
    return out[-1] * x


def gather_numbers(x):
    out = [x.new_zeros(()) for _ in range(count())]
    dist.all_gather(out, x.detach().sum())
    return out[0] * x


def scatter(x):
    out = x.new_zeros(4 // count(), 4)
    dist.reduce_scatter_tensor(out, x.detach())
    return out * x[: out.shape[0]]


def scatter_list(x):
    out = torch.zeros_like(x)
    dist.reduce_scatter(out, [x.detach() + k for k in range(count())])
    return out * x


def turn(x):
    out = torch.zeros_like(x)
    dist.all_to_all_single(out, x.detach())
    return out * x


def broadcast(x):
    dist.broadcast(x, 0)
    return x


def broadcast_in_group(x):
    dist.broadcast(x, group_src=0, group=dist.group.WORLD)
    return x


FORMS = {
    all_reduce: ["all_reduce", "wait_tensor"],
    all_reduce_by_name: ["all_reduce", "wait_tensor"],
    part: ["all_reduce", "wait_tensor"],
    later: ["all_reduce", "wait_tensor"],
    gather: ["all_gather_into_tensor", "wait_tensor"],
    gather_stacked: ["all_gather_into_tensor", "wait_tensor"],
    gather_list: ["all_gather_into_tensor", "wait_tensor"],
    gather_numbers: ["all_gather_into_tensor", "wait_tensor"],
    scatter: ["reduce_scatter_tensor", "wait_tensor"],
    scatter_list: ["reduce_scatter_tensor", "wait_tensor"],
    turn: ["all_to_all_single", "wait_tensor"],
    broadcast: ["broadcast", "wait_tensor"],
    broadcast_in_group: ["broadcast", "wait_tensor"],
}


def outcome(call, grad):
    torch.manual_seed(0)
    leaf = torch.randn(4, 4, requires_grad=grad)
    out = call(leaf * 2)
    if grad:
        out.sin().sum().backward()
    return out.detach(), leaf.grad


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "form", [f for f in FORMS if f is not gather_stacked], ids=lambda f: f.__name__
)  # which Gloo refuses for one process
def test_as_eager(alone, form, grad):
    graphs = Graphs()
    compiled = capture(form, graphs, fullgraph=True)
    wanted = outcome(form, grad)
    for _ in range(2):
        found = outcome(compiled, grad)
        torch.testing.assert_close(found[0], wanted[0])
        torch.testing.assert_close(found[1], wanted[1])
    assert len(graphs) == 1 and graphs.exchanges() == FORMS[form]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_among_two(two, form):
    graphs = Graphs()
    capture(form, graphs, fullgraph=True)(torch.randn(4, 4))
    assert graphs.exchanges() == FORMS[form]


def test_order_and_arguments_are_the_programs(two):
    def several(x):
        y, z = x * 2, x + 1
        first = dist.all_reduce(y, async_op=True)
        dist.broadcast(z, 1)
        dist.all_reduce(z, dist.ReduceOp.AVG)
        first.wait()
        return y + z

    graphs = Graphs()
    capture(several, graphs, fullgraph=True)(torch.randn(4, 4))
    assert graphs.exchanges() == ["all_reduce", "broadcast", "wait_tensor", "all_reduce", "wait_tensor", "wait_tensor"]
    arguments = [
        n.args[1:] for g in graphs for n in g.graph.nodes if str(n.target).startswith(("_c10d_functional.all_r", "_c10d_functional.b"))
    ]
    name = dist.group.WORLD.group_name
    assert arguments == [("sum", name), (1, name), ("avg", name)]


def test_what_is_waited_for_in_another_graph(alone):
    def function(x):
        work = dist.all_reduce(x, async_op=True)
        y = x.sum().tolist()  # a graph ends
        work.wait()
        return x * y

    graphs = Graphs()
    x = torch.arange(4.0)
    torch.testing.assert_close(capture(function, graphs)(x.clone()), function(x.clone()))
    assert len(graphs) == 2


def test_the_work_goes_to_the_caller(alone):
    def function(x):
        y = x * 2
        return dist.all_reduce(y, async_op=True), y

    work, y = capture(function, Graphs(), fullgraph=True)(torch.ones(3))
    assert work.wait() and y.tolist() == [2, 2, 2]


def test_another_default_group_is_another_capture():
    graphs = Graphs()
    compiled = capture(all_reduce, graphs, fullgraph=True)
    for times in (1, 2):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for _ in range(2):
            assert compiled(torch.ones(2)).tolist() == [1, 1]
        dist.destroy_process_group()
        assert len(graphs) == times


def too_small(x):
    dist.all_gather_into_tensor(x.new_zeros(3), x)


def of_another_type(x):
    dist.all_gather_into_tensor(x.new_zeros(4, 4, dtype=torch.float64), x)


def no_tensor(x):
    dist.all_reduce(3)


def too_many(x):
    dist.all_gather([torch.zeros_like(x) for _ in range(3)], x)


def no_source(x):
    dist.broadcast(x)


def test_asking_until_it_has_arrived_ends(alone):
    def function(x):
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        return x + 1

    assert capture(function, Graphs())(torch.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("function", [too_small, of_another_type, no_tensor, too_many, no_source], ids=lambda f: f.__name__)
def test_errors_are_eagers(alone, function):
    errors = []
    for call in (function, capture(function, Graphs())):
        with pytest.raises(Exception) as caught:  # noqa: B017, PT011
            call(torch.ones(4, 4))
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


def test_what_graphs_do_not_do_runs_between_them(two):
    def function(x):
        y = x * 2
        dist.barrier()
        dist.all_reduce(y[:, ::2])
        return y + 1

    graphs = Graphs()
    capture(function, graphs)(torch.randn(4, 3))
    assert graphs and not graphs.exchanges()


def test_functions_of_torch_distributed_nn(alone):
    import torch.distributed.nn.functional as through

    def function(x):
        return through.all_reduce(x.sin())

    graphs = Graphs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, found = outcome(function, True), outcome(capture(function, graphs, fullgraph=True), True)
    torch.testing.assert_close(found, wanted)
    assert len(graphs) == 1
