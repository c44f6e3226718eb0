"""The whole way from an FX graph to results, with generated kernels (where a generator is installed) and without."""

import operator
import subprocess
import sys
import warnings

import pytest
import torch

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.errors import KernelMissing
from opmill_runtime_cache.plan.model import View
from opmill_runtime_cache.store import Store

F = torch.nn.functional


def compiled(module, inputs, store, generators, **options):
    gm = module if isinstance(module, torch.fx.GraphModule) else torch.fx.symbolic_trace(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        return compile_graph(gm, inputs, options=GraphOptions(verify=True, **options), store=store, generators=generators)


def same(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.stride() == w.stride() and not g.requires_grad
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(16, 24))
        self.b = torch.nn.Parameter(torch.randn(16))
        self.g = torch.nn.Parameter(torch.randn(16))

    def forward(self, x, y):
        h = F.gelu(F.linear(x, self.w, self.b)) + y
        n = F.layer_norm(h, (16,), self.g, self.b)
        return torch.softmax(n, -1), n.transpose(0, 1).contiguous(), n.sum(0), h


def _softmax_columns(x, y):
    return torch.softmax(x, 0) * y, (x - x.mean(0, keepdim=True)).abs().amax()


def _views(x, y):
    return x.reshape(4, -1).t() + 1, torch.cat([x, y], 1)[:, 3:9] * 2, F.pad(x, (1, 2)), x[::2].flip(0)


def _chains(x, y):
    a = x + y
    b = torch.tanh(a)
    return a, b, b * a + x, b.t() @ a, (a > 0).to(torch.int64).sum(1)


def _residual(x, y):
    for _ in range(6):
        x = x + F.relu(x * y) / (1 + x.abs().sum(-1, keepdim=True))
    return (x,)


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("f", [_softmax_columns, _views, _chains, _residual])
def test_functions(f, fusion, store, generators):
    torch.manual_seed(0)
    inputs = [torch.randn(8, 12), torch.randn(8, 12)]
    same(compiled(f, inputs, store, generators, fusion=fusion)(*inputs), f(*inputs))


def test_module_and_weights_changed_in_place(store, generators):
    module, inputs = Block(), [torch.randn(8, 24), torch.randn(8, 16)]
    run = compiled(module, inputs, store, generators)
    with torch.no_grad():
        same(run(*inputs), module(*inputs))
        module.w.mul_(2)
        same(run(*inputs), module(*inputs))


def test_second_time_comes_from_the_store(store, generators):
    module, inputs = Block(), [torch.randn(5, 24), torch.randn(5, 16)]
    first, second = compiled(module, inputs, store, generators), compiled(Block(), inputs, store, generators)
    assert not first.report.cached and second.report.cached
    fresh = Block()
    with torch.no_grad():
        same(compiled(fresh, inputs, store, generators)(*inputs), fresh(*inputs))


@pytest.mark.parametrize("change", ["constant", "kwarg", "shape", "dtype", "strides", "same tensor"])
def test_nothing_stale_comes_from_the_store(change, store, generators):
    x = torch.randn(6, 6)
    base = lambda a, b: (torch.clamp(a * 2.0, min=-1.0) + b,)  # noqa: E731
    other = {
        "constant": lambda a, b: (torch.clamp(a * 2.0000000000000004e0 * 1.5, min=-1.0) + b,),
        "kwarg": lambda a, b: (torch.clamp(a * 2.0, max=-1.0) + b,),
    }.get(change, base)
    inputs = {
        "shape": [torch.randn(6, 5), torch.randn(6, 5)],
        "dtype": [x.double(), x.double()],
        "strides": [x.t(), torch.randn(6, 6)],
        "same tensor": [x, x],
    }.get(change, [x, torch.randn(6, 6)])
    compiled(base, [x, torch.randn(6, 6)], store, generators)
    run = compiled(other, inputs, store, generators)
    assert not run.report.cached
    same(run(*inputs), other(*inputs))


def test_default_device_is_part_of_the_key(store, generators):
    f = lambda x: (torch.ones(3) + 1,)  # noqa: E731
    x = torch.randn(3)
    same(compiled(f, [x], store, generators)(x), f(x))
    with torch.device("meta"), pytest.raises(GraphError, match="GI012"):
        compiled(f, [x], store, generators)


def test_what_nothing_reads_may_be_on_any_device(store, generators):
    def f(x):
        torch.empty(3, device="meta").exp()
        return (x + 1,)

    x = torch.randn(3)
    same(compiled(f, [x], store, generators)(x), f(x))


def test_mutation_of_an_input(store, generators):
    def f(x, y):
        x.add_(y)
        x.mul_(2)
        return (x + 1,)

    inputs = [torch.randn(4, 4), torch.randn(4, 4)]
    wanted = [t.clone() for t in inputs]
    want = f(*wanted)
    got = compiled(f, [t.clone() for t in inputs], store, generators)(*inputs)
    same(got, want)
    torch.testing.assert_close(inputs[0], wanted[0])


def test_output_that_is_a_view_of_an_input_is_one(store, generators):
    x = torch.randn(4, 6)
    [got] = compiled(lambda x: (x.t()[1:],), [x], store, generators)(x)
    assert got.data_ptr() == x.t()[1:].data_ptr() and got.stride() == (1, 6)


def test_results_outlive_later_calls(store, generators):
    run = compiled(lambda x: (x.exp(), x.exp().sum(0)), [torch.randn(4, 3)], store, generators)
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    first = run(x)
    run(y)
    same(first, (x.exp(), x.exp().sum(0)))


def test_bad_index_raises_as_eager(store, generators):
    table = torch.randn(5, 4)
    run = compiled(lambda i, t: (F.embedding(i, t),), [torch.tensor([1, 2]), table], store, generators)
    same(run(torch.tensor([0, 4]), table), (table[[0, 4]],))
    with pytest.raises(IndexError):
        run(torch.tensor([0, 5]), table)


def test_without_generator_there_is_one_warning(store):
    gm = torch.fx.symbolic_trace(lambda x: (x.exp() + 12.25,))
    with torch.no_grad(), pytest.warns(UserWarning, match="GI030"):
        from opmill_graph_ir import compiling

        compiling._warn_operators.cache_clear()
        run = compile_graph(gm, [torch.randn(3)], store=store, generators=())
    assert run.report.operators_only and run.report.launches == 0


def test_damaged_entry_is_compiled_again(tmp_path):
    store, x = Store(tmp_path), torch.randn(3)
    f = lambda x: (x.exp() - 1.75,)  # noqa: E731
    compiled(f, [x], store, ())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = compiled(f, [x], store, ())
    assert not run.report.cached
    same(run(x), f(x))


def test_functions_that_functions_made_have_names(store):
    f = lambda x: (F.max_pool2d(x, 2),)  # noqa: E731
    runs = [compiled(f, [torch.randn(1, 2, 6, 6)], store, ()) for _ in range(2)]
    assert [r.report.cached for r in runs] == [False, True]
    adaptive = compiled(lambda x: (F.adaptive_max_pool2d(x, 2),), [torch.randn(1, 2, 6, 6)], store, ())
    assert not adaptive.report.cached


def test_a_lambda_in_the_graph_is_not_cached(store):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(lambda v: operator.neg(v), (x,)),))
    gm = torch.fx.GraphModule({}, graph)
    for _ in range(2):
        assert not compiled(gm, [torch.randn(2)], store, ()).report.cached


