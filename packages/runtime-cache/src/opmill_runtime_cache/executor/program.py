"""From a Plan to the tuple that the native executor reads (``native/program.cpp``).

Slots are renumbered so that each is defined once; size expressions become numbered values, of which those known before the first step
("early") are computed once for each instance and the others ("late") by steps of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..plan.expr import Op, compile_size
from ..plan.model import (
    DTYPES,
    Alloc,
    Call,
    Check,
    Define,
    Free,
    Item,
    Launch,
    Literal,
    Plan,
    Size,
    SizeInput,
    SizeOfStep,
    SizeOutput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)
from ..plan.verify import READS, SIZES, args_of, slots_in
from .carried import carried_kernel
from .control import Body
from .kernels import CudaKernel, Entry
from .names import exception_of, operator_of
from .pycall import python_call
from .reference import load_constant
from .routes import Route, route_of, schema_of

INPUT, HELD, CONSTANT, ARENA, VIEW, FRESH, RESULT = range(7)
EVALUATE, DEFINE, LAUNCH, CALL, FREE, CHECK, ITEM, SIZE_OF, LAUNCH_CUDA = range(9)
CPU, UNKNOWN = -1, -2
"""Devices that are no CUDA device's number."""
_LATE, _SHARES_VERSION = 1, 2


