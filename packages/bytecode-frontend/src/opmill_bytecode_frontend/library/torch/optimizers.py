"""Optimizers. The step of one either is a call that comes behind the graph, so that a backend may have its own for it, or is read as any
Python, by the arithmetic that it does where nothing is compiled."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from torch._C import _functorch

from opmill_guards.source import Pinned

from ...graph.versions import memory
from ...values.base import Lazy, Value
from ...values.constant import ConstantValue
from ...values.mapping import DictValue
from ...values.objects import ObjectValue
from ...values.sequence import ListValue, TupleValue, members
from ...values.tensor import TensorValue
from ..registry import named, receives_function
from ..standard.caches import ReadAgain
from .deciding_optimizers import is_undecided

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


_CLASSES = (
    "adadelta.Adadelta adagrad.Adagrad adam.Adam adamax.Adamax adamw.AdamW asgd.ASGD lbfgs.LBFGS nadam.NAdam radam.RAdam rmsprop.RMSprop "
    "rprop.Rprop sgd.SGD sparse_adam.SparseAdam _muon.Muon _adafactor.Adafactor"
).split()
DECIDING = frozenset("ASGD RAdam SparseAdam Adafactor".split())
"""Those that decide on the count of steps, or on which elements have gradients: no graph has their steps whole, but for those that
``deciding_optimizers`` has programs for."""
MAKING = frozenset("ASGD RAdam Adadelta Adam Adamax AdamW Muon NAdam RMSprop Rprop".split())
"""Those whose first step makes what the others go on with before it does anything else."""
MANY = 32
"""Parameters with more than which a step is not read for what comes behind it, if the graph may end: each takes some fifteen operations."""
NOTED = frozenset(("_opt_called", "_step_count"))
"""What schedulers note on optimizers, which no step reads."""


@receives_function(*(f"torch.optim.{name}.step" for name in _CLASSES))
def step(vm: Interpreter, function: object, *args: Value, **kwargs: Value) -> Value | None:
    """``optimizer.step()`` behind a profiler's hook: the function itself is interpreted. None where this is no such call."""
    begin(vm, args[0])
    if not getattr(function, "hooked", False) or function in vm.inlined or len(args) != 1 or any(not is_none(v) for v in kwargs.values()):
        return None
    optimizer = args[0]
    if not isinstance(optimizer, ObjectValue) or not isinstance(optimizer.obj, torch.optim.Optimizer) or optimizer.source is None:
        return None
    instead = vm.stand_in(function)
    count = sum(len(group["params"]) for group in optimizer.obj.param_groups)
    deciding = optimizer.python_type().__name__ in DECIDING and not is_undecided(optimizer.obj)
    if instead is None and (deciding or (vm.recorder.counts and count > MANY)):
        instead = function
    if instead is None or vm.recorder.regions or _functorch.get_dynamic_layer_stack_depth() or not stands_apart(vm, optimizer):
        return None
    effect: tuple[object, list[Value], dict[str, Value]] = (instead, [optimizer], {})
    vm.effects.calls.append(effect)
    vm.effects.first = effect
    behind(vm).of_optimizer(vm, function, optimizer.obj, ends=vm.may_end and count > MANY)
    return ConstantValue(None)


def begin(vm: Interpreter, optimizer: Value) -> None:
    """Makes the state of an optimizer whose first step comes next, for gradients of before the call, as the step would do it: a graph of a
    step that makes it would be used once, and there would be another one for all others."""
    if not isinstance(optimizer, ObjectValue) or not isinstance(optimizer.obj, torch.optim.Optimizer) or optimizer.source is None:
        return
    obj = optimizer.obj
    kind, recorder = type(obj), vm.recorder
    if kind.__name__ not in MAKING or str(kind.__module__).split(".")[:2] != ["torch", "optim"] or id(obj.state) in vm.known:
        return
    moved = any(value.new_grad is not None for value in recorder.by_fake.values()) or vm.effects.backwards
    if moved or obj.state or recorder.regions or recorder.devices or _functorch.get_dynamic_layer_stack_depth():
        return
    begins: Callable[..., object] = getattr(obj, "_init_group")  # noqa: B009
    count = len(inspect.signature(begins).parameters) - 1
    with torch.no_grad(), contextlib.suppress(Exception):  # what it raises is the program's, when it comes to it
        for group in obj.param_groups:
            begins(group, *([] for _ in range(count)))


