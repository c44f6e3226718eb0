"""Whose a function, a class or a source is: the program's, Python's, an installed package's."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, cast

import torch

from opmill_fake_tensors.lazily import once_for_each_class

from ..values.base import find_in_mro, written_in_python

if TYPE_CHECKING:
    from .frame import Frame


EXEMPT = {"torch", "triton", *sys.stdlib_module_names}
FIXED = (ModuleType, torch.dtype, torch.layout, torch.memory_format)
"""Kinds of values of names that nobody puts others in the place of."""
VARIABLE_FUNCTIONS = getattr(torch._C, "_VariableFunctions", None)
TORCH = os.path.dirname(torch.__file__) + os.sep
_DISABLING = ("_dynamo_disable.", "disable_if_config_true.")
"""Functions of torch that disable what they are given when it is called; the second are the hooks' in torch 2.11."""
STANDARD_LIBRARY = os.path.dirname(os.__file__).replace("\\", "/") + "/"


def exempt(module: object) -> bool:
    """Whether a module, by its full name, is torch's, Triton's or of the standard library: what is named in it stays what it is. What
    classes and functions say of theirs may be anything (that of Cython's functions is a descriptor, a program's a property or None)."""
    return isinstance(module, str) and _exempt(module)


@functools.cache
def _exempt(module: str) -> bool:
    return module.split(".")[0] in EXEMPT


@once_for_each_class
def has_methods(cls: type) -> bool:
    """Whether a class of the program's has methods written in Python: they run as part of the program."""
    written = [c for c in cls.__mro__ if written_in_python(c) and not exempt(c.__module__)]
    own = [getattr(raw, "fget", raw) for c in written for name, raw in vars(c).items() if name != "__new__"]
    return any(type(raw) is FunctionType and not exempt(raw.__module__) for raw in own)  # enums are given some of Python's


def looked_up_in_c(cls: type) -> bool:
    """Whether attributes of a class's objects are looked up by a library's own code in C, which may hand on to another object (proxies)."""
    owner, hook = find_in_mro(cls.__mro__, "__getattribute__")
    module = getattr(owner, "__module__", None)
    own = owner is not object and not (type(module) is str and (exempt(module) or "numpy" in module))
    return own and type(hook) is WrapperDescriptorType


def is_disabled(function: object) -> bool:
    """Whether a function carries the mark of ``opmill.disable`` or ``torch.compiler.disable``, or is disabled each time that it is called,
    as the hooks of ``fully_shard`` are."""
    if getattr(function, "_torchdynamo_disable", False) is True:
        return True
    code = getattr(function, "__code__", None)
    return code is not None and code.co_qualname.startswith(_DISABLING) and code.co_filename.startswith(TORCH)


def compiles(function: object) -> bool:
    """Whether a function marks itself as one that compiles what it is given, with the arguments of ``torch.compile``: captured code that
    calls it is given what it means, and other code does as with a disabled one."""
    return getattr(function, "_opmill_compiles", False) is True


def optimizers_own(function: object) -> FunctionType | None:
    """The function of ``torch.optim`` that torch's own compiler disabled for itself when it was imported (``_init_group`` of every
    optimizer); None for what somebody else disabled."""
    own = getattr(function, "_torchdynamo_orig_callable", None)
    return own if type(own) is FunctionType and str(own.__module__).startswith("torch.optim.") else None


@functools.cache
def installed(filename: str) -> bool:
    """Whether code belongs to Python or to an installed package."""
    path = filename.replace("\\", "/")
    return path.startswith("<frozen") or any(part in path for part in ("/site-packages/", "/dist-packages/", STANDARD_LIBRARY))


def known_as(fn: FunctionType) -> tuple[str, str]:
    """Module and qualified name by which a Python function is known. ``functools.wraps`` gives a wrapper those of what it wraps: one that
    is not what its module has under its name goes by those of its own code."""
    said, name, own = str(fn.__module__ or ""), fn.__qualname__, fn.__globals__.get("__name__")
    if not isinstance(own, str) or own == said:
        return said, name
    package = said.partition(".")[0]
    if own.partition(".")[0] == package:
        itself = package != "torch" or "<locals>" in name or found_under(said, name) in (None, fn)
    elif exempt(said) or installed(getattr(sys.modules.get(said), "__file__", None) or ""):
        itself = exempt(own) and found_under(said, name) is fn  # what a program puts in the place of a library's is not the library's
    else:
        itself = True
    return (said, name) if itself else (own, fn.__code__.co_qualname)


