"""What results tell of themselves beside their values, asked in the compiled function and outside of it, is what eager's tell."""

import pytest
import torch
from torch.nn import functional as F

import opmill


def guarded(read):
    def ask(x):
        try:
            return read(x)
        except Exception as error:
            return type(error).__name__, str(error)

    return ask


FACTS = {
    "version": lambda x: x._version,
    "leaf": lambda x: x.is_leaf,
    "grad_fn": lambda x: x.grad_fn is None,
    "number": lambda x: x.output_nr,
    "bytes": lambda x: x.untyped_storage().nbytes(),
    "size": lambda x: x.untyped_storage().size(),
    "offset": lambda x: x.storage_offset(),
    "contiguous": lambda x: x.is_contiguous(),
    "channels last": lambda x: x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last),
    "names": lambda x: x.names,
    "view": lambda x: x._is_view(),
    "base": lambda x: x._base is None,
    "inference": lambda x: x.is_inference(),
    "requires": lambda x: x.requires_grad,
    "retains": lambda x: x.retains_grad,
    "strides": lambda x: x.stride(),
    "conjugated": lambda x: (x.is_conj(), x.is_neg()),
    "type": lambda x: (x.type(), x.layout, x.device, x.element_size(), x.nbytes, x.itemsize),
    "kinds": lambda x: (x.is_floating_point(), x.is_complex(), x.is_signed(), x.is_sparse, x.is_quantized, x.is_nested),
    "pinned": lambda x: (x.is_pinned(), x.is_shared()),
    "dictionary": lambda x: dict(x.__dict__),
    "class": lambda x: type(x).__qualname__,
    "overlapping": lambda x: torch._debug_has_internal_overlap(x),
    "dense": lambda x: torch.ops.aten.is_non_overlapping_and_dense(x) if hasattr(torch.ops.aten, "is_non_overlapping_and_dense") else None,
    "hooks": lambda x: x._backward_hooks,
    "gradient": lambda x: x.grad is None,
    "zero tensor": lambda x: x._is_zerotensor(),
    "resizable": lambda x: x.untyped_storage().resizable(),
}


def written(x):
    y = x.exp()
    y.add_(1)
    y[0] = 2.0
    return y


def written_view(x):
    y = x.exp()
    y[0].mul_(3)
    return y, y[0]


def filled(x):
    y = torch.empty_like(x)
    y.copy_(x)
    return y


def chained(x):
    return x.exp().add_(1).mul_(2).relu_()


def made(x):
    y = torch.zeros(3)
    y += 1
    return y + x.sum() * 0, y


def out_given(x):
    y = torch.empty_like(x)
    torch.exp(x, out=y)
    return y


def under_no_grad(x):
    with torch.no_grad():
        return x * 2, x.view(-1)


def under_inference(x):
    with torch.inference_mode():
        return x * 2


def a_list_of_parts(x):
    return [*x.chunk(2), *x.unbind(0)[:1]]


def zeroed(x):
    y = x * 1
    y.zero_()
    return y


def two_of_one(x):
    y = x * 2
    return y, y


def a_view_of_a_result(x):
    return (x * 2).view(-1)


def put_at(x):
    y = x.clone()
    y.index_put_((torch.tensor([0]),), torch.tensor(1.0))
    y.masked_fill_(y > 2, 0.0)
    y.scatter_(0, torch.zeros(1, x.shape[1] if x.dim() > 1 else 1, dtype=torch.long).expand(1, -1), 1.0)
    return y


