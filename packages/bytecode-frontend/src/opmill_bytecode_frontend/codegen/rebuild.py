"""Expressions that rebuild tracked values after the graph has run; objects are built once, so that identity is kept."""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import torch

from opmill_fake_tensors.symbols import index, sym_int
from opmill_guards import instance_dict
from opmill_guards.source import Pinned

from .._native import store_known
from ..errors import Unsupported
from ..graph.chance_states import states_of
from ..values.base import MISSING, BuiltinMethod, Lazy, Value, find_in_mro, program_hash
from ..values.classes import ClassValue, ModuleObject, SuperValue
from ..values.compiled_here import CompiledHere, CompilerHere
from ..values.constant import LITERALS, BuiltinConstantMethod, ConstantValue
from ..values.deques import DequeValue
from ..values.enumerated import EnumValue
from ..values.exceptions import ExceptionObject
from ..values.floating import FloatNumber, written
from ..values.functions import BuiltinValue, CellValue, FunctionValue, MethodValue, PartialValue, ViewOfBefore, WeakReference
from ..values.handle_ids import SOURCE as HANDLES
from ..values.handle_ids import GivenId, claim
from ..values.iterators import ExternalIterator
from ..values.launcher import KernelLauncher
from ..values.made_classes import DescriptorValue, NewClass
from ..values.mapping import DictValue, DictView, SetValue
from ..values.new_data import alias
from ..values.number import SymbolicNumber, UndecidedTruth
from ..values.objects import BoundSlot, ObjectValue, builtin_base
from ..values.opaque import Untouched
from ..values.overriding import OverridingTensor
from ..values.per_call import GivenClass
from ..values.ragged import RaggedSize
from ..values.sequence import ListValue, SliceValue, TupleValue
from ..values.tensor import TensorMethod, TensorValue
from ..values.varying import MadeAnew, VaryingNumber
from .sources import Constants, expression, is_single

if TYPE_CHECKING:
    from opmill_guards.source import Source

    from ..interpretation.machine import Interpreter


Builder = Callable[..., str]
B = TypeVar("B", bound=Builder)
BUILDERS: dict[type, Builder] = {}


def rebuilds(*kinds: type) -> Callable[[B], B]:
    """Registers a function of a rebuilder and a value, which gives the expression, for exactly these classes of tracked values."""

    def add(builder: B) -> B:
        for kind in kinds:
            BUILDERS[kind] = builder
        return builder

    return add


