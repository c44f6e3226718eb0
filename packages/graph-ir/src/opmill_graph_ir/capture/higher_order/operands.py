"""What bodies are given: tensors among the operands, and tensors that their modules hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ..bodies import Traced
from ..record import Recorder
from .registry import Run


@dataclass(frozen=True)
class Operands:
    """``values`` are the operands as the operator has them, numbers among them; ``tensors`` what bodies take: the tensors of these, then
    fakes of ``held``."""

    run: Run
    values: tuple[Any, ...]
    held: tuple[torch.Tensor, ...]
    tensors: tuple[FakeTensor, ...]

    def traced(self, module: Any) -> Traced:
        """``module`` as a body over ``tensors``."""

        def body(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
            given = iter(fakes)
            args = [next(given) if isinstance(v, torch.Tensor) else v for v in self.values]
            inner.state.held.update({id(t): fake for t, fake in zip(self.held, given, strict=True)})
            result = self.run.call(module, args, inner)
            return list(result) if isinstance(result, (list, tuple)) else [result]

        return body

    @property
    def differentiable(self) -> bool:
        """Whether autograd is to know of the operator."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


def operands_of(run: Run, values: Sequence[Any], *modules: Any) -> Operands:
    """The operands of an operator that runs ``modules``."""
    held = {id(t): t for module in modules for t in _held(module)}
    fakes = [v for v in values if isinstance(v, torch.Tensor)]
    fakes += [run.recorder.from_tensor(t) for t in held.values()]
    return Operands(run, tuple(values), tuple(held.values()), tuple(fakes))  # type: ignore[arg-type]


def _held(module: Any) -> list[torch.Tensor]:
    """The tensors that a graph module reads of itself, and those inside of it."""
    if not isinstance(module, torch.fx.GraphModule):
        return []
    values = [attrgetter(str(node.target))(module) for node in module.graph.nodes if node.op == "get_attr"]
    return [t for v in values for t in ([v] if isinstance(v, torch.Tensor) else _held(v))]


# ---- autograd ------------------------------------------------------------------------------------------------------------


Forward = Callable[[tuple[Any, ...]], tuple[Sequence[Any], Sequence[Any]]]
Backward = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


class Differentiable(torch.autograd.Function):
    """``apply(forward, backward, *tensors)``: ``forward(tensors)`` gives outputs and what else is saved; ``backward(saved, gradients)`` a
    gradient or None for each tensor, of the tensors, what else was saved, and a gradient or None for each output."""

    @staticmethod
    def forward(ctx: Any, forward: Forward, backward: Backward, *tensors: Any) -> tuple[Any, ...]:
        outputs, saved = forward(tensors)
        ctx.run = backward
        ctx.save_for_backward(*tensors, *saved)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in outputs if not t.is_floating_point() and not t.is_complex()])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return (None, None, *ctx.run(ctx.saved_tensors, gradients))


def gradients_of(outputs: Sequence[Any], tangents: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Of each input that requires grad; zeros where no output depends on it. ``tangents`` are those of the outputs that can have one."""
    floating = [o for o in outputs if o.is_floating_point() or o.is_complex()]
    pairs = [(o, t) for o, t in zip(floating, tangents, strict=True) if o.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in wanted]
    found = torch.autograd.grad([o for o, _ in pairs], wanted, [t for _, t in pairs], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]
