"""Writes to what the caller has computed, or gave without gradients and gets back with them: values, history, counters and views are
eager's, for each way to write, each kind of tensor that is written and whatever is returned."""

import itertools
import warnings

import pytest
import torch
from torch.nn import functional

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions

WRITES = {
    "add": lambda x, r: x.add_(r),
    "mul": lambda x, r: x.mul_(r),
    "relu": lambda x, r: x.relu_(),
    "sigmoid": lambda x, r: x.sigmoid_(),
    "silu": lambda x, r: functional.silu(x, inplace=True),
    "copy": lambda x, r: x.copy_(r),
    "zero": lambda x, r: x.zero_(),
    "row": lambda x, r: x[0].add_(r[0]),
    "transposed": lambda x, r: x.t().mul_(r.t()),
    "positions": lambda x, r: x.index_add_(0, torch.tensor([0, 1]), r[:2]),
    "mask": lambda x, r: x.masked_fill_(r > 0, 0.5),
    "dropout": lambda x, r: torch.dropout_(x, 0.5, True),
    "of itself": lambda x, r: x.add_(torch.tanh(r) * x.detach().sum()),
    "twice": lambda x, r: (x.mul_(r), x.add_(r.sin())),
    "apart": lambda x, r: (x.detach().mul_(2), x.mul_(r)),
}
RETURNED = {
    "nothing else": lambda x, r: r + 1,
    "itself": lambda x, r: x,
    "views": lambda x, r: (x[0], x.t()),
    "all": lambda x, r: (x, x.cos(), x[1], x.detach(), x > 0, x),
}


def _computed(w):
    x = w[:3] * 3
    return x, [x]


def _saved_by_its_maker(w):
    x = w[:3].sigmoid()
    return x, [x]


def _part(w):
    whole = w * 2
    return whole[3:], [whole]


def _beside_a_view(w):
    whole = w * 2
    return whole[:3], [whole, whole[2:]]


def _transposed(w):
    x = (w * 2)[:3].t()
    return x, [x]


def _plain(w):
    x = w.detach()[:3].clone()
    return x, [x]


def _plain_part(w):
    whole = w.detach().clone()
    return whole[1:4], [whole]


def _leaf(w):
    x = w.detach()[:3].clone().requires_grad_()
    return x, [x]


def _part_of_a_leaf(w):
    return w[:3], [w]


def _one_of_several(w):
    x, other = (w * 2).split(3)
    return x, [x, other]


def _view_from_no_grad(w):
    whole = w * 2
    with torch.no_grad():
        return whole[:3], [whole]


def _hooked(w):
    x = w[:3] * 2
    x.register_hook(lambda g: g * 2)
    return x, [x]


def _keeping_its_gradient(w):
    x = w[:3] * 2
    x.retain_grad()
    return x, [x]


GIVEN = [
    _computed, _saved_by_its_maker, _part, _beside_a_view, _transposed, _plain, _plain_part, _leaf, _part_of_a_leaf, _one_of_several,
    _view_from_no_grad, _hooked, _keeping_its_gradient,
]  # fmt: skip


