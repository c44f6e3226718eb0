"""From a Plan to the tuple that the native executor reads (``native/program.cpp``).

Slots are renumbered so that each is defined once; size expressions become numbered values, of which those known before the first step
("early") are computed once for each instance and the others ("late") by steps of their own.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from ..devices.cuda import DEVICE as CUDA
from ..devices.cuda import reaches_host
from ..devices.cuda.kernel import CudaKernel
from ..devices.host import HOST
from ..devices.protocol import UNKNOWN, Device, HostKernel, Kernel, index_of, type_of
from ..devices.registry import number_of, of_type
from ..errors import BindError
from ..plan.contract import Contract, agree
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
from .control import Body
from .layout import (
    BlasRow,
    CallRow,
    CallStep,
    CheckStep,
    CudaArgKind,
    CudaArgRow,
    CudaFormRow,
    CudaLaunchRow,
    DefineStep,
    EvaluateStep,
    FreeStep,
    ItemStep,
    KeyRow,
    LaunchCudaStep,
    LaunchStep,
    OutputKind,
    OutputRow,
    ProgramRow,
    ReleaseRow,
    Route,
    SizeStep,
    SlotKind,
    SlotRow,
    StepRow,
    ValueRow,
)
from .names import exception_of, operator_of
from .overlaps import apart, written_by
from .pycall import python_call
from .reference import load_constant
from .regions import regions
from .routes import Way, way_of
from .user_kernels import carried_kernel
from .visible import first_visible


class _Lowering:
    """The state of one lowering."""

    def __init__(self, plan: Plan, bodies: Sequence[Body]) -> None:
        self.plan, self.bodies = plan, bodies
        self.values: list[ValueRow] = []
        self.by_text: dict[Size, int] = {}
        self.alarms: list[tuple[type[Exception], str]] = []
        self.symbols: dict[str, int] = {}
        self.slots: list[SlotRow] = []
        self.labels: list[str] = []
        self.current: dict[int, int] = {}  # the plan's slot -> ours
        self.multiplied: dict[int, int] = {}  # held matrices that stay, and by how many rows they are multiplied
        self.steps: list[StepRow] = []
        self.calls: list[CallRow] = []
        self.evaluated: set[int] = set()
        self.places: list[int] = []  # by step of the plan: how many of ours come before what it does

    def given(self, symbol: str, late: bool) -> int:
        """A value that is set from outside."""
        self.values.append(ValueRow(late, ()))
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
            late = late or (op is Op.LOAD and self.values[word].late)
            words += (int(op), word)
        self.values.append(ValueRow(late, tuple(words)))
        if symbols is None:
            self.by_text[size] = len(self.values) - 1
        return len(self.values) - 1

    def ready(self, size: Size, symbols: Mapping[str, int] | None = None) -> int:
        """The same, after making sure that a late value is computed before the next step."""
        if type(size) is int and size in self.by_text and symbols is None:  # most are, and none is late
            return self.by_text[size]
        number = self.value(size, symbols)
        if self.values[number].late and self.values[number].code and number not in self.evaluated:
            self.evaluated.add(number)
            self.steps.append(EvaluateStep(number))
        return number

    def is_late(self, numbers: Sequence[int]) -> bool:
        return any(self.values[number].late for number in numbers)

    def slot(self, index: int) -> int:
        return self.current[index]

    def define(self, index: int, label: str, row: SlotRow) -> int:
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
        device: str = HOST,
    ) -> int:
        shape = tuple(self.ready(size) for size in sizes), tuple(self.ready(stride) for stride in strides)
        late = self.is_late((*shape[0], *shape[1], *([offset] if offset >= 0 else [])))
        row = SlotRow(kind, DTYPES.index(dtype), *shape, offset, base, len(self.slots), late, constant, number_of(device))
        return self.define(index, label, row)


def lower(
    plan: Plan, held: Sequence[torch.Tensor], entries: Sequence[Kernel], bodies: Sequence[Body] = (), describe: Any = None
) -> ProgramRow:
    """The native program of a verified plan; ``bodies`` are the executables of the plans that it runs. ``describe(plan, places)``: makes
    what tells a profiler of it, of ``regions`` where nobody else does. Raises BindError for operators and names that torch lacks."""
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
        state.places.append(len(state.steps))
        _STEPS[type(step)](state, step, entries)
        used.update((state.slots[state.slot(slot)].root, len(state.steps) - 1) for slot in READS[type(step)](step))
    visible = [*state.places, len(state.steps)][first_visible(plan)]
    arena = state.value(plan.arena)
    outputs = tuple(_output(state, output) for output in plan.outputs)
    leaving = {state.slots[output.number].root for output in outputs if output.kind == OutputKind.slot}
    last = {slot: used[slot] for slot in positions if slot in used and slot not in leaving}
    return ProgramRow(
        plan.name,
        tuple(state.values),
        key,
        tuple(state.slots),
        tuple(positions),
        tuple(held_slots),
        tuple(held),
        tuple(state.labels),
        arena,
        tuple(state.steps),
        tuple(state.calls),
        outputs,
        tuple(exclusive),
        number_of(plan.device),
        tuple(state.alarms),
        exception_of("torch.OutOfMemoryError"),
        _releases(state, last),
        (describe or functools.partial(functools.partial, regions))(plan, (*state.places, len(state.steps))),
        visible,
    )


def _releases(state: _Lowering, last: Mapping[int, int]) -> tuple[ReleaseRow, ...]:
    """Steps after which inputs are not needed any more, in order, with their slots and those of views of them."""
    found: dict[int, list[int]] = {}
    for slot, row in enumerate(state.slots):
        if row.root in last:
            found.setdefault(last[row.root], []).append(slot)
    return tuple(ReleaseRow(step, tuple(slots)) for step, slots in sorted(found.items()))


def _inputs(state: _Lowering) -> tuple[KeyRow, ...]:
    """Slots of inputs and constants, and the symbols that choose an instance."""
    key = []
    where: dict[int, int] = {}
    called = held = 0
    for item in state.plan.inputs:
        if type(item) is SizeInput:
            key.append(KeyRow(called, 0, 0, state.given(item.symbol, late=False)))
        elif item.held:
            where[item.slot] = -1 - held
            held += 1
            continue
        else:
            where[item.slot] = called
        called += 1
    for binding in state.plan.bindings:
        dim = -1 - binding.dim if binding.stride else binding.dim
        key.append(KeyRow(-1, where[binding.slot], dim, state.given(binding.symbol, late=False)))
    for item in state.plan.inputs:
        if type(item) is TensorInput:
            label = repr(item.name) if item.name else f"of slot {item.slot}"
            if item.opaque:
                device = number_of(item.spec.device)
                row = SlotRow(SlotKind.held, -1, None, None, -1, where[item.slot], len(state.slots), False, None, device)
                state.define(item.slot, label, row)
                continue
            state.place(
                item.slot,
                SlotKind.held if item.held else SlotKind.input,
                item.spec.dtype,
                item.spec.sizes,
                item.spec.strides,
                where[item.slot],
                label,
                device=item.spec.device,
            )
            if item.multiplied:
                state.multiplied[state.slot(item.slot)] = item.multiplied
    for constant in state.plan.constants:
        spec = constant.spec
        label = f"constant of slot {constant.slot}"
        data = load_constant(constant)
        state.place(constant.slot, SlotKind.constant, spec.dtype, spec.sizes, spec.strides, -1, label, constant=data, device=spec.device)
    return tuple(key)


def _alloc(state: _Lowering, step: Alloc, _: Sequence[Kernel]) -> None:
    kind = SlotKind.fresh if step.offset is None else SlotKind.arena
    offset = -1 if step.offset is None else state.ready(step.offset)
    slot = state.place(
        step.slot, kind, step.spec.dtype, step.spec.sizes, step.spec.strides, -1, f"slot {step.slot}", offset, device=step.spec.device
    )
    if kind == SlotKind.fresh or state.slots[slot].late:
        state.steps.append(DefineStep(slot))


def _view(state: _Lowering, step: View, _: Sequence[Kernel]) -> None:
    base = state.slot(step.base)
    row = state.slots[base]
    dtype = row.dtype if step.dtype is None else DTYPES.index(step.dtype)
    sizes, strides = tuple(state.ready(size) for size in step.sizes), tuple(state.ready(stride) for stride in step.strides)
    offset = state.ready(step.offset)
    late = state.is_late((*sizes, *strides, offset)) or row.late
    new = state.define(
        step.slot, f"slot {step.slot}", SlotRow(SlotKind.view, dtype, sizes, strides, offset, base, row.root, late, None, row.device)
    )
    if late or state.slots[row.root].kind != SlotKind.arena:
        state.steps.append(DefineStep(new))


def _written_inputs(state: _Lowering, slots: Iterable[int]) -> tuple[int, ...]:
    """The inputs whose memory these slots are."""
    roots = {state.slots[slot].root for slot in slots}
    return tuple(sorted(root for root in roots if state.slots[root].kind in (SlotKind.input, SlotKind.held)))


def _expect_unwritten(state: _Lowering, roots: Iterable[int], origin: str) -> None:
    if not state.multiplied.keys().isdisjoint(roots):
        raise BindError("RC049", what="a matrix that was promised to stay would be written", where=origin, hint="compile again")


def _packing(state: _Lowering, blas: BlasRow | None) -> BlasRow | None:
    """The product, which is told by how many rows its second matrix is multiplied where that stays."""
    rows = 0 if blas is None else state.multiplied.get(state.slots[blas.b].root, 0)
    return replace(blas, rows=rows) if rows and blas is not None else blas


def _launch(state: _Lowering, step: Launch, entries: Sequence[Kernel]) -> None:
    slots = tuple(state.slot(index) for index in step.slots)
    bumps = _written_inputs(state, (slots[position] for position in step.writes))
    _expect_unwritten(state, bumps, step.origin)
    checks = tuple((exception_of(name), message) for name, message in step.checks)
    values = tuple(state.ready(size) for size in step.sizes)
    entry = entries[step.kernel]
    if entry.contract is not None:
        agree(step, entry.contract, [(state.slots[slot].dtype, _type(state.slots[slot])) for slot in slots], _taken(entry))
    bounds = _bounds(state, entry.contract, slots, values)
    if isinstance(entry, CudaKernel):
        _launch_cuda(state, entry, slots, values, checks, bumps, bounds)
    else:
        assert isinstance(entry, HostKernel)
        state.steps.append(LaunchStep(entry.address, slots, values, checks, bumps, *bounds, entry.type))


def _type(slot: SlotRow) -> int:
    """torch's number of its device's type, -1 where only the tensor tells."""
    return -1 if slot.device == UNKNOWN else type_of(slot.device)


def _taken(entry: Kernel) -> int | None:
    """torch's number of the devices whose memory a kernel takes; None where its launcher sees to that."""
    return entry.type if isinstance(entry, HostKernel) else None