@receives_function(
    *(
        f"torch.optim.lr_scheduler.{name}.step"
        for name in "LRScheduler CosineAnnealingWarmRestarts ReduceLROnPlateau SequentialLR ChainedScheduler".split()
    )
)
def step_of_scheduler(vm: Interpreter, function: object, scheduler: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Called behind the graph: numbers that it computes are others at each call. Those of a program's own classes are read."""
    plain = isinstance(scheduler, ObjectValue) and scheduler.source is not None and in_torch(scheduler.obj)
    if not plain or function in vm.inlined or vm.recorder.regions or _functorch.get_dynamic_layer_stack_depth():
        return None
    if (stale := written_by(vm, scheduler)) is None:
        return None
    vm.effects.calls.append((function, [scheduler, *args], kwargs))
    behind(vm).of_scheduler(function, *stale)
    return ConstantValue(None)


def in_torch(scheduler: object) -> bool:
    """Whether a scheduler, and each that it is made of, is torch's own."""
    parts = getattr(scheduler, "_schedulers", None) or []
    return type(scheduler).__module__ == "torch.optim.lr_scheduler" and all(map(in_torch, parts))


def written_by(vm: Interpreter, scheduler: Any) -> tuple[list[DictValue], list[object], set[int]] | None:
    """Of what a scheduler writes: the dictionaries that are known, objects that are not, and the tensors. None where captured code has
    changed some of it before."""
    todo: list[Any] = [scheduler.obj]
    tables: list[object] = []
    others: list[object] = []
    numbers: set[int] = set()
    while todo:
        each = todo.pop()
        todo += getattr(each, "_schedulers", None) or []
        others += [each] if id(each) not in vm.known else []
        groups = each.optimizer.param_groups
        tables += [each.__dict__, *groups]
        numbers |= {id(v) for group in groups for v in group.values() if isinstance(v, torch.Tensor)}
    changed = {id(getattr(value, "obj", None)) for value in vm.effects.changed}
    if any(id(table) in changed for table in tables):
        return None
    owners = {
        id(value.obj.__dict__): value for _, value in vm.known.values() if isinstance(value, ObjectValue) and hasattr(value.obj, "__dict__")
    }
    known = [value.attrs for table in tables if (value := owners.get(id(table))) is not None and value.has_dict()]
    known += [kept for table in tables if isinstance(kept := vm.known.get(id(table), (None, None))[1], DictValue)]
    seen = {id(value.obj) for value in known}
    return known, [*others, *(table for table in tables if id(table) not in seen)], numbers


def is_none(value: Value) -> bool:
    """Whether a value is None."""
    return isinstance(value, ConstantValue) and value.value is None


def stands_apart(vm: Interpreter, optimizer: ObjectValue) -> bool:
    """Whether captured code has neither changed what the step reads nor read what it changes: as far as that is Python's, the step comes
    before all other changes."""
    if vm.behind is not None:
        return False
    obj = optimizer.obj
    own = {
        id(each)
        for each in (obj.param_groups, *obj.param_groups, *(group["params"] for group in obj.param_groups), obj.state, obj.defaults)
    }
    if id(obj.state) in vm.known or any(id(state) in vm.known for state in obj.state.values()):
        return False
    for value in vm.effects.changed:
        changed = getattr(value, "obj", None)
        if id(changed) in own or (isinstance(value, ObjectValue) and changed is obj and value is not optimizer):
            return False
        if changed is obj.__dict__ and isinstance(value, DictValue):
            before = value.before or {}
            if any(item is not before.get(key, (None, None))[1] and key not in NOTED for key, (_, item) in value.items.items()):
                return False
    return True


class Stale(Struct, eq=False):
    """Stands for what a call behind the graph changes."""

    function: object


class Behind:
    """Steps that run behind the graph. Raises ReadAgain, so that they are read as Python, where captured code looks at what they change."""

    def __init__(self) -> None:
        self.objects: dict[int, tuple[object, object]] = {}
        """Objects that are no more what they are at capture, and the function that changes each."""
        self.numbers: dict[int, object] = {}
        """Tensors that a scheduler writes, by identity."""
        self.function: object = None
        """The step of an optimizer, if there is one, ..."""
        self.memories: set[int] = set()
        """... the memory of what it writes and reads, ..."""
        self.ends = False
        """... and whether the graph ends where that is looked at."""

    def of_optimizer(self, vm: Interpreter, function: object, optimizer: torch.optim.Optimizer, ends: bool) -> None:
        self.function, self.ends = function, ends
        self.objects[id(optimizer.state)] = optimizer.state, function
        params = {id(p) for group in optimizer.param_groups for p in group["params"]}
        moved = [value for value in vm.recorder.by_fake.values() if id(value.obj) in params]
        self.memories = {memory(v.fake) for v in moved} | {memory(v.new_grad.fake) for v in moved if isinstance(v.new_grad, TensorValue)}

    def of_scheduler(self, function: object, known: list[DictValue], unknown: Sequence[object], numbers: set[int]) -> None:
        stale = Stale(function)
        for table in known:
            table.items = {key: (name, Lazy(stale, table.source)) for key, (name, _) in table.items.items()}
        self.objects |= {id(each): (each, function) for each in unknown}
        self.numbers |= dict.fromkeys(numbers, function)

    def operates(self, vm: Interpreter, args: Iterable[Value]) -> None:
        """An operation is about to be recorded."""
        for value in members(args, TensorValue):
            if self.function is not None and (value.obj is not None or memory(value.fake) in self.memories):
                if self.ends:
                    why = "the step comes behind the graph"
                    vm.unsupported("FE036", "use of what a step of an optimizer changes", why, "use it outside of the compiled function")
                raise ReadAgain(self.function)
            if id(value.obj) in self.numbers:
                raise ReadAgain(self.numbers[id(value.obj)])

    def meets(self, obj: object) -> None:
        """An object is about to be tracked."""
        if type(obj) is Stale:
            raise ReadAgain(obj.function)
        found = self.objects.get(id(obj))
        if found is not None and found[0] is obj:
            raise ReadAgain(found[1])


def behind(vm: Interpreter) -> Behind:
    """What is to be done behind the graph for optimizers, made at the first use."""
    if vm.behind is None:
        vm.behind = Behind()
    return vm.behind


@receives_function("torch.optim.optimizer.Optimizer.zero_grad")
def zero_grad(vm: Interpreter, function: object, *args: Value, **kwargs: Value) -> Value | None:
    """torch keeps its own compiler from reading it, by a function around it."""
    function = getattr(function, "__wrapped__", None)
    return None if function is None else vm.call(vm.wrap(function, Pinned(function, "zero_grad")), list(args), kwargs)


@named(
    "torch.optim.optimizer.Optimizer._group_tensors_by_device_and_dtype",
    "torch.utils._foreach_utils._group_tensors_by_device_and_dtype",
)
def grouped(vm: Interpreter, lists: Value, with_indices: Value = ConstantValue(False)) -> Value:
    """Lists of tensors taken apart by device and dtype of those of the first list, as torch's own function does it."""
    columns = [list(vm.unpack(each)) for each in vm.unpack(lists)]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for k, value in enumerate(columns[0]):
        if not isinstance(value, TensorValue):
            vm.unsupported("FE011", "grouping of something other than tensors")
        groups.setdefault((value.fake.device, value.fake.dtype), []).append(k)
    items: dict[Hashable, tuple[Value, Value]] = {}
    for (device, dtype), places in groups.items():
        key = TupleValue([ConstantValue(device), ConstantValue(dtype)])
        parts = ListValue([ListValue([column[k] for k in places] if column else []) for column in columns])
        found = TupleValue([parts, ListValue([ConstantValue(k) for k in places] if vm.truth(with_indices) else [])])
        items[key.key(vm)] = (key, found)
    return DictValue(items)