PROGRAMS = {
    "new": lambda x: x * 2,
    "several": lambda x: (x + 1, x.exp(), x.sum()),
    "two results": lambda x: torch.max(x, 0),
    "split": lambda x: torch.split(x * 2, 1),
    "itself": lambda x: x,
    "view": lambda x: x.view(-1),
    "slice": lambda x: x[1:],
    "transposed": lambda x: x.t(),
    "diagonal": lambda x: x.diagonal(),
    "expanded": lambda x: (x * 2)[:1].expand(4, -1),
    "detached": lambda x: x.detach(),
    "of a result, detached": lambda x: (x * 2).detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "contiguous": lambda x: x.t().contiguous(),
    "channels last": lambda x: x.expand(1, 2, 4, 4).contiguous(memory_format=torch.channels_last) * 2,
    "reshaped copy": lambda x: x.t().reshape(-1),
    "reshaped view": lambda x: (x + 1).reshape(-1),
    "flattened": lambda x: x.flatten(),
    "cloned": lambda x: x.clone(),
    "cast": lambda x: (x.double(), x.float(), x.to(torch.float32)),
    "product": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x),
    "convolved": lambda x: F.conv2d(x[None, None], x[None, None, :3, :3]),
    "normalised": lambda x: F.layer_norm(x, x.shape[-1:]),
    "softmax": lambda x: x.softmax(-1),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "embedding": lambda x: F.embedding(torch.tensor([0, 1]), x),
    "concatenated": lambda x: torch.cat([x, x]),
    "stacked": lambda x: torch.stack([x, x]),
    "indexed": lambda x: x[torch.tensor([0, 1])],
    "constant": lambda x: torch.ones(3),
    "range": lambda x: torch.arange(3),
    "literal": lambda x: torch.tensor([1.0, 2.0]) + 0 * x.sum(),
    "complex": lambda x: torch.complex(x, x).conj(),
    "real part": lambda x: torch.complex(x, x).real,
    "truths": lambda x: x > 0,
    "empty": lambda x: x[:0] * 2,
    "scalar": lambda x: x.sum(),
    "cumulative": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort(),
    "where": lambda x: torch.where(x > 0, x, -x),
    "padded": lambda x: F.pad(x, (1, 1)),
    "rolled": lambda x: x.roll(1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "pooled": lambda x: F.max_pool2d(x[None], 2),
    "lstm cell": lambda x: torch.lstm_cell(x, (x, x), x.repeat(4, 1), x.repeat(4, 1)),
    "unique": lambda x: torch.unique(x.round()),
    "nonzero": lambda x: torch.nonzero(x),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "deep": lambda x: [{"a": (x * 3, x.view(-1))}],
    **{f.__name__: f for f in (written, written_view, filled, chained, made, out_given, under_no_grad, under_inference, a_list_of_parts)},
    **{f.__name__: f for f in (zeroed, two_of_one, a_view_of_a_result, put_at)},
}


def tensors(result):
    return [each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]


def facts(result):
    return [{name: guarded(read)(each) for name, read in FACTS.items()} for each in tensors(result)]


NAMES = list(FACTS)
OF_GRAPHS = {
    "number": "results of one compiled backward are numbered together",
    "view": "a view of a tensor that the program lets go of is a tensor by itself, and x.detach() of an input is a view of it",
    "base": "as view",
    "bytes": "as view: memory ends where the view ends",
    "size": "as view",
    "version": "what has a history counts writes that the compiled backward does not know of only where autograd has to know them",
}
"""What differs where kernels are generated, and why. docs/guides/wrong-numbers.md lists it."""


def example(needs):
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(needs)


def outcome(program, needs):
    """The facts of its results, or its exception."""
    try:
        return facts(program(example(needs)))
    except RuntimeError as error:
        return [{**dict.fromkeys(NAMES), "raised": str(error)}]


def differing(expected, found):
    assert [each.get("raised") for each in expected] == [each.get("raised") for each in found]
    assert len(expected) == len(found)
    return {name for one, other in zip(expected, found, strict=True) for name in NAMES if one[name] != other[name]}


def asked_inside(program):
    def inside(x):
        return facts(program(x))

    return inside


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["opmill", "eager"])
@pytest.mark.filterwarnings("ignore")
def test_outside(name, needs, backend):
    program = PROGRAMS[name]
    compiled = opmill.compile(program) if backend == "opmill" else opmill.compile(program, backend=backend)
    expected = outcome(program, needs)
    for _ in range(2):
        assert differing(expected, outcome(compiled, needs)) <= (OF_GRAPHS.keys() if backend == "opmill" else set())


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", list(PROGRAMS)[::3])
@pytest.mark.filterwarnings("ignore")
def test_inside(name, needs):
    inside = asked_inside(PROGRAMS[name])
    compiled = opmill.compile(inside, backend="eager")
    assert not differing(inside(example(needs)), compiled(example(needs)))


WRITTEN = ("written", "written_view", "filled", "chained", "made", "out_given", "zeroed", "put_at")


@pytest.mark.parametrize("name", WRITTEN)
def test_versions_of_what_has_no_history_count_writes(name):
    expected, found = (facts(f(example(False))) for f in (PROGRAMS[name], opmill.compile(PROGRAMS[name])))
    assert [each["version"] for each in found] == [each["version"] for each in expected] and any(each["version"] for each in expected)


@pytest.mark.parametrize("needs", [False, True])
def test_what_is_to_be_conjugated_is_marked(needs):
    def program(x):
        y = torch.complex(x, x * 2).conj()
        return y, y.mT, y.imag, y.imag[0], y.conj(), y.mT.conj()

    x, z = example(needs), example(needs)
    for expected, found in zip(program(x), opmill.compile(program)(z), strict=True):
        assert torch.equal(expected, found) and (expected.is_conj(), expected.is_neg()) == (found.is_conj(), found.is_neg())
    if needs:
        (program(x)[0] * 1j).real.sum().backward()
        (opmill.compile(program)(z)[0] * 1j).real.sum().backward()
        assert torch.equal(x.grad, z.grad)
