"""What fuses into how many kernels, and how much memory the temporaries take."""

import pytest
import torch
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.text import show
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import KernelStep, schedule

F = torch.nn.functional
X, Y, W = torch.randn(64, 512), torch.randn(64, 512), torch.randn(512)
IMAGE, CHANNEL = torch.randn(1, 32, 40, 40), torch.rand(32)


def made(f, *inputs):
    with torch.no_grad():
        return schedule(lower(functionalize(torch.fx.symbolic_trace(f), inputs)))


def launches(s):
    return sum(type(step) is KernelStep for step in s.steps)


def _chain(x, n):
    for _ in range(n):
        x = torch.tanh(x) * 0.5 + x
    return x


ONE_KERNEL = {
    "pointwise chain": (lambda x: (_chain(x, 10),), (X,)),
    "softmax": (lambda x: (torch.softmax(x, -1),), (X,)),
    "residual layer norm": (lambda x, y, w: (F.layer_norm(x + y, (512,), w, w),), (X, Y, W)),
    "residual layer norm keeping the sum": (lambda x, y, w: (F.layer_norm(x + y, (512,), w, w), x + y), (X, Y, W)),
    "rms norm": (lambda x, w: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,), (X, W)),
    "two results": (lambda x, y: (x.exp() + y, x.exp() * y), (X, Y)),
    "siblings": (lambda x: (x.sin(), x.cos()), (X,)),
    "two reductions": (lambda x: (x.sum(-1), x.amax(-1)), (X,)),
    "batch norm and relu": (lambda x, c: (F.relu(F.batch_norm(x, c, c, c, c)),), (IMAGE, CHANNEL)),
    "embedding and norm": (lambda i, t, w: (F.layer_norm(F.embedding(i, t), (512,), w, w),), (torch.randint(64, (80,)), X, W)),
    "small ones together": (lambda x, w: (x[:4, :8].exp(), w.sum()), (X, W)),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    f, inputs = ONE_KERNEL[name]
    s = made(f, *inputs)
    assert launches(s) == 1, str(s)


def test_a_long_chain_is_one_kernel():
    def f(x):
        for _ in range(400):
            x = torch.sin(x) * 0.5
        return x

    [step] = made(f, X).steps
    assert [b.role for b in step.kernel.buffers] == ["in", "out"]


def test_softmax_takes_each_exponential_once():
    [kernel] = made(lambda x: (torch.softmax(x, -1),), X).kernels()
    assert show(kernel).count("exp(") == 1


def test_equal_layers_share_kernels():
    def f(x, w):
        for _ in range(6):
            x = F.layer_norm(F.gelu(x @ x.t() @ x), (512,), w, w)
        return (x,)

    s = made(f, X, W)
    assert launches(s) == 6 and len(s.kernels()) == 1


def test_contiguous_work_is_one_loop():
    [kernel] = made(lambda x: (x.exp(),), torch.randn(3, 4, 5, 6)).kernels()
    assert [len(n.axes) for n in kernel.nests] == [1]


def test_a_read_after_a_write_to_the_input_sees_the_old_value():
    def f(x, y):
        z = x * 2
        x.add_(y)
        return (z @ z.t(),)

    s = made(f, torch.randn(64, 64), torch.randn(64, 64))
    write = next(k for k, step in enumerate(s.steps) if "x0" in step.writes())
    assert all("x0" not in step.reads() for step in s.steps[write + 1 :])


def test_memory_is_reused():
    def f(x):
        for _ in range(12):
            x = torch.tanh(x @ x)
        return (x,)

    s = made(f, torch.randn(64, 64))
    assert plan_memory(s).size <= 2 * 64 * 64 * 4


def test_pointwise_results_take_over_the_memory_of_a_product():
    s = made(lambda x: (torch.tanh(x @ x) @ x,), torch.randn(64, 64))
    assert plan_memory(s).size == 64 * 64 * 4


def test_live_buffers_do_not_overlap():
    s = made(lambda x: (x @ x) @ (torch.tanh(x @ x) @ (x @ x).t()), torch.randn(32, 32))
    m = plan_memory(s)
    placed = [(m.offsets[b], m.offsets[b] + 32 * 32 * 4, m.first[b], m.last[b]) for b in m.offsets]
    for a in placed:
        for b in placed:
            lives = a[2] < b[3] and b[2] < a[3]
            assert a is b or not lives or a[1] <= b[0] or b[1] <= a[0]


def test_random_numbers_are_drawn_in_order_and_all():
    def f(x):
        a = torch.bernoulli(x)
        torch.bernoulli(x, 0.25)  # nobody reads it, but it moves the generator on
        y = x.exp()
        b = torch.bernoulli(x, 0.5)
        return (torch.multinomial(y, 2) + 1, b.sum() + a, y * b)

    s = made(f, torch.rand(8, 8))
    assert [step.node.op.partition(".")[0] for step in s.steps if type(step) is not KernelStep] == ["aten::bernoulli"] * 3 + [
        "aten::multinomial"
    ]


def test_a_sum_of_one_begins_with_zero_as_eager_has_it():
    x = torch.tensor([[-0.0], [3.0], [float("-inf")]])
    lowered = lower(functionalize(torch.fx.symbolic_trace(lambda x: (x.sum(1), x - x.mean(1, keepdim=True))), [x]))
    program = schedule(lowered)
    for got, want in zip(
        run_schedule(program, plan_memory(program), {lowered.inputs[0]: x}), (x.sum(1), x - x.mean(1, keepdim=True)), strict=True
    ):
        assert got.signbit().flatten().tolist()[:2] == want.signbit().flatten().tolist()[:2]


def test_what_is_merged_with_something_late_does_not_bring_it_forward():
    """The exponential runs with what else reads ``x``, at the end; the products on the way there are not left behind for it."""

    def f(x, w):
        first = x.exp() @ w
        sides = []
        h = x
        for _ in range(8):
            h = torch.tanh(h @ w)
            sides.append(h.t() @ h)
        return (first, x.sin() * h, *sides)

    s = made(f, torch.randn(64, 64), torch.randn(64, 64))
    assert launches(s) == 8  # eight times tanh, the last with both readers of x
    assert plan_memory(s).size <= 2 * 64 * 64 * 4


CHECKED = {
    "columns that are selected": (lambda x, i: x.index_select(1, i), (X, torch.randint(512, (300,))), "nest i0<64 i1<300"),
    "rows that are selected": (lambda x, i: x.index_select(0, i), (X, torch.randint(64, (300,))), "nest i0<300 "),
    "columns that are added to": (lambda x, i, y: x.index_add(1, i, y), (X, torch.randint(512, (512,)), Y), "nest i0<64 i1<512"),
    "rows that are added to": (lambda x, i, y: x.index_add(0, i, y), (X, torch.randint(64, (64,)), Y), "nest i0<64 "),
    "elements that are added to": (lambda x, i, y: x.scatter_add(0, i, y), (X, torch.randint(64, (64, 512)), Y), "nest i0<64 i1<512"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_positions_are_checked_once_a_row_but_not_across_rows(name):
    f, inputs, head = CHECKED[name]
    s = made(f, *inputs)
    texts = [show(step.kernel) for step in s.steps if type(step) is KernelStep]
    assert head in "\n".join(t.replace("  #", " ") for t in texts if "check" in t), texts
