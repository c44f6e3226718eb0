"""What makes a plan legal: a table of laws, each a generator of complaints, checked over one walk of the plan."""

from collections.abc import Callable, Iterator

from ..errors import PlanError
from .expr import compile_size, symbols_of
from .extent import Extent, meets, place, place_tensor
from .model import (
    DTYPES,
    Alloc,
    Arg,
    Call,
    Check,
    Constant,
    Define,
    Expr,
    Free,
    Item,
    Launch,
    ListArg,
    Plan,
    Size,
    SizeInput,
    SizeOfStep,
    SizeOutput,
    Slot,
    SlotOutput,
    Step,
    TensorInput,
    TensorSpec,
    View,
)

PRODUCTS = frozenset(f"aten::{name}.out" for name in ("mm", "bmm", "addmm", "baddbmm"))
"""Operators whose last two arguments are the factors of a matrix product."""

ALIGNMENT = 64
"""Bytes; arena offsets that are constants must be multiples of it."""


class _State:
    """What is defined at one point of the walk."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.live: set[int] = set()
        self.freed: set[int] = set()
        self.arena: set[int] = set()  # slots whose memory is the arena
        self.protected: set[int] = set()  # inputs and constants: never freed memory of the plan
        self.memory: dict[int, Extent] = {}  # where the slots lie whose place and size are constants
        self.symbols: set[str] = set()
        self.early: set[str] = set()  # symbols known before the first step


def slots_in(arg: Arg) -> Iterator[int]:
    """The slots that an argument reads."""
    if type(arg) is Slot:
        yield arg.index
    elif type(arg) is ListArg:
        for item in arg.items:
            yield from slots_in(item)


def sizes_in(arg: Arg) -> Iterator[Size]:
    """The size expressions in an argument."""
    if type(arg) is Expr:
        yield arg.value
    elif type(arg) is ListArg:
        for item in arg.items:
            yield from sizes_in(item)


def args_of(call: Call) -> tuple[Arg, ...]:
    """Positional and keyword arguments of a call, in order."""
    return (*call.args, *call.kwargs.values())


def _spec_sizes(spec: TensorSpec) -> tuple[Size, ...]:
    return (*spec.sizes, *spec.strides)


READS: dict[type, Callable[..., tuple[int, ...]]] = {
    Alloc: lambda s: (),
    View: lambda s: (s.base,),
    Launch: lambda s: s.slots,
    Call: lambda s: tuple(i for arg in args_of(s) for i in slots_in(arg)),
    Free: lambda s: s.slots,
    Check: lambda s: (),
    Define: lambda s: (),
    Item: lambda s: (s.slot,),
    SizeOfStep: lambda s: (s.slot,),
}
"""The slots that a step reads, by its type."""

DEFINES: dict[type, Callable[..., tuple[int, ...]]] = {
    Alloc: lambda s: (s.slot,),
    View: lambda s: (s.slot,),
    Call: lambda s: tuple(slot for slot in s.results if slot is not None),
}
"""The slots that a step gives a tensor, by its type; types that define none are absent."""

def _defined(step: Step) -> tuple[int, ...]:
    slots = DEFINES.get(type(step))
    return () if slots is None else slots(step)


SIZES: dict[type, Callable[..., tuple[Size, ...]]] = {
    Alloc: lambda s: (*_spec_sizes(s.spec), *(() if s.offset is None else (s.offset,))),
    View: lambda s: (*s.sizes, *s.strides, s.offset),
    Launch: lambda s: s.sizes,
    Call: lambda s: (
        *(size for arg in args_of(s) for size in sizes_in(arg)),
        *(size for spec in s.specs if spec is not None for size in _spec_sizes(spec)),
    ),
    Free: lambda s: (),
    Check: lambda s: (s.condition,),
    Define: lambda s: (s.value,),
    Item: lambda s: (),
    SizeOfStep: lambda s: (),
}
"""The size expressions that a step evaluates, by its type."""


_DEVICES = ("cpu", "cuda")


_SMALL = 1 << 62
"""Numbers below it are sizes without a closer look."""


def _known_sizes(sizes: tuple[Size, ...], symbols: set[str]) -> Iterator[tuple[str, str]]:
    for size in sizes:
        if type(size) is int and abs(size) < _SMALL:
            continue
        compile_size(size)
        if type(size) is int:
            continue
        for symbol in sorted(symbols_of(size) - symbols):
            yield "RC011", f"symbol {symbol!r} in {size!r} is not defined yet"


def _known_spec(spec: TensorSpec) -> Iterator[tuple[str, str]]:
    if spec.dtype not in DTYPES:
        yield "RC012", f"element type {spec.dtype!r} is not one of {', '.join(DTYPES)}"
    if len(spec.sizes) != len(spec.strides):
        yield "RC013", f"{len(spec.sizes)} sizes but {len(spec.strides)} strides"
    if spec.device.partition(":")[0] not in _DEVICES:
        yield "RC029", f"device {spec.device!r} is neither a processor nor a CUDA device"


def _reads(step: Step, state: _State) -> Iterator[tuple[str, str]]:
    for slot in READS[type(step)](step):
        if slot in state.freed:
            yield "RC015", f"slot {slot} is used after it was freed"
        elif slot not in state.live:
            yield "RC014", f"slot {slot} is used before it is defined"


def _definitions(step: Step, state: _State) -> Iterator[tuple[str, str]]:
    slots = _defined(step)
    for number, slot in enumerate(slots):
        if not 0 <= slot < state.plan.slots:
            yield "RC016", f"slot {slot} is not among the plan's {state.plan.slots}"
        if slot in state.live or slot in slots[:number]:
            yield "RC017", f"slot {slot} is defined again without having been freed"


def _step_sizes(step: Step, state: _State) -> Iterator[tuple[str, str]]:
    yield from _known_sizes(SIZES[type(step)](step), state.symbols)


def _alloc(step: Alloc, state: _State) -> Iterator[tuple[str, str]]:
    yield from _known_spec(step.spec)
    if isinstance(step.offset, int) and (step.offset < 0 or step.offset % ALIGNMENT):
        yield "RC018", f"arena offset {step.offset} is not a multiple of {ALIGNMENT}"
    if step.offset is not None and step.spec.device != state.plan.device:
        yield "RC025", f"a tensor on {step.spec.device} in an arena on {state.plan.device}"
    if isinstance(step.offset, int) and isinstance(state.plan.arena, int) and step.offset > state.plan.arena:
        yield "RC018", f"arena offset {step.offset} lies behind the arena's end, {state.plan.arena}"


def _view(step: View, state: _State) -> Iterator[tuple[str, str]]:
    if len(step.sizes) != len(step.strides):
        yield "RC013", f"{len(step.sizes)} sizes but {len(step.strides)} strides"
    if step.dtype is not None and step.dtype not in DTYPES:
        yield "RC012", f"element type {step.dtype!r} is not one of {', '.join(DTYPES)}"


def _launch(step: Launch, state: _State) -> Iterator[tuple[str, str]]:
    if not 0 <= step.kernel < len(state.plan.kernels):
        yield "RC019", f"kernel {step.kernel} is not among the plan's {len(state.plan.kernels)}"
    for position in step.writes:
        if not 0 <= position < len(step.slots):
            yield "RC020", f"written position {position} is not among the launch's {len(step.slots)} slots"


def _bodies(step: Call, state: _State) -> Iterator[tuple[str, str]]:
    for number in step.bodies:
        if not 0 <= number < len(state.plan.bodies):
            yield "RC054", f"body {number} is not among the plan's {len(state.plan.bodies)}"
        elif any(type(item) is TensorInput and item.held for item in state.plan.bodies[number].inputs):
            yield "RC055", f"body {number} holds tensors, which nobody gives it"


def _call(step: Call, state: _State) -> Iterator[tuple[str, str]]:
    if step.specs and len(step.specs) != len(step.results):
        yield "RC026", f"{len(step.specs)} specs for {len(step.results)} results"
    for spec in step.specs:
        if spec is not None:
            yield from _known_spec(spec)


def _symbol(step: Define | Item | SizeOfStep, state: _State) -> Iterator[tuple[str, str]]:
    if not step.symbol.isidentifier():
        yield "RC021", f"{step.symbol!r} is not a name"
    if step.symbol in state.symbols:
        yield "RC022", f"symbol {step.symbol!r} is defined twice"


def _product(step: Call, state: _State) -> Iterator[tuple[str, str]]:
    out = step.kwargs.get("out")
    if step.op not in PRODUCTS or type(out) is not Slot:
        return
    for arg in step.args[-2:]:
        if type(arg) is Slot and meets(out.index, arg.index, state.memory):
            yield "RC028", f"{step.op} writes slot {out.index} over its operand in slot {arg.index}"


def _free(step: Free, state: _State) -> Iterator[tuple[str, str]]:
    if len(set(step.slots)) != len(step.slots):
        yield "RC015", "a slot is freed twice"


Law = Callable[..., Iterator[tuple[str, str]]]

LAWS: tuple[tuple[type | None, Law], ...] = (
    (None, _reads),  # every slot read holds a tensor
    (None, _definitions),  # slots exist and are filled once between frees
    (None, _step_sizes),  # every symbol has a value when it is needed
    (Alloc, _alloc),
    (View, _view),
    (Launch, _launch),
    (Call, _product),  # BLAS reads its operands while it writes the product
    (Call, _call),
    (Call, _bodies),
    (Free, _free),
    (Define, _symbol),
    (Item, _symbol),
    (SizeOfStep, _symbol),
)
"""The laws that steps obey: (type of step or None for all, law)."""

_LAWS_OF = {kind: tuple(law for of, law in LAWS if of is None or of is kind) for kind in READS}
"""Those of each type of step."""


def complaints(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """(code, where, what) of every law that the plan breaks."""
    state = _State(plan)
    for number, body in enumerate(plan.bodies):
        yield from ((code, f"body {number}, {where}", what) for code, where, what in complaints(body))
    yield from _header(plan, state)
    for number, step in enumerate(plan.steps):
        for law in _LAWS_OF[type(step)]:
            for code, what in law(step, state):
                yield code, f"step {number} ({type(step).__name__})", what
        _apply(step, state)
    yield from _outputs(plan, state)


def _header(plan: Plan, state: _State) -> Iterator[tuple[str, str, str]]:
    for item in plan.inputs:
        if type(item) is SizeInput:
            if item.symbol in state.symbols:
                yield "RC022", "inputs", f"symbol {item.symbol!r} is defined twice"
            state.symbols.add(item.symbol)
    tensors: list[TensorInput | Constant] = [*(item for item in plan.inputs if type(item) is TensorInput), *plan.constants]
    for tensor in tensors:
        where = f"{type(tensor).__name__} of slot {tensor.slot}"
        if not 0 <= tensor.slot < plan.slots:
            yield "RC016", where, f"slot {tensor.slot} is not among the plan's {plan.slots}"
        if tensor.slot in state.live:
            yield "RC017", where, f"slot {tensor.slot} is defined again"
        state.live.add(tensor.slot)
        place_tensor(tensor.slot, tensor.spec, state.memory)
        yield from ((code, where, what) for code, what in _known_spec(tensor.spec))
    inputs = {item.slot: item for item in plan.inputs if type(item) is TensorInput}
    for binding in plan.bindings:
        where = f"binding of {binding.symbol!r}"
        spec = inputs[binding.slot].spec if binding.slot in inputs else None
        if spec is None or not 0 <= binding.dim < len(spec.sizes):
            yield "RC023", where, f"slot {binding.slot} is no input with a dimension {binding.dim}"
        if binding.symbol in state.symbols:
            yield "RC022", where, f"symbol {binding.symbol!r} is defined twice"
        state.symbols.add(binding.symbol)
    for tensor in tensors:
        where = f"{type(tensor).__name__} of slot {tensor.slot}"
        yield from ((code, where, what) for code, what in _known_sizes(_spec_sizes(tensor.spec), state.symbols))
    for slot in plan.exclusive:
        if slot not in inputs:
            yield "RC027", "exclusive", f"slot {slot} is no input"
    defined = {str(step.symbol) for step in plan.steps[: leading_definitions(plan)]}  # type: ignore[union-attr]
    yield from ((code, "arena", what) for code, what in _known_sizes((plan.arena,), state.symbols | defined))


def leading_definitions(plan: Plan) -> int:
    """How many steps at the start are ``Define``s: what they bind is known before the arena is made."""
    return next((k for k, step in enumerate(plan.steps) if type(step) is not Define), len(plan.steps))


def _apply(step: Step, state: _State) -> None:
    """Moves the state past one step."""
    if type(step) is Free:
        state.live.difference_update(step.slots)
        state.freed.update(step.slots)
    place(step, state.memory)
    for slot in _defined(step):
        state.live.add(slot)
        state.freed.discard(slot)
        in_arena = (type(step) is Alloc and step.offset is not None) or (type(step) is View and step.base in state.arena)
        (state.arena.add if in_arena else state.arena.discard)(slot)
    if type(step) is Define or type(step) is Item or type(step) is SizeOfStep:
        state.symbols.add(step.symbol)


def _outputs(plan: Plan, state: _State) -> Iterator[tuple[str, str, str]]:
    for number, output in enumerate(plan.outputs):
        where = f"output {number}"
        if type(output) is SlotOutput:
            if output.slot not in state.live:
                yield "RC014", where, f"slot {output.slot} holds nothing at the end"
            elif output.slot in state.arena:
                yield "RC024", where, f"slot {output.slot} lies in the arena, which does not outlive the call"
        elif type(output) is SizeOutput:
            yield from ((code, where, what) for code, what in _known_sizes((output.value,), state.symbols))


def verify(plan: Plan) -> None:
    """Raises PlanError for the first law that ``plan`` breaks; `complaints` lists all."""
    for code, where, what in complaints(plan):
        raise PlanError(code, what=what, where=f"plan {plan.name!r}, {where}")