_Bounds = tuple[tuple[int, ...], tuple[int, ...], int, bool, tuple[int, ...]]
"""The last fields of a launch: ``needs``, ``dtypes``, ``floor``, ``late``, ``apart``."""


def _bounds(state: _Lowering, contract: Contract | None, slots: tuple[int, ...], values: tuple[int, ...]) -> _Bounds:
    if contract is None:
        return (), (), -1, False, ()
    symbols = dict(zip(contract.symbols, values, strict=True))
    needs = tuple(state.ready(touched.numel, symbols if type(touched.numel) is str else None) for touched in contract.buffers)
    dtypes = tuple(DTYPES.index(touched.dtype) for touched in contract.buffers)
    floor = -1 if contract.floor == 0 else state.ready(contract.floor, symbols)
    rows = [state.slots[slot] for slot in slots]
    late = (
        state.is_late(needs)
        or (floor >= 0 and state.is_late([floor]))
        or any(row.late or row.dtype < 0 or row.sizes is None for row in rows)
    )
    return needs, dtypes, floor, late, tuple(int(number) for pair in contract.apart for number in pair)


def _launch_cuda(
    state: _Lowering,
    kernel: CudaKernel,
    slots: tuple[int, ...],
    values: tuple[int, ...],
    checks: tuple[Any, ...],
    bumps: tuple[int, ...],
    bounds: _Bounds = ((), (), -1, False, ()),
) -> None:
    """Launches of a GPU kernel. Checks are numbered in the whole plan; see ``plan/launch.py`` for what a failing one writes."""
    data = kernel.data
    symbols = dict(zip(data.sizes, values, strict=True))
    devices = {state.slots[slot].device for slot in slots} - {UNKNOWN}
    if len(devices) > 1 or not all(type_of(device) == CUDA.number or (device == -1 and reaches_host()) for device in devices):
        raise BindError("RC049", what=f"{kernel.name} is given memory that its device does not reach", hint="compile again")
    first = len(state.alarms)
    launches = []
    for launch in data.steps:
        args = tuple(
            CudaArgRow(CudaArgKind[a.kind], a.index, state.ready(a.value, symbols) if a.kind in ("scratch", "word") else -1)
            for a in launch.args
        )
        forms = tuple(
            CudaFormRow(
                f"{kernel.name}@{form.offset}",
                kernel.cubins[form.offset : form.offset + form.size],
                form.entry,
                form.warps,
                form.shared,
                form.align,
                form.index_bits,
                tuple(state.ready(size, symbols) for size in form.fits),
                form.limit,
                form.waits,
            )
            for form in launch.forms
        )
        grid = tuple(state.ready(size, symbols) for size in (launch.grid, *launch.more))
        launches.append(CudaLaunchRow(grid, args, forms))
    scratch = state.ready(data.scratch, symbols)
    state.alarms += checks
    state.steps.append(
        LaunchCudaStep(max(map(index_of, devices), default=0), slots, values, bumps, scratch, first, tuple(launches), *bounds)
    )


