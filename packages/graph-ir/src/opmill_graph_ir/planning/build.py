"""A schedule as a Plan: slots for buffers and views, allocations, launches, calls, and what to drop when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from opmill_runtime_cache.plan.expr import symbols_of
from opmill_runtime_cache.plan.model import (
    Alloc,
    Arg,
    Call,
    Check,
    ComplexArg,
    Constant,
    Define,
    Expr,
    Free,
    Item,
    KernelRef,
    Label,
    Launch,
    ListArg,
    Literal,
    Named,
    NoneOutput,
    Output,
    Plan,
    SizeInput,
    SizeOf,
    SizeOfStep,
    SizeOutput,
    Slot,
    SlotOutput,
    Step,
    TensorInput,
    TensorSpec,
    View,
)

from ..loops.index import ONE, ZERO, Index, index
from ..loops.ir import LoopKernel
from ..lowered import BufferArg, BufferInfo, TensorOutput
from ..schedule.loop import buffer_args
from ..schedule.memory import Memory
from ..schedule.steps import ExternStep, KernelStep, Schedule, span
from .size import size


def spec(info: BufferInfo) -> TensorSpec:
    """A buffer as a plan describes tensors."""
    return TensorSpec(info.dtype, tuple(map(size, info.sizes)), tuple(map(size, info.strides)), info.device)


def build_plan(
    name: str,
    schedule: Schedule,
    memory: Memory,
    refs: Mapping[tuple[LoopKernel, str], KernelRef],
    bodies: Mapping[int, Plan] | None = None,
    labels: Sequence[Label] = (),
) -> Plan:
    """The plan of a schedule whose kernels are built; ``bodies`` are the plans of the graphs that its steps run, by ``id``; ``labels`` are
    of the schedule's steps."""
    builder = _Builder(schedule, memory, refs, bodies or {})
    builder.steps += [Define(symbol, text) for symbol, text in memory.definitions.items()]
    places = []
    for k, step in enumerate(schedule.steps):
        places.append(len(builder.steps))
        _ADD[type(step)](builder, step)
        builder.drop(k)
    places.append(len(builder.steps))
    outputs = tuple(builder.output(o) for o in schedule.lowered.outputs)
    return Plan(
        name,
        builder.count,
        builder.inputs,
        outputs,
        tuple(builder.steps),
        builder.bindings(),
        builder.constants,
        tuple(builder.kernels),
        memory.size,
        tuple(sorted(builder.written & {item.slot for item in builder.inputs if type(item) is TensorInput})),
        memory.device,
        tuple(builder.bodies),
        tuple(Label(label.name, places[label.begin], places[label.end], label.depth) for label in labels),
    )


def _shown(schedule: Schedule) -> dict[str, BufferInfo]:
    """Buffers that are given out once, all of them in a view: they are made as the view shows them."""
    outputs = [o for o in schedule.lowered.outputs if type(o) is TensorOutput]
    given = Counter(o.buffer for o in outputs)
    found: dict[str, BufferInfo] = {}
    for out in outputs:
        info = schedule.buffers[out.buffer]
        if out.sizes is None or out.dtype or given[out.buffer] > 1 or (out.offset is not None and out.offset != index(0)):
            continue
        view = replace(info, sizes=out.sizes, strides=out.strides or ())
        same = (view.sizes, view.strides) == (info.sizes, info.strides)
        if same or (math.prod(view.sizes, start=ONE) == span(view) == span(info) == math.prod(info.sizes, start=ONE)):
            found[out.buffer] = view
    return found


def _seen(schedule: Schedule) -> set[str | None]:
    """Buffers that operators see: kernels look at memory alone."""
    nodes = [step.node for step in schedule.steps if type(step) is ExternStep]
    read = {a.buffer for n in nodes for a in buffer_args((*n.args, *n.kwargs.values()))}
    return read.union(*(n.mutates for n in nodes), *(n.results for n in nodes))


