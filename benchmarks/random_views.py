"""Random chains of views as Python source: reads and writes at any link, inputs that share memory, results that are views.

A program is made statement by statement and run eagerly on the way. All its arithmetic is exact, so that two right answers are equal. Eager
itself says nothing certain of writes to elements that stand at two places of a view, and of sources that lie partly in what is written:
there are none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

INTEGERS = (torch.int64, torch.int32)
DTYPES = (*[torch.float32] * 6, torch.float64, torch.int64, torch.int32, torch.complex64, torch.complex64)


@dataclass
class Views:
    """``source`` defines ``program(a0, a1, ...)``; ``make`` gives its arguments anew, each time with the memory that they share."""

    source: str
    make: Callable[[], list[torch.Tensor]]
    seed: int
    grad: bool = False

    def function(self, namespace: Any = torch) -> Callable[..., Any]:
        names: dict[str, Any] = {"torch": namespace, "F": torch.nn.functional}
        exec(self.source, names)
        return names["program"]  # type: ignore[no-any-return]


def places(x: torch.Tensor) -> list[int]:
    """Where in memory each of its bytes lies."""
    at = torch.tensor([x.storage_offset() * x.itemsize])
    for n, s in zip(x.shape, x.stride(), strict=True):
        at = (at.unsqueeze(-1) + torch.arange(n) * s * x.itemsize).reshape(-1)
    return (at.unsqueeze(-1) + torch.arange(x.itemsize)).reshape(-1).tolist() if x.numel() else []


def memory(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    return (memory(x), x.storage_offset(), x.shape, x.stride(), x.dtype) == (memory(y), y.storage_offset(), y.shape, y.stride(), y.dtype)


def may_be_written(x: torch.Tensor) -> bool:
    """Whether each of its elements stands at one place."""
    found = places(x)
    return len(set(found)) == len(found) and not x.is_inference()


def apart(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors share all their elements or none."""
    return memory(x) != memory(y) or same_elements(x, y) or set(places(x)).isdisjoint(places(y))


def sums_exactly(x: torch.Tensor) -> bool:
    """Whether the order of a sum is not seen in it: bits of numbers that were written as integers make any number."""
    return bool(torch.isreal(x).all() and (x.real == x.real.round()).all() and (x.real.abs() < 2**16).all())


