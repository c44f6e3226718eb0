"""NumPy in captured code: arrays are tensors, calls are programs of torch (`rules`).

What a call gives is asked of NumPy itself, on arrays of ones of the same layouts: the dtype, the shape, the strides, whether it is a view,
a number, an error. Where the program of torch gives something else, or there is none, the graph ends, and NumPy runs."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, cast

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...errors import Unsupported
from ...graph.failing import may_run_again
from ...values.arrays import ArrayValue, is_computed_with, like_layout, sizes_now, torch_dtype
from ...values.assertions import demanded_of, may_demand
from ...values.base import MISSING, Lazy, NotConstant, Raised, Value
from ...values.constant import ConstantValue
from ...values.fixed import fixed_value
from ...values.functions import BuiltinValue
from ...values.known_arrays import KINDS, plain
from ...values.mapping import DictValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SliceValue, TupleValue
from ...values.tensor import TensorValue
from ...values.warned import called_at_capture
from ..registry import handles
from .asking import NO_PROGRAM, ask, asked, check_unchanged, has_array, refuse
from .data_sizes import BY_DATA, data_sized, demand_items
from .kernel import CHECKS, Told
from .programs import PROGRAMS
from .results import finished, is_writable, loop, operand, write
from .rules import BY_NUMBERS, FUNCTIONS, METHODS, UFUNCS, UNITS
from .sizes import assume, changing, of_data, settled
from .steps import UNREAD, may_step, step, stepped
from .subscripts import subscript
from .writing import WRITING, add_at, written_to

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


#: Functions that ask about layouts alone.
ABOUT_LAYOUTS = frozenset(
    "ndim shape size result_type can_cast iscomplexobj isrealobj broadcast_shapes min_scalar_type promote_types isscalar".split()
)
ABOUT_SIZES = frozenset("shape size broadcast_shapes".split())
"""Those among them that say more than dimensions and dtypes."""
MADE_OF_SIZES = frozenset("zeros ones empty full eye identity arange".split())
CONVERTING = ("asarray", "asanyarray", "array", "ascontiguousarray")
#: Reductions by universal functions.
REDUCING = {
    "add.reduce": "sum", "multiply.reduce": "prod", "maximum.reduce": "max", "minimum.reduce": "min", "logical_and.reduce": "all",
    "logical_or.reduce": "any", "logaddexp.reduce": "logsumexp",
}  # fmt: skip
MOVING = frozenset(".astype .copy .item .tolist".split())
"""Methods that compute nothing."""
ASKING = frozenset(".nonzero .tolist .item .argsort".split())
"""Methods that only compute."""
ACCUMULATING = {
    "add.accumulate": "cumsum",
    "multiply.accumulate": "cumprod",
    "maximum.accumulate": "cummax",
    "minimum.accumulate": "cummin",
}
#: Functions of several arrays, in a list.
OF_LISTS = frozenset(
    "concatenate concat stack array asarray asanyarray ascontiguousarray lexsort compress _core._multiarray_umath.concatenate".split()
)
#: What says how results lie, and of which class, which NumPy is asked anyway; and where it says which items are read first.
LAYING_OUT, BY_ORDER = ("order", "subok"), ("reshape", "ravel", "flatten", "argsort", "sort")
MOST_LISTED = 64
"""Items of an array that become numbers of the program one by one."""
#: Functions with arrays that no protocol of NumPy's is asked about first.
PLAIN = frozenset(["lib.stride_tricks.as_strided"])
#: Universal functions that are told the dtype to compute in.
ARITHMETIC = frozenset("add subtract multiply divide maximum minimum".split())
#: Parameters of rules that are numbers.
NUMBERS = frozenset("axis axes shape shift repeats pad_width k N M n s offset axis1 axis2 source destination decimals reps".split())
#: Functions that read or write files or settings, or change an argument.
DOING = frozenset(
    "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile fromregex memmap seterr seterrcall geterr errstate "
    "set_printoptions get_printoptions "
    "printoptions setbufsize getbufsize copyto place putmask put put_along_axis fill_diagonal info show_config show_runtime test "
    "asarray_chkfinite".split()
)


def numpy_called(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a call of a function of NumPy gives where arrays of the graph are among its arguments; None for other calls."""
    key = key_of(obj)
    if key is None:
        return None
    given = [*args, *kwargs.values()]
    if not any(map(has_array, given)):
        if args and isinstance(args[0], TensorValue) and key in CONVERTING:
            args = [as_array(vm, args[0]), *args[1:]]
        elif key not in MADE_OF_SIZES or not changing(vm, given):
            return None
    check_state(vm, key)
    if key in MADE_OF_SIZES and not changing(vm, given) and (made := of_known(vm, obj, args, kwargs)) is not None:
        return made
    if key in ("shape", "size") and len(given) == 1 and isinstance(args[0], ArrayValue):
        return args[0].getattr(vm, key)
    if key in ABOUT_LAYOUTS:
        assume(vm, changing(vm, given) if key in ABOUT_SIZES else [])
        return vm.fresh(ask(vm, obj, key, args, kwargs))
    if any(isinstance(value, ArrayValue) and not is_computed_with(value.like.dtype) for value in given) and not only_moves(key, given):
        return refuse(vm, key, "torch does not compute with its dtype")
    if "out" in kwargs:
        return into(vm, obj, key, args, dict(kwargs))
    if key in (".__getitem__", ".__setitem__"):
        return subscript(vm, obj, args, kwargs)
    if key == "divmod":
        np = sys.modules["numpy"]
        return TupleValue([universal(vm, each, each.__name__, args, kwargs) for each in (np.floor_divide, np.remainder)])
    if key.endswith(".outer") and len(args) == 2 and all(isinstance(a, ArrayValue) for a in args):
        return outer(vm, obj, args, kwargs)
    if key == ".tolist" and len(given) == 1 and isinstance(args[0], ArrayValue) and not changing(vm, args):
        return of_known(vm, obj, args, kwargs) or listed(vm, args[0])
    if key in (".item", ".tolist") and len(given) == 1 and isinstance(args[0], ArrayValue) and (args[0].is_number or not args[0].like.ndim):
        return of_known(vm, obj, args, kwargs) or args[0].inner.method(vm, "item", [], {})
    if key in WRITING:
        return written_to(vm, obj, key, args, kwargs)
    if key.endswith(".at") and not kwargs:
        return add_at(vm, obj, args)
    if key == ".sort" and kwargs.keys() <= {"axis", "kind"}:
        write(vm, cast(ArrayValue, args[0]), sorted_values(vm, args, kwargs).inner)
        return ConstantValue(None)
    if type(obj).__name__ == "ufunc" and key not in FUNCTIONS:
        return universal(vm, obj, key, args, kwargs)
    alike = REDUCING.get(key) or ACCUMULATING.get(key)
    if alike is not None:
        kwargs = kwargs if "axis" in kwargs or len(args) > 1 else {**kwargs, "axis": ConstantValue(0)}
        return by_rule(vm, obj, key, alike, FUNCTIONS[alike], args, kwargs)
    if key.startswith("."):
        args, kwargs = method_arguments(key, args, kwargs)
    name = key.lstrip(".")
    if (found := data_sized(vm, key, args, kwargs)) is not None:
        return found
    function = FUNCTIONS.get(name) if not key.startswith(".") or name in METHODS else None
    if function is not None:
        return by_rule(vm, obj, key, name, function, args, kwargs)
    if name in UNREAD or (may_step(key, obj) and type(getattr(obj, "__self__", None)).__name__ == "ufunc"):
        kwargs = {k: v for k, v in kwargs.items() if not is_default(k, v)}
        return of_known(vm, obj, args, kwargs) or stepped(vm, obj, key, args, kwargs, NO_PROGRAM, name.startswith("linalg"))
    written = PROGRAMS.get(key) or getattr(obj, "_implementation", None)
    if type(written) is FunctionType:
        return vm.call(vm.wrap(written), args, kwargs)
    return of_known(vm, obj, args, kwargs) or refuse(vm, key, NO_PROGRAM)


