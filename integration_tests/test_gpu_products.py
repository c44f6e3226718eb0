"""Matrix products that are kernels of their own (``max-autotune``) on a GPU, against eager and float64."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import opmill
from opmill_graph_ir.planning import products
from opmill_runtime_cache.devices.cuda.timing import device_seconds

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"), pytest.mark.filterwarnings("ignore")]
MODES = ["max-autotune", "max-autotune-no-cudagraphs"]
Program = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]

PROGRAMS: dict[str, Program] = {
    "bias and gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((256, 256), (688, 256), (688,))),
    "ragged": (lambda x, w, r: F.linear(x, w) + r, ((77, 130), (45, 130), (77, 45))),
    "odd depth": (lambda x, w, r: torch.tanh(x @ w) * r, ((65, 33), (33, 70), (65, 70))),
    "misaligned": (lambda x, w: (x[1:, 1:] @ w[1:]).relu(), ((65, 34), (34, 48))),
    "few rows": (lambda x, w, b: F.silu(F.linear(x, w, b)), ((3, 512), (1024, 512), (1024,))),
    "batched": (lambda x, w, b: torch.baddbmm(b, x, w).sigmoid(), ((5, 40, 64), (5, 64, 24), (24,))),
    "turned": (lambda x, w: (x.transpose(1, 2) @ w.transpose(1, 2)).exp().transpose(1, 2), ((3, 64, 48), (3, 100, 64))),
    "deep": (lambda x, w: (x @ w).abs(), ((64, 8192), (8192, 64))),
    "computed operand": (lambda x, y, w, r: F.linear(F.silu(x) * y, w) + r, ((128, 256), (128, 256), (64, 256), (128, 64))),
}


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer steps are quicker, whatever the device says, so that every program is built so."""
    monkeypatch.setattr(products.Clock, "__call__", lambda self, steps, program: float(len(steps)))


def made(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") / 4).to(dtype)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_agree_with_eager(name: str, dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    function, shapes = PROGRAMS[name]
    inputs = [made(s, dtype) for s in shapes]
    exact = function(*(t.double() for t in inputs))
    compiled = opmill.compile(function, mode=mode, dynamic=False)
    with torch.no_grad():
        eager = function(*inputs)
        for _ in range(4):
            got = compiled(*inputs)
    assert (got.dtype, got.shape, got.stride()) == (eager.dtype, eager.shape, eager.stride())
    error, theirs = ((t.double() - exact).abs().max() for t in (got, eager))
    assert error <= 3 * theirs + torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.usefixtures("_always")
def test_training_agrees_with_eager() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 96), torch.nn.ReLU()).cuda().bfloat16()
    x = made((64, 96), torch.bfloat16)
    compiled = opmill.compile(net, mode="max-autotune-no-cudagraphs")
    gradients = [torch.autograd.grad(f(x).float().square().mean(), list(net.parameters())) for f in (compiled, net)]
    exact = torch.autograd.grad(net.double()(x.double()).square().mean(), list(net.parameters()))
    for ours, theirs, right in zip(*gradients, exact, strict=True):
        errors = [(g.double() - right).abs().max() for g in (ours, theirs)]
        assert errors[0] <= 3 * errors[1] + torch.finfo(torch.bfloat16).eps * right.abs().max()


def test_the_clock_knows_much_from_little() -> None:
    small, large = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for n in (64, 4096))
    assert 1e-7 < device_seconds(lambda: small @ small) < device_seconds(lambda: large @ large) / 4
