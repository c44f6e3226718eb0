"""profile() tells the kernels and operators of a call, what they move and compute, and their lines."""

import pytest
import torch

import opmill


def attend(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x @ w)
    return y.softmax(-1)


PRODUCT = attend.__code__.co_firstlineno + 1


def test_a_profile_has_each_step_with_its_bytes_operations_and_lines() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8)
    seen = opmill.profile(attend, calls=2)(x, w)
    [product] = [step for step in seen.steps if step.kind == "torch"]
    assert product.name.startswith("mm") and product.count == 1
    assert product.flops == 2 * 32 * 16 * 8 and product.bytes == 4 * (32 * 16 + 16 * 8 + 32 * 8)
    [kernel] = [step for step in seen.steps if step.kind == "kernel"]
    assert kernel.name == "gelu+_softmax" and kernel.flops == 0
    assert kernel.lines == (f"{__file__}:{PRODUCT}", f"{__file__}:{PRODUCT + 1}")
    assert set(seen.by_line()) == {f"{__file__}:{PRODUCT}", f"{__file__}:{PRODUCT + 1}"}
    assert all(step.seconds > 0 for step in seen.steps) and seen.eager > 0 and seen.compiled > 0
    assert "test_profile.py" in str(seen) and "softmax" in str(seen)


def test_the_backward_is_part_of_it() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8, requires_grad=True)
    seen = opmill.profile(attend, calls=1)(x, w)
    assert sum(step.count for step in seen.steps if step.kind == "torch") == 2  # the product and its gradient
    assert any("backward" in step.origin for step in seen.steps)


def test_of_a_table_the_rows_that_are_looked_up_count() -> None:
    seen = opmill.profile(lambda i, w: torch.nn.functional.embedding(i, w).exp(), calls=1)(torch.arange(3), torch.randn(1000, 16))
    [step] = seen.steps
    assert step.kind == "kernel" and 2 * 4 * 3 * 16 <= step.bytes < 4 * 1000 * 16


FLOPS = {
    "a product": (lambda x: x @ x.T, (8, 16), 2 * 8 * 8 * 16, 3.0),
    "with a vector": (lambda x: x @ x[0], (16, 16), 2 * 16 * 16, 2.0),
    "a convolution": (
        lambda x: torch.nn.functional.conv2d(x, torch.ones(16, 8, 3, 3), padding=1),
        (2, 8, 12, 12),
        2 * 2 * 16 * 12 * 12 * 8 * 9,
        2.0,
    ),
    "attention": (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), (2, 2, 24, 16), 2 * 2 * 2 * 2 * 24 * 24 * 16, 3.5),
}
"""A function, the sizes that it is given, the operations of its forward, and how many times these a call with its backward has."""


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FLOPS)
def test_floating_point_operations_are_those_of_the_definition(name: str, training: bool) -> None:
    """Whatever runs it: a library, or a kernel."""
    function, sizes, forward, times = FLOPS[name]
    seen = opmill.profile(function, calls=1)(torch.randn(sizes, requires_grad=training))
    assert sum(step.flops for step in seen.steps) == forward * (times if training else 1), seen


def test_repeated_work_is_counted() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    with torch.no_grad():
        seen = opmill.profile(model, calls=1)(torch.randn(2, 8))
    assert [step.count for step in seen.steps if step.kind == "torch"] == [3]