def _all(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _start():
    torch.manual_seed(3)
    return torch.randn(6, 3, dtype=torch.float64, requires_grad=True), torch.randn(3, 3, dtype=torch.float64, requires_grad=True)


def _seen(call, given, twice):
    """What a program sees of a call: of its results, of what was written and of everything beside that; then the gradients."""
    w, r = _start()
    x, beside = given(w)
    torch.manual_seed(5)
    try:
        results = _all(call(x, r))
    except RuntimeError as error:
        return [str(error).partition("\n")[0]]
    tensors = [*beside, x, *results]
    seen = [(t is x, t.requires_grad, t._version > 0, t.dtype, t.stride(), t._is_view() and t._base is x._base) for t in tensors]
    seen += [(t.is_leaf, t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) for t in (x, *results)]
    seen += [t.detach().clone() for t in tensors]
    losses = [t.tanh().mul(t).sum() for t in tensors if t.requires_grad]
    try:
        if not losses:
            return seen
        found = torch.autograd.grad(sum(losses), [w, r], allow_unused=True, create_graph=twice)
        seen += found
        again = sum((g * g).sum() for g in found if g is not None and g.requires_grad)
        if twice and isinstance(again, torch.Tensor):
            seen += torch.autograd.grad(again, [w, r], allow_unused=True)
    except RuntimeError as error:
        seen.append(str(error).partition(":")[0])
    return seen


def _same(want, got):
    assert len(want) == len(got), (want, got)
    for w, g in zip(want, got, strict=True):
        if isinstance(w, torch.Tensor) and isinstance(g, torch.Tensor):
            torch.testing.assert_close(g, w)
        else:
            assert w is g or w == g


CASES = [
    (given, write, returned)
    for i, (given, write) in enumerate(itertools.product(GIVEN, WRITES))
    for k, returned in enumerate(RETURNED)
    if write == "mul" or i % len(RETURNED) == k
]
"""Each way to write to each kind of tensor; one of the ways with all that may be returned."""


@pytest.mark.parametrize(("given", "write", "returned"), CASES, ids=lambda c: getattr(c, "__name__", c))
def test_writes(given, write, returned):
    def program(x, r):
        WRITES[write](x, r)
        return RETURNED[returned](x, r)

    gm = torch.fx.symbolic_trace(program)
    w, r = _start()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        try:
            compiled = compile_graph(gm, [given(w)[0], r], options=GraphOptions(verify=True, cache=False), generators=())
        except GraphError as error:
            assert given in (_leaf, _view_from_no_grad), error  # which eager refuses to write to
            return
    for twice in (False, True):
        _same(_seen(program, given, twice), _seen(lambda *inputs: compiled(*inputs), given, twice))


class _IntoBuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, a):
        self.last.mul_(0.9).add_(a)
        return (a.tanh(),)


def test_a_buffer_of_the_graph():
    eager, module = _IntoBuffer(), _IntoBuffer()
    gm = torch.fx.GraphModule(module, _Tracer().trace(module))
    compiled = compile_graph(gm, [torch.randn(3, requires_grad=True)], options=GraphOptions(cache=False), generators=())
    gradients = []
    for call, owner in ((eager, eager), (compiled, module)):
        leaf = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        [result] = call(leaf)
        assert owner.last.requires_grad
        (result + owner.last).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


class _Tracer(torch.fx.Tracer):
    proxy_buffer_attributes = True


def test_several_are_written():
    def program(a, b, c):
        a.add_(c)
        b.mul_(a)
        return a * b

    def seen(call):
        leaf = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        a, b, c = leaf * 2, torch.ones(3), leaf.sin()
        result = call(a, b, c)
        (result + a * b).sum().backward()
        return [leaf.grad, a.detach(), b.detach(), result.detach(), b.requires_grad]

    leaf = torch.ones(3, requires_grad=True)
    inputs = [leaf * 2, torch.ones(3), leaf.sin()]
    compiled = compile_graph(torch.fx.symbolic_trace(program), inputs, options=GraphOptions(cache=False), generators=())
    _same(seen(program), seen(lambda *inputs: compiled(*inputs)[0]))


def test_overlapping_inputs_are_refused():
    whole = torch.ones(6, requires_grad=True) * 2
    with pytest.raises(GraphError, match="GI005"):
        capture_joint(torch.fx.symbolic_trace(lambda a, b: a.add_(b)), [whole[:4], whole[2:]])


def test_a_write_that_spoils_what_is_saved_is_left_to_eager():
    """It says so when it is differentiated, and only then."""

    def program(x):
        y = x.sin()
        x.add_(1)
        return y

    with pytest.raises(GraphError, match="modified by an inplace operation"):
        capture_joint(torch.fx.symbolic_trace(program), [torch.ones(3, requires_grad=True) * 2])


def test_an_input_that_is_asked_to_require_grad_is_refused():
    with pytest.raises(GraphError, match="GI001.*begins to require grad"):
        capture_joint(torch.fx.symbolic_trace(lambda a, b: a * b.requires_grad_()), [torch.ones(3, requires_grad=True), torch.ones(3)])


def test_values_without_history_are_written():
    def detached(a, b):
        b.copy_(a.detach())
        return (a.tanh(),)

    joint = capture_joint(torch.fx.symbolic_trace(detached), [torch.randn(3, requires_grad=True), torch.zeros(3)])
    assert joint.graph.mutations and not joint.grown


def test_what_is_saved_of_the_written_tensor_is_not_copied():
    """The backward of ``relu_`` reads its result, which is the input itself by then."""
    joint = capture_joint(torch.fx.symbolic_trace(lambda x: x.relu_() * 2), [torch.ones(3, requires_grad=True) * 2])
    halves = partition(joint)
    assert joint.as_left == {"x0"} and len(halves.forward.outputs) == joint.outputs == 2
