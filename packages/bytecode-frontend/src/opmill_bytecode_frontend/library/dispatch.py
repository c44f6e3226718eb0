"""Which rule a call of a builtin or of a known Python function follows."""

from __future__ import annotations

import array
import collections
import decimal
import enum
import functools
import io
import itertools
import re
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from opmill_guards.guard import Equals
from opmill_guards.source import Attr, Pinned, Referent

from ..assumptions.states import assume_state, is_so_already
from ..effects.lifetimes import LASTING
from ..errors import Unsupported
from ..graph.open_floats import RULES, changes
from ..graph.thread_state import switches
from ..graph.versions import versions
from ..interpretation.owners import exempt, known_as, under_own_name
from ..values.arrays import ArrayValue
from ..values.base import MISSING, NotConstant, Value, apply, find_in_mro, name_in_c, named_by_program, written_in_python
from ..values.classes import ClassValue
from ..values.constant import ConstantValue
from ..values.deques import DequeValue, longest
from ..values.exceptions import ExceptionObject
from ..values.functions import MethodValue, stays
from ..values.mapping import DictValue, DictView, SetValue, mapping_of, reads_as_dict
from ..values.objects import OF_OWN_CLASS, ObjectValue
from ..values.overriding import asked
from ..values.sequence import ListValue, SequenceValue, SliceValue
from ..values.tensor import TensorValue
from ..values.warned import called_at_capture, hearing
from .numpy.asking import has_array
from .numpy.calls import checked, computes_arrays, made_of_sizes, numpy_called, torch_of_arrays
from .registry import CODED, HANDLERS, NAMED, NAMED_WITH_FUNCTION, OBJECTS_OF, Handler
from .standard.caches import call_cached
from .standard.numpy_chance import draw_numpy, draws_of_arrays, made_generator, numpy_random
from .torch.devices import with_device
from .torch.function_modes import asked_of_mode, is_attribute
from .torch.overrides import overridden
from .torch.told import name_of_attribute

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


#: Python functions of these modules go into the graph as they are when an argument is a tensor.
GRAPH_MODULES = frozenset(
    "torch.nn.functional torch.functional torch._tensor torch torch.special torch.linalg torch.fft torch.nn.attention".split()
)
#: What functions among them read of torch's modules, where the program may change it: a backend that takes them apart keeps what they did.
STATES_READ: dict[str, tuple[tuple[types.ModuleType, tuple[str, ...]], ...]] = {
    "torch.functional.einsum": ((torch.backends.opt_einsum, ("enabled", "strategy")),),
}
#: C functions of these modules compute from their arguments alone.
PURE_MODULES = frozenset(
    "builtins math cmath _operator operator _functools _collections _bisect _struct binascii unicodedata _sre itertools _string _json "
    "zlib".split()
)
#: Functions among them that do something else.
NOT_FOLDED = (exec, eval, compile, input, open, breakpoint, __import__)
CHANGEABLE = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict)
#: Python functions of these modules compute from their arguments, or ask about the installation: called when all arguments are constants.
COMPUTING_MODULES = frozenset(
    "typing typing_extensions re sre_compile sre_parse textwrap string fractions decimal numbers keyword importlib.metadata importlib.util "
    "packaging platform "
    "statistics fnmatch json difflib shlex urllib.parse base64 hashlib".split()
)
#: Functions among them that make a class of their caller's module, or change or tell something.
DOING = frozenset(
    f"typing.{name}"
    for name in "NamedTuple TypedDict overload clear_overloads final runtime_checkable no_type_check dataclass_transform reveal_type "
    "override".split()
)
#: torch functions that change a state of the thread: recorded, and run at capture so that fakes see it.
STATEFUL = frozenset(
    "_set_grad_enabled set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled autocast_increment_nesting "
    "autocast_decrement_nesting "
    "clear_autocast_cache set_autocast_cpu_enabled set_autocast_cpu_dtype set_autocast_gpu_dtype manual_seed "
    "_set_dtensor_allow_implicit_replication _set_default_dtype".split()
)
#: How the names of torch's other C functions begin that change a state of the process, and those of them that what is captured follows.
SETTING = ("set_", "push_", "pop_", "enable_")
FOLLOWED = frozenset(call[0] for key, call in switches().items() if key != "anomaly") | {
    torch._C._dynamo.compiled_autograd.set_autograd_compiler
}
#: What NumPy says of a dtype: the same each time.
LIMITS_OF_TYPES = ("finfo", "iinfo")
#: The names of torch's C functions that tell a state of the process, or of a thread, which no other guard knows.
ASKS_STATE = re.compile(
    "^_?(get|is|check)_.*(tf32|cudnn|mkldnn|cublas|rocblas|blas_preferred|linalg|precision|qengine|sdp|deterministic|invariants|reduced|num_threads"
    "|autocast_.*dtype|multithreading|warnAlways|flush|accumulation|nnpack)"
)
#: Where torch's C functions stand that ask no dispatcher, and so would look into a fake: operators are in modules and classes below it. One
#: stands elsewhere, what ``torch.jit.fork`` runs a script by: in a thread of its own, which knows no fakes.
BESIDE_OPERATORS, FORKS = "torch._C", "fork"
#: Objects that are changed in place.
CHANGING = (bytearray, memoryview, array.array, io.IOBase, types.ModuleType, decimal.Context)
#: Items of an iterator made at capture that are taken at most.
MOST_MADE = 100_000
RECEIVING = (types.MethodDescriptorType, types.WrapperDescriptorType)
DESCRIPTORS = (*RECEIVING, types.ClassMethodDescriptorType)
VARIABLE_FUNCTIONS = getattr(torch._C, "_VariableFunctions", None)


