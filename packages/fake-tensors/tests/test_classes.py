"""Classes of tensors on which operators mean what they mean on plain ones."""

import pytest
import torch

from opmill_fake_tensors.classes import computes_as_plain

off = torch._C._disabled_torch_function_impl


class Plain(torch.nn.Parameter):
    def about(self):
        return "more methods"


class Quiet(torch.Tensor):
    __torch_function__ = off
    note = "an attribute of its own"


class Loud(torch.Tensor):
    pass


class Adding(torch.Tensor):
    __torch_function__ = off

    def __add__(self, other):
        return 3


class Shaped(torch.Tensor):
    __torch_function__ = off

    @property
    def shape(self):
        return (7,)


class Dispatching(torch.Tensor):
    __torch_function__ = off

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return 3


class Looking(torch.Tensor):
    __torch_function__ = off

    def __getattr__(self, name):
        return 3


@pytest.mark.parametrize(
    ("cls", "plain"),
    [
        (torch.Tensor, True),
        (torch.nn.Parameter, True),
        (torch.nn.Buffer, True),
        (Plain, True),
        (Quiet, True),
        (Loud, False),  # results are of its class
        (Adding, False),
        (Shaped, False),
        (Dispatching, False),
        (Looking, False),
    ],
)
def test_what_gives_no_operator_another_meaning_is_plain(cls, plain):
    assert computes_as_plain(cls) is plain
