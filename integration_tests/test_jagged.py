"""Jagged tensors (``torch.nested``) compiled, against eager: values, whose rows they have, gradients, and how many graphs there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opmill
from opmill.compile import record_of

pytestmark = [pytest.mark.filterwarnings("ignore")]
LENGTHS = (3, 5, 2)
OFFSETS = [0, 3, 8, 10]


def noise(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def jagged(like: Any = None, seed: int = 0) -> Any:
    return torch.nested.nested_tensor_from_jagged(noise(10, 8, seed=seed), torch.tensor(OFFSETS) if like is None else like.offsets())


def of_rows() -> Any:
    return torch.nested.nested_tensor([noise(n, 8, seed=n) for n in LENGTHS], layout=torch.jagged)


def one() -> tuple[Any, ...]:
    return (jagged(),)


def two() -> tuple[Any, ...]:
    first = jagged()
    return first, jagged(first, 1)


def words() -> tuple[Any, ...]:
    at = torch.arange(10) * 7 % 20
    return (torch.nested.nested_tensor_from_jagged(at, torch.tensor(OFFSETS)),)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def heads(x: Any) -> Any:
    return x.unflatten(-1, [2, 4]).transpose(1, 2)


torch.manual_seed(0)
BLOCK, TABLE, MATRICES = Block().double(), torch.nn.Parameter(noise(20, 8, seed=3)), noise(3, 8, 4)
Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
made = torch.nested.nested_tensor_from_jagged
WHOLE: dict[str, Program] = {
    "points": (lambda x: (x.sin() + x.exp()).clamp(0, 1) * 2, one),
    "of the same rows": (lambda x, y: (x * y + y, y - x), two),
    "with a plain one": (lambda x: x * TABLE[0] + TABLE[:3].unsqueeze(1), one),
    "a block": (lambda x: BLOCK(BLOCK(x)), one),
    "norms": (lambda x: (F.layer_norm(x, (8,)), F.rms_norm(x, (8,))), one),
    "softmax": (lambda x: torch.softmax(x * 2, -1), one),
    "softmax over rows": (lambda x: torch.softmax(x * 2, 1), lambda: (of_rows(),)),
    "a sum": (lambda x: (x * 2).sum(), one),
    "rows reshaped": (lambda x: heads(x * 2).transpose(1, 2).flatten(-2) * 3, one),
    "padded": (lambda x: torch.nested.to_padded_tensor(x * 2, -1.0) * 3, lambda: (of_rows(),)),
    "together": (lambda x, y: torch.cat([x, y * 2], -1).sin(), two),
    "what is inside": (lambda x: (x * 2).values() * x.offsets().numel(), one),
    "made of a list": (
        lambda *xs: torch.nested.nested_tensor(list(xs), layout=torch.jagged) * TABLE[0],
        lambda: (noise(2, 8), noise(3, 8)),
    ),
    "made of views": (lambda *xs: torch.nested.as_nested_tensor(list(xs), layout=torch.jagged) * 2, lambda: (noise(2, 8), noise(3, 8))),
    "made of offsets": (lambda v, o: BLOCK(made(v, o)) + made(v * 2, o), lambda: (noise(10, 8), torch.tensor(OFFSETS))),
    "looked up": (lambda i: F.embedding(i, TABLE) * 2, words),
    "the ragged size": (lambda x: (x * 2).view(x.size(0), x.size(1), 2, 4).sin(), one),
}
FORWARD: dict[str, Program] = {
    "sums of rows": (lambda x: (x.sum(1), x.mean(1), x.sum(-1), x.amax(1)), lambda: (of_rows(),)),
    "matrices": (lambda x: (x @ MATRICES, x.transpose(1, 2).contiguous()), one),
    "views": (lambda x: (x.chunk(2, -1), x.transpose(1, 2)), one),
}
"""Of some eager has no gradients, of others these depend on the lengths of rows."""
BREAKS: dict[str, Program] = {
    "rows": (lambda x: [t * 2 for t in (x * 2).unbind()], one),
    "attention": (lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x * 2)).transpose(1, 2).flatten(-2) * 2, one),
}
"""Where torch's own compiler ends the graph as well."""


def parts(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in parts(item)]
    if result.is_nested:
        return [getattr(result, name) for name in sorted(result.__tensor_flatten__()[0])]
    return [result]


