"""Which sizes and numbers a capture does not assume, and how that is learned: static first, what changed is symbolic from then on."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, cast

import torch
from msgspec import Struct, field, structs

from opmill_guards import reference
from opmill_guards.guard import Equals, Is, Length, ModuleFacts, ModuleTree, Predicate, SizeRelation, TensorMatch, TypeIs
from opmill_guards.kinds.module_tree import hooks_of
from opmill_guards.source import Attr, Item, Local, Source
from opmill_guards.storage import is_of, length_of
from opmill_guards.weak import WeakObject, kind_of_held, living

from ..assumptions.asked import is_asked
from ..assumptions.contents import Holds, Items
from ..assumptions.layouts import Laid, Number
from ..values.base import written_in_python

if TYPE_CHECKING:
    from opmill_guards._native import Entry

SMALLEST = 2
"""Sizes 0 and 1 are always assumed: they broadcast, or hold nothing."""
REWRITTEN = 2
"""Misses for what a small tensor holds after which graphs no longer depend on it: a flag that is set once costs one."""
APART = (
    *(type, functools.partial, torch.nn.Module, torch.Tensor, enum.Enum, bool, type(None), type(...), type(NotImplemented)),
    *(FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, ModuleType, CodeType),
    *(torch.dtype, torch.layout, torch.memory_format, torch.device, torch._ops.OpOverload, torch._ops.OpOverloadPacket),
)
"""Of these a few are known each by itself."""
CHANGES = 3
"""Misses for the value of a number argument (of an int: for one that had to be assumed again) after which graphs no longer depend on it."""


class Limits(Struct, frozen=True):
    """The range of a symbolic dimension, ends included. ``asked``: the program itself marked it."""

    low: int = SMALLEST
    high: int | None = None
    asked: bool = False


class Changing(Struct, frozen=True):
    """Sources of numbers, and of lists of which the lengths are, that are known to be others at the next call before there was one."""

    ints: frozenset[Source] = frozenset()
    floats: frozenset[Source] = frozenset()
    lengths: frozenset[Source] = frozenset()


NONE = Changing()


class Varying(Struct, frozen=True):
    """What one capture does not assume. ``everything``: all sizes and ints of the arguments; ``nothing``: no marks of tensors either.
    ``sizes`` and ``strides``: dimensions that were different at several calls; ``ints``, ``floats``: sources of such numbers; ``small``:
    those of ``ints`` that were 0 or 1 at a call; ``opaque``: numbers, texts and sets among the arguments, and texts between two graphs,
    that graphs do not depend on at all, and objects of which no graph depends on which one it is."""

    everything: bool = False
    nothing: bool = False
    sizes: Mapping[Source, frozenset[int]] = field(default_factory=dict)  # not {}: nobody shall write to it
    strides: Mapping[Source, frozenset[int]] = field(default_factory=dict)  # not {}: nobody shall write to it
    ints: frozenset[Source] = frozenset()
    small: frozenset[Source] = frozenset()
    floats: frozenset[Source] = frozenset()
    opaque: frozenset[Source] = frozenset()
    remade: bool = False
    """Whether functions and classes among the arguments that were made by calls are known by what they are made of, not by identity."""
    rehooked: bool = False
    """Whether hooks of modules are known by what they are made of, too."""
    apart: frozenset[tuple[type, str]] = frozenset()
    """Attributes of classes of modules that captured code was seen to change."""
    contents: frozenset[Source] = frozenset()
    """Small tensors of modules whose values were seen to change again."""
    data: bool = False
    """Whether sizes that only data tell may be symbols."""
    lengths: frozenset[Source] = frozenset()
    """Lists and deques that had other lengths."""
    rebound: frozenset[Source] = frozenset()
    """Attributes and items of objects of before that the program gave others of the same class."""
    called: bool = False
    """Whether the capture is for all functions of a piece of code, and what the one that is called has is read of it."""

    def dimensions(self, source: Source, tensor: torch.Tensor, held: bool = False) -> dict[int, Limits]:
        """The dimensions of an input that are symbolic. ``held``: it is a tensor of a module: of parameters none are, of others those that
        were seen to change."""
        if self.nothing or (held and (isinstance(tensor, torch.nn.Parameter) or source not in self.sizes)):
            return {}
        marks = tensor.__dict__
        chosen = set(range(tensor.dim())) if self.everything else set(self.sizes.get(source, ()))
        chosen -= marks.get("_dynamo_static_indices", set())
        chosen |= marks.get("_dynamo_weak_dynamic_indices", set())
        asked = marks.get("_dynamo_dynamic_indices", set()) | marks.get("_dynamo_unbacked_indices", set())
        limits = {
            each.dim: Limits(max(each.min or 0, SMALLEST), each.max, True)
            for each in marks.get("_dynamo_dynamic_range", ())
            if each.dim in asked
        }
        found = {d: limits.get(d, Limits(asked=d in asked)) for d in sorted(chosen | asked) if d < tensor.dim()}
        return {d: own for d, own in found.items() if own.low <= tensor.size(d) and (own.high is None or tensor.size(d) <= own.high)}

    def moving(self, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """The dimensions whose strides are not assumed, of a tensor whose sizes may be. One with fewer dimensions may have been found at
        the source, too."""
        return frozenset() if self.nothing else frozenset(d for d in self.strides.get(source, ()) if d < tensor.dim())

    def is_int(self, source: Source, value: int) -> bool:
        """Whether an int found at ``source`` is symbolic."""
        if self.nothing or value < self.low(source):
            return False
        return source in self.ints or (self.everything and from_argument(source))

    def low(self, source: Source) -> int:
        """The least value of a symbolic int: as numbers 0 and 1 are like others, and what a program makes of one is a decision where they
        are not."""
        return 0 if source in self.small else SMALLEST

    def is_float(self, source: Source) -> bool:
        """Whether a float found at ``source`` is symbolic."""
        return not self.nothing and (source in self.floats or (self.everything and from_argument(source)))


def from_argument(source: Source) -> bool:
    """Whether a source starts at an argument of the call."""
    return type(source.root) is Local and not is_asked(source)


def on_stack(source: Source | None) -> bool:
    """Whether a source is something that stood on the stack when a graph ended, or an item in it: that of a loop over ``zip`` or
    ``items``."""
    while type(source) is Item:
        source = source.base
    return type(source) is Local and source.name.startswith(".stack")


class Seen:
    """What was different at the calls of one function so far."""

    def __init__(
        self,
        dynamic: bool | None,
        may_break: bool,
        patience: int = CHANGES,
        known: Changing = NONE,
        called: bool = False,
        remade: bool = False,
    ) -> None:
        self.dynamic = dynamic
        self.may_break = may_break
        self.sizes: dict[Source, set[int]] = {}
        self.strides: dict[Source, set[int]] = {}
        changing = NONE if dynamic is False else known
        self.ints: set[Source] = set(changing.ints)
        self.small: set[Source] = set(changing.ints)
        self.floats: set[Source] = set(changing.floats)
        self.texts: dict[Source, int] = {}
        """How often a text or a set did."""
        self.patience = patience
        """How often it may: programs have modes, of which each shall have graphs of its own."""
        self.contents: dict[Source, int] = {}
        """How often what a small tensor holds led to another capture."""
        self.numbers: dict[Source, int] = {}
        """How often a value led to another capture."""
        self.before: dict[Source, frozenset[int]] = {}
        """The entries (`id`) that there were when a number was seen to change: that they assume it tells nothing of those made since."""
        self.called = called
        self.remade = remade
        """Whether a call gave a function or class that differed from that of before in its identity alone."""
        self.rehooked = False
        """Whether modules had as many hooks of the same kinds at another call, which were others."""
        self.apart: frozenset[tuple[type, str]] = frozenset()
        self.lengths: set[Source] = set(changing.lengths)
        self.rebound: set[Source] = set()
        """Where an object was another one at another call, though no argument led there."""
        self.failed: object = None
        """What was symbolic when a capture with that failed last: there is none more with just the same."""

    def has_symbols(self) -> bool:
        """Whether a capture may have had symbolic sizes by what was seen or asked for."""
        return bool(self.dynamic or self.sizes or self.strides or self.ints or self.floats)

    def symbolic(self) -> object:
        """All that was seen to change."""
        dims = [frozenset((source, d) for source, dims in seen.items() for d in dims) for seen in (self.sizes, self.strides)]
        return (*dims, frozenset(self.ints), frozenset(self.small), frozenset(self.floats))

    def varying(self) -> Varying:
        """What the next capture does not assume."""
        contents = frozenset(source for source, count in self.contents.items() if count >= REWRITTEN)
        often = [source for source, count in self.numbers.items() if count >= CHANGES]
        often += [source for source, count in self.texts.items() if count >= self.patience]
        opaque = frozenset(often if self.may_break else ())
        remade = self.remade or self.rehooked
        known = Varying(opaque=opaque, remade=remade, rehooked=self.rehooked, apart=self.apart, contents=contents, called=self.called)
        known = structs.replace(known, lengths=frozenset(self.lengths), rebound=frozenset(self.rebound))
        if self.dynamic is False or (self.failed is not None and self.failed == self.symbolic()):
            return structs.replace(known, nothing=True)
        sizes = {source: frozenset(dims) for source, dims in self.sizes.items()}
        strides = {source: frozenset(dims) for source, dims in self.strides.items()}
        return structs.replace(
            known,
            everything=bool(self.dynamic),
            sizes=sizes,
            strides=strides,
            ints=frozenset(self.ints),
            small=frozenset(self.small),
            floats=frozenset(self.floats),
        )

    def note(self, entries: Iterable[Entry], values: Mapping[str, object]) -> list[object]:
        """A call with these arguments fits no entry: what differs from what each of them assumes is not assumed again. Gives the guards of
        texts, sets and objects on which graphs do not depend from now on."""
        missed: set[Source] = set()
        rewritten: set[Source] = set()
        texts: set[Source] = set()
        said: dict[Source, object] = {}
        same: set[Source] = set()
        learnt = self._known_numbers()
        entries = list(entries)
        for entry in entries:
            other = of_another_class(entry.guards, values)
            for guard in each_fact(entry.guards):
                if other and hangs_on(getattr(guard, "source", None), other):
                    continue
                if type(guard) is ModuleTree and guard.snapshot is not None:
                    self.apart = self.apart.union(guard.snapshot.changed_attributes())
                    self.rehooked = self.rehooked or any(has_other_hooks(each, values) for each in guard.modules)
                elif type(guard) is TensorMatch:
                    with torch._C.DisableTorchFunctionSubclass():
                        self._note_tensor(guard, values)
                elif type(guard) is Predicate and type(guard.function) is Laid:
                    self._note_array(guard, value_of(guard.source, values))
                elif type(guard) is Length:
                    self.lengths |= set() if length_of(value_of(guard.source, values)) in (None, guard.length) else {guard.source}
                elif type(guard) is Predicate and type(guard.function) is Number:
                    missed |= self._note_number_of_numpy(guard, value_of(guard.source, values))
                elif type(guard) is Predicate and type(guard.function) is Holds:
                    (same if reference.check(guard, values) else rewritten).add(guard.source)
                elif is_of_text(guard):
                    if reference.check(guard, values):
                        same.add(guard.source)
                    elif is_of(value_of(guard.source, values), (str, bytes, set, frozenset)):  # not where it is not given at all
                        texts.add(guard.source)
                        said[guard.source] = guard
                elif type(guard) in (Is, TypeIs) and from_argument(guard.source):
                    if type(guard) is Is and is_another(guard.object, value_of(guard.source, values)):
                        missed.add(guard.source)
                        said[guard.source] = guard
                        if on_stack(guard.source.root):  # each call makes one between two graphs
                            self.numbers[guard.source] = CHANGES
                    self.remade = self.remade or is_remade(guard, value_of(guard.source, values))
                elif type(guard) is Is and is_replaced(guard, value_of(guard.source, values)):
                    self.rebound.add(guard.source)
                elif type(guard) is Equals and is_part_of_range(guard, values):
                    missed |= set() if reference.check(guard, values) else {cast(Attr, guard.source).base}
                elif type(guard) is Equals and type(guard.value) is complex:
                    now = value_of(guard.source, values)
                    missed |= {guard.source} if type(now) is complex and not reference.check(guard, values) else set()
                elif type(guard) is Equals and type(guard.value) in (int, float):
                    if id(entry) not in self.before.get(guard.source, ()):
                        self._note_number(guard, values, missed)
                elif type(guard) is Equals and type(guard.value) in (str, bytes) and on_stack(guard.source):
                    if not reference.check(guard, values):  # a text made between two graphs
                        self.numbers[guard.source] = CHANGES
                elif (
                    type(guard) is SizeRelation
                    and guard.sources
                    and type(guard.sources[0]) is Local
                    and guard.expression.startswith("s0 == ")
                ):
                    missed |= set() if reference.check(guard, values) else {guard.sources[0]}
        for source, _ in self._known_numbers() - learnt:
            self.before[source] = frozenset(map(id, entries))
        for source in missed:
            self.numbers[source] = self.numbers.get(source, 0) + 1
        for source in texts - same:
            self.texts[source] = self.texts.get(source, 0) + 1
        for source in rewritten - same:
            self.contents[source] = self.contents.get(source, 0) + 1
        often = {source for source in texts - same if self.texts[source] == self.patience}
        often |= {source for source in missed if self.numbers[source] == CHANGES}
        return [guard for source, guard in said.items() if source in often and self.may_break and not on_stack(source)]

    def dropped(self, entry: Entry) -> None:
        """An entry is gone: another one may get its number."""
        self.before = {source: entries - {id(entry)} for source, entries in self.before.items()}

    def _known_numbers(self) -> set[tuple[Source, str]]:
        """The numbers that are known to change, and as what."""
        kinds = {"int": self.ints, "small": self.small, "float": self.floats}
        return {(source, kind) for kind, sources in kinds.items() for source in sources}

    def _note_tensor(self, guard: TensorMatch, values: Mapping[str, object]) -> None:
        tensor = value_of(guard.source, values)
        if not isinstance(tensor, torch.Tensor) or guard.sizes is None or tensor.dim() != len(guard.sizes) or tensor.dtype != guard.dtype:
            return
        changed = {d for d, n in enumerate(guard.sizes) if n is not None and n != tensor.size(d)}
        if changed and not guard.dtype.is_floating_point and not guard.dtype.is_complex:
            changed = set(range(tensor.dim()))  # tokens and masks have no features: where one size changes, so will the others
        if changed:
            self.sizes.setdefault(guard.source, set()).update(changed)
        if guard.strides is not None and tensor.layout is torch.strided:
            moved = {d for d, n in enumerate(guard.strides) if n is not None and n != tensor.stride(d)}
            self.strides.setdefault(guard.source, set()).update(moved)

    def _note_array(self, guard: Predicate, array: object) -> None:
        assert isinstance(guard.function, Laid), guard.function
        if changed := guard.function.changed(array):
            self.sizes.setdefault(guard.source, set()).update(changed)

    def _note_number_of_numpy(self, guard: Predicate, now: object) -> set[Source]:
        """An integer may be a mode, or decide sizes: it takes several to be no part of graphs."""
        assert isinstance(guard.function, Number), guard.function
        if type(now) is not guard.function.cls or guard.function(now) or self.dynamic is False:
            return set()
        self.floats |= {guard.source} if guard.function.floating else set()
        return set() if guard.function.floating else {guard.source}

    def _note_number(self, guard: Equals, values: Mapping[str, object], missed: set[Source]) -> None:
        now = value_of(guard.source, values)
        if type(now) is not type(guard.value) or now == guard.value:
            return
        if now != now and guard.value != guard.value:  # a NaN is no other value
            return
        before = guard.value
        if isinstance(now, int) and isinstance(before, int) and self._may_be_symbol(guard.source, min(now, before)):
            self.ints.add(guard.source)
            if min(now, before) < SMALLEST:
                self.small.add(guard.source)
        elif type(now) is float and self.dynamic is not False and guard.source not in self.floats:
            self.floats.add(guard.source)
        elif type(guard.source) is Local or on_stack(guard.source):
            missed.add(guard.source)

    def _may_be_symbol(self, source: Source, least: int) -> bool:
        """Whether an int that was different, with ``least`` among its values, is worth another symbol than it had."""
        return least >= 0 and self.dynamic is not False and source not in self.ints & self.small


def is_of_text(guard: object) -> bool:
    """Whether a guard says what a text or a set among the arguments is."""
    found = type(guard) is Predicate and type(guard.function) is Items
    return found or (
        type(guard) is Equals and type(guard.value) in (str, bytes) and from_argument(guard.source) and not on_stack(guard.source)
    )


def is_part_of_range(guard: Equals, values: Mapping[str, object]) -> bool:
    """Whether a guard says where a range begins or ends, or its step."""
    return type(guard.source) is Attr and type(value_of(guard.source.base, values)) is range


def is_another(one: object, other: object) -> bool:
    """Whether two objects differ in their identity, and are of a class of which programs make many."""
    kind = kind_of_held(one)
    return not issubclass(kind, APART) and living(one) is not other and type(other) is kind


def is_replaced(guard: Is, now: object) -> bool:
    """Whether an attribute or item holds another container, or object of the program's, of the same class."""
    found = type(guard.source) is Item and now is not living(guard.object) and type(now) is kind_of_held(guard.object)
    plain = is_of(now, (dict, list, collections.deque, SimpleNamespace)) or is_another(guard.object, now)
    return found and plain and not is_of(now, (FunctionType, torch.nn.Module, torch.Tensor, type))


