"""Jagged tensors (``torch.nested``): what is captured whole, what is assumed, and what is refused, against eager."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nested._internal.nested_tensor import nested_from_padded

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported

pytestmark = [pytest.mark.filterwarnings("ignore")]
LENGTHS = (3, 5, 2)


def noise(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def offsets(lengths: Any = LENGTHS) -> torch.Tensor:
    return torch.tensor([sum(lengths[:k]) for k in range(len(lengths) + 1)])


def jagged(lengths: Any = LENGTHS, like: Any = None, seed: int = 0) -> Any:
    """``like``: one that has rows of the same lengths, by the same tensor."""
    at = offsets(lengths) if like is None else like.offsets()
    return torch.nested.nested_tensor_from_jagged(noise(int(at[-1]), 8, seed=seed), at)


def of_rows(lengths: Any = LENGTHS) -> Any:
    """One that knows the lengths of its shortest and of its longest row."""
    return torch.nested.nested_tensor([noise(n, 8, seed=n) for n in lengths], layout=torch.jagged)


def two() -> tuple[Any, ...]:
    first = jagged()
    return first, jagged(like=first, seed=1)


def apart() -> tuple[Any, ...]:
    return jagged(), jagged(seed=1)


def words() -> tuple[Any, ...]:
    return (torch.nested.nested_tensor_from_jagged(torch.arange(10) * 7 % 20, offsets()),)


def one() -> tuple[Any, ...]:
    return (jagged(),)


def known() -> tuple[Any, ...]:
    return (of_rows(),)


def packed() -> tuple[Any, ...]:
    return noise(6, 8), torch.tensor([0, 2, 6])


def heads(x: Any) -> Any:
    return x.unflatten(-1, [2, 4]).transpose(1, 2)


def attention(x: Any) -> Any:
    found = F.scaled_dot_product_attention(heads(x @ TABLE[:8]), heads(x), heads(x * 2))
    return found.transpose(1, 2).flatten(-2)


def refused(x: Any, y: Any) -> Any:
    try:
        return x + y
    except RuntimeError:
        return "their rows differ"


made = torch.nested.nested_tensor_from_jagged
TABLE = noise(20, 8, seed=4)
LINEAR, NORM = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
WHOLE: dict[str, Program] = {
    "points": (lambda x: (x.sin() + x.exp()).clamp(0, 1).abs().neg() * 2, one),
    "with itself": (lambda x: x + x.sin(), one),
    "of the same rows": (lambda x, y: x * y + y, two),
    "of other rows, caught": (refused, apart),
    "with a plain one": (lambda x: x + TABLE[0], one),
    "with a plain one for each row": (lambda x: x + TABLE[:3].unsqueeze(1), one),
    "chosen": (lambda x: torch.where(x > 0, x, x * 0.1), one),
    "filled": (lambda x: x.masked_fill(x > 0, 0.5), one),
    "linear": (lambda x: F.linear(x, TABLE[:6]), one),
    "modules": (lambda x: NORM(x + F.gelu(LINEAR(x))), one),
    "layer norm": (lambda x: F.layer_norm(x, (8,)), one),
    "layer norm, lengths known": (lambda x: F.layer_norm(x, (8,)), known),
    "rms norm": (lambda x: F.rms_norm(x, (8,)), one),
    "sums of rows": (lambda x: (x.sum(1), x.sum(1, keepdim=True), x.mean(1)), one),
    "largest of rows": (lambda x: x.amax(1), known),
    "sums": (lambda x: (x.sum(), x.sum(-1), x / x.sum(-1, keepdim=True), x.mean(-1), x.sum((0, 1))), one),
    "softmax": (lambda x: torch.softmax(x, -1), one),
    "softmax over rows": (lambda x: torch.softmax(x, 1), known),
    "what is inside": (lambda x: (x.values() * 2, x.offsets(), x.offsets().diff()), one),
    "sizes that are numbers": (lambda x: x * x.shape[0] * x.shape[2] * x.dim() + x.numel() + len(x), one),
    "the ragged size": (lambda x: (x * 2, x.size(1)), one),
    "all sizes": (lambda x: (x * 2).shape, one),
    "rows compared": (lambda x, y: x + 1 if x.size(1) == y.size(1) else x - 1, two),
    "other rows compared": (lambda x, y: x + 1 if x.size(1) == y.size(1) else x - 1, apart),
    "shapes compared": (lambda x, y: x + 1 if x.shape == y.shape else x - 1, two),
    "views": (lambda x: x.view(x.size(0), x.size(1), 2, 4) * 2 + x.view(3, -1, 2, 4), one),
    "reshaped": (lambda x: x.reshape(x.size(0), x.size(1), 2, 4).transpose(1, 2), one),
    "flattened": (lambda x: x.unflatten(-1, [2, 4]).flatten(-2), one),
    "expanded": (lambda x: x.sum(-1, keepdim=True).expand(x.shape), one),
    "one more dimension": (lambda x: (x.unsqueeze(-1) * 2).squeeze(-1), one),
    "matrices": (lambda x: (x @ TABLE.t(), x @ TABLE[:16].view(2, 8, 8)[:1].expand(3, 8, 8), torch.bmm(x, TABLE[:3].unsqueeze(-1))), one),
    "transposed": (lambda x: (x.transpose(1, 2) * 2, x.transpose(1, 2).contiguous()), one),
    "padded": (lambda x: x.to_padded_tensor(0.0) * 2, one),
    "padded, lengths known": (lambda x: torch.nested.to_padded_tensor(x, -1.0) * 2, known),
    "padded to a size": (lambda x: x.to_padded_tensor(0.0, (3, 9, 8)) * 2, one),
    "padded and packed": (lambda x: nested_from_padded(x.to_padded_tensor(0.0, (3, 5, 8)), x.offsets(), sum_S=10) * 2, one),
    "together": (lambda x, y: (torch.cat([x, y], -1), torch.stack([x, y], -1)), two),
    "in parts": (lambda x: (x.chunk(2, -1), x.split([2, 6], -1), x.select(-1, 0)), one),
    "dropout": (lambda x: (F.dropout(x, 0.5, False), F.dropout(x, 1.0, True)), one),
    "looked up": (lambda i: F.embedding(i, TABLE), words),
    "converted": (lambda x: x.to(torch.float64).clone().detach() * 2, one),
    "likes": (lambda x: torch.zeros_like(x) + torch.ones_like(x) * x, one),
    "what it is": (lambda x: x * 2 if x.is_nested and x.layout is torch.jagged else x, one),
    "itself": (lambda x: x, one),
    "many": (lambda x: (x * 2, x.sin(), x.values() + 1), one),
    "written": (lambda x: x.mul_(2).add_(1), one),
    "values written": (lambda x: (x.values().mul_(2), x + 1)[1], one),
    "made of a list": (lambda *xs: torch.nested.nested_tensor(list(xs), layout=torch.jagged) * 2, lambda: (noise(2, 8), noise(3, 8))),
    "made of views": (lambda *xs: torch.nested.as_nested_tensor(list(xs), layout=torch.jagged) * 2, lambda: (noise(2, 8), noise(3, 8))),
    "made of offsets": (lambda v, o: made(v, o) * 2, packed),
    "made of lengths": (lambda v, o: made(v, lengths=o.diff()) * 2, packed),
    "made, lengths known": (lambda v, o: made(v, o, min_seqlen=2, max_seqlen=4).to_padded_tensor(0.0), packed),
    "made twice": (lambda v, o: made(v, o) + made(v * 2, o), packed),
    "made of the offsets of another": (lambda x: x + made(TABLE[:10], x.offsets()), one),
}
BREAKS: dict[str, Program] = {
    "rows": (lambda x: [t * 2 for t in x.unbind()], one),
    "a row": (lambda x: x[1] * 2, known),
    "attention": (attention, one),
    "narrowed": (
        lambda x, start, count: torch.nested.narrow(x, 1, start, count, layout=torch.jagged) * 2,
        lambda: (noise(3, 5, 8), torch.tensor([0, 1, 2]), torch.tensor([3, 2, 1])),
    ),
    "softmax over rows of unknown lengths": (lambda x: torch.softmax(x * 2, 1) * 2, one),
    "rows with rows": (lambda x, y: x.transpose(1, 2) @ y, two),
}
"""What depends on the lengths of rows, which only data tell: torch's own compiler ends the graph there as well."""
REFUSED: dict[str, Program] = {
    "of other rows": (lambda x, y: x + y, apart),
    "along rows": (lambda x: x[:, :, 2:4], one),
    "a sum of what was": (lambda x: torch.cumsum(x, -1), one),
    "with a plain one of other sizes": (lambda x: x + TABLE[:, :5], one),
    "an order of rows": (lambda x: x * 2 if x.size(1) > 3 else x, one),
}


