"""NumPy in captured code: arrays are tensors, calls are programs of torch (`rules`).

What a call gives is asked of NumPy itself, on arrays of ones of the same layouts: the dtype, the shape, the strides, whether it is a view,
a number, an error. Where the program of torch gives something else, or there is none, the graph ends, and NumPy runs."""

from __future__ import annotations

import sys
import warnings
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...graph.versions import memory
from ...values.arrays import ArrayValue, like_layout, sizes_now, torch_dtype
from ...values.base import Lazy, NotConstant, Raised, Value
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue
from ...values.mapping import DictValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, SliceValue, TupleValue, members
from ...values.tensor import TensorValue
from ..registry import handles
from .rules import FUNCTIONS, METHODS, UFUNCS, UNITS
from .sizes import Sizes, assume, at, changing, flattened, is_fixed, other_like, settled

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
    "logical_or.reduce": "any",
}  # fmt: skip
#: Functions of several arrays, in a list.
OF_LISTS = frozenset("concatenate concat stack array asarray asanyarray ascontiguousarray".split())
#: Functions that read or write files or settings, or change an argument.
DOING = frozenset(
    "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile fromregex memmap seterr seterrcall geterr errstate "
    "set_printoptions get_printoptions "
    "printoptions setbufsize getbufsize copyto place putmask put put_along_axis fill_diagonal info show_config show_runtime test "
    "asarray_chkfinite".split()
)
HINT = "use torch's functions, or compute it outside of the compiled function"


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
    if key in ("shape", "size") and len(given) == 1 and isinstance(args[0], ArrayValue):
        return args[0].getattr(vm, key)
    if key in ABOUT_LAYOUTS:
        assume(changing(vm, given) if key in ABOUT_SIZES else [])
        return vm.fresh(ask(vm, obj, key, args, kwargs))
    if "out" in kwargs:
        return into(vm, obj, key, args, dict(kwargs))
    if key in (".__getitem__", ".__setitem__"):
        return subscript(vm, obj, args, kwargs)
    if type(obj).__name__ == "ufunc" and key not in FUNCTIONS:
        return universal(vm, obj, key, args, kwargs)
    if key in REDUCING and REDUCING[key] in FUNCTIONS:
        kwargs = kwargs if "axis" in kwargs or len(args) > 1 else {**kwargs, "axis": ConstantValue(0)}
        return by_rule(vm, obj, key, REDUCING[key], FUNCTIONS[REDUCING[key]], args, kwargs)
    if key.startswith("."):
        args, kwargs = method_arguments(key, args, kwargs)
    name = key.lstrip(".")
    function = FUNCTIONS.get(name) if not key.startswith(".") or name in METHODS else None
    if function is not None:
        return by_rule(vm, obj, key, name, function, args, kwargs)
    written = getattr(obj, "_implementation", None)
    if type(written) is FunctionType:
        return vm.call(vm.wrap(written), args, kwargs)
    return refuse(vm, key, "there is no program of torch for it")


