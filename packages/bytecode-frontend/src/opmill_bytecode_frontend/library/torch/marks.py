"""What programs say about functions by the marks of ``torch.compiler`` and ``torch._dynamo``.

Some marks are attributes of the function; others are notes that torch's own compiler keeps, which a program without such a mark may not
have imported: they are looked up where it is loaded, and it is never imported for them."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from opmill_guards.source import Pinned

from ...errors import Unsupported
from ...interpretation.optimizing import in_optimizer
from ...interpretation.owners import TORCH, compiles, installed, under_own_name
from ...values.base import MISSING, NotConstant, Value
from ...values.constant import LITERALS, ConstantValue
from ...values.sequence import TupleValue
from ...values.tensor import TensorValue
from ..registry import named
from .compiling import compiled_here

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
RULES, POLYFILLS = "torch._dynamo.trace_rules", "torch._dynamo.variables.functions"
HANDLED = ("torch._dynamo.decorators", "torch._dynamo.eval_frame", "torch.compiler")
"""Modules of functions that the library knows, whatever their marks say."""
LEAF = "_torchdynamo_leaf_real_fn"


def marked(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a call of a marked function gives; None for others, and where the mark only permits what is done anyway."""
    if id(obj) in vm.unmarked:
        return None
    rules: Any = sys.modules.get(RULES)  # on its way, perhaps
    original = getattr(obj, "_torchdynamo_orig_callable", None)
    if compiles(obj):
        return compiled_here(vm, obj, *args, **kwargs)
    own = type(obj) is types.FunctionType and obj.__code__.co_filename.startswith(TORCH)  # wrappers of the program's carry the mark, too
    if original is not None and own and callable(original):
        return compiled_by_torch(vm, obj, original, args, kwargs)
    if not hasattr(rules, "_nonstrict_trace_callable_ids") or getattr(obj, "__module__", None) in HANDLED:  # whoever makes marks imports it
        return None
    if id(obj) in rules._disallowed_callable_ids:
        refuse(vm, obj, "torch._dynamo.disallow_in_graph says that it belongs in no graph")
    if getattr(obj, "_dynamo_forbidden", False) is True:
        refuse(vm, obj, "it changes what is compiled, and how")
    if getattr(obj, LEAF, None) is not None:
        refuse(vm, obj, "torch._dynamo.leaf_function says that it runs as it is")
    if getattr(obj, "_dynamo_marked_constant", False) is True:
        return constant_result(vm, obj, args, kwargs)
    if id(obj) in rules._allowed_callable_ids and not of_package(obj):
        return allowed(vm, obj, args, kwargs, id(obj) in rules._nonstrict_trace_callable_ids)
    instead = substitute(obj)
    if instead is None:
        vm.unmarked[id(obj)] = obj
        return None
    return vm.call(vm.wrap(instead), args, kwargs)


def compiled_by_torch(vm: Interpreter, obj: object, original: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What ``torch.compile`` made of a function is read as that function: one graph instead of two."""
    return vm.call(vm.wrap(original, Pinned(original, getattr(original, "__qualname__", "function"))), args, kwargs)


@named("torch._dynamo.eval_frame.OptimizedModule.__call__")
def compiled_module(vm: Interpreter, module: Value, *args: Value, **kwargs: Value) -> Value:
    """A module that ``torch.compile`` made."""
    return vm.call(vm.getattr(module, "_orig_mod"), list(args), kwargs)


def of_package(obj: object) -> bool:
    """Whether it is a function of an installed package: those that mark their functions can be read by a compiler that asks for less."""
    code = getattr(getattr(obj, "__wrapped__", obj), "__code__", None)
    return code is not None and installed(code.co_filename)


def substitute(obj: object) -> object:
    """The function that the program gave to be captured in place of another one; those that torch's own compiler comes with are not
    needed."""
    table = getattr(sys.modules.get(POLYFILLS), "PolyfilledFunctionVariable", None)
    try:
        handler = None if table is None else table._get_polyfill_handlers().get(obj)
    except TypeError:  # it has no hash
        return None
    function = getattr(handler, "__torch_dynamo_polyfill__", None)
    own = (getattr(function, "__module__", None) or "").startswith("torch._dynamo.")
    return None if own or function is obj else function


def constant_result(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function gives that the program says to give the same always: called once, when it is captured."""
    try:
        given = [plainly(vm, arg) for arg in args]
        named_ = {key: plainly(vm, arg) for key, arg in kwargs.items()}
    except NotConstant as exc:
        return refuse(vm, obj, f"its result is marked as a constant, and {exc} is none")
    try:
        result = obj(*given, **named_)
    except Exception as exc:
        return vm.throw_real(exc)
    return ConstantValue(result) if type(result) in LITERALS else vm.wrap_cached(result)


def plainly(vm: Interpreter, value: Value) -> object:
    """The object of before the call that a value is, or the constant."""
    if isinstance(value, TensorValue):
        raise NotConstant("a tensor")
    real = value.real()
    if real is MISSING:
        return vm.plain(value)
    vm.guard_object(value) if not isinstance(value, (ConstantValue, TupleValue)) else None
    return real


def allowed(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value], nonstrict: bool) -> Value | None:
    """A call as one step of the graph. Where its arguments are nothing that stands in a graph, or it cannot do without real tensors, the
    function is read as others are."""
    function = under_own_name(obj.__wrapped__ if nonstrict else obj)
    if not vm.recorder.is_operand(TupleValue([*args, *kwargs.values()])):
        return read(vm, function, args, kwargs) if nonstrict else None
    try:
        with asked_breaks_off(vm, True):
            return vm.recorder.call_function(vm, function, args, kwargs)
    except Unsupported:
        return read(vm, function, args, kwargs) if nonstrict else None