class Rebuilder:
    """Collects the statements: ``prologue`` reads what existed before anything changes, ``body`` comes after the graph."""

    def __init__(self, vm: Interpreter) -> None:
        self.vm = vm
        self.constants = Constants()
        self.prologue: list[str] = []
        self.body: list[str] = []
        self.outputs: list[TensorValue | SymbolicNumber] = []
        self.unfinished: list[object] = []
        """Generators met so far that were suspended."""
        self.handles = ""
        """The name of the first number of a handle."""
        self.states = ""
        """The name of the states that generators were in before they were drawn from."""
        self._sources: dict[object, str] = {}
        self._built: dict[int, str] = {}
        self._keep: list[object] = []
        self._assigned: list[str] = []
        self.forgets = False
        """Whether the variables of what was built are cleared before anything goes on: exceptions are among it, or one may be caught that
        knows the frame."""
        self._count = 0
        self._reads = 0

    def temporary(self, prefix: str = "_v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def source(self, source: object) -> str:
        """The name of what a source gave when the call began; below a class that captured code makes, the expression of what that has."""
        made = self.made_by_call(getattr(source, "root", None))
        text = expression(source, self.constants, self.vm.overridden)
        if made or text.isidentifier():
            return text
        found = self._sources.get(text)
        if found is None:
            found = self._sources[text] = self.temporary("_s")
            self.prologue.append(f"{found} = {text}")
            self._reads += 1
        return found

    def made_by_call(self, source: object) -> bool:
        """Whether a source is the model of a class that each call makes: from then on the class is built, and has the model's name."""
        if type(source) is not Pinned or not issubclass(type(source.object), type) or not self.vm.is_made(source.object):
            return False
        self.constants.rename(source.object, self.class_name(source.object))
        return True

    def only_reads(self) -> bool:
        """Whether nothing is done before the graph but to read what its guards know."""
        return len(self.prologue) == self._reads

    def input(self, value: Any) -> str:
        """What the graph is given for one of its inputs."""
        if getattr(value, "below", False):
            return f"{self.constants.name(torch.Tensor.as_subclass)}({self.source(value.source)}, {self.constants.name(torch.Tensor)})"
        if getattr(value, "aliased", False):
            return f"{self.constants.name(alias)}({self.source(value.source)})"
        if getattr(value, "of_array", False):
            whole = "[...]" if value.of_number else ""
            return f"{self.constants.name(torch.from_numpy)}({self.source(value.source)}{whole})"
        if getattr(value, "computed", None) is not None:
            return self.computed(*value.computed[1:])
        number: Any = getattr(value, "scalar", None)
        if hasattr(getattr(number, "cls", None), "__array__"):  # one of NumPy's
            return f"{self.constants.name(torch.from_numpy)}({self.expr(number)}{'' if hasattr(number.cls, '__setitem__') else '[...]'})"
        there = "" if number is None or value.obj.is_cpu else f", device={self.constants.name(value.obj.device)}"
        return (
            self.source(value.source)
            if number is None
            else f"{self.constants.name(torch.scalar_tensor)}({self.expr(number)}, dtype={self.constants.name(value.obj.dtype)}{there})"
        )

    def computed(self, text: str, sources: Iterable[Source]) -> str:
        """Python that computes a number before the graph."""
        return f"({written(text, [self.source(source) for source in sources], self.constants.name)})"

    def first_handle(self) -> str:
        """The first number of those that the handles which captured code makes are given: taken before the graph, once."""
        if not self.handles:
            self.handles = self.temporary("_h")
            self.prologue.append(f"{self.handles} = {self.constants.name(claim)}({self.vm.effects.handles})")
            self._sources.setdefault(expression(HANDLES, self.constants), self.handles)
        return self.handles

    def draw(self) -> None:
        """Statements that draw random numbers, in the program's order, before all else but the calls that are asked."""
        if generators := {id(args[0].real()): args[0] for _, args, _, _ in self.vm.effects.draws}:
            self.states = self.temporary("_d")
            self.prologue.append(f"{self.states} = {self.constants.name(states_of)}({self.list(list(generators.values()))})")
        for function, args, kwargs, number in self.vm.effects.draws:
            given = [*map(self.told, args), *(f"{k}={self.told(v)}" for k, v in kwargs.items())]
            name = self.temporary("_d")
            self.prologue.append(f"{name} = {self.constants.name(function)}({', '.join(given)})")
            self.remember(number, name)

    def told(self, value: Value) -> str:
        """The expression of what a generator is told, which stands before the graph."""
        return f"({''.join(f'{self.told(each)}, ' for each in value.items)})" if type(value) is TupleValue else self.expr(value)

    def expr(self, value: Any) -> str:
        """The expression of a tracked value (or of one not read yet)."""
        if type(value) is Lazy:
            return self.constants.name(value.obj) if value.source is None else self.source(value.source)
        known = self._built.get(id(value))
        if known is not None:
            return known
        for kind in type(value).__mro__:
            if kind in BUILDERS:
                text = BUILDERS[kind](self, value)
                break
        else:
            raise Unsupported("FE070", f"{value.describe()} leaves the captured code", "it cannot be rebuilt")
        self.remember(value, text)
        return text

    def known(self, value: object) -> str | None:
        """The name of what was built already."""
        return self._built.get(id(value))

    def remember(self, value: object, text: str) -> None:
        self._built[id(value)] = text
        self._keep.append(value)

    def assign(self, value: object, text: str) -> str:
        """Name a new object before what is filled in later is built: it may contain itself. ``text`` may name parts that hold the object,
        an iterator over an object that keeps it: then the first of them has built it, and a second one would be another object."""
        if (made := self._built.get(id(value))) is not None:
            return made
        name = self.temporary()
        self.body.append(f"{name} = {text}")
        self.remember(value, name)
        self._assigned.append(name)
        self.forgets |= isinstance(value, ExceptionObject)
        return name

    def to_forget(self) -> list[str]:
        return self._assigned if self.forgets else []

    def class_name(self, cls: type) -> str:
        """The expression of a class: a constant, or what stands for a model."""
        return self.expr(self.vm.known[id(cls)][1]) if self.vm.is_made(cls) else self.constants.name(cls)

    def stored(self, table: str, hashed: object, key: object, item: object, plain: str) -> str:
        """The statement that puts an item into a dictionary: ``plain``, unless that asked the program again for the hash of its key."""
        known = program_hash(hashed)
        return plain if known is None else f"{self.constants.name(store_known)}({table}, {self.expr(key)}, {self.expr(item)}, {known})"

    def list(self, values: Iterable[object]) -> str:
        return ", ".join(self.expr(v) for v in values)


@rebuilds(OverridingTensor)
def overriding_tensor(r: Rebuilder, value: OverridingTensor) -> str:
    """A tensor of a class with ``__torch_function__``: the graph's tensor as that class, with its attributes."""
    if value.source is not None:
        return r.source(value.source)
    name = r.assign(value, f"{r.constants.name(torch.Tensor.as_subclass)}({r.expr(value.inner)}, {r.constants.name(value.cls)})")
    return fill_attributes(r, value, name)


@rebuilds(ConstantValue, BuiltinValue, ClassValue, ModuleObject)
def constant(r: Rebuilder, value: Value) -> str:
    """A constant, or what is known by identity: among the constants of the code, or read where it came from."""
    obj, source = value.real(), value.source
    if type(value) is BuiltinValue and isinstance(cls := getattr(obj, "__objclass__", None), type) and r.vm.is_made(cls):
        return f"{r.class_name(cls)}.__dict__[{getattr(obj, '__name__', '')!r}]"
    if type(value) in (ConstantValue, BuiltinValue) and source is not None and type(source) is not Pinned and not is_single(obj):
        return r.source(source)  # of the same value, and another object at each call
    if type(source) is Pinned and source.mortal:
        return r.source(source)
    return r.constants.name(obj)


@rebuilds(GivenClass)
def given_class(r: Rebuilder, value: GivenClass) -> str:
    """A class that each call may bring another of: read where it came from."""
    return r.source(value.source)


@rebuilds(NewClass)
def new_class(r: Rebuilder, value: NewClass) -> str:
    """The class is made without its body: of the names that this left behind."""
    cell = [] if value.cell is None else [f"'__classcell__': {r.expr(value.cell)}"]
    given = [r.expr(each) for each in value.given]
    if value.namespace is not None:
        bases = "".join(r.expr(base) + ", " for base in value.bases)
        names = [f"{key!r}: {r.expr(item)}" for key, item in value.namespace.items()]
        given += [repr(value.obj.__name__), f"({bases})", f"{{{', '.join([*names, *cell])}}}"]
    given += [f"{key}={r.expr(item)}" for key, item in value.named.items()]
    if (known := r.known(value)) is not None:  # a closure of its methods holds it
        return known
    name = r.assign(value, f"{r.constants.name(value.maker)}({', '.join(given)})")
    for function, args in value.steps:
        r.body.append(f"{r.constants.name(function)}({', '.join([name, *map(r.expr, args)])})")
    return name


@rebuilds(EnumValue)
def enumerated(r: Rebuilder, value: EnumValue) -> str:
    """A member of an enumeration: by its name, or by its value where it has none; that of a class made here is asked of the class."""
    if not r.vm.is_made(value.cls):
        return r.source(value.source)
    member: Any = value.obj
    return (
        f"{r.class_name(value.cls)}[{member.name!r}]"
        if member.name in type(member).__members__
        else f"{r.class_name(value.cls)}({member.value!r})"
    )


@rebuilds(DescriptorValue)
def descriptor(r: Rebuilder, value: DescriptorValue) -> str:
    """A property, a class method or a static method of its functions."""
    return r.assign(value, f"{value.kind.__name__}({r.list(value.parts)})")


@rebuilds(TupleValue)
def tuple_(r: Rebuilder, value: TupleValue) -> str:
    """A tuple, a named tuple or a ``torch.Size`` of its rebuilt items."""
    if value.source is not None:
        return r.source(value.source)
    inner = f"({r.list(value.items)}{',' if value.items else ''})"
    if (known := r.known(value)) is not None:  # one of its items holds it
        return known
    if value.cls is tuple:
        text = inner
    elif value.cls is torch.Size or hasattr(value.cls, "n_sequence_fields"):
        text = f"{r.constants.name(value.cls)}({inner})"
    else:
        text = f"tuple.__new__({r.expr(r.vm.wrap(value.cls))}, {inner})"
    name = r.temporary()
    r.body.append(f"{name} = {text}")
    return name


@rebuilds(ListValue)
def list_(r: Rebuilder, value: ListValue) -> str:
    """A list. It is made empty and filled, as its items may hold it."""
    if value.source is not None:
        return r.source(value.source)
    name = r.assign(value, "[]")
    if value.items:
        r.body.append(f"{name}[:] = [{r.list(value.items)}]")
    return name


@rebuilds(DequeValue)
def deque(r: Rebuilder, value: DequeValue) -> str:
    """A deque. It is made empty and filled, as its items may hold it."""
    if value.source is not None:
        return r.source(value.source)
    name = r.assign(value, f"{r.constants.name(value.cls)}((), {value.maxlen!r})")
    r.body.append(f"{name}.extend([{r.list(value.items)}])")
    return name


@rebuilds(DictValue)
def dict_(r: Rebuilder, value: DictValue) -> str:
    """A dictionary, filled in the order of its keys; a mapping proxy is refused (FE070)."""
    if value.source is not None:
        return r.source(value.source)
    if value.read_only:
        raise Unsupported("FE070", "a mapping proxy leaves the captured code")
    if value.part_of is not None:
        owner = r.expr(value.part_of)
        own = value.attribute == "__dict__"
        return r.assign(
            value, f"{r.constants.name(instance_dict)}({owner})" if own else f"object.__getattribute__({owner}, {value.attribute!r})"
        )
    refuse_equal_hashes(value)
    factory = f"({r.expr(value.default)})" if value.default is not None else "()"
    name = r.assign(value, "{}" if value.cls is dict else f"{r.constants.name(value.cls)}{factory}")
    for hashed, (key, item) in value.items.items():
        plain = f"{name}[{r.expr(key)}] = {r.expr(item)}"
        r.body.append(plain if value.cls is collections.OrderedDict else r.stored(name, hashed, key, item, plain))
    for attribute, item in value.extra.items():
        r.body.append(f"{name}.{attribute} = {r.expr(item)}")
    return name


def refuse_equal_hashes(value: DictValue) -> None:
    """Keys of one hash are compared by the program when they are put into a table: it has said once that they differ, and may count."""
    hashes = [hash_ for key in value.items if (hash_ := program_hash(key)) is not None]
    if len(set(hashes)) < len(hashes):
        raise Unsupported(
            "FE070", f"a {value.cls.__name__} of keys with equal hashes leaves the captured code", "the program compares them again"
        )


@rebuilds(DictView)
def view(r: Rebuilder, value: DictView) -> str:
    """``keys()``, ``values()`` or ``items()`` of a rebuilt dictionary."""
    return f"{r.expr(value.owner)}.{value.kind}()"


@rebuilds(SliceValue)
def slice_(r: Rebuilder, value: SliceValue) -> str:
    """A slice of its three parts."""
    return f"slice({r.list(list(value.parts))})"


@rebuilds(CellValue)
def cell(r: Rebuilder, value: CellValue) -> str:
    """A cell of a closure; it is made empty and filled, as what is in it may refer to it."""
    if value.source is not None:
        return r.source(value.source)
    name = r.assign(value, f"{r.constants.name(types.CellType)}()")
    if isinstance(value.content, NewClass) and value.content.cell is value:
        r.expr(value.content)  # which fills the cell
    elif value.content is not MISSING:
        r.body.append(f"{name}.cell_contents = {r.expr(value.content)}")
    return name


@rebuilds(FunctionValue)
def function(r: Rebuilder, value: FunctionValue) -> str:
    """A function that was defined here: its code with rebuilt defaults, closure and attributes."""
    if value.source is not None:
        return r.source(value.source)
    cells = "".join(r.expr(c if isinstance(c, CellValue) else r.vm.wrap(c)) + ", " for c in value.closure)
    defaults = f"({r.list(list(value.defaults))},)" if value.defaults else "None"
    if (known := r.known(value)) is not None:  # a method that was made for its class, which a cell of its closure holds
        return known
    closure = f"({cells})" if cells else "None"
    parts = f"{r.constants.name(value.code)}, {r.constants.name(value.globals)}, {value.name!r}, {defaults}, {closure}"
    name = r.assign(value, f"{r.constants.name(types.FunctionType)}({parts})")
    r.body.append(f"{name}.__qualname__ = {value.qualname!r}")
    if keywords := value.keyword_defaults():
        r.body.append(f"{name}.__kwdefaults__ = {{{', '.join(f'{k!r}: {r.expr(v)}' for k, v in keywords.items())}}}")
    if value.annotations is not None:
        r.body.append(f"{name}.__annotations__ = {r.expr(value.annotated())}")
    for attribute, item in value.known.items():
        r.body.append(f"{name}.{attribute} = {r.expr(item)}")
    for key, item in value.attrs.items.values():
        r.body.append(f"{name}.__dict__[{r.expr(key)}] = {r.expr(item)}")
    return name


@rebuilds(MethodValue)
def method(r: Rebuilder, value: MethodValue) -> str:
    """A bound method of its function and its object."""
    if value.source is not None:
        return r.source(value.source)
    return f"{r.constants.name(types.MethodType)}({r.expr(value.function)}, {r.expr(value.owner)})"


@rebuilds(BuiltinMethod, TensorMethod, BuiltinConstantMethod)
def builtin_method(r: Rebuilder, value: BuiltinMethod | TensorMethod | BuiltinConstantMethod) -> str:
    """A method of a builtin object, read by its name."""
    return f"({r.expr(value.owner)}).{value.name}"  # 3.bit_length is no expression


@rebuilds(BoundSlot)
def bound_slot(r: Rebuilder, value: BoundSlot) -> str:
    """A descriptor of C bound to its object."""
    owner = r.expr(value.owner)
    if type(value.raw) is types.ClassMethodDescriptorType:
        return f"{r.constants.name(value.raw)}.__get__(None, {owner})"
    cls = r.class_name(value.owner.python_type())  # without one some of C's crash
    return f"{r.constants.name(value.raw)}.__get__({owner}, {cls})"


@rebuilds(PartialValue)
def partial(r: Rebuilder, value: PartialValue) -> str:
    """A ``functools.partial`` of rebuilt arguments; where the program has seen these, it holds the same objects."""
    if value.source is not None:
        return r.source(value.source)
    named = ", ".join(f"{r.expr(k)}: {r.expr(v)}" for k, v in value.keywords.items.values())
    parts = [r.expr(value.function), *[r.expr(a) for a in value.args], f"**{{{named}}}"]
    name = r.assign(value, f"{r.constants.name(value.cls)}({', '.join(parts)})")
    if value.shown is not None or value.shows_keywords:  # the program may hold what it saw
        args = f"{name}.args" if value.shown is None else r.expr(value.shown)
        given = r.expr(value.keywords) if value.shows_keywords else f"{name}.keywords"
        r.body.append(f"{r.constants.name(functools.partial)}.__setstate__({name}, ({name}.func, {args}, {given}, None))")
    for attribute, item in value.attrs.items():
        r.body.append(f"{name}.{attribute} = {r.expr(item)}")
    return name


@rebuilds(CompiledHere, CompilerHere)
def compiled_here(r: Rebuilder, value: CompiledHere | CompilerHere) -> str:
    """What ``compile`` gave in captured code: the same call once more."""
    parts = [r.expr(value.model)] if isinstance(value, CompiledHere) else []
    parts += [f"{name}={r.expr(item)}" for name, item in value.given.items()]
    return r.assign(value, f"{r.constants.name(value.maker)}({', '.join(parts)})")


@rebuilds(WeakReference)
def weak_reference(r: Rebuilder, value: WeakReference) -> str:
    """A weak reference to the rebuilt target."""
    return r.assign(value, f"{r.constants.name(weakref.ref)}({r.expr(value.target)})")


@rebuilds(KernelLauncher)
def kernel_launcher(r: Rebuilder, value: KernelLauncher) -> str:
    """``kernel[grid]`` of a Triton kernel."""
    return r.assign(value, f"{r.expr(value.kernel)}[{r.expr(value.grid)}]")


@rebuilds(SuperValue)
def super_(r: Rebuilder, value: SuperValue) -> str:
    """``super(class, object)``."""
    return f"super({r.class_name(value.after)}, {r.expr(value.owner)})"


@rebuilds(SymbolicNumber, UndecidedTruth)
def number(r: Rebuilder, value: SymbolicNumber | UndecidedTruth) -> str:
    """An int, a float or a truth that depends on sizes: computed from those."""
    return r.vm.recorder.numbers.text(value.number, lambda name: symbol(r, name), r.constants.name)


def symbol(r: Rebuilder, name: str) -> str:
    """Python that reads a symbol of sizes."""
    numbers = r.vm.recorder.numbers
    if name in numbers.sources:
        return r.source(numbers.sources[name])
    return r.computed(*numbers.computed[name]) if name in numbers.computed else late_number(r, name)


@rebuilds(RaggedSize)
def ragged_size(r: Rebuilder, value: RaggedSize) -> str:
    """The ragged size of a nested tensor: asked of a tensor that has it."""
    owner, dim, factor = r.vm.recorder.with_ragged(value.number)
    return f"({r.expr(owner)}.size({dim}) * {factor})" if type(factor) is not int or factor != 1 else f"{r.expr(owner)}.size({dim})"


class NumberOfData(SymbolicNumber):
    """A number that only data tell; ``name`` is its symbol's."""

    def __init__(self, number: Any, name: str) -> None:
        super().__init__(number)
        self.name = name


def late_number(r: Rebuilder, name: str) -> str:
    """A number that the graph reads from data: one of its outputs."""
    for position, known in enumerate(r.outputs):
        if isinstance(known, NumberOfData) and known.name == name:
            return f"_g[{position}]"
    numbers = r.vm.recorder.numbers
    output = NumberOfData(sym_int(numbers.sizes, index(name)), name)
    output.node = numbers.node(output.number, r.vm.recorder.node_of)
    r.outputs.append(output)
    return f"_g[{len(r.outputs) - 1}]"


@rebuilds(FloatNumber)
def float_number(r: Rebuilder, value: FloatNumber) -> str:
    """A float that changes from call to call: computed from where its parts came from."""
    return r.computed(value.text, value.sources)


@rebuilds(ExternalIterator, VaryingNumber, MadeAnew, Untouched, GivenId, ViewOfBefore)
def external(r: Rebuilder, value: Value) -> str:
    """What is never looked into: read where it came from."""
    return r.source(value.source)


@rebuilds(ObjectValue)
def object_(r: Rebuilder, value: ObjectValue) -> str:
    """An object of a class of the program: made by ``__new__`` of its builtin base, then filled."""
    if value.source is not None:
        return r.source(value.source)
    cls = r.class_name(value.cls)
    base = builtin_base(value.cls)  # whose __new__ must be used
    if isinstance(value.storage, SetValue) and value.storage.cls is frozenset:  # which nothing is added to
        name = r.assign(value, f"frozenset.__new__({cls}, [{r.list(list(value.storage.items.values()))}])")
    elif value.storage is not None and value.storage.python_type() in LITERALS:  # which stay what they are made as
        name = r.assign(value, f"{r.constants.name(base)}.__new__({cls}, {r.expr(value.storage)})")
    else:
        name = r.assign(value, f"{r.constants.name(base)}.__new__({cls})")
        fill_storage(r, value, name)
    return fill_attributes(r, value, name)


def fill_attributes(r: Rebuilder, value: ObjectValue, name: str) -> str:
    """Statements that give the new object ``name`` the attributes and slots of ``value``; its class is not asked. Gives the name."""
    if value.has_dict() and value.attrs.items:
        own = type(find_in_mro(value.cls.__mro__, "__getattribute__")[1]) is types.FunctionType or not value.shows_dict()
        table = f"{r.constants.name(instance_dict)}({name})" if own else f"{name}.__dict__"
        for key, item in value.attrs.items.values():
            r.body.append(f"{table}[{r.expr(key)}] = {r.expr(item)}")
    for slot, item in value.slots.items():
        if item is not MISSING:
            r.body.append(f"object.__setattr__({name}, {slot!r}, {r.expr(item)})")
    return name


def fill_storage(r: Rebuilder, value: ObjectValue, name: str) -> None:
    """Statements that fill the builtin part of the new object ``name``, past what its class overrides."""
    storage = value.storage
    if isinstance(storage, DictValue):
        base = r.constants.name(storage.python_type())
        if storage.default is not None:
            r.body.append(f"{base}.default_factory.__set__({name}, {r.expr(storage.default)})")
        for key, item in storage.items.values():
            r.body.append(f"{base}.__setitem__({name}, {r.expr(key)}, {r.expr(item)})")
    elif isinstance(storage, DequeValue):
        r.body.append(f"{r.constants.name(storage.cls)}.__init__({name}, [{r.list(storage.items)}], {storage.maxlen})")
    elif isinstance(storage, ListValue):
        r.body.append(f"{r.constants.name(storage.cls)}.extend({name}, [{r.list(storage.items)}])")
    elif isinstance(storage, SetValue):
        r.body.append(f"set.update({name}, [{r.list(list(storage.items.values()))}])")


__all__ = ["Rebuilder", "Value", "torch"]
