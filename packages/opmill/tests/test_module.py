"""A compiled module is its original in everything but speed."""

import abc
import copy
import gc
import io
import pickle
import types
import weakref

import pytest
import torch
from torch import nn

import opmill


class Net(nn.Module):
    """Has a parameter, a buffer, a submodule, an attribute that forward reads, and dropout."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("offset", torch.arange(3.0))
        self.scale = 2.0

    def forward(self, x):
        return self.dropout(self.linear(x)) * self.scale + self.offset

    @property
    def twice(self):
        return self.scale * 2

    def describe(self):
        return f"scale {self.scale}"


@pytest.fixture
def pair():
    torch.manual_seed(0)
    net = Net().eval()
    return net, opmill.compile(net, backend="eager")


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def test_it_is_of_the_same_class_and_gives_the_same(pair):
    net, compiled = pair
    assert isinstance(compiled, Net) and isinstance(compiled, nn.Module) and compiled is not net
    assert type(compiled).__name__ == "Net" and repr(compiled) == repr(net)
    with torch.no_grad():
        assert torch.equal(compiled(X), net(X))


def test_state_and_parameters_are_shared(pair):
    net, compiled = pair
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(ours is theirs for ours, theirs in zip(compiled.parameters(), net.parameters(), strict=True))
    state = {name: torch.ones_like(value) for name, value in net.state_dict().items()}
    compiled.load_state_dict(state)
    assert torch.equal(net.linear.weight, torch.ones(3, 4))
    with torch.no_grad():
        assert torch.equal(compiled(X), net(X))


def test_attributes_go_both_ways_and_are_seen_by_the_next_call(pair):
    net, compiled = pair
    with torch.no_grad():
        compiled(X)
        compiled.scale = 3.0
        assert net.scale == 3.0 and compiled.twice == 6.0 and compiled.describe() == "scale 3.0"
        assert torch.equal(compiled(X), net(X))
        net.scale = 5.0
        assert compiled.scale == 5.0 and torch.equal(compiled(X), net(X))
        compiled.linear = nn.Linear(4, 3)
        assert net.linear is compiled.linear and torch.equal(compiled(X), net(X))
        del compiled.scale
    assert not hasattr(net, "scale")
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        compiled.absent  # noqa: B018


def test_train_and_eval_reach_the_original(pair):
    net, compiled = pair
    assert compiled.train() is compiled and net.training and net.dropout.training
    torch.manual_seed(1)
    expected = net(X).detach()
    torch.manual_seed(1)
    assert torch.equal(compiled(X).detach(), expected)
    assert compiled.eval() is compiled and not net.training
    with torch.no_grad():
        assert torch.equal(compiled(X), net(X))


def test_conversion_reaches_the_original(pair):
    net, compiled = pair
    with torch.no_grad():
        compiled(X)
        assert compiled.double() is compiled and net.linear.weight.dtype == torch.float64
        assert torch.equal(compiled(X.double()), net(X.double()))


def test_hooks_registered_later_are_called(pair):
    net, compiled = pair
    seen = []
    with torch.no_grad():
        compiled(X)
        handle = compiled.register_forward_hook(lambda module, args, output: seen.append(module) or output + 1)
        raised = compiled(X)
        assert len(seen) == 1 and seen[0] is net
        handle.remove()
        assert torch.equal(raised, compiled(X) + 1) and len(seen) == 1


def test_a_pickle_holds_the_module_itself(pair):
    net, compiled = pair
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net and torch.equal(loaded.linear.weight, net.linear.weight)
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    assert type(torch.load(file, weights_only=False)) is Net


@pytest.mark.parametrize("copying", [copy.deepcopy, copy.copy])
def test_copies_are_compiled_and_their_own(pair, copying):
    net, compiled = pair
    other = copying(compiled)
    assert isinstance(other, Net) and other is not compiled
    with torch.no_grad():
        assert torch.equal(other(X), net(X))
        other.scale = 9.0
        assert net.scale == 2.0 and not torch.equal(other(X), net(X))
    assert (other.linear.weight is net.linear.weight) == (copying is copy.copy)


def test_deepcopy_of_a_parent_keeps_the_child_with_the_copy(pair):
    parent = nn.Sequential(pair[1], nn.ReLU())
    twin = copy.deepcopy(parent)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
        assert torch.equal(twin(X), torch.relu(torch.arange(3.0)).expand(2, 3))
        assert torch.equal(parent(X), torch.relu(pair[0](X)))


def test_as_a_submodule_it_keeps_the_names(pair):
    net, compiled = pair
    assert list(nn.Sequential(compiled).state_dict()) == list(nn.Sequential(net).state_dict())


def test_compiling_it_again_compiles_the_original(pair):
    net, compiled = pair
    again = opmill.compile(compiled, backend="eager")
    assert type(again).__mro__[1] is Net
    with torch.no_grad():
        assert torch.equal(again(X), net(X))


def test_a_module_with_its_own_call_and_new():
    class Counted(nn.Module):
        made = 0

        def __new__(cls, *args):
            cls.made += 1
            return super().__new__(cls)

        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return x * 2

    compiled = opmill.compile(Counted(), backend="eager")
    assert Counted.made == 1 and torch.equal(compiled(X), X * 2 + 1)


def test_a_graph_module_can_be_compiled():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    compiled = opmill.compile(traced, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(X), traced(X))


def test_a_scripted_module_is_left_alone():
    scripted = torch.jit.script(nn.ReLU())
    with pytest.warns(opmill.OpmillWarning, match="OM012"):
        assert opmill.compile(scripted) is scripted


def test_nothing_keeps_a_dropped_module_alive():
    class Local(nn.Module):
        def forward(self, x):
            return x + 1

    compiled = opmill.compile(Local(), backend="eager")
    compiled(X)
    dead = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert dead() is None


def test_what_a_module_makes_of_its_own_class_is_a_plain_module():
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Tanh())
    compiled, x = opmill.compile(layers, backend="eager"), torch.ones(2, 3)
    part = compiled[:2]
    assert type(part) is torch.nn.Sequential and torch.equal(part(x), layers[:2](x)) and torch.equal(compiled(x), layers(x))
    assert type(compiled.__class__()) is torch.nn.Sequential


TOLD: list[type] = []


class Named(nn.Module):
    """A base that wants arguments of whoever derives from it."""

    def __init_subclass__(cls, name, **others):
        super().__init_subclass__(**others)
        TOLD.append(cls)


class Refusing(nn.Module):
    """A base of which only one class may be."""

    def __init_subclass__(cls):
        if TOLD:
            raise TypeError("there is one")
        TOLD.append(cls)


class Keyed(type):
    """A metaclass that wants arguments, and registers."""

    def __new__(mcs, name, bases, namespace, *, key):
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, *, key):
        super().__init__(name, bases, namespace)
        TOLD.append(cls)


class KeyedToo(Keyed, abc.ABCMeta):
    """The same beside one of Python's own."""


@pytest.mark.parametrize(
    ("bases", "arguments"),
    [
        ((Named,), {"name": "a"}),
        ((Refusing,), {}),
        ((nn.Module,), {"metaclass": Keyed, "key": 1}),
        ((nn.Module,), {"metaclass": KeyedToo, "key": 1}),
        ((nn.Module, abc.ABC), {}),
    ],
    ids=["arguments", "refuses", "metaclass", "metaclass of abstract classes", "abstract"],
)
def test_what_the_program_does_with_classes_is_not_done_with_ours(bases, arguments):
    TOLD.clear()
    made = types.new_class("Made", bases, arguments, lambda names: names.update(forward=lambda self, x: x + 1))
    other = type.__new__(type(made), "Other", (nn.Module,), {})
    told = list(TOLD)
    compiled = opmill.compile(made(), backend="eager")
    assert told == TOLD and torch.equal(compiled(X), X + 1) and type(compiled).__bases__ == (made,)
    assert isinstance(compiled, made) and isinstance(copy.deepcopy(compiled), made)
    assert not isinstance(made(), type(compiled)) and isinstance(compiled, type(compiled)) and not isinstance(nn.Linear(1, 1), made)
    assert type(type(compiled)) is type(made) is type(other)
