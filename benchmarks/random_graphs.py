"""Random tensor programs as Python source: operators of many families over inputs of many layouts, types and sizes.

A program is made statement by statement and run eagerly on the way, so that shapes fit. Operators that jump (comparisons, rounding,
sorting) are only given values that every implementation computes to the last bit: otherwise two right answers may differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
DTYPES = (
    *[torch.float32] * 8,
    torch.float64,
    torch.bfloat16,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e15, 1e-30)
SMOOTH = (
    "torch.tanh exp sigmoid F.gelu F.silu torch.sin torch.cos torch.erf log1p torch.expm1 rsqrt torch.log F.softplus F.mish F.elu "
    "torch.atan "
    "torch.log_softmax(-1) torch.softmax(0) torch.softmax(-1) F.layer_norm torch.reciprocal torch.exp2 F.logsigmoid torch.erfc torch.i0 "
    "torch.special.spherical_bessel_j0 torch.special.i1e torch.special.erfcx torch.special.log_ndtr torch.digamma torch.deg2rad "
    "torch.special.entr"
).split()
EXACT = "neg abs relu torch.angle torch.nan_to_num F.relu6 F.hardtanh torch.square clone contiguous F.leaky_relu".split()
JUMPS = "torch.floor torch.ceil torch.round torch.trunc torch.sign torch.isnan torch.isfinite torch.logical_not".split()
BINARY = "add sub mul".split()
JUMPING_BINARY = "torch.lt torch.ge torch.eq torch.ne torch.maximum torch.minimum torch.remainder torch.fmod torch.floor_divide torch.logical_and torch.fmax torch.where".split()


@dataclass
class Program:
    """``source`` defines ``program(a0, a1, ...)``; ``inputs`` are given to it."""

    source: str
    inputs: list[torch.Tensor]
    seed: int
    rough: tuple[list[torch.dtype], list[torch.dtype]]
    """The least exact types that the results, and the inputs as they are afterwards, passed through: none has more digits than that."""
    rounded: dict[int, tuple[str, tuple[str, ...]]]
    """By the number of a statement: the tensor in which it leaves what implementations may round differently, and the operands whose last
    places stand for that (of sums, the rounding of a term may exceed the sum)."""

    def function(self, dtype: torch.dtype | None = None, namespace: Any = torch) -> Callable[..., Any]:
        """The function; with ``dtype``, all its casts to floats go to that type. ``namespace`` stands for torch."""
        text = self.source
        if dtype is not None:
            for f in FLOATS:
                text = text.replace(f"({f})", f"({dtype})").replace(f"={f}", f"={dtype}")
        names: dict[str, Any] = {"torch": namespace, "F": torch.nn.functional}
        exec(text, names)
        return names["program"]  # type: ignore[no-any-return]


class Text(int):
    """A number with its own way to be written."""

    text: str

    def __new__(cls, text: str, value: int = 0) -> Text:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return self.text


@dataclass
class Maker:
    r: random.Random
    symbolic: bool = False
    """Whether sizes are mostly written as the sizes of tensors, so that the program means the same for other inputs."""
    env: dict[str, torch.Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    inexact: set[int] = field(default_factory=set)
    roughest: dict[int, torch.dtype] = field(default_factory=dict)
    rounded: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    count: int = 0

    def passed(self, value: torch.Tensor, sources: list[str]) -> None:
        """Notes the types behind what a memory holds now."""
        behind = [value.dtype, *(self.rough(self.env[n]) for n in sources if n in self.env)]
        self.roughest[key(value)] = max(behind, key=_eps)

    def rough(self, value: torch.Tensor) -> torch.dtype:
        return max(value.dtype, self.roughest.get(key(value), value.dtype), key=_eps)

    # ---- values ------------------------------------------------------------------------------------------------------------

    def input(self, generator: torch.Generator) -> torch.Tensor:
        """A tensor of any type and layout."""
        r = self.r
        sizes = [r.choice([1, 2, 3, 4, 5, 8, 17, 33]) for _ in range(r.choice([0, 1, 2, 2, 2, 3, 3, 4]))]
        if r.random() < 0.04 and sizes:
            sizes[r.randrange(len(sizes))] = 0
        if r.random() < 0.5 and self.env:
            sizes = list(r.choice(list(self.env.values())).shape)
        dtype = r.choice(DTYPES)
        kind = r.choices(["plain", "transposed", "strided", "expanded", "overlapping"], [10, 4, 2, 1, 0.5])[0]
        if kind == "transposed" and len(sizes) > 1:
            order = r.sample(range(len(sizes)), len(sizes))
            x = filled([sizes[k] for k in order], dtype, r, generator)
            return x.permute([order.index(k) for k in range(len(sizes))])
        if kind == "strided" and sizes:
            x = filled([n * 2 + 1 for n in sizes], dtype, r, generator)
            return x[tuple(slice(1, 2 * n + 1, 2) for n in sizes)]
        if kind == "expanded" and sizes:
            k = r.randrange(len(sizes))
            return filled([*sizes[:k], 1, *sizes[k + 1 :]], dtype, r, generator).expand(sizes)
        if kind == "overlapping" and len(sizes) == 2 and 0 not in sizes:
            return filled([sum(sizes)], dtype, r, generator).as_strided(sizes, (1, 1))
        return filled(sizes, dtype, r, generator)

    def pick(self, want: Callable[[torch.Tensor], bool] = lambda x: True) -> str | None:
        names = [n for n, x in self.env.items() if want(x)]
        near = names[-4:] if self.r.random() < 0.6 else names
        return self.r.choice(near) if near else None

    def is_exact(self, *names: str) -> bool:
        return all(key(self.env[n]) not in self.inexact for n in names)

    def emit(self, text: str, sources: list[str], exact: bool = True, sums: bool = False) -> bool:
        """Runs ``text`` as the next statement; False where torch refuses it. ``sums``: it adds up what it is given."""
        name = f"t{self.count}"
        names = {"torch": torch, "F": torch.nn.functional, **self.env}
        try:
            value = eval(text, names)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError):
            return False
        if not isinstance(value, torch.Tensor) or value.numel() > 4000 or value.is_quantized or value.dtype is torch.complex32:
            return False
        if value.is_complex() and not bool(
            value.isfinite().all()
        ):  # what becomes of one part where the other is infinite differs between torch's own kernels
            return False
        fresh = all(key(value) != key(v) for v in self.env.values())
        self.count += 1
        self.env[name] = value
        if value.is_complex() or (not (exact and self.is_exact(*sources)) and value.dtype in FLOATS):
            self.inexact.add(key(value))
            if fresh:
                self.rounded[len(self.lines)] = name, tuple(s for s in dict.fromkeys(sources) if sums or not self.is_exact(s))
        self.lines.append(f"{name} = {text}")
        self.passed(value, [name, *sources])
        return True

    def do(self, text: str, target: str, sources: list[str], exact: bool = True) -> bool:
        """Runs a statement that writes to ``target``."""
        before = self.env[target].clone()
        names = {"torch": torch, "F": torch.nn.functional, **self.env}
        try:
            exec(text, names)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            self.env[target].copy_(before) if not is_overlapping(self.env[target]) else None
            return False
        if not (exact and self.is_exact(*sources)):
            self.inexact.add(key(self.env[target]))
            self.rounded[len(self.lines)] = target, ()
        self.lines.append(text)
        self.passed(self.env[target], [target, *sources])
        return True

    # ---- families of operators ---------------------------------------------------------------------------------------------

    def unary(self) -> None:
        x = self.pick(is_float)
        if x is None:
            return
        f = self.r.choice(SMOOTH + EXACT + (JUMPS if self.is_exact(x) else []))
        arguments = {"F.layer_norm": f"F.layer_norm({x}, {x}.shape[-1:])", "torch.softmax(-1)": f"torch.softmax({x}, -1)"}
        text = f"{f.removesuffix('(-1)').removesuffix('(0)')}({x}, {f[-3:-1].strip('(')})" if f.endswith(")") else f"{f}({x})"
        if "." not in f:
            text = f"{x}.{f}()"
        self.emit(arguments.get(f, text), [x], exact=f not in SMOOTH)

    def binary(self) -> None:
        x = self.pick()
        if x is None:
            return
        y = self.pick(lambda v: can_broadcast(v, self.env[x])) or x
        exact = self.is_exact(x, y)
        f = self.r.choice(BINARY * 4 + ["torch.div", "torch.atan2", "torch.pow"] + (JUMPING_BINARY if exact else []))
        if self.r.random() < 0.2:
            y = self.r.choice(["2", "0.5", "-1.25", "3", "0"])
        sources = [x, *([y] if y in self.env else [])]
        if f == "torch.where":
            c = self.pick(lambda v: v.dtype == torch.bool and can_broadcast(v, self.env[x]))
            if c is not None:
                self.emit(f"torch.where({c}, {x}, {y})", sources)
            return
        text = f"{f}({x}, {y})" if f.startswith("torch") else f"{x}.{f}({y})"
        if f == "torch.div" and exact and self.r.random() < 0.3:
            text = f"torch.div({x}, {y}, rounding_mode={self.r.choice(['floor', 'trunc'])!r})"
        self.emit(text, sources, exact=f not in ("torch.atan2", "torch.pow"))

    def cast(self) -> None:
        x = self.pick()
        if x is None:
            return
        to = self.r.choice(DTYPES)
        if to in INTS and self.env[x].is_complex():
            return  # which are never exact
        if to not in FLOATS and self.env[x].dtype in FLOATS:
            if not self.is_exact(x):
                return
            self.emit(f"torch.nan_to_num({x}, 0.0, 1.0, -1.0).clamp(0, 100).to({to})", [x])
            return
        self.emit(f"{x}.to({to})", [x])

    def view(self) -> None:
        x = self.pick(lambda v: v.dim() > 0)
        if x is None:
            return
        r, v = self.r, self.env[x]
        d = r.randrange(v.dim())
        n = v.shape[d]
        a = r.randint(0, max(n - 1, 0))
        order = r.sample(range(v.dim()), v.dim())
        other = r.randrange(v.dim())
        factor = next((f for f in (2, 3, 4, 5) if n % f == 0 and n), 1)
        split = [*v.shape[:d], n // factor, factor, *v.shape[d + 1 :]]
        if self.symbolic:
            own = [f"{x}.shape[{k}]" if n > 1 and r.random() < 0.7 else str(n) for k, n in enumerate(v.shape)]
            split = Text(f"[{', '.join([*own[:d], r.choice([f'{own[d]} // {factor}', '-1']), str(factor), *own[d + 1 :]])}]")
            n = Text(own[d], n)
        choices = [
            f"{x}.permute({order})", f"{x}.transpose({d}, {other})", f"{x}.reshape({split})", f"{x}.reshape(-1)", f"{x}.flatten()",
            f"{x}.unsqueeze({d})", f"{x}.squeeze()", f"{x}.select({d}, {a})", f"{x}.narrow({d}, {a}, "
                f"{r.randint(0, n - a)})" if not self.symbolic else f"{x}.narrow({d}, {min(a, 1)}, {n} - 1)",
            f"{x}[{', '.join([':'] * d + [f'{a}::{r.randint(1, 3)}'])}]", f"{x}.flip({d})", f"{x}.roll({r.randint(0, 5)}, {d})",
            f"{x}.unsqueeze(0).expand(3, {', '.join(['-1'] * v.dim())})", f"{x}.repeat({', '.join(['1'] * d + ['2'] + ['1'] * (v.dim() - d - 1))})",
            f"{x}.view({split})", f"{x}.unfold({d}, {min(2, n)}, 1)", f"{x}.movedim({d}, 0)", f"{x}[..., None]", f"{x}.chunk(2, {d})[-1]",
            f"{x}.split({factor}, {d})[0]", f"{x}.diagonal()", f"torch.tril({x})", f"F.pad({x}, ({r.randint(-1, 2)}, {r.randint(0, 3)}))",
            f"{x}.repeat_interleave(2, {d})", f"{x}.swapaxes({d}, -1).contiguous()", f"{x}.unbind({d})[0]", (f"{x}.movedim(-1, "
                f"{d}).flatten({min(d, 1)})"),
        ]  # fmt: skip
        self.emit(r.choice(choices), [x])

    def reduce(self) -> None:
        x = self.pick(lambda v: v.dim() > 0)
        if x is None:
            return
        r, v = self.r, self.env[x]
        d = r.choice([*range(v.dim())])
        dims = sorted(r.sample(range(v.dim()), r.randint(1, v.dim())))
        keep = r.random() < 0.5
        smooth = [
            f"{x}.sum({dims}, keepdim={keep})", f"{x}.mean({dims}, keepdim={keep})", f"{x}.sum()", f"{x}.var({dims}, keepdim={keep})",
            f"{x}.prod({d})", f"{x}.std({d})", f"torch.logsumexp({x}, {dims})", f"{x}.cumsum({d})", (f"torch.linalg.vector_norm({x}, 2, "
                f"{dims})"),
            f"torch.softmax({x}, {d})", f"torch.log_softmax({x}, {d})", f"{x} - {x}.mean({d}, keepdim=True)", f"{x}.norm(dim={d})",
        ]  # fmt: skip
        exact = [f"{x}.amax({dims}, keepdim={keep})", f"{x}.amin({dims})", f"{x}.max()", f"{x}.max({d})[0]", f"{x}.min({d}, {keep})[0]"]
        jumps = [f"{x}.argmax({d})", f"{x}.max({d})[1]", f"{x}.any({d})", f"{x}.all()", f"{x}.argmin()", (f"{x}.sort({d}, "
            f"stable=True)[0]"), f"{x}.sort({d}, stable=True)[1]", f"({x} != 0).sum({d})", f"{x}.cummax({d})[0]", (f"torch.topk({x}, 1, "
                f"{d})[0]")]  # fmt: skip
        text = r.choice(smooth * 2 + exact * 2 + (jumps if self.is_exact(x) else []))
        self.emit(text, [x], exact=text not in smooth or v.dtype not in FLOATS, sums=text in smooth)

    def several(self) -> None:
        x = self.pick(lambda v: v.dim() > 0)
        if x is None:
            return
        shape = self.env[x].shape
        y = self.pick(lambda v: v.shape == shape) or x
        z = self.pick(lambda v: v.shape == shape) or x
        d = self.r.randrange(len(shape))
        f = self.r.choice(["torch.cat", "torch.cat", "torch.stack"])
        self.emit(f"{f}([{', '.join([x, y, z][: self.r.randint(1, 3)])}], {d})", [x, y, z])

    def product(self) -> None:
        x = self.pick(lambda v: v.dim() >= 2 and is_float(v))
        if x is None:
            return
        v = self.env[x]
        y = self.pick(lambda w: w.dtype == v.dtype and w.dim() >= 1 and w.shape[0 if w.dim() == 1 else -2] == v.shape[-1])
        if y is not None and self.r.random() < 0.6:
            self.emit(f"{x} @ {y}", [x, y], exact=False, sums=True)
        else:
            self.emit(
                self.r.choice([f"{x} @ {x}.transpose(-1, -2)", f"F.linear({x}, {x}.reshape(-1, {v.shape[-1]})[:3])"]),
                [x],
                exact=False,
                sums=True,
            )

    def indexing(self) -> None:
        x = self.pick(lambda v: v.dim() > 0 and 0 not in v.shape)
        i = self.pick(lambda v: v.dtype in (torch.int64, torch.int32))
        if x is None or i is None:
            return
        v, w = self.env[x], self.env[i]
        if v.numel() * w.numel() > 10_000_000:
            return  # rows by the million: gigabytes
        d = self.r.randrange(v.dim())
        n = v.shape[d]
        choices = [
            f"{x}.index_select({d}, {i}.reshape(-1) % {n})", f"{x}[{i} % {v.shape[0]}]", f"F.embedding({i} % {v.shape[0]}, {x})",
            f"{x}[{', '.join([':'] * d + [f'{i} % {n}'])}]", f"{x}.take({i} % {v.numel()})",
            f"{x}.index_add({d}, {i}.reshape(-1)[:{n}] % {n}, {x}.narrow({d}, 0, min({n}, {w.numel()})))",
            f"{x}.index_put(({i}.reshape(-1)[:1] % {v.shape[0]},), {x}[:1])",
        ]  # fmt: skip
        if v.dim() == w.dim():
            choices += [f"{x}.gather({d}, {i} % {n})"] * 2 + [f"{x}.scatter({d}, {i} % {n}, 2)"]
        self.emit(self.r.choice(choices), [x], exact=False, sums=True)

    def scatters(self) -> None:
        """Writes at positions that may repeat, under modes whose result does not depend on their order."""
        x = self.pick(lambda v: v.dim() > 0 and 0 not in v.shape and v.dtype is not torch.bool)
        if x is None:
            return
        v, r = self.env[x], self.r
        d = r.randrange(v.dim())
        n = v.shape[d]
        ids = torch.arange(n).mul(r.choice([1, 2, 3])).remainder(n).tolist()
        along = f"torch.tensor({ids})"
        whole = f"{along}.reshape({[-1 if k == d else 1 for k in range(v.dim())]}).expand({x}.shape)"
        mode = r.choice(["amax", "amin", "sum", "prod", "mean"] if is_float(v) else ["amax", "amin", "sum"])
        self_too = r.random() < 0.5
        source = f"{x}.flip({d})"
        choices = [
            f"{x}.scatter_reduce({d}, {whole}, {source}, {mode!r}, include_self={self_too})", f"{x}.index_fill({d}, {along}, 1)",
            f"{x}.index_reduce({d}, {along}, {source}, {mode.replace('sum', 'prod')!r}, include_self={self_too})",
            f"{x}.index_add({d}, {along}, {source}, alpha=2)", f"torch.take({x}, {along})", f"{x}.take_along_dim({whole}, {d})",
            f"torch.bucketize({x}, torch.tensor([-1.0, 0.0, 0.5, 2.0]), right={self_too})", (f"torch.isin({x}, torch.tensor([0, 1, 2], "
                f"dtype={x}.dtype))"),
        ]  # fmt: skip
        text = r.choice(choices)
        if ("bucketize" in text or "isin" in text) and not self.is_exact(x):
            return
        self.emit(text, [x], exact="amax" in text or "amin" in text or "take" in text or "fill" in text, sums=True)

    def images(self) -> None:
        x = self.pick(
            lambda v: v.dim() in (3, 4) and v.dtype in (torch.float32, torch.float64) and 0 not in v.shape and min(v.shape[-2:]) > 2
        )
        if x is None:
            return
        r = self.r
        k, s, p = r.randint(1, 3), r.randint(1, 2), r.choice([0, 0, 1])
        smooth = [
            f"F.avg_pool2d({x}, {k}, {s}, {min(p, k // 2)}, ceil_mode={r.random() < 0.3}, count_include_pad={r.random() < 0.5})",
            f"F.adaptive_avg_pool2d({x}, ({r.randint(1, 5)}, {r.randint(1, 5)}))",
            (f"F.interpolate({x}.reshape(1, -1, {self.env[x].shape[-2]}, {self.env[x].shape[-1]}), size=({r.randint(1, 7)}, "
            f"{r.randint(2, 7)}), mode={r.choice(['bilinear', 'bicubic'])!r}, antialias={r.random() < 0.3})"),
        ]  # fmt: skip
        exact = [
            f"F.max_pool2d({x}, {k}, {s}, {min(p, k // 2)}, ceil_mode={r.random() < 0.3})", (f"F.adaptive_max_pool2d({x}, "
                f"({r.randint(1, 3)}, {r.randint(1, 5)}))"),
            (f"F.pad({x}, (1, {r.randint(0, 2)}, 0, 1), "
            f"mode={r.choice(['reflect', 'replicate', 'circular'])!r})"), f"torch.rot90({x}, {r.randint(1, 3)}, (-1, -2))",
        ]  # fmt: skip
        text = r.choice(smooth + exact * 2)
        self.emit(text, [x], exact=text in exact, sums=True)

    def complexes(self) -> None:
        """Complex numbers, made of floats or of one another."""
        x = self.pick(lambda v: v.is_complex()) if self.r.random() < 0.7 else None
        y = self.pick(is_float) if x is None else self.pick(lambda v: v.is_complex() and can_broadcast(v, self.env[x])) or x
        if y is None:
            return
        if x is None:
            of, other = f"{y}.to(torch.float32)", self.pick(lambda v: is_float(v) and can_broadcast(v, self.env[y])) or y
            choices = [
                f"torch.complex({of}, {other}.to(torch.float32))",
                f"torch.polar({of}.abs(), {of})",
                f"torch.view_as_complex(torch.stack([{of}, {of} * 2], -1))",
                f"{of} * 1j",
            ]
            self.emit(self.r.choice(choices), [y, other], exact=False)
            return
        d = self.r.randrange(max(self.env[x].dim(), 1))
        choices = [
            f"{x} * {y}", f"{x} / ({y} + 3)", f"{x}.conj()", f"{x}.conj() * {y}", f"({x} / 9).exp()", f"{x}.abs()", f"{x}.real * 2", f"{x}.imag + 1", f"torch.view_as_real({x}) * 2",
            f"{x} + (2 - 1j)", f"{x}.sum({d})", f"{x}.mH.contiguous()", f"torch.fft.fft({x}, dim={d})", f"{x} @ {y}.mH", (f"torch.cat([{x}, "
                f"{x}.conj()], {d})"), f"{x}.sgn()", f"{x}.to(torch.complex128)",
        ]  # fmt: skip
        self.emit(self.r.choice(choices), [x, y], exact=False, sums=True)

    def masks(self) -> None:
        x = self.pick()
        if x is None:
            return
        m = self.pick(lambda v: v.dtype == torch.bool and can_broadcast(v, self.env[x]))
        if m is None:
            self.emit(f"{x} != 0", [x]) if self.is_exact(x) else None
            return
        value = self.r.choice(["0", "1"] if not is_float(self.env[x]) else ["0.0", "-1.5", "float('-inf')"])
        self.emit(f"{x}.masked_fill({m}, {value})", [x])

    def creation(self) -> None:
        n = self.r.choice([1, 3, 5, 8])
        x = self.pick()
        like = [f"torch.zeros_like({x})", f"torch.full_like({x}, 1)", f"{x}.new_ones({n})"] if x else []
        self.emit(self.r.choice([f"torch.arange({n})", f"torch.ones({n}, 2)", f"torch.eye({n})", f"torch.linspace(0, 1, {n})", *like]), [])

    def write(self) -> None:
        x = self.pick(lambda v: not is_overlapping(v))
        if x is None:
            return
        r, v = self.r, self.env[x]
        y = self.pick(lambda w: can_broadcast(w, v) and w.dtype == v.dtype and not half_overlap(v, w)) or x
        number = r.choice(["2", "0", "1"])
        choices = [
            f"{x}.add_({y})",
            f"{x}.mul_({y})",
            f"{x}.copy_({y})",
            f"{x}.mul_({number})",
            f"{x}.fill_({number})",
            f"{x}.zero_()",
            f"{x}.clamp_(min=0)",
        ]
        if v.dim():
            d = r.randrange(v.dim())
            a = r.randint(0, max(v.shape[d] - 1, 0))
            part = f"{x}.select({d}, {a})"
            at = ", ".join([":"] * d + [f"{a}:"])
            choices += [f"{part}.mul_({number})", f"{part}.copy_({part} + 1)", f"{x}[{at}] = {number}", f"{x}[{at}].add_({number})"]
            choices += [
                f"{x}.transpose(0, {d}).add_({number})",
                f"{x}.view(-1)[::2].fill_({number})",
                f"{x}[{at}] += {number}",
                f"{x}.neg_()",
            ]
        if is_float(v):
            choices += [f"{x}.relu_()", f"{x}.sigmoid_()"]
        text = r.choice(choices)
        self.do(text, x, [x, y], exact="sigmoid" not in text)

    # ---- programs ----------------------------------------------------------------------------------------------------------

    def program(self, seed: int, count: int, inputs: int) -> Program:
        generator = torch.Generator().manual_seed(seed)
        for k in range(inputs):
            self.env[f"a{k}"] = self.input(generator)
        if self.r.random() < 0.05:
            self.env[f"a{inputs}"] = self.r.choice(list(self.env.values()))[...]
        names = list(self.env)
        given = copied([self.env[n] for n in names])
        steps = [
            self.unary,
            self.binary,
            self.cast,
            self.view,
            self.reduce,
            self.several,
            self.product,
            self.indexing,
            self.masks,
            self.creation,
            self.write,
            self.scatters,
            self.images,
            self.complexes,
        ]
        for _ in range(count):
            self.r.choices(
                steps, [6, 7, 2, 7, 4, 2, 1, 1.5, 1, 0.7, 2.5, 1.5, 1, 0.8 + 2 * any(v.is_complex() for v in self.env.values())]
            )[0]()
        made = [n for n in self.env if n not in names]
        outputs = dict.fromkeys([*made[-1:], *self.r.sample(made, min(len(made), self.r.randint(0, 3)))])
        if self.r.random() < 0.1:
            outputs[self.r.choice(names)] = None
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return ({''.join(f'{o}, ' for o in outputs)})"])
        rough = [self.rough(self.env[n]) for n in outputs], [self.rough(self.env[n]) for n in names]
        return Program(f"def program({', '.join(names)}):\n{body}\n", given, seed, rough, self.rounded)


def random_program(seed: int, count: int | None = None, symbolic: bool = False) -> Program:
    """The program of a seed, of about ``count`` statements."""
    r = random.Random(seed)
    return Maker(r, symbolic).program(seed, count if count is not None else r.randint(1, 14), r.randint(1, 3))


def filled(sizes: list[int], dtype: torch.dtype, r: random.Random, generator: torch.Generator) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(sizes, generator=generator) < 0.5
    if dtype.is_complex:
        return torch.randn(sizes, dtype=dtype, generator=generator)
    if dtype not in FLOATS:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, sizes, generator=generator).to(dtype)
    x = (torch.randn(sizes, generator=generator) * 2).to(dtype)
    if r.random() < 0.1 and x.numel():
        for _ in range(3):
            x.view(-1)[r.randrange(x.numel())] = r.choice(SPECIAL)
    return x


def key(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def is_float(x: torch.Tensor) -> bool:
    return x.dtype in FLOATS


def positions(x: torch.Tensor) -> torch.Tensor:
    """Where in its memory each element lies."""
    return torch.arange(x.untyped_storage().nbytes() // x.element_size()).as_strided(x.shape, x.stride(), x.storage_offset())


def is_overlapping(x: torch.Tensor) -> bool:
    """Whether two elements lie in one place."""
    return positions(x).unique().numel() < x.numel()


def half_overlap(target: torch.Tensor, operand: torch.Tensor) -> bool:
    """Whether ``operand`` has elements of ``target`` that stand elsewhere in it: what is read after it was written is the order's
    affair."""
    if key(target) != key(operand):
        return False
    at, of = positions(target), positions(operand).broadcast_to(target.shape)
    return bool((at != of).any()) and bool(torch.isin(of[at != of], at.flatten()).any())


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype in FLOATS or dtype.is_complex else 0.0


def can_broadcast(x: torch.Tensor, to: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(x.shape, to.shape) == to.shape
    except RuntimeError:
        return False


def copied(tensors: list[torch.Tensor], dtype: torch.dtype | None = None, device: str = "cpu") -> list[torch.Tensor]:
    """Copies on the device, in the same layout, that share memory as the originals do; with ``dtype``, floats as that type, complex
    numbers as its pairs."""
    done: dict[int, torch.Tensor] = {}
    out = []
    for t in tensors:
        if key(t) not in done:
            whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
            to = None if dtype is None else dtype if is_float(t) else dtype.to_complex() if t.is_complex() else None
            done[key(t)] = whole.to(device, to or t.dtype, copy=True)
        out.append(done[key(t)].as_strided(t.shape, t.stride(), t.storage_offset()))
    return out