def test_only_opmills_own_backend_is_measured() -> None:
    with pytest.raises(ValueError, match="OM015"):
        opmill.profile(attend, backend="eager")(torch.ones(2, 2), torch.ones(2, 2))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = torch.nn.Linear(16, 16), torch.nn.ModuleDict({"own one": torch.nn.GELU()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act["own one"](self.linear(x)).tanh() + x


NAMES = ["", "0", "0.linear", "0.act.own_one", "1", "1.linear", "1.act.own_one"]


@pytest.mark.parametrize("training", [True, False])
def test_time_is_told_by_module_beside_eagers(training: bool) -> None:
    model = torch.nn.Sequential(Block(), Block())
    with torch.set_grad_enabled(training):
        seen = opmill.profile(model, calls=2)(torch.randn(4, 16))
    found = seen.by_module()
    assert list(found) == NAMES and found["0.linear"].kind == "Linear"
    assert all(each.eager > 0 and each.seconds > 0 for each in seen.modules)
    products = (3 if training else 1) * 2 * 4 * 16 * 16
    first = (2 if training else 1) * 2 * 4 * 16 * 16  # what is given needs no gradient
    assert (found["1.linear"].flops, found["0.linear"].flops) == (products, first)
    assert found[""].flops == found["0"].flops + found["1"].flops and found["0"].flops == found["0.linear"].flops
    whole = sum(step.seconds for step in seen.steps)
    assert found[""].seconds == pytest.approx(whole) and found["0"].seconds + found["1"].seconds == pytest.approx(whole)
    assert found["0"].eager >= found["0.linear"].eager and "0.act.own_one" in str(seen)
    assert not any("@" in step.origin for step in seen.steps)


def test_modules_of_functions_are_behind_their_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))

    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x) * 2

    def given(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x) * 2

    assert list(opmill.profile(run, calls=1)(torch.ones(2, 8)).by_module()) == ["model", "model.0"]
    assert list(opmill.profile(given, calls=1)(model, torch.ones(2, 8)).by_module()) == ["layer", "layer.0"]
    assert opmill.profile(attend, calls=1)(torch.ones(2, 8), torch.ones(8, 8)).modules == ()


def test_eager_is_left_without_hooks() -> None:
    model = torch.nn.Sequential(Block())
    opmill.profile(model, calls=1)(torch.randn(4, 16))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not any(p._backward_hooks for p in model.parameters())


def test_gradients_are_at_the_lines_that_they_are_the_gradients_of() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8, requires_grad=True)
    seen = opmill.profile(attend, calls=1)(x, w)
    backward = [step for step in seen.steps if "backward of" in step.origin]
    assert {line for step in backward for line in step.lines} == {f"{__file__}:{PRODUCT}", f"{__file__}:{PRODUCT + 1}"}


def test_a_step_of_training_is_measured() -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    seen = opmill.profile(step, calls=2)(torch.randn(2, 8))
    assert seen.by_module()["model"].eager > 0 and all(":" in line or line == "backward" for line in seen.by_line())


def test_a_step_over_a_compiled_module_is_compared_with_eager_by_module() -> None:
    model = opmill.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters())

    def step(x: torch.Tensor) -> None:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

    x = torch.randn(2, 8)
    model(x)
    before = opmill.counters()
    seen = opmill.profile(step, calls=2)(x)
    assert list(found := seen.by_module()) == ["model", "model.0", "model.1", "model.2"]
    assert all(each.eager > 0 and each.seconds > 0 for each in seen.modules)
    assert found["model.0"].flops == 2 * 2 * 2 * 8 * 8, "forward, and the gradient of the weight"
    assert all(step.lines for step in seen.steps), "writes to parameters among them"
    assert opmill.counters()["recompiles"] == before["recompiles"], "nothing of what measures is captured"
    calls = f"{__file__}:{step.__code__.co_firstlineno + 1}"
    assert {line for step in seen.steps if step.kind == "torch" for line in step.lines} == {calls}, "of gradients, not the next one"


def test_what_is_kept_for_a_backward_is_at_the_line_that_makes_it() -> None:
    norm, head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(head(norm(x)), y)

    seen = opmill.profile(loss, calls=1)(torch.randn(8, 16), torch.randint(4, (8,)))
    assert [step.name for step in seen.steps if step.name.startswith("native_layer_norm")][0] == "native_layer_norm"


def test_a_residual_is_not_timed_as_what_goes_around_it() -> None:
    class Residual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slow, self.join = torch.nn.Linear(512, 512), Join()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.join(self.slow(x), x)

    class Join(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    found = opmill.profile(torch.nn.Sequential(torch.nn.Tanh(), Residual()), calls=3)(torch.randn(512, 512, requires_grad=True)).by_module()
    assert 0 < found["1.join"].eager < found["1.slow"].eager < found["1"].eager


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_on_a_gpu_have_the_times_that_it_reports() -> None:
    x, w = torch.randn(512, 256, device="cuda"), torch.randn(256, 128, device="cuda", requires_grad=True)
    seen = opmill.profile(attend, calls=3)(x, w)
    assert seen.steps and all(step.seconds > 0 for step in seen.steps)
