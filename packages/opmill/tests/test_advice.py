"""Advice names what costs, with its number, and only where there is something."""

import pytest
import torch

import opmill


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout()

    def forward(self, x):
        return self.drop(self.linear(x))


def advice(model, *args, before=(), **arguments):
    compiled = opmill.compile(model, options={"cache": False}, **arguments)
    for each in before:
        compiled(*each)
    return opmill.explain(compiled)(*args).advice


def test_nothing_is_said_where_there_is_nothing():
    assert advice(lambda x: x * 2, torch.ones(3)) == ()
    assert advice(Net(), torch.ones(2, 4)) == ()
    with torch.no_grad():
        assert advice(Net().eval(), torch.ones(2, 4)) == ()


def test_a_forgotten_eval_and_a_forgotten_no_grad():
    with torch.no_grad():
        [found] = advice(Net(), torch.ones(2, 4))
    assert found.startswith("1 modules") and ".eval()" in found
    [found] = advice(Net().eval(), torch.ones(2, 4))
    assert "torch.no_grad()" in found


def test_recompiles_for_sizes():
    sizes = [(torch.ones(n),) for n in (2, 3, 4)]
    [found] = advice(lambda x: x * 2, torch.ones(5), before=sizes, dynamic=False)
    assert found.startswith("3 recompiles for other sizes") and "expected sizes (4,), found sizes (5,)" in found and "mark_dynamic" in found


def test_a_break_that_is_met_often():
    def broken(x):
        x = x + 1
        print(end="", flush=bool(x.sum() > 1000))
        return x * 2

    found = advice(broken, torch.ones(5), before=[(torch.ones(n),) for n in (2, 3, 4)], dynamic=False)
    assert any("times:" in line and __file__ in line for line in found), found


@pytest.mark.parametrize(("dtype", "count"), [(torch.float64, 1), (torch.float32, 0)])
def test_float64_by_accident(dtype, count):
    found = advice(lambda x, w: x * w, torch.ones(5), torch.ones(5, dtype=dtype))
    assert len([line for line in found if "are float64" in line]) == count


def test_many_small_steps():
    def many(x):
        for _ in range(60):
            x = torch.linalg.inv(x)
        return x

    found = advice(many, torch.eye(3))
    assert any("their number costs" in line for line in found), found