def read(vm: Interpreter, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The call of a function in which ``graph_break`` means nothing."""
    with asked_breaks_off(vm, True):
        return vm.call(vm.wrap(function), args, kwargs)


@contextlib.contextmanager
def asked_breaks_off(vm: Interpreter, off: bool) -> Iterator[None]:
    """A context in which graph breaks that the program asks for are left out (``off``), or not."""
    before, vm.asked_breaks_off = vm.asked_breaks_off, off
    try:
        yield
    finally:
        vm.asked_breaks_off = before


def refuse(vm: Interpreter, obj: object, why: str) -> NoReturn:
    """Ends the graph at a call that marks code for compilers."""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", type(obj).__qualname__)
    vm.unsupported("FE069", f"call of {name}", why, "call it outside of the compiled function")


# ---- marks that are calls in captured code -------------------------------------------------------------------------------


@named(*(f"torch._dynamo.decorators.{name}" for name in ("graph_break", "skip_frame", "step_unsupported")))
def graph_break(vm: Interpreter, message: Value = NONE) -> Value:
    """``torch._dynamo.graph_break()`` and its like: the graph ends here (FE069)."""
    if vm.asked_breaks_off or in_optimizer(vm):
        return NONE
    said = f": {message.value}" if isinstance(message, ConstantValue) and message.value else ""
    vm.unsupported("FE069", f"torch._dynamo.graph_break(){said}", "the program asks for it")


@named("torch.compiler.set_stance", "torch.compiler.reset", "torch._dynamo.reset", "torch.compiler.set_default_backend")
def about_compiling(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Calls that change what is compiled later: refused (FE069)."""
    vm.unsupported(
        "FE069", "a call that changes what is compiled, and how", "it is about later calls", "call it outside of the compiled function"
    )


@named("torch.compiler.cudagraph_mark_step_begin")
def mark_step_begin(vm: Interpreter) -> Value:
    """Results of recordings are the caller's own here: nothing is overwritten by a later step. torch's compiler is told where it is in
    use."""
    if "torch._inductor.cudagraph_trees" in sys.modules:
        vm.effects.calls.append((torch.compiler.cudagraph_mark_step_begin, [], {}))
    return NONE


@named(*(f"torch._dynamo.decorators.{name}" for name in ("patch_dynamo_config", "dont_skip_tracing", "disable_nested_graph_breaks")))
def settings_of_torch(vm: Interpreter, function: Value = NONE, *args: Value, **kwargs: Value) -> Value:
    """Settings of torch's own compiler for what it reads: this one has no such settings."""
    if function.python_type() not in (type(None), str, dict, tuple):
        return function
    return vm.call(vm.wrap(contextlib.nullcontext), [], {})


PATCH = "torch.utils._config_module.ConfigModule.patch"
COMPILERS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.", "torch.compiler.", "torch.fx.")
"""Whose settings matter to torch's own compiler only."""


@named(PATCH)
def settings_in_a_block(vm: Interpreter, config: Value, *args: Value, **kwargs: Value) -> Value:
    """``with torch._dynamo.config.patch(...)``: the same. Captured code that reads a setting there gets what it was before."""
    if not getattr(config.real(), "__name__", "").startswith(COMPILERS):
        vm.unsupported("FE069", "a call that changes settings", "code may depend on them", "call it outside of the compiled function")
    return vm.call(vm.wrap(contextlib.nullcontext), [], {})


@named(f"{PATCH}.<locals>.ConfigPatch.__enter__", f"{PATCH}.<locals>.ConfigPatch.__exit__")
@named("torch._dynamo.decorators.DynamoConfigPatchProxy.__enter__", "torch._dynamo.decorators.DynamoConfigPatchProxy.__exit__")
@named(
    "torch._dynamo.decorators.CudagraphOverrideContextManager.__enter__",
    "torch._dynamo.decorators.CudagraphOverrideContextManager.__exit__",
)
def nothing(vm: Interpreter, *args: Value) -> Value:
    """Marks for torch's own compiler: nothing to do."""
    return NONE


@named("torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager.__enter__")
def errors_on(vm: Interpreter, manager: Value) -> Value:
    """The begin of a block in which graph breaks are errors, or are none."""
    vm.error_on_break.append(vm.truth(vm.getattr(manager, "error_on_graph_break")))
    return NONE


@named("torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager.__exit__")
def errors_off(vm: Interpreter, *args: Value) -> Value:
    """The end of such a block."""
    if vm.error_on_break:  # else the block began before the captured code
        vm.error_on_break.pop()
    return NONE


@named("torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder")
def region(vm: Interpreter, function: Value, *args: Value, **kwargs: Value) -> Value:
    """A region that repeats: read as a part of the function. Equal parts of a graph are compiled once, marked or not."""
    return vm.call(function, list(args), kwargs)


__all__ = ["marked"]
