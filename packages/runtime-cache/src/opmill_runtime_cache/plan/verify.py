"""What makes a plan legal: a table of laws, each a generator of complaints, checked over one walk of the plan."""

import re
from collections.abc import Callable, Container, Iterator

from ..errors import PlanError
from . import bounds
from .expr import compile_size, is_name, symbols_of
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
    Label,
    Launch,
    ListArg,
    Literal,
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
from .operators import CONTROL, allowed

PRODUCTS = frozenset(f"aten::{name}.out" for name in ("mm", "bmm", "addmm", "baddbmm"))
"""Operators whose last two arguments are the factors of a matrix product."""

ALIGNMENT = 64
"""Bytes; arena offsets that are constants must be multiples of it."""


class _State:
    """What is defined at one point of the walk."""

    def __init__(self, plan: Plan, operators: Container[str] | None) -> None:
        self.plan, self.operators = plan, operators
        self.pieces = bounds.Memory()
        self.given: set[int] = set()  # slots of memory that the plan did not make: inputs, results of operators, views of them
        self.live: set[int] = set()
        self.freed: set[int] = set()
        self.arena: set[int] = set()  # slots whose memory is the arena
        self.protected: set[int] = set()  # inputs and constants: never freed memory of the plan
        self.memory: dict[int, Extent] = {}  # where the slots lie whose place and size are constants
        self.opaque: set[int] = set()  # inputs that are for operators alone
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


_DEVICE = re.compile(r"(?!meta)[a-z][a-z0-9_]{0,31}(:[0-9]{1,2})?")
"""Names that devices can have; ``executor/native.py`` asks for those that are installed."""


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
    yield from bounds.numbers(spec.sizes, spec.strides)
    if not _DEVICE.fullmatch(spec.device):
        yield "RC029", f"device {spec.device!r} is none that tensors have memory on"


def _reads(step: Step, state: _State) -> Iterator[tuple[str, str]]:
    for slot in READS[type(step)](step):
        if slot in state.freed:
            yield "RC015", f"slot {slot} is used after it was freed"
        elif slot in state.pieces.stale and type(step) is not Free:
            yield "RC015", f"slot {slot} is used after the memory that it views was freed"
        elif slot not in state.live:
            yield "RC014", f"slot {slot} is used before it is defined"
        elif slot in state.opaque and type(step) not in (Call, Free):
            yield "RC082", f"slot {slot} is laid out as only its library knows, and is for operators alone"


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
    if step.spec.dtype in DTYPES:
        yield from bounds.allocated(step, state.plan)


def _view(step: View, state: _State) -> Iterator[tuple[str, str]]:
    if len(step.sizes) != len(step.strides):
        yield "RC013", f"{len(step.sizes)} sizes but {len(step.strides)} strides"
    if step.dtype is not None and step.dtype not in DTYPES:
        yield "RC012", f"element type {step.dtype!r} is not one of {', '.join(DTYPES)}"
        return
    yield from bounds.numbers(step.sizes, step.strides)
    in_arena = step.base in state.arena
    room = state.plan.arena if in_arena else state.pieces.room.get(state.pieces.piece.get(step.base, 0))
    yield from bounds.viewed(step, state.memory.get(step.base), room if type(room) is int else None, step.base not in state.given)


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
            return
        body = state.plan.bodies[number]
        if any(type(item) is TensorInput and item.held for item in body.inputs):
            yield "RC055", f"body {number} holds tensors, which nobody gives it"
        if not body.outputs or any(type(output) is not SlotOutput for output in body.outputs):
            yield "RC055", f"body {number} gives something else than tensors"
    if step.bodies or step.op in CONTROL:
        yield from _control(step)


def _control(step: Call) -> Iterator[tuple[str, str]]:
    count, kinds, least = CONTROL.get(step.op, (-1, (), 0))
    fits = len(step.bodies) == count and not step.kwargs and least <= len(step.args) <= len(kinds)
    if not fits or any(type(arg) is not kind for arg, kind in zip(step.args, kinds, strict=False)):
        yield "RC054", f"{step.op} does not run {len(step.bodies)} bodies on such arguments"
        return
    carried = [arg for arg in step.args[: step.op == "opmill::while_loop" or 2 * (step.op == "opmill::scan")] if type(arg) is ListArg]
    if any(type(item) is not Slot for arg in carried for item in arg.items) or (len(carried) == 2 and not carried[1].items):
        yield "RC054", f"{step.op} is given something else than tensors to carry"


_DEEPEST = 8
"""Lists within lists, and bodies of bodies."""


def _depth(arg: Arg, left: int = _DEEPEST) -> bool:
    return type(arg) is not ListArg or (left > 0 and all(_depth(item, left - 1) for item in arg.items))


