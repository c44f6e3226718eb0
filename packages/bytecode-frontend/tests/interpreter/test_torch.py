"""torch's own Python in captured code: modules and parameters made there, functions without gradients, transforms, modes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import Unsupported, capture


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.n * x, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(x) * self.n


STACK = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).requires_grad_(False)
NAMED = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).requires_grad_(False)
NORM = nn.LayerNorm(4).requires_grad_(False)
SIZE = np.int64(3)


def modules_made_inside(a, b):
    return (
        Scale(3)(a),
        nn.Sequential(nn.GELU(), nn.ReLU())(a),
        nn.LayerNorm(4, elementwise_affine=False)(a),
        nn.CrossEntropyLoss()(a, a.argmax(1)),
    )


def containers_of_modules(a, b):
    for m in STACK[1:]:
        a = m(a)
    for m in NAMED[:1]:
        a = m(a)
    return a, [type(m).__name__ for m in reversed(STACK)]


def parameters_made_inside(a, b):
    with torch.no_grad():
        p = nn.Parameter(torch.ones(4) * 2)
        return a * p, isinstance(p, nn.Parameter), p.requires_grad, p.shape


def tensor_classes(a, b):
    return torch.Tensor([1, 2]), torch.LongTensor([3]), torch.FloatTensor(2, 3).shape, a


def functions_without_gradients(a, b):
    same = Same.apply(a)
    return Square.apply(a, 3), same, same is a


def vmapped(a, b):
    rows = torch.vmap(lambda x, y: (x * y).sum())(a, b)
    return rows, torch.vmap(lambda x: x + a.sum(), in_dims=1, out_dims=1)(b)


def vmapped_modules(a, b):
    return torch.vmap(NAMED)(a), torch.vmap(NORM)(b), "{first}, {second!r:>4}".format(first=1, second="b", third=a)  # noqa: F522


def inference(a, b):
    with torch.inference_mode():
        c = a * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    return inside, torch.is_inference_mode_enabled(), torch.is_grad_enabled(), c.sum()


def numbers_and_types_as_arguments(a, b):
    return (
        torch.zeros(2, dtype=int),
        a * np.float64(2.5),
        a.reshape(SIZE + 1, 4),
        a.to(float),
        torch.functional.split(a, split_size_or_sections=2),
    )


def derivatives(a, b):
    def cubes(t):
        return (t**3 * b[0]).sum()

    value, pull = torch.func.vjp(torch.cos, a)
    per_row = torch.vmap(torch.func.grad(cubes))(a)
    return value, pull(b), torch.func.jvp(torch.sin, (a,), (b,)), torch.func.hessian(cubes)(a[0]), torch.func.jacrev(cubes)(a[1]), per_row


def derivative_of_a_derivative(a, b):
    return torch.func.grad(lambda t: torch.func.grad(lambda u: (u**4).sum())(t).sum())(a) + b


PROGRAMS = [
    modules_made_inside, containers_of_modules, parameters_made_inside, tensor_classes, functions_without_gradients, vmapped, vmapped_modules, inference,
    numbers_and_types_as_arguments, derivatives, derivative_of_a_derivative,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_program(fn, check):
    check(fn)


def test_modules_are_made_inside_where_torchs_own_compiler_has_run(check, monkeypatch):
    from torch._dynamo import mutation_guard

    monkeypatch.setattr(nn.Module, "__init__", nn.Module.__init__)
    monkeypatch.setattr(nn.Module, "__setstate__", nn.Module.__setstate__)
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
    mutation_guard.install_generation_tagging_init()
    check(modules_made_inside)


def test_print_inside_a_derivative(capsys):
    def f(x):
        def loud(t):
            print("inside", t.dim())
            return (t**2).sum()

        return torch.func.jvp(loud, (x,), (x,)), torch.func.vjp(loud, x)[1](torch.ones(()))

    x = torch.arange(3.0)
    for _ in range(2):
        torch.testing.assert_close(capture(f)(x), f(x))
        out = capsys.readouterr().out.split()
        assert out[: len(out) // 2] == out[len(out) // 2 :] != []


def test_a_refusal_inside_vmap_leaves_no_level_behind():
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()

    def f(x):
        return torch.vmap(lambda r: r * 2 if r.sum() > 0 else r)(x)

    with pytest.raises(RuntimeError, match="vmap"):  # what the program says, not how it cleans up
        capture(f, fullgraph=True)(torch.ones(2, 2))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == depth


class Twice(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


def test_a_function_mode_ends_with_its_block():
    def f(x):
        with Twice():
            return torch.sin(x)

    x = torch.ones(3)
    compiled = capture(f, "eager")
    for _ in range(3):
        assert torch.equal(compiled(x), torch.sin(x) * 2)
        assert torch._C._len_torch_function_stack() == 0


def test_a_generator_of_random_numbers_is_made_by_each_call():
    def f(x):
        return x + torch.rand(3, generator=torch.Generator().manual_seed(3))

    compiled = capture(f, "eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.zeros(3)), f(torch.zeros(3)))


def arrays(a, b):
    import numpy as np

    scale = np.linspace(0.0, 1.0, 4, dtype=np.float32)
    return a * torch.from_numpy(scale) + torch.tensor(np.arange(4)) + torch.as_tensor(np.array(2.5)) * b


def test_arrays_made_of_constants(check):
    check(arrays)


class Marked(nn.Parameter):
    """A parameter of a class of its own."""

    def __new__(cls, data, tag):
        made = super().__new__(cls, data)
        made.tag = tag
        return made

    def loud(self):
        return self * 2


class Odd(nn.Parameter):
    def __add__(self, other):
        return other * 0

    def relu(self):
        return self + 100


class Holder(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


class Scaled(Holder):
    def forward(self, x):
        return x @ self.weight * self.weight.tag, isinstance(self.weight, Marked), type(self.weight).__name__


class Shouting(Holder):
    def forward(self, x):
        return (x @ self.weight.loud(),)


class Overriding(Holder):
    def forward(self, x):
        return self.weight + x, self.weight.relu() + 1


@pytest.mark.parametrize(
    ("module", "weight", "whole"),
    [(Scaled, lambda w: Marked(w, 3), True), (Shouting, lambda w: Marked(w, 3), False), (Overriding, Odd, False)],
)
def test_classes_of_parameters(module, weight, whole):
    results = []
    for run in (module.forward, capture(module.forward, "eager", fullgraph=whole)):
        m, x = module(weight(torch.eye(3))), torch.ones(2, 3, requires_grad=True)
        for _ in range(2):
            found = run(m, x if module is not Overriding else x[0])
        found[0].sum().backward()
        results.append([*found, x.grad, m.weight.grad])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_labels_for_the_profiler(check):
    def f(a, b):
        with torch.profiler.record_function("first"):
            a = a + 1
        with torch.autograd.profiler.record_function("second"), torch._C.DisableTorchFunctionSubclass():
            return a * b

    check(f)


def requires(x):
    return x.requires_grad_() * 2


def leaf(x):
    y = x.clone().requires_grad_()
    return y, (y * 2).sum()


@pytest.mark.parametrize(("fn", "code"), [(requires, "FE032"), (leaf, "FE038")])
def test_who_requires_grad_is_no_matter_of_a_graph(fn, code):
    for compiled in (fn, capture(fn, "eager")):
        x = torch.ones(3)
        found = compiled(x)
        assert x.requires_grad == (fn is requires)
        assert [t.is_leaf for t in found] == ([False] * 3 if fn is requires else [True, False])
    with pytest.raises(Exception, match=code):
        capture(fn, "eager", fullgraph=True)(torch.ones(3))


def test_gradients_are_clipped_in_captured_code():
    def clipped(call):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2).double().float())
        net(torch.ones(2, 3)).sum().backward()
        norm = call(lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1))()
        return [norm, *(p.grad for p in net.parameters())]

    assert all(map(torch.equal, clipped(lambda f: f), clipped(lambda f: capture(f, fullgraph=True))))


def scaled(x, scale: float):
    if x.dim() == 2:
        return x * scale + 1
    return x


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_scripted_functions_are_inlined_and_traced_ones_are_called(check):
    scripted, traced = torch.jit.script(scaled), torch.jit.trace(lambda x: scaled(x, 2.0), (torch.ones(2, 2),))
    check(lambda a, b: scripted(a, 3.0).relu() - scripted(b, scale=2.0))

    def f(a):
        return traced(a) + 1

    for x in (torch.ones(3, 3), torch.ones(3)):  # as it was when it was traced, whatever it is given
        assert torch.equal(capture(f)(x), f(x)) and torch.equal(f(x), x * 2 + 2)
    with pytest.raises(Unsupported, match="FE010"):
        capture(f, fullgraph=True)(torch.ones(3, 3))
