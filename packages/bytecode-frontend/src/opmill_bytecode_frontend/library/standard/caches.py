"""Functions with ``functools.lru_cache``.

Programs may see what a cache does: how often the function runs, hits and misses, who asks keys for their hash, that all callers get one
object. A call of a function of the program is therefore made by the program itself, in one of three ways:

- a function of constants that only computes another constant is interpreted, and the cache is asked by each call where other things are
  told (`effects.changes`: calls), so that it counts as it would;
- one that only computes, from constants and from what was there when the captured code began, is called before the graph (`effects.asked`):
  what the cache gives, old or new, is an input of the graph. It is interpreted once to know that it does nothing else;
- any other is called between two graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from msgspec import Struct

from opmill_guards.guard import Absent, Is
from opmill_guards.reference import check

from ...assumptions.asked import Asked, is_asked, is_given, new_source
from ...errors import Unsupported
from ...graph.regions import Region
from ...graph.thread_state import switched, switches
from ...interpretation.owners import exempt, installed
from ...values.base import MISSING, NotConstant, Raised, Value, find_in_mro
from ...values.classes import ClassValue
from ...values.constant import LITERALS, ConstantValue
from ...values.functions import BuiltinValue, FunctionValue
from ...values.mapping import DictValue, SetValue
from ...values.number import SymbolicNumber
from ...values.objects import ObjectValue
from ...values.sequence import SequenceValue, TupleValue
from ..registry import handles
from ..torch.bodies import recording

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

    Cached = functools._lru_cache_wrapper[object]


NONE = ConstantValue(None)


@handles(functools.lru_cache)
def lru_cache(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``functools.lru_cache`` that decorates in captured code: refused (FE010)."""
    vm.unsupported(
        "FE010", "functools.lru_cache in captured code", "its cache would be lost with the capture", "decorate the function outside"
    )


