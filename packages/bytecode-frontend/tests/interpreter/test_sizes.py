"""Sizes and numbers that change from call to call: results as eager's at each of them, and few captures."""

from __future__ import annotations

import math
import random
import re
import warnings
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend.entry.capture import capture
from opmill_bytecode_frontend.errors import CaptureWarning

SIZES = [5, 6, 7, 2, 20, 3, 11, 64, 9, 4, 33, 8, 12, 2, 17, 40, 5, 100, 10, 13]


def counted(fn: Any, **options: Any) -> tuple[Any, list[Any]]:
    """The captured function, and a list that grows with each graph."""
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        graphs.append((gm, examples))
        return gm.forward

    return capture(fn, backend, fullgraph=True, **options), graphs


def arithmetic(x):
    n, m = x.shape
    half = n // 2 + n % 3 + math.floor(n / 2) - math.ceil(n * 0.5) + int(n / 4)
    return (
        x * n - half,
        n * m,
        -n,
        half,
        n / 2,
        (n + 1) * 2 - m,
        len(x),
        x.numel(),
        x.size(-1),
        n**2,
        float(n),
        math.sqrt(n),
        n**0.5,
        round(n),
    )


def shapes(x):
    n = x.shape[0]
    parts = x.reshape(-1), x[: n // 2], x[1:, None], x.view(1, n, -1).expand(3, -1, -1), x.t().contiguous(), torch.cat([x, x[1:]])
    return parts, torch.zeros(n, 2), torch.arange(n), x.new_ones(x.shape), torch.full((2,), n), x.shape, x.size()


def counts(x):
    n = x.shape[0]
    made = torch.linspace(0, 1, n), torch.linspace(-1.5, 7, steps=2 * n, dtype=torch.float64), torch.tensor([n, 3, x.shape[1]])
    return (
        *made,
        torch.nn.functional.one_hot(torch.arange(4) % 2, n),
        torch.nn.functional.one_hot(x.long().abs() % 2, num_classes=n + 1),
        torch.tensor((n,)),
    )


def model(x):
    h = torch.nn.functional.layer_norm(x @ torch.ones(8, 16), (16,))
    h = h.view(x.shape[0], 4, 4).transpose(0, 1)
    return (h @ h.transpose(1, 2)).softmax(-1).sum(0) / x.shape[0]


def branches(x):
    if x.shape[0] >= 6:
        x = x + 1
    return x if len(x) % 2 else (x, "even")


def containers(x):
    n = x.shape[0]
    sizes = {"n": n, "pair": (n, n + 1)}
    items = [n, *x.shape, sizes["pair"][1]]
    return sizes, items, sum(items), max(items), min(n, 7), sorted(items)[-1], any(items), n in items, isinstance(n, int), bool(n)


def callee(x, n, scale=1):
    return x[:n] * scale + n


def called(x):
    return callee(x, x.shape[0] - 1, scale=x.shape[0]), callee(x, n=2)


class Holder:
    def __init__(self, x):
        self.size = x.shape[0]

    def __len__(self):
        return self.size * 2


def objects(x):
    holder = Holder(x)
    return holder.size, len(holder), x + len(holder)


@pytest.mark.parametrize("fn", [arithmetic, shapes, counts, model, containers, called, objects], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_twenty_sizes_are_captured_at_most_twice(fn: Any, dynamic: Any) -> None:
    compiled, graphs = counted(fn, dynamic=dynamic)
    for n in SIZES:
        x = torch.randn(n, 8)
        assert same(compiled(x), fn(x))
    one_row, compares = fn is called, 4 * (fn is containers)
    assert len(compiled.entries) <= (1 if dynamic else 2) + one_row + compares, [str(e.guards) for e in compiled.entries]


def test_a_branch_is_captured_once_for_each_way_it_goes() -> None:
    compiled, _ = counted(branches)
    for n in SIZES:
        x = torch.randn(n, 8)
        assert same(compiled(x), branches(x))
    assert len(compiled.entries) <= 6


@pytest.mark.parametrize("n", [0, 1])
def test_sizes_zero_and_one_are_captured_by_themselves(n: int) -> None:
    compiled, _ = counted(lambda x: (x * 2 + x[:1], x.shape[0] == n, x.sum(0, keepdim=True) + x))
    for k in (4, 5, n, 6, n):
        x = torch.randn(k, 3)
        assert same(compiled(x), compiled.__wrapped__(x))
    assert len(compiled.entries) == 3


def test_the_reason_of_a_recapture_is_told() -> None:
    def both(x, y):
        return x + y

    compiled, _ = counted(both, dynamic=True)
    compiled(torch.ones(4, 3), torch.ones(4, 3))
    compiled(torch.ones(6, 3), torch.ones(6, 3))
    assert len(compiled.entries) == 1
    [failure] = compiled.explain_miss((torch.ones(6, 3), torch.ones(1, 3)), {})
    assert "s0 >= 2" in str(failure)
    assert same(compiled(torch.ones(6, 3), torch.ones(1, 3)), torch.ones(6, 3) * 2)
    failures = [str(f) for f in compiled.explain_miss((torch.ones(6, 3), torch.ones(7, 3)), {})]
    assert "aten::add.Tensor at" in failures[0] and __file__ in failures[0]
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.ones(6, 3), torch.ones(7, 3))


def test_equal_sizes_are_not_assumed_to_be_one() -> None:
    compiled, _ = counted(lambda x, y: (x.sum(), y.sum(), x.shape[0] + y.shape[0]), dynamic=True)
    for n, m in ((4, 4), (4, 5), (7, 3), (9, 9)):
        x, y = torch.ones(n), torch.ones(m)
        assert same(compiled(x, y), compiled.__wrapped__(x, y))
    assert len(compiled.entries) == 1


def scaled(x, n, flag):
    y = torch.zeros(n, x.shape[1]) + x.sum()
    return (y * n, n * 2) if flag else (y / n, [n, n + 1])


def test_ints_that_change_are_inputs() -> None:
    compiled, graphs = counted(scaled)
    x = torch.randn(3, 4)
    for n in SIZES:
        assert same(compiled(x, n, True), scaled(x, n, True))
    assert len(compiled.entries) == 2 and isinstance(graphs[-1][1][0], torch.SymInt) or isinstance(graphs[-1][1][1], torch.SymInt)
    for n in (1, 0, 1):
        assert same(compiled(x, n, True), scaled(x, n, True))
    for n in (5, 6):
        assert same(compiled(x, n, False), scaled(x, n, False))


def test_a_size_tied_to_a_number_brings_the_number_along() -> None:
    def fn(x, k):
        return x * 2 if x.shape[0] == k + 3 else x * 3

    compiled, graphs = counted(fn, dynamic=True)
    for n, k in ((7, 4), (8, 5), (8, 6), (9, 6)):
        assert same(compiled(torch.ones(n, 2), k), fn(torch.ones(n, 2), k))
    [size, number] = graphs[0][1]
    assert {str(size.shape[0]), str(number)} in ({"3 + s2", "s2"}, {"s0", "-3 + s0"})


ONES = {
    "tensor": lambda x: torch.tensor(x.shape[0]),
    "tensor of a type": lambda x: torch.as_tensor(x.shape[0] * 2, dtype=torch.float32),
    "full": lambda x: torch.full((2,), x.shape[0]),
    "reflected": lambda x: (
        2 * x.shape[0] + x,
        1 - x.shape[0],
        2.5 * x.shape[0],
        7 // x.shape[0],
        100 % x.shape[0],
        True + x.shape[0],
        3 < x.shape[0],
    ),
    "powers": lambda x: (x ** x.shape[0], x.std() * x.shape[0] ** -0.5),
    "scalars": lambda x: (
        x.clamp(max=x.shape[0]),
        torch.add(x, x, alpha=x.shape[0]),
        torch.where(x > 0, x.shape[0], 0.5),
        x == x.shape[0],
        x % x.shape[0],
    ),
    "types": lambda x: (
        x.long() * x.shape[0] / 2,
        (x > 0) * x.shape[0],
        x.half() * (x.shape[0] / 2),
        x.int() + x.shape[0],
        x.sum() * (x.shape[0] / 3),
    ),
    "types without dimensions": lambda x: (x.long().sum() * (x.shape[0] / 3), x.sum().long() + x.shape[0], x.half().sum() * x.shape[0]),
    "items": lambda x: (x[x.shape[0] - 1], x[-x.shape[0] // 2 :], x[: x.shape[0] // 2 * 2].view(-1, 2), x[:, None].expand(-1, x.shape[0])),
    "product": lambda x: (math.prod(x.shape), torch.numel(x), divmod(x.shape[0], 2)),
    "fills": lambda x: (x.clone().fill_(x.shape[0]), x.masked_fill(x > 0, x.shape[0]), torch.nn.functional.pad(x, (0, 80 - x.shape[0]))),
    "orders": lambda x: (
        x.roll(x.shape[0] // 2, 0),
        x.topk(x.shape[0] - 1).values,
        x.unfold(0, 2, 1),
        torch.triu(x * x[:, None], x.shape[0] - 2),
    ),
    "list": lambda x: torch.tensor([x.shape[0], 2]),
    "steps": lambda x: torch.linspace(0, 1, x.shape[0]),
    "classes": lambda x: torch.nn.functional.one_hot(torch.tensor([0, 1]), x.shape[0]),
}


@pytest.mark.parametrize("name", ONES)
def test_one_capture_serves(name: str) -> None:
    compiled, graphs = counted(ONES[name], dynamic=True)
    for n in (5, 6, 7, 9, 64):
        x = torch.linspace(-2, 2, n)
        assert same(compiled(x), ONES[name](x))
    assert len(compiled.entries) == 1 and len(graphs) <= 1


ASSUMED = {
    "text": lambda x: f"{x.shape} {x.shape[0]:>4}",
    "key": lambda x: {x.shape[0]: 1}[x.shape[0]],
    "count": lambda x: [0] * x.shape[0],
    "bits": lambda x: x.shape[0] & 3,
    "power": lambda x: 2 ** x.shape[0],
    "new": lambda x: x.new_tensor(x.shape[0]),
    "logarithm": lambda x: math.log(x.shape[0]),
    "item": lambda x: torch.full((), x.shape[0]).item(),
    "hash": lambda x: hash(x.shape[0]),
    "probability": lambda x: torch.nn.functional.dropout(x, 1.0 / x.shape[0], training=False),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_what_needs_the_value_assumes_it(name: str) -> None:
    compiled = capture(ASSUMED[name], "eager", dynamic=True)
    for n in (5, 6, 5, 7):
        x = torch.linspace(-2, 2, n)
        assert same(compiled(x), ASSUMED[name](x))


def test_a_loop_needs_its_count() -> None:
    def loop(x, n):
        for i in range(n):
            x = x + i
        return x, f"{n}"

    compiled, _ = counted(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        for n in SIZES:
            assert same(compiled(torch.ones(2), n), loop(torch.ones(2), n))


def test_all_sizes_of_tokens_change_together() -> None:
    table = torch.randn(10, 4)
    compiled, graphs = counted(lambda ids: torch.nn.functional.embedding(ids, table).sum(1) / ids.shape[0])
    for sizes in ((3, 5), (3, 7), (4, 7), (8, 2), (6, 9)):
        ids = torch.ones(sizes, dtype=torch.long)
        assert same(compiled(ids), compiled.__wrapped__(ids))
    assert len(graphs) == 2


def test_never_dynamic() -> None:
    compiled, graphs = counted(arithmetic, dynamic=False)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 8)
        assert same(compiled(x), arithmetic(x))
    assert len(graphs) == 4


def test_marks_of_either_compiler_are_honoured() -> None:
    x = torch.randn(6, 8)
    x._dynamo_dynamic_indices = {0}
    compiled, graphs = counted(model)
    for tensor in (x, torch.randn(9, 8), torch.randn(30, 8)):
        assert same(compiled(tensor), model(tensor))
    assert len(graphs) == 1
    static = torch.randn(6, 8)
    static._dynamo_static_indices = {0, 1}
    compiled, graphs = counted(model, dynamic=True)
    for tensor in (static, torch.randn(9, 8), torch.randn(30, 8)):
        assert same(compiled(tensor), model(tensor))
    assert len(graphs) == 2


def test_a_marked_size_that_is_assumed_is_told() -> None:
    x = torch.randn(3, 2)
    x._dynamo_dynamic_indices = {0}
    compiled, _ = counted(lambda x: [x + i for i in range(x.shape[0])])
    with pytest.warns(CaptureWarning, match=r"FE091.*x\.size\(0\).*== 3"):
        compiled(x)


def of_three_rows(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.reshape(3, 2)


def test_the_expression_that_fixes_a_size_is_marked() -> None:
    x = torch.randn(3, 2)
    x._dynamo_dynamic_indices = {0}
    compiled, _ = counted(of_three_rows)
    with pytest.warns(CaptureWarning, match="FE091") as caught:
        compiled(x)
    text = str(caught[0].message).splitlines()
    assert text[-2].strip() == "return x.sin() + x.reshape(3, 2)"
    marked = re.search(r"[~^]+", text[-1])  # from Python 3.13 on carets stand under the parentheses of a call alone
    assert marked is not None and text[-2][slice(*marked.span())] in ("x.reshape(3, 2)", "x.sin() + x.reshape(3, 2)")


def test_strides_that_change() -> None:
    compiled, graphs = counted(lambda x: (x * 2).sum(0) + x[0])
    big = torch.randn(30, 40)
    for x in (
        big[:4, :8],
        big[:5, :8],
        big[:6, 10:18],
        torch.randn(7, 50)[:, :8],
        torch.randn(9, 60)[:, :8],
        torch.randn(9, 8),
        torch.randn(12, 70)[:, :8],
    ):
        assert same(compiled(x), compiled.__wrapped__(x))
    assert len(graphs) <= 4


def test_written_inputs_and_attributes() -> None:
    class Counter:
        total = 0

    counter, log = Counter(), []

    def fn(x):
        x.add_(x.shape[0])
        counter.total = counter.total + x.shape[0]
        log.append(x.size(0))
        return x[: x.shape[0] // 2]

    compiled, _ = counted(fn)
    for n in (4, 6, 8, 10):
        x = torch.ones(n)
        got = compiled(x)
        assert torch.equal(x, torch.ones(n) + n) and got.shape == (n // 2,) and got.data_ptr() == x.data_ptr()
    assert counter.total == 28 and log == [4, 6, 8, 10]


def test_in_place_views_of_an_input_do_not_change_what_its_size_was() -> None:
    def fn(x):
        n = x.shape[0]
        y = x.clone().unsqueeze_(0)
        return y * n, y.shape[1] + n

    compiled, _ = counted(fn)
    for n in (4, 6, 8):
        assert same(compiled(torch.ones(n)), fn(torch.ones(n)))


def test_gradients() -> None:
    w = torch.randn(8, 3, requires_grad=True)

    def fn(x):
        return (x @ w).sum() / x.shape[0]

    compiled, graphs = counted(fn)
    for n in (4, 6, 8, 11):
        x = torch.randn(n, 8, requires_grad=True)
        [a, b], [c, d] = torch.autograd.grad(compiled(x), [x, w]), torch.autograd.grad(fn(x), [x, w])
        assert torch.equal(a, c) and torch.equal(b, d)
    assert len(graphs) == 2


def test_graph_breaks_hand_sizes_over() -> None:
    def fn(x, log):
        n = x.shape[0] * 2
        y = x * n
        log.append(print)
        torch.manual_seed(0) if n < 0 else None
        value = y.sum().tolist()
        return y[: n // 4] + n, n + 1, value

    graphs: list[Any] = []
    compiled = capture(fn, lambda gm, ex: graphs.append(gm) or gm.forward)
    for n in SIZES[:8]:
        x = torch.randn(n, 8)
        assert same(compiled(x, []), fn(x, []))
    assert len(graphs) <= 8  # two parts: at the first size, at others, and where a slice has one row


# ---- random programs -----------------------------------------------------------------------------------------------

INTS = (
    "x.shape[0]",
    "len(y)",
    "x.size(-1)",
    "y.numel()",
    "n",
    "k",
    "n * 2",
    "n + k",
    "n // 2",
    "k % 3",
    "max(n, k)",
    "min(n, 4)",
    "n - 1",
    "k * k",
    "abs(n - k)",
    "3",
)
TENSORS = (
    "x + 1", "x * {i}", "x / ({i} + 1)", "x.transpose(0, 1)", "x[: {i}]", "x[1:]", ("x.reshape(-1, "
        "x.shape[-1])"), "x.reshape(-1)[: x.shape[0]][:, None] + x",
    "torch.cat([x, x[: {i}]])", "x.sum(0, keepdim=True) + x", "x + torch.zeros(x.shape[0], 1)", ("x * torch.arange(x.shape[0])[:, "
        "None]"), "x.unsqueeze(0).flatten(0, 1)",
    "x.mean() + y", "x[:, : {i}]", "torch.nn.functional.pad(x, (1, 0))", "x @ x.t()", "y.view(-1)[: {i}].sum() + x", ("x.expand(2, -1, "
        "-1).sum(0)"), "x.softmax(-1)",
    "x.repeat(2, 1)", "x.contiguous().view(x.numel() // x.shape[-1], -1)", ("x.narrow(0, 0, min({i}, "
        "x.shape[0]))"), "torch.stack([x, x], 1).sum(1)", "x.chunk(2)[0]",
)  # fmt: skip
TESTS = ("n > k", "x.shape[0] >= 4", "n == k", "k % 2 == 0", "len(x) != {i}", "n + k < 12", "x.shape == y.shape", "not n % 3")


def program(rng: random.Random) -> str:
    """Text of a function of two matrices and an int that computes with sizes."""
    lines = ["def fn(x, y, k):", "    n = x.shape[0]", "    log = []"]
    for _ in range(rng.randint(2, 7)):
        number = rng.choice(INTS)
        step = rng.choice(
            [
                f"{rng.choice('nk')} = {number}",
                f"{rng.choice('xy')} = " + rng.choice(TENSORS).format(i=f"({number})"),
                f"{rng.choice('xy')} = " + rng.choice(TENSORS).format(i=f"({number})"),
                f"log.append({number})",
                f"log += [f'{{{number}}}', ({number}) / 2]" if rng.random() < 0.3 else f"log.append(({number}) * 0.5)",
                f"for i in range(({number}) % 3): x = x + i",
            ]
        )
        if rng.random() < 0.25:
            lines += [f"    if {rng.choice(TESTS).format(i=f'({number})')}:", f"        {step}"]
        else:
            lines.append(f"    {step}")
    return "\n".join([*lines, "    return x, y, n, k, log, x.shape"])


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except (RuntimeError, IndexError, ZeroDivisionError, ValueError) as exc:
        return type(exc).__name__


def run_program(seed: int, calls: int = 6) -> int:
    """Run a random program at random sizes; the number of captures."""
    rng = random.Random(seed)
    text, namespace = program(rng), {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    fn = namespace["fn"]
    compiled = capture(fn, "eager", dynamic=rng.choice([None, None, True]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(calls):
            n, m, k = rng.randint(0, 9) if rng.random() < 0.1 else rng.randint(2, 9), rng.randint(2, 9), rng.randint(0, 9)
            x, y = (
                torch.arange(n * m, dtype=torch.float64).reshape(n, m),
                torch.ones(n if rng.random() < 0.7 else m, m, dtype=torch.float64),
            )
            expected, got = outcome(fn, x, y, k), outcome(compiled, x, y, k)
            try:
                assert same(got, expected)
            except AssertionError:
                raise AssertionError(f"{text}\n{(n, m, k, tuple(y.shape))}\n{got}\n{expected}") from None
    return len(compiled.entries)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs(start: int) -> None:
    for seed in range(start, start + 10):
        run_program(seed)


@pytest.mark.parametrize("seed", [])
def test_programs_that_were_wrong_once(seed: int) -> None:
    run_program(seed)


def test_a_failed_capture_is_tried_again_when_more_changes() -> None:
    captured: list[int] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        symbolic = sum(type(n) is torch.SymInt for x in example_inputs for n in x.shape)
        captured.append(symbolic)
        if symbolic == 1:
            raise RuntimeError("no graphs with one symbol")
        return gm.forward

    compiled = capture(lambda x: x.sin() * 2, backend)
    for shape in ((4, 5), (6, 5), (7, 5), (7, 8), (9, 10), (3, 11)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), x.sin() * 2)
    assert captured == [0, 1, 0, 0, 2]
