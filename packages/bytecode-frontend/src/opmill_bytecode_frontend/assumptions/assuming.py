"""What one capture assumes of the program's objects: guards, collected by what they are about."""

from __future__ import annotations

import types
from typing import Any, NoReturn

import torch

from opmill_guards.guard import Absent, DictKeys, Is, Predicate, SameObject
from opmill_guards.source import Attr, InstanceDict, Item, Pinned, Source, Step

from ..effects.changes import Effects
from ..entry.varying import Varying
from ..interpretation.owners import exempt, installed, is_users
from ..values.base import MISSING, Value, find_in_mro
from ..values.functions import FunctionValue
from ..values.made_classes import NewClass
from ..values.modules import HOOKS, STORES, ModuleValue
from ..values.per_call import GivenClass
from .asked import is_asked

#: Of guards of one kind on one source, what else tells them apart.
TOLD_APART: dict[object, str] = {Absent: "key", SameObject: "other", Predicate: "label"}


class Assumptions:
    """The interpreter's part that records guards."""

    known: dict[int, tuple[object, Value]]
    effects: Effects
    varying: Varying
    guards: dict[object, object]
    tree_guards: dict[object, object]
    tensor_guards: list[object]
    tree_tensors: list[object]
    modules: dict[object, ModuleValue]
    below_modules: dict[object, bool]
    tree_classes: set[type]

    def unsupported(self, code: str, what: str, why: str = "", hint: str = "") -> NoReturn:
        raise NotImplementedError

    def guard(self, guard: Any) -> None:
        kind = type(guard)
        source, part = guard.source, TOLD_APART.get(kind)
        key = (kind, source) if part is None else (kind, source, getattr(guard, part))
        where = self.tree_guards if self.of_module(source) else self.guards
        where.setdefault(key, guard)

    def guard_tensor(self, guard: object, held: bool) -> None:
        (self.tree_tensors if held else self.tensor_guards).append(guard)

    def of_module(self, source: Source | None) -> bool:
        """Whether the path to a value leads through a known module: the module tree guard decides by itself which facts about such values
        its evidence implies."""
        found = self.below_modules.get(source)
        if found is None:
            found = source in self.modules or (isinstance(source, Step) and self.of_module(source.base))
            self.below_modules[source] = found
        return found

    def in_tree(self, source: Source | None) -> bool:
        """Whether the source reads a dictionary of a tracked module directly: tensors found there are at hand when the guards were
        checked."""
        if type(source) is not Item or type(source.key) is not str:
            return False
        base = source.base
        if type(base) is Item and base.key in STORES:
            base = base.base
        return type(base) is InstanceDict and base.base in self.modules

    def is_module_table(self, source: Source | None) -> bool:
        """Whether the source is one of the dictionaries of a tracked module that a module tree guard watches."""
        if type(source) is not Item or type(source.base) is not InstanceDict:
            return False
        return source.key in STORES + HOOKS and source.base.base in self.modules

    def use_module(self, module: ModuleValue) -> None:
        if is_asked(module.source):
            self.unsupported(
                "FE010", f"a look into {module.describe()} that a cache gives", "its structure is assumed when the function is called"
            )
        if module.source not in self.modules:
            self.modules[module.source] = module
            self.below_modules.clear()
            self.tree_classes.update(module.cls.__mro__)

    def is_made(self, cls: type) -> bool:
        """Whether a class is the model of one that captured code makes, or stands for one that each call gives anew: nobody else can change
        it."""
        return id(cls) in self.known and type(self.known[id(cls)][1]) in (NewClass, GivenClass)

    def guards_attributes(self, cls: type) -> bool:
        """Whether attributes of a class are guarded one by one: not of those that captured code makes, nor where they are assumed or the
        module tree's."""
        return not (self.is_made(cls) or exempt(cls.__module__) or self.is_of_tree(cls))

    def is_of_tree(self, cls: type) -> bool:
        """Whether a module of that class is known: then the module tree guards its attributes."""
        return cls in self.tree_classes and issubclass(cls, torch.nn.Module)

    def class_source(self, owner: type, name: str, raw: object) -> Item | Pinned:
        if self.is_made(owner) and type(given := self.known[id(owner)][1]) is GivenClass:
            return given.source_of(name, raw) or Pinned(raw, name)
        fixed = not self.guards_attributes(owner) and (owner, name) not in self.varying.apart
        if fixed or (id(owner), name) in self.effects.attributes or name == "__dataclass_fields__":
            return Pinned(raw, f"{owner.__qualname__}.{name}")
        return Item(InstanceDict(Pinned(owner, owner.__qualname__)), name)

    def guard_object(self, value: Value) -> None:
        """A value of before the call is the very object that it is now. Raises Unsupported (FE067) where another was seen at each call."""
        if value.source in self.varying.opaque:
            self.unsupported(
                "FE067", f"which object {value.source} is", "it is another at each call", "hand over a number or text that stands for it"
            )
        if value.source is not None and type(value.source) is not Pinned:
            self.guard(Is(value.source, value.real()))

    def guard_function(self, fn: FunctionValue) -> None:
        """Code and defaults of a function of before the call are still its own. Installed packages do not replace theirs."""
        if fn.obj is None or installed(fn.code.co_filename):
            return
        source: Source = fn.source
        for name in ("__code__", "__defaults__"):
            self.guard(Is(Attr(source, name), getattr(fn.obj, name)))
        named, place = fn.obj.__kwdefaults__, Attr(source, "__kwdefaults__")
        self.guard(Is(place, None) if named is None else DictKeys(place, tuple(named)))
        for name, value in (named or {}).items():
            self.guard(Is(Item(place, name), value))

    def guard_class(self, owner: type, name: str, raw: object) -> None:
        source = self.class_source(owner, name, raw)
        if type(source) is not Pinned:
            self.guard(Is(source, raw))

    def hook(self, cls: type, name: str) -> object:
        """What a class has for a method of the data model (MISSING: nothing). Where that is the program's, it is assumed; and that
        the program does not get one."""
        owner, raw = find_in_mro(cls.__mro__, name)
        ours = type(raw) is types.FunctionType
        if ours or name != "__getattr__":  # which is assumed where an attribute is missing
            self.guard_lookup(cls, owner, name)
        if ours:
            self.guard_class(owner, name, raw)
        return raw

    def guard_hooks_apart(self) -> None:
        """Methods of the data model that were seen to come and go on classes of modules are what they are now: any use of a module asks for
        them."""
        for cls, name in self.varying.apart:
            if name[:2] == name[-2:] == "__" or name == "_call_impl":
                table, raw = InstanceDict(Pinned(cls, cls.__qualname__)), vars(cls).get(name, MISSING)
                self.guard(Absent(table, name) if raw is MISSING else Is(Item(table, name), raw))

    def guard_lookup(self, cls: type, owner: type | None, name: str) -> None:
        """The MRO is the same, and no class before ``owner`` in it (None: no class at all) has been given the attribute. Asked of the
        user's own classes only."""
        if is_users(cls) and self.guards_attributes(cls):
            self.guard(Is(Attr(Pinned(cls, cls.__qualname__), "__mro__"), cls.__mro__))
        for before in cls.__mro__:
            if before is owner:
                return
            guarded = (is_users(before) and self.guards_attributes(before)) or (before, name) in self.varying.apart
            if guarded and (id(before), name) not in self.effects.attributes:
                self.guard(Absent(InstanceDict(Pinned(before, before.__qualname__)), name))

    def guard_shadowed(self, cls: type, owner: type | None, name: str, raw: object) -> None:
        """What instances have under a name is asked for after what a data descriptor of their class would give: none has come."""
        if owner is None:
            self.guard_lookup(cls, None, name)
        elif (id(owner), name) not in self.effects.attributes:
            self.guard_class(owner, name, raw)


__all__ = ["Assumptions"]