def parts(result: Any) -> list[Any]:
    """What a result is made of; of jagged ones all that is inside."""
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in parts(item)]
    if isinstance(result, torch.Tensor) and result.is_nested:
        names = sorted(result.__tensor_flatten__()[0])
        return [type(result), result.layout, result.stride()[1:], names, *(getattr(result, name) for name in names)]
    return [result]


def same(got: Any, expected: Any) -> None:
    found, wanted = parts(got), parts(expected)
    assert len(found) == len(wanted)
    for one_, other in zip(found, wanted, strict=True):
        assert type(one_) is type(other)
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one_, other)
            assert one_.stride() == other.stride()
        elif not isinstance(other, torch.SymInt) and not (isinstance(other, tuple) and any(isinstance(n, torch.SymInt) for n in other)):
            assert one_ == other


def rows_shared(result: Any, given: Any) -> list[bool]:
    """Of each jagged tensor in a result, whether its rows are by the very tensor that those of each argument are by."""
    results = [r for r in (result if isinstance(result, (list, tuple)) else (result,)) if isinstance(r, torch.Tensor) and r.is_nested]
    return [r.offsets() is (g.offsets() if g.is_nested else g) for r in results for g in given]


@pytest.mark.parametrize("name", [*WHOLE, *BREAKS])
def test_as_eager(name: str) -> None:
    program, make = {**WHOLE, **BREAKS}[name]
    f = capture(program, backend="eager", fullgraph=name in WHOLE)
    for _ in range(2):
        mine, theirs = make(), make()
        got, expected = f(*mine), program(*theirs)
        same(got, expected)
        assert rows_shared(got, mine) == rows_shared(expected, theirs)
        same(mine, theirs)
    assert name in BREAKS or len(f.entries) == 1


