"""Short rows in order on a GPU, against eager: one kernel of our own for them and what is around them."""

import math

import pytest
import torch

import opmill
from opmill.explain import explanation_of
from opmill_runtime_cache.plan.model import Call

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"), pytest.mark.filterwarnings("ignore")]
MODES = ["default", "reduce-overhead"]
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
LENGTHS = [1, 2, 3, 7, 31, 32, 33, 64, 100, 128, 255, 256, 257, 500, 1000, 1024, 1025, 2047, 2048]


def called(compiled) -> list[str]:
    """The operators of torch's that its plans call."""
    graphs = explanation_of(compiled).graphs
    assert graphs and not [g.fallback for g in graphs if g.fallback]
    return [s.op for g in graphs for s in g.report.plan.steps if type(s) is Call]


def values(dtype: torch.dtype, *sizes: int, seed: int = 0) -> torch.Tensor:
    """Many equals among them."""
    g = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(sizes, device="cuda", generator=g).mul(20).round()
    return x.abs().to(dtype) if dtype == torch.uint8 else (x / 4).to(dtype) if dtype.is_floating_point else x.to(dtype)


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, but for what is in a NaN."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    word = {2: torch.int16, 4: torch.int32}[a.itemsize]
    return bool(((a.view(word) == b.view(word)) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_eager_s(dtype, descending):
    """All lengths in one graph: their kernels are compiled side by side."""
    inputs = [values(dtype, rows, n, seed=n) for n in LENGTHS for rows in (3, 300)]

    def function(*tensors):
        return [t for x in tensors for t in x.sort(dim=1, stable=True, descending=descending)]

    compiled = opmill.compile(function, dynamic=False)
    for found, want in zip(compiled(*inputs), function(*inputs), strict=True):
        assert identical(found, want) and found.stride() == want.stride(), want.shape
    assert called(compiled) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_topk_is_eager_s(dtype, largest):
    wanted = [(n, k) for n in (1, 2, 7, 33, 128, 500, 2048) for k in sorted({1, min(n, 8), (n + 1) // 2, n})]
    inputs = [values(dtype, 70, n, seed=n) + 0 for n, _ in wanted]  # zeros of one sign: of equals any may be among the first

    def function(*tensors):
        return [t for x, (_, k) in zip(tensors, wanted) for t in x.topk(k, 1, largest)]

    compiled = opmill.compile(function, dynamic=False)
    ours, theirs = compiled(*inputs), function(*inputs)
    for number, (x, (n, k)) in enumerate(zip(inputs, wanted, strict=True)):
        found, at = ours[2 * number : 2 * number + 2]
        assert identical(found, theirs[2 * number]), (n, k)
        assert identical(x.gather(1, at), found) and all(len(row) == len(set(row)) for row in at.tolist()), (n, k)
    assert called(compiled) == []


@pytest.mark.parametrize(("dtype", "n"), [(torch.bfloat16, 1024), (torch.float16, 2048), (torch.int16, 512)], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_every_pattern_of_16_bits(dtype, n, descending):
    patterns = torch.randperm(1 << 16, device="cuda").sub(1 << 15).to(torch.int16).view(dtype).view(-1, n)
    found, at = opmill.compile(lambda x: x.sort(dim=1, stable=True, descending=descending))(patterns)
    want, where = patterns.cpu().sort(dim=1, stable=True, descending=descending)
    assert identical(found.cpu(), want) and torch.equal(at.cpu(), where)


@pytest.mark.parametrize("descending", [False, True])
def test_special_floats(descending):
    some = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 2.5, 0.0, -0.0, math.nan]
    x = torch.tensor(some)[torch.stack([torch.randperm(15) for _ in range(50)])]
    found, at = opmill.compile(lambda x: x.sort(dim=1, stable=True, descending=descending))(x.cuda())
    want, where = x.sort(dim=1, stable=True, descending=descending)
    assert identical(found.cpu(), want) and torch.equal(at.cpu(), where)
    first, _ = opmill.compile(lambda x: x.topk(6, 1, descending))(x.cuda())
    assert identical(first.cpu().abs(), want[:, :6].abs())


def routed(x):
    chosen, where = x.float().softmax(-1).topk(4)
    return chosen / chosen.sum(-1, keepdim=True), where


def accumulated(x):
    p, _ = x.softmax(-1).sort(descending=True)
    return p * p.cumsum(-1)


PROGRAMS = {
    "computed": lambda x: (x * 2 + 1).relu().sort(dim=1, stable=True)[0],
    "read by others": lambda x: (x.sort(1)[0] * 2 + x).relu(),
    "reduced": lambda x: x.sort(1)[0][:, :5].sum(1),
    "gathered": lambda x: x.cos().gather(1, x.argsort(dim=1, stable=True)),
    "msort": lambda x: x.msort(),
    "ranks": lambda x: x.argsort(dim=1, stable=True).argsort(1),
    "first dimension": lambda x: x.topk(7, 0)[0],
    "turned": lambda x: x.t().sort(dim=0, descending=True)[0],
    "sliced": lambda x: x[::2, 3:40].sort(1)[0],
    "number": lambda x: x[0, 0].sort()[0],
    "from the end": lambda x: x.sort(1)[0].flip(1),
    "routed": lambda x: routed(x)[0],
    "accumulated": accumulated,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_with_what_is_around(name, dtype, mode):
    torch.manual_seed(0)
    x, function = torch.randn(96, 64, device="cuda").to(dtype), PROGRAMS[name]
    compiled = opmill.compile(function, mode=mode, dynamic=False)
    with torch.no_grad():
        for _ in range(4):
            found = compiled(x)
        want = function(x)
    assert (found.dtype, found.shape, found.stride()) == (want.dtype, want.shape, want.stride())
    torch.testing.assert_close(found, want, rtol=2e-2 if dtype != torch.float32 else 1e-5, atol=2e-2 if dtype != torch.float32 else 1e-5)
    assert called(compiled) == []


def test_routing_is_one_kernel():
    x = torch.randn(4096, 128, device="cuda").bfloat16()
    compiled = opmill.compile(routed, dynamic=False)
    with torch.no_grad():
        weights, where = compiled(x)
    [graph] = explanation_of(compiled).graphs
    assert (graph.report.launches, graph.report.calls) == (1, 0)
    torch.testing.assert_close(weights, routed(x)[0])
    assert identical(x.gather(1, where), x.topk(4)[0])


def test_any_number_of_rows():
    compiled = opmill.compile(lambda x: (x + 1).sort(dim=1, stable=True), dynamic=True)
    for rows in (5, 1, 64, 33, 1000, 7):
        x = torch.randn(rows, 50, device="cuda")
        found, at = compiled(x)
        assert torch.equal((x + 1).gather(1, at), found) and bool((found.diff(dim=1) >= 0).all())


def test_empty_and_refused():
    for function, x in (
        (lambda x: x.sort(1), torch.empty(0, 5, device="cuda")), (lambda x: x.topk(0), torch.randn(3, 5, device="cuda")),
        (lambda x: x.sort(1), torch.randn(3, 5000, device="cuda")), (lambda x: x.sort(1), torch.randn(3, 5, device="cuda").double()),
        (lambda x: x.topk(2), torch.arange(12, device="cuda").view(3, 4)),
    ):  # fmt: skip
        for g, w in zip(opmill.compile(function)(x), function(x), strict=True):
            assert torch.equal(g, w) and g.stride() == w.stride()
    with pytest.raises(RuntimeError):
        opmill.compile(lambda x: x.topk(9))(torch.randn(3, 5, device="cuda"))


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sort(1)[0] * torch.arange(40, device="cuda"), lambda x: x.exp().topk(6)[0].square(), lambda x: x.msort().tanh()],
)
def test_gradients(function):
    x = torch.randn(70, 40, device="cuda", requires_grad=True)
    compiled = opmill.compile(function, dynamic=False)
    for _ in range(3):
        [ours], [theirs] = (torch.autograd.grad(f(x).square().sum(), x) for f in (compiled, function))
        torch.testing.assert_close(ours, theirs)
    assert not {"aten::sort", "aten::topk"} & {op.partition(".")[0] for op in called(compiled)}


def test_eager_s_rounding():
    x = torch.randn(70, 40, device="cuda")
    compiled = opmill.compile(lambda x: (x * 2).sort(1), options={"numerics": "eager"})
    for g, w in zip(compiled(x), (x * 2).sort(1), strict=True):
        assert torch.equal(g, w)
