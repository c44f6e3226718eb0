"""Runs operators on fake tensors."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat, known
from .bare import no_dispatch, no_levels
from .batches import OVER_BATCHES, over_batches
from .classes import computes_as_plain
from .contents import Contents
from .errors import DataDependent, NoFakeKernel
from .jagged import says_rows
from .operator import Operator, describe
from .overlap import refuse_overlap
from .probing import refusal
from .symbolic import any_symbolic, fixed_sizes, promised_otherwise, python_kernel, symbolic_meta
from .symbols import Index, Relation, Sizes, index_of, sym_int
from .table import alike
from .tensor import ConstantBox, FakeTensor, kept
from .unlike import numbered, unlike
from .wrappers import NotTakenApart, inner_sizes, put_together, resized, take_apart, takes_operators

META = torch.device("meta")
CPU = torch.device("cpu")

_LIFTS = ("aten::lift_fresh", "aten::lift", "aten::lift_fresh_copy")
_ASKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "aten::size": lambda x: [int(n) for n in x.shape],
    "aten::stride": lambda x: [int(n) for n in x.stride()],
    "aten::numel": lambda x: int(x.numel()),
    "aten::storage_offset": lambda x: int(x.storage_offset()),
}
"""Questions of torch's C++ about a tensor with symbolic sizes: it wants integers, which are assumed from then on."""
_MARKED: dict[str, Callable[[torch.Tensor], bool]] = {"aten::resolve_conj": torch.Tensor.is_conj, "aten::resolve_neg": torch.Tensor.is_neg}
"""Operators that write out what a tensor is marked as."""
_WRITTEN_OUT = ("aten::view_as_real", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
"""Operators that give views of a copy where their argument is marked as conjugated: torch, which does not see the mark of a fake, asks for
the imaginary part by the first one."""
_NUMBERS = (int, float, bool, complex)
_wrapper = torch.Tensor._make_wrapper_subclass


class _Computed(torch.autograd.function._SingleLevelFunction):
    """Gives the tensor in a list as one that was computed from another: no leaf, and no view of one, which must not be written to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, held: list[torch.Tensor]) -> torch.Tensor:
        return held[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def computed(leaf: torch.Tensor, held: FakeTensor) -> FakeTensor:
    """``held`` as computed from ``leaf``, also inside a function transform, which would take the call for one of its own."""
    functorch = torch._C._functorch
    allowed = functorch.get_single_level_autograd_function_allowed()
    functorch.set_single_level_autograd_function_allowed(True)
    try:
        with torch.enable_grad(), no_levels():
            return _Computed.apply(leaf, [held])  # type: ignore[attr-defined, no-any-return]
    finally:
        functorch.set_single_level_autograd_function_allowed(allowed)


class FakeContext(TorchDispatchMode):
    """Enter it, and factory functions give fakes; operators on fakes give fakes in any case.

    >>> with FakeContext() as ctx:
    ...     x = ctx.from_tensor(torch.ones(3, 4))
    ...     (x @ x.t()).shape
    torch.Size([3, 3])

    Real tensors among the arguments are converted by :meth:`from_tensor`. Raises :class:`DataDependent` and
    :class:`NoFakeKernel`; errors of wrong use (shapes that do not fit) are torch's own.

    With an environment of ``sizes``, dimensions may be symbolic (``torch.SymInt``): what operators compare is decided by the sizes at hand
    and recorded there.

    >>> real = torch.ones(3, 4)
    >>> with FakeContext(Sizes()) as ctx:
    ...     x = ctx.from_tensor(real, {0: None})
    ...     (x @ x.t()).shape, (x[:2] + 1).shape, ctx.sizes.decisions
    (torch.Size([s0, s0]), torch.Size([2, 4]), [])

    With an environment for ``data``, sizes that only data tell are new symbols of it, which becomes the environment of ``sizes`` then.

    >>> with FakeContext(data=Sizes()) as ctx:
    ...     torch.ones(4).nonzero().shape, ctx.sizes
    (torch.Size([4, 1]), None)
    >>> with FakeContext(data=Sizes()) as ctx:
    ...     x = ctx.from_tensor(real)
    ...     x[x > 0].shape
    torch.Size([u0])
    """

    knows_filled = True
    """Whether the values of tensors that are filled with one number in the likeness of others are known."""

    def __init__(self, sizes: Sizes | None = None, data: Sizes | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes = sizes
        self.data = data
        self.drawn: list[torch.device | torch.Generator] = []
        """The generators that operators have taken random numbers from: of their devices, or their own."""
        self._contents = Contents()
        self._python_dispatcher: list[Any] = []
        self._inside = 0
        """How many of torch's kernels in Python are running: what they call is no part of the program."""
        self._by_id: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._known: list[tuple[int, ConstantBox]] = []
        """Of tensors from outside with known values: their storage, and what says whether they still have these."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps __torch_dispatch__ in what imports torch._dynamo

    @classmethod
    def is_infra_mode(cls) -> bool:
        """What torch asks of a mode: it is part of a compiler, not of the program."""
        return True

    def __enter__(self) -> FakeContext:
        guard = None
        if self.sizes is not None and any(symbol.hint is not None for symbol in self.sizes.symbols.values()):
            # torch's composite operators read sizes as integers in C++ and have Python twins that do not, but ask more of what only data
            # tell
            compat.distrust_twins()
            guard = torch._C._EnablePythonDispatcher()
            guard.__enter__()
        self._python_dispatcher.append(guard)
        return super().__enter__()  # type: ignore[no-untyped-call, no-any-return]

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        if (guard := self._python_dispatcher.pop()) is not None:
            guard.__exit__(*exc)

    # ---- making fakes ----------------------------------------------------------------------------------------------

    def from_tensor(
        self, tensor: torch.Tensor, symbolic: Mapping[int, Index | None] | None = None, label: str = "x", moving: Collection[int] = ()
    ) -> FakeTensor:
        """A fake like ``tensor``: geometry, device, requires_grad, leaf or not, parameter or not. The same object gives the
        same fake for as long as both live. ``symbolic``: dimensions of any size from 2 on, by number, each with its symbol in ``sizes`` or
        None for a new one; ``label`` is the tensor in the user's words. ``moving``: dimensions whose strides, where they are no products of
        sizes, are symbols of their own."""
        if isinstance(tensor, FakeTensor):
            if symbolic:
                raise ValueError("a fake keeps the sizes that it was made with")
            return tensor
        known = self._by_id.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        fake = self._convert(tensor, symbolic, label, moving)
        key, by_id = id(tensor), self._by_id  # what is called back keeps neither the tensor nor the context
        by_id[key] = (weakref.ref(tensor, lambda _: by_id.pop(key, None)), fake)
        return fake

    def _convert(
        self, tensor: torch.Tensor, symbolic: Mapping[int, Index | None] | None = None, label: str = "", moving: Collection[int] = ()
    ) -> FakeTensor:
        if takes_operators(type(tensor)):
            wrapper: FakeTensor = self._like_wrapper(tensor, symbolic, label, moving)
            return wrapper
        if (kind := unlike(tensor)) is not None:
            raise NoFakeKernel("from_tensor", kind)
        if not computes_as_plain(type(tensor)):
            raise NoFakeKernel("from_tensor", f"tensor subclass {type(tensor).__name__}")
        if tensor.is_neg():
            raise NoFakeKernel("from_tensor", "a tensor whose memory holds the negatives of its values (x.conj().imag)")
        with no_dispatch(), no_levels():
            offset = tensor.storage_offset()
            if symbolic or moving:
                if self.sizes is None:
                    raise ValueError("symbolic dimensions need FakeContext(sizes)")
                meta = symbolic_meta(tensor, symbolic or {}, self.sizes, label, moving)
            else:
                meta = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META)
            if offset and not symbolic and not moving:
                numel = tensor.untyped_storage().nbytes() // tensor.element_size()
                meta = torch.empty(numel, dtype=tensor.dtype, device=META).as_strided(tensor.size(), tensor.stride(), offset)
            if tensor.is_conj():
                meta = meta.conj()
            if self.data is not None:
                self._contents.entered(meta)
        fake = self.from_meta(meta, tensor.device, requires_grad=tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            fake._is_param = True
        elif tensor.requires_grad and not tensor.is_leaf:
            fake = computed(fake, self.from_meta(meta, tensor.device))
        return fake

    def has_fake(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has a fake already, which it keeps."""
        known = self._by_id.get(id(tensor))
        return known is not None and known[0]() is tensor

    def has_rows(self, identity: int) -> bool:
        """Whether the fake of the tensor with this ``id`` says where rows of jagged tensors lie."""
        known = self._by_id.get(identity)
        return known is not None and says_rows(known[1])

    def know(self, tensor: torch.Tensor, asked: Callable[[], None]) -> None:
        """What a plain tensor holds now is known of its fake. ``asked()`` is called when something is decided by that."""
        if takes_operators(type(tensor)):
            return
        fake = self.from_tensor(tensor)
        with no_dispatch(), no_levels():
            fake._constant, fake._box = tensor.detach().clone(), ConstantBox(frozenset([asked]))
            self._known.append((tensor.untyped_storage()._cdata, fake._box))

    def written_outside(self, fake: FakeTensor) -> None:
        """Tensors from outside that share memory with the one that was written have no known values any more."""
        if not self._known:
            return
        own = fake.meta.untyped_storage()._cdata
        with no_dispatch(), no_levels():
            plain = [(ref, made) for ref, made in self._by_id.values() if type(made) is FakeTensor]  # what is in wrappers is among them
            inputs = [(made, ref()) for ref, made in plain if made.meta.untyped_storage()._cdata == own]
            touched = {real.untyped_storage()._cdata for _, real in inputs if real is not None}
        for storage, box in self._known:
            if storage in touched:
                box.forget()

    def _like_wrapper(self, tensor: Any, symbolic: Mapping[int, Index | None] | None, label: str, moving: Collection[int]) -> Any:
        """A wrapper of fakes. Dimensions that are symbolic are so in the tensors inside that have the wrapper's own sizes."""
        try:
            return self._made_like_wrapper(tensor, symbolic, label, moving)
        except NotTakenApart as error:
            raise NoFakeKernel("from_tensor", str(error)) from None

    def _made_like_wrapper(self, tensor: Any, symbolic: Mapping[int, Index | None] | None, label: str, moving: Collection[int]) -> Any:
        form, leaves = take_apart(tensor)
        assert form is not None
        if symbolic:
            if self.sizes is None:
                raise ValueError("symbolic dimensions need FakeContext(sizes)")
            given = {d: self.sizes.new(tensor.size(d), origin=f"{label}.size({d})") if n is None else n for d, n in symbolic.items()}
            inside = [inner_sizes(tensor, leaf, given) for leaf in leaves]
            alike = [leaf for leaf in leaves if leaf.shape == tensor.shape and leaf.stride() == tensor.stride()][:1]
            fakes = [
                self.from_tensor(leaf, own, label, moving if alike and leaf is alike[0] else ())
                for leaf, own in zip(leaves, inside, strict=True)
            ]
            if any(inside):
                with no_dispatch(), no_levels():
                    like = self.from_tensor(alike[0]).meta if alike else symbolic_meta(tensor, given, self.sizes, label)
                form = resized(form, tensor.shape, like)
        else:
            fakes = [self.from_tensor(leaf) for leaf in leaves]
        with self, torch.no_grad():
            made = put_together(form, iter(fakes))
            if made.requires_grad != tensor.requires_grad:
                made.requires_grad_(tensor.requires_grad)
        if form.is_parameter:
            made._is_param = True
        elif tensor.requires_grad and not tensor.is_leaf:
            with self, torch.no_grad():
                made = computed(made, put_together(form, iter(fakes)))
        return made

    def from_meta(self, meta: torch.Tensor, device: torch.device, *, requires_grad: bool = False) -> FakeTensor:
        """A fake on ``device`` with the geometry of ``meta``, which it keeps."""
        if (kind := unlike(meta)) is not None:
            raise NoFakeKernel("from_meta", kind)
        fake = _wrapper(
            FakeTensor, meta.size(), meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=device, requires_grad=requires_grad
        )
        fake.meta, fake.context, fake._constant, fake._box = meta, self, None, None
        return fake

    # ---- running operators -----------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for cls in types:
            if cls is not FakeTensor:  # it says itself what operators on its tensors do; what it computes with comes back here
                return NotImplemented
        if args and type(args[0]) in _NUMBERS and describe(func).lifts_numbers(args[1:]):
            with no_dispatch(), no_levels():  # torch unwraps tensors that were made of numbers
                number = torch.tensor(args[0])
            args = (self.lift(number), *args[1:])
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What ``func`` gives for these arguments, as fakes."""
        op = describe(func)
        if op.packet in _ASKED:
            return _ASKED[op.packet](args[0])
        if op.packet in _LIFTS and not isinstance(args[0], FakeTensor):
            return self.lift(args[0])
        if (marked := _MARKED.get(op.packet)) and isinstance(args[0], FakeTensor) and marked(args[0].meta):
            with no_dispatch():
                return self.from_meta(alike(args[0].meta), args[0].device)  # torch does not see the marks, and would give the fake itself
        if op.packet in _WRITTEN_OUT and isinstance(args[0], FakeTensor) and args[0].meta.is_conj():
            args = [self.run(torch.ops.aten.resolve_conj.default, args[:1], {}), *args[1:]]
        if op.names_device:
            return self._by_kernel(op, op.func.decompose, args, kwargs)
        call = _Call(self)
        metas = [call.take(a) for a in args]
        meta_kwargs = {k: call.take(v) for k, v in kwargs.items()} if kwargs else {}
        device = call.place(op, meta_kwargs)
        if op.draws(args, kwargs):
            self._note_drawn(device, (*args, *kwargs.values()))
        if op.check is not None:
            with no_dispatch():
                op.check(*metas, **meta_kwargs)
        if (
            op.probed
            and not self._inside
            and device.type == "cpu"
            and not op.data_dependent(metas)
            and (refused := refusal(op.func, metas, meta_kwargs)) is not None
        ):
            raise type(refused)(*refused.args)
        if op.writes and not self._inside:
            with no_dispatch(), torch._C._DisablePythonDispatcher(), no_levels():
                refuse_overlap(op, metas, meta_kwargs)
        if op.writes and self.data is not None:
            self._contents.written(call.written(op, metas, meta_kwargs))
        if op.data_dependent(metas):
            if call.constants and call.fakes:
                return call.from_constants(op, args, kwargs)
            if op.func._can_decompose():
                return self._by_kernel(op, op.func.decompose, args, kwargs)
            return call.wrap(self._counted(op, metas, meta_kwargs), device)
        symbolic = False
        if self.sizes is None:
            result = self._infer(op, metas, meta_kwargs, device)
        else:
            symbolic = any_symbolic((metas, *meta_kwargs.values()))
            result = self._by_row(op, metas, meta_kwargs, device) if symbolic else NotImplemented
            if result is NotImplemented and symbolic and op.packet in OVER_BATCHES:
                with no_dispatch(), torch._C._DisablePythonDispatcher():
                    result = over_batches(op.packet, metas, meta_kwargs, lambda given, named: self._infer(op, given, named, device))
            if result is NotImplemented and (kernel := python_kernel(op.func, symbolic)) is not None:
                made = self._by_kernel(op, kernel, args, kwargs)
                if not (symbolic and device.type == "cpu" and promised_otherwise(op, metas, meta_kwargs, made)):
                    call.forget_written(op, args, kwargs)
                    return call.tied(made) if op.shares else self._apart(made, args)
            if result is NotImplemented:
                with torch._C._DisablePythonDispatcher():  # kernels in C++ are faster, and whole
                    result = (self._by_fixed_sizes if symbolic else self._infer)(op, metas, meta_kwargs, device)
        if op.writes:
            if op.counts_lists:
                torch.autograd.graph.increment_version(list(call.written(op, args, kwargs)))
            after = known.after_writing(op, args, kwargs) if call.constants and not symbolic else None
            call.forget_written(op, args, kwargs)
            if after is not None:
                args[0]._constant, args[0]._box = after, ConstantBox(call.told(), args[0]._box.memory)
        if self.data is not None and (op.pure or op.gives_views) and isinstance(result, torch.Tensor) and call.fakes:
            self._contents.made(op.name, (*metas, *meta_kwargs.items()), result, op.gives_views)
        out = call.wrap(result, device)
        if not symbolic:
            if call.constants and op.pure:
                known.attach(op, args, kwargs, out, list(call.fakes.values()), call.told())
            elif self.knows_filled and op.base_name in known.FILLING:
                known.attach_filled(op, args, kwargs, out)
        return call.tied(out)

    def forget_tensors(self) -> None:
        """Of the tensors that fakes stand for nothing is kept, so that nobody finds weak references to them."""
        self._by_id.clear()

    def _note_drawn(self, device: torch.device, args: Sequence[Any]) -> None:
        own: list[Any] = [arg for arg in args if isinstance(arg, torch.Generator)]
        self.drawn += [each for each in own or [device] if each not in self.drawn]

    def _infer(self, op: Operator, metas: list[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        with no_dispatch():
            try:
                return op.infer(metas, kwargs, device)
            except NotImplementedError as e:
                raise NoFakeKernel(op.name, str(e).partition("\n")[0]) from None

    # ---- sizes that only data tell ----------------------------------------------------------------------------------

    def _counted(self, op: Operator, metas: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result, with a new symbol for what only data tell. Raises DataDependent where nobody wants such, or no row knows the
        operator."""
        if self.data is None or op.counted is None:
            raise DataDependent(op.name)
        self.sizes = self.sizes or self.data
        if op.base_name == "_local_scalar_dense" and (truth := self._truth_in(metas[0])) is not None:
            return truth
        with self._deciding(op), no_dispatch(), torch._C._DisablePythonDispatcher():
            result = op.counted(op.base_name, op.overload, (functools.partial(self._fresh, op), *metas), kwargs)
        if result is NotImplemented:
            raise DataDependent(op.name)
        return result

    def _truth_in(self, meta: torch.Tensor) -> bool | None:
        """The truth that ``meta`` holds, where it was read as a number before, and the program demanded what that number is."""
        number = self._contents.counts.get((id(self._contents.number_in(meta)), "number")) if meta.dtype is torch.bool else None
        return None if number is None or self.sizes is None else self.sizes.known(Relation(index_of(number[1]), "!="))

    def _fresh(self, op: Operator, low: Any, high: Any, of: torch.Tensor | None = None) -> Any:
        read = op.base_name == "_local_scalar_dense"
        same = self._contents.number_in if read else self._contents.same_as
        counts, of = self._contents.counts, None if of is None else same(of)
        key = id(of), "number" if read else "count"
        if of is not None and key in counts:
            return counts[key][1]
        assert self.sizes is not None
        where = self.sizes.where() if self.sizes.where is not None else ""
        least, most = (n if type(n) is int else None for n in (low, high))
        symbol = self.sizes.new(None, low=least or 0, high=most, origin=f"{op.name} at {where}" if where else op.name)
        if type(high) is torch.SymInt:
            self.sizes.learn(Relation(index_of(high) - symbol, ">="))
        if type(low) is torch.SymInt:
            self.sizes.learn(Relation(symbol - index_of(low), ">="))
        fresh = sym_int(self.sizes, symbol)
        if of is not None:
            counts[key] = of, fresh
        return fresh

    # ---- symbolic sizes --------------------------------------------------------------------------------------------

    @contextmanager
    def _deciding(self, op: Operator) -> Iterator[None]:
        """What is decided meanwhile is decided for this operator, or for the one whose kernel calls it."""
        sizes = self.sizes or self.data
        if sizes is None:  # all are numbers
            yield
            return
        outermost = not sizes.operator
        sizes.operator = sizes.operator or op.name
        try:
            yield
        finally:
            if outermost:
                sizes.operator = ""

    def _by_row(self, op: Operator, metas: list[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        """By this package's rules; NotImplemented where they do not tell."""
        with self._deciding(op), no_dispatch(), torch._C._DisablePythonDispatcher():
            return op.by_row(op.as_looped(metas, device), kwargs, device, symbolic=True)

    def _by_kernel(self, op: Operator, kernel: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """By the operators that torch's Python kernel is made of, each of which comes back here."""
        compat.defuse_meta_kernels()
        fake_args = pytree.tree_map_only(torch.Tensor, self.from_tensor, tuple(args))
        fake_kwargs = pytree.tree_map_only(torch.Tensor, self.from_tensor, dict(kwargs))
        self._inside += 1
        try:
            with self._deciding(op), self:
                return kernel(*fake_args, **fake_kwargs)
        finally:
            self._inside -= 1

    def _apart(self, result: Any, args: Sequence[Any]) -> Any:
        """The result of an operator that gives tensors of its own, where torch's kernel in Python gives an argument or a view of it."""
        fakes = [a for a in pytree.tree_leaves(args) if isinstance(a, FakeTensor)]
        taken = {fake.meta.untyped_storage()._cdata for fake in fakes}

        def own(out: Any) -> Any:
            if not isinstance(out, FakeTensor) or out.meta.untyped_storage()._cdata not in taken:
                return out
            with no_dispatch():
                return self.from_meta(alike(out.meta), out.device)

        return pytree.tree_map(own, result)

    def _by_fixed_sizes(self, op: Operator, metas: list[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        """By torch's meta kernel in C++, which wants integers: the sizes of this operator's arguments are assumed."""
        if op.gives_views:
            raise NoFakeKernel(op.name, "it gives a view of a tensor with symbolic sizes")
        with self._deciding(op), no_dispatch():
            (plain_args, plain_kwargs), replaced = fixed_sizes((metas, kwargs))
            result = self._infer(op, plain_args, plain_kwargs, device)
        if any(plain.shape != kept.shape for plain, kept in replaced.values()):
            raise NoFakeKernel(op.name, "it resizes a tensor with symbolic sizes")
        return pytree.tree_map_only(torch.Tensor, lambda t: replaced[id(t)][1] if id(t) in replaced else t, result)

    def lift(self, fresh: torch.Tensor) -> FakeTensor:
        """A fake for a tensor that was just made from Python numbers; it carries its value when small."""
        fake = self._convert(fresh)
        if fresh.numel() <= known.SMALL:
            fake._constant, fake._box = fresh, ConstantBox()
        return fake


class _Call:
    """One call: what its arguments were, so that results find their device, identity and value."""

    __slots__ = ("constants", "context", "device", "fakes", "zero_dim_cpu")

    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.fakes: dict[int, FakeTensor] = {}
        self.constants = True
        self.device: torch.device | None = None
        self.zero_dim_cpu = False

    def take(self, value: Any) -> Any:
        """The argument as meta kernels want it."""
        kind = type(value)
        if kind is FakeTensor:
            return self._take_fake(value)
        if kind is list or kind is tuple:
            return kind([self.take(v) for v in value])
        if isinstance(value, torch.Tensor):
            return self._take_fake(self.context.from_tensor(value))
        return value

    def _take_fake(self, fake: FakeTensor) -> torch.Tensor:
        meta = fake.meta
        self.fakes[id(meta)] = fake
        box = fake._box
        if box is None or not box.alive:
            self.constants = False
        device = fake.device
        if self.device is None or self.device != device:
            if device.type == "cpu" and not meta.dim():
                self.zero_dim_cpu = True  # such tensors mix with those of any device
            else:
                self.device = self.device or device
        return meta

    def place(self, op: Operator, kwargs: dict[str, Any]) -> torch.device:
        """The device of the results; ``kwargs`` are changed to ask for meta tensors."""
        device = self.device or CPU
        if op.takes_device:
            wanted = kwargs.get("device")
            if wanted is not None:
                device = numbered(torch.device(wanted))
            if wanted is not None or not self.fakes:
                kwargs["device"] = META
            kwargs.pop("pin_memory", None)
        return device

    def wrap(self, result: Any, device: torch.device) -> Any:
        """Metas as fakes; a meta that was an argument gives that argument again."""
        if isinstance(result, torch.Tensor):
            fake = self.fakes.get(id(result))
            if fake is None:
                return self.context.from_meta(result, device)
            if fake.shape != result.shape or fake.stride() != result.stride() or fake.storage_offset() != result.storage_offset():
                like = self.context.from_meta(result, fake.device)
                with no_dispatch():
                    fake.data = like
            return fake
        if isinstance(result, (tuple, list)):
            items = [self.wrap(r, device) for r in result]
            return type(result)(items) if type(result) in (tuple, list) else tuple(items)
        return result

    # ---- known values ----------------------------------------------------------------------------------------------

    def written(self, op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
        """The tensors among the arguments that the operator writes."""
        for name in op.writes:
            position = op.positions[name]
            target = kwargs.get(name) if position >= len(args) else args[position]
            yield from (t for t in (target if isinstance(target, (list, tuple)) else (target,)) if isinstance(t, torch.Tensor))

    def forget_written(self, op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for fake in self.written(op, args, kwargs):
            if isinstance(fake, FakeTensor):
                if fake._box is not None:
                    fake._box.forget()
                self.context.written_outside(fake)

    def tied(self, out: Any) -> Any:
        """The results. Of those without a known value that lie in memory of which something is known, it is not known once they are
        written."""
        if boxes := {fake.meta.untyped_storage()._cdata: fake._box for fake in self.fakes.values() if fake._box is not None}:
            for fake in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(fake, FakeTensor) and fake._box is None:
                    box = boxes.get(fake.meta.untyped_storage()._cdata)
                    fake._box = None if box is None else box.unknown()
        return out

    def told(self) -> frozenset[Callable[[], None]]:
        return frozenset().union(*(fake._box.told for fake in self.fakes.values() if fake._box is not None))

    def from_constants(self, op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operator that needs data, which are all known."""
        value = known.run_on(op, [kept(a) for a in args], {k: kept(v) for k, v in kwargs.items()})
        for tell in self.told():
            tell()
        return self._lift_all(value)

    def _lift_all(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.context.lift(value)
        return type(value)(map(self._lift_all, value)) if isinstance(value, (tuple, list)) else value