def only_moves(key: str, given: list[Value]) -> bool:
    """Whether a function takes items as they are: converts them, hands them out, or gives a part of an array."""
    plain = not any(isinstance(part, (ListValue, ArrayValue)) for part in (*given[1:], *getattr(given[-1], "items", ())))
    return plain and (key in MOVING or (key == ".__getitem__" and len(given) == 2))


def listed(vm: Interpreter, array: ArrayValue) -> Value:
    """``a.tolist()``: numbers that only data tell."""
    if not array.like.ndim:
        return array.inner.method(vm, "item", [], {})
    if array.like.size > MOST_LISTED:
        return refuse(vm, "tolist", "it has many items, and only data tell them")
    rows = [array.method(vm, "__getitem__", [ConstantValue(k)], {}) for k in range(array.like.shape[0])]
    return ListValue([listed(vm, row) if isinstance(row, ArrayValue) else row for row in rows])


def outer(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a universal function gives for each pair of items."""
    left, right = cast(ArrayValue, args[0]), cast(ArrayValue, args[1])
    shape = TupleValue([*left.getattr(vm, "shape").values(vm), *[ConstantValue(1)] * right.like.ndim])  # type: ignore[attr-defined]
    spread = numpy_called(vm, sys.modules["numpy"].reshape, [left, shape], {})
    return numpy_called(vm, obj.__self__, [cast(Value, spread), right], kwargs)


def sorted_values(vm: Interpreter, args: list[Value], kwargs: dict[str, Value]) -> ArrayValue:
    """``numpy.sort()`` of tracked arguments."""
    made = numpy_called(vm, sys.modules["numpy"].sort, args, kwargs)
    assert isinstance(made, ArrayValue)
    return made


def of_known(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a function gives for arrays that are the same at each call, where it only computes; None where they are not."""
    if not computes_arrays(obj) and key_of(obj) not in ASKING:
        return None
    try:
        given, named = [plain(vm, a) for a in args], {k: plain(vm, v) for k, v in kwargs.items()}
    except NotConstant:
        return None
    return vm.fresh(called_at_capture(vm, obj, given, named))


def made_of_sizes(vm: Interpreter, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``np.ones(n)`` and the like, which NumPy writes in Python; None for other calls."""
    key, arrays = key_of(function), any(map(has_array, (*args, *kwargs.values())))
    found = key in PLAIN if arrays else key in MADE_OF_SIZES
    return numpy_called(vm, function, args, kwargs) if found else None


def checked(vm: Interpreter, function: FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``numpy.testing.assert_allclose`` and the like, where the graph may ask when it runs whether that passes; None elsewhere."""
    name = function.__name__
    if name not in CHECKS or not any(map(has_array, args)) or not may_demand(vm):
        return None
    if not may_run_again(vm.recorder.graph, vm.recorder.outside()):
        return None
    passes = step(vm, f"?testing.{name}", sys.modules["numpy"].True_, args, kwargs, NO_PROGRAM)
    demanded_of(vm, passes, (False, "AssertionError", ""))
    return ConstantValue(None)


def key_of(obj: Any) -> str | None:
    """The name of a function of NumPy as rules know it; methods of arrays begin with a dot."""
    kind = type(obj)
    if kind.__name__ == "ufunc" and kind.__module__ == "numpy":
        return str(obj.__name__)
    owner = getattr(obj, "__objclass__", None)
    if owner is not None and owner.__module__ == "numpy":
        return f".{obj.__name__}"
    if type(getattr(obj, "__self__", None)).__name__ == "ufunc":
        return f"{obj.__self__.__name__}.{obj.__name__}"
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or module.split(".")[0] != "numpy" or isinstance(obj, type):
        return None
    return f"{module}.{getattr(obj, '__name__', '')}".removeprefix("numpy.")


def computes_arrays(obj: object) -> bool:
    """Whether it is a function of NumPy that computes from its arguments alone."""
    module = getattr(obj, "__module__", None) or type(obj).__module__
    if not isinstance(module, str) or module.split(".")[0] != "numpy":
        return False
    name = getattr(obj, "__name__", "")
    of_state = isinstance(obj, BuiltinFunctionType) and name.startswith(("_get", "_set", "_load", "set_", "get_", "add_"))
    return "random" not in module and "testing" not in module and name not in DOING and not of_state


def check_state(vm: Interpreter, key: str) -> None:
    """Raises Unsupported where something that is set would make torch, or NumPy, do something else."""
    np = sys.modules["numpy"]
    if int(np.__version__.split(".")[0]) < 2:
        refuse(vm, key, "its rules of promotion are those of NumPy 1")
    if torch.is_autocast_enabled("cpu") or vm.recorder.devices:
        refuse(vm, key, "autocast, or a block with a device, would change what torch computes")
    if not is_quiet(np.geterr):
        refuse(vm, key, "numpy.seterr asks for floating-point errors")
    vm.guard(Predicate(Pinned(np.geterr, "numpy.geterr()"), is_quiet, "asks for no errors"))


def is_quiet(asked: FunctionType) -> bool:
    """Whether NumPy does no more than to warn where floating-point numbers go wrong."""
    return {"raise", "call", "print", "log"}.isdisjoint(asked().values())


# ---- calls ---------------------------------------------------------------------------------------------------------------


def by_rule(vm: Interpreter, obj: Any, key: str, name: str, function: FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of NumPy's by the rule ``function``, with what NumPy itself gives for arrays of the same kind as the oracle."""
    kwargs = {k: v for k, v in kwargs.items() if not is_default(k, v) and not (k in LAYING_OUT and name not in BY_ORDER)}
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    args = [told(vm, k, as_given(vm, name, function, k, a)) for k, a in zip((*parameters, *[""] * len(args)), args)]
    kwargs = {k: told(vm, k, v) for k, v in kwargs.items()}
    want = ask(vm, obj, key, args, kwargs, name in UNITS)
    if unknown := [k for k in kwargs if k not in parameters]:
        return stepped(vm, obj, key, args, kwargs, f"{NO_PROGRAM} with {', '.join(unknown)}", name in UNITS)
    given = [tensors(vm, a) for a in args]
    named = {k: tensors(vm, v) for k, v in kwargs.items() if k != "dtype"}
    if name in ("astype", "view") or "dtype" in kwargs:
        named["dtype"] = ConstantValue(None)
        given = given[:1] if name in ("astype", "view") else given
    if "as_dtype" in parameters:
        dtype = None if not hasattr(want, "dtype") else torch_dtype(want.dtype)
        if dtype is None:
            return refuse(vm, key, "its result has a dtype that tensors lack")
        named["as_dtype"] = ConstantValue(dtype)
    demand_items(vm, obj, key, args, kwargs)
    if name in BY_DATA and any(map(of_data, changing(vm, [*args, *kwargs.values()]))):
        function = cast(FunctionType, BY_DATA[name])
    try:
        made = finished_as(vm, key, want, computed(vm, key, function, given, named), [*args, *kwargs.values()])
    except Other as other:
        return stepped(vm, obj, key, args, kwargs, str(other), name in UNITS)
    return settled(vm, made, lambda sizes: asked(vm, obj, key, args, kwargs, name in UNITS, sizes), changing(vm, [*args, *kwargs.values()]))


def as_given(vm: Interpreter, name: str, function: FunctionType, parameter: str, value: Value) -> Value:
    """An argument of a rule that is an array: a list of numbers is one."""
    if not isinstance(value, (ListValue, TupleValue)) or name in OF_LISTS or name in MADE_OF_SIZES:
        return value
    first = parameter == function.__code__.co_varnames[0]
    if not first and function.__annotations__.get(parameter) != "torch.Tensor":
        return value
    return vm.call_builtin(sys.modules["numpy"].asarray, [value], {})


def told(vm: Interpreter, name: str, value: Value) -> Value:
    """An argument that says which dimensions, how many: an array that is the same at each call is the numbers in it."""
    if name not in NUMBERS or not isinstance(value, ArrayValue) or value.like.dtype.kind not in "iu":
        return value
    found = fixed_value(vm, value.inner)
    return value if found is None else vm.fresh(found.tolist())


def is_default(name: str, value: Value) -> bool:
    """Whether a keyword says what is so without it."""
    known = getattr(value, "value", getattr(value, "obj", value))
    if type(known).__name__ == "_NoValueType":
        return True
    if isinstance(value, BuiltinValue):
        known = value.obj
    defaults = {
        "out": None,
        "where": True,
        "subok": True,
        "order": "K",
        "casting": "same_kind",
        "dtype": None,
        "keepdims": False,
        "like": None,
    }
    return (name in defaults and type(known) is type(defaults[name]) and known == defaults[name]) or type(known).__name__ == "_NoValueType"


def computed(vm: Interpreter, key: str, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The tensors that a rule gives."""
    try:
        return vm.call(vm.wrap(function), args, kwargs)
    except Raised as raised:
        raise Other(f"its program of torch raises {raised.value.python_type().__name__}") from None


class Other(Exception):
    """Torch does not do what NumPy does, and why."""


def finished_as(vm: Interpreter, key: str, want: Told, made: Value, sources: list[Value]) -> Value:
    """As :func:`finished`; what torch does otherwise is a reason to ask NumPy."""
    try:
        return finished(vm, key, want, made, sources)
    except Unsupported as refused:
        raise Other(refused.why) from None


def universal(vm: Interpreter, obj: Any, key: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A universal function: in the dtype of the loop that NumPy takes."""
    kwargs = {k: v for k, v in kwargs.items() if not is_default(k, v)}
    found = UFUNCS.get(key) or ((BY_NUMBERS[key][0], "") if key in BY_NUMBERS else None)
    in_dtype = kwargs.keys() == {"dtype"} and key in ARITHMETIC
    if any(isinstance(a, (ListValue, TupleValue)) for a in args):
        np = sys.modules["numpy"]
        args = [vm.call_builtin(np.asarray, [a], {}) if isinstance(a, (ListValue, TupleValue)) else a for a in args]
    if found is None or len(args) > obj.nin or (kwargs and not in_dtype):
        return stepped(vm, obj, key, args, kwargs, NO_PROGRAM + (f" with {', '.join(kwargs)}" if kwargs else ""))
    want = ask(vm, obj, key, args, kwargs)
    function, kinds = found
    dtypes = (cast(Any, want).dtype,) * obj.nin if in_dtype else loop(vm, obj, args)
    if len(args) == 2 and key in BY_NUMBERS and isinstance(args[1], ConstantValue) and dtypes[0].kind in "iu":
        function, fits = BY_NUMBERS[key]
        kinds = "iu" if fits(int(args[1].value), dtypes[0].itemsize * 8) else ""
    if any(dtype.kind not in kinds or not is_computed_with(dtype) for dtype in dtypes):
        known = of_known(vm, obj, args, kwargs) if {d.kind for d in dtypes} <= set(KINDS) else None
        return known or stepped(vm, obj, key, args, kwargs, f"torch computes it in another way for {dtypes[0]}")
    demand_items(vm, obj, key, args, kwargs)
    operands = [operand(vm, arg, torch_dtype(dtype)) for arg, dtype in zip(args, dtypes)]
    try:
        made = finished_as(vm, key, want, computed(vm, key, function, operands, {}), args)
    except Other as other:
        return stepped(vm, obj, key, args, kwargs, str(other))
    return settled(vm, made, lambda sizes: asked(vm, obj, key, args, kwargs, False, sizes), changing(vm, args))


def into(vm: Interpreter, obj: object, key: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call with ``out``: what is computed without, written to the array."""
    out = kwargs.pop("out")
    if isinstance(out, TupleValue) and len(out.items) == 1:
        out = out.items[0]
    if isinstance(out, ConstantValue) and out.value is None:
        found = numpy_called(vm, obj, args, kwargs)
        assert found is not None, key
        return found
    if not isinstance(out, ArrayValue):
        return refuse(vm, key, "its out is no array")
    ask(vm, obj, key, args, {**kwargs, "out": out})
    mask = kwargs.pop("where", None) if type(obj).__name__ == "ufunc" else None
    made = numpy_called(vm, obj, args, kwargs) if any(map(has_array, args)) else None
    if not isinstance(made, ArrayValue):
        return refuse(vm, key, "its result is written to an array")
    if type(obj).__name__ != "ufunc" and made.like.dtype != out.like.dtype:
        return refuse(vm, key, "it computes in the dtype of its out")
    value: Value = made.inner
    if isinstance(mask, ArrayValue):
        value = vm.recorder.call_function(vm, torch.where, [mask.inner, operand(vm, made, out.inner.fake.dtype), out.inner], {})
    elif mask is not None and not is_default("where", mask):
        return refuse(vm, key, "it is told where by something else than an array")
    write(vm, out, value)
    return out


def method_arguments(key: str, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """Arguments of a method as the function has them: sizes and axes given one by one are one tuple."""
    name = key[1:]
    if name in ("reshape", "transpose") and len(args) > 2:
        args = [args[0], TupleValue(args[1:])]
    return args, kwargs


def tensors(vm: Interpreter, value: Value | Lazy) -> Value:
    """Arguments of a rule: tensors for arrays."""
    if type(value) is Lazy:
        value = vm.wrap(value.obj, value.source)
    if isinstance(value, ArrayValue):
        return value.inner
    if isinstance(value, (ListValue, TupleValue)):
        return (TupleValue if isinstance(value, TupleValue) else ListValue)([tensors(vm, v) for v in value.items], value.cls)
    if isinstance(value, (SliceValue, DictValue, SymbolicNumber)):
        return value
    plain = vm.plain(value)
    return ConstantValue(plain.item()) if hasattr(plain, "item") and hasattr(plain, "dtype") and not plain.shape else value


# ---- between tensors and arrays ------------------------------------------------------------------------------------------


def in_wrap_numpy(vm: Interpreter) -> bool:
    """Whether ``torch.compiler.wrap_numpy`` asks for an array: gradients then go through what is computed with it, which a call that is not
    compiled refuses."""
    frame = vm.frame
    return frame is not None and frame.code.co_qualname.startswith("wrap_numpy.<locals>") and is_torchs(frame.code.co_filename)


def is_torchs(file: str) -> bool:
    """Whether a file is torch's module with stand-ins for functions, whatever the separators of its path."""
    return file.replace("\\", "/").endswith("torch/_dynamo/external_utils.py")


def as_array(vm: Interpreter, tensor: TensorValue) -> ArrayValue:
    """``tensor.numpy()``: the same memory."""
    fake = tensor.fake
    np = sys.modules.get("numpy")
    told = all(type(n) is int or n.node.has_hint() for n in (*fake.shape, *fake.stride()))
    plain = told and fake.device.type == "cpu" and fake.layout is torch.strided
    followed = fake.requires_grad and torch.is_grad_enabled() and in_wrap_numpy(vm)
    if np is None or not plain or (fake.requires_grad and torch.is_grad_enabled() and not followed) or fake.is_conj() or fake.is_neg():
        return refuse(vm, "arrays", "the tensor cannot be seen as one, or only data tell its sizes")
    name = str(fake.dtype).removeprefix("torch.")
    if not hasattr(np, name) or torch_dtype(np.dtype(name)) is not fake.dtype:
        return refuse(vm, "arrays", f"there are none of {fake.dtype}")
    dtype = np.dtype(name)
    check_state(vm, "arrays")
    inner: Any = (
        vm.recorder.call_function(vm, torch.ops.aten.alias.default, [tensor], {}) if followed else tensor.method(vm, "detach", [], {})
    )
    strides = tuple(s * dtype.itemsize for s in sizes_now(fake.stride()))
    return ArrayValue(inner, like_layout(dtype, sizes_now(fake.shape), strides), of=MISSING if followed else inner)


def as_tensor(vm: Interpreter, array: ArrayValue, copy: bool) -> Value:
    """A tensor with the memory of an array, or a copy."""
    check_unchanged(vm, array)
    if not copy and (array.is_number or not is_writable(array)):
        refuse(vm, "arrays", "the array is a view that tensors have none of")
    if not copy and array.inner.fake.requires_grad:  # torch.compiler.wrap_numpy
        return vm.recorder.call_function(vm, torch.ops.aten.alias.default, [array.inner], {})
    inner = array.inner.method(vm, "detach", [], {})
    return inner.method(vm, "clone", [], {}) if copy else inner


def torch_of_arrays(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``torch.from_numpy``, ``torch.tensor`` and the like, given an array."""
    if not args or not isinstance(args[0], ArrayValue) or obj not in (torch.from_numpy, torch.tensor, torch.as_tensor, torch.asarray):
        return None
    if obj is torch.from_numpy:
        return as_tensor(vm, args[0], False)
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    if len(args) > 1 or kwargs or (obj is not torch.tensor and args[0].is_number):
        return refuse(vm, "arrays", "torch is told more about the tensor")
    made = as_tensor(vm, args[0], obj is torch.tensor)
    for each in (device, dtype):
        if each is not None and not (isinstance(each, ConstantValue) and each.value is None):
            made = made.method(vm, "to", [each], {})
    return made


@handles(torch.Tensor.numpy)
def numpy(vm: Interpreter, tensor: TensorValue, **kwargs: Value) -> Value:
    """``tensor.numpy()``: an array that shares the tensor's memory; forcing it is refused."""
    if kwargs and any(vm.truth(v) for v in kwargs.values()):
        return refuse(vm, "arrays", "it is forced")
    return as_array(vm, tensor)


@handles(torch.Tensor.__array__)
def array_of(vm: Interpreter, tensor: TensorValue, *args: Value) -> Value:
    """``tensor.__array__()`` without arguments: as ``numpy()``."""
    return refuse(vm, "arrays", "__array__ is called") if args else as_array(vm, tensor)


__all__ = ["as_array", "made_of_sizes", "numpy_called", "torch_of_arrays"]
