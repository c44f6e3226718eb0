"""Modules whose hooks no graph holds, as ``fully_shard`` makes them: what lies between the hooks is captured, once for all modules
alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed._composable import checkpoint

import opmill
from opmill.compile import record_of

SEEN: list[str] = []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x)).relu()


class Model(torch.nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.first, self.blocks = torch.nn.Linear(8, 8), torch.nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.sum(-1)


class Around:
    """Hooks that belong to one module each."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name, self.calls = name, 0
        module.register_forward_pre_hook(self.before, with_kwargs=True)
        module.register_forward_hook(self.behind)

    @torch.compiler.disable
    def before(self, module: Any, args: Any, kwargs: Any) -> Any:
        self.calls += 1
        SEEN.append(f"before {self.name}")
        return (args[0] * self.calls, *args[1:]), kwargs

    @torch.compiler.disable
    def behind(self, module: Any, args: Any, result: Any) -> Any:
        SEEN.append(f"behind {self.name}")
        return result + self.calls


def outside(model: Model) -> Any:
    for k, block in enumerate(model.blocks):
        Around(str(k), block)
    Around("all", model)
    return opmill.compile(model)


def blocks_before(model: Model) -> Any:
    for k, block in enumerate(model.blocks):
        model.blocks[k] = opmill.compile(block)
        Around(str(k), model.blocks[k])
    return model


def blocks_after(model: Model) -> Any:
    for k, block in enumerate(model.blocks):
        Around(str(k), block)
        model.blocks[k] = opmill.compile(block)
    return model


def forwards(model: Model) -> Any:
    for k, block in enumerate(model.blocks):
        block.forward = opmill.compile(block.forward)  # type: ignore[method-assign]
        Around(str(k), block)
    return model


def run(model: Any) -> tuple[list[torch.Tensor], list[str]]:
    torch.manual_seed(1)
    results = []
    SEEN.clear()
    for _ in range(3):
        x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
        out = model(x)
        out.sum().backward()
        results += [out.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]
        model.zero_grad()
    return results, list(SEEN)


@pytest.mark.parametrize("make", [outside, blocks_before, blocks_after, forwards], ids=lambda make: make.__name__)
def test_many_modules_alike_are_captured_once(make: Callable[[Model], Any], monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    made = []
    for compiled in (False, True):
        torch.manual_seed(0)
        with monkeypatch.context() as patched:
            if not compiled:
                patched.setattr(opmill, "compile", lambda what: what)
            model = make(Model(12).double())
            made.append(run(model))
    (wanted, order), (got, seen) = made
    assert seen == order
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert not [w for w in recwarn if "FE090" in str(w.message)]
    called = model if make is outside else model.blocks[0].forward if make is forwards else model.blocks[0]
    found = record_of(called)
    assert found is not None
    graphs, breaks = found[1].graphs, {b.code for b in found[1].breaks}
    assert len(graphs) == (3 if make is outside else 1) and not [g.fallback for g in graphs if g.fallback]
    assert breaks <= ({"FE086", "FE066"} if make is outside else set())


def test_a_hook_that_comes_later_is_called() -> None:
    model = Model(3)
    compiled = opmill.compile(model)
    x = torch.randn(2, 8)
    expected = compiled(x)
    Around("late", model.blocks[1])
    SEEN.clear()
    compiled(x)
    assert SEEN == ["before late", "behind late"]
    model.blocks[1]._forward_hooks.clear()
    model.blocks[1]._forward_pre_hooks.clear()
    torch.testing.assert_close(compiled(x), expected)


def test_hooks_that_graphs_hold_are_part_of_them() -> None:
    model = Model(2)
    model.blocks[0].register_forward_hook(lambda module, args, result: result * 2)
    compiled = opmill.compile(model, fullgraph=True)
    x = torch.randn(2, 8)
    torch.testing.assert_close(compiled(x), model(x))
    model.blocks[0].register_forward_hook(lambda module, args, result: result + 1)
    torch.testing.assert_close(compiled(x), model(x))


class Checkpointed(torch.nn.Module):
    """``where``: which part checkpoints itself by hooks; the backward calls it once more, as it is."""

    def __init__(self, where: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = (torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Sequential(*layers)
        parts = {"whole": self, "a part": self.last, "below": self.last[0], "several": self.last[1], "none": None}
        if (part := parts[where]) is not None:
            checkpoint(part)
        if where == "several":
            checkpoint(self.last[3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).sin() * 2).cos()


@pytest.mark.parametrize("backend", ["opmill", "eager"])
@pytest.mark.parametrize("where", ["whole", "a part", "below", "several"])
def test_modules_that_checkpoint_themselves_run_as_they_are(where: str, backend: str) -> None:
    """What was saved was of the compiled call, and the backward found other tensors when it called the module itself."""
    grads = []
    for compiled in (False, True):
        model = Checkpointed(where)
        call = opmill.compile(model, backend=backend) if compiled else model
        for step in range(3):
            call(torch.full((2 + step, 4), 0.5)).sum().backward()
        grads.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_who_compiles_a_part_before_it_checkpoints_itself_has_it_compiled() -> None:
    model, expected = Checkpointed("none"), Checkpointed("a part")
    model.last.forward = opmill.compile(model.last.forward)  # type: ignore[method-assign]
    checkpoint(model.last)
    for module in (model, expected):
        module(torch.full((2, 4), 0.5)).sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in expected.parameters()])
    record = record_of(model.last.forward)
    assert record is not None and len(record[1].graphs) == 1


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_module_of_a_class_that_a_function_makes_is_captured(checkpointed: bool) -> None:
    """What code between graphs calls is not captured where functions made it, which may be many; what was given to be compiled is."""

    class Local(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if checkpointed:
                return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False).sin()  # type: ignore[no-any-return]
            return self.inner(x).sin()  # type: ignore[no-any-return]

    module, x = Local(), torch.randn(3, 8)
    Around("local", module)
    compiled = opmill.compile(module)
    given = compiled(x)
    for name, hooks in vars(module).items():
        if name in ("_forward_pre_hooks", "_forward_hooks"):
            for hook in hooks.values():
                hook.__self__.calls = 0
    torch.testing.assert_close(given, module(x))
    assert len(record_of(compiled)[1].graphs) == 1