def is_remade(guard: Is | TypeIs, now: object) -> bool:
    """Whether a guard of identity misses a function, or the class of an object, that was made again by the same definition."""
    if isinstance(guard, Is):
        return now is not living(guard.object) and same_definition(now, guard.object)
    return type(now) is not guard.type and same_definition(type(now), guard.type)


def has_other_hooks(facts: ModuleFacts, values: Mapping[str, object]) -> bool:
    """Whether a module has as many hooks as it had, of the same kinds, and not the same ones: each call puts its own."""
    module = value_of(facts.source, values) if facts.hooks is not None and any(facts.hooks) else None
    if facts.hooks is None or type(module) is not facts.type:
        return False
    pairs = [
        (hook, held) for now, before in zip(hooks_of(module), facts.hooks, strict=True) for hook, held in itertools.zip_longest(now, before)
    ]
    return all(type(hook) is kind_of_held(held) for hook, held in pairs) and any(hook is not living(held) for hook, held in pairs)


def is_made_by_function(made: type | FunctionType) -> bool:
    """Whether a function or class was made by a function: it is not what its module has under its name."""
    if "<locals>" in made.__qualname__:
        return True
    found: object = sys.modules.get(str(made.__module__))
    for name in made.__qualname__.split("."):
        found = vars(found).get(name) if isinstance(found, (type, ModuleType)) else None
    return found is not made and isinstance(made, type) and written_in_python(made)


