"""Operators of lists of tensors, as one and tensor by tensor: eager is the oracle, and no call of a list is left."""

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.lists import PREFIX
from opmill_graph_ir.options import GraphOptions

SCALAR = torch.tensor(1.5)
KINDS = {  # further arguments for lists of three tensors
    "default": lambda other: (),
    "Scalar": lambda other: (2.0,),
    "ScalarList": lambda other: ([1.0, 2.0, 3.0],),
    "List": lambda other: (other,),
    "Tensor": lambda other: (SCALAR,),
}
WHOLE = {"max.default", "powsum.Scalar", "pow.ScalarAndTensor", "addcdiv.Tensor", "addcmul.Tensor", "mm.default"}
WHOLE |= {"maximum_.List", "minimum_.List"}  # tensors have no such methods
WHOLE |= {f"{name}.{kind}" for name in ("maximum", "minimum") for kind in ("Scalar", "ScalarList")}
FUNCTIONS = sorted(n for n in dir(torch._C._VariableFunctions) if n.startswith(PREFIX))


def forms():
    for name in FUNCTIONS:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            plain = name.removeprefix(PREFIX).removesuffix("_")
            if not overload.endswith("out") and not {f"{plain}.{overload}", f"{name.removeprefix(PREFIX)}.{overload}"} & WHOLE:
                yield f"{name}.{overload}"


def call(form):
    name, _, kind = form.partition(".")
    plain = name.removeprefix(PREFIX).removesuffix("_")

    def run(tensors, others):
        given = KINDS[kind](others)
        if plain == "copy" or (plain == "lerp" and kind != "List"):
            given = (others, *given)
        elif plain == "lerp":
            given = (others, tensors)
        elif plain in ("addcdiv", "addcmul"):
            given = (others, [t + 1 for t in others], *given)
        found = getattr(getattr(torch.ops.aten, name), kind)(tensors, *given)
        return () if name.endswith("_") else [found[k] for k in range(3)]

    return run


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, a, b, c, d, e, f):
        tensors = [a * 1, b.t() * 1, c * 1]
        return (*self.function(tensors, [d, e.t(), f]), *tensors)


def inputs():
    return [
        torch.rand(4, 6) + 0.1,
        torch.rand(6, 5) + 0.1,
        torch.rand(()) + 0.1,
        torch.rand(4, 6) + 0.1,
        torch.rand(6, 5) + 0.1,
        torch.rand(()),
    ]


@pytest.mark.parametrize("form", forms())
def test_lists_are_their_tensors_one_by_one(form):
    module, given = Of(call(form)), inputs()
    with torch.no_grad():
        traced = torch.fx.symbolic_trace(module)
        graph = functionalize(traced, given)
        assert not any(PREFIX in node.func.name() for node in graph.nodes)
        found = compile_graph(traced, given, options=GraphOptions(cache=False, verify=True), generators=())(*given)
        for ours, theirs in zip(found, module(*given), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_what_one_tensor_wrote_the_next_one_reads():
    def crossed(tensors, others):
        torch._foreach_add_(tensors[:2], [others[0], tensors[0].sum() + others[1]])
        torch._foreach_mul_([tensors[0], tensors[0][1:]], 2.0)
        torch._foreach_add_([tensors[0], others[0] * 1], [tensors[0], tensors[0]])
        norms = torch._foreach_norm(tensors, torch.inf)
        return norms[0], norms[1]

    module, given = Of(crossed), inputs()
    with torch.no_grad():
        found = compile_graph(torch.fx.symbolic_trace(module), given, options=GraphOptions(cache=False, verify=True))(*given)
        torch.testing.assert_close(tuple(found), module(*given))


def test_lists_that_torch_refuses_are_left_to_it():
    def uneven(tensors, others):
        return (torch._foreach_add(tensors, others[:2])[0],)

    with torch.no_grad(), pytest.raises(Exception, match=r"(?i)same|lists|GI013"):
        compile_graph(torch.fx.symbolic_trace(Of(uneven)), inputs(), options=GraphOptions(cache=False))