def made_of_sizes(vm: Interpreter, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``np.ones(n)`` and the like, which NumPy writes in Python; None for other calls."""
    found = key_of(function) in MADE_OF_SIZES and not any(map(has_array, (*args, *kwargs.values())))
    return numpy_called(vm, function, args, kwargs) if found else None


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
    return "random" not in module and "testing" not in module and getattr(obj, "__name__", "") not in DOING


def has_array(value: object, depth: int = 3) -> bool:
    if isinstance(value, ArrayValue) or depth == 0:
        return isinstance(value, ArrayValue)
    if isinstance(value, SequenceValue):
        return any(has_array(v, depth - 1) for v in value.items)
    return isinstance(value, SliceValue) and any(has_array(v) for v in value.parts)


def refuse(vm: Interpreter, key: str, why: str) -> NoReturn:
    vm.unsupported("FE085", f"NumPy's {key.lstrip('.')}", why, HINT)


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


# ---- asking NumPy --------------------------------------------------------------------------------------------------------


def like(vm: Interpreter, value: Value | Lazy, unit: bool = False, sizes: Sizes | None = None) -> Any:
    """What NumPy is asked with for a value: at this call, or for other ``sizes``."""
    if type(value) is Lazy:
        value = vm.wrap(value.obj, value.source)
    if isinstance(value, ArrayValue):
        check_unchanged(vm, value)
        found = value.like if sizes is None else other_like(vm, value, sizes)
        if unit and getattr(found, "ndim", 0) >= 2:
            made = found.copy()
            made[...] = sys.modules["numpy"].eye(*made.shape[-2:], dtype=made.dtype)
            return made
        return found
    if isinstance(value, SymbolicNumber) and value.python_type() is int:
        return sizes_now([value.number])[0] if sizes is None else at(vm, value.number, sizes)
    if isinstance(value, TensorValue):
        refuse(vm, "functions", "it is given a tensor")
    if isinstance(value, TupleValue):
        return value.assembled([like(vm, v, unit, sizes) for v in value.items])
    if isinstance(value, ListValue):
        return [like(vm, v, unit, sizes) for v in value.items]
    if isinstance(value, SliceValue):
        return slice(*[like(vm, v, False, sizes) for v in value.parts])
    return vm.plain(value)


def ask(vm: Interpreter, obj: object, key: str, args: list[Value], kwargs: dict[str, Value], unit: bool = False) -> object:
    """What NumPy gives for arrays of the same layouts. Where it raises, the program does, in its own words."""
    return asked(vm, obj, key, args, kwargs, unit)[0]


def asked(
    vm: Interpreter, obj: Any, key: str, args: list[Value], kwargs: dict[str, Value], unit: bool, sizes: Sizes | None = None
) -> tuple[Any, list[object]]:
    """What NumPy gives, and the arrays that it was given. ``sizes``: others than those of this call."""
    np = sys.modules["numpy"]
    try:
        given, named = [like(vm, a, unit, sizes) for a in args], {k: like(vm, v, unit, sizes) for k, v in kwargs.items()}
    except NotConstant as exc:
        refuse(vm, key, f"it is given {exc}")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return obj(*given, **named), list(flattened([*given, *named.values()]))
        except Exception as exc:
            return refuse(vm, key, f"it raises {type(exc).__name__}")


# ---- calls ---------------------------------------------------------------------------------------------------------------


def by_rule(vm: Interpreter, obj: Any, key: str, name: str, function: FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value:
    kwargs = {k: v for k, v in kwargs.items() if not is_default(k, v)}
    if name not in OF_LISTS and name not in MADE_OF_SIZES and args and isinstance(args[0], (ListValue, TupleValue)):
        args = [vm.call_builtin(sys.modules["numpy"].asarray, args[:1], {}), *args[1:]]
    want = ask(vm, obj, key, args, kwargs, name in UNITS)
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    if any(k not in parameters for k in kwargs):
        refuse(vm, key, f"there is no program of torch for it with {', '.join(k for k in kwargs if k not in parameters)}")
    given, named = [tensors(vm, a) for a in args], {k: tensors(vm, v) for k, v in kwargs.items() if k != "dtype"}
    if name == "astype" or "dtype" in kwargs:
        named["dtype"] = ConstantValue(None)
        given = given[:1] if name in ("astype",) else given
    if "as_dtype" in parameters:
        dtype = None if not hasattr(want, "dtype") else torch_dtype(want.dtype)
        if dtype is None:
            return refuse(vm, key, "its result has a dtype that tensors lack")
        named["as_dtype"] = ConstantValue(dtype)
    made = finished(vm, key, want, computed(vm, key, function, given, named), [*args, *kwargs.values()])
    return settled(vm, made, lambda sizes: asked(vm, obj, key, args, kwargs, name in UNITS, sizes), changing(vm, [*args, *kwargs.values()]))


def is_default(name: str, value: Value) -> bool:
    """Whether a keyword says what is so without it."""
    known = getattr(value, "value", value)
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
        return refuse(vm, key, f"its program of torch raises {raised.value.python_type().__name__}")


def universal(vm: Interpreter, obj: Any, key: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A universal function: in the dtype of the loop that NumPy takes."""
    kwargs = {k: v for k, v in kwargs.items() if not is_default(k, v)}
    known = UFUNCS.get(key)
    if known is None or len(args) > obj.nin or kwargs:
        return refuse(vm, key, "there is no program of torch for it" + (f" with {', '.join(kwargs)}" if kwargs else ""))
    if any(isinstance(a, (ListValue, TupleValue)) for a in args):
        np = sys.modules["numpy"]
        args = [vm.call_builtin(np.asarray, [a], {}) if isinstance(a, (ListValue, TupleValue)) else a for a in args]
    want = ask(vm, obj, key, args, kwargs)
    function, kinds = known
    dtypes = loop(vm, obj, args)
    if any(dtype.kind not in kinds or torch_dtype(dtype) is None for dtype in dtypes):
        return refuse(vm, key, f"torch computes it in another way for {dtypes[0]}")
    operands = [operand(vm, arg, torch_dtype(dtype)) for arg, dtype in zip(args, dtypes)]
    made = finished(vm, key, want, computed(vm, key, function, operands, {}), args)
    return settled(vm, made, lambda sizes: asked(vm, obj, key, args, kwargs, False, sizes), changing(vm, args))


def loop(vm: Interpreter, obj: Any, args: list[Value]) -> tuple[Any, ...]:
    """The dtypes of the operands as NumPy's loop takes them. Python's numbers have none of their own."""
    given: list[object] = []
    for arg in args:
        found = like(vm, arg)
        given.append(type(found) if type(found) in (int, float, complex) else sys.modules["numpy"].asarray(found).dtype)
    resolved: tuple[Any, ...] = obj.resolve_dtypes((*given, *[None] * obj.nout))
    return resolved[: obj.nin]


def operand(vm: Interpreter, value: Value, dtype: torch.dtype | None) -> Value:
    if isinstance(value, ArrayValue):
        if value.inner.fake.dtype is dtype:
            return value.inner
        return value.inner.method(vm, "to", [ConstantValue(dtype)], {})
    if not isinstance(value, SymbolicNumber) or value.python_type() is not int:
        number = like(vm, value)
        value = ConstantValue(number.item() if hasattr(number, "item") else number)
    return vm.recorder.call_function(vm, torch.full, [TupleValue([]), value], {"dtype": ConstantValue(dtype)})


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
    made = numpy_called(vm, obj, args, kwargs) if any(map(has_array, args)) else None
    if not isinstance(made, ArrayValue):
        return refuse(vm, key, "its result is written to an array")
    if type(obj).__name__ != "ufunc" and made.like.dtype != out.like.dtype:
        return refuse(vm, key, "it computes in the dtype of its out")
    write(vm, out, made.inner)
    return out


def write(vm: Interpreter, out: ArrayValue, value: Value) -> None:
    if out.stands_for is not None or not out.like.flags.writeable:
        refuse(vm, "assignment", "the array is a view that tensors have none of")
    out.inner.method(vm, "copy_", [value], {})


def method_arguments(key: str, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """Arguments of a method as the function has them: sizes and axes given one by one are one tuple."""
    name = key[1:]
    if name in ("reshape", "transpose") and len(args) > 2:
        args = [args[0], TupleValue(args[1:])]
    if name in ("max", "min", "any", "all", "clip"):
        kwargs = {k: v for k, v in kwargs.items() if k not in ("initial",) or v is None}
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


# ---- subscripts ----------------------------------------------------------------------------------------------------------


def subscript(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    owner, key = args[0], args[1]
    if not isinstance(owner, ArrayValue):
        return refuse(vm, "subscript", "it is of no array of the graph")
    parts = [vm.wrap(p.obj, p.source) if type(p) is Lazy else p for p in (key.items if type(key) is TupleValue else [key])]
    if any(isinstance(n, ArrayValue) and not is_fixed(vm, n) for p in parts if isinstance(p, SliceValue) for n in p.parts):
        return refuse(vm, "subscript", "where a slice begins or ends depends on data")
    backwards = [p for p in parts if isinstance(p, SliceValue) and negative(vm, p)]
    several = sum(isinstance(p, (ListValue, ArrayValue)) for p in parts)
    if len(args) == 3:
        ask(vm, assign, "assignment", args, {})
        if backwards or several:
            return refuse(vm, "assignment", "the positions are computed, or go backwards")
        target: Any = owner.inner.method(vm, "__getitem__", [index(vm, key)], {})
        if owner.stands_for is not None or not owner.like.flags.writeable:
            return refuse(vm, "assignment", "the array is a view that tensors have none of")
        value: Any = operand_like(vm, args[2], owner.inner.fake.dtype)
        while value.fake.dim() > target.fake.dim() and value.fake.shape[0] == 1:
            value = value.method(vm, "squeeze", [ConstantValue(0)], {})
        target.method(vm, "copy_", [value], {})
        return ConstantValue(None)
    want = ask(vm, obj, "subscript", args, kwargs)
    if several > 1 or (
        several and (backwards or (len(parts) > 1 and any(not isinstance(p, SliceValue) for p in parts if not is_positions(p))))
    ):
        return refuse(vm, "subscript", "it mixes computed positions with others")
    inner: Any = owner.inner
    if backwards:
        inner, key = forwards(vm, inner, parts)
    found = inner.method(vm, "__getitem__", [index(vm, key)], {})
    made = finished(vm, "subscript", want, found, [owner])
    return settled(vm, made, lambda sizes: asked(vm, obj, "subscript", args, kwargs, False, sizes), changing(vm, args))


def is_positions(part: Value) -> bool:
    return isinstance(part, (ListValue, ArrayValue))


def assign(owner: Any, key: object, value: object) -> None:
    """An assignment to a copy: what it raises is asked for."""
    owner.copy()[key] = value


def negative(vm: Interpreter, part: SliceValue) -> bool:
    assume(changing(vm, [part.parts[2]]))
    step = like(vm, part.parts[2])
    return step is not None and step < 0


def forwards(vm: Interpreter, inner: TensorValue, parts: list[Any]) -> tuple[Value, Value]:
    """A tensor flipped where slices go backwards, and the subscript of it that shows the same. Dimensions are counted from the front."""
    if any(not isinstance(p, SliceValue) for p in parts):
        refuse(vm, "subscript", "slices go backwards beside other parts")
    dims, new = [], []
    for dim, part in enumerate(parts):
        if not negative(vm, part):
            new.append(part)
            continue
        assume(changing(vm, [part]))
        count = int(inner.fake.shape[dim])
        chosen = range(*like(vm, part).indices(count))
        dims.append(dim)
        first = count - 1 - chosen.start if len(chosen) else 0
        end = first + (len(chosen) - 1) * -chosen.step + 1 if len(chosen) else 0
        new.append(SliceValue(ConstantValue(first), ConstantValue(end), ConstantValue(-chosen.step)))
    flipped = vm.recorder.call_function(vm, torch.flip, [inner, TupleValue([ConstantValue(d) for d in dims])], {})
    return flipped, TupleValue(new)


def index(vm: Interpreter, key: Value | Lazy) -> Value:
    """A subscript for a tensor: positions of other dtypes than NumPy's own are refused."""
    if type(key) is Lazy:
        key = vm.wrap(key.obj, key.source)
    if isinstance(key, ArrayValue):
        if key.like.dtype.kind not in "iu":
            refuse(vm, "subscript", "which items it takes depends on data")
        return key.inner.method(vm, "to", [ConstantValue(torch.int64)], {})
    if isinstance(key, TupleValue):
        return TupleValue([index(vm, p) for p in key.items])
    if isinstance(key, ListValue):
        if not all(type(getattr(p, "value", None)) is int for p in key.items):
            refuse(vm, "subscript", "which items it takes depends on data")
        return key
    if isinstance(key, SliceValue):
        return SliceValue(*[position(vm, p) for p in key.parts])
    return position(vm, key)


def position(vm: Interpreter, part: Value | Lazy) -> Value:
    return part if isinstance(part, SymbolicNumber) else ConstantValue(plain_int(like(vm, part)))


def plain_int(part: Any) -> object:
    return part if part is None or part is Ellipsis or isinstance(part, bool) else int(part)


def operand_like(vm: Interpreter, value: Value, dtype: torch.dtype) -> Value:
    if isinstance(value, (ListValue, TupleValue)):
        value = vm.call_builtin(sys.modules["numpy"].asarray, [value], {})
    if isinstance(value, ArrayValue) and value.inner.fake.is_complex() and not dtype.is_complex:
        refuse(vm, "assignment", "it drops imaginary parts, and warns")
    if not isinstance(value, ArrayValue) and hasattr(like(vm, value), "dtype"):
        refuse(vm, "assignment", "it is given an array of before the call")
    return operand(vm, value, dtype)


# ---- results -------------------------------------------------------------------------------------------------------------


def finished(vm: Interpreter, key: str, want: Any, made: Value, sources: list[Value]) -> Value:
    """What NumPy would give: the tensor, in NumPy's layout."""
    np = sys.modules["numpy"]
    if isinstance(want, (list, tuple)) and isinstance(made, SequenceValue) and len(want) == len(made.items):
        items = [finished(vm, key, w, m, sources) for w, m in zip(want, made.values(vm))]
        return ListValue(items) if isinstance(want, list) else TupleValue(items, type(want))
    if (
        not isinstance(want, (np.ndarray, np.generic))
        or not isinstance(made, TensorValue)
        or type(want) not in (np.ndarray, type(want[()]))
    ):
        return refuse(vm, key, f"it gives a {type(want).__name__}")
    arrays = list(members(sources, ArrayValue))
    for each in arrays:
        if each.like is want:
            return each
    if torch_dtype(want.dtype) is not made.fake.dtype or sizes_now(made.fake.shape) != want.shape:
        return refuse(vm, key, f"torch gives {made.fake.dtype}{list(made.fake.shape)}, and NumPy {want.dtype}{list(want.shape)}")
    shown = next(
        (a for a in arrays if isinstance(want, np.ndarray) and isinstance(a.like, np.ndarray) and np.may_share_memory(want, a.like)), None
    )
    shares = any(memory(a.inner.fake) == memory(made.fake) for a in arrays)
    if shown is not None and shares and shown.stands_for is None and same_strides(made, want):
        return ArrayValue(made, want)
    if shown is not None and want.size:
        base = shown.stands_for or (shown.inner, shown.inner.fake._version)
        kept: Any = made.method(vm, "clone", [], {}) if shares else made
        assume([ArrayValue(kept, want)])
        return ArrayValue(kept, want, stands_for=base)
    return ArrayValue(laid_out(vm, key, made, want, shares), want)


def same_strides(made: TensorValue, want: Any) -> bool:
    """Whether the items lie as NumPy's do: strides of dimensions of one item say nothing."""
    found = [s * want.itemsize for s in sizes_now(made.fake.stride())]
    return want.size == 0 or all(n == 1 or s == t for n, s, t in zip(want.shape, found, want.strides))


def laid_out(vm: Interpreter, key: str, made: TensorValue, want: Any, shares: bool) -> Any:
    """The tensor with NumPy's strides, in memory of its own."""
    strides = [s // want.itemsize for s in want.strides]
    if same_strides(made, want):
        return made.method(vm, "clone", [], {}) if shares else made
    order = sorted(range(want.ndim), key=lambda d: (-strides[d], d))
    back = [order.index(d) for d in range(want.ndim)]
    count = 1
    for d in reversed(order):
        if want.shape[d] != 1 and strides[d] != count:
            refuse(vm, key, "its result has gaps in its memory")
        count *= want.shape[d]
    turned = made.method(vm, "permute", [TupleValue([ConstantValue(d) for d in order])], {})
    dense = turned.method(vm, "clone", [], {"memory_format": ConstantValue(torch.contiguous_format)})
    return dense.method(vm, "permute", [TupleValue([ConstantValue(d) for d in back])], {})


def check_unchanged(vm: Interpreter, value: ArrayValue) -> None:
    if value.stands_for is not None and value.stands_for[0].fake._version != value.stands_for[1]:
        refuse(vm, "view", "what it shows has been written to since, and tensors have no such view")


# ---- between tensors and arrays ------------------------------------------------------------------------------------------


def in_wrap_numpy(vm: Interpreter) -> bool:
    """Whether ``torch.compiler.wrap_numpy`` asks for an array: gradients then go through what is computed with it, which a call that is not
    compiled refuses."""
    frame = vm.frame
    return frame is not None and frame.code.co_qualname.startswith("wrap_numpy.<locals>") and is_torchs(frame.code.co_filename)


def is_torchs(file: str) -> bool:
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
    return ArrayValue(inner, like_layout(dtype, sizes_now(fake.shape), strides))


def as_tensor(vm: Interpreter, array: ArrayValue, copy: bool) -> Value:
    """A tensor with the memory of an array, or a copy."""
    check_unchanged(vm, array)
    if not copy and (array.is_number or array.stands_for is not None or not array.like.flags.writeable):
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
    for asked in (device, dtype):
        if asked is not None and not (isinstance(asked, ConstantValue) and asked.value is None):
            made = made.method(vm, "to", [asked], {})
    return made


@handles(torch.Tensor.numpy)
def numpy(vm: Interpreter, tensor: TensorValue, **kwargs: Value) -> Value:
    if kwargs and any(vm.truth(v) for v in kwargs.values()):
        return refuse(vm, "arrays", "it is forced")
    return as_array(vm, tensor)


@handles(torch.Tensor.__array__)
def array_of(vm: Interpreter, tensor: TensorValue, *args: Value) -> Value:
    return refuse(vm, "arrays", "__array__ is called") if args else as_array(vm, tensor)


__all__ = ["as_array", "made_of_sizes", "numpy_called", "torch_of_arrays"]
