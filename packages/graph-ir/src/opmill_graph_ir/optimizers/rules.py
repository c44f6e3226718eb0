"""The update rules of optimizers, one a function of ``torch.optim``: new values from old ones, element by element.

A rule takes ``x``, the element of each of its tensors by name (``param``, ``grad``, and its state), ``h``, the hyperparameters and ``step``
(the count of this step, from 1), and ``flags``: which switches are on and which numbers are not zero. It gives what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .values import Number

Numbers = Mapping[str, "Number"]
Update = Callable[[Numbers, Numbers, Set[str]], dict[str, "Number"]]


@dataclass(frozen=True)
class Rule:
    """``state`` pairs each list that the function of ``torch.optim`` takes with the name that the rule has for its elements; ``numbers``
    are its hyperparameters, ``switches`` its flags. ``steps``: it counts steps in tensors, ``state_steps``; ``twice``: what torch writes
    in two operations, which autograd's counters of writes tell."""

    update: Update
    state: tuple[tuple[str, str], ...]
    numbers: tuple[str, ...]
    switches: tuple[str, ...]
    steps: bool = True
    twice: tuple[str, ...] = ()

    def written_twice(self, flags: Set[str]) -> tuple[str, ...]:
        """The names of what torch writes twice where these flags are on."""
        return (*self.twice, "param") if {"weight_decay", "decoupled_weight_decay"} <= flags else self.twice


RULES: dict[str, Rule] = {}
"""By name of the function in ``torch.optim`` (``"adam"``)."""


def _rule(name: str, state: str, numbers: str, switches: str, *, twice: str = "", steps: bool = True) -> Callable[[Update], Update]:
    def add(update: Update) -> Update:
        pairs = [pair.split(":") for pair in state.split()]
        RULES[name] = Rule(
            update, tuple((a, b) for a, b in pairs), tuple(numbers.split()), tuple(switches.split()), steps, tuple(twice.split())
        )
        return update

    return add


def _gradient(x: Numbers, h: Numbers, flags: Set[str]) -> Number:
    g = -x["grad"] if "maximize" in flags else x["grad"]
    return g + x["param"] * h["weight_decay"] if "weight_decay" in flags and "decoupled_weight_decay" not in flags else g


@_rule("sgd", "momentum_buffer_list:momentum", "lr momentum weight_decay dampening", "nesterov maximize", twice="momentum", steps=False)
def _sgd(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g = _gradient(x, h, flags)
    if "momentum" not in flags:
        return {"param": x["param"] - g * h["lr"]}
    buffer = x["momentum"] * h["momentum"] + g * (1 - h["dampening"])
    g = g + buffer * h["momentum"] if "nesterov" in flags else buffer
    return {"param": x["param"] - g * h["lr"], "momentum": buffer}


@_rule(
    "adam",
    "exp_avgs:mean exp_avg_sqs:square max_exp_avg_sqs:top",
    "lr beta1 beta2 eps weight_decay",
    "amsgrad maximize decoupled_weight_decay",
    twice="square",
)
def _adam(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g, p = _gradient(x, h, flags), x["param"]
    if {"weight_decay", "decoupled_weight_decay"} <= flags:
        p = p * (1 - h["lr"] * h["weight_decay"])
    mean = x["mean"] + (g - x["mean"]) * (1 - h["beta1"])
    square = x["square"] * h["beta2"] + g * g * (1 - h["beta2"])
    out = {"mean": mean, "square": square}
    if "amsgrad" in flags:
        out["top"] = square = x["top"].maximum(square)
    spread = square.sqrt() / (1 - h["beta2"] ** h["step"]).sqrt() + h["eps"]
    return {"param": p - mean / spread * (h["lr"] / (1 - h["beta1"] ** h["step"])), **out}


@_rule("adagrad", "state_sums:total", "lr weight_decay lr_decay eps", "maximize")
def _adagrad(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g = _gradient(x, h, flags)
    total = x["total"] + g * g
    rate = h["lr"] / ((h["step"] - 1) * h["lr_decay"] + 1)
    return {"param": x["param"] - g / (total.sqrt() + h["eps"]) * rate, "total": total}


@_rule(
    "rmsprop",
    "square_avgs:square grad_avgs:mean momentum_buffer_list:momentum",
    "lr alpha eps weight_decay momentum",
    "centered maximize",
    twice="square momentum",
)
def _rmsprop(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g = _gradient(x, h, flags)
    square = x["square"] * h["alpha"] + g * g * (1 - h["alpha"])
    out, spread = {"square": square}, square
    if "centered" in flags:
        mean = x["mean"] + (g - x["mean"]) * (1 - h["alpha"])
        out["mean"], spread = mean, square - mean * mean
    change = g / (spread.sqrt() + h["eps"])
    if "momentum" in flags:
        out["momentum"] = change = x["momentum"] * h["momentum"] + change
    return {"param": x["param"] - change * h["lr"], **out}


@_rule("adadelta", "square_avgs:square acc_deltas:moved", "lr rho eps weight_decay", "maximize", twice="square moved")
def _adadelta(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g = _gradient(x, h, flags)
    square = x["square"] * h["rho"] + g * g * (1 - h["rho"])
    change = (x["moved"] + h["eps"]).sqrt() / (square + h["eps"]).sqrt() * g
    moved = x["moved"] * h["rho"] + change * change * (1 - h["rho"])
    return {"param": x["param"] - change * h["lr"], "square": square, "moved": moved}


@_rule("adamax", "exp_avgs:mean exp_infs:top", "lr beta1 beta2 eps weight_decay", "maximize", twice="top")
def _adamax(x: Numbers, h: Numbers, flags: Set[str]) -> dict[str, Number]:
    g = _gradient(x, h, flags)
    mean = x["mean"] + (g - x["mean"]) * (1 - h["beta1"])
    top = (x["top"] * h["beta2"]).maximum(abs(g) + h["eps"])
    return {"param": x["param"] - mean / top * (h["lr"] / (1 - h["beta1"] ** h["step"])), "mean": mean, "top": top}