def has_tensor(value: object, depth: int = 4) -> bool:
    """Whether a tensor stands among a value's parts."""
    if type(value) is TensorValue:
        return True
    if depth == 0:
        return False
    if isinstance(value, SequenceValue):
        return any(has_tensor(v, depth - 1) for v in value.items)
    if type(value) is DictValue:
        return any(has_tensor(v, depth - 1) for _, v in value.items.values())
    return isinstance(value, SliceValue) and any(has_tensor(v) for v in value.parts)


def is_torch(obj: object) -> bool:
    """Whether an object is torch's."""
    module = getattr(obj, "__module__", None)
    if isinstance(module, str) and module.split(".")[0] == "torch":
        return True
    if isinstance(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    owner = getattr(obj, "__self__", None)
    return owner is not None and (owner is VARIABLE_FUNCTIONS or getattr(owner, "__name__", "").startswith("torch"))


def lookup(obj: object) -> Handler | None:
    """The handler of an object; None where it has none, or cannot be looked up."""
    try:
        return HANDLERS.get(obj)
    except TypeError:
        return None


def call_builtin(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call something implemented in C, or known by identity."""
    if vm.recorder.modes.on and (answer := asked_of_mode(vm, obj, args, kwargs)) is not None:
        return answer
    if (vm.recorder.overriding or (is_torch(obj) and any(map(asked, (*args, *kwargs.values()))))) and (
        found := overridden(vm, obj, args, kwargs)
    ) is not None:
        return found
    if vm.recorder.devices:
        kwargs = with_device(vm, obj, kwargs)
    if args and type(args[0]) is ArrayValue and (found := torch_of_arrays(vm, obj, args, kwargs)) is not None:
        return found
    handler = lookup(obj)
    if handler is not None:
        return apply(vm, handler, getattr(obj, "__qualname__", repr(obj)), args, kwargs)
    if draws_of_arrays(vm, obj, args):
        return draw_numpy(vm, obj, args, kwargs)
    if (array := numpy_called(vm, obj, args, kwargs)) is not None:
        return array
    kind = type(obj)
    if kind in OBJECTS_OF:
        return OBJECTS_OF[kind](vm, obj, args, kwargs)
    if isinstance(obj, DESCRIPTORS):
        result = slot_call(vm, obj, args, kwargs)
        return named_by_program(vm, args[0], obj.__name__, result, args[1:]) if args and obj.__objclass__ is not object else result
    if is_torch(obj):
        return torch_call(vm, obj, args, kwargs)
    if isinstance(obj, functools._lru_cache_wrapper):
        return call_cached(vm, obj, args, kwargs)
    owner = getattr(obj, "__self__", None)
    if kind is types.MethodWrapperType and args and type(args[0]) is TensorValue and is_attribute(owner) and obj == owner.__get__:
        return vm.getattr(args[0], name_of_attribute(owner))
    if (
        owner is not None
        and not isinstance(owner, types.ModuleType)
        and isinstance(obj, (types.BuiltinFunctionType, types.MethodWrapperType))
    ):
        if isinstance(owner, type) or type(owner).__name__ == "ufunc":
            return fold(vm, obj, args, kwargs)
        return vm.call(vm.getattr(vm.wrap(owner, Pinned(owner, repr(kind))), obj.__name__), args, kwargs)
    if getattr(obj, "__module__", None) in PURE_MODULES:
        return fold(vm, obj, args, kwargs)
    if owner is None and getattr(obj, "__qualname__", "").split(".")[0] in ("str", "bytes", "float", "int"):
        return fold(vm, obj, args, kwargs)  # static methods such as str.maketrans
    if isinstance(obj, weakref.ref):
        target = obj()
        if target is None or isinstance(target, LASTING):
            return ConstantValue(None) if target is None else vm.wrap(target, Pinned(target, "referent"))
        return vm.wrap(target, Referent(Pinned(obj, "weak reference")))  # the capture must not keep it alive
    if (generator := made_generator(vm, obj, args, kwargs)) is not None:
        return generator
    if numpy_random(obj):
        return draw_numpy(vm, obj, args, kwargs)
    if computes_arrays(obj):
        return fold(vm, obj, args, kwargs)
    name = f"{getattr(obj, '__module__', None) or kind.__module__}.{getattr(obj, '__qualname__', None) or kind.__qualname__}"
    return vm.unsupported("FE010", f"call of {name}", "it is implemented in C and not known to be free of side effects")


def fold(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a pure function at capture; its arguments must be constants."""
    try:
        plain = [vm.plain(a) for a in args]
        named = {k: vm.plain(v) for k, v in kwargs.items()}
    except NotConstant as exc:
        if any(has_tensor(a) for a in args):
            vm.unsupported("FE011", f"call of {getattr(obj, '__qualname__', obj)} on a tensor", "it is no tensor operation")
        vm.unsupported("FE011", f"call of {getattr(obj, '__qualname__', obj)} on {exc}", "the argument is not a constant")
    if obj in NOT_FOLDED:
        hint = (
            "take it out again; opmill.compile(f, disable=True) and OPMILL_DISABLE=1 run everything as it is" if obj is breakpoint else ""
        )
        vm.unsupported("FE010", f"call of {obj.__qualname__}", "it does more than compute", hint)
    given = [p for p in (*plain, *named.values()) if type(p) in CHANGEABLE]
    before = [list(p) for p in given]
    result = called_at_capture(vm, obj, plain, named)
    if before != [list(p) for p in given]:
        vm.unsupported("FE011", f"call of {getattr(obj, '__qualname__', obj)}", "it changes an argument")
    return made_anew(vm, obj, result)


def has_state(result: object) -> bool:
    """Whether an object may change: one of a class of an extension module that is equal to itself alone does, as a rule
    (``zlib.compressobj()``)."""
    cls = type(result)
    extension = bool(cls.__flags__ & (1 << 9)) and not written_in_python(cls)
    return issubclass(cls, CHANGING) or (extension and not stays(cls) and not issubclass(cls, CHANGEABLE))


def made_anew(vm: Interpreter, obj: object, result: Any) -> Value:
    """What a function gave at capture, as another such object at each call."""
    if hasattr(type(result), "__next__"):
        return ConstantValue(()).walk(list(itertools.islice(result, MOST_MADE)), type(result))
    constructs = isinstance(obj, type) or getattr(obj, "__name__", "") == "__new__"
    if has_state(result) or (
        constructs
        and written_in_python(type(result))
        and not exempt(type(result).__module__)
        and not isinstance(result, enum.Enum)
        and type(result).__qualname__ not in LIMITS_OF_TYPES
    ):
        vm.unsupported("FE012", f"making a {type(result).__qualname__}", f"each call of {getattr(obj, '__qualname__', obj)} has a new one")
    return vm.fresh(result)


def fold_library(vm: Interpreter, fn: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A Python function of a module that only computes: called when all arguments are constants; else None, and it is interpreted."""
    try:
        plain = [vm.plain(a) for a in args]
        named = {k: vm.plain(v) for k, v in kwargs.items()}
    except NotConstant:
        return None
    result = called_at_capture(vm, fn, plain, named)
    return made_anew(vm, fn, result)


def torch_call(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A torch function: into the graph, or evaluated when no tensor takes part."""
    name = getattr(obj, "__name__", "")
    if name in STATEFUL:
        vm.recorder.graph.call_function(
            obj, tuple(vm.recorder.lower(a, False) for a in args), {k: vm.recorder.lower(v, False) for k, v in kwargs.items()}
        )
        return fold(vm, obj, args, kwargs)
    if (
        type(obj) is types.BuiltinFunctionType
        and name.lstrip("_").startswith(SETTING)
        and obj not in FOLLOWED
        and not any(map(has_tensor, args))
    ):
        if is_so_already(vm, obj, args, kwargs):
            return ConstantValue(None)
        vm.unsupported("FE010", f"call of {name}", "it changes a state of torch that graphs do not change")
    beside = getattr(obj, "__module__", None) == BESIDE_OPERATORS or (name == FORKS and type(obj) is types.BuiltinFunctionType)
    if beside and any(map(has_tensor, (*args, *kwargs.values()))):
        vm.unsupported("FE010", f"call of torch._C.{name} on a tensor", "it is no operator: it looks into the tensor itself")
    if type(obj) is types.BuiltinFunctionType and ASKS_STATE.search(name):
        assume_state(vm, obj, args, kwargs)
    return vm.recorder.call_function(vm, under_own_name(obj), args, kwargs)


def intercepted(vm: Interpreter, fn: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a Python function that is known; None when it is to be interpreted."""
    module, name = known_as(fn)
    if vm.recorder.modes.on and module in GRAPH_MODULES:
        return None  # it asks the mode itself
    handler = lookup(fn)
    if handler is None:
        handler = NAMED.get(f"{module}.{name}")
    if handler is not None:
        return apply(vm, handler, name, args, kwargs)
    if (handler := NAMED_WITH_FUNCTION.get(f"{module}.{name}") or CODED.get(fn.__code__)) is not None:
        return apply(vm, handler, name, [cast(Value, fn), *args], kwargs)
    if f"{module}.{name}" in DOING:
        vm.unsupported("FE010", f"call of {module}.{name}", "it does more than compute")
    if module.split(".")[0] in COMPUTING_MODULES or module in COMPUTING_MODULES:
        return fold_library(vm, fn, args, kwargs)
    if module.startswith("numpy.testing") and (found := checked(vm, fn, args, kwargs)) is not None:
        return found
    arrays = module.startswith("numpy") and computes_arrays(fn)
    if arrays and (made := made_of_sizes(vm, fn, args, kwargs)) is not None:
        return made
    if arrays and not any(map(has_array, (*args, *kwargs.values()))):
        return fold_library(vm, fn, args, kwargs)
    if module in GRAPH_MODULES and (any(map(has_tensor, args)) or any(map(has_tensor, kwargs.values()))):
        if fn.__name__ in ("split", "__len__", "__iter__", "__contains__", "__format__", "__repr__") and isinstance(args[0], TensorValue):
            if "split_size_or_sections" in kwargs:
                kwargs = {"split_size" if k == "split_size_or_sections" else k: v for k, v in kwargs.items()}
            return args[0].method(vm, fn.__name__, list(args[1:]), kwargs)
        given = [*args, *kwargs.values()]
        if any(map(changes, given)) and fn not in RULES:
            return None  # what it calls may leave the number open
        if all(map(vm.recorder.is_operand, given)):
            for state, names in STATES_READ.get(f"{module}.{name}", ()):
                for each in names:
                    vm.guard(Equals(Attr(Pinned(state, state.__name__), each), getattr(state, each)))
            return as_it_is(vm, fn, args, kwargs)
    return None


def as_it_is(vm: Interpreter, fn: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A function of torch as one step of the graph; None where it asks what only data tell, and where it warns: its own code may demand
    that, and says whose line the warning is of."""
    recorder, operations = vm.recorder, vm.recorder.operations
    last = next(iter(reversed(recorder.graph.nodes)), None)
    written = versions(*(given.fake for given in args if type(given) is TensorValue))
    try:
        with hearing(always=True) as heard:
            recorder.said.listens = True
            result = recorder.call_function(vm, under_own_name(fn), args, kwargs)
    except Unsupported as exc:
        if exc.code != "FE030" or not vm.recorder.counts:
            raise
        return None
    finally:
        recorder.said.listens = False
    if not heard or written != versions(*(given.fake for given in args if type(given) is TensorValue)):
        return result
    recorder.said.expected |= {text for each in heard if "Triggered internally" in (text := str(each.message))}
    for node in itertools.takewhile(lambda each: each is not last, list(reversed(recorder.graph.nodes))):
        if node.op != "placeholder":  # which the first operation of a graph comes with
            recorder.graph.erase_node(node)
    recorder.operations = operations
    return None


# ---- methods implemented in C, called with their receiver ----------------------------------------------------------


def slot_call(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``cls.method(receiver, ...)`` for methods of builtin classes."""
    name = obj.__name__
    if not args:
        return fold(vm, obj, args, kwargs)  # which raises
    receiver, rest = args[0], list(args[1:])
    if type(obj) in RECEIVING and not issubclass(kind := receiver.python_type(), obj.__objclass__):
        by_slot = type(obj) is types.WrapperDescriptorType
        words = "requires a {} object but received a {}" if by_slot else "for {} objects doesn't apply to a {} object"
        vm.throw(TypeError, f"descriptor {name!r} " + words.format(repr(name_in_c(obj.__objclass__)), repr(name_in_c(kind))))
    if obj.__objclass__ is object:
        found = OBJECT_SLOTS.get(name)
        if found is not None:
            return found(vm, receiver, *rest, **kwargs)
        if isinstance(receiver, ObjectValue):
            vm.unsupported("FE020", f"method {name} of {receiver.describe()}", "it asks methods of the program")
    if isinstance(receiver, TensorValue):
        return receiver.method(vm, name, rest, kwargs)
    if obj.__objclass__ is dict and name in CHANGING_DICT and issubclass(receiver.python_type(), collections.OrderedDict):
        vm.unsupported("FE020", f"dict.{name} of {receiver.describe()}", "the order that it keeps does not notice", whole=True)
    if obj.__objclass__ is dict and name in ("copy", "__or__") and (held := mapping_of(receiver)) is not None:
        own = isinstance(receiver, ObjectValue) and not reads_as_dict(receiver.cls)
        if held.cls is not dict or (own and held.items):
            return copied_as_mapping(vm, receiver, rest)
    if type(obj) is types.ClassMethodDescriptorType and obj.__objclass__ in (int, float, bytes) and receiver.real() is obj.__objclass__:
        return fold(vm, getattr(obj.__objclass__, name), rest, kwargs)
    if issubclass(obj.__objclass__, type):
        if name == "__call__":
            return vm.construct(cast(ClassValue, receiver), rest, kwargs, True)
        if name == "__init__":
            return ConstantValue(None)
        if name in ("__setattr__", "__delattr__"):
            cast(ClassValue, receiver).generic_change(vm, rest[0].constant(), *rest[1:])
            return ConstantValue(None)
        return fold(vm, obj, args, kwargs)
    if isinstance(receiver, ObjectValue):
        if issubclass(obj.__objclass__, BaseException):
            if name == "__init__":
                cast(ExceptionObject, receiver).initialize(vm, obj.__objclass__, rest, kwargs)
                return ConstantValue(None)
            return receiver.method(vm, name, rest, kwargs)
        storage = receiver.storage
        if storage is not None:
            if name == "__init__":
                return init_storage(vm, receiver.cls, storage, rest, kwargs)
            if (obj.__objclass__, name) in OF_OWN_CLASS:
                return of_own_class(vm, receiver, storage, name, rest)
            if name == "__format__" and rest:
                return formatted_content(vm, receiver, obj, rest[0]) or vm.call(vm.wrap(str), [receiver], {})
            result = storage.method(vm, name, rest, kwargs)
            if result is storage and name in IN_PLACE:
                return receiver
            if result is storage and type(storage) is SetValue and storage.cls is frozenset:  # only an exact one is its own copy
                return SetValue(dict(storage.items), frozenset)
            return result
        return fold(vm, obj, args, kwargs) if obj.__objclass__.__module__ in PURE_MODULES else receiver.method(vm, name, rest, kwargs)
    return receiver.method(vm, name, rest, kwargs)


CHANGING_DICT = frozenset("__setitem__ __delitem__ pop popitem clear update setdefault __ior__".split())
IN_PLACE = frozenset("__iadd__ __imul__ __ior__ __iand__ __isub__ __ixor__".split())


def of_own_class(vm: Interpreter, receiver: ObjectValue, storage: Any, name: str, args: list[Value]) -> Value:
    """``copy``, ``|``, ``+`` and ``*`` of OrderedDict, defaultdict and deque: a new object made by the receiver's class, then updated."""
    if isinstance(storage, DictValue):
        if args and mapping_of(args[0]) is None:
            return ConstantValue(NotImplemented)
        if name == "copy" and storage.cls is collections.OrderedDict:  # made empty, and given item by item
            made = vm.call(vm.wrap(receiver.cls), [], {})
            for key in storage.key_values(vm):
                vm.setitem(made, key, vm.getitem(receiver, key))
            return made
        first = args[0] if name == "__ror__" else receiver
        given = [storage.default or ConstantValue(None), first] if storage.cls is collections.defaultdict else [first]
        made = vm.call(vm.wrap(receiver.cls), given, {})
        if args:
            vm.call(vm.getattr(made, "update"), [receiver if name == "__ror__" else args[0]], {})
        return made
    made = vm.call(vm.wrap(receiver.cls), [receiver] if storage.maxlen is None else [receiver, ConstantValue(storage.maxlen)], {})
    if not issubclass(made.python_type(), collections.deque):
        vm.throw(TypeError, f"{receiver.cls.__name__}() must return a deque, not {made.python_type().__name__}")
    if name == "__add__":
        vm.call(vm.getattr(made, "extend"), args, {})
    elif args:
        vm.call(vm.getattr(made, "__imul__"), args, {})
    return made


def copied_as_mapping(vm: Interpreter, receiver: Value, others: list[Value]) -> Value:
    """``copy`` and ``|`` of a dictionary whose class iterates in its own way: ``dict`` asks it for keys and items, as any mapping."""
    if others and mapping_of(others[0]) is None:
        return ConstantValue(NotImplemented)
    made = DictValue({})
    for each in (receiver, *others):
        made.m_update(vm, each)
    return made


#: What an object of a derived class holds, whatever the methods of its class say.
CONTENTS: dict[type, Callable[..., object]] = {int: int.__int__, float: float.__float__, str: str.__str__, complex: complex.__complex__}


def formatted_content(vm: Interpreter, value: Value, method: object, spec: Value) -> Value | None:
    """What the ``__format__`` of a builtin class (``method``) makes of an object of a derived one: it formats the number or text that this
    is. None where it asks for its ``__str__``, as the format is empty."""
    held = value if issubclass(value.python_type(), enum.Enum) else getattr(value, "storage", None)
    owner = getattr(method, "__objclass__", None)
    if held is None or owner not in CONTENTS or (isinstance(spec, ConstantValue) and spec.value == ""):
        return None
    named = type(value.python_type().__name__, (owner,), {})  # errors name the class
    result = fold(vm, format, [ConstantValue(named(CONTENTS[owner](vm.plain(held)))), spec], {})
    return value if result.python_type() is named else result  # a text may be its own


def init_storage(vm: Interpreter, cls: type, storage: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``__init__`` of a builtin container: the content is replaced by that of the arguments."""
    if isinstance(storage, DictValue) and storage.cls is collections.defaultdict:  # whose first argument is what makes items
        made = cast(DictValue, vm.call(vm.wrap(collections.defaultdict), args, kwargs))
        storage.default = made.default
        return storage.m_update(vm, made)
    if isinstance(storage, DictValue):
        if len(args) > 1:
            expected = "dict expected at most 1 argument" if storage.cls is dict else "expected at most 1 arguments"
            vm.throw(TypeError, f"{expected}, got {len(args)}")
        return storage.m_update(vm, *args, **kwargs)
    if not isinstance(storage, (ListValue, SetValue)):
        return ConstantValue(None)
    if isinstance(storage, DequeValue):
        if len(args) + len(kwargs) > 2:
            vm.throw(TypeError, f"deque() takes at most 2 arguments ({len(args) + len(kwargs)} given)")
        given = dict(zip(("iterable", "maxlen"), args)) | kwargs
        storage.maxlen = longest(vm, given["maxlen"]) if "maxlen" in given else None
        args, kwargs = [given["iterable"]] if "iterable" in given else [], {}
    if kwargs:
        vm.throw(TypeError, f"{storage.cls.__name__}() takes no keyword arguments")
    if len(args) > 1:
        of = cls if isinstance(storage, SetValue) else storage.cls
        vm.throw(TypeError, f"{of.__name__} expected at most 1 argument, got {len(args)}")
    new = vm.unpack(args[0], sized=type(storage) is ListValue) if args else []  # before the old content goes
    if storage.items:
        storage.m_clear(vm)
    storage.m_extend(vm, ListValue(new)) if isinstance(storage, ListValue) else storage.m_update(vm, ListValue(new))
    return ConstantValue(None)


def _object_init(vm: Interpreter, receiver: Value, *args: Value, **kwargs: Value) -> Value:
    """``object.__init__``: arguments that nobody took are an error."""
    cls = receiver.python_type()
    if (args or kwargs) and find_in_mro(cls.__mro__, "__init__")[1] is not object.__init__:
        vm.throw(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
    if (args or kwargs) and find_in_mro(cls.__mro__, "__new__")[1] is object.__dict__["__new__"]:
        vm.throw(TypeError, f"{name_in_c(cls)}.__init__() takes exactly one argument (the instance to initialize)")
    return ConstantValue(None)


def _object_init_subclass(vm: Interpreter, receiver: Value, *args: Value, **kwargs: Value) -> Value:
    """``object.__init_subclass__``: arguments that nobody took are an error."""
    if args or kwargs:
        given = "no keyword arguments" if kwargs else f"no arguments ({len(args)} given)"
        vm.throw(TypeError, f"{receiver.constant().__qualname__}.__init_subclass__() takes {given}")
    return ConstantValue(None)


def _object_setattr(vm: Interpreter, receiver: Value, name: Value, value: Value) -> Value:
    receiver.generic_setattr(vm, name.constant(), value) if isinstance(receiver, ObjectValue) else receiver.setattr(
        vm, name.constant(), value
    )
    return ConstantValue(None)


def _object_delattr(vm: Interpreter, receiver: Value, name: Value) -> Value:
    delete = receiver.generic_delattr if isinstance(receiver, ObjectValue) else receiver.delattr
    delete(vm, name.constant())
    return ConstantValue(None)


def _object_getattribute(vm: Interpreter, receiver: Value, name: Value) -> Value:
    if isinstance(receiver, ObjectValue):
        return receiver.generic_getattr(vm, name.constant())
    return vm.getattr(receiver, name.constant())


def _object_eq(vm: Interpreter, receiver: Value, other: Value) -> Value:
    return ConstantValue(True if vm.is_same(receiver, other) else NotImplemented)


def _object_ne(vm: Interpreter, receiver: Value, other: Value) -> Value:
    return vm.differs(receiver, other)


def _object_order(vm: Interpreter, receiver: Value, other: Value) -> Value:
    return ConstantValue(NotImplemented)


def _object_hash(vm: Interpreter, receiver: Value) -> Value:
    real = receiver.real()
    if real is MISSING:
        vm.unsupported("FE024", f"hash of {receiver.describe()}", "it is the address of an object that does not exist yet")
    vm.guard_object(receiver)
    return ConstantValue(object.__hash__(real))


def _object_repr(vm: Interpreter, receiver: Value) -> Value:
    return vm.unsupported("FE025", f"text of {receiver.describe()}", "it tells the address of the object")


def _object_str(vm: Interpreter, receiver: Value) -> Value:
    return receiver.special(vm, "__repr__", []) or _object_repr(vm, receiver)


def _object_format(vm: Interpreter, receiver: Value, spec: Value) -> Value:
    if spec.constant():
        vm.throw(TypeError, f"unsupported format string passed to {receiver.python_type().__name__}.__format__")
    return receiver.special(vm, "__str__", []) or _object_str(vm, receiver)


OBJECT_SLOTS: dict[str, Callable[..., Value]] = {
    "__init__": _object_init,
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
    "__getattribute__": _object_getattribute,
    "__eq__": _object_eq,
    "__ne__": _object_ne,
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), _object_order),
    "__hash__": _object_hash,
    "__str__": _object_str,
    "__repr__": _object_repr,
    "__format__": _object_format,
    "__init_subclass__": _object_init_subclass,
}

__all__ = ["DictView", "MethodValue", "call_builtin", "intercepted"]
