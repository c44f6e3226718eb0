"""Steps of optimizers that decide by their own count, ASGD's and RAdam's, without decisions: both ways are computed, and one is taken."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from opmill_guards.source import Pinned

from ...values.base import Value
from ..registry import receives_function

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

Tensors = list[torch.Tensor]
RECTIFIED = 5.0
"""The length of RAdam's average from which on steps are scaled by it."""


def asgd(params: Tensors, grads: Tensors, axs: Tensors, mus: Tensors, etas: Tensors, state_steps: Tensors, **told: Any) -> None:
    """The averaged descent: what ``_single_tensor_asgd`` does where nothing is captured by the device."""
    decay, lr = told["lambd"], told["lr"]
    for param, grad, ax, mu, eta, step_t in zip(params, grads, axs, mus, etas, state_steps):
        grad = -grad if told["maximize"] else grad
        if torch.is_complex(param):
            grad, param, ax = torch.view_as_real(grad), torch.view_as_real(param), torch.view_as_real(ax)
        step_t += 1
        if told["weight_decay"] != 0:
            grad = grad.add(param, alpha=told["weight_decay"])
        rate, step = eta.double(), step_t.double()
        param.mul_(1 - decay * rate)
        param.sub_(grad * rate)
        ax.copy_(torch.where(mu == 1, param, ax + param.sub(ax).mul_(mu)))
        eta.copy_(lr / ((1 + decay * lr * step) ** told["alpha"]))
        mu.copy_(1 / torch.clamp(step - told["t0"], min=1))


def radam(params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, state_steps: Tensors, **told: Any) -> None:
    """The rectified Adam: what ``_single_tensor_radam`` does where nothing is captured by the device."""
    beta1, beta2, lr, decay = told["beta1"], told["beta2"], told["lr"], told["weight_decay"]
    longest = 2 / (1 - beta2) - 1
    for param, grad, first, second, step_t in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps):
        grad = -grad if told["maximize"] else grad
        if torch.is_complex(param):
            param, grad, first, second = map(torch.view_as_real, (param, grad, first, second))
        step_t += 1
        if decay != 0 and told["decoupled_weight_decay"]:
            param.mul_(1 - lr * decay)
        elif decay != 0:
            grad = grad.add(param, alpha=decay)
        first.lerp_(grad, 1 - beta1)
        second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        step = step_t.double()
        missing = 1 - beta2**step
        length = longest - 2 * step * beta2**step / missing
        scale = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        plain = first / (1 - beta1**step) * lr
        rectified = plain * (torch.sqrt(missing) / second.sqrt().add_(told["eps"])) * torch.sqrt(torch.clamp(scale, min=0))
        param.add_(torch.where(length > RECTIFIED, rectified, plain), alpha=-1.0)


PROGRAMS = {"_single_tensor_asgd": asgd, "_single_tensor_radam": radam}


@receives_function(*(f"torch.optim.{name.rpartition('_')[2]}.{name}" for name in PROGRAMS))
def undecided(vm: Interpreter, function: FunctionType, *args: Value, **kwargs: Value) -> Value | None:
    """The step of one of these, of parameters that are given with their count. None where the device counts, or gradients go through."""
    program = PROGRAMS[function.__name__]
    if vm.truth(kwargs["capturable"]) or vm.truth(kwargs["differentiable"]):
        return None
    return vm.call(vm.wrap(program, Pinned(program, program.__name__)), list(args), kwargs)


def is_undecided(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the steps of an optimizer are among these."""
    return (
        type(optimizer).__name__ in ("ASGD", "RAdam")
        and all(
            not group["foreach"] and not group["capturable"] and not group["differentiable"] and type(group["lr"]) is float
            for group in optimizer.param_groups
        )
        and all(p.device.type == "cpu" for group in optimizer.param_groups for p in group["params"])
    )
