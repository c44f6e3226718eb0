"""Records aten operators as they run on fake tensors, and makes them functional on the way.

Each memory (the storage of a meta tensor) is a ``Memory`` with a current value. A fake that is a view knows the view operators that
lead from the base to it. A write through any of them gives the base a new value; the others replay their views when next read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Protocol

import torch

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.compat import distrust_twins
from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.symbolic import meta_tensor
from opmill_fake_tensors.symbols import Index, Sizes
from opmill_fake_tensors.wrappers import mode_of_fakes

from ..errors import GraphError
from ..recurrent import PACKETS, keeping
from .functional_variants import functional_call, in_order, memory_order
from .graph import NO_LABEL, AtenGraph, Meta, Node, Value, values_in
from .inverse import INVERSES, inverted
from .lists import PREFIX, by_tensor
from .memory_views import calls_from, geometry, run_of_strides, shows_more, span, unmarked
from .places import Origins
from .policies import Policy, judged
from .sizes import recorded, size_of, traced, unbound

aten = torch.ops.aten
_IGNORED = ("aten::detach_", "aten::requires_grad_", "aten::retain_grad", "aten::_version", "aten::sym_size", "aten::sym_stride")
_WAITS = ("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd")
"""The second gives a tensor that waits where it is used first: graphs know where that is."""
_OF_CUDNN = ("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward")
_METADATA = "aten::set_ aten::resize_ aten::resize_as_ aten::swapaxes_".split()
_LIFTS = ("aten::lift_fresh", "aten::lift")
_TRACKED = {"aten::unsafe_split.Tensor": aten.split.Tensor, "aten::unsafe_split_with_sizes": aten.split_with_sizes.default}
"""Operators whose results share memory with their arguments though their schemas do not say so, and those that say it."""
_OF_SHAPES = "aten::_assert_tensor_metadata aten::_assert_scalar aten::sym_constrain_range aten::sym_constrain_range_for_size".split()
_STRIDED = ("aten::as_strided_copy", "aten::as_strided_scatter")
_RESHAPING = "aten::t_ aten::transpose_ aten::squeeze_ aten::unsqueeze_ aten::as_strided_".split()


@dataclass(frozen=True)
class _Step:
    """A view operator in a chain: ``func(tensor, *rest, **kwargs)[item]``."""

    func: Any
    rest: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    item: int | None


@dataclass(eq=False)
class Memory:
    """A memory: ``value`` is its current content, ``root`` the fake that covers it, ``first`` the content that it was made with.
    ``version`` counts its values; ``written``: one came by a write; ``beyond``: a view by strides shows more than what it is a view of."""

    value: str
    root: FakeTensor
    first: str
    version: int = 0
    outside: str | None = None
    written: bool = False
    beyond: bool = False


@dataclass(eq=False)
class Track:
    """How a value is seen in memory: views by ``chain`` from ``base``. ``value`` is its name, right at that ``version`` of the memory."""

    base: Memory
    chain: tuple[_Step, ...]
    value: str
    version: int


def meta_of(fake: torch.Tensor) -> Meta:
    """Geometry of a fake as data."""
    sizes: tuple[Any, ...] = tuple(fake.shape)
    strides: tuple[Any, ...] = fake.stride()
    if fake._has_symbolic_sizes_strides:
        sizes, strides = tuple(map(size_of, sizes)), tuple(map(size_of, strides))
    return Meta(_dtype_name(fake.dtype), sizes, strides, _device_name(fake.device))


@lru_cache(None)
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_device_name = lru_cache(None)(str)


def _torch_meta_of(fake: torch.Tensor) -> Meta:
    """The same with sizes as torch takes them."""
    return Meta(str(fake.dtype).removeprefix("torch."), tuple(fake.shape), tuple(fake.stride()), str(fake.device))


@dataclass
class _State:
    graph: AtenGraph = field(default_factory=AtenGraph)
    tracks: dict[int, tuple[FakeTensor, Track]] = field(default_factory=dict)
    held: dict[int, FakeTensor] = field(default_factory=dict)
    origin: str = ""
    counter: int = 0
    bound: set[str] = field(default_factory=set)
    """Symbols that depend on data and that a node of the graph makes known."""
    label: int = NO_LABEL
    again: bool = False
    """Whether what is recorded now is to be computed again for the backward."""
    policy: Policy | None = None
    """Of the checkpoint that is recorded now: what of it is kept."""
    origins: Origins = field(default_factory=Origins)


class Late(Protocol):
    """Knows gradients of which autograd knows nothing."""

    def gradients(self, found: Mapping[str, Any]) -> dict[str, FakeTensor]:
        """They, by the name of the input or held tensor. ``found``: those that autograd found, None where there is none."""

    def close(self) -> None:
        """Lets go of the fakes."""


class Recorder(FakeContext):
    """A fake context that writes down what it runs. ``names`` gives held tensors readable names, by ``id``; ``sizes`` is the environment
    of the inputs' symbols. ``repeats``: blocks like those before them need not run; who differentiates then asks ``late`` for gradients."""

    knows_filled = False  # the program has decided by then, and blocks that know values are run one by one

    def __init__(
        self, names: Mapping[int, str] | None = None, *, differentiate: bool = False, sizes: Sizes | None = None, repeats: bool = False
    ) -> None:
        super().__init__(sizes, data=sizes or Sizes())
        self.around = mode_of_fakes()
        self.differentiate, self.repeats = differentiate, repeats
        self.late: list[Late] = []
        self.state = _State(AtenGraph(sizes=sizes))
        self.names = names or {}
        assert self.data is not None
        self.data.where = self._where

    def _where(self) -> str:
        return self.state.origin

    def close(self) -> None:
        """Lets go of the fakes, when the graph is complete. Views hold their base where the garbage collector does not see it, and each
        fake holds its context: together with what the context knows of both that would be held for ever, the real tensors of the graph
        too."""
        self.state = _State()
        self._by_id.clear()
        for late in self.late:
            late.close()

    # ---- inputs ----------------------------------------------------------------------------------------------------

    def add_input(self, tensor: torch.Tensor) -> FakeTensor:
        """The next graph input, like this tensor or this fake."""
        if isinstance(tensor, FakeTensor):
            with torch._C._DisableTorchDispatch():
                if tensor.meta.is_conj():
                    return self.add_fake_input(self.from_meta(tensor.meta, tensor.device))
                meta = meta_tensor(tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.dtype)
            return self.add_fake_input(self.from_meta(meta, tensor.device, requires_grad=tensor.requires_grad))
        return self.add_fake_input(super().from_tensor(tensor))

    def add_size(self, size: Any) -> Any:
        """The next graph input, a symbolic size; one that is a symbol is known by it. Raises GI009 for other values: which of them mattered
        could not be told to anybody."""
        inputs = self.state.graph.inputs
        if not isinstance(size, torch.SymInt):
            raise GraphError("GI009", f"an input of type {type(size).__name__}", hint="pass a tensor, or let it be a constant of the graph")
        symbol = str(size_of(size))
        known = self.sizes is not None and symbol in self.sizes.symbols and symbol not in inputs
        inputs.append(symbol if known else f"n{len(inputs)}")
        return size

    def add_fake_input(self, fake: FakeTensor) -> FakeTensor:
        """The next graph input, of which there is no real tensor yet."""
        name = f"x{len(self.state.graph.inputs)}"
        self.state.graph.inputs.append(name)
        return self._own(fake, name, outside=True)

    def outside(self) -> dict[str, FakeTensor]:
        """Fakes of the graph's inputs and held tensors, by name."""
        return {t.base.outside: fake for fake, t in self.state.tracks.values() if t.base.outside is not None and t.base.root is fake}

    def _convert(self, tensor: torch.Tensor, *symbolic: Any) -> FakeTensor:
        if self.differentiate and tensor.requires_grad and not tensor.is_leaf:
            with torch._C._DisableTorchDispatch():
                tensor = tensor.detach().requires_grad_()  # a leaf of this graph, whatever made it
        return super()._convert(tensor, *symbolic)

    def from_tensor(self, tensor: torch.Tensor, *symbolic: Any, **more: Any) -> FakeTensor:
        """A tensor that the graph holds: parameters, buffers, tensors in closures."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self.state.held.get(id(tensor))
        if known is not None:
            return known
        if tensor.requires_grad and torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not self.differentiate:
            raise GraphError(
                "GI001", "gradients are needed", why="a tensor the graph holds requires grad", hint="run under torch.no_grad()"
            )
        graph = self.state.graph
        fake = super()._convert(tensor)
        name = "p_" + self.names[id(tensor)].replace(".", "_") if id(tensor) in self.names else f"p{len(graph.held)}"
        while name in graph.metas:  # a.b and a_b
            name += "_"
        graph.held.append(name)
        graph.held_tensors.append(tensor)
        self.state.held[id(tensor)] = fake
        return self._own(fake, name, outside=True)

    def lift(self, fresh: torch.Tensor) -> FakeTensor:
        fake, graph = super().lift(fresh), self.state.graph
        name = f"c{len(graph.constants)}"
        with torch._C._DisableTorchDispatch():  # or a recorder around this one makes a fake of it
            graph.constants[name] = fresh.detach().clone()
        return self._own(fake, name)

    def _own(self, fake: FakeTensor, name: str, outside: bool = False) -> FakeTensor:
        if outside and fake.meta.is_conj():  # kernels read its memory
            raise GraphError("GI018", "a tensor from outside that is marked as conjugated", hint="resolve_conj() it before")
        if name not in self.state.graph.metas:
            self.state.graph.metas[name] = meta_of(fake)
        base = Memory(name, fake, name, outside=name if outside else None)
        self.state.tracks[id(fake)] = fake, Track(base, (), name, 0)
        return fake

    # ---- reading and writing ---------------------------------------------------------------------------------------

    def track(self, fake: FakeTensor) -> Track:
        return self.state.tracks[id(fake)][1]

    def value_of(self, fake: FakeTensor) -> Value:
        """The current value of a fake; views are replayed where their base was written since."""
        track = self.track(fake)
        if track.version != track.base.version:
            track.value, track.version = self._replay(track.base, track.chain)[-1][1], track.base.version
        return Value(track.value)

    def _replay(self, base: Memory, chain: Sequence[_Step]) -> list[tuple[FakeTensor, str]]:
        """The fakes and values along the chain, the base's first."""
        out: list[tuple[FakeTensor, str]] = [(base.root, base.value)]
        for step in chain:
            result = super().run(step.func, (out[-1][0], *step.rest), dict(step.kwargs))
            names = self._emit(step.func, (Value(out[-1][1]), *step.rest), dict(step.kwargs), result)
            out.append((result if step.item is None else result[step.item], names[step.item or 0]))
        return out

    def write(self, fake: FakeTensor, value: str) -> None:
        """Makes ``value`` the content of ``fake``, and so of part of its base."""
        track = self.track(fake)
        base = track.base
        if base.beyond and base.root.requires_grad and torch.is_grad_enabled():
            raise GraphError("GI003", "a differentiated write beside a view that shows more than its tensor", where=self.state.origin)
        if track.chain:
            for (outer, outer_value), step in zip(reversed(self._replay(base, track.chain[:-1])), reversed(track.chain), strict=True):
                given = _torch_meta_of(outer), Value(outer_value), Value(value), step.rest, dict(step.kwargs), step.item
                found = INVERSES.get(step.func.name(), lambda *_: None)(*given)
                if found is None:
                    raise GraphError("GI003", f"a write through a view made by {step.func.name()}", where=self.state.origin)
                value = inverted(found, partial(self._run_on, {outer_value: outer, value: self._fake_like(value)}))
            if self.state.graph.metas[value] != meta_of(base.root):
                [value] = self._emit(aten.clone.default, (Value(value),), {}, base.root)
        base.value, base.version, base.written = value, base.version + 1, True
        track.value, track.version = (value if not track.chain else track.value), (base.version if not track.chain else track.version)

    def _run_on(self, fakes: dict[str, FakeTensor], func: Any, args: Any, kwargs: dict[str, Any]) -> str:
        result = super().run(func, self._as_fakes(args, fakes), kwargs)
        [name] = self._emit(func, args, kwargs, result)
        fakes[name] = result
        return name

    def _fake_like(self, value: str) -> FakeTensor:
        return self.fake_of(self.state.graph.metas[value])

    def fake_of(self, m: Meta) -> FakeTensor:
        """A fake of this geometry, which no operator has made yet."""
        with torch._C._DisableTorchDispatch():
            meta = torch.empty_strided(
                traced(m.sizes, self.sizes), traced(m.strides, self.sizes), dtype=getattr(torch, m.dtype), device="meta"
            )
        return self.from_meta(meta, torch.device(m.device))

    def _as_fakes(self, args: Any, fakes: Mapping[str, FakeTensor]) -> Any:
        if isinstance(args, Value):
            return fakes[args.name]
        return type(args)(self._as_fakes(a, fakes) for a in args) if isinstance(args, (list, tuple)) else args

    def copy_of(self, fake: FakeTensor, like: Meta) -> FakeTensor:
        """What ``fake`` holds now, in memory of its own laid out as ``like`` says."""
        copy = self.fake_of(like)
        self.record(aten.clone.default, [fake], [copy])
        return copy

    def row_of(self, fake: FakeTensor) -> FakeTensor:
        """A fake like a row of ``fake``, which no operator has made."""
        meta = meta_of(fake)
        row = self.fake_of(Meta(meta.dtype, meta.sizes[1:], meta.strides[1:], meta.device))
        return row.requires_grad_(fake.requires_grad)  # type: ignore[return-value]

    def counted(self, what: str) -> Index:
        """The symbol of a size that the next operator makes known."""
        self.sizes = self.sizes or self.data
        assert self.sizes is not None
        return self.sizes.new(None, low=0, origin=f"{what} at {self.state.origin}")

    # ---- recording -------------------------------------------------------------------------------------------------

    def record(self, func: Any, args: Sequence[Any], results: Sequence[FakeTensor]) -> None:
        """Writes down an operator that is none of torch's; ``results`` are fakes of what it gives, tensors in memory of their own."""
        names = self._emit(func, tuple(map(self._values, args)), {}, tuple(results))
        for fake, name in zip(results, names, strict=True):
            self._own(fake, name)

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.state.policy is not None and not self._inside and not describe(func).composite:
            return judged(self, func, args, kwargs)
        if self._inside or mode_of_fakes() is not self.around:
            return super().run(func, args, kwargs)
        op = describe(func)
        if op.packet == "aten::item":
            func = aten._local_scalar_dense.default
            op = describe(func)
        if op.packet in _LIFTS and not isinstance(args[0], FakeTensor):
            return self.lift(args[0])
        with torch._C._DisableTorchDispatch():
            args = [self._fakes_in(a) for a in args]
            kwargs = {k: self._fakes_in(v) for k, v in kwargs.items()}
        if op.packet == "aten::view_as_real" and args[0].meta.is_conj():
            args = [self._unmarked(args[0])]  # torch, which does not see that the fake is conjugated, asks for the real part so
        if self.differentiate and op.packet in PACKETS and torch.is_grad_enabled():
            func = keeping(op.packet)
            op = describe(func)
        if op.packet in _METADATA:
            raise GraphError("GI002", f"{func.name()} changes what a tensor is", where=self.state.origin)
        if op.packet in _RESHAPING:
            return self._reshape_in_place(op, func, args, kwargs)
        if op.packet in _IGNORED:
            return super().run(func, args, kwargs)
        if op.packet in _LIFTS and isinstance(args[0], FakeTensor) and id(args[0]) in self.state.tracks:
            return args[0]
        if op.composite:  # so they come in inference mode; what they share with their arguments is what their parts do
            distrust_twins()
            with self:
                return func.decompose(*args, **kwargs)
        if (tracked := _TRACKED.get(op.name)) is not None:
            return list(self.run(tracked, [unmarked(args[0]), *args[1:]], kwargs))
        if op.packet in _STRIDED and not op.writes:
            return run_of_strides(self.run, op.base_name, args, kwargs, self.state.origin)
        if op.packet in _WAITS:
            return self._wait(args[0])
        if func is aten._native_batch_norm_legit.default:  # the same but for its schema, which says that it writes
            return self.run(aten.native_batch_norm.default, args, kwargs)
        if op.packet in _OF_CUDNN:
            return self._run_of_cudnn(op.packet, args)
        if op.base_name.startswith(PREFIX) and (calls := by_tensor(func, args, kwargs)) is not None:
            results = [self.run(*call) for call in calls]
            return results if func._schema.returns else None
        if op.writes:
            if op.packet == "aten::bernoulli_" and (order := memory_order(args[0])) is not None:
                self.run(func, in_order(self.run, args, order), kwargs)
                return args[0]
            return self._run_writing(op, func, args, kwargs)
        if func is aten.native_batch_norm.default and args[5] and args[3] is not None:
            return self._run_batch_norm(args)
        values, named = self._values(args), {k: self._values(v) for k, v in kwargs.items()}
        result = super().run(func, args, kwargs)
        if isinstance(result, (list, tuple)) and any(isinstance(r, (list, tuple)) and _tensors(r) for r in result):
            raise GraphError("GI002", f"{func.name()} gives lists of tensors among other results", where=self.state.origin)
        if op.aliases and isinstance(args[0] if args else None, FakeTensor) and shares(args[0], result):
            self._record_view(func, args, kwargs, values, named, result)
        elif self._has_tensors(result):
            names = self._emit(func, tuple(values), named, result)
            for fake, name in zip(_tensors(result), (n for n in names if n), strict=True):
                self._own(fake, name)
        elif type(result) is torch.SymInt and op.counted is not None:
            self._emit_number(func, tuple(values), str(size_of(result)))
        elif not func._schema.returns and op.packet not in _OF_SHAPES and not op.packet.startswith("profiler::"):
            self._emit(func, tuple(values), named, ())
        return result

    def _emit_number(self, func: Any, args: tuple[Any, ...], symbol: str) -> None:
        """A node that reads a number, which is a symbol from then on."""
        if symbol not in self.state.bound:
            self.state.bound.add(symbol)
            self.state.graph.nodes.append(Node(func, args, {}, (), self.state.origin, ((symbol, None, 0),), label=self.state.label))

    def _fakes_in(self, arg: Any) -> Any:
        if type(arg) is FakeTensor:
            if id(arg) not in self.state.tracks:
                raise GraphError("GI004", "a fake tensor from elsewhere", where=self.state.origin)
            return arg
        if isinstance(arg, torch.Tensor):
            return self.from_tensor(arg)
        return type(arg)(map(self._fakes_in, arg)) if type(arg) in (list, tuple) else arg

    def _values(self, arg: Any) -> Any:
        if type(arg) is FakeTensor:
            return self.value_of(arg)
        return type(arg)(map(self._values, arg)) if type(arg) in (list, tuple) else arg

    def _has_tensors(self, result: Any) -> bool:
        return bool(_tensors(result))

    def _record_view(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], values: Any, named: Any, result: Any) -> None:
        source = self.track(args[0])
        if func is aten.as_strided.default:
            self._own_view(result, source.base, self._by_strides(args[0], args[1:], kwargs))
            return
        many = not isinstance(result, torch.Tensor)
        names = self._emit(func, tuple(values), named, result)
        for i, (fake, name) in enumerate(zip(_tensors(result), names, strict=True)):
            step = _Step(func, tuple(args[1:]), tuple(kwargs.items()), i if many else None)
            self.state.tracks[id(fake)] = fake, Track(source.base, (*source.chain, step), name, source.base.version)

    def _own_view(self, fake: FakeTensor, base: Memory, chain: tuple[_Step, ...]) -> None:
        """``fake`` is what this chain leads to."""
        name = self._replay(base, chain)[-1][1]
        self.state.tracks[id(fake)] = fake, Track(base, chain, name, base.version)

    def _by_strides(self, fake: FakeTensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Step, ...]:
        """The chain that leads to a view of the memory of ``fake`` by strides. Where it is said from where on in the storage, the graph is
        one of inputs that begin there."""
        base = self.track(fake).base
        sizes, strides, offset = geometry(args, kwargs)
        if offset is not None and base.outside is not None:
            if base.outside in self.state.graph.held:
                raise GraphError("GI003", "a view by strides and an offset of a tensor that the graph holds", where=self.state.origin)
            self.state.graph.offsets[base.outside] = int(base.root.storage_offset())
        place = sizes, strides, fake.storage_offset() if offset is None else offset
        base.beyond = base.beyond or (fake is not base.root and shows_more(fake, *place))
        calls = calls_from(base.root, fake, *place, self.state.origin)
        return tuple(_Step(func, rest, (), None) for func, rest in calls)

    def _unmarked(self, fake: FakeTensor) -> FakeTensor:
        """The numbers of a view that is marked as conjugated; what is written to them is written through that view."""
        values = [self.value_of(fake)]
        result = super().run(aten.resolve_conj.default, (fake,), {})
        self._record_view(aten.resolve_conj.default, (fake,), {}, values, {}, result)
        return result

    def _reshape_in_place(self, op: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """``x.t_()`` and the like: ``x`` becomes a view of what it was. Beside other views gradients would be of the new shape."""
        target, track = args[0], self.track(args[0])
        if target.requires_grad and any(t.base is track.base for fake, t in self.state.tracks.values() if fake is not target):
            raise GraphError("GI003", f"{func.name()} beside other views, with gradients", where=self.state.origin)
        if track.base.root is target:
            if track.base.outside is not None:
                raise GraphError("GI002", f"{func.name()} changes what an input is", where=self.state.origin)
            with torch._C._DisableTorchDispatch():
                was = target.meta.view_as(target.meta)
            track.base.root = self.from_meta(was, target.device, requires_grad=target.requires_grad)
        packet = getattr(aten, op.base_name.removesuffix("_"))
        view = getattr(packet, op.overload or "default", None) or packet.int
        step = _Step(view, tuple(args[1:]), tuple(kwargs.items()), None)
        chain = self._by_strides(target, args[1:], kwargs) if view is aten.as_strided.default else (*track.chain, step)
        super().run(func, args, kwargs)
        self._own_view(target, track.base, chain)
        return target

    def _run_writing(self, op: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if op.base_name == "copy_":
            value = self._copied(args[0], args[1])
            result = super().run(func, args, kwargs)
            self.write(args[0], value)
            return result
        targets = [kwargs[n] if n in kwargs else args[op.positions[n]] for n in op.writes if n in kwargs or op.positions[n] < len(args)]
        written = [t for target in targets for t in _tensors(target)]
        self._refuse_twice(func, written)
        functional, call_args, call_kwargs = functional_call(op, func, args, kwargs, len(written))
        values, named = self._values(list(call_args)), {k: self._values(v) for k, v in call_kwargs.items()}
        before = [t.shape for t in written]
        result = super().run(func, args, kwargs)
        if before != [t.shape for t in written]:
            raise GraphError("GI002", f"{func.name()} resizes what it writes", where=self.state.origin)
        fakes = super().run(functional, call_args, call_kwargs)
        names = [n for n in self._emit(functional, tuple(values), named, fakes) if n]
        if len(names) < len(written):
            raise GraphError("GI002", f"{func.name()} has no functional form that returns all it writes", where=self.state.origin)
        first = len(names) - len(written)
        for target, name, fake in zip(written, names[first:], _tensors(fakes)[first:], strict=True):
            self.write(target, self._fitted(name, fake, target))
            if op.exchanges:
                self._wait(target)  # its copy into the target would not wait
        for fake, name in zip(_tensors(result), names[:first], strict=False):
            self._own(fake, name)
        return result

    def _refuse_twice(self, func: Any, written: Sequence[FakeTensor]) -> None:
        """Raises GI002 where memory may be written as one and as another argument: the operator reads what it has written then."""
        if len(written) < 2 or len({id(self.track(t).base) for t in written}) == len(written):
            return
        spans = sorted((id(self.track(t).base), *span(t)) for t in written if t.numel())
        if any(base == other and start < end for (base, _, end), (other, start, _) in pairwise(spans)):
            raise GraphError("GI002", f"{func.name()} writes one memory as several arguments", where=self.state.origin)

    def _wait(self, fake: FakeTensor) -> FakeTensor:
        """Waiting gives the tensor itself; whatever reads its memory from now on, reads what has arrived."""
        base = self.track(fake).base
        [base.value] = self._emit(torch.ops._c10d_functional.wait_tensor.default, (Value(base.value),), {}, base.root)
        base.version += 1
        return fake

    def _run_of_cudnn(self, packet: str, args: Sequence[Any]) -> Any:
        """cuDNN's batch norm is torch's, but for a tensor that its backward alone reads."""
        if packet == "aten::cudnn_batch_norm":
            nothing = self.run(aten.empty.memory_format, ([0],), {"dtype": torch.uint8, "device": args[0].device})
            return (*self.run(aten.native_batch_norm.default, args, {}), nothing)
        x, gradient, weight, *statistics, eps, _ = args
        return self.run(aten.native_batch_norm_backward.default, (gradient, x, weight, *statistics, True, eps, [True, True, True]), {})

    def _run_batch_norm(self, args: Sequence[Any]) -> Any:
        """A batch norm in training moves the running statistics on, though its schema does not say so."""
        functional = aten._native_batch_norm_legit_functional.default
        values = tuple(self._values(list(args)))
        results = super().run(aten.native_batch_norm.default, args, {})
        moved = [self.from_meta(torch.empty_like(t.meta), t.device) for t in args[3:5]]
        names = self._emit(functional, values, {}, (*results, *moved))
        for fake, name in zip(results, names, strict=False):
            self._own(fake, name)
        for target, name, fake in zip(args[3:5], names[3:], moved, strict=True):
            self.write(target, self._fitted(name, fake, target))
        return results

    def _copied(self, target: FakeTensor, source: FakeTensor) -> str:
        value = self.value_of(source).name
        fake: FakeTensor = source
        if fake.shape != target.shape:
            expanded = super().run(aten.expand.default, (fake, list(target.shape)), {})
            [value] = self._emit(aten.expand.default, (Value(value), list(target.shape)), {}, expanded)
            fake = expanded
        return self._fitted(value, fake, target, always=True)

    def _fitted(self, value: str, fake: FakeTensor, target: FakeTensor, always: bool = False) -> str:
        """``value`` as a fresh value of the target's type and layout."""
        if fake.shape != target.shape:
            raise GraphError("GI002", "a write that changes the size of its target", where=self.state.origin)
        if fake.dtype != target.dtype:
            [value] = self._emit(aten._to_copy.default, (Value(value),), {"dtype": target.dtype}, target)
        elif always or meta_of(fake).strides != meta_of(target).strides:
            [value] = self._emit(aten.clone.default, (Value(value),), {}, target)
        else:
            self.state.graph.metas[value] = meta_of(target)
        return value

    def _emit(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> list[Any]:
        """Appends a node; names of its results, None for those that are no tensors."""
        graph, names = self.state.graph, []
        for fake in result if isinstance(result, (list, tuple)) else (result,):
            name = None
            if isinstance(fake, torch.Tensor):
                name = f"v{self.state.counter}"
                self.state.counter += 1
                graph.metas[name] = meta_of(fake)
            names.append(name)
        binds: tuple[tuple[str, int, int], ...] = ()
        if self.sizes is not None:
            binds = tuple(unbound((graph.metas.get(name) if name else None for name in names), self.state.bound, self.sizes))
            self.state.bound.update(symbol for symbol, _, _ in binds)
        graph.nodes.append(
            Node(
                func,
                recorded(tuple(args)),
                {k: recorded(v) for k, v in kwargs.items()},
                tuple(names),
                self.state.origins.now(self.state.origin) if self.differentiate else self.state.origin,
                binds,
                self.state.again,
                self.state.label,
            )
        )
        graph.sizes = self.sizes
        return names


def shares(source: FakeTensor, result: Any) -> bool:
    """Whether what an operator gave lies in the memory of ``source``."""
    first = next(iter(_tensors(result)), None)
    return first is not None and first.meta.untyped_storage()._cdata == source.meta.untyped_storage()._cdata


def _tensors(result: Any) -> list[FakeTensor]:
    if isinstance(result, FakeTensor):
        return [result]
    return [r for r in result if isinstance(r, FakeTensor)] if isinstance(result, (list, tuple)) else []


__all__ = ["Memory", "Recorder", "Track", "meta_of", "shares", "values_in"]