def _literals(arg: Arg) -> Iterator[object]:
    if type(arg) is Literal:
        yield arg.value
    elif type(arg) is ListArg:
        for item in arg.items:
            yield from _literals(item)


def _call(step: Call, state: _State) -> Iterator[tuple[str, str]]:
    if state.operators is not None and step.op not in CONTROL and not allowed(step.op, state.operators):
        yield "RC081", f"a plan from outside may not call {step.op!r}"
    for name in step.kwargs:
        if not (name.isascii() and name.isidentifier()):
            yield "RC021", f"{name!r} is not a name"
    for value in (value for arg in args_of(step) for value in _literals(arg)):
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            yield "RC010", f"{value} does not fit 64 bits"
    if step.specs and len(step.specs) != len(step.results):
        yield "RC026", f"{len(step.specs)} specs for {len(step.results)} results"
    for spec in step.specs:
        if spec is not None:
            yield from _known_spec(spec)


def _symbol(step: Define | Item | SizeOfStep, state: _State) -> Iterator[tuple[str, str]]:
    if not is_name(step.symbol):
        yield "RC021", f"{step.symbol!r} is not a name"
    if type(step) is SizeOfStep and not 0 <= step.dim < bounds.MOST_DIMENSIONS:
        yield "RC013", f"there is no dimension {step.dim}"
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


def complaints(plan: Plan, operators: Container[str] | None = None, depth: int = _DEEPEST) -> Iterator[tuple[str, str, str]]:
    """(code, where, what) of every law that the plan breaks. ``operators``: see `verify`."""
    state = _State(plan, operators)
    if not depth:
        yield "RC055", "bodies", f"bodies within bodies, more than {_DEEPEST}"
        return
    for number, body in enumerate(plan.bodies):
        yield from ((code, f"body {number}, {where}", what) for code, where, what in complaints(body, operators, depth - 1))
    yield from _header(plan, state)
    for number, step in enumerate(plan.steps):
        if type(step) is Call and not all(map(_depth, args_of(step))):
            yield "RC010", f"step {number} (Call)", f"lists within lists, more than {_DEEPEST}"
            return
        for law in _LAWS_OF[type(step)]:
            for code, what in law(step, state):
                yield code, f"step {number} ({type(step).__name__})", what
        _apply(step, state)
    yield from _outputs(plan, state)
    yield from _labels(plan)


_ARTIFACT_KIND, _ARTIFACT_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}"), re.compile(r"[A-Za-z0-9_-]{1,128}")
"""As in ``store/keys.py``."""


def _kernels(plan: Plan) -> Iterator[tuple[str, str, str]]:
    for number, ref in enumerate(plan.kernels):
        if not (_ARTIFACT_KIND.fullmatch(ref.artifact_kind) and _ARTIFACT_KEY.fullmatch(ref.key) and is_name(ref.entry)):
            yield "RC021", f"kernel {number}", f"{ref.artifact_kind!r}, {ref.key!r}, {ref.entry!r} name no kernel of a store"


