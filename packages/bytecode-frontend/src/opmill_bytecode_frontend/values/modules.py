"""``torch.nn.Module``: attribute lookup without running its Python code, calls without hooks go straight to ``forward``."""

from __future__ import annotations

import re
import sys
import types
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as torch_module
from torch.nn.parallel import DistributedDataParallel

from opmill_guards.guard import Absent
from opmill_guards.source import InstanceDict, Item, Pinned

from ..interpretation.owners import is_disabled
from .assigned_attributes import find_now
from .base import MISSING, Lazy, Machine, Value
from .constant import ConstantValue
from .functions import MethodValue
from .mapping import DictValue
from .objects import ObjectValue, bind_descriptor, find_in_mro
from .tensor import SAID, TensorValue

if TYPE_CHECKING:
    from collections.abc import Collection

    from opmill_guards.source import Source

    from ..interpretation.frame import Frame

CALLED = ("_forward_pre_hooks", "_forward_hooks")
CALLED_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
HOOKS = (*CALLED_BACKWARD, *reversed(CALLED))
HOOK_TABLES = (*HOOKS, "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
GLOBAL_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")
STORES = ("_parameters", "_buffers", "_modules")
COMPOSABLE = "torch.distributed._composable.checkpoint_activation"
OWN_CALLS = ("_compiled_call_impl", "_slow_forward", "_call_impl")
"""What a module may have of its own that makes a call of it another one."""


def runs_between(module: torch.nn.Module) -> bool:
    """Whether a module has hooks that no graph holds, as ``fully_shard`` gives it, or does their work in its ``forward``: a call of it is
    never captured as one. Those that the backward calls are among them."""
    sharded = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if sharded is not None and isinstance(module, sharded.FullyShardedDataParallel):
        return True
    found = vars(module)
    if torch.is_grad_enabled() and any(found.get(name) or getattr(torch_module, f"_global{name}") for name in CALLED_BACKWARD):
        return True
    hooks = [getattr(hook, "__func__", hook) for name in CALLED for hook in (found.get(name) or {}).values()]
    return any(map(is_disabled, hooks)) or checkpoints_itself(module)


def checkpoints_itself(module: object) -> bool:
    """Whether hooks of a module begin and end a checkpoint (``torch.distributed._composable.checkpoint``). The backward calls the module
    once more, as it is: what was saved in between has to be of a call as it is, too."""
    hooks = (getattr(module, "__dict__", {}).get("_forward_pre_hooks") or {}).values()
    return any(getattr(hook, "__module__", None) == COMPOSABLE for hook in hooks)


def in_checkpoint_of_itself() -> bool:
    """Whether a module of that kind runs, and what is saved for the backward goes to its checkpoint."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True) if COMPOSABLE in sys.modules else None
    again = getattr(_variable(hooks[0], "frame"), "recompute_fn", None) if hooks is not None else None
    return again is not None and checkpoints_itself(_variable(again, "fn"))


def _variable(function: object, name: str) -> object:
    """What a function's variable of that name holds, one that is around it."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return cells[names.index(name)].cell_contents if name in names and len(cells) == len(names) else None


def running_module(frame: Frame | None) -> str:
    """The module whose code a frame runs (``layers.0``), or is called by; empty for the outermost one and outside of modules."""
    while frame is not None:
        first = frame.locals.get(frame.code.co_varnames[0]) if frame.code.co_argcount else None
        if type(first) is ModuleValue:
            return first.known_as
        frame = frame.caller
    return ""


def is_data_parallel(module: torch.nn.Module) -> bool:
    """Whether a call of the module prepares the exchange of gradients, and then calls the module that it holds."""
    return isinstance(module, DistributedDataParallel) and type(module).forward is DistributedDataParallel.forward


class ModuleValue(ObjectValue):
    """A module of before the call. It is known by its path; its class and dictionaries are guarded by the module tree guard."""

    def __init__(self, obj: torch.nn.Module, source: Source) -> None:
        super().__init__(type(obj), obj, source)
        self.source: Source = source
        self.path = InstanceDict(source)
        self.tables = {store: Item(self.path, store) for store in STORES}
        mro = self.cls.__mro__
        self.finds_methods = find_in_mro(mro, "__getattribute__")[0] is object
        """Whether what its class has is found before anything is asked."""
        self.reads_plainly = self.finds_methods and find_in_mro(mro, "__getattr__")[0] is torch.nn.Module
        """Whether attributes are found as ``torch.nn.Module`` finds them."""
        self.assumes_hooks = False
        """Whether its hooks matter: a module whose ``forward`` alone was read may have any."""
        self.rehooked: Machine | None = None
        """Who assumes of its hooks what they are made of, where each call puts others."""

    def describe(self) -> str:
        return f"module {self.cls.__qualname__}"

    @cached_property
    def known_as(self) -> str:
        """Its path as ``named_modules()`` has it, behind the variable that holds the outermost one unless that is ``self``."""
        first, *inner = str(self.source).split(".__dict__['_modules']")
        first = first.removesuffix(".__call__.__self__").removesuffix(".cell_contents")  # of one that was compiled by itself
        held = re.search(r"\['(\w+)'\]$", first)
        name = held[1] if held else first
        return ".".join([*([] if name == "self" else [name]), *(each.strip("[]'") for each in inner)])

    @property
    def attrs(self) -> DictValue:
        if self._attrs is None:
            items: dict[object, tuple[Value, object]] = {
                k: (ConstantValue(k), Lazy(v, Item(self.path, k))) for k, v in self.obj.__dict__.items()
            }
            self._attrs = DictValue(items, dict, self.path, self.obj.__dict__)
        return self._attrs

    def getattr(self, vm: Machine, name: str) -> Value:
        if not self.reads_plainly:
            return super().getattr(vm, name)
        owner, raw = find_now(vm, self.cls.__mro__, name)
        if raw is not MISSING or name in ("__dict__", "__class__"):
            if type(raw) is types.FunctionType and self.own(vm, name) is MISSING and self._attrs is None:
                return bind_descriptor(vm, owner, name, raw, self, ConstantValue(None))
            found = vm.attempt(lambda: self.generic_getattr(vm, name), AttributeError)
            if found is not None:
                return found
        else:
            found = self.own(vm, name)
            if found is not MISSING:
                return found
        for store in STORES:
            found = self.stored(vm, store, name)
            if found is not MISSING:
                return found
        for store in STORES:
            vm.guard(Absent(self.tables[store], name))
        vm.guard_lookup(self.cls, None, name)
        vm.no_attribute(self, name, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def own(self, vm: Machine, name: str) -> Value:
        """From the instance dictionary, which stays untracked until something writes to it."""
        if self._attrs is not None:
            return self._attrs.lookup(vm, name)
        value = self.obj.__dict__.get(name, MISSING)
        if value is MISSING:
            vm.guard(Absent(self.path, name))
            return MISSING
        if name in STORES or isinstance(value, dict):
            return self.attrs.lookup(vm, name)
        return vm.wrap(value, Item(self.path, name))

    def instance_attribute(self, vm: Machine, name: str) -> Value:
        return self.own(vm, name)

    def stored(self, vm: Machine, store: str, name: str) -> Value:
        if self._attrs is not None:
            entry = self._attrs.items.get(store)
            if entry is not None and isinstance(entry[1], DictValue):
                return entry[1].lookup(vm, name)
            if entry is not None and type(entry[1]) is not Lazy:
                vm.unsupported("FE041", f"attribute {name} of {self.describe()}", f"captured code made {store} another mapping than a dict")
        value = self.obj.__dict__[store].get(name, MISSING)
        if value is MISSING:
            return MISSING
        return vm.wrap(value, Item(self.tables[store], name))

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        plain = find_in_mro(self.cls.__mro__, "__setattr__")[0] is torch.nn.Module
        holding = [store for store in STORES if self.stored(vm, store, name) is not MISSING]
        marked = isinstance(value, TensorValue) and any(value.says(vm, mark) for mark in SAID.values())
        special = bool(holding) or marked or issubclass(value.python_type(), (torch.nn.Parameter, torch.nn.Module))
        if plain and not special:
            for store in STORES:
                if name not in self.obj.__dict__[store]:
                    vm.guard(Absent(self.tables[store], name))
            self.generic_setattr(vm, name, value)
        elif plain and holding == ["_buffers"] and value.python_type() is torch.Tensor and not marked:
            self.getattr(vm, "_buffers").dunder(vm, "__setitem__", [ConstantValue(name), value])
        else:
            super().setattr(vm, name, value)

    def assume_hooks(self) -> None:
        """Its hooks are the same ones, or as many, which are read where they are."""
        if self.rehooked is None:
            self.assumes_hooks = True
            return
        for name in HOOK_TABLES:
            table = self.own(self.rehooked, name) if name in self.obj.__dict__ else None
            if isinstance(table, DictValue) and table.source is not None:
                table.guard_keys(self.rehooked)

    def has_hooks(self) -> bool:
        self.assume_hooks()
        return any(self.table_now(h) for h in HOOKS) or any(getattr(torch_module, h) for h in GLOBAL_HOOKS)

    def table_now(self, name: str) -> Collection[object]:
        """One of its dictionaries, as captured code has left it."""
        entry = None if self._attrs is None else self._attrs.items.get(name)
        found = None if entry is None else entry[1]
        table: Collection[object] = found.items if isinstance(found, DictValue) else self.obj.__dict__[name]
        return table

    def has_own_call(self) -> bool:
        """Whether a call is another one than that of ``torch.nn.Module``."""
        raw = find_in_mro(self.cls.__mro__, "__call__")[1]
        impl = find_in_mro(self.cls.__mro__, "_call_impl")[1]
        slow = any(name in self.obj.__dict__ for name in OWN_CALLS[1:])
        return raw is not torch.nn.Module.__call__ or impl is not torch.nn.Module._call_impl or slow

    def goes_to_forward(self) -> bool:
        return self.obj.__dict__.get("_compiled_call_impl") is None and not self.has_hooks()

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.has_own_call():
            return super().call(vm, args, kwargs)
        if runs_between(self.obj):
            why = "hooks of it are disabled or called by the backward: they run as they are, and its forward is captured by itself"
            vm.unsupported("FE086", f"call of a {self.cls.__qualname__} with hooks", why, "compile the module before it is given the hooks")
        for name in OWN_CALLS:
            if name not in self.obj.__dict__:
                vm.guard(Absent(self.path, name))
        if self.goes_to_forward():
            return vm.call(self.getattr(vm, "forward"), args, kwargs)
        impl = torch.nn.Module._call_impl
        return vm.call(MethodValue(vm.wrap(impl, Pinned(impl, "_call_impl")), self), args, kwargs)

    def callee(self) -> object:
        mro = self.cls.__mro__
        if self.has_own_call():
            return super().callee()
        if runs_between(self.obj):
            return None
        if not self.goes_to_forward():
            return torch.nn.Module._call_impl
        if not self.finds_methods:
            return None
        forward = find_in_mro(mro, "forward")[1]
        return forward if type(forward) is types.FunctionType and "forward" not in self.obj.__dict__ and self._attrs is None else None
