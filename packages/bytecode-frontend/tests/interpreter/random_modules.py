"""Random trees of modules and random changes of them between calls, for comparing captured with plain calls.

Two copies of each tree live side by side: one is called plainly, the other through the captured function, and both are changed alike."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

WIDTH = 4


class Scale(nn.Module):
    """Plain attributes of many types, a buffer, a tensor that is no buffer."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.factor = rng.choice([0.5, 2.0])
        self.steps = rng.choice([1, 2, 3])
        self.mode = rng.choice(["add", "mul"])
        self.flag = rng.random() < 0.5
        self.sizes = (1, rng.choice([1, 2]))
        self.parts = [1.0, rng.choice([0.25, 0.75])]
        self.options = {"shift": rng.choice([0.0, 1.0])}
        self.register_buffer("shift", torch.full((WIDTH,), 0.5))
        self.plain = torch.full((WIDTH,), 0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            x = x + self.shift * self.factor if self.mode == "add" else x * self.plain
        if self.flag:
            x = x * self.parts[1] + self.options["shift"]
        return x / self.sizes[1]


class Ema(nn.Module):
    """State that each call binds anew, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.mean = torch.zeros(WIDTH)
        self.register_buffer("power", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        self.power = self.power * 0.5 + 0.5
        if self.training:
            self.calls += 1
        return x - self.mean * self.power


class Tied(nn.Module):
    """Two layers that may have one weight."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH, bias=False)
        if tied:
            self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = 2.0 if self.a.weight is self.b.weight else 1.0
        return self.b(torch.tanh(self.a(x))) * same


class Chosen(nn.Module):
    """Children by name and by number, some of which may be missing, and one object at two paths."""

    def __init__(self, parts: list[nn.Module], rng: random.Random) -> None:
        super().__init__()
        self.many = nn.ModuleList(parts)
        self.named = nn.ModuleDict({"first": parts[0], "own": nn.Linear(WIDTH, WIDTH)})
        self.last = rng.choice([None, parts[-1]])
        self.name = rng.choice(["first", "own"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, part in enumerate(self.many):
            x = part(x) + k
        x = self.named[self.name](x)
        return x if self.last is None else self.last(x)


class Computed(nn.Module):
    """Attributes that code of the class finds."""

    __slots__ = ("slot",)

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.slot = 2.0

    @property
    def doubled(self) -> torch.Tensor:
        return self.inner.weight * 2

    def __getattr__(self, name: str) -> Any:
        return 1.5 if name in ("missing", "slot") else super().__getattr__(name)  # copies have nothing in the slot

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.doubled) * self.missing + self.slot


def tree(rng: random.Random, depth: int = 2) -> nn.Module:
    kind = rng.randrange(8 if depth else 6)
    match kind:
        case 0:
            return nn.Linear(WIDTH, WIDTH, bias=rng.random() < 0.7)
        case 1:
            return nn.BatchNorm1d(WIDTH)
        case 2:
            return Scale(rng)
        case 3:
            return Ema()
        case 4:
            return Tied(rng.random() < 0.5)
        case 5:
            return Computed()
        case 6:
            return Chosen([tree(rng, depth - 1) for _ in range(rng.randrange(1, 4))], rng)
    parts = [tree(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    return nn.Sequential(*parts, *([parts[0]] if rng.random() < 0.3 else []))


def doubled(module: Any, args: Any, output: Any) -> Any:
    return output * 2


def shifted(module: Any, args: Any) -> Any:
    return (args[0] + 1,)


def of(module: nn.Module, *kinds: type) -> list[Any]:
    """Modules of these kinds in the tree, in order."""
    return [m for m in module.modules() if isinstance(m, kinds)]


Change = Callable[[nn.Module, random.Random], None]
CHANGES: list[Change] = []


def change(function: Change) -> Change:
    CHANGES.append(function)
    return function


def pick(found: list[Any], rng: random.Random) -> Iterator[Any]:
    """One of them, if there are any."""
    if found:
        yield found[rng.randrange(len(found))]


@change
def nothing(m: nn.Module, rng: random.Random) -> None:
    pass


@change
def new_parameter(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Linear), rng):
        each.weight = nn.Parameter(torch.full((WIDTH, WIDTH), rng.random()))


@change
def no_bias(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Linear), rng):
        each.bias = None if rng.random() < 0.5 else nn.Parameter(torch.ones(WIDTH))


@change
def new_data(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Linear), rng):
        each.weight.data = torch.full((WIDTH, WIDTH), rng.random())


@change
def in_place(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.parameters()), rng):
        with torch.no_grad():
            each.mul_(0.5)


@change
def frozen(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.parameters()), rng):
        each.requires_grad_(not each.requires_grad)


@change
def tied(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, Tied), rng):
        each.b.weight = each.a.weight if rng.random() < 0.5 else nn.Parameter(torch.ones(WIDTH, WIDTH))