def test_steps_print(store, capsys):
    compiled(lambda x: (x.sin() + 1,), [torch.randn(3)], store, (), print_after=("functionalize", "plan"), cache=False)
    shown = capsys.readouterr().err
    assert "# after functionalize" in shown and "# after plan" in shown and "sin" in shown


def test_steps_print_when_the_plan_is_in_the_store(store, capsys):
    """What is to be shown is made again; the plan is the same."""
    first = compiled(lambda x: (x.sin() + 1,), [torch.randn(3)], store, ())
    again = compiled(lambda x: (x.sin() + 1,), [torch.randn(3)], store, (), print_after=("functionalize",))
    assert "# after functionalize" in capsys.readouterr().err
    assert not first.report.cached and not again.report.cached and first.plan == again.plan
    loaded = compiled(lambda x: (x.sin() + 1,), [torch.randn(3)], store, (), print_after=("load",))
    assert loaded.report.cached and "# after load" in capsys.readouterr().err


def test_unknown_steps_are_refused_with_the_list():
    with pytest.raises(GraphError, match="GI016: no step of the compiler is called 'lowr'") as refused:
        GraphOptions(print_after=("lower", "lowr"))
    assert "functionalize" in str(refused.value) and "generate" in str(refused.value)


def test_a_stored_plan_needs_no_compiler_modules(tmp_path):
    """A second process imports neither what captures and lowers nor what writes kernels."""
    script = """
import sys, torch
from opmill_graph_ir.backend import compile_graph
from opmill_runtime_cache.store import Store
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 8))
    def forward(self, x):
        return (torch.nn.functional.gelu(x @ self.weight),)
with torch.no_grad():
    run = compile_graph(torch.fx.symbolic_trace(Net()), [torch.ones(4, 8)], store=Store(sys.argv[1]))
    run(torch.ones(4, 8))
parts = ("opmill_graph_ir.ops.lower", "opmill_graph_ir.schedule", "opmill_graph_ir.capture.record", "opmill_graph_ir.compiling")
print(run.report.cached, *[n for n in sys.modules if n.startswith(parts) or (n.startswith("opmill_kernel_gen") and n.endswith((".kernel", ".nest")))])
"""
    seen = [
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert seen[0][0] == "False" and seen[1] == ["True"]


def test_a_search_at_computed_positions(store, generators):
    """A value with steps of its own is not computed at a position that the reader itself computes and checks."""
    table, at = torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.tensor([0, 3, 2, -1])

    def f(x):
        found = torch.bucketize(x, table)
        return (torch.take(found, at), found.flatten()[at] + 1)

    x = torch.randn(5, 2)
    same(compiled(f, [x], store, generators)(x), f(x))


MOVED = {
    "flip": lambda a: a.flip(1),
    "roll": lambda a: a.roll(1, 0),
    "transpose": lambda a: a.transpose(0, 1) * 2,
    "shift": lambda a: torch.cat([a[1:], a[:1]]),
    "same": lambda a: a * 2,
    "broadcast": lambda a: a[:1] + torch.zeros_like(a),
}


@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize(
    "after", [lambda a, t: (t[0],), lambda a, t: (a + 1,), lambda a, t: (t.add_(1), a.sum()), lambda a, t: (t.narrow(1, 2, 3).add_(1),)]
)
def test_an_input_written_with_its_own_elements_from_elsewhere(moved, after, store, generators):
    """All of them are read before the first is written."""

    def f(a):
        t = MOVED[moved](a)
        a.copy_(t)
        return after(a, t)

    ours, theirs = torch.arange(36.0).view(6, 6), torch.arange(36.0).view(6, 6)
    run = compiled(f, [torch.ones(6, 6)], store, generators)
    got, want = run(ours), f(theirs)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True)) and torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_roots_as_powers(dtype, exponent, store, generators):
    """Of half precision eager takes the power, of all else the root: they differ at -0 and -inf."""
    x = torch.tensor([float("-inf"), -0.0, 0.0, 4.0, -1.0, float("inf"), float("nan")], dtype=dtype)
    [got], want = compiled(lambda x: (torch.pow(x, exponent),), [x], store, generators)(x), torch.pow(x, exponent)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(99), want.nan_to_num(99))
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())


