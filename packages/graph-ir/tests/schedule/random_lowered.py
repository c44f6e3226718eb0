"""Random lowered programs, and running a schedule by the reference interpreters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from opmill_graph_ir.loops.evaluate import evaluate as run_kernel
from opmill_graph_ir.loops.index import Index, floordiv, index, mod
from opmill_graph_ir.loops.ir import SORTS, Axis, Const, Expr, IndexValue, Op, Reduction, Ref, Scan
from opmill_graph_ir.lowered import BufferArg, BufferInfo, Cumulate, Extern, Lowered, Pointwise, Read, Reduce, TensorOutput
from opmill_graph_ir.schedule.memory import ITEMSIZE, Memory
from opmill_graph_ir.schedule.steps import KernelStep, Schedule, span


def contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(sizes):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


class Maker:
    """Builds a program from a random source: broadcasts, permutations, slices, reshapes, padding, reductions, copies by torch, and where
    ``sorts``, rows in order."""

    def __init__(self, r: random.Random, extents: Sequence[int] = (1, 2, 3, 4, 6), sorts: bool = False) -> None:
        self.extents, self.sorts = extents, sorts
        self.r, self.nodes, self.buffers, self.inputs = r, [], {}, []

    def buffer(self, sizes: tuple[int, ...], role: str = "temporary", permuted: bool = False) -> str:
        name = f"b{len(self.buffers)}"
        order = list(range(len(sizes)))
        if permuted:
            self.r.shuffle(order)
        packed = contiguous(tuple(sizes[k] for k in order))
        strides = [0] * len(sizes)
        for k, stride in zip(order, packed, strict=True):
            strides[k] = stride
        self.buffers[name] = BufferInfo(name, "float32", tuple(map(index, sizes)), tuple(map(index, strides)), "cpu", role)  # type: ignore[arg-type]
        return name

    def sizes(self, name: str) -> tuple[int, ...]:
        return tuple(s.constant for s in self.buffers[name].sizes)  # type: ignore[misc]

    def axes(self, sizes: tuple[int, ...], prefix: str = "i") -> tuple[Axis, ...]:
        return tuple(Axis(f"{prefix}{k}", index(n)) for k, n in enumerate(sizes))

    def at(self, axes: tuple[Axis, ...]) -> list[Index]:
        return [index(0) if a.extent.constant == 1 else index(a.name) for a in axes]

    def read(self, name: str, at: list[Index], extents: tuple[int, ...]) -> Expr:
        """The element of a buffer that belongs to position ``at``: broadcast, sliced, padded or reshaped to fit."""
        sizes = self.sizes(name)
        if len(sizes) == len(at) and self.r.random() < 0.15 and sorted(sizes) == sorted(extents):
            options = [p for p in ([*range(len(at))], [*range(len(at))][::-1]) if tuple(extents[k] for k in p) == sizes]
            if options:
                pick = self.r.choice(options)
                return Read(name, tuple(at[k] for k in pick), "float32")  # type: ignore[return-value]
        total = 1
        for n in extents:
            total *= n
        if total == self.numel(name) and sizes != extents:
            return Read(name, self.reshaped(at, extents, sizes), "float32")  # type: ignore[return-value]
        indices, mask = [], None
        lead = len(at) - len(sizes)
        for k, n in enumerate(sizes):
            have, i = (extents[lead + k], at[lead + k]) if lead + k >= 0 else (1, index(0))
            if have > n and n > 1:
                inside = Op("lt", (IndexValue(i, "int64"), Const(n, "int64")), "bool")
                mask = inside if mask is None else Op("logical_and", (mask, inside), "bool")
            indices.append(index(0) if n == 1 else i + self.r.randint(0, n - have) if have <= n else i)
        other = Const(self.r.choice([0.0, -1.5]), "float32") if mask is not None else None
        return Read(name, tuple(indices), "float32", mask, other)  # type: ignore[return-value]

    def numel(self, name: str) -> int:
        total = 1
        for n in self.sizes(name):
            total *= n
        return total

    def reshaped(self, at: list[Index], extents: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Index, ...]:
        known = {str(i): n for i, n in zip(at, extents, strict=True) if i.constant is None}
        flat = index(0)
        for i, n in zip(at, extents, strict=True):
            flat = flat * n + i
        out = []
        for stride, n in zip(contiguous(sizes), sizes, strict=True):
            out.append(mod(floordiv(flat, stride, known), n, known))
        return tuple(out)

    def expression(self, at: list[Index], extents: tuple[int, ...]) -> Expr:
        names = list(self.buffers)
        near = names[-4:] if self.r.random() < 0.7 else names
        x = self.read(self.r.choice(near), at, extents)
        for _ in range(self.r.randint(1, 3)):
            if self.r.random() < 0.5:
                x = Op(self.r.choice(["tanh", "neg", "abs", "erf", "sigmoid"]), (x,), "float32")
            else:
                y = self.read(self.r.choice(near), at, extents)
                x = Op(self.r.choice(["add", "sub", "mul", "max"]), (x, y), "float32")
        return x

    def shape(self) -> tuple[int, ...]:
        return self.sizes(self.r.choice(list(self.buffers)))

    def pointwise(self) -> None:
        sizes = self.shape()
        axes = self.axes(sizes)
        value = self.expression(self.at(axes), sizes)
        self.nodes.append(Pointwise(self.buffer(sizes, permuted=self.r.random() < 0.1), axes, value, origin=f"op{len(self.nodes)}"))

    def reduce(self) -> None:
        sizes = self.shape()
        if not sizes:
            return
        dims = sorted(self.r.sample(range(len(sizes)), self.r.randint(1, len(sizes))))
        keep = self.r.random() < 0.5
        outer = tuple(1 if k in dims else n for k, n in enumerate(sizes) if keep or k not in dims)
        axes, inner = self.axes(outer), self.axes(tuple(sizes[k] for k in dims), "r")
        left, right = iter(self.at(axes) if not keep else [a for k, a in enumerate(self.at(axes)) if k not in dims]), iter(self.at(inner))
        at = [next(right) if k in dims else next(left) for k in range(len(sizes))]
        op = self.r.choice(["sum", "max", "welford"])
        names = ("m", "q") if op == "welford" else ("m",)
        r = Reduction(names, op, self.expression(at, sizes), "float32")
        results = tuple(self.buffer(outer) for _ in names)
        values = tuple(Op("tanh", (Ref(n, "float32"),), "float32") for n in names)
        self.nodes.append(Reduce(results, axes, inner, (r,), values, origin=f"op{len(self.nodes)}"))

    def cumulate(self) -> None:
        sizes = self.shape()
        if not sizes:
            return
        axes = self.axes(sizes)
        value = self.expression(self.at(axes), sizes)
        op = self.r.choice(["sum", "argmax", "logaddexp", "affine"])
        values = (value,) if op != "affine" else (Op("tanh", (value,), "float32"), value)
        s = Scan(("m", "q") if op == "argmax" else ("m",), op, values, "float32", self.r.random() < 0.5)
        results = [Ref("m", "float32")]
        if op == "argmax":
            results.append(Op("cast", (Ref("q", "int64"),), "float32"))
        node = Cumulate(
            tuple(self.buffer(sizes) for _ in results),
            axes,
            self.r.randrange(len(sizes)),
            (s,),
            tuple(results),
            origin=f"op{len(self.nodes)}",
        )
        self.nodes.append(node)

    def ordered(self) -> None:
        """A row in order, or the first of it, and where these were."""
        sizes = self.shape()
        if not sizes:
            return
        axes, along = self.axes(sizes), self.r.randrange(len(sizes))
        scan = Scan(("m", "q"), self.r.choice(SORTS), (self.expression(self.at(axes), sizes),), "float32")
        results = (Ref("m", "float32"), Op("cast", (Ref("q", "int64"),), "float32"))
        first = self.r.randrange(1, sizes[along]) if sizes[along] > 1 and self.r.random() < 0.5 else None
        given = sizes if first is None else (*sizes[:along], first, *sizes[along + 1 :])
        self.nodes.append(
            Cumulate(tuple(self.buffer(given) for _ in results), axes, along, (scan,), results, origin=f"op{len(self.nodes)}", first=first)
        )

    def extern(self) -> None:
        source = self.r.choice(list(self.buffers))
        result = self.buffer(self.sizes(source))
        info = self.buffers[source]
        self.buffers[result] = BufferInfo(result, "float32", info.sizes, info.strides, "cpu", "temporary")
        self.nodes.append(Extern("aten::neg", (BufferArg(source),), {}, (result,), self.r.choice([None, "aten::neg.out"])))

    def again(self) -> None:
        """A statement that was there before, under another name."""
        old = self.r.choice([n for n in self.nodes if type(n) is not Extern] or [None])
        if old is not None:
            fresh = {}
            many = type(old) in (Reduce, Cumulate)
            for name in old.buffers if many else (old.buffer,):
                fresh[name] = f"b{len(self.buffers)}"
                self.buffers[fresh[name]] = replace(self.buffers[name], name=fresh[name])
            key = {"buffers": tuple(fresh.values())} if many else {"buffer": fresh[old.buffer]}
            self.nodes.append(replace(old, **key))

    def lowered(self, count: int) -> Lowered:
        for _ in range(self.r.randint(1, 3)):
            base = [self.r.choice(self.extents) for _ in range(self.r.randint(0, 3))]
            self.inputs.append(self.buffer(tuple(base), "input", permuted=True))
        for _ in range(count):
            kinds, often = [self.pointwise, self.reduce, self.cumulate, self.extern, self.again], [6, 3, 2, 1, 1]
            self.r.choices([*kinds, self.ordered] if self.sorts else kinds, [*often, 4] if self.sorts else often)[0]()
        self.pointwise()
        temporaries = [n for n in self.buffers if n not in self.inputs]
        outputs = {temporaries[-1], *self.r.sample(temporaries, min(len(temporaries), self.r.randint(0, 2)))}
        return Lowered(tuple(self.nodes), self.buffers, tuple(self.inputs), tuple(TensorOutput(n) for n in sorted(outputs)))


def laid_out(info: BufferInfo) -> torch.Tensor:
    """Random contents in the layout that the program was promised."""
    sizes, strides = ([x.constant for x in xs] for xs in (info.sizes, info.strides))
    return torch.empty_strided(sizes, strides).copy_(torch.randn(sizes))


def run_schedule(made: Schedule, memory: Memory, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Runs the steps on one arena as planned, filled with NaN first, so that reading what is not there shows."""
    arena = torch.full((memory.size // 4,), float("nan"))
    flat: dict[str, torch.Tensor] = {}

    def memory_of(name: str) -> torch.Tensor:
        name = memory.homes.get(name, name)
        if name not in flat:
            numel = span(made.buffers[name]).constant or 0
            assert ITEMSIZE[made.buffers[name].dtype] == 4
            at = memory.offsets.get(name)
            flat[name] = torch.full((numel,), float("nan")) if at is None else arena[at // 4 : at // 4 + numel]
        return flat[name]

    def tensor(name: str) -> torch.Tensor:
        info = made.buffers[name]
        return memory_of(name).as_strided([s.constant for s in info.sizes], [s.constant for s in info.strides])

    for name, value in inputs.items():
        tensor(name).copy_(value)
    for step in made.steps:
        if type(step) is KernelStep:
            given = {b.name: memory_of(a) for a, b in zip(step.arguments, step.kernel.buffers, strict=True)}
            assert run_kernel(step.kernel, given, step.sizes) == 0
        else:
            [result] = step.node.results
            tensor(result).copy_(-tensor(step.node.args[0].buffer))  # type: ignore[arg-type, attr-defined]
    return [tensor(o.buffer) for o in made.lowered.outputs]  # type: ignore[union-attr]
