"""Plans that wait for other processes say so after a while, and errors say what the others do."""

import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.exchanges.others import tell, told
from opmill_graph_ir.exchanges.waiting import Watch, Watched, exchanges_in, watching
from opmill_graph_ir.options import GraphOptions

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")


@pytest.fixture
def two(monkeypatch):
    """This process as one of two, the other of which has said something."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    store = dist.HashStore()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    store.set("opmill/news/1", "0 compiles graph 3 of f (model.py:41)")
    yield store
    dist.destroy_process_group()


class Plans:
    """An executable that runs until it is let go, or fails."""

    def __init__(self, error=None):
        self.go_on, self.error = threading.Event(), error

    def __call__(self, *inputs):
        assert self.go_on.wait(60)
        if self.error is not None:
            raise self.error
        return inputs

    take = __call__


def test_each_process_says_what_it_does(two):
    assert told()[0].endswith("s ago: compiles graph 3 of f (model.py:41)") and told()[0].startswith("rank 1, ")
    tell("has compiled graph 4")
    assert two.get("opmill/news/0").decode().endswith(" has compiled graph 4")


def test_nothing_is_said_alone():
    tell("anything")
    assert told() == []


def test_a_plan_that_waits_for_long_says_so_once(two):
    said, plan = [], Plans()

    def warn(text):
        said.append(text)
        plan.go_on.set()

    assert Watched(plan, "the graph 'f'", Watch(0.01, warn))(1, 2) == (1, 2)
    assert len(said) == 1
    assert said[0].startswith("GI070: the graph 'f' waits for other processes") and "rank 1" in said[0] and "hint:" in said[0]


@pytest.mark.parametrize("method", ["__call__", "take"])
def test_an_error_has_what_the_others_said(method, two):
    plan = Plans(RuntimeError("Connection closed by peer"))
    plan.go_on.set()
    with pytest.raises(RuntimeError) as caught:
        getattr(Watched(plan, "the graph 'f'", Watch(60)), method)([])
    assert str(caught.value) == "Connection closed by peer"
    [note] = caught.value.__notes__
    assert note.startswith("GI070") and "compiles graph 3 of f" in note


def test_what_is_no_error_of_an_exchange_is_left_as_it_is(two):
    plan = Plans(ValueError("mine"))
    plan.go_on.set()
    with pytest.raises(ValueError) as caught:
        Watched(plan, "f", Watch(60))()
    assert not hasattr(caught.value, "__notes__")


def test_only_plans_with_exchanges_are_watched(two):
    name = dist.group.WORLD.group_name

    class Module(torch.nn.Module):
        def forward(self, x):
            return (torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x * 2, "sum", name)),)

    class Alone(torch.nn.Module):
        def forward(self, x):
            return (x * 2,)

    bound = []
    binder = watching(lambda plan, held, store: bound.append(exchanges_in(plan)) or (lambda *x: x), 60)
    with torch.no_grad():
        for module in (Module(), Alone()):
            graph = torch.fx.symbolic_trace(module)
            compile_graph(graph, [torch.ones(3)], options=GraphOptions(cache=False), binder=binder)
    assert bound == [True, False]
    assert watching(compile_graph, 0) is compile_graph
