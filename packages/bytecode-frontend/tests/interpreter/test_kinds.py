"""Modules of one kind may share a capture: the kind tells apart what no capture could share, and nothing else."""

import copy

import torch
from torch import nn

from opmill_bytecode_frontend.entry.kinds import kind_of, kinds_among, tensor_kind


def block(width=3, **changes):
    made = nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.BatchNorm1d(4))
    for name, part in changes.items():
        setattr(made, name, part)
    return made


def test_alike():
    first = block()
    for second in (block(), copy.deepcopy(first), block().eval(), block().requires_grad_(False)):
        assert kind_of(first) == kind_of(second) and hash(kind_of(first)) == hash(kind_of(second))


def test_apart():
    kinds = [kind_of(each) for each in (block(), block(5), block().double(), block(more=nn.Linear(1, 1)), nn.Sequential(), nn.ModuleList())]
    assert len(set(kinds)) == len(kinds)


def test_modules_that_contain_each_other():
    first, second = block(), block()
    for each in (first, second):
        each.__dict__["_modules"]["itself"] = each
    assert kind_of(first) == kind_of(second)


def test_a_part_that_is_shared_is_not_two():
    part = nn.Linear(2, 2)
    assert kind_of(nn.Sequential(part, part)) != kind_of(nn.Sequential(part, nn.Linear(2, 2)))


def test_without_init():
    assert kind_of(nn.Linear.__new__(nn.Linear)) == (nn.Linear,)


def test_tensors_without_a_shape():
    assert tensor_kind(torch.ones(2)) == (torch.Tensor, torch.float32, torch.device("cpu"), (2,))
    assert tensor_kind(None) is type(None)
    assert tensor_kind(nn.LazyLinear(3).weight) is nn.parameter.UninitializedParameter


def test_among_arguments():
    first, second = nn.Linear(2, 2), nn.ReLU()
    one, other = kind_of(first), kind_of(second)
    assert kinds_among([1, first, (2, second), [first]]) == (one, other)
    items = iter([first, second])
    assert kinds_among([items]) == (one,) and next(items) is first and kinds_among([items]) == (other,)
    assert kinds_among([iter([])]) == ()