@change
def switched(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.modules()), rng):
        each.train(not each.training)


@change
def new_buffer(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, Scale), rng):
        each.shift = torch.full((WIDTH,), rng.random())
        each.plain = torch.full((WIDTH,), rng.random())


@change
def wider_buffer(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, Scale), rng):
        each.shift = torch.full((1,) if each.shift.dim() == 1 and each.shift.shape[0] == WIDTH else (WIDTH,), 0.5)


@change
def plain_attribute(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, Scale), rng):
        name = rng.choice(["factor", "steps", "mode", "flag", "sizes", "parts", "item", "key", "none"])
        match name:
            case "factor":
                each.factor = rng.choice([0.5, 2.0, 3.0])
            case "steps":
                each.steps = rng.randrange(4)
            case "mode":
                each.mode = rng.choice(["add", "mul", "other"])
            case "flag":
                each.flag = not each.flag
            case "sizes":
                each.sizes = (1, rng.choice([1, 2, 4]))
            case "parts":
                each.parts = [1.0, rng.random()]
            case "item":
                each.parts[1] = rng.choice([0.25, 0.75])
            case "key":
                each.options["shift"] = rng.choice([0.0, 1.0])
            case "none":
                each.added = rng.random()


@change
def hooked(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.modules()), rng):
        if each._forward_hooks or each._forward_pre_hooks:
            each._forward_hooks.clear()
            each._forward_pre_hooks.clear()
        elif rng.random() < 0.5:
            each.register_forward_hook(doubled)
        else:
            each.register_forward_pre_hook(shifted)


@change
def replaced_child(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Sequential, nn.ModuleList), rng):
        if len(each):
            each[rng.randrange(len(each))] = tree(rng, 0)


@change
def swapped_children(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Sequential, nn.ModuleList), rng):
        if len(each) > 1:
            each[0], each[1] = each[1], each[0]


@change
def added_child(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Sequential, nn.ModuleList), rng):
        each.append(each[0] if len(each) and rng.random() < 0.4 else tree(rng, 0))


@change
def deleted_child(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Sequential, nn.ModuleList), rng):
        if len(each) > 1:
            del each[rng.randrange(len(each))]


@change
def chosen(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, Chosen), rng):
        each.name = rng.choice(["first", "own"])
        each.last = rng.choice([None, each.named["own"], each.many[0] if len(each.many) else None])


@change
def loaded(m: nn.Module, rng: random.Random) -> None:
    state = {name: value * 0.5 if value.is_floating_point() else value for name, value in m.state_dict().items()}
    m.load_state_dict(state, assign=rng.random() < 0.7)


@change
def other_type(m: nn.Module, rng: random.Random) -> None:
    m.to(torch.float64 if rng.random() < 0.3 else torch.float32)


@change
def forward_of_its_own(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Linear), rng):
        if "forward" in each.__dict__:
            del each.forward
        else:
            each.forward = torch.sin


@change
def another_class(m: nn.Module, rng: random.Random) -> None:
    for each in pick(of(m, nn.Linear), rng):
        each.__class__ = Negative if type(each) is nn.Linear else nn.Linear


class Negative(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


@change
def new_table(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.modules()), rng):
        each._parameters = dict(each._parameters)


@change
def new_dict(m: nn.Module, rng: random.Random) -> None:
    for each in pick(list(m.modules()), rng):
        each.__dict__ = dict(each.__dict__)


def state_of(m: nn.Module) -> list[Any]:
    """All that a call may have changed: tensors, counters, gradients."""
    found: list[Any] = []
    for each in m.modules():
        own = each.__dict__
        tensors = [t for table in (own, own["_parameters"], own["_buffers"]) for t in table.values() if isinstance(t, torch.Tensor)]
        found += [(t.dtype, t.detach().tolist()) for t in tensors]
        found += [None if t.grad is None else t.grad.tolist() for t in tensors if t.is_leaf]
        found.append(getattr(each, "calls", None))
    return found


def outcome(call: Callable[..., Any], m: nn.Module, x: torch.Tensor) -> Any:
    """What a call gives, with the gradients that come of it; or the kind of exception that it raises."""
    try:
        y = call(m, x)
        if y.requires_grad:
            y.sum().backward()
        return y.dtype, y.requires_grad, y.detach()
    except Exception as exc:
        return type(exc)


class Pair:
    """A tree that is called plainly, and its twin."""

    def __init__(self, plain: nn.Module) -> None:
        self.plain, self.twin = copy.deepcopy(plain), copy.deepcopy(plain)  # what copies leave out, both have not

    def change(self, number: int, seed: int) -> None:
        for each in (self.plain, self.twin):
            rng = random.Random(seed)
            torch.manual_seed(seed)
            CHANGES[number](each, rng)

    def another(self) -> Pair:
        made = object.__new__(Pair)
        made.plain, made.twin = copy.deepcopy(self.plain), copy.deepcopy(self.twin)
        return made