def call_cached(vm: Interpreter, obj: Cached, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function with a cache gives."""
    if getattr(obj, "__name__", "").endswith("_once"):
        vm.effects.calls.append((obj, args, kwargs))
        return NONE
    function = obj.__wrapped__
    code = getattr(function, "__code__", None)
    if code is not None and not exempt(getattr(function, "__module__", None) or ""):
        known, own = all(map(is_key, (*args, *kwargs.values()))), not installed(code.co_filename)
        if own and vm.may_break:
            return of_program(vm, obj, args, kwargs)
        if known and vm.inlined.isdisjoint((obj, (ANEW, obj))):
            try:
                return of_program(vm, obj, args, kwargs)
            except Unsupported:
                raise ReadAgain(obj) from None
    if not all(isinstance(a, (ConstantValue, ClassValue, BuiltinValue)) for a in (*args, *kwargs.values())):
        return inline(vm, obj, args, kwargs)
    try:
        result = obj(*[a.constant() for a in args], **{k: v.constant() for k, v in kwargs.items()})
    except NotConstant:
        raise
    except Exception as exc:
        return vm.throw_real(exc)
    if not isinstance(result, torch.Tensor):
        return vm.wrap_cached(result)
    if code is not None and not installed(code.co_filename):
        return refuse(vm, obj, "it does more than compute from constants")
    return inline(vm, obj, args, kwargs)


def inline(vm: Interpreter, obj: Cached, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """As if there were no cache."""
    for given in (*args, *kwargs.values()):
        demand_hash(vm, given)
    return vm.call(vm.wrap(obj.__wrapped__), args, kwargs)


def demand_hash(vm: Interpreter, value: object) -> None:
    """Raises TypeError for what has no hash, as things that may change have none. Of numbers in tuples (sizes) nothing is assumed."""
    if type(value) is TupleValue and value.cls in (tuple, torch.Size):
        for item in value.values(vm):
            demand_hash(vm, item)
    elif isinstance(value, (SequenceValue, DictValue, SetValue)):
        vm.key(value)


def of_program(vm: Interpreter, obj: Cached, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a function that only computes; of others the call is the program's own."""
    if (ANEW, obj) in vm.inlined:
        return refuse(vm, obj, "which object it gives matters, and each run of it makes another")
    if not all(is_key(a) for a in (*args, *kwargs.values())):
        return refuse(vm, obj, "its key is not a constant")
    given, named = [plain_key(vm, a) for a in args], {k: plain_key(vm, v) for k, v in kwargs.items()}
    key = (id(obj), functools._make_key(tuple(given), named, obj.cache_parameters()["typed"]))
    if key in vm.asked:
        vm.effects.asked.append(Asked(with_switches(vm, obj), tuple(given), named, None))
        return vm.asked[key]
    if key not in vm.cached:
        result = computed(vm, obj, args, kwargs, given, named)
        if result.source is not None and is_asked(result.source):
            vm.asked[key] = result
            if not many(vm, obj, key):
                return result
            return refuse(vm, obj, "it is called with more keys than it keeps")
        if vm.computing and not is_literal(result):
            return result
        vm.cached[key] = result
    if not vm.computing:
        vm.effects.calls.append((obj, args, kwargs))
    return vm.cached[key]


def many(vm: Interpreter, obj: Cached, key: Any) -> bool:
    """Whether a call has met more keys than the cache keeps."""
    most = obj.cache_parameters()["maxsize"]
    return most is not None and sum(known[0] == key[0] for known in (*vm.asked, *vm.cached)) > most


#: What a key may be made of, besides literals: immutable, and hashed without asking the program.
IMMUTABLE = (*LITERALS, torch.dtype, torch.device, torch.layout, torch.memory_format)


def is_key(value: Value) -> bool:
    """Whether nobody is asked for the hash of a value, and it can be named before the graph."""
    if type(value) is ConstantValue:
        return type(value.value) in IMMUTABLE
    if type(value) is TupleValue:
        return value.cls in (tuple, torch.Size) and all(isinstance(v, Value) and is_key(v) for v in value.items)
    if isinstance(value, (ClassValue, FunctionValue, BuiltinValue)):
        return type(value).constant is not Value.constant and hashed_by_identity(type(value.real()))
    return isinstance(value, ObjectValue) and value.real() is not MISSING and is_given(value) and hashed_by_identity(value.cls)


def hashed_by_identity(cls: type) -> bool:
    """Whether objects of a class are keys by what they are, not by what they hold."""
    hash_, equal = find_in_mro(cls.__mro__, "__hash__")[0], find_in_mro(cls.__mro__, "__eq__")[0]
    return hash_ in (object, type) and equal in (object, type)


def plain_key(vm: Interpreter, value: Value) -> object:
    """A part of a key: the object itself where it is the same at each call, else the tracked value."""
    return value if isinstance(value, ObjectValue) else vm.plain(value)


def computed(
    vm: Interpreter, obj: Cached, args: list[Value], kwargs: dict[str, Value], given: list[object], named: dict[str, object]
) -> Value:
    """The result, found by interpreting the function; a refusal where that does more than compute, or reads what may have changed."""
    recorder, region = vm.recorder, Region()
    before, changed, inputs = state_of(vm), bool(vm.effects), len(recorder.inputs)
    guards, operations, leaves, inlined = set(vm.guards), recorder.operations, list(recorder.leaves), len(vm.cached)
    vm.computing += 1
    try:
        with recording(vm, region):
            result: Value = vm.call(vm.wrap(obj.__wrapped__), args, kwargs)
    except Raised:
        return refuse(vm, obj, "it raises")
    finally:
        vm.computing -= 1
    tensors = [v.node for v in recorder.inputs if not isinstance(v, SymbolicNumber) and v.scalar is None]
    if state_of(vm) != before or any(node in tensors or node.op != "placeholder" for node in region.lifted):
        return refuse(vm, obj, "it does more than compute from constants")
    for value in recorder.inputs[inputs:]:
        recorder.main.erase_node(value.node)
        value.node = None
    del recorder.inputs[inputs:]
    recorder.leaves[:] = leaves
    computes = recorder.operations == operations
    recorder.operations = operations
    if computes and is_literal(result):
        if not all(isinstance(vm.guards[each], (Is, Absent)) for each in vm.guards.keys() - guards):
            return refuse(vm, obj, "it reads what may change")
        return result
    if vm.computing:
        vm.unsupported("FE010", "a cached function of tensors in another one", "what both keep is not followed")
    if changed and not all(isinstance(vm.guards[each], (Is, Absent)) for each in vm.guards.keys() - guards):
        return refuse(vm, obj, "it reads what was changed before")
    if len(vm.cached) != inlined:
        return refuse(vm, obj, "it calls other functions with caches")
    return asked_before(vm, obj, given, named)


def asked_before(vm: Interpreter, obj: Cached, given: list[object], named: dict[str, object]) -> Value:
    """The result of a call that is made before the graph. Which tensors the graph will be given is known by computing some like them."""
    recorder = vm.recorder
    elsewhere = torch._C._functorch.get_dynamic_layer_stack_depth() != vm.entry_levels or recorder.inference.mode is not None
    if recorder.regions or recorder.devices or elsewhere or obj.cache_parameters()["maxsize"] == 0:
        return refuse(vm, obj, "it is called in a transform, a graph inside of the graph, or a block with a device")
    function, state = with_switches(vm, obj), torch.random.get_rng_state()
    real = [a.real() if isinstance(a, Value) else a for a in given]
    try:
        like = obj.__wrapped__(*real, **{k: v.real() if isinstance(v, Value) else v for k, v in named.items()})
    except Exception:
        return refuse(vm, obj, "it raises")
    if not torch.equal(state, torch.random.get_rng_state()):
        return refuse(vm, obj, "it draws random numbers")
    source = new_source(vm.effects.asked)
    vm.effects.asked.append(Asked(function, tuple(given), named, source))
    return vm.wrap(like, source)


class Switched(Struct, frozen=True, eq=False):
    """A function that is called with switches of torch set by ``calls``, and what the thread had again behind it."""

    function: Callable[..., object]
    calls: Sequence[tuple[Any, ...]]

    def __call__(self, *args: object, **kwargs: object) -> object:
        before = switches()
        try:
            for switch, *given in self.calls:
                switch(*given)
            return self.function(*args, **kwargs)
        finally:
            for switch, *given in switched(switches(), before):
                switch(*given)


def with_switches(vm: Interpreter, obj: Cached) -> object:
    """The function as it runs where the captured code is now, called from where that began."""
    calls = switched(vm.entry_switches, now := switches())
    if any(call not in (now["grad"], now.get("replication")) for call in calls):
        return refuse(vm, obj, "a switch of torch was set before")  # autocast keeps what it casts until its block ends
    return Switched(obj, calls) if calls else obj


def state_of(vm: Interpreter) -> tuple[int, ...]:
    """What tells whether captured code has done anything."""
    return vm.effects.state()


def is_literal(value: Value) -> bool:
    """Whether a value is a constant, or a plain tuple of such."""
    if isinstance(value, TupleValue):
        return type(value) is TupleValue and value.cls is tuple and all(isinstance(v, Value) and is_literal(v) for v in value.items)
    return type(value) is ConstantValue and type(value.value) in LITERALS


def read_apart(vm: Interpreter) -> None:
    """Raises ReadAgain where captured code assumes which object a call gives that is made before the graph (a mesh of devices), and each
    run of the function makes another: what the cache gives is never the one that the capture has seen."""
    results: dict[str, object] = {}
    for call in vm.effects.asked:
        obj = call.function.function if isinstance(call.function, Switched) else call.function
        guards = [g for g in vm.guards.values() if type(g) is Is and is_asked(g.source) and g.source.root == call.source]
        if call.source is None or not guards or not isinstance(obj, functools._lru_cache_wrapper):
            continue
        args = [a.real() if isinstance(a, Value) else a for a in call.args]
        kwargs = {k: v.real() if isinstance(v, Value) else v for k, v in call.kwargs.items()}
        results[call.source.name] = obj.__wrapped__(*args, **kwargs)
        if not all(check(guard, results) for guard in guards):
            raise ReadAgain((ANEW, obj))


ANEW = "makes an object at each run"


class ReadAgain(Exception):
    """The function is to be read once more, the calls of another one in it as if that had no cache; or, where it is named behind `ANEW`,
    between graphs."""

    def __init__(self, function: object) -> None:
        super().__init__(function)
        self.function = function


def refuse(vm: Interpreter, obj: object, why: str) -> NoReturn:
    """Ends the graph at a call of a function with a cache."""
    name = getattr(obj, "__qualname__", "a function")
    vm.unsupported("FE010", f"a call of {name}, which has a cache", why, "call it outside of the compiled function")


__all__ = ["ReadAgain", "call_cached", "read_apart"]
