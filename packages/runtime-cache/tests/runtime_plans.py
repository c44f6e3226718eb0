"""Random legal plans, with inputs to run them on."""

from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st
from runtime_kernels import kernel

from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Define,
    Expr,
    Free,
    Launch,
    ListArg,
    Literal,
    Plan,
    Size,
    SizeInput,
    SizeOf,
    SizeOutput,
    Slot,
    SlotOutput,
    Step,
    TensorInput,
    TensorSpec,
    View,
)


@dataclass
class Case:
    plan: Plan
    shapes: list[tuple[int, int] | None]  # of call inputs, as multiples: (rows factor, columns); None for the size input
    held: list[tuple[int, int]]

    def inputs(self, rows: int, seed: int) -> list:
        generator = torch.Generator().manual_seed(seed)
        return [rows if shape is None else torch.randn(rows, shape[1], generator=generator) for shape in self.shapes]

    def held_tensors(self, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(*shape, generator=generator) for shape in self.held]


@dataclass
class _Builder:
    draw: st.DrawFn
    steps: list[Step] = field(default_factory=list)
    matrices: dict[int, tuple[Size, int, bool]] = field(default_factory=dict)  # slot: rows, columns, transposed in memory
    outputs: set[int] = field(default_factory=set)  # slots that may be returned
    arena: set[int] = field(default_factory=set)
    slots: int = 0
    used: str = "0"  # bytes of arena, as an expression
    symbols: list[str] = field(default_factory=lambda: ["s0"])

    def new(self) -> int:
        self.slots += 1
        return self.slots - 1

    def alloc(self, rows: Size, columns: int) -> int:
        slot, offset = self.new(), None
        if self.draw(st.booleans()):
            offset = 0 if self.used == "0" else self.used
            self.used = f"({self.used} + {rows}*{columns * 4} + 63)//64*64"
            self.arena.add(slot)
        else:
            self.outputs.add(slot)
        self.steps.append(Alloc(slot, spec(rows, columns), offset, "made here"))
        self.matrices[slot] = (rows, columns, False)
        return slot

    def pick(self, plain: bool = False) -> int:
        choices = [slot for slot, (_, _, flipped) in self.matrices.items() if not (plain and flipped)]
        return self.draw(st.sampled_from(sorted(choices)))


def spec(rows: Size, columns: int) -> TensorSpec:
    return TensorSpec("float32", (rows, columns), (columns, 1))


def _launch_add(b: _Builder) -> None:
    a = b.pick(plain=True)
    rows, columns, _ = b.matrices[a]
    out = b.alloc(rows, columns)
    b.steps.append(Launch(0, (a, a, out), (f"{rows}*{columns}",), (2,)))


def _launch_affine(b: _Builder) -> None:
    a = b.pick(plain=True)
    rows, columns, _ = b.matrices[a]
    out = b.alloc(rows, columns)
    b.steps.append(Launch(1, (a, out), (f"{rows}*{columns}", b.draw(st.sampled_from([-2, 3, *b.symbols]))), (1,)))


def _transpose(b: _Builder) -> None:
    a = b.pick()
    rows, columns, flipped = b.matrices[a]
    if type(rows) is str:
        return  # all matrices have a symbolic or fixed number of rows; transposed ones would need symbolic columns
    slot = b.new()
    b.steps.append(View(slot, a, (columns, rows), (1, columns) if not flipped else (rows, 1)))
    b.matrices[slot] = (columns, rows, not flipped)
    (b.arena if a in b.arena else b.outputs).add(slot)


def _slice(b: _Builder) -> None:
    a = b.pick(plain=True)
    rows, columns, _ = b.matrices[a]
    if columns < 2:
        return
    slot, result = b.new(), b.new()
    b.steps.append(View(slot, a, (rows, columns - 1), (columns, 1), 1))
    b.steps.append(Call("aten::relu", (Slot(slot),), results=(result,), origin="a slice"))
    b.matrices[result] = (rows, columns - 1, False)
    b.outputs.add(result)