@pytest.mark.parametrize("name", BREAKS)
def test_what_depends_on_lengths_says_so(name: str) -> None:
    program, make = BREAKS[name]
    with pytest.raises(Unsupported, match="FE030"):
        capture(program, backend="eager", fullgraph=True)(*make())


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(name: str) -> None:
    program, make = REFUSED[name]
    errors = []
    for run in (capture(program, backend="eager"), program):
        with pytest.raises(Exception) as error:
            run(*make())
        errors.append((type(error.value), re.sub(r"\bj\d+", "j", str(error.value))))
    assert errors[0] == errors[1]


def test_results_combine_with_what_was_given() -> None:
    x = jagged()
    y = capture(lambda x: (x * 2).sin(), backend="eager", fullgraph=True)(x)
    same(x + y, x + (x * 2).sin())
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        jagged() + y
    size = capture(lambda x: (x * 2).size(1), backend="eager", fullgraph=True)(x)
    assert size == x.size(1) and size != jagged().size(1)


@pytest.mark.parametrize("first", [two, apart])
def test_whose_rows_are_whose_is_assumed(first: Any) -> None:
    f = capture(WHOLE["rows compared"][0], backend="eager")
    for make in (first, two, apart, two):
        same(f(*make()), WHOLE["rows compared"][0](*make()))
    assert len(f.entries) == 2


