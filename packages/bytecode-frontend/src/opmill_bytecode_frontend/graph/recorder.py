"""Records tensor operations as FX nodes and runs each on fakes to know what it gives."""

from __future__ import annotations

import enum
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.jagged import is_jagged, ragged_size, sizes_inside
from opmill_fake_tensors.remembered import Remembered
from opmill_fake_tensors.symbols import Relation, index, index_of, is_symbolic, sym_int
from opmill_fake_tensors.symbols.asking import check
from opmill_fake_tensors.wrappers import takes_operators
from opmill_guards.source import Pinned, Source, TensorProperty

from ..effects.labels import Labels
from ..entry.varying import SMALLEST
from ..errors import Unsupported
from ..interpretation.catching import is_caught
from ..interpretation.owners import began, work_of_package
from ..messages.excerpt import Span
from ..values.base import Lazy, Machine, NotConstant, Value, content
from ..values.constant import ConstantValue
from ..values.data_dependent import LateFloat
from ..values.floating import FloatNumber
from ..values.immutable import SettledValue
from ..values.mapping import DictValue
from ..values.modules import running_module
from ..values.number import SymbolicNumber, assumed_outcome
from ..values.ragged import RaggedSize
from ..values.sequence import ListValue, SequenceValue, SliceValue, TupleValue
from ..values.tensor import TensorValue
from . import on_fakes
from .class_state import Wrappers
from .function_modes import FunctionModes
from .inference import Inference
from .leaves import as_given, is_leaf, reached
from .masked import demand_masks
from .numbers import Numbers, size_of_tensor
from .opaque_gradients import demand_gradients
from .open_floats import opened
from .operands import NotGraphable, graph_constant, not_graphable
from .questions import name_of
from .regions import Region
from .results import PLAIN, contains_tensor, is_answer, is_member, on_processor
from .said import Said
from .scalars import DTYPE_OF_TYPE, Scalars
from .several import refused_write
from .versions import Writes, memory, versions

TABLES = re.compile(r"\.__dict__|'_modules'|'_parameters'|'_buffers'")
NO_NAMES = re.compile(r"\W+")


def where_now(machine: weakref.ref[Machine], spans: dict[str, tuple[str, Span]]) -> Callable[[], str]:
    """The user's line that runs; ``spans`` then has the function, and the expression in it. The machine is not held: sizes, which fake
    tensors hold where the garbage collector does not see it, outlive the capture, and would keep all that it has met."""

    def where() -> str:
        vm = machine()
        if vm is None or vm.frame is None:
            return ""
        line: str = vm.frame.where()
        spans[line] = vm.frame.code.co_name, vm.frame.span
        return line

    return where