class _Lowering:
    """The state of one lowering."""

    def __init__(self, plan: Plan, bodies: Sequence[Body]) -> None:
        self.plan, self.bodies = plan, bodies
        self.values: list[tuple[bool, tuple[int, ...]]] = []
        self.by_text: dict[Size, int] = {}
        self.alarms: list[tuple[type[Exception], str]] = []
        self.symbols: dict[str, int] = {}
        self.slots: list[list[Any]] = []
        self.labels: list[str] = []
        self.current: dict[int, int] = {}  # the plan's slot -> ours
        self.steps: list[tuple[Any, ...]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.evaluated: set[int] = set()

    def given(self, symbol: str, late: bool) -> int:
        """A value that is set from outside."""
        self.values.append((late, ()))
        self.symbols[symbol] = len(self.values) - 1
        return self.symbols[symbol]

    def value(self, size: Size, symbols: Mapping[str, int] | None = None) -> int:
        """The number of a size expression's value; ``symbols``: what a kernel calls the values of its launch."""
        found = self.by_text.get(size) if symbols is None else None
        if found is not None:
            return found
        words: list[int] = []
        late = False
        for op, operand in compile_size(size):
            word = (self.symbols if symbols is None else symbols)[str(operand)] if op is Op.LOAD else int(operand)
            late = late or (op is Op.LOAD and self.values[word][0])
            words += (int(op), word)
        self.values.append((late, tuple(words)))
        if symbols is None:
            self.by_text[size] = len(self.values) - 1
        return len(self.values) - 1

    def ready(self, size: Size, symbols: Mapping[str, int] | None = None) -> int:
        """The same, after making sure that a late value is computed before the next step."""
        if type(size) is int and size in self.by_text and symbols is None:  # most are, and none is late
            return self.by_text[size]
        number = self.value(size, symbols)
        if self.values[number][0] and self.values[number][1] and number not in self.evaluated:
            self.evaluated.add(number)
            self.steps.append((EVALUATE, number))
        return number

    def is_late(self, numbers: Sequence[int]) -> bool:
        return any(self.values[number][0] for number in numbers)

    def slot(self, index: int) -> int:
        return self.current[index]

    def define(self, index: int, label: str, row: list[Any]) -> int:
        self.slots.append(row)
        self.labels.append(label)
        self.current[index] = len(self.slots) - 1
        return self.current[index]

    def place(
        self,
        index: int,
        kind: int,
        dtype: str,
        sizes: Sequence[Size],
        strides: Sequence[Size],
        base: int,
        label: str,
        offset: int = -1,
        constant: Any = None,
        device: str = "cpu",
    ) -> int:
        shape = tuple(self.ready(size) for size in sizes), tuple(self.ready(stride) for stride in strides)
        late = self.is_late((*shape[0], *shape[1], *([offset] if offset >= 0 else [])))
        row = [kind, DTYPES.index(dtype), *shape, offset, base, len(self.slots), _LATE if late else 0, constant, device_number(device)]
        return self.define(index, label, row)


def has_gpu(program: tuple[Any, ...]) -> bool:
    """Whether anything in a native program lies on a GPU: it then asks for streams, even where it launches no kernel of ours."""
    return any(slot[9] >= 0 for slot in program[3])


def device_number(name: str) -> int:
    """A CUDA device's number, -1 for the CPU."""
    device = torch.device(name)
    return CPU if device.type == "cpu" else device.index or 0


def lower(plan: Plan, held: Sequence[torch.Tensor], entries: Sequence[Entry], bodies: Sequence[Body] = ()) -> tuple[Any, ...]:
    """The native program of a verified plan; ``bodies`` are the executables of the plans that it runs. Raises BindError for operators and names that torch lacks."""
    state = _Lowering(plan, bodies)
    key = _inputs(state)
    positions = [
        state.slot(item.slot) if type(item) is TensorInput else -1 for item in plan.inputs if not (type(item) is TensorInput and item.held)
    ]
    held_slots = [state.slot(item.slot) for item in plan.inputs if type(item) is TensorInput and item.held]
    exclusive = [state.slot(index) for index in plan.exclusive]
    used: dict[int, int] = {}  # by root, the step that uses it last
    for step in plan.steps:
        if type(step) is not Define:
            for size in SIZES[type(step)](step):
                state.ready(size)
        _STEPS[type(step)](state, step, entries)
        used.update((state.slots[state.slot(slot)][6], len(state.steps) - 1) for slot in READS[type(step)](step))
    arena = state.value(plan.arena)
    outputs = tuple(_output(state, output) for output in plan.outputs)
    leaving = {state.slots[number][6] for kind, number in outputs if kind == 0}
    last = {slot: used[slot] for slot in positions if slot in used and slot not in leaving}
    return (
        plan.name,
        tuple(state.values),
        key,
        tuple(tuple(row) for row in state.slots),
        tuple(positions),
        tuple(held_slots),
        tuple(held),
        tuple(state.labels),
        arena,
        tuple(state.steps),
        tuple(state.calls),
        outputs,
        tuple(exclusive),
        device_number(plan.device),
        tuple(state.alarms),
        exception_of("torch.OutOfMemoryError"),
        _releases(state, last),
    )


def _releases(state: _Lowering, last: Mapping[int, int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Steps after which inputs are not needed any more, in order, with their slots and those of views of them."""
    found: dict[int, list[int]] = {}
    for slot, row in enumerate(state.slots):
        if row[6] in last:
            found.setdefault(last[row[6]], []).append(slot)
    return tuple((step, tuple(slots)) for step, slots in sorted(found.items()))


def _inputs(state: _Lowering) -> tuple[tuple[int, int, int, int], ...]:
    """Slots of inputs and constants, and the symbols that choose an instance."""
    key = []
    where: dict[int, int] = {}
    called = held = 0
    for item in state.plan.inputs:
        if type(item) is SizeInput:
            key.append((called, 0, 0, state.given(item.symbol, late=False)))
        elif item.held:
            where[item.slot] = -1 - held
            held += 1
            continue
        else:
            where[item.slot] = called
        called += 1
    for binding in state.plan.bindings:
        dim = -1 - binding.dim if binding.stride else binding.dim
        key.append((-1, where[binding.slot], dim, state.given(binding.symbol, late=False)))
    for item in state.plan.inputs:
        if type(item) is TensorInput:
            label = repr(item.name) if item.name else f"of slot {item.slot}"
            state.place(
                item.slot, HELD if item.held else INPUT, item.spec.dtype, item.spec.sizes, item.spec.strides, where[item.slot], label,
                device=item.spec.device,
            )  # fmt: skip
    for constant in state.plan.constants:
        spec = constant.spec
        label = f"constant of slot {constant.slot}"
        data = load_constant(constant)
        state.place(constant.slot, CONSTANT, spec.dtype, spec.sizes, spec.strides, -1, label, constant=data, device=spec.device)
    return tuple(key)


def _alloc(state: _Lowering, step: Alloc, _: Sequence[Entry]) -> None:
    kind = FRESH if step.offset is None else ARENA
    offset = -1 if step.offset is None else state.ready(step.offset)
    slot = state.place(step.slot, kind, step.spec.dtype, step.spec.sizes, step.spec.strides, -1, f"slot {step.slot}", offset, device=step.spec.device)
    if kind == FRESH or state.slots[slot][7] & _LATE:
        state.steps.append((DEFINE, slot))


def _view(state: _Lowering, step: View, _: Sequence[Entry]) -> None:
    base = state.slot(step.base)
    row = state.slots[base]
    dtype = row[1] if step.dtype is None else DTYPES.index(step.dtype)
    sizes, strides = tuple(state.ready(size) for size in step.sizes), tuple(state.ready(stride) for stride in step.strides)
    offset = state.ready(step.offset)
    late = state.is_late((*sizes, *strides, offset)) or row[7] & _LATE
    new = state.define(step.slot, f"slot {step.slot}", [VIEW, dtype, sizes, strides, offset, base, row[6], _LATE if late else 0, None, row[9]])
    if late or state.slots[row[6]][0] != ARENA:
        state.steps.append((DEFINE, new))


def _launch(state: _Lowering, step: Launch, entries: Sequence[Entry]) -> None:
    slots = tuple(state.slot(index) for index in step.slots)
    roots = {state.slots[slots[position]][6] for position in step.writes}
    bumps = tuple(sorted(root for root in roots if state.slots[root][0] in (INPUT, HELD)))
    checks = tuple((exception_of(name), message) for name, message in step.checks)
    values = tuple(state.ready(size) for size in step.sizes)
    entry = entries[step.kernel]
    if type(entry) is CudaKernel:
        _launch_cuda(state, entry, slots, values, checks, bumps)
    else:
        state.steps.append((LAUNCH, entry, slots, values, checks, bumps))


CUDA_ARGS = ("buffer", "scratch", "size", "error", "check", "word")
"""Kinds of arguments, as in ``native/cuda.h``."""


def _launch_cuda(state: _Lowering, kernel: CudaKernel, slots: tuple[int, ...], values: tuple[int, ...], checks: tuple[Any, ...], bumps: Any) -> None:
    """Launches of a GPU kernel. Checks are numbered in the whole plan; see ``plan/launch.py`` for what a failing one writes."""
    data = kernel.data
    symbols = dict(zip(data.sizes, values, strict=True))
    devices = {state.slots[slot][9] for slot in slots} - {UNKNOWN}
    first = len(state.alarms)
    launches = []
    for launch in data.steps:
        args = [
            (CUDA_ARGS.index(a.kind), a.index, state.ready(a.value, symbols) if a.kind in ("scratch", "word") else -1) for a in launch.args
        ]
        forms = [
            (
                f"{kernel.name}@{form.offset}", kernel.cubins[form.offset : form.offset + form.size], form.entry, form.warps, form.shared,
                form.align, form.index_bits, tuple(state.ready(size, symbols) for size in form.fits), form.limit, form.waits,
            )
            for form in launch.forms
        ]  # fmt: skip
        grid = tuple(state.ready(size, symbols) for size in (launch.grid, *launch.more))
        launches.append((grid, tuple(args), tuple(forms)))
    scratch = state.ready(data.scratch, symbols)
    state.alarms += checks
    state.steps.append((LAUNCH_CUDA, max(devices, default=0), slots, values, bumps, scratch, first, tuple(launches)))


def _call(state: _Lowering, step: Call, _: Sequence[Entry]) -> None:
    overload = None if step.bodies else operator_of(step.op)
    if overload is not None and (kernel := carried_kernel(step, overload, _facts(state, step))) is not None:
        slots = tuple(state.slot(arg.index) for arg in step.args if type(arg) is Slot)
        roots = {state.slots[state.slot(index)][6] for index in _written(step, overload)}
        _launch_cuda(state, kernel, slots, (), (), tuple(sorted(root for root in roots if state.slots[root][0] in (INPUT, HELD))))
        return
    python = python_call(step, state.bodies)
    dtype = lambda slot: state.slots[state.slot(slot)][1]
    route = Route(1) if step.bodies else route_of(step, overload, state.ready, state.slot, dtype, _on_cuda(state, step))
    tensors = tuple(dict.fromkeys(state.slot(slot) for arg in args_of(step) for slot in slots_in(arg)))
    for slot in () if overload is None else _written(step, overload):
        state.slots[state.slot(slot)][7] |= _SHARES_VERSION
    slots = tuple(state.slot(slot) for slot in python.slots)
    values = tuple(state.ready(size) for size in python.sizes)
    specs = step.specs or (None,) * len(step.results)
    results = [-1 if index is None else _result(state, step, index, spec) for index, spec in zip(step.results, specs, strict=True)]
    name, overload_name = step.op.partition(".")[::2]
    state.steps.append((CALL, len(state.calls)))
    make, again = _Constant(python.function), _replayable(step)
    state.calls.append(
        (name, overload_name, route.kind, route.cells, tuple(results), route.returns, tensors, route.shim, route.blas, make, slots, values, again)
    )


_DROPOUT = {
    "aten::_scaled_dot_product_flash_attention": 3,
    "aten::_scaled_dot_product_efficient_attention": 5,
    "aten::_scaled_dot_product_cudnn_attention": 5,
}
"""Operators whose kernels depend on nothing but where their tensors lie, where the argument of that number, the chance of dropout, is 0."""


def _replayable(step: Call) -> bool:
    position = _DROPOUT.get(step.op)
    if position is None or "dropout_p" in step.kwargs:
        return False
    given = step.args[position] if position < len(step.args) else Literal(0.0)
    return type(given) is Literal and given.value == 0


def _facts(state: _Lowering, step: Call) -> list[tuple[int, int]]:
    """Element type (as in `DTYPES`) and device of each tensor among a call's arguments, -1 and -2 where unknown."""
    rows = [state.slots[state.slot(arg.index)] for arg in step.args if type(arg) is Slot]
    return [(row[1], row[9]) for row in rows]


def _on_cuda(state: _Lowering, step: Call) -> bool:
    """Whether all tensors of a call lie on CUDA devices, as far as is known."""
    devices = {state.slots[state.slot(slot)][9] for arg in args_of(step) for slot in slots_in(arg)}
    return bool(devices - {UNKNOWN}) and CPU not in devices


def _result(state: _Lowering, step: Call, index: int, spec: TensorSpec | None) -> int:
    """The slot of a result; what is known of it is checked when it arrives."""
    label = f"slot {index}, a result of {step.op}"
    if spec is not None:
        return state.place(index, RESULT, spec.dtype, spec.sizes, spec.strides, -1, label, device=spec.device)
    return state.define(index, label, [RESULT, -1, None, None, -1, -1, len(state.slots), 0, None, UNKNOWN])


class _Constant:
    """A callable that returns one thing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def _written(step: Call, overload: Any) -> list[int]:
    """The slots that the operator writes, by its schema."""
    written: list[int] = []
    for number, argument in enumerate(schema_of(overload).arguments):
        if argument.is_written:
            arg = step.args[number] if number < len(step.args) else step.kwargs.get(argument.name)
            written += slots_in(arg) if arg is not None else ()
    return written


def _free(state: _Lowering, step: Free, _: Sequence[Entry]) -> None:
    state.steps.append((FREE, tuple(state.slot(index) for index in step.slots)))


def _check(state: _Lowering, step: Check, _: Sequence[Entry]) -> None:
    state.steps.append((CHECK, state.ready(step.condition), ((exception_of(step.error), step.message),)))


def _define(state: _Lowering, step: Define, _: Sequence[Entry]) -> None:
    state.symbols[step.symbol] = state.ready(step.value)


def _item(state: _Lowering, step: Item, _: Sequence[Entry]) -> None:
    state.steps.append((ITEM, state.given(step.symbol, late=True), state.slot(step.slot)))


def _size_of(state: _Lowering, step: SizeOfStep, _: Sequence[Entry]) -> None:
    state.steps.append((SIZE_OF, state.given(step.symbol, late=True), state.slot(step.slot), step.dim))


_STEPS: dict[type, Callable[[_Lowering, Any, Sequence[Entry]], None]] = {
    Alloc: _alloc,
    View: _view,
    Launch: _launch,
    Call: _call,
    Free: _free,
    Check: _check,
    Define: _define,
    Item: _item,
    SizeOfStep: _size_of,
}


def _output(state: _Lowering, output: Any) -> tuple[int, int]:
    if type(output) is SlotOutput:
        slot = state.slot(output.slot)
        state.slots[slot][7] |= _SHARES_VERSION
        return (0, slot)
    return (1, state.ready(output.value)) if type(output) is SizeOutput else (2, 0)