def test_offsets_that_are_passed_beside_are_known_again() -> None:
    def program(x: Any, at: Any) -> Any:
        return x + made(TABLE[:10], at)

    f = capture(program, backend="eager")
    x = jagged()
    same(f(x, x.offsets()), program(x, x.offsets()))
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        f(x, offsets())
    same(f(x, x.offsets()), program(x, x.offsets()))


def test_values_that_are_passed_beside_are_known_again() -> None:
    def program(x: Any, values: Any) -> Any:
        return x._values - values

    f, x = capture(program, backend="eager"), jagged()
    same(f(x, x._values), program(x, x._values))
    same(f(x, x._values + 1), program(x, x._values + 1))


@pytest.mark.parametrize("change", ["the dimension", "known lengths", "lengths", "type"])
def test_what_it_is_made_of_is_assumed(change: str) -> None:
    def program(x: Any) -> Any:
        return x * 2, x.shape[2]

    f, x = capture(program, backend="eager"), jagged()
    same(f(x), program(x))
    if change == "the dimension":
        x = jagged().transpose(1, 2)
    elif change == "known lengths":
        x = of_rows()
    elif change == "lengths":
        x = torch.nested.nested_tensor_from_jagged(noise(10, 8), offsets(), lengths=torch.tensor([2, 3, 1]))
    else:
        x = x.double()
    same(f(x), program(x))
    assert len(f.entries) == 2


MANY = ((3, 5, 2), (4, 4, 9), (7, 2, 3), (2, 3, 4, 5), (6, 2), (9, 9, 9, 9, 9), (3, 5, 2))
ODD = ((3, 5, 2), (1, 4), (0, 3, 1), (2,), (4, 0, 0, 2))
OF_THREE = {"with a plain one for each row", "views", "matrices", "padded to a size", "padded and packed", "made of the offsets of another"}


def of_lengths(make: Any, lengths: Any) -> tuple[Any, ...]:
    """What ``make`` gives, of rows of other lengths."""
    if make is two:
        first = jagged(lengths)
        return first, jagged(like=first, seed=1)
    if make is words:
        return (torch.nested.nested_tensor_from_jagged(torch.arange(sum(lengths)) * 7 % 20, offsets(lengths)),)
    if make is packed:
        return noise(sum(lengths), 8), offsets(lengths)
    if make is known:
        return (of_rows(lengths),)
    return tuple(jagged(lengths, seed=k) for k in range(2 if make is apart else 1))


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in OF_THREE and "made" not in name])
def test_lengths_are_not_assumed_nor_how_many_rows_there_are(name: str) -> None:
    """As often as torch's own compiler: once, and once more when the number of rows changes."""
    program, make = WHOLE[name]
    f = capture(program, backend="eager", fullgraph=True)
    for lengths in MANY:
        same(f(*of_lengths(make, lengths)), program(*of_lengths(make, lengths)))
    assert len(f.entries) == 2


@pytest.mark.parametrize("name", ["made of offsets", "made of lengths", "made twice"])
def test_what_is_made_of_changing_sizes(name: str) -> None:
    """Plain arguments are learnt one by one."""
    program, make = WHOLE[name]
    f = capture(program, backend="eager", fullgraph=True)
    for lengths in MANY:
        same(f(*of_lengths(make, lengths)), program(*of_lengths(make, lengths)))
    assert len(f.entries) == 3


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize(
    "name", ["points", "of the same rows", "layer norm", "the ragged size", "softmax over rows", "padded", "transposed"]
)
def test_short_and_empty_rows(name: str, dynamic: Any) -> None:
    program, make = WHOLE[name]
    f = capture(program, backend="eager", fullgraph=True, dynamic=dynamic)
    for lengths in ODD:
        same(f(*of_lengths(make, lengths)), program(*of_lengths(make, lengths)))