def _product(b: _Builder) -> None:
    a = b.pick()
    rows, inner, _ = b.matrices[a]
    others = [slot for slot, (r, _, _) in b.matrices.items() if r == inner]
    if not others:
        return
    other = b.draw(st.sampled_from(sorted(others)))
    columns = b.matrices[other][1]
    out = b.alloc(rows, columns)
    biases = [slot for slot, (r, c, _) in b.matrices.items() if c == columns and (r == 1 or r == rows) and slot != out]
    if biases and b.draw(st.booleans()):
        factors = {"beta": Literal(b.draw(st.sampled_from([0.0, 1.0, -0.5]))), "alpha": Literal(b.draw(st.sampled_from([1.0, 2.0])))}
        bias = b.draw(st.sampled_from(sorted(biases)))
        b.steps.append(Call("aten::addmm.out", (Slot(bias), Slot(a), Slot(other)), {**factors, "out": Slot(out)}))
    else:
        b.steps.append(Call("aten::mm.out", (Slot(a), Slot(other)), {"out": Slot(out)}))


def _operator(b: _Builder) -> None:
    a = b.pick()
    rows, columns, _ = b.matrices[a]
    calls = [
        (Call("aten::add.Tensor", (Slot(a), Slot(a)), {"alpha": Literal(2)}, (b.new(),)), rows, columns),
        (Call("aten::mul.Scalar", (Slot(a), Literal(0.5)), {}, (b.new(),)), rows, columns),
        (Call("aten::sum.dim_IntList", (Slot(a), ListArg((Literal(1),)), Literal(True)), {}, (b.new(),)), rows, 1),
        (Call("aten::cat", (ListArg((Slot(a), Slot(a))), Literal(1)), {}, (b.new(),)), rows, columns * 2),
        (Call("aten::reshape", (Slot(a), ListArg((Expr(rows), Expr(columns)))), {}, (b.new(),)), rows, columns),
    ]
    call, rows, columns = b.draw(st.sampled_from(calls))
    contiguous = b.new()
    [result] = call.results
    b.steps += [call, Call("aten::clone", (Slot(result),), {"memory_format": _contiguous()}, (contiguous,)), Free((result,))]
    b.matrices[contiguous] = (rows, columns, False)
    b.outputs.add(contiguous)


def _contiguous():
    from opmill_runtime_cache.plan.model import Named

    return Named("memory_format", "contiguous_format")


def _define(b: _Builder) -> None:
    name = f"d{len(b.symbols)}"
    b.steps.append(Define(name, f"{b.symbols[-1]}*2 - s0//2"))
    b.symbols.append(name)


_MOVES = (_launch_add, _launch_affine, _transpose, _slice, _product, _operator, _define)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Plans over matrices with s0 or a fixed number of rows; inputs are held tensors, call inputs and a size."""
    b = _Builder(draw)
    columns = st.integers(1, 5)
    shapes: list[tuple[int, int] | None] = []
    held: list[tuple[int, int]] = []
    inputs: list[TensorInput | SizeInput] = []
    for _ in range(draw(st.integers(1, 3))):
        shape = (1, draw(columns))
        slot = b.new()
        inputs.append(TensorInput(slot, spec("s0", shape[1])))
        b.matrices[slot] = ("s0", shape[1], False)
        b.outputs.add(slot)
        shapes.append(shape)
    for _ in range(draw(st.integers(0, 3))):
        shape = (draw(columns), draw(columns))
        slot = b.new()
        inputs.append(TensorInput(slot, spec(*shape), held=True, name="w"))
        b.matrices[slot] = (*shape, False)
        b.outputs.add(slot)
        held.append(shape)
    bindings: tuple[SizeOf, ...] = (SizeOf("s0", 0, 0),)
    if draw(st.booleans()):
        inputs.append(SizeInput("s0", "rows"))
        shapes.append(None)
        bindings = ()
    for move in draw(st.lists(st.sampled_from(_MOVES), max_size=12)):
        move(b)
    chosen = draw(st.lists(st.sampled_from(sorted(b.outputs)), max_size=4))
    outputs = tuple(SlotOutput(slot) for slot in chosen) + (SizeOutput(b.symbols[-1]),)
    plan = Plan(
        "random", b.slots, tuple(inputs), outputs, tuple(b.steps), bindings, kernels=(kernel("add"), kernel("affine")), arena=b.used
    )
    return Case(plan, shapes, held)