def run(function: Any, given: tuple[Any, ...], gradients: bool) -> tuple[list[Any], list[Any]]:
    """What comes out, and the gradients of arguments and parameters."""
    leaves = [x.detach().requires_grad_() if gradients and x.is_floating_point() else x for x in given]
    parameters = [*BLOCK.parameters(), TABLE]
    for p in parameters:
        p.grad = None
    with torch.set_grad_enabled(gradients):
        out = function(*leaves)
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        if gradients:
            sum((r.values() if r.is_nested else r).square().sum() for r in results).backward()
    for leaf in leaves:
        if leaf.grad is not None and leaf.is_nested:
            assert leaf.grad.offsets() is leaf.offsets() and leaf.grad.shape == leaf.shape
    return parts(out), [x.grad if x.grad is None or not x.grad.is_nested else x.grad.values() for x in [*leaves, *parameters]]


CASES = [(name, gradients) for name in WHOLE for gradients in (False, True)]
CASES += [(name, False) for name in FORWARD] + [(name, gradients) for name in BREAKS for gradients in (False, True)]


def refused(make: Callable[[], Any]) -> tuple[type, str]:
    """The error of the backward, in the words that eager and compiled code share."""
    with pytest.raises((RuntimeError, AttributeError)) as error:
        make().square().sum().backward()
    return (error.type, str(error.value)) if error.type is NotImplementedError else (RuntimeError, "sizes")


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_gradients_that_torch_does_not_have_are_refused_in_the_backward(name: str, caplog: Any) -> None:
    """The forward runs, as in eager, and nothing is called an internal error."""
    x, function = of_rows().requires_grad_(), lambda x: getattr(F.linear(x, MATRICES[0].t()).sin(), name)(1)
    compiled = opmill.compile(function)
    torch.testing.assert_close(compiled(x), function(x))
    assert refused(lambda: compiled(x)) == refused(lambda: function(x))
    record = record_of(compiled)
    assert record is not None and [g.fallback[:5] for g in record[1].graphs] == ["GI001"]
    assert "internal error" not in caplog.text


@pytest.mark.parametrize(("name", "gradients"), CASES)
def test_results_are_those_of_eager(name: str, gradients: bool) -> None:
    program, make = {**WHOLE, **FORWARD, **BREAKS}[name]
    compiled = opmill.compile(program)
    for _ in range(2):
        torch.testing.assert_close(run(compiled, make(), gradients), run(program, make(), gradients))
    found = record_of(compiled)
    assert found is not None
    if name not in BREAKS:
        assert len(found[1].graphs) == 1 and not found[1].breaks and not found[1].graphs[0].fallback
    else:
        assert found[1].breaks


def test_results_combine_with_what_was_given() -> None:
    f, x = opmill.compile(lambda x: BLOCK(x)), jagged().requires_grad_()
    y = f(x)
    (x + y * y.detach()).values().sum().backward()
    assert y.offsets() is x.offsets() and x.grad is not None
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        jagged() + y


def test_eager_refuses_what_has_other_rows() -> None:
    f = opmill.compile(lambda x, y: x + y)
    for make in (two, lambda: (jagged(), jagged()), two):
        given = make()
        if given[0].offsets() is given[1].offsets():
            torch.testing.assert_close(f(*given).values(), (given[0] + given[1]).values())
        else:
            with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
                f(*given)


MANY = ((3, 5, 2), (4, 4, 9), (7, 2, 3), (2, 3, 4, 5), (6, 2), (3, 5, 2))


def of_lengths(make: Any, lengths: Any) -> tuple[Any, ...]:
    at = torch.tensor([sum(lengths[:k]) for k in range(len(lengths) + 1)])
    if make is words:
        return (torch.nested.nested_tensor_from_jagged(torch.arange(sum(lengths)) * 7 % 20, at),)
    return tuple(torch.nested.nested_tensor_from_jagged(noise(sum(lengths), 8, seed=k), at) for k in range(2 if make is two else 1))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "name", ["of the same rows", "a block", "softmax", "rows reshaped", "together", "what is inside", "looked up", "the ragged size"]
)
def test_rows_of_other_lengths_are_served_by_two_graphs(name: str, gradients: bool, dynamic: Any) -> None:
    program, make = WHOLE[name]
    compiled = opmill.compile(program, dynamic=dynamic)
    for lengths in MANY:
        mine, theirs = of_lengths(make, lengths), of_lengths(make, lengths)
        if make is two:  # rows of one tensor of offsets, also where they come to require gradients
            assert mine[0].offsets() is mine[1].offsets()
        torch.testing.assert_close(run(compiled, mine, gradients), run(program, theirs, gradients))
    found = record_of(compiled)
    assert found is not None and len(found[1].graphs) <= 2 and not found[1].breaks
