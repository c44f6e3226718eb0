"""The symbolic interpreter: Python's operations over tracked values."""

from __future__ import annotations

import builtins
import collections
import inspect
import sys
from typing import TYPE_CHECKING, Any, Callable, Hashable, NoReturn, cast

import torch

from opmill_fake_tensors import DataDependent
from opmill_fake_tensors.jagged import is_ragged
from opmill_fake_tensors.passing import interrupting
from opmill_guards.guard import Absent, Is, SameObject
from opmill_guards.source import Attr, Item, Pinned
from opmill_guards.weak import may_die

from ..assumptions.asked import Expected
from ..assumptions.assuming import Assumptions
from ..effects.changes import Effects
from ..effects.lifetimes import refuse_ending
from ..entry.limits import CHECK_EVERY, check_growth
from ..entry.varying import Varying
from ..errors import Unsupported
from ..graph.meshes import SettledValue as SettledValue
from ..graph.recorder import Recorder
from ..graph.thread_state import switches
from ..library import call_builtin, construct, intercepted
from ..library.torch.marks import marked
from ..options import CaptureOptions
from ..values.base import MISSING, SEARCHED, Lazy, NotConstant, Raised, V, Value
from ..values.classes import ClassValue, ModuleObject
from ..values.constant import LITERALS, ConstantValue
from ..values.deques import DequeValue
from ..values.exceptions import ExceptionObject, raised_by_python
from ..values.functions import BuiltinValue, CellValue, FunctionValue
from ..values.iterators import STOP, CoroutineValue, GeneratorValue, IteratorValue
from ..values.mapping import DictValue, Names, SetValue
from ..values.modules import ModuleValue
from ..values.number import symbolic_number
from ..values.objects import each, refuse_no_part
from ..values.per_call import GIVEN
from ..values.ragged import RaggedSize
from ..values.sequence import ListValue, SequenceValue, TupleValue
from ..values.set_order import own_layout
from ..values.tensor import TensorValue
from ..values.varying import VaryingNumber
from ..values.wrapped import added
from .binding import bind
from .frame import Frame, prepare, refuse_module_code
from .identity import is_held, same_constants, same_numbers
from .opcodes import handlers
from .opcodes.control import Return, Yield, throw_into
from .operating import Operators, not_implemented
from .owners import FIXED, compiles, exempt, installed, is_disabled, optimizers_own, programs_line, underneath
from .registrations import Registrations
from .tracking import tracker

if TYPE_CHECKING:
    from opmill_guards.guard import SizeRelation
    from opmill_guards.source import Source

    from ..bytecode import Instruction
    from ..library.torch.optimizers import Behind


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class BreakHere(Exception):
    """The instruction is reached before which the graph is to end."""


#: What a capture has collected about objects of the program, and nobody else has.
FORGOTTEN = "trace known tables origins generators referred unmarked cached asked overridden compared guards tree_guards".split()
FORGOTTEN += "tensor_guards tree_tensors relations modules below_modules tree_classes".split()