def _call(state: _Lowering, step: Call, _: Sequence[Kernel]) -> None:
    overload = None if step.bodies else operator_of(step.op)
    written = tuple(state.slot(slot) for slot in written_by(step, overload)) if overload is not None else ()
    if overload is not None and (kernel := carried_kernel(step, overload, _facts(state, step))) is not None:
        slots = tuple(state.slot(arg.index) for arg in step.args if type(arg) is Slot)
        _launch_cuda(state, kernel, slots, (), (), _written_inputs(state, written))
        return
    python = python_call(step, state.bodies)
    dtype = lambda slot: state.slots[state.slot(slot)].dtype
    way = Way(Route.python) if step.bodies else way_of(step, overload, state.ready, state.slot, dtype, _device_of(state, step))
    tensors = tuple(dict.fromkeys(state.slot(slot) for arg in args_of(step) for slot in slots_in(arg)))
    for slot in written:
        if state.slots[state.slots[slot].root].kind == SlotKind.constant:
            raise BindError("RC049", what=f"{step.op} would write a constant of the plan", where=step.origin, hint="compile again")
        state.slots[slot].shares_version = True
    _expect_unwritten(state, _written_inputs(state, written), step.origin)
    specs = step.specs or (None,) * len(step.results)
    results = [-1 if index is None else _result(state, step, index, spec) for index, spec in zip(step.results, specs, strict=True)]
    name, overload_name = step.op.partition(".")[::2]
    row = CallRow(
        name,
        overload_name,
        way.route,
        way.cells,
        tuple(results),
        way.returns,
        tensors,
        way.shim,
        _packing(state, way.blas),
        make=_Constant(python.function),
        python_slots=tuple(state.slot(slot) for slot in python.slots),
        python_values=tuple(state.ready(size) for size in python.sizes),
        replayable=_replayable(step),
        written=written,
        apart=tuple(state.slot(slot) if place < 2 else slot for pair in apart(step, overload) for place, slot in enumerate(pair)),
    )
    state.steps.append(CallStep(len(state.calls)))
    state.calls.append(row)


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
    return [(row.dtype, row.device) for row in rows]