def _header(plan: Plan, state: _State) -> Iterator[tuple[str, str, str]]:
    if state.operators is not None:  # of a plan that was made here, the store says so when it is asked
        yield from _kernels(plan)
    for item in plan.inputs:
        if type(item) is SizeInput:
            if item.symbol in state.symbols:
                yield "RC022", "inputs", f"symbol {item.symbol!r} is defined twice"
            if not is_name(item.symbol):
                yield "RC021", "inputs", f"{item.symbol!r} is not a name"
            state.symbols.add(item.symbol)
    tensors: list[TensorInput | Constant] = [*(item for item in plan.inputs if type(item) is TensorInput), *plan.constants]
    for tensor in tensors:
        where = f"{type(tensor).__name__} of slot {tensor.slot}"
        if not 0 <= tensor.slot < plan.slots:
            yield "RC016", where, f"slot {tensor.slot} is not among the plan's {plan.slots}"
        if tensor.slot in state.live:
            yield "RC017", where, f"slot {tensor.slot} is defined again"
        state.live.add(tensor.slot)
        wrong = [(code, where, what) for code, what in _known_spec(tensor.spec)]
        yield from wrong
        if wrong:
            continue
        place_tensor(tensor.slot, tensor.spec, state.memory)
        known = state.memory.get(tensor.slot)
        state.pieces.new(tensor.slot, None if known is None else known.end)
        if type(tensor) is Constant:
            yield from ((code, where, what) for code, what in bounds.constant(tensor))
        else:
            state.given.add(tensor.slot)
            if tensor.multiplied and (tensor.opaque or not tensor.held or not 0 < tensor.multiplied < 1 << 31):
                yield "RC083", where, f"slot {tensor.slot} is no held matrix that {tensor.multiplied} rows are multiplied with"
            if tensor.opaque:
                state.opaque.add(tensor.slot)
                if not tensor.held:
                    yield "RC082", where, f"slot {tensor.slot} is laid out as only its library knows, and is not held"
    inputs = {item.slot: item for item in plan.inputs if type(item) is TensorInput}
    for binding in plan.bindings:
        where = f"binding of {binding.symbol!r}"
        spec = inputs[binding.slot].spec if binding.slot in inputs else None
        if spec is None or not 0 <= binding.dim < len(spec.sizes):
            yield "RC023", where, f"slot {binding.slot} is no input with a dimension {binding.dim}"
        if binding.slot in state.opaque:
            yield "RC082", where, f"slot {binding.slot} is laid out as only its library knows"
        if binding.symbol in state.symbols:
            yield "RC022", where, f"symbol {binding.symbol!r} is defined twice"
        if not is_name(binding.symbol):
            yield "RC021", where, f"{binding.symbol!r} is not a name"
        state.symbols.add(binding.symbol)
    for tensor in tensors:
        where = f"{type(tensor).__name__} of slot {tensor.slot}"
        yield from ((code, where, what) for code, what in _known_sizes(_spec_sizes(tensor.spec), state.symbols))
    for slot in plan.exclusive:
        if slot not in inputs or slot in state.opaque:
            yield "RC027", "exclusive", f"slot {slot} is no input that a plan writes"
    defined = {str(step.symbol) for step in plan.steps[: leading_definitions(plan)] if type(step) is Define}
    yield from ((code, "arena", what) for code, what in _known_sizes((plan.arena,), state.symbols | defined))


def _labels(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Labels lie among the steps, in order, each inside of those that are open when it opens."""
    around: list[Label] = []
    before = 0
    for label in plan.labels:
        del around[max(label.depth, 0) :]
        within = around[-1].end if around else len(plan.steps)
        if label.depth != len(around) or not before <= label.begin <= label.end <= within:
            yield (
                "RC080",
                f"label {label.name!r}",
                f"steps {label.begin} to {label.end} are not in order, or not inside of the label around it",
            )
            return
        before = label.begin
        around.append(label)


def leading_definitions(plan: Plan) -> int:
    """How many steps at the start are ``Define``s: what they bind is known before the arena is made."""
    return next((k for k, step in enumerate(plan.steps) if type(step) is not Define), len(plan.steps))


def _apply(step: Step, state: _State) -> None:
    """Moves the state past one step."""
    if type(step) is Free:
        state.live.difference_update(step.slots)
        state.freed.update(step.slots)
        state.pieces.free(step.slots)
    place(step, state.memory)
    state.pieces.apply(step)
    for slot in _defined(step):
        state.live.add(slot)
        state.opaque.discard(slot)
        state.freed.discard(slot)
        in_arena = (type(step) is Alloc and step.offset is not None) or (type(step) is View and step.base in state.arena)
        (state.arena.add if in_arena else state.arena.discard)(slot)
        given = type(step) is Call or (type(step) is View and step.base in state.given)
        (state.given.add if given else state.given.discard)(slot)
    if type(step) is Define or type(step) is Item or type(step) is SizeOfStep:
        state.symbols.add(step.symbol)


def _outputs(plan: Plan, state: _State) -> Iterator[tuple[str, str, str]]:
    for number, output in enumerate(plan.outputs):
        where = f"output {number}"
        if type(output) is SlotOutput:
            if output.slot not in state.live:
                yield "RC014", where, f"slot {output.slot} holds nothing at the end"
            elif output.slot in state.opaque:
                yield "RC082", where, f"slot {output.slot} is laid out as only its library knows"
            elif output.slot in state.pieces.stale:
                yield "RC015", where, f"slot {output.slot} views memory that was freed"
            elif output.slot in state.arena:
                yield "RC024", where, f"slot {output.slot} lies in the arena, which does not outlive the call"
        elif type(output) is SizeOutput:
            yield from ((code, where, what) for code, what in _known_sizes((output.value,), state.symbols))


def verify(plan: Plan, operators: Container[str] | None = None) -> None:
    """Raises PlanError for the first law that ``plan`` breaks; `complaints` lists all.

    ``operators``: for a plan that was loaded, the operators that it may call beside those of ``plan/operators.py``, as ``"mylib::scale"``
    or ``"mylib::"`` for a whole namespace. None: the plan was made here, and may call any."""
    for code, where, what in complaints(plan, operators):
        raise PlanError(code, what=what, where=f"plan {plan.name!r}, {where}")