ALIKE = {
    "of an input": lambda x: (x.view(-1), x.view(-1)),
    "of what is computed": lambda x: [(y, y, y.t(), y.t()) for y in [x.sin()]][0],
    "one object among them": lambda x: [(y, x.t(), y, x.t()) for y in [x.t()]][0],
    "detached": lambda x: [(y, x.detach(), y) for y in [x.detach()]][0],
    "beside the tensor": lambda x: [(y.detach(), y, y.detach()) for y in [x.sin()]][0],
}


@pytest.mark.parametrize("name", ALIKE)
def test_views_that_are_alike_are_objects_of_their_own(name, store, generators):
    """What a program does to one of them (an attribute, other strides) it has not done to the others."""
    x = torch.randn(6, 8)
    got, wanted = compiled(ALIKE[name], [x], store, generators, cache=False)(x), ALIKE[name](x)
    same(got, wanted)
    assert [[a is b for b in got] for a in got] == [[a is b for b in wanted] for a in wanted]


SHOWN = {
    "dimensions dropped": (lambda x: x.sum(0, keepdim=True).view(-1), 0),
    "as it is": (lambda x: x.sin().view(6, 8), 0),
    "folded": (lambda x: x.sin().reshape(2, 3, 8), 0),
    "turned": (lambda x: x.sin().t(), 0),
    "a part": (lambda x: x.sin()[1:], 1),
    "spread": (lambda x: x.sum(0, keepdim=True).expand(6, 8), 1),
    "twice": (lambda x: (y := x.sin()) is not None and (y.view(-1), y.t()), 2),
}


