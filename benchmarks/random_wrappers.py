"""Random programs over tensor subclasses: pairs with metadata, pairs of pairs, pairs beside plain tensors, sums that read what their context
does not say; views, writes, changes of type, several outputs, what is inside, what the program puts on them, gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing


class Pair(torch.Tensor):
    """Two tensors that each operator is applied to, and a tag: that of the first pair among the operands."""

    a: Any
    b: Any
    tag: int
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, a: Any, b: Any, tag: int = 0, size: Any = None, stride: Any = None) -> Any:
        size, stride = a.shape if size is None else size, a.stride() if stride is None else stride
        return torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, dtype=a.dtype, device=a.device)  # type: ignore[attr-defined]

    def __init__(self, a: Any, b: Any, tag: int = 0, size: Any = None, stride: Any = None) -> None:
        self.a, self.b, self.tag = a, b, tag

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["a"], inner["b"], context, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        tag = next(p.tag for p in pytree.tree_leaves((args, kwargs)) if isinstance(p, Pair))
        found = [func(*of(args, name), **of(kwargs, name)) for name in ("a", "b")]
        result = pytree.tree_map(lambda a, b: Pair(a, b, tag) if isinstance(a, torch.Tensor) else a, *found)
        return return_and_correct_aliasing(func, args, kwargs, result)

    def total(self) -> Any:
        return self.a + self.b

    def __repr__(self, **_: Any) -> str:
        return f"Pair({self.a!r}, {self.b!r}, {self.tag})"


class Boosted(Pair):
    """Operators compute with the sum of both tensors, times a number that may be put on it and that its context does not say."""

    boost: float

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Boosted(inner["a"], inner["b"], context, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        plain = pytree.tree_map_only(Boosted, lambda p: (p.a + p.b) * getattr(p, "boost", 1), (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def of(args: Any, name: str) -> Any:
    return pytree.tree_map_only(Pair, lambda p: getattr(p, name), args)


@dataclass
class Program:
    """``source`` is the body of a function of ``x0``, ``x1``, ...; ``kinds`` says what these are."""

    seed: int
    source: str
    kinds: tuple[str, ...]

    @property
    def function(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"torch": torch, "Pair": Pair, "F": torch.nn.functional}
        names = ", ".join(f"x{k}" for k in range(len(self.kinds)))
        exec(compile(f"def program({names}):\n{self.source}", f"<wrappers {self.seed}>", "exec"), space)
        return space["program"]  # type: ignore[no-any-return]

    def inputs(self, n: int = 4) -> list[Any]:
        """Tensors of sizes (n, 3)."""
        source = torch.Generator().manual_seed(self.seed)

        def plain() -> torch.Tensor:
            return torch.randn(n, 3, generator=source, dtype=torch.float64)  # so that what differs is no rounding

        made = []
        for kind in self.kinds:
            value: Any = plain()
            if kind.startswith("pair"):
                value = Pair(value, plain(), 2)
            if kind.startswith("nested"):
                value = Pair(Pair(value, plain(), 1), Pair(plain(), plain(), 1), 3)
            if kind == "boosted":
                value = Boosted(value, plain(), 1)
            made.append(value.requires_grad_() if kind.endswith("grad") else value)
        return made


KINDS = ("plain", "pair", "nested", "plain grad", "pair grad", "nested grad", "boosted")
SAME = (
    "{0} * 2 + 1", "{0} + {1}", "{0} * {1}", "torch.sin({0})", "torch.relu({0}) - {1}", "{0}.clone()", "torch.where({0} > 0, {0}, {1})", "{0}.contiguous()",
    "{0}.to(torch.float32).to(torch.float64)", "torch.cat([{0}, {1}])[{0}.shape[0]:]", "F.softmax({0}, 1)", "{0} @ ({1}.t() @ {0})", "{0}.flip(0)",
    "torch.stack([{0}, {1}]).sum(0)", "{0}.detach()", "{0}.view(-1).view({0}.shape)", "{0}.t().t()", "{0}.expand_as({1})", "-{0}", "{0} / ({1}.abs() + 1)",
    "F.layer_norm({0}, (3,))", "F.linear({0}, torch.ones(3, 3, dtype=torch.float64))", ("{0}.chunk(2)[0].repeat(2, 1)[:{0}.shape[0]] if "
        "{0}.shape[0] % 2 == 0 else {0}"),
)  # fmt: skip
OF_PAIRS = ("{0}.a", "{0}.b * 2", "{0}.total()", "{0} * {0}.tag", "{0} if {0}.tag == 2 else -{0}", "Pair({0}.a, {0}.b + 1, 5)")
MADE = ("Pair({0}, {1}, 4)",)
WRITES = (
    "{0}.add_(1)",
    "{0}.mul_({1})",
    "{0}[0] = 0.5",
    "{0}.t().mul_(2)",
    "{0}[1:].zero_()",
    "{0}.copy_({1})",
    "{0}.a.add_(1)",
    "{0}.select(1, 0).add_({1}.select(1, 1))",
)
PUT_ON = (
    "{0}.note = {1}.shape[0] + 2",
    "{0}.note = {1} * 2",
    "{0}.note = 'text'",
    "{0}.boost = 3",
    "{0}.boost = {1}.shape[1] + 1",
)
ENDS = (
    "{0}",
    "{0}.sum()",
    "{0}.t()",
    "{0}[0]",
    "{0}.mean(1)",
    "({0} * 1).view(-1)",
    "{0}.to(torch.float32)",
    "{0}.sum(0, keepdim=True)",
    "{0} > 0",
    "{0}.max(1)",
)


def program(seed: int) -> Program:
    """The same for the same seed."""
    pick = random.Random(seed)
    kinds = tuple(pick.choice(KINDS) for _ in range(pick.randint(1, 3)))
    if not any(kind.startswith(("pair", "nested", "boosted")) for kind in kinds):
        kinds = (*kinds, pick.choice(("pair", "pair grad", "nested")))
    names = {f"x{k}": kind.split()[0] for k, kind in enumerate(kinds)}
    fresh: set[str] = set()
    lines = []
    for k in range(pick.randint(2, 7)):
        one = pick.choice(list(names))
        other = pick.choice([n for n in names if names[n] == names[one] or "plain" in (names[one], names[n])])
        roll, name = pick.random(), f"y{k}"
        if pick.random() < 0.15:
            lines.append(pick.choice(PUT_ON).format(one, pick.choice(list(names))))
            continue
        if roll < 0.2 and fresh:
            target = pick.choice(sorted(fresh))
            form = pick.choice([w for w in WRITES if ".a." not in w or names[target] == "pair"])
            beside = pick.choice([n for n in names if names[n] in ("plain", names[target])] or [target])
            lines.append(form.format(target, beside))
            continue
        if roll < 0.35 and names[one] == "pair":
            form = pick.choice(OF_PAIRS)
            kind = "plain" if form in ("{0}.a", "{0}.b * 2", "{0}.total()") else "pair"
        elif roll < 0.45 and names[one] == names[other] == "plain":
            form, kind = pick.choice(MADE), "pair"
        else:
            form = pick.choice(SAME)
            kind = names[one] if names[one] != "plain" or "{1}" not in form else names[other]
            if form.startswith(("{0}.expand_as", "{0}.chunk")):
                kind = names[one]
        lines.append(f"{name} = {form.format(one, other)}")
        names[name] = "plain" if kind == "boosted" else kind
        if form in ("{0} * 2 + 1", "{0}.clone()", "torch.sin({0})", "{0} + {1}"):
            fresh.add(name)
    if pick.random() < 0.3 and any(kind in ("pair", "plain") for kind in kinds):
        k = pick.choice([k for k, kind in enumerate(kinds) if kind in ("pair", "plain")])
        lines.insert(0, f"x{k}.add_(1)")
    ends = [pick.choice(ENDS).format(pick.choice(list(names)[-3:])) for _ in range(pick.randint(1, 3))]
    lines.append(f"return {', '.join(ends)},")
    return Program(seed, "\n".join(f"    {line}" for line in lines), kinds)


def differences(got: Any, expected: Any, where: str = "") -> str:
    """What is not the same; empty where nothing is."""
    if type(got) is not type(expected):
        return f"{where}: a {type(got).__name__} instead of a {type(expected).__name__}"
    if isinstance(got, (list, tuple)):
        if len(got) != len(expected):
            return f"{where}: {len(got)} instead of {len(expected)}"
        return next(filter(None, (differences(g, e, f"{where}[{k}]") for k, (g, e) in enumerate(zip(got, expected, strict=True)))), "")
    if not isinstance(got, torch.Tensor):
        return "" if got == expected else f"{where}: {got} instead of {expected}"
    for name in ("shape", "dtype", "requires_grad"):
        if getattr(got, name) != getattr(expected, name):
            return f"{where}.{name}: {getattr(got, name)} instead of {getattr(expected, name)}"
    if got.stride() != expected.stride() and got.numel() > 1:
        return f"{where}.stride(): {got.stride()} instead of {expected.stride()}"
    if said := differences(getattr(got, "note", None), getattr(expected, "note", None), f"{where}.note"):
        return said
    if isinstance(got, Pair):
        if got.tag != expected.tag:
            return f"{where}.tag: {got.tag} instead of {expected.tag}"
        return differences(got.a, expected.a, f"{where}.a") or differences(got.b, expected.b, f"{where}.b")
    close = torch.allclose(got.detach().double(), expected.detach().double(), rtol=1e-4, atol=1e-4, equal_nan=True)
    return "" if close else f"{where}: other values"


def memories(values: Any) -> list[int]:
    """For each plain tensor inside which of them lies first in the same memory."""
    met: dict[int, int] = {}
    found = []
    for value in pytree.tree_leaves(values):
        todo = [value]
        while todo:
            tensor = todo.pop()
            if isinstance(tensor, Pair):
                todo += [tensor.a, tensor.b]
            elif isinstance(tensor, torch.Tensor):
                found.append(met.setdefault(tensor.untyped_storage()._cdata, len(met)))
    return found