def under_own_name(function: Any) -> Any:
    """A function for a graph, which calls functions of torch by their names where it is written as Python: wrappers have the name of what
    they wrap, and what a program has put another function in the place of has one that leads there."""
    if type(function) is BuiltinFunctionType:
        named = getattr(VARIABLE_FUNCTIONS, function.__name__, None) is function
        return named_apart(function) if named and vars(torch).get(function.__name__, function) is not function else function
    if type(function) is not FunctionType or not str(function.__module__).startswith("torch"):
        return function
    found = found_under(function.__module__, function.__name__)
    nameless = found is None and function.__module__ == torch.Tensor.split.__module__  # a method, which is called by another name
    return function if found is function or (found is None and not nameless) else named_apart(function)


def named_apart(function: Any) -> Any:
    """A function that calls this one, and looks like a function of a program: an optimizer that takes it apart finds no name of torch's."""

    def own(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    own.__name__, own.__module__ = f"own_{function.__name__}", "a program"
    own.__dict__["instead_of"] = function
    return own


def found_under(module: str, name: str) -> object:
    """What a module has under a qualified name, None where there is nothing."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, (type, ModuleType)) else None
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


@functools.cache
def underneath(filename: str) -> bool:
    """Whether code belongs to Python's library or to torch: a program calls it, and its author looks for no cause there."""
    path = filename.replace("\\", "/")
    packages = "/site-packages/" in path or "/dist-packages/" in path
    return path.startswith("<frozen") or filename.startswith(TORCH) or (path.startswith(STANDARD_LIBRARY) and not packages)


def is_users(cls: type) -> bool:
    """Whether a class is no part of Python or of an installed package. A module without a file is a prompt's, a notebook's or one that the
    program made."""
    name = cls.__module__ if isinstance(cls.__module__, str) else ""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and (package := name.partition(".")[0]) not in sys.stdlib_module_names:
        file = getattr(sys.modules.get(package), "__file__", None) or "<made>"
    return not installed(file or "<frozen")


def _line_of(frame: Frame) -> str:
    return f'File "{frame.code.co_filename}", line {frame.line}, in {frame.code.co_name}'


def began(frame: Frame) -> str:
    """The line of the outermost frame that is not torch's, nor only passes a call on to the next one, as a traceback names it; the
    innermost frame's where all are."""
    own, each = None, cast("Frame | None", frame)
    while each is not None:
        passes = own is not None and each.code.co_flags & _WRAPPER == _WRAPPER
        own, each = (own if passes or each.code.co_filename.startswith(TORCH) else each), each.caller
    return _line_of(own or frame)


_WRAPPER = inspect.CO_NESTED | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
"""What the function that a decorator makes is: inside of another, called with whatever its function is called with."""


def programs_line(frame: Frame) -> str:
    """The line of the innermost frame that is not torch's, which calls what torch does there; the innermost frame's where all are."""
    own = cast("Frame | None", frame)
    while own is not None and own.code.co_filename.startswith(TORCH):
        own = own.caller
    return _line_of(own or frame)


COMPUTING = ("forward", "__call__", "_wrapped_call_impl", "_call_impl", "inner")
"""Names of functions that run a module."""


def work_of_package(frame: Frame) -> dict[str, Any]:
    """Where a package was called to do what a frame does that is not part of a graph, as arguments of `Machine.unsupported`: the functions
    of the package from there on run as they are. Empty where it is the program itself, or a module, that does so."""
    began, each = None, cast("Frame | None", frame)
    while each is not None and installed(each.code.co_filename) and each.code.co_name not in COMPUTING:
        began, each = each, each.caller
    return {} if began is None else where_called(began)


def where_called(frame: Frame) -> dict[str, Any]:
    """That what ``frame`` runs is to run as it is, as arguments of `Machine.unsupported`: the graph ends where it was called, or there is
    none of what was called first."""
    if frame.caller is None:
        return {"whole": True}
    return {"place": frame.caller.place} if frame.caller.has_places else {}


__all__ = ["EXEMPT", "FIXED", "began", "exempt", "installed", "is_disabled", "is_users", "programs_line", "where_called", "work_of_package"]
