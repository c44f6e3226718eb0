"""The reference executor: a plan, step by step, in plain Python. The native executor is tested against it.

It shares nothing with the native one but the plan: every ``Alloc`` of the arena is a view of one new block, sizes are evaluated when
met, and operators are called through ``torch.ops``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..devices.protocol import HostKernel, Kernel
from ..devices.registry import find
from ..errors import BindError, PlanInputError
from ..plan.contract import Contract, agree
from ..plan.expr import evaluate
from ..plan.model import (
    DTYPES,
    Alloc,
    Call,
    Check,
    Constant,
    Define,
    Free,
    Item,
    Launch,
    Plan,
    SizeInput,
    SizeOfStep,
    SizeOutput,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)
from ..plan.verify import ALIGNMENT, leading_definitions, verify
from ..store import Store
from .control import Body
from .kernels import kernel_entry
from .names import dtype_of, exception_of, operator_of
from .overlaps import apart
from .pycall import PythonCall, python_call
from .visible import first_visible

Watch = Callable[[Plan, Any, Mapping[int, torch.Tensor], Mapping[str, int], Callable[[], None]], None]
"""``watch(plan, step, slots, sizes, run)`` is called for each step: it looks at the tensors in the slots, has to call ``run()``, and may
look again. For profilers, and for finding the step that goes wrong."""


class ReferenceExecutable:
    """A plan bound to held tensors and kernels; calling it with the plan's inputs runs it and returns a tuple of outputs.

    ``watch``: what looks at each step, see :data:`Watch`."""

    def __init__(
        self,
        plan: Plan,
        held: Sequence[torch.Tensor],
        entries: Sequence[Kernel],
        bodies: Sequence[Body] = (),
        watch: Watch | None = None,
    ) -> None:
        self.plan, self.watch = plan, watch
        self.held = list(held)
        self.kernels = list(entries)
        self.constants = {item.slot: load_constant(item) for item in plan.constants}
        self.visible = first_visible(plan)
        self.calls: dict[int, PythonCall] = {i: python_call(s, bodies) for i, s in enumerate(plan.steps) if type(s) is Call}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        recording = torch.is_grad_enabled()
        with torch.no_grad():
            return _Run(self, inputs, recording).result()

    def take(self, inputs: list[Any]) -> tuple[Any, ...]:
        """A call that empties the list of its inputs."""
        recording = torch.is_grad_enabled()
        with torch.no_grad():
            run = _Run(self, inputs, recording)
            inputs.clear()
            return run.result()


class _Run:
    """One call: the slots and symbols as they stand."""

    def __init__(self, executable: ReferenceExecutable, inputs: Sequence[Any], recording: bool) -> None:
        self.executable = executable
        self.recording = recording
        """The caller's grad mode: a view of what has no history is made in it, so that autograd lets a program write to it."""
        self.plan = executable.plan
        self.slots: dict[int, torch.Tensor] = dict(executable.constants)
        self.values: dict[str, int] = {}
        self.written = False
        self._load(inputs)
        self.arena = torch.empty(0, dtype=torch.uint8)

    def _load(self, inputs: Sequence[Any]) -> None:
        given, held = iter(inputs), iter(self.executable.held)
        wanted = sum(not (type(item) is TensorInput and item.held) for item in self.plan.inputs)
        if wanted != len(inputs):
            raise PlanInputError("RC050", what=f"plan {self.plan.name!r} takes {wanted} inputs, not {len(inputs)}")
        tensors: list[tuple[TensorInput, torch.Tensor]] = []
        for item in self.plan.inputs:
            if type(item) is SizeInput:
                self.values[item.symbol] = int(next(given))
                continue
            tensor = next(held if item.held else given)
            if not isinstance(tensor, torch.Tensor):
                raise PlanInputError("RC051", what=f"input {item.name or item.slot!r} must be a tensor, not {type(tensor).__name__}")
            tensors.append((item, tensor))
            self.slots[item.slot] = tensor
        for binding in self.plan.bindings:
            tensor = self.slots[binding.slot]
            self.values[binding.symbol] = tensor.stride(binding.dim) if binding.stride else tensor.size(binding.dim)
        for item, tensor in tensors:
            check_input(item, tensor, self.values)
        for slot in self.plan.exclusive:
            for item, tensor in tensors:
                if item.slot != slot and not item.opaque and _meet(self.slots[slot], tensor):
                    raise PlanInputError("RC057", what=f"an input that the plan writes shares memory with input {item.name or item.slot!r}")

    def result(self) -> tuple[Any, ...]:
        head, watch, visible, number = leading_definitions(self.plan), self.executable.watch, self.executable.visible, 0
        try:
            for number, step in enumerate(self.plan.steps):
                if number == head:
                    self._make_arena()
                if watch is None:
                    _STEPS[type(step)](self, step, number)
                else:
                    watch(self.plan, step, self.slots, self.values, partial(_STEPS[type(step)], self, step, number))
        except Exception as error:
            begun = self.written or number > visible or (number == visible and type(self.plan.steps[number]) is Call)
            if not begun or hasattr(error, "begun"):
                error.begun = begun  # type: ignore[attr-defined]
            raise
        return tuple(self._output(output) for output in self.plan.outputs)

    def _make_arena(self) -> None:
        size = evaluate(self.plan.arena, self.values)
        block = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device=self.plan.device)
        start = -block.data_ptr() % ALIGNMENT
        self.arena = block[start : start + size]

    def _output(self, output: Any) -> Any:
        if type(output) is SlotOutput:
            tensor = self.slots[output.slot]
            return tensor.clone() if _shares(tensor, self.arena) else tensor
        return self.size(output.value) if type(output) is SizeOutput else None

    def size(self, size: int | str) -> int:
        return evaluate(size, self.values)

    def sizes(self, sizes: Sequence[int | str]) -> list[int]:
        return [self.size(size) for size in sizes]

    def alloc(self, step: Alloc, _: int) -> None:
        spec = step.spec
        dtype, sizes, strides = dtype_of(spec.dtype), self.sizes(spec.sizes), self.sizes(spec.strides)
        if step.offset is None:
            self.slots[step.slot] = torch.empty_strided(sizes, strides, dtype=dtype, device=spec.device)
            return
        offset = self.size(step.offset)
        if offset % ALIGNMENT or offset + span(sizes, strides) * dtype.itemsize > self.arena.numel():
            raise BindError("RC037", what=f"slot {step.slot} at byte {offset} does not fit the arena of {self.arena.numel()} bytes")
        self.slots[step.slot] = over(self.arena, dtype, sizes, strides, int(self.arena.storage_offset()) + offset)

    def view(self, step: View, _: int) -> None:
        base = self.slots[step.base]
        dtype = base.dtype if step.dtype is None else dtype_of(step.dtype)
        sizes, strides, offset = self.sizes(step.sizes), self.sizes(step.strides), self.size(step.offset)
        reach = (offset * dtype.itemsize, (offset + span(sizes, strides)) * dtype.itemsize)
        first = int(base.storage_offset()) * base.dtype.itemsize
        behind = reach[0] < reach[1] and first + reach[1] > base.untyped_storage().nbytes()  # one without elements may begin anywhere
        if first + reach[0] < 0 or behind or (first + reach[0]) % dtype.itemsize:
            raise PlanInputError("RC058", what=f"slot {step.slot} reaches outside of the memory that it views")
        if dtype.itemsize == base.dtype.itemsize:
            start = base.storage_offset() + offset
            with torch.set_grad_enabled(self.recording and not base.requires_grad):
                same = base if dtype == base.dtype else base.view(dtype)
                self.slots[step.slot] = same.as_strided(sizes, strides, start)
        else:
            self.slots[step.slot] = over(
                base, dtype, sizes, strides, int(base.storage_offset()) * base.dtype.itemsize + offset * dtype.itemsize
            )

    def launch(self, step: Launch, number: int) -> None:
        kernel, tensors = self.executable.kernels[step.kernel], [self.slots[slot] for slot in step.slots]
        contract = kernel.contract
        if contract is not None:
            agree(step, contract, [_facts(tensor) for tensor in tensors], kernel.type if isinstance(kernel, HostKernel) else None)
            symbols = dict(zip(contract.symbols, self.sizes(step.sizes), strict=True))
            _inside(contract, tensors, symbols)
            _apart(contract, tensors, symbols)
        addresses, values = [t.data_ptr() for t in tensors], self.sizes(step.sizes)
        failed = kernel.run(tensors[0].device.index if tensors else None, addresses, values)
        self.written |= not failed and number >= self.executable.visible
        for position in step.writes if not failed else ():
            torch.autograd.graph.increment_version(self.slots[step.slots[position]])
        if failed:
            name, message = step.checks[failed - 1] if 0 < failed <= len(step.checks) else ("RuntimeError", f"kernel returned {failed}")
            raise exception_of(name)(message)

    def call(self, step: Call, number: int) -> None:
        call = self.executable.calls[number]
        if not step.bodies:
            self.keep_apart(step)
        results = call.function(*(self.slots[slot] for slot in call.slots), *self.sizes(call.sizes))
        specs = step.specs or (None,) * len(step.results)
        for slot, tensor, spec in zip(step.results, results, specs, strict=True):
            if slot is not None:
                self.slots[slot] = tensor if spec is None else self.promised(step, tensor, spec)

    def keep_apart(self, step: Call) -> None:
        """Raises PlanInputError (RC058) where the operator would write over what it reads."""
        for a, b, same in apart(step, operator_of(step.op)):
            first, second = self.slots[a], self.slots[b]
            one = first.data_ptr() == second.data_ptr() and first.shape == second.shape and first.stride() == second.stride()
            if _meet(first, second) and not (same and one):
                raise PlanInputError("RC058", what=f"{step.op} would write slot {a} over slot {b}, which it reads")

    def promised(self, step: Call, tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        """The tensor as the plan's other steps assume it. Raises PlanInputError (RC056) for another type or size."""
        sizes, strides = self.sizes(spec.sizes), self.sizes(spec.strides)
        if tensor.dtype != dtype_of(spec.dtype) or list(tensor.shape) != sizes:
            found = f"{tensor.dtype}{list(tensor.shape)}"
            raise PlanInputError("RC056", what=f"{step.op} returned {found}", why=f"the plan was compiled for {spec.dtype}{sizes}")
        if tensor.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(sizes, tensor.stride(), strides, strict=True)):
            return tensor
        return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def free(self, step: Free, _: int) -> None:
        for slot in step.slots:
            del self.slots[slot]

    def check(self, step: Check, _: int) -> None:
        if not self.size(step.condition):
            raise exception_of(step.error)(step.message)

    def define(self, step: Define, _: int) -> None:
        self.values[step.symbol] = self.size(step.value)

    def item(self, step: Item, _: int) -> None:
        self.values[step.symbol] = int(self.slots[step.slot].item())

    def size_of(self, step: SizeOfStep, _: int) -> None:
        self.values[step.symbol] = self.slots[step.slot].size(step.dim)