class Interpreter(Operators, Assumptions):
    """One capture: frames, guards, effects, the graph. ``break_at``: how many places are passed before the graph ends.

    A *place* is an instruction that the graph may end before: one of the root frame, or of a frame whose result goes straight to the
    instruction of a frame with places. ``trace``: frame and index of each place passed; ``stopped``: the frame where the graph ended."""

    def __init__(self, options: CaptureOptions, break_at: int | None = None, varying: Varying | None = None) -> None:
        self.options = options
        self.varying = varying or Varying()
        self.break_at = break_at
        self.recorder = Recorder(self)
        self.effects = Effects()
        self.frame = cast(Frame, None)  # until the first frame runs
        self.entry_switches = switches()
        self.entry_levels = torch._C._functorch.get_dynamic_layer_stack_depth()
        self.handled: Value | None = None
        self.attempts = 0
        """How many operations are running that have an answer to an exception of the program."""
        self.known: dict[int, tuple[object, Value]] = {}
        self.tables: dict[int, object] = {}
        """The objects whose instance dictionaries, by address, hold their attributes."""
        self.registrations: Registrations | None = None  # what abstract classes said no to
        self.overridden: dict[Source | None, type] = {}
        """Sources of containers whose class has a ``__getitem__`` of its own, and the builtin class whose one reads them."""
        self.guards: dict[object, Any] = {}
        self.tree_guards: dict[object, Any] = {}
        self.tensor_guards: list[Any] = []
        self.tree_tensors: list[Any] = []
        self.compared: list[tuple[Source, Source]] = []
        """Sources of objects of which the program asked whether they are the same: they are not."""
        self.relations: list[SizeRelation] = []
        """Outcomes of comparisons of floats that are not assumed."""
        self.modules: dict[object, ModuleValue] = {}
        """Known modules by their source."""
        self.below_modules: dict[object, bool] = {}
        """Sources, and whether one of the modules is on the path to them."""
        self.tree_classes: set[type] = set()
        """Those of the modules, and their bases."""
        self.steps = 0
        self.check_at = CHECK_EVERY
        """The number of steps at which `check_growth` looks next, ..."""
        self.seen_operations = self.operated_at = 0
        """... how many operations there were when it last saw new ones, and at which step that was."""
        self.may_break = False
        self.trace: list[tuple[Frame, int]] = []
        self.stopped: Any = None
        self.origins: dict[int, tuple[Value, int]] = {}
        self.handles = False  # whether functions met so far handle exceptions
        self.generators: list[tuple[GeneratorValue, int]] = []
        """Those that were made, and the place where."""
        self.referred: list[object] = []  # objects of before that captured code made weak references to
        self.unmarked: dict[int, object] = {}  # functions that were called and have none of the marks that torch's compiler knows
        self.cached: dict[Any, Value] = {}
        """What functions with caches give for constants, ..."""
        self.computing = 0
        """... and how many of them are being interpreted."""
        self.asked: dict[Any, Value] = {}
        """What they give in calls that are made before the graph, ..."""
        self.expected = Expected()
        """... and what is assumed of it."""
        self.asked_breaks_off = False  # whether ``graph_break`` means nothing
        self.error_on_break: list[bool] = []
        """What the blocks of ``error_on_graph_break`` say that captured code is in."""
        self.inlined: frozenset[object] = frozenset()  # functions with caches whose calls are read as if there were no cache
        self.stand_in: Callable[[object], object] = lambda function: None
        """What a backend has to be called in place of a function; None: nothing."""
        self.may_end = False  # whether the graph may end before the function does
        self.behind: Behind | None = None  # what is known of steps of optimizers that come behind the graph (`library.optimizers.Behind`)
        self.may_break = True
        self.handlers = handlers()

    def let_go(self) -> None:
        """Forget the objects of the call when all is written: what a capture is made of refers to itself, and would keep them until the
        collector comes."""
        own: list[Any] = [self.recorder.inputs, self.recorder.by_fake, self.recorder.numbers.owners, *map(vars(self).get, FORGOTTEN)]
        own += [held for held in vars(self.effects).values() if type(held) in (dict, list)]
        for value in [value for _, value in self.known.values()] + [value for value, _ in self.origins.values()]:
            own.append(value.fields if isinstance(value, ExceptionObject) else vars(value))  # what was raised is told of
        for frame in {id(frame): frame for frame, _ in self.trace}.values():
            own += [frame.locals, frame.cells, frame.stack]
        for held in own:
            held.clear()
        self.effects.first = self.effects.reads = None
        self.recorder.context.forget_tensors()
        self.stopped = self.handled = None

    # ---- wrapping --------------------------------------------------------------------------------------------------

    def wrap(self, obj: object, source: Any = None) -> Value:
        """The tracked value of a Python object; with a source, guards are recorded of what is found there."""
        kind: type = type(obj)
        if kind in LITERALS and (source is None or type(source) is Pinned):
            return ConstantValue(obj, source)
        found = self.known.get(id(obj))
        if found is not None and found[0] is obj:
            value = found[1]
            if type(source) is Pinned:
                if value.real() is obj and type(value) not in GIVEN:  # these are found in classes as others are
                    self.guard_object(value)
            elif source is not None and source != value.source:
                one_path = value.source is None or type(value.source) is Pinned
                if one_path or (is_held(self, value.source, obj) and not self.of_module(value.source)):
                    self.guard(Is(source, obj))
                else:
                    self.guard(SameObject(value.source, source))
            return value
        if self.behind is not None:
            self.behind.meets(obj)
        value = tracker(kind)(self, obj, source)
        if kind not in LITERALS and not (type(value) is ConstantValue and source is not None):
            self.know(obj, value)
        return value

    def know(self, obj: object, value: V) -> V:
        """From now on ``value`` stands for the object."""
        self.known[id(obj)] = (obj, value)
        return value

    def fresh(self, obj: Any) -> Value:
        """The tracked value of something that the capture itself computed: containers are new ones."""
        kind = type(obj)
        if kind is tuple or kind is torch.Size:
            return TupleValue([self.fresh(v) for v in obj], kind)
        if kind is list:
            return ListValue([self.fresh(v) for v in obj])
        if kind is dict:
            out = DictValue({})
            for k, v in obj.items():
                out.store(self, self.fresh(k), self.fresh(v))
            return out
        if kind is set or kind is frozenset:
            items = {self.key(v): v for v in map(self.fresh, obj)}
            return SetValue(items, kind, layout=own_layout(kind(obj), items))
        if kind in LITERALS:
            return ConstantValue(obj)
        if kind in SYMBOLIC:
            return RaggedSize(obj) if is_ragged(obj) else symbolic_number(obj)
        if isinstance(obj, tuple) and hasattr(obj, "_fields"):
            return TupleValue([self.fresh(v) for v in obj], kind)
        return self.wrap(obj)

    def plain(self, value: Value) -> Any:
        """The Python object of a value, lists and dicts of constants rebuilt. Raises NotConstant."""
        if isinstance(value, SequenceValue):
            items = [self.plain(v) for v in value.values(self)]
            if isinstance(value, TupleValue):
                return value.assembled(items)
            return value.cls(items, value.maxlen) if isinstance(value, DequeValue) else value.cls(items)
        if type(value) is DictValue and not value.read_only:
            pairs = {self.plain(k): self.plain(v) for k, v in zip(value.key_values(self), value.all_values(self))}
            if value.cls is collections.defaultdict:
                return collections.defaultdict(None if value.default is None else self.plain(value.default), pairs)
            return collections.OrderedDict(pairs) if value.cls is collections.OrderedDict else pairs
        if type(value) is SetValue:
            return value.assembled([self.plain(v) for v in value.items.values()])
        return value.constant()

    def wrap_cached(self, result: object) -> Value:
        """The tracked value of what a cache gives to everyone: constants as such, other objects by identity."""
        return self.wrap(result, Pinned(result, repr(type(result))))

    # ---- names -----------------------------------------------------------------------------------------------------

    def read_global(self, namespace: dict[str, object], name: str, module: object = None) -> Value:
        """A name of a module: assigned earlier in the capture, a global, or a builtin."""
        changed = self.effects.globals.get((id(namespace), name))
        if changed is not None:
            if changed[2] is None:
                self.no_name(name)
            return changed[2]
        known = exempt(str(namespace.get("__name__", "")))
        value = namespace.get(name, MISSING)
        pinned = Pinned(namespace, f"{namespace.get('__name__', '?')}.__dict__")
        if value is not MISSING:
            literal = type(value) in LITERALS
            if known and self.may_be_rebound(namespace, value):
                self.guard(Is(Item(pinned, name), value))
            return self.wrap(value, Pinned(value, name) if known and not literal else Item(pinned, name))
        if not known:
            self.guard(Absent(pinned, name))
        if module is not None:
            try:
                return self.wrap(getattr(module, name))
            except Exception as exc:
                self.guard(Absent(pinned, name))
                self.throw_real(exc)
        found, everywhere = vars(builtins).get(name, MISSING), Pinned(vars(builtins), "builtins.__dict__")
        if found is MISSING:
            self.guard(Absent(everywhere, name))
            self.no_name(name)
        return self.wrap(found, Pinned(found, name) if known else Item(everywhere, name))

    def names(self, namespace: dict[str, object]) -> Value:
        """The dictionary of a module's names."""
        found = self.known.get(id(namespace))
        if found is None or found[0] is not namespace:
            source = Pinned(namespace, f"{namespace.get('__name__', '?')}.__dict__")
            items: dict[Hashable, tuple[Value, Lazy]] = {k: (ConstantValue(k), Lazy(v, Item(source, k))) for k, v in namespace.items()}
            return self.know(namespace, Names(items, dict, source, namespace))
        return found[1]

    def may_be_rebound(self, namespace: dict[str, object], value: object) -> bool:
        """Whether a name of torch or the standard library is guarded: what user code reads, other than modules and dtypes, torch's
        functional forms, and what belongs to ``sys``, whoever reads it: it is there for programs to set."""
        if type(value) in LITERALS or (namespace is sys.__dict__ and not callable(value)):
            return type(value) not in LITERALS  # whose values are guarded
        read_by_user = self.frame is not None and not installed(self.frame.code.co_filename)
        return not isinstance(value, FIXED) if read_by_user else callable(value) and namespace.get("__name__") == "torch.nn.functional"

    # ---- errors ----------------------------------------------------------------------------------------------------

    def location(self) -> str:
        return f"  {programs_line(self.frame)}" if self.frame else ""

    def unsupported(self, code: str, what: str, why: str = "", hint: str = "", place: int | None = None, whole: bool = False) -> NoReturn:
        raise Unsupported(code, what, why, hint, self.frame.where() if self.frame else "", place, whole)

    def throw(self, cls: type[BaseException], *args: object) -> NoReturn:
        """Raise an exception in the interpreted program."""
        raised = self.new_exception(cls, [a if isinstance(a, Value) else self.fresh(a) for a in args])
        raise Raised(raised.raised_while(self, self.handled))

    def no_attribute(self, owner: Value, name: str, message: str) -> NoReturn:
        """Raise the AttributeError of a lookup, which tells the object and the name."""
        self.throw_about(AttributeError, message, name=ConstantValue(name), obj=owner)

    def no_name(self, name: str) -> NoReturn:
        self.throw_about(NameError, f"name {name!r} is not defined", name=ConstantValue(name))

    def throw_about(self, cls: type[BaseException], message: str, **fields: Value) -> NoReturn:
        """Raise an exception that keeps more than its message."""
        raised = self.new_exception(cls, [ConstantValue(message)])
        raised.fields.update(fields)
        raise Raised(raised.raised_while(self, self.handled))

    def of_error(self, arg: object) -> Value:
        """An argument of an exception that Python itself raised at capture."""
        if type(arg) is tuple:
            return TupleValue([self.of_error(a) for a in arg])
        return self.fresh(arg) if type(arg) in LITERALS else self.wrap(arg, Pinned(arg, "argument of an exception"))

    def throw_real(self, exc: BaseException) -> NoReturn:
        if isinstance(exc, (Unsupported, Raised)):
            raise exc
        if not isinstance(exc, Exception) or isinstance(exc, MemoryError) or interrupting(exc) is not None:
            raise exc  # no memory now, or a time limit now, is not what the program meets at its next call
        if isinstance(exc, NotConstant):
            self.unsupported("FE025", f"{exc} where a constant is needed")
        raise Raised(raised_by_python(self, exc).raised_while(self, self.handled))

    def new_exception(self, cls: type[BaseException], args: list[Value]) -> ExceptionObject:
        return ExceptionObject(cls, args)

    def attempt(self, read: Callable[[], Value], cls: type[BaseException] | tuple[type[BaseException], ...]) -> Value | None:
        """What ``read`` gives, or None when the program raised ``cls``."""
        handled = self.handled
        self.attempts += 1
        try:
            return read()
        except Raised as raised:
            if not issubclass(raised.value.python_type(), cls):
                raise
            self.handled = handled
            return None
        finally:
            self.attempts -= 1

    # ---- operations ------------------------------------------------------------------------------------------------

    def key(self, value: Value) -> Hashable:
        return value.key(self)

    def truth(self, value: Value) -> bool:
        return value.truth(self)

    def is_same(self, left: Value, right: Value) -> bool:
        if left is right:
            return True
        if type(left) is ConstantValue and type(right) is ConstantValue:
            return same_constants(self, left, right)
        for value in (left, right):  # which one it is, is not assumed
            if isinstance(value, VaryingNumber) and left.python_type() is right.python_type():
                value.refuse(self)
        if left.symbolic or right.symbolic:
            return same_numbers(self, left, right)
        a, b = left.real(), right.real()
        if a is not b and left.source is not None and right.source is not None and type(a) is type(b):
            if not (type(left.source) is Pinned and type(right.source) is Pinned):
                self.compared.append((left.source, right.source))
        return a is not MISSING and a is b

    def bind(self, function: Value, owner: Value) -> Value:
        from ..values.functions import MethodValue

        return MethodValue(function, owner)

    def contains(self, container: Value, item: Value) -> bool:
        if isinstance(container, TensorValue):
            self.unsupported("FE030", "'in' a tensor", "the answer depends on data")
        result = container.special(self, "__contains__", [item])
        if result is not None and not not_implemented(result):
            return self.truth(result)
        iterator = self.attempt(lambda: self.iterate(container), TypeError)
        refuse_no_part(self, container, item)
        if iterator is None:
            self.throw(TypeError, f"argument of type {container.python_type().__name__!r} is not {SEARCHED}")
        return any(self.equal(v, item) for v in each(self, iterator))

    def getitem(self, owner: Value, key: Value) -> Value:
        result = owner.special(self, "__getitem__", [key])
        if result is None:
            kind = f"type {owner.obj.__name__!r}" if isinstance(owner, ClassValue) else f"{owner.python_type().__name__!r} object"
            self.throw(TypeError, f"{kind} is not subscriptable")
        if not_implemented(result):
            self.unsupported("FE026", f"subscript of {owner.describe()} by {key.describe()}")
        return result

    def setitem(self, owner: Value, key: Value, value: Value) -> None:
        if owner.special(self, "__setitem__", [key, value]) is None:
            self.throw(TypeError, f"{owner.python_type().__name__!r} object does not support item assignment")

    def iterate(self, value: Value) -> Value:
        return value.iterate(self)

    def next(self, iterator: Value) -> Value:
        """The next item or STOP."""
        if isinstance(iterator, IteratorValue):
            return iterator.next(self)
        return STOP if (result := self.attempt_next(iterator)) is None else result

    def attempt_next(self, iterator: Value) -> Value | None:
        def read() -> Value:
            result = iterator.special(self, "__next__", [])
            if result is None:
                self.throw(TypeError, f"{iterator.python_type().__name__!r} object is not an iterator")
            return result

        return self.attempt(read, StopIteration)

    def unpack(self, value: Value, sized: bool = False) -> list[Value]:
        if isinstance(value, SequenceValue):
            return value.values(self)
        return list(each(self, value, sized))

    # ---- calls -----------------------------------------------------------------------------------------------------

    def call(self, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return fn.call(self, args, kwargs)

    def call_builtin(self, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = marked(self, obj, args, kwargs)
        return call_builtin(self, obj, args, kwargs) if found is None else found

    def added(self, value: TensorValue, name: str) -> Value:
        return added(self, value, name)

    def construct(self, cls: ClassValue, args: list[Value], kwargs: dict[str, Value], plain: bool = False) -> Value:
        return construct(self, cls.obj, args, kwargs, plain)

    def inline(self, fn: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call a Python function by interpreting its bytecode (unless the library knows it)."""
        direct = self.frame is not None and self.frame.calls(fn)
        if fn.obj is not None:
            if is_disabled(fn.obj) and not compiles(fn.obj):
                if (own := optimizers_own(fn.obj)) is not None:
                    return self.call(self.wrap(own, Pinned(own, own.__qualname__)), args, kwargs)
                said = getattr(fn.obj, "_torchdynamo_disable_msg", None)
                why = "it is marked as not to be captured" + (f": {said}" if said else "")
                self.unsupported("FE069", f"call of {fn.qualname}", why, "call it outside of the compiled function")
            known = marked(self, fn.obj, args, kwargs)
            if known is None:
                known = intercepted(self, fn.obj, args, kwargs)
            if known is not None:
                return known
        depth = self.frame.depth + 1 if self.frame is not None else 0
        if depth > self.options.max_depth:
            self.unsupported("FE064", f"call of {fn.qualname}", f"more than {self.options.max_depth} nested calls")
        refuse_module_code(fn.code, fn.qualname, self.frame.where() if self.frame else "")
        try:
            bound = bind(self, fn, args, kwargs)
        except Raised:
            self.guard_function(fn)  # its parameters did not fit
            raise
        frame = self.make_frame(fn, bound, depth)
        flags = fn.code.co_flags
        if flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            generator = (GeneratorValue if flags & inspect.CO_GENERATOR else CoroutineValue)(frame, self.advance)
            generator.origin = (fn, args, kwargs)
            self.generators.append((generator, self.place()))
            return generator
        if flags & inspect.CO_ASYNC_GENERATOR:
            self.unsupported("FE060", f"asynchronous function {fn.qualname}")
        if direct and self.options.nested_breaks and self.frame.has_places:
            frame.has_places, frame.returned = True, self.frame.goes_on
        return self.run(frame).value

    def make_frame(self, fn: FunctionValue, bound: dict[str, Any], depth: int) -> Frame:
        self.guard_function(fn)
        prepared = prepare(fn.code, self.handlers)
        frame = Frame(prepared, fn.code, fn, fn.globals, depth)
        self.handles = self.handles or bool(fn.code.co_exceptiontable)
        frame.locals = bound
        mortal = type(fn.source) is Pinned and fn.source.mortal and may_die(fn.obj)
        for i, (name, cell) in enumerate(zip(fn.code.co_freevars, fn.closure)):
            if not isinstance(cell, CellValue):
                found = Item(Attr(fn.source, "__closure__"), i).called(name) if mortal else Pinned(cell, name)
                cell = self.wrap(cell, found)
            frame.cells[name] = cell
        return frame

    def advance(self, frame: Frame, sent: Value | None, thrown: Value | None) -> tuple[bool, Value]:
        """Run a generator's frame to its next yield or its end."""
        caller_handled = self.handled
        try:
            if thrown is not None and (inner := frame.delegate()) is not None:
                item, thrown = throw_into(self, frame, inner, thrown)
                if item is not None:
                    return True, item
                if thrown is not None:
                    frame.push(ConstantValue(None))  # where the value sent to it would stand
            elif frame.pc > 0:
                frame.push(sent if sent is not None else ConstantValue(None))
            frame.outer = caller_handled
            self.handled = frame.handled or caller_handled
            thrown = thrown and thrown.raised_while(self, frame.handled)
            result = self.run(frame, thrown)
            frame.handled = None if self.handled is caller_handled else self.handled
        except Raised as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            noun = "coroutine" if frame.code.co_flags & inspect.CO_COROUTINE else "generator"
            error = self.new_exception(RuntimeError, [ConstantValue(f"{noun} raised StopIteration")])
            error.fields |= {"__cause__": raised.value, "__context__": raised.value, "__suppress_context__": ConstantValue(True)}
            raise Raised(error) from None
        finally:
            self.handled = caller_handled
        return isinstance(result, Yield), result.value

    def run(self, frame: Frame, thrown: Value | None = None) -> Return | Yield:
        """Interpret until the frame returns or yields. Raises Raised for an exception that the frame does not handle."""
        caller = self.frame
        frame.begins(caller, self.handled)
        self.frame = frame
        instructions, handlers_ = frame.prepared.instructions, frame.prepared.handlers
        has_places, trace, break_at, pending = frame.has_places, self.trace, self.break_at, thrown
        try:
            while True:
                pc = frame.pc
                ins = instructions[pc if pending is None else max(0, pc - 1)]
                try:
                    if pending is not None:
                        exc, pending = pending, None
                        raise Raised(exc)
                    if has_places:
                        if (place := len(trace)) == break_at:
                            self.stopped = frame
                            raise BreakHere
                        frame.place = place
                        trace.append((frame, pc))
                    if self.steps > self.check_at:
                        self.check_at = check_growth(self, frame)
                    handler = handlers_[pc]
                    if handler is None:
                        self.unsupported("FE001", f"instruction {ins.opname}")
                    frame.pc = pc + 1
                    self.steps += 1
                    result = handler(self, frame, ins)
                    if result is not None:
                        return result
                except Raised as raised:
                    self.note_origin(frame, raised.value)
                    if ins.opname != "RERAISE" and (ins.opname, ins.argval) != ("RAISE_VARARGS", 0):  # which add nothing to a traceback
                        raised.value.passes(self, frame, ins.position)
                    if not unwind(frame, ins, raised):
                        raise
                except NotConstant as exc:
                    self.unsupported("FE025", f"{exc} where a constant is needed")
                except DataDependent as exc:
                    hint = "torch._check(...) may say what is known of it; or compute it outside of the compiled function"
                    self.unsupported("FE037", "a number that only data tell is needed", str(exc), hint)
        except Unsupported as exc:
            if self.error_on_break and not exc.asked:
                exc.asked = self.error_on_break[-1]
            code = frame.code
            exc.passes(code.co_filename, frame.line or 0, code.co_name, frame.span, frame.in_loop, not underneath(code.co_filename))
            raise
        finally:
            self.frame = caller

    def place(self) -> int:
        """The latest place of the innermost frame that has places."""
        frame: Frame | None = self.frame
        while frame is not None and not frame.has_places:
            frame = frame.caller
        return frame.place if frame is not None else 0

    def note_origin(self, frame: Frame | None, exc: Value) -> None:
        """Remembers the place where an exception came up first."""
        while frame is not None and not frame.has_places:
            frame = frame.caller
        if frame is not None:
            self.origins.setdefault(id(exc), (exc, frame.place))


def unwind(frame: Frame, ins: Instruction, raised: Raised) -> bool:
    """Go to the handler of an exception; False when the frame has none here."""
    handler = ins.handler
    if handler is None:
        return False
    for dropped in frame.stack[handler.depth :]:
        refuse_ending(dropped)
    del frame.stack[handler.depth :]
    if handler.lasti:
        frame.push(ConstantValue(frame.pc))
    frame.push(raised.value)
    frame.jump(handler.target)
    return True


__all__ = ["Attr", "BreakHere", "BuiltinValue", "ExceptionObject", "Interpreter", "Lazy", "ModuleObject", "Return"]