@pytest.mark.parametrize("name", SHOWN)
def test_tensors_are_made_as_outputs_show_them(name, store, generators):
    """A view of a tensor that nobody else sees is that tensor, allocated so; shared memory stays shared."""
    function, views = SHOWN[name]
    x = torch.randn(6, 8)
    run = compiled(function, [x], store, generators, cache=False)
    wanted = function(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    got = run(x)
    same(got, wanted)
    assert len({t.untyped_storage().data_ptr() for t in got}) == len({t.untyped_storage().data_ptr() for t in wanted})
    if generators:
        assert sum(type(step) is View for step in run.plan.steps) <= views


def test_another_executor_runs_forward_and_backward() -> None:
    from functools import partial

    from opmill_runtime_cache.executor import bind_reference

    seen: list[str] = []

    def watch(plan, step, slots, sizes, run):  # type: ignore[no-untyped-def]
        run()
        seen.append(type(step).__name__)

    gm = torch.fx.symbolic_trace(lambda x, w: (x @ w).sigmoid())
    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    compiled = compile_graph(gm, [x, w], binder=partial(bind_reference, watch=watch), generators=(), options=GraphOptions(cache=False))
    [result] = compiled(x, w) if isinstance(compiled(x, w), tuple | list) else [compiled(x, w)]
    forward = len(seen)
    assert forward and "Call" in seen
    result.sum().backward()
    assert len(seen) > forward
    torch.testing.assert_close(result, (x @ w).sigmoid())


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
@pytest.mark.parametrize("times", [1, 100])
def test_kernels_that_cannot_be_read_for_a_moment_are_built_again(times, tmp_path):
    """A file that no descriptor was left for, or that was removed meanwhile: what fails once is no reason to stay uncompiled."""

    class Losing(Store):
        left = times

        def path(self, kind, key):
            Losing.left -= 1
            return None if Losing.left >= 0 else super().path(kind, key)

    x = torch.randn(5, 30)
    module = torch.fx.symbolic_trace(lambda x: (x.tanh() * times + x).sum(-1))  # a process keeps what it has loaded
    with torch.no_grad():
        if times > 1:
            with pytest.raises(KernelMissing):
                compile_graph(module, [x], store=Losing(tmp_path))
            return
        run = compile_graph(module, [x], store=Losing(tmp_path))
        assert run.report.launches
        torch.testing.assert_close(list(run(x)), [(x.tanh() + x).sum(-1)])