_STEPS: dict[type, Callable[[_Run, Any, int], None]] = {
    Alloc: _Run.alloc,
    View: _Run.view,
    Launch: _Run.launch,
    Call: _Run.call,
    Free: _Run.free,
    Check: _Run.check,
    Define: _Run.define,
    Item: _Run.item,
    SizeOfStep: _Run.size_of,
}


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to behind the last of a tensor of these sizes and strides."""
    if 0 in sizes:
        return 0
    if any(number < 0 for number in (*sizes, *strides)):
        raise BindError("RC040", what=f"sizes {list(sizes)} or strides {list(strides)} are negative")
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def over(block: torch.Tensor, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], byte: int) -> torch.Tensor:
    """A tensor over ``block``'s storage, starting at its byte ``byte``, a multiple of the element size."""
    tensor = torch.empty(0, dtype=dtype, device=block.device)
    return tensor.set_(block.untyped_storage(), byte // dtype.itemsize, tuple(sizes), tuple(strides))


def _facts(tensor: torch.Tensor) -> tuple[int, int]:
    name = str(tensor.dtype).removeprefix("torch.")
    device = find(tensor.device.type)
    return DTYPES.index(name) if name in DTYPES else len(DTYPES), -1 if device is None else device.number


def _inside(contract: Contract, tensors: Sequence[torch.Tensor], values: dict[str, int]) -> None:
    """Raises PlanInputError (RC058) where a launch would reach outside of its tensors."""
    if evaluate(contract.floor, values) < 0:
        raise PlanInputError("RC058", what="a kernel would touch memory before its tensors")
    for touched, tensor in zip(contract.buffers, tensors, strict=True):
        parts = tensor.itemsize // dtype_of(touched.dtype).itemsize  # a complex number is taken as two
        needed, there = evaluate(touched.numel, values), span(tensor.shape, tensor.stride()) * parts
        if needed > there:
            raise PlanInputError("RC058", what=f"a kernel touches {needed} elements of a tensor that has {there}")


def _apart(contract: Contract, tensors: Sequence[torch.Tensor], values: dict[str, int]) -> None:
    """Raises PlanInputError (RC058) where a launch would write over the indices that it reads."""
    ranges = []
    for touched, tensor in zip(contract.buffers, tensors, strict=True):
        start = tensor.data_ptr()
        ranges.append(range(start, start + max(0, evaluate(touched.numel, values)) * dtype_of(touched.dtype).itemsize))
    for written, read, same in contract.apart:
        a, b = ranges[written], ranges[read]
        if a and b and a.start < b.stop and b.start < a.stop and not (same and a == b):
            raise PlanInputError("RC058", what="a kernel would write over the indices that it reads")


def load_constant(item: Constant) -> torch.Tensor:
    """The tensor of a constant. Raises BindError (RC038) where its bytes do not match its sizes."""
    dtype, sizes = dtype_of(item.spec.dtype), [evaluate(size, {}) for size in item.spec.sizes]
    flat = torch.frombuffer(bytearray(item.data), dtype=dtype).clone() if item.data else torch.empty(0, dtype=dtype)
    if flat.numel() != torch.Size(sizes).numel():
        raise BindError("RC038", what=f"the constant of slot {item.slot} has {len(item.data)} bytes, which do not fill {sizes} of {dtype}")
    tensor = torch.empty_strided(sizes, [evaluate(stride, {}) for stride in item.spec.strides], dtype=dtype)
    return tensor.copy_(flat.view(sizes)).to(item.spec.device)


def check_input(item: TensorInput, tensor: torch.Tensor, values: dict[str, int]) -> None:
    """Raises PlanInputError (RC052) unless ``tensor`` is what the plan assumes: wrong memory would be read otherwise."""
    if item.opaque:
        return
    sizes = [evaluate(size, values) for size in item.spec.sizes]
    strides = [evaluate(stride, values) for stride in item.spec.strides]
    found = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()), str(tensor.device.type))
    wanted = (item.spec.dtype, sizes, strides, item.spec.device.partition(":")[0])
    matters = [n > 1 for n in sizes] if 0 not in sizes else [False] * len(sizes)
    same = found[:2] == wanted[:2] and found[3] == wanted[3]
    if not same or any(m and a != b for m, a, b in zip(matters, found[2], strides, strict=True)):
        text = "{0}{1} strides {2} on {3}"
        raise PlanInputError("RC052", what=mismatch(item, text.format(*found)), why=f"the plan was compiled for {text.format(*wanted)}")


def mismatch(item: TensorInput, found: str) -> str:
    """What is said of an input that is not as the plan takes it."""
    return f"{'held tensor' if item.held else 'input'} {item.name or item.slot!r} is {found}"


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the ranges of memory that two tensors span overlap."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    ends = [t.data_ptr() + span(t.shape, t.stride()) * t.element_size() for t in (a, b)]
    return a.data_ptr() < ends[1] and b.data_ptr() < ends[0]


def _shares(tensor: torch.Tensor, arena: torch.Tensor) -> bool:
    return arena.numel() > 0 and tensor.untyped_storage().data_ptr() == arena.untyped_storage().data_ptr()


def bind_reference(plan: Plan, held: Sequence[torch.Tensor], store: Store, *, watch: Watch | None = None) -> ReferenceExecutable:
    """Binds a plan for the reference executor; ``watch`` looks at each step, of the plans inside of it, too. Raises PlanError,
    BindError."""
    verify(plan)
    bodies = [bind_reference(body, [], store, watch=watch) for body in plan.bodies]
    return ReferenceExecutable(plan, held, [kernel_entry(ref, store) for ref in plan.kernels], bodies, watch)