@dataclass
class Maker:
    r: random.Random
    env: dict[str, torch.Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    """Names of inputs, whose sizes and strides stay."""
    count: int = 0
    grad: bool = False

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda x: True) -> str | None:
        """A name, later ones more often."""
        names = [n for n, x in self.env.items() if wanted(x)]
        if not names:
            return None
        return names[-1 - min(int(self.r.expovariate(0.5)), len(names) - 1)] if self.r.random() < 0.8 else self.r.choice(names)

    def run(self, text: str) -> Any:
        return eval(text, {"torch": torch, "F": torch.nn.functional}, self.env)

    def emit(self, text: str) -> None:
        """A statement that names what ``text`` gives, where eager gives a tensor that is not too large."""
        try:
            value = self.run(text)
        except Exception:
            return
        if not isinstance(value, torch.Tensor) or value.numel() > 200 or value.dim() > 6:
            return
        name = f"t{self.count}"
        self.count += 1
        self.env[name] = value
        self.lines.append(f"{name} = {text}")

    def do(self, text: str) -> None:
        """A statement for what it writes, where eager takes it."""
        try:
            exec(text, {"torch": torch, "F": torch.nn.functional}, self.env)
        except Exception:
            return
        self.lines.append(text)

    # ---- statements --------------------------------------------------------------------------------------------------------

    def view(self) -> None:
        if (x := self.pick()) is None:
            return
        r, v = self.r, self.env[x]
        rank = v.dim()
        d = r.randrange(rank) if rank else 0
        n = v.shape[d] if rank else 1
        e = r.randrange(rank) if rank else 0
        a, b = sorted(r.randint(0, n) for _ in range(2))
        order = r.sample(range(rank), rank)
        factor = next((f for f in (2, 3, 4, 5) if n % f == 0 and n), 1)
        split = [*v.shape[:d], n // factor, factor, *v.shape[d + 1 :]]
        lead = ", ".join([":"] * d)
        lead = lead + ", " if lead else ""
        choices = [
            *[self.by_strides(x, v)] * 4,
            f"{x}[{lead}{a}:{b}]", f"{x}[{lead}{a}::{r.randint(1, 3)}]", f"{x}[{lead}{r.randint(-n, n)}:]", (f"{x}.narrow({d}, {a}, "
                f"{b - a})"),
            f"{x}.select({d}, {r.randrange(-n, n) if n else 0})", f"{x}.diagonal({r.randint(-1, 1)}, {d}, {e})", (f"{x}.unfold({d}, "
                f"{r.randint(1, 2)}, {r.randint(1, 3)})"),
            f"{x}.permute({order})", f"{x}.transpose({d}, {e})", f"{x}.movedim({d}, {e})", f"{x}.swapaxes({d}, {e})", f"{x}.t()", f"{x}.mT", f"{x}.squeeze()", f"{x}.squeeze({d})",
            f"{x}.unsqueeze({r.randint(0, rank)})", f"{x}.reshape({split})", f"{x}.view({split})", f"{x}.reshape(-1)", f"{x}.view(-1)", f"{x}.flatten({min(d, e)}, {max(d, e)})",
            f"{x}.unflatten({d}, ({n // factor}, {factor}))", f"{x}.expand({r.randint(1, 2)}, "
                f"{', '.join(['-1'] * rank)})" if rank else f"{x}.expand(2)",
            f"{x}.split({r.randint(1, 3)}, {d})[{r.randint(-1, 0)}]", f"{x}.chunk(2, {d})[{r.randint(-1, 0)}]", f"{x}.unbind({d})[{r.randint(-1, 0)}]", f"torch.tensor_split({x}, 2, {d})[-1]",
            f"{x}.split([{a}, {n - a}], {d})[{r.randint(0, 1)}]", f"{x}[...]", f"{x}[None]", f"{x}.detach()", f"{x}.view_as({x})", f"{x}.contiguous()", f"F.dropout({x}, 0.5, False)",
            f"torch.unsafe_chunk({x}, 2, {d})[0]",
        ]  # fmt: skip
        if self.grad:
            choices.remove(
                f"{x}.detach()"
            )  # writes behind autograd's back: what views of what was written have as gradients, is a matter of order
        if v.is_complex():
            choices += [f"torch.view_as_real({x})", f"{x}.real", f"{x}.imag", f"{x}.conj()"] * 4
        elif v.is_floating_point():
            choices += [f"torch.view_as_complex({x})"] * 3 + [f"torch.real({x})"]
        if not v.is_complex():
            other = {torch.float32: "int32", torch.float64: "int64", torch.int64: "int32", torch.int32: "int64"}[v.dtype]
            if not self.grad:  # integers in the memory of a leaf are written behind autograd's back as well
                choices += [f"{x}.view(torch.{other})"] * 2
        self.emit(r.choice(choices))

    def by_strides(self, x: str, v: torch.Tensor) -> str:
        r = self.r
        size = v.untyped_storage().nbytes() // v.itemsize
        sizes = [r.randint(1, 4) for _ in range(r.randint(0, 3))]
        strides = [r.randint(1, 6) for _ in sizes]
        if r.random() < 0.3 and v.dim():
            sizes, strides = list(v.shape), list(v.stride())
            d = r.randrange(v.dim())
            sizes[d] = max(sizes[d] - 1, 0)
        if r.random() < 0.5:
            return f"{x}.as_strided({sizes}, {strides})"
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        return f"torch.as_strided({x}, {sizes}, {strides}, {r.randint(0, max(size - reach, 0))})"

    def fresh(self) -> None:
        """A memory of its own."""
        if (x := self.pick()) is None:
            return
        y = self.pick(lambda v: v.dtype == self.env[x].dtype and v.shape == self.env[x].shape) or x
        self.emit(
            self.r.choice(
                [
                    f"{x}.clone()",
                    f"{x} * 2",
                    f"{x} + {y}",
                    f"torch.zeros_like({x})",
                    f"torch.cat([{x}, {y}])",
                    f"{x}.sum()" if sums_exactly(self.env[x]) else f"{x}.clone()",
                    f"{x}.transpose(0, -1).clone()",
                ]
            )
        )

    def write(self) -> None:
        x = self.pick(lambda v: v.numel() > 0 and may_be_written(v))
        if x is None:
            return
        r, v = self.r, self.env[x]
        source = self.pick(lambda w: w.dtype == v.dtype and _broadcasts(w, v) and apart(v, w)) or x
        number, d = r.choice(["2", "3", "-1", "0"]), r.randrange(v.dim()) if v.dim() else 0
        n = v.shape[d] if v.dim() else 1
        a = r.randint(0, n - 1)
        at = ", ".join([":"] * d + [f"{a}:"])
        choices = [
            f"{x}.add_({number})", f"{x}.mul_({number})", f"{x}.copy_({source})", f"{x}.add_({source})", f"{x}.fill_({number})", f"{x}.zero_()",
            f"{x}.mul_(-1)" if v.is_complex() else f"{x}.neg_()",  # eager's vectors make other signs of complex zeros than the rest behind them
            f"{x}.copy_({source} * 2)", f"torch.add({source}, 1, out={x})", f"torch.mul({x}, {number}, out={x})",f"{x}.sub_({source})",
        ]  # fmt: skip
        if v.dim():
            choices += [
                f"{x}[{at}] = {number}", f"{x}[{at}] += 1", f"{x}[{at}] = {x}[{at}] * 2", (f"{x}.select({d}, "
                    f"{a}).fill_({number})"), f"{x}.index_fill_({d}, torch.tensor([{a}]), 1)",
                f"{x}[{at}].mul_(3)", f"{x}.select({d}, {a}).copy_({x}.select({d}, {n - 1 - a}) + 1)", f"{x}.transpose(0, {d}).add_(1)",
            ]  # fmt: skip
        self.do(r.choice(choices))

    def reshape_in_place(self) -> None:
        x = self.pick()
        if x is None or x in self.fixed or any(memory(self.env[x]) == memory(self.env[f]) for f in self.fixed):
            return
        v = self.env[x]
        if any(other is v for name, other in self.env.items() if name != x):
            return
        d, e = (self.r.randrange(v.dim()) if v.dim() else 0 for _ in range(2))
        self.do(self.r.choice([f"{x}.t_()", f"{x}.transpose_({d}, {e})", f"{x}.squeeze_()", f"{x}.unsqueeze_({d})"]))

    # ---- programs ----------------------------------------------------------------------------------------------------------

    def program(self, seed: int) -> Views:
        r, grad = self.r, self.grad
        recipes = [_recipe(r, grad) for _ in range(r.randint(1, 2))]
        shared = r.random() < 0.05 and not grad
        if shared:
            recipes.append(("shared", r.randint(0, 2)))  # type: ignore[arg-type]

        def make() -> list[torch.Tensor]:
            made: list[torch.Tensor] = []
            for recipe in recipes:
                made.append(_shared(made[0], int(recipe[1])) if recipe[0] == "shared" else _made(recipe))
            return made

        for k, x in enumerate(make()):
            if grad and x.is_floating_point():
                x = x.requires_grad_()
            self.env[f"a{k}"] = x
        names = list(self.env)
        self.fixed = set(names)
        if grad:
            for name in names:
                self.emit(f"{name} * 1")
        steps = [self.view, self.fresh, self.write, self.reshape_in_place]
        for _ in range(r.randint(3, 14)):
            r.choices(steps, [6, 1.2, 4, 0.3])[0]()
        made = [n for n in self.env if n not in names]
        outputs = dict.fromkeys([*made[-1:], *r.sample(list(self.env), min(len(self.env), r.randint(0, 3)))] or names)
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return ({''.join(f'{o}, ' for o in outputs)})"])
        return Views(f"def program({', '.join(names)}):\n{body}\n", make, seed, grad)


def _broadcasts(w: torch.Tensor, v: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(w.shape, v.shape) == v.shape
    except RuntimeError:
        return False


def _recipe(r: random.Random, grad: bool) -> tuple[str, torch.dtype, list[int], int]:
    """How an input is laid out, of what type and sizes."""
    sizes = [r.choice([1, 2, 3, 4, 6]) for _ in range(r.choice([1, 2, 2, 2, 3]))]
    kind = r.choices(["plain", "transposed", "offset", "gaps"], [10, 3, 3, 1])[0]
    return kind, torch.float32 if grad else r.choice(DTYPES), sizes, r.randint(0, 3)


def _made(recipe: tuple[str, torch.dtype, list[int], int]) -> torch.Tensor:
    kind, dtype, sizes, offset = recipe
    count = 1
    for n in sizes:
        count *= n
    flat = torch.arange(2 * count + offset).remainder(13).sub(4).to(dtype)
    if dtype.is_complex:
        flat = torch.complex(flat.real, flat.real.flip(0) + 1).to(dtype)
    if kind == "transposed":
        return flat[:count].clone().view(sizes[::-1]).permute(list(range(len(sizes)))[::-1])
    if kind == "offset":
        return flat[offset : offset + count].view(sizes)
    if kind == "gaps":
        return flat[: 2 * count].view(*sizes, 2)[..., 0]
    return flat[:count].clone().view(sizes)


def _shared(x: torch.Tensor, kind: int) -> torch.Tensor:
    """Another input in the memory of the first."""
    return (x[...], x[:1], x.transpose(0, -1))[kind]


def random_views(seed: int) -> Views:
    """The program of a seed; every sixth one is differentiated."""
    return Maker(random.Random(seed), grad=seed % 6 == 5).program(seed)