class Recorder:
    """The graph being captured. ``inputs``: tensors that become placeholders, in order of first use; ``attributes``: parameters,
    buffers."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.main = torch.fx.Graph()
        self.named: set[str] = set()  # its inputs
        self.regions: list[Region] = []
        """Graphs inside of the graph that are being recorded, the innermost last."""
        spans: dict[str, tuple[str, Span]] = {}
        self.numbers = Numbers(self.main, where_now(weakref.ref(vm), spans), spans)
        self.context = FakeContext(data=self.numbers.sizes if vm.varying.data else None)
        self.remembered = Remembered(self.context)
        self.counts: bool = vm.varying.data
        """Whether numbers and sizes that only data tell may be symbols."""
        self.inputs: list[TensorValue | SymbolicNumber] = []
        self.attributes: dict[str, object] = {}
        self.fakes: dict[torch.fx.Node, torch.Tensor] = {}
        """Of nodes that bodies have read from outside, the tensors that they stand for."""
        self.by_fake: dict[int, TensorValue] = {}
        self.scalars = Scalars(self)
        self.leaves: list[tuple[torch.Tensor, int]] = []
        """Tensors that require grad and were made in captured code, and the place where."""
        self.went_back = False
        """Whether gradients were computed in captured code, which uses up histories."""
        self.libraries_differ = False
        """Whether captured code has told libraries of GPUs something, and not taken it back."""
        self.writes = Writes()
        self.given_back: torch.Tensor | None = None
        """What the last operation gave that is one of its arguments, as it was."""
        self.refused_write = False  # by autograd
        self.anchor: torch.fx.Node | None = None
        self.operations = 0
        self.began = ""
        """The program's own line that the first operation was recorded at, as a traceback names it."""
        self.index_by_tensors = 0
        """Above 0, subscripts by scalar tensors index instead of becoming numbers (as a torch function mode asks)."""
        self.overriding = False  # whether there are tensors whose classes are asked what torch's functions mean
        self.wrappers = Wrappers()
        self.given_leaves: list[torch.Tensor] = []  # copies of leaves whose data was assigned
        self.inside: list[tuple[torch.Tensor, object]] = []  # tensors inside of those among the inputs, and where they are found
        self.overrides_off = int(not torch._C._is_torch_function_enabled())  # above 0, they are not asked
        self.devices: list[tuple[Value, int]] = []
        """Of the blocks ``with torch.device(...)`` that captured code is in, and the places where they began."""
        self.modes = FunctionModes()
        self.labels = Labels()
        """Labels for profilers."""
        self.inference = Inference()
        self.said = Said()
        """Warnings of operators."""

    # ---- graphs inside of the graph --------------------------------------------------------------------------------

    @property
    def graph(self) -> torch.fx.Graph:
        """Where operations are recorded now."""
        return self.regions[-1].graph if self.regions else self.main

    def here(self, node: torch.fx.Node) -> torch.fx.Node:
        """What stands for a node where operations are recorded now."""
        graphs = [self.main, *(region.graph for region in self.regions)]
        depth = next((k for k, graph in enumerate(graphs) if node.graph is graph), None)
        if depth is None:
            self.vm.unsupported("FE082", "a tensor that left a branch or a loop", "only what it returns does", "return it")
        for region in self.regions[depth:]:
            node = region.lift(node)
        return node

    def fakes_of(self, nodes: Iterable[torch.fx.Node]) -> list[torch.Tensor]:
        """The tensors among what nodes of the graph being recorded stand for."""
        found = [self.fakes.get(node) for node in nodes]
        return [fake for fake in found if fake is not None]

    def hold(self, name: str, module: object) -> torch.fx.Node:
        """The node that gives ``module``, held by the graph that is being recorded."""
        held = self.regions[-1].attributes if self.regions else self.attributes
        name = f"{name}_{len(held)}"
        held[name] = module
        return self.graph.get_attr(name)

    # ---- symbolic sizes --------------------------------------------------------------------------------------------

    def fake_of(
        self, obj: torch.Tensor, source: Source, limits: Mapping[int, Any], moving: Any, size_of: Any = size_of_tensor, inside: Any = None
    ) -> torch.Tensor:
        """The fake of an input whose dimensions in ``limits`` are symbolic. ``moving``: those whose strides are not assumed;
        ``size_of``: where sizes of what is at ``source`` are read; ``inside``: the same of what a jagged one is made of."""
        if inside is not None:
            return self._fake_of_jagged(obj, inside)
        if not limits and not moving:
            return self.context.from_tensor(obj)
        sizes = self.context.sizes = self.numbers.sizes
        symbols = self.numbers.new_sizes(obj, source, limits, size_of)
        known = len(sizes.symbols)
        fake = self.context.from_tensor(obj, symbols, str(source), moving)
        for name in list(sizes.symbols)[known:]:
            d = int(sizes.symbols[name].origin.rpartition("(")[2].rstrip(")"))
            self.numbers.name(index(name), TensorProperty(source, "stride", d), "stride", d)
        return fake

    def _fake_of_jagged(self, obj: torch.Tensor, parts: Mapping[str, Any]) -> torch.Tensor:
        """The fake of a jagged input. ``parts``: of each tensor inside, where it is, and as for `fake_of`. Rows are known by the tensor
        that says where they lie: one that is inside of two inputs has one fake."""
        for name, (source, limits, moving) in parts.items():
            part, known = getattr(obj, name), set(self.numbers.read)
            if not self.context.has_fake(part):
                self.fake_of(part, source, limits, moving)
                self.numbers.inside.update(dict.fromkeys(self.numbers.read.keys() - known, name))
        return self.context.from_tensor(obj)

    def own_symbols(self, value: TensorValue) -> None:
        """The symbols of a new input are read from it."""
        self.numbers.owners.update(dict.fromkeys(self.numbers.read.keys() - self.numbers.owners.keys(), value))

    def number_input(self, source: Source, value: int) -> SymbolicNumber:
        """An int argument whose value is not assumed."""
        found = self.numbers.by_source.get(source)
        if found is None:
            self.context.sizes = self.numbers.sizes
            symbol = self.numbers.sizes.new(value, low=self.vm.varying.low(source), origin=str(source))
            found = self.numbers.by_source[source] = SymbolicNumber(sym_int(self.numbers.sizes, symbol), source, value)
            self.numbers.name(symbol, source)
            self.numbers.owners.update(dict.fromkeys(symbol.symbols, found))
        return found

    def computed_input(self, value: int, text: str, sources: dict[Source, Any]) -> SymbolicNumber | ConstantValue:
        """An int that Python computes before the graph (``text``, over ``{0}``, ... for the sources). One as small as sizes that are always
        assumed is assumed, and its sources are not."""
        if value < SMALLEST:
            assumed_outcome(self.vm, "__eq__", (value, text, sources), (value, f"({value})", {}))
            return ConstantValue(value)
        self.context.sizes = self.numbers.sizes
        return self.numbers.computed_number(value, text, sources)

    def complete_inputs(self) -> None:
        """Makes an input of whatever the sizes of an input are computed from, where the program tied the two together."""
        if self.context.sizes is None:
            return
        for value in self.inputs:  # grows meanwhile
            numbers = [value.number] if isinstance(value, SymbolicNumber) else sizes_inside(value.fake)
            for name in set().union(*(index_of(n).symbols for n in numbers)) & self.numbers.owners.keys():
                self.node_of(self.numbers.owners[name])

    def arrange_inputs(self) -> None:
        """Tensors of modules come behind the other inputs, and those that nothing reads are none."""
        unused = [v for v in self.inputs if is_held(v) and not v.node.users]
        for value in unused:
            self.main.erase_node(value.node)
            value.node = None
        self.inputs = sorted((v for v in self.inputs if v not in unused), key=is_held)
        for value in reversed(self.inputs):
            first = next(iter(self.main.nodes))
            if value.node is not first:
                first.prepend(value.node)

    def outside(self) -> list[torch.Tensor]:
        """What stands for the tensors that are not the graph's own."""
        return [v.fake for v in (*self.inputs, *self.by_fake.values()) if isinstance(v, TensorValue) and v.obj is not None]

    def examples(self) -> list[object]:
        """What stands for the inputs when the backend compiles: the tensors themselves; fakes and symbolic ints where sizes are
        symbolic."""
        if self.context.sizes is None or not (self.numbers.sources or self.numbers.computed):
            return [v.obj for v in self.inputs]
        out = [as_given(v.fake, v.obj) if isinstance(v, TensorValue) else v.number for v in self.inputs]
        for value, example in zip(self.inputs, out):
            value.node.meta["example_value"] = example
        return out

    def node_of(self, value: TensorValue | SymbolicNumber) -> torch.fx.Node:
        node = self.outside_node_of(value)
        if not self.regions and node.graph is self.main:
            return node
        here = self.here(node)
        if isinstance(value, TensorValue) and here is not node:
            for region in self.regions:  # whoever holds the bodies asks what they took from outside
                node = region.lifted.get(node, node)
                self.fakes[node] = value.fake
            self.fakes[self.outside_node_of(value)] = value.fake
        return here

    def outside_node_of(self, value: TensorValue | SymbolicNumber) -> torch.fx.Node:
        """The node where the value was made; inputs belong to the outermost graph."""
        if value.node is None:
            value.node = self._input_node(value)
        return value.node

    def _input_node(self, value: TensorValue | SymbolicNumber) -> torch.fx.Node:
        name = NO_NAMES.sub("_", TABLES.sub("", str(value.source or getattr(value, "scalar", None)))).strip("_") or "tensor"
        name = f"p_{name}" if is_held(value) else f"_{name}" if name[0].isdigit() else name
        while name in self.named:  # several may be computed from one argument, and objects known by themselves have the names of classes
            name = f"{name}_{len(self.inputs)}"
        self.named.add(name)
        previous = self.inputs[-1].node if self.inputs else None
        first = next(iter(self.main.nodes), None)
        self.inputs.append(value)
        if first is None:
            return self.main.placeholder(name)
        with self.main.inserting_before(first) if previous is None else self.main.inserting_after(previous):
            return self.main.placeholder(name)

    def is_operand(self, value: Value) -> bool:
        if type(value) in (FloatNumber, LateFloat):
            return True
        try:
            self.lower(value, fakes=True)
        except NotGraphable:
            return False
        return True

    def lower(self, value: Any, fakes: bool, kept: bool = False) -> Any:
        """The argument for the graph (nodes) or for the run on fakes; ``kept``: named tuples and members of enumerations, for Python."""
        kind = type(value)
        if kind is TensorValue:
            value = value.current(self.vm)
            return value.fake if fakes else self.node_of(value)
        if kind is ConstantValue:
            if isinstance(value.value, PLAIN) or callable(value.value) or (kept and isinstance(value.value, enum.Enum)):
                return graph_constant(value.value)
            raise not_graphable(value)
        if kind is SettledValue:
            return value.value if fakes else self.hold(type(value.value).__name__.lower(), value.value)
        if kind is SymbolicNumber:
            return value.number if fakes else self._number_node(value)
        if kind is RaggedSize:
            return value.number if fakes else self._ragged_node(value.number)
        if kind is Lazy:
            return self.lower(self.vm.wrap(value.obj, value.source), fakes, kept)
        if isinstance(value, SequenceValue):
            items = [self.lower(v, fakes, kept) for v in value.values(self.vm)]
            if value.cls in (list, tuple):
                return value.cls(items)
            if kept and hasattr(value.cls, "_make"):
                return value.cls._make(items)
            return torch.Size(items) if value.cls is torch.Size and fakes else tuple(items)
        if kind is DictValue:
            items = [self.lower(v, fakes, kept) for v in value.all_values(self.vm)]
            if not fakes:  # torch writes what is in a dict as it prints itself
                items = [self.hold("member", v) if isinstance(v, enum.Enum) else v for v in items]
            return dict(zip((k.constant() for k in value.key_values(self.vm)), items, strict=True))
        if kind is SliceValue:
            return slice(*[self.lower(v, fakes) for v in value.parts])
        if type(part := content(value)) is ConstantValue and not kept:  # what an object of a class derived from a number is
            return self.lower(part, fakes)
        try:
            plain = value.constant()
        except NotConstant:
            raise not_graphable(value) from None
        if isinstance(plain, type) and plain in DTYPE_OF_TYPE:
            return DTYPE_OF_TYPE[plain]
        if type(plain).__module__ == "numpy" and hasattr(plain, "item") and getattr(plain, "ndim", 1) == 0:
            if plain.dtype.kind == "b":  # for which torch has errors of its own
                raise not_graphable(value)
            return plain.item()
        if kept and part is not value and not is_member(plain):  # which the text of a graph would turn into what it is derived from
            raise not_graphable(value)
        if (
            isinstance(plain, PLAIN)
            or (callable(plain) and not isinstance(plain, torch.nn.Module))
            or isinstance(plain, torch._C._SDPBackend)
            or (kept and isinstance(plain, enum.Enum))
        ):
            return plain
        raise not_graphable(value)

    def _number_node(self, value: SymbolicNumber) -> object:
        node = self.numbers.node(value.number, self.outside_node_of)
        return self.here(node) if isinstance(node, torch.fx.Node) else node

    def with_ragged(self, number: Any) -> tuple[TensorValue, int, Any]:
        """A jagged tensor that has this ragged size, the dimension, and how often the number has the size in it."""
        for value in self.by_fake.values():
            if is_jagged(type(value.fake)) and ragged_size(value.fake).node.nested_int() == number.node.nested_int():
                return value, value.fake._ragged_idx, number.node.nested_int_coeff()
        raise NotGraphable("the size along which rows of a tensor differ that is not there any more")

    def _ragged_node(self, number: object) -> torch.fx.Node:
        owner, dim, factor = self.with_ragged(number)
        node = self.graph.call_method("size", (self.node_of(owner), dim))
        return node if type(factor) is int and factor == 1 else self.graph.call_function(operator.mul, (node, factor))

    # ---- operations ------------------------------------------------------------------------------------------------

    def call_function(self, vm: Machine, target: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self._operate(vm, "call_function", target, target, args, kwargs)

    def call_method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner = args[0].cls if type(args[0]) is TensorValue and takes_operators(args[0].cls) else torch.Tensor
        return self._operate(vm, "call_method", name, getattr(owner, name), args, kwargs)

    def attribute(self, vm: Machine, value: TensorValue, name: str) -> Value:
        """A property of a tensor: a constant (shape, dtype) or a tensor (T, real, data)."""
        result = on_fakes.run(self, vm, getattr, [value.fake, name], {})
        if isinstance(result, torch.Tensor):
            value = value.current(vm)
            result = self.given_back = getattr(value.fake, name)
            node = self.graph.call_function(getattr, (self.node_of(value), name))
            node.meta |= {"stack_trace": vm.location(), "module": running_module(vm.frame)}
            self.labels.note(node)
            return self.track(vm, result, node)
        return vm.fresh(result)

    def evaluate(self, vm: Machine, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A question about a tensor whose answer is a constant."""
        plain = [self.lower(a, True) for a in args]
        named = {k: self.lower(v, True) for k, v in kwargs.items()}
        return vm.fresh(on_fakes.run(self, vm, function, plain, named))

    def _operate(self, vm: Machine, op: str, target: Any, function: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if vm.behind is not None:
            vm.behind.operates(vm, [*args, *kwargs.values()])
        args = [value.as_operand(vm) if isinstance(value, Value) else value for value in args]
        if (found := opened(self, target, args, kwargs)) is not None:
            return found
        demand_masks(vm, target, args)
        if not kwargs:
            if (widened := self.scalars.widened(target, args)) is not None:
                return widened
            args = self.scalars.among(target, args)
        kept = isinstance(target, type) and takes_operators(target)
        try:
            fake_args = [self.lower(a, True, kept) for a in args]
            fake_kwargs = {k: self.lower(v, True, kept) for k, v in kwargs.items()}
        except NotGraphable as exc:
            why = "only tensors, numbers, and lists, tuples, dicts of these go into a graph"
            vm.unsupported("FE034", f"argument of {name_of(target)}: {exc}", why, exc.hint)
        counted = [(a, versions(a)) for a in fake_args if isinstance(a, torch.Tensor)]
        with self.context:
            result = on_fakes.run(self, vm, function, fake_args, fake_kwargs)
        if self.libraries_differ and not on_processor((result, *fake_args, *fake_kwargs.values())):
            why = "captured code has told the libraries of devices something, and their kernels look when they run"
            vm.unsupported("FE010", f"{name_of(target)} on a device", why)
        demand_gradients(self, vm, function, (*fake_args, *fake_kwargs.values()), result)
        self.inference.refuse_differentiated(vm, result, (a for a, _ in counted))
        self.given_back = next((a for a, count in counted if a is result and versions(a) == count), None)
        read = is_symbolic(result) and str(index_of(result)) in self.numbers.unbound()
        if result is not None and not contains_tensor(result) and not read:
            if takes_operators(type(fake_args[0] if fake_args else None)) and not is_answer(result):
                return vm.wrap(result, Pinned(result, name_of(target)))
            if not is_answer(result) and any(map(contains_tensor, (*fake_args, *fake_kwargs.values()))):
                raise Unsupported(
                    "FE035", f"{name_of(target)} gave a {type(result).__qualname__}", "it is made of a tensor that has no data at capture"
                )
            return vm.fresh(result)
        node_args = tuple(self.lower(a, False, kept) for a in args)
        node_kwargs = {k: self.lower(v, False, kept) for k, v in kwargs.items()}
        node = self.graph.create_node(op, target)
        node.args, node.kwargs = node_args, node_kwargs  # given at once, torch walks through them looking for numbers that cannot be there
        node.meta |= {"stack_trace": vm.location(), "module": running_module(vm.frame), "place": vm.place(), "caught": is_caught(vm.frame)}
        self.labels.note(node)
        if not self.operations and vm.frame is not None:  # results are made when no frame is left
            self.began = began(vm.frame)
        self.operations += 1
        if read:
            self.numbers.bind_number(result, node)
        if hasattr(type(result), "trigger_wait"):  # still under way from other processes
            with self.context:
                result = result.trigger_wait()
            node = self.graph.call_method("trigger_wait", (node,))
        if target is operator.setitem:
            self.note_written(vm, fake_args[0])
        return self.track(vm, result, node)

    def demand(self, vm: Machine, relation: Relation, text: str, error: str) -> None:
        """What the program says of sizes that only data tell: checked when the graph runs, with this error where it does not hold."""
        condition = self.numbers.condition(relation, self.node_of)
        self.numbers.sizes.expect(relation)
        node = self.graph.call_function(check, (condition, text, error))
        node.meta["stack_trace"] = vm.location()
        self.operations += 1

    def track(self, vm: Machine, result: object, node: torch.fx.Node) -> Value:
        """The tracked value of what an operation gave."""
        if isinstance(result, torch.Tensor):
            known = self.by_fake.get(id(result))
            if known is not None and (known.fake is result or (known.given is not None and known.given.plain.fake is result)):
                self.note_written(vm, result)
                return known
            wrapped = takes_operators(type(result)) and self.wrappers.meet(result)
            if not isinstance(result, FakeTensor) and not wrapped and not is_functorch_wrapped_tensor(result):
                raise Unsupported("FE035", f"{node.target} gave a real tensor", "it escaped the fake tensors")
            if any(memory(each) == memory(result) for each in self.given_leaves):
                vm.unsupported("FE032", "a view of a tensor whose data was assigned", "the graph has a copy for it")
            value = TensorValue(result, node, type(result) if wrapped else torch.Tensor)
            node.meta["val"] = result
            if self.context.sizes is not None:
                self.numbers.bind_sizes(result.shape, node, self.node_of)
            self.by_fake[id(result)] = value
            self.inference.note(result)
            self.note_leaf(vm, result, None)
            return value
        if isinstance(result, (tuple, list)):
            items: list[object] = []
            for i, item in enumerate(result):
                inner = self.graph.call_function(operator.getitem, (node, i)) if contains_tensor(item) else node
                items.append(self.track(vm, item, inner))
            return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
        if type(result) is dict:
            return DictValue(
                {
                    key: (ConstantValue(key), self.track(vm, item, self.graph.call_function(operator.getitem, (node, key))))
                    for key, item in result.items()
                }
            )
        return vm.fresh(result)

    def note_written(self, vm: Machine, fake: torch.Tensor) -> None:
        """What was written may require grad from then on, and with a view that of which it is one."""
        self.writes.note(fake)
        if self.inference.made(fake) and not self.inference.is_on():
            vm.unsupported("FE032", "a write that eager refuses", "it is to a tensor of inference mode, outside of it", whole=True)
        given = self.given_leaves, self.by_fake.values(), self.inference.is_on()
        refused = None if fake is self.given_back else refused_write(fake, *given)
        if refused is not None:
            vm.unsupported("FE032", "a write that eager refuses", refused)
        for written in [t for t in (fake, fake._base) if t is not None]:
            if (known := self.by_fake.get(id(written))) is not None and known.fake is written:
                self.note_leaf(vm, known.fake, known.obj)

    def note_leaf(self, vm: Machine, fake: torch.Tensor, real: torch.Tensor | None) -> None:
        """Whether a tensor requires grad belongs to the object: nothing of a graph changes that of one from before, but for what is written
        into it, or makes one for others to see."""
        if real is not None and real.requires_grad != fake.requires_grad and (real.requires_grad or is_leaf(fake)):
            vm.unsupported(
                "FE032",
                "whether a tensor requires grad changes",
                "it was there before the call",
                "change it outside of the compiled function",
                **work_of_package(self.vm.frame),
            )
        if real is None and fake.requires_grad and is_leaf(fake):
            self.leaves.append((fake, vm.place()))

    def leaving(self, value: TensorValue) -> None:
        """Raises Unsupported (FE038) where a result requires grad only because of tensors made in captured code, or is one."""
        if self.leaves and value.fake.requires_grad and not reached(value.fake, {id(fake) for fake, _ in self.leaves}):
            why = "what autograd knows of it is not known outside"
            raise Unsupported("FE038", "a tensor that captured code makes requires grad", why, "make it outside", place=self.leaves[0][1])


def is_held(value: object) -> bool:
    """Whether an input is a tensor of a module: the check of the guards has it at hand."""
    return getattr(value, "held", False)