class _Builder:
    def __init__(
        self, schedule: Schedule, memory: Memory, refs: Mapping[tuple[LoopKernel, str], KernelRef], plans: Mapping[int, Plan]
    ) -> None:
        self.schedule, self.memory, self.refs, self.plans = schedule, memory, refs, plans
        self.bodies: list[Plan] = []
        self.steps: list[Step] = []
        self.slots: dict[str, int] = {}
        self.views: dict[tuple[object, ...], int] = {}
        self.kernels: list[KernelRef] = []
        self.count = 0
        lowered = schedule.lowered
        self.escaping = {o.buffer for o in lowered.outputs if type(o) is TensorOutput}
        self.owned: set[str] = set()
        self.shown = _shown(schedule)
        self.seen = _seen(schedule)
        self.allocated: dict[str, int] = {}
        """Slots of buffers as they are made."""
        self.written: set[int] = set()
        self.known = {name for name, hint in lowered.symbols.items() if hint is not None} | set(lowered.inputs)
        self.definitions, self.checks = dict(lowered.definitions), list(lowered.checks)
        self.inputs = tuple(self._input(n) for n in lowered.inputs)
        self.constants = tuple(Constant(self._define(n), spec(lowered.buffers[n]), data) for n, data in lowered.constants.items())

    # ---- slots -------------------------------------------------------------------------------------------------------------

    def _fresh(self) -> int:
        self.count += 1
        return self.count - 1

    def _define(self, buffer: str) -> int:
        self.slots[buffer] = self._fresh()
        return self.slots[buffer]

    def _input(self, name: str) -> TensorInput | SizeInput:
        info = self.schedule.lowered.buffers.get(name)
        if info is None:
            return SizeInput(name, name)
        return TensorInput(self._define(name), spec(info), info.role == "held", name, info.opaque, info.multiplied)

    def bindings(self) -> tuple[SizeOf, ...]:
        """Size symbols that are not inputs themselves, each from the first dimension whose size, or else stride, shows it."""
        lowered = self.schedule.lowered
        found: dict[str, SizeOf] = {}
        tensors = [lowered.buffers[name] for name in lowered.inputs if name in lowered.buffers]
        for stride in (False, True):
            for info in tensors:
                for dim, extent in enumerate(info.strides if stride else info.sizes):
                    if str(extent) in lowered.symbols and str(extent) not in lowered.inputs:
                        found.setdefault(str(extent), SizeOf(str(extent), self.slots[info.name], dim, stride))
        return tuple(found.values())

    def slot(self, buffer: str) -> int:
        """The slot of a buffer, allocated now where it is new."""
        if buffer in self.memory.homes:
            return self.slots[self.memory.homes[buffer]]
        if buffer not in self.slots:
            info = self.schedule.buffers[buffer]
            offset = self.memory.offsets.get(buffer)
            if offset is None and buffer not in self.escaping:
                self.owned.add(buffer)
            shown = self.shown.get(buffer, info)
            made = self.allocated[buffer] = self._define(buffer)
            self.steps.append(Alloc(made, spec(shown), offset, info.origin))
            if buffer in self.seen and (shown.sizes, shown.strides) != (info.sizes, info.strides):
                geometry = tuple(map(size, info.sizes)), tuple(map(size, info.strides)), size(ZERO)
                self.steps.append(View(self._define(buffer), made, *geometry))  # operators see it as it is computed
        return self.slots[buffer]

    def view(
        self, buffer: str, sizes: Sequence[Index], strides: Sequence[Index], offset: Index | None, dtype: str | None = None, twin: int = 0
    ) -> int:
        base = self.slot(buffer)
        geometry = tuple(map(size, sizes)), tuple(map(size, strides)), size(offset if offset is not None else index(0)), dtype
        key = (buffer, *geometry, twin)
        if key not in self.views:
            self.views[key] = self._fresh()
            self.steps.append(View(self.views[key], base, *geometry))
        return self.views[key]

    # ---- steps -------------------------------------------------------------------------------------------------------------

    def launch(self, step: KernelStep) -> None:
        slots = tuple(self.slot(b) for b in step.arguments)
        ref = self.refs[step.kernel, step.device]
        if ref not in self.kernels:
            self.kernels.append(ref)
        writes = tuple(k for k, b in enumerate(step.kernel.buffers) if b.role != "in")
        self.written |= {slots[k] for k in writes}
        checks = tuple((c.error, c.message) for n in step.kernel.nests for p in n.phases for c in p.checks)
        self.steps.append(Launch(self.kernels.index(ref), slots, step.sizes, writes, checks, step.origin))

    def call(self, step: ExternStep) -> None:
        node = step.node
        if node.binds and not node.results:
            [(symbol, _, _)], [tensor] = node.binds, node.args
            read = self.arg(tensor)
            assert type(read) is Slot
            self.steps.append(Item(symbol, read.index))
            self.learned({symbol})
            return
        args = tuple(self.arg(a) for a in node.args)
        kwargs = {k: self.arg(a) for k, a in node.kwargs.items()}
        self.written |= {self.slot(b) for b in node.mutates}
        if node.out_variant and len(node.results) == 1 and node.results[0] is not None:
            kwargs["out"] = Slot(self.slot(node.results[0]))
            self.steps.append(Call(node.out_variant, args, kwargs, (), node.origin))
            return
        results = tuple(None if r is None else self._define(r) for r in node.results)
        self.owned |= {r for r in node.results if r is not None and r not in self.escaping}
        infos = [None if r is None else self.schedule.buffers[r] for r in node.results]
        promised: tuple[TensorSpec | None, ...] = tuple(None if i is None or i.opaque else spec(i) for i in infos)
        if node.binds:
            promised = ()  # its sizes are known only when it has run
        bodies = tuple(range(len(self.bodies), len(self.bodies) + len(node.bodies)))
        self.bodies += [self.plans[id(body)] for body in node.bodies]
        self.steps.append(Call(node.op, args, kwargs, results, node.origin, promised, bodies))
        at = dict(zip(node.results, results, strict=True))
        self.steps += [SizeOfStep(symbol, slot, dim) for symbol, buffer, dim in node.binds if (slot := at[buffer]) is not None]
        self.learned({symbol for symbol, _, _ in node.binds})

    def learned(self, symbols: Set[str]) -> None:
        """Defines what follows from symbols that are known now, and checks what is demanded of them."""
        if not symbols:
            return
        self.known |= symbols
        while ready := [name for name, text in self.definitions.items() if symbols_of(text) <= self.known]:
            for name in ready:
                text = self.definitions.pop(name)
                if name not in self.known:
                    self.known.add(name)
                    self.steps.append(Define(name, text))
        for condition, message in [c for c in self.checks if symbols_of(c[0]) <= self.known]:
            self.checks.remove((condition, message))
            self.steps.append(Check(condition, message, "SizeCheckFailed"))

    def arg(self, value: object) -> Arg:
        """An argument of an operator call; views are made on the way."""
        if type(value) is BufferArg:
            if value.sizes is None:
                return Slot(self.slot(value.buffer))
            return Slot(self.view(value.buffer, value.sizes, value.strides or (), value.offset))
        if type(value) is Index:
            return Literal(value.constant) if value.constant is not None else Expr(str(value))
        if type(value) is tuple or type(value) is list:
            return ListArg(tuple(self.arg(v) for v in value))
        assert isinstance(value, Slot | Expr | ListArg | Literal | Named | ComplexArg), value
        return value

    def drop(self, position: int) -> None:
        """Frees tensors that do not live in the arena once nothing needs them any more."""
        gone = [b for b in sorted(self.owned) if self.memory.last.get(b, position) <= position]
        if gone:
            shown = {*gone, *(b for b, home in self.memory.homes.items() if home in gone)}
            slots = [s for key, s in self.views.items() if key[0] in shown] + [self.slots[b] for b in gone]
            self.views = {key: s for key, s in self.views.items() if key[0] not in shown}
            self.owned -= set(gone)
            self.steps.append(Free(tuple(sorted(slots))))

    # ---- outputs -----------------------------------------------------------------------------------------------------------

    def output(self, out: TensorOutput | Index | None) -> Output:
        if out is None:
            return NoneOutput()
        if isinstance(out, Index):
            return SizeOutput(size(out))
        whole = out.sizes is None or (out.buffer in self.shown and out.buffer in self.allocated)
        if whole:
            slot = self.allocated.get(out.buffer, self.slot(out.buffer))
        else:
            slot = self.view(out.buffer, out.sizes or (), out.strides or (), out.offset, out.dtype, out.twin)
        return SlotOutput(self._detached(slot) if out.detached else slot)

    def _detached(self, slot: int) -> int:
        self.steps.append(Call("aten::detach", (Slot(slot),), {}, (self._fresh(),)))
        return self.count - 1


_ADD: dict[type, Callable[..., None]] = {KernelStep: _Builder.launch, ExternStep: _Builder.call}
