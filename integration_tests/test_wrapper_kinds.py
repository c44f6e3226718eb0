"""Tensor subclasses of many kinds, as users write them, inside of modules and as arguments: whole graphs, right against eager."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import opmill
from opmill.compile import record_of

pytest.importorskip("opmill_kernel_gen_cpp")
kinds = pytest.importorskip("wrapper_kinds")


def noise(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def words(n: int) -> torch.Tensor:
    return torch.randint(0, 14, (n, 3), generator=torch.Generator().manual_seed(n))


class Holding(nn.Module):
    """Applies a function to what it is given and its weight, a parameter or a buffer."""

    def __init__(self, weight: Any, function: Callable[..., Any] = F.linear, kind: str = "parameter") -> None:
        super().__init__()
        self.function = function
        if kind == "buffer":
            self.register_buffer("weight", weight)
        else:
            self.weight = nn.Parameter(weight, requires_grad=kind == "trained")

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.weight)


def holding(weight: Any, *how: Any) -> Callable[[], tuple[Any, Any]]:
    width = weight.shape[0] if how and how[0] is torch.matmul else weight.shape[1]
    return lambda: (Holding(copy.deepcopy(weight), *how), lambda n: (noise(n, width).requires_grad_(),))


def of(function: Callable[..., Any], *makes: Callable[[int], Any]) -> Callable[[], tuple[Any, Any]]:
    return lambda: (function, lambda n: tuple(make(n) for make in makes))


def pickled(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def again(x: torch.Tensor, weight: Any) -> Any:
    return checkpoint(lambda y: F.linear(y, weight).tanh(), x, use_reentrant=False)


def in_half(x: torch.Tensor, weight: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(x.float(), weight.whole().float()).float()


def pointwise(*how: Any, seed: int = 0, grad: bool = False) -> Callable[[int], Any]:
    """A kind of one tensor."""
    cls, *says = how
    return lambda n: cls(noise(n, 4, seed=seed), *says).requires_grad_(grad)


def between(seed: int) -> Callable[[int], Any]:
    return lambda n: kinds.Interval(noise(n, 4, seed=seed), noise(n, 4, seed=seed) + 1)


def rows(n: int) -> Any:
    return kinds.Rows(noise(n, 5, 4), torch.tensor([1, 5, 3, 2, 4, 1, 2])[:n])


def halves(x: Any) -> Any:
    both = x * 2
    one, other = kinds.Half(both, False), kinds.Half(both, True)
    one.add_(5)
    return one + other, both


def moved(state: Any, gradient: Any) -> Any:
    with torch.no_grad():
        state.copy_(state * 0.9 + gradient * 0.1)
        fresh = torch.zeros_like(state)
        fresh.add_(gradient)
    return state, state.whole(), fresh


def written(a: Any, b: Any) -> Any:
    a.add_(b)
    a[1:].mul_(3)
    return a, a.t(), a.view(-1)


def gathered(*values: Any) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total, sorted(total.names_of), "a" in total.names_of, torch.cat(values).sum(0)


def decided(a: Any) -> Any:
    squared = a * a
    return squared.number + 1 if squared.unit == (2, 0) else squared


GROUPED, TWICE = kinds.Grouped.of(noise(16, 32)), kinds.Twice.of(noise(16, 16))
CORRECTED = kinds.Corrected(noise(8, 2), noise(2, 6), torch.tensor([1, 7, 9]), noise(3))
BLOCKS = kinds.Blocks(noise(2, 3), noise(4, 2), noise(1, 1))
METRE, SECOND = (1, 0), (0, 1)
CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "groups": holding(GROUPED),
    "groups, buffer": holding(GROUPED, F.linear, "buffer"),
    "groups, loaded": holding(pickled(GROUPED)),
    "groups, checkpoint": holding(GROUPED, again),
    "groups, autocast": holding(GROUPED, in_half),
    "groups, made": of(lambda x: kinds.Grouped.of(x).whole() + x, lambda n: noise(n, 8)),
    "twice": holding(TWICE),
    "twice, checkpoint": holding(TWICE, again),
    "corrected": holding(CORRECTED, torch.matmul),
    "corrected, trained": holding(CORRECTED, torch.matmul, "trained"),
    "keeping": holding(kinds.Keeping(torch.arange(16).view(4, 4).to(torch.int8), noise(4, 1))),
    "units": of(lambda a, b: (a * b / (a + a), (a * b).unit, (a * b).sum()), pointwise(kinds.Unit, METRE), pointwise(kinds.Unit, SECOND)),
    "units, gradients": of(
        lambda a, b: (a * b).sum(), pointwise(kinds.Unit, METRE, grad=True), pointwise(kinds.Unit, SECOND, seed=1, grad=True)
    ),
    "units, written": of(written, pointwise(kinds.Unit, METRE), pointwise(kinds.Unit, METRE, seed=1)),
    "units, decided": of(decided, pointwise(kinds.Unit, METRE)),
    "units that do not fit": of(lambda a, b: a + b, pointwise(kinds.Unit, METRE), pointwise(kinds.Unit, SECOND)),
    "names": of(gathered, *(pointwise(kinds.Named, frozenset(name), seed=k) for k, name in enumerate("abc"))),
    "names of units": of(lambda a: (a * a, (a * a).number.unit), lambda n: kinds.Named(kinds.Unit(noise(n, 4), METRE), frozenset("a"))),
    "rows": of(lambda r: ((r * 2).sum(1), F.layer_norm(r, (4,)), r.counts()), rows),
    "buckets": lambda: (Holding(kinds.Buckets(noise(5, 4), noise(9, 4)), F.embedding), lambda n: (words(n),)),
    "buckets, trained": lambda: (Holding(kinds.Buckets(noise(5, 4), noise(9, 4)), F.embedding, "trained"), lambda n: (words(n),)),
    "intervals": of(lambda a, b: (a * b, a - b, -a, (a * b).high - a.low, a.relu()), between(0), between(1)),
    "dual numbers": of(lambda a: ((a * a).sin(), a.sum()), lambda n: kinds.Dual(noise(n, 4), torch.ones(n, 4, dtype=torch.float64))),
    "dual numbers, unknown": of(lambda a: a.tanh(), lambda n: kinds.Dual(noise(n, 4), noise(n, 4))),
    "dual numbers, gradients": of(
        lambda x, s: (kinds.Dual(x, s) * 2).slope + x, lambda n: noise(n, 4).requires_grad_(), lambda n: noise(n, 4)
    ),
    "a triangle": of(lambda s, x: (x @ s, s.t(), s + s, s * 2), lambda n: kinds.Triangle.of(noise(5, 5)), lambda n: noise(n, 5)),
    "halves": of(halves, lambda n: noise(2 * n, 4)),
    "state": of(moved, lambda n: kinds.Rounded.of(noise(n, 4)), lambda n: noise(n, 4, seed=1)),
    "integers, trained": holding(kinds.Told.of(noise(8, 6)), F.linear, "trained"),
    "blocks": holding(BLOCKS, torch.matmul),
    "blocks, trained": holding(BLOCKS, torch.matmul, "trained"),
    "as many blocks": of(lambda w: (w * 2, w.t(), w.sum()), lambda n: kinds.Blocks(*[noise(2, 3, seed=k) for k in range(n)])),
    "inside vmap": of(lambda x: torch.vmap(lambda r: kinds.Interval(r.sin(), r + 1).low * 2)(x), lambda n: noise(n, 4)),
}
BREAKS = {"units that do not fit", "dual numbers, unknown"}
"""What eager refuses."""


def told(value: Any) -> Any:
    """All that tells one result from another."""
    if isinstance(value, (list, tuple)):
        return [type(value), *map(told, value)]
    if not isinstance(value, torch.Tensor):
        return value
    looks = [type(value), value.shape, value.stride() if value.numel() > 1 else (), value.dtype, value.requires_grad]
    if not isinstance(value, kinds.Kind):
        return [*looks, value.detach().clone()]
    names, context = value.__tensor_flatten__()
    return [*looks, context, *(told(getattr(value, name)) for name in names)]


def apart(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return not isinstance(other, list) or len(one) != len(other) or any(map(apart, one, other))
    if isinstance(one, torch.Tensor):
        close = {"rtol": 2e-2, "atol": 2e-2} if one.dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-6}
        return one.shape != other.shape or not torch.allclose(one, other, **close)
    return bool(one != other)


def seen(call: Any, holder: Any, given: Any) -> Any:
    """What comes out, what is left of the arguments, gradients; or what is raised."""
    try:
        results = call(*given)
    except Exception as error:
        return [type(error), str(error)]
    found = [told(results), told(list(given))]
    ends = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_leaf]
    leaves = [*given, *(holder.parameters() if isinstance(holder, nn.Module) else ())]
    wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf]
    gradients = torch.autograd.grad([t.sum() for t in ends], wanted, allow_unused=True) if ends else ()
    return [*found, told([None if g is None else g + 0 for g in gradients])]


@pytest.mark.parametrize("name", CASES)
def test_kinds_are_as_in_eager(name: str) -> None:
    function, give = CASES[name]()
    other, _ = CASES[name]()
    compiled = opmill.compile(function)
    for n in (3, 4, 6):
        wanted, found = seen(other, other, give(n)), seen(compiled, function, give(n))
        assert not apart(found, wanted), (found, wanted)
    record = record_of(compiled)
    assert record is not None and not record[1].breaks
    assert not [g.fallback for g in record[1].graphs if g.fallback]
    assert len(record[1].graphs) <= 3 and (record[1].graphs or name in BREAKS)
