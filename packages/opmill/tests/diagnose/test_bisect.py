"""bisect() names the part, the module and the operators that make a result wrong."""

import torch
from torch import fx

import opmill
from opmill.diagnose.minimize import Smallest, cloned


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = x.sin() + y
    b = a.relu() * 2
    c = b.cumsum(0)
    return (c - a).tanh().exp()


def test_the_smallest_graph_holds_what_shows_the_fault_and_no_more() -> None:
    gm = fx.symbolic_trace(chain)
    x, y = torch.arange(4.0), torch.ones(4)

    def shows(part: fx.GraphModule, inputs) -> bool:  # type: ignore[no-untyped-def]
        part(*inputs)
        names = [node.target for node in part.graph.nodes if node.op.startswith("call_")]
        return "cumsum" in names and "tanh" in names

    search = Smallest(gm, [x, y], shows)
    small, inputs = search.found()
    targets = [node.target for node in small.graph.nodes if node.op.startswith("call_")]
    assert [t for t in targets if isinstance(t, str)] == ["cumsum", "tanh"]
    b = (x.sin() + y).relu() * 2
    assert any(torch.equal(value, b) for value in inputs)
    assert search.tried < 20


def test_parts_see_memory_as_it_was_before_they_ran() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[1:].add_(1)
        return y.sum()

    gm = fx.symbolic_trace(writes)
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    part, inputs = Smallest(gm, [torch.ones(3)], lambda *_: True).part(calls[1:])
    assert torch.equal(inputs[0], torch.full((3,), 2.0))
    assert any(value == 8 for value in part(*inputs) if isinstance(value, torch.Tensor) and value.dim() == 0)


def test_copies_share_memory_as_the_originals_do() -> None:
    base = torch.arange(6.0)
    a, b, again, z = cloned([base, base[2:], base, torch.tensor([1 + 2j]).conj()])
    a[3] = 9
    assert b[1] == 9 and again is a and base[3] == 3
    assert z.is_conj() and z.item() == 1 - 2j


def test_what_is_right_has_no_fault() -> None:
    found = opmill.bisect(chain, backend="eager")(torch.arange(4.0), torch.ones(4))
    assert not found and "nothing is wrong" in str(found)


class Inner(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x + 1 if torch.compiler.is_compiling() else x


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Identity(), torch.nn.Sequential(torch.nn.Tanh(), Inner())

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.second(self.first(x)) * 2


def test_a_fault_of_the_frontend_is_found_in_the_innermost_module() -> None:
    found = opmill.bisect(Outer(), backend="eager")(torch.ones(3))
    assert found.part == "frontend" and found.module == "second.1"
    assert __file__ in found.where[0] and str(Inner.forward.__code__.co_firstlineno) in found.where[0]


def test_a_foreign_backend_is_named() -> None:
    def wrong(gm, inputs):  # type: ignore[no-untyped-def]
        return lambda *args: [out + 1 for out in gm.forward(*args)]

    found = opmill.bisect(chain, backend=wrong)(torch.arange(4.0), torch.ones(4))
    assert found.part == "backend" and "wrong" in found.fault