def same_definition(one: Any, other: Any) -> bool:
    """Whether two functions have one code, two partials such functions or the same, two classes made by functions one name."""
    if type(one) is not kind_of_held(other):
        return False
    if type(other) is WeakObject:  # which may have died
        made_of: object = other.made_of
        if type(one) is functools.partial:
            return one.func is living(made_of) or same_definition(one.func, made_of)
        return type(one) is FunctionType and one.__code__ == made_of
    if isinstance(one, type):
        return is_made_by_function(one) and (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    if type(one) is FunctionType:
        return one.__code__ == other.__code__
    return type(one) is functools.partial and (one.func is other.func or same_definition(one.func, other.func))


def of_another_class(guards: Iterable[object], values: Mapping[str, object]) -> set[Source]:
    """Sources of objects that are of another class now: what else was assumed of them is not asked: that might run code of the class."""
    other: set[Source] = set()
    for guard in guards:
        if type(guard) is TypeIs and not hangs_on(guard.source, other) and not reference.check(guard, values):
            other.add(guard.source)
    return other


def hangs_on(source: object, others: set[Source]) -> bool:
    """Whether a source leads through one of the others."""
    base = getattr(source, "base", None)
    return base is not None and (base in others or hangs_on(base, others))


def each_fact(guards: Iterable[object]) -> Iterator[Any]:
    """The guards, and those that a tree of modules checks where something in it changed."""
    for guard in guards:
        yield guard
        if type(guard) is ModuleTree:
            yield from guard.then
            yield from guard.tensors


def value_of(source: Source, values: Mapping[str, object]) -> object:
    """What a source gives for these arguments; None where it leads nowhere."""
    try:
        return reference.read(source, values)
    except reference.Unreadable:
        return None


__all__ = ["NONE", "Changing", "Limits", "Seen", "Varying", "from_argument"]