def _device_of(state: _Lowering, step: Call) -> Device | None:
    """The kind of device on which all tensors of a call lie, as far as is known; None where they lie on several."""
    devices = {state.slots[state.slot(slot)].device for arg in args_of(step) for slot in slots_in(arg)}
    types = {type_of(device) for device in devices - {UNKNOWN}}
    if not types and any(slot.device >= 0 for slot in state.slots):
        return None
    return of_type(next(iter(types), 0)) if len(types) < 2 else None


def _result(state: _Lowering, step: Call, index: int, spec: TensorSpec | None) -> int:
    """The slot of a result; what is known of it is checked when it arrives."""
    label = f"slot {index}, a result of {step.op}"
    if spec is not None:
        return state.place(index, SlotKind.result, spec.dtype, spec.sizes, spec.strides, -1, label, device=spec.device)
    return state.define(index, label, SlotRow(SlotKind.result, -1, None, None, -1, -1, len(state.slots), False, None, UNKNOWN))


class _Constant:
    """A callable that returns one thing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def _free(state: _Lowering, step: Free, _: Sequence[Kernel]) -> None:
    state.steps.append(FreeStep(tuple(state.slot(index) for index in step.slots)))


def _check(state: _Lowering, step: Check, _: Sequence[Kernel]) -> None:
    state.steps.append(CheckStep(state.ready(step.condition), ((exception_of(step.error), step.message),)))


def _define(state: _Lowering, step: Define, _: Sequence[Kernel]) -> None:
    state.symbols[step.symbol] = state.ready(step.value)


def _item(state: _Lowering, step: Item, _: Sequence[Kernel]) -> None:
    state.steps.append(ItemStep(state.given(step.symbol, late=True), state.slot(step.slot)))


def _size_of(state: _Lowering, step: SizeOfStep, _: Sequence[Kernel]) -> None:
    state.steps.append(SizeStep(state.given(step.symbol, late=True), state.slot(step.slot), step.dim))


_STEPS: dict[type, Callable[[_Lowering, Any, Sequence[Kernel]], None]] = {
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


def _output(state: _Lowering, output: Any) -> OutputRow:
    if type(output) is SlotOutput:
        slot = state.slot(output.slot)
        state.slots[slot].shares_version = True
        return OutputRow(OutputKind.slot, slot)
    return OutputRow(OutputKind.value, state.ready(output.value)) if type(output) is SizeOutput else OutputRow(OutputKind.none, 0)
