"""What stands at both ends of a graph that computes with wrappers, so that its inputs and outputs are plain tensors.

:class:`Wrap` puts an input together, :class:`Unwrap` takes all outputs apart. In between operators run on wrappers as in eager: autograd on
the outer tensor, then the class's ``__torch_dispatch__``, whose operators on what is inside are those that are recorded.

Gradients go another way than values: nothing inside of an input requires grad. An input that does has *carriers*, plain inputs that nobody
reads; what autograd finds for the wrapper is taken apart, and is the gradient of these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.jagged import is_jagged
from opmill_fake_tensors.strides import contiguous, is_dense
from opmill_fake_tensors.wrappers import Form, NotTakenApart, Thing, numbers_of, put_together, take_apart, takes_operators, unflattened

from ..errors import GraphError


@dataclass(frozen=True, eq=False)
class Looks:
    """How a gradient looks: its form, and sizes and element types of the plain tensors in it that are differentiated."""

    form: Form | None
    sizes: tuple[Sequence[Any], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, tensor: Any, like: Form | None = None) -> Looks:
        """``like``: the form of what it is the gradient of, which says where rows lie."""
        form, leaves = apart(tensor)
        if form is not None and like is not None and form.cls is like.cls and is_jagged(form.cls):
            form = replace(like, context=form.context)
        leaves = differentiated(apart(tensor)[0], leaves)
        return cls(form, tuple(tuple(leaf.shape) for leaf in leaves), tuple(leaf.dtype for leaf in leaves))

    @property
    def differentiable(self) -> bool:
        return all(dtype.is_floating_point or dtype.is_complex for dtype in self.dtypes)


class OtherGradient(Exception):
    """The gradient of an input does not look as was supposed. ``position``: among the inputs, or, where ``flat``, among the plain ones."""

    def __init__(self, position: int, looks: Looks, flat: bool = False) -> None:
        super().__init__(f"the gradient of input {position} looks otherwise")
        self.position, self.looks, self.flat = position, looks, flat


def differentiated(form: Form | None, leaves: Sequence[Any]) -> list[Any]:
    """Of the plain tensors in a tensor of this form, those that its gradient has, too."""
    return list(leaves) if form is None else [leaf for leaf, own in zip(leaves, form.differentiated, strict=True) if own]


def completed(form: Form | None, parts: Iterable[Any], kept: Sequence[Any]) -> list[Any]:
    """All plain tensors of a tensor of this form: ``parts`` are those that are differentiated, ``kept`` the others."""
    if form is None:
        return list(parts)
    came, rest = iter(parts), iter(kept)
    return [next(came if own else rest) for own in form.differentiated]


def kept_of(form: Form | None, leaves: Sequence[Any]) -> list[Any]:
    """The plain tensors that a gradient takes over from the tensor."""
    return [] if form is None else [leaf for leaf, own in zip(leaves, form.differentiated, strict=True) if not own]


def refuse_wrapper(gradient: Any, position: int) -> None:
    """Raises OtherGradient where the gradient of a plain input is a wrapper."""
    if takes_operators(type(gradient)):
        raise OtherGradient(position, Looks.of(gradient), flat=True)


def refuse_mixed(outputs: Sequence[Any], tangents: Sequence[Any], source: Any) -> None:
    """Raises GraphError GI061 where the gradient of a plain input is a wrapper for some outputs and plain for others: which it is then
    depends on what the program differentiates."""
    for output, tangent in zip(outputs, tangents, strict=True):
        (found,) = torch.autograd.grad([output], [source], [tangent], allow_unused=True, retain_graph=True)
        if found is not None and not takes_operators(type(found)):
            what = "a plain input whose gradient is a wrapper for some outputs only"
            raise GraphError("GI061", what, why="which it is depends on what is differentiated", hint="compile the parts by themselves")


def apart(tensor: Any) -> tuple[Form | None, list[torch.Tensor]]:
    """``take_apart`` with a numbered refusal (GI060)."""
    with _numbered(type(tensor)):
        return take_apart(tensor)


@contextlib.contextmanager
def _numbered(cls: type) -> Iterator[None]:
    try:
        yield
    except NotTakenApart as error:
        hint = "define __tensor_flatten__ (names of the tensors inside, and a context) and __tensor_unflatten__ for the class"
        raise GraphError("GI060", f"a tensor of class {cls.__qualname__}", why=str(error), hint=hint) from None


def assembled(form: Form | None, leaves: Sequence[Any]) -> Any:
    """A new tensor of this form, which does not require grad."""
    if torch.is_grad_enabled():
        with torch.no_grad():
            made = put_together(form, iter(leaves))
    else:
        made = put_together(form, iter(leaves))
    if form is not None and made.requires_grad:
        made.requires_grad_(False)
    return made


class Wrap:
    """Puts input ``position`` together: of the tensors inside, then the carriers of its gradient. ``gradient``: how that is supposed to
    look, None for an input that needs none. ``form`` is None for a plain input whose gradient is a wrapper."""

    __name__ = __qualname__ = "wrap"

    def __init__(self, position: int, form: Form | None, gradient: Looks | None) -> None:
        self.position, self.form, self.gradient = position, form, gradient
        self.__module__ = __name__
        self.made: Any = None
        """What it gave when the graph was captured, and of which tensors."""
        self.inside: tuple[Any, ...] = ()
        self.given: Form | None = None

    def __call__(self, *flat: Any) -> Any:
        count = 1 if self.form is None else self.form.count
        if self.gradient is not None:
            with torch.enable_grad():
                made = _Wrapped.apply(self, count, *flat)
        else:
            made = assembled(self.form, flat[:count])
        if self.form is not None and self.form.is_parameter:
            made._is_param = True
        self.made, self.inside, self.given = made, flat[:count], apart(made)[0]
        return made


class _Wrapped(torch.autograd.Function):
    """``apply(wrap, count, *inside, *carriers)`` gives the wrapper."""

    @staticmethod
    def forward(ctx: Any, wrap: Wrap, count: int, *flat: Any) -> Any:
        ctx.wrap, ctx.count = wrap, count
        return assembled(wrap.form, flat[:count])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        wrap: Wrap = ctx.wrap
        looks, supposed = Looks.of(gradient, wrap.form), wrap.gradient
        assert supposed is not None
        same = looks.sizes == supposed.sizes and looks.dtypes == supposed.dtypes
        if not same or (looks.form is None) != (supposed.form is None) or (looks.form is not None and not looks.form.fits(supposed.form)):
            raise OtherGradient(wrap.position, looks)
        parts = differentiated(*apart(gradient))
        if supposed.form is not None and wrap.form is not None and len(parts) == sum(wrap.form.differentiated):
            parts = [_laid_out(part, like) for part, like in zip(parts, differentiated(wrap.form, wrap.inside), strict=True)]
        return None, None, *[None] * ctx.count, *parts


def _laid_out(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What is inside of a gradient, laid out as what is inside of the tensor, as where gradients are kept: the wrapper that it becomes says
    so of itself."""
    if any(type(n) is not int for n in (*part.shape, *part.stride(), *like.shape, *like.stride())) or part.shape != like.shape:
        return part
    strides = like.stride() if is_dense(like.shape, like.stride()) else contiguous(like.shape)
    if part.stride() == strides or part.numel() == 0:
        return part
    return part.new_empty_strided(part.shape, strides).copy_(part)


@dataclass(frozen=True, eq=False)
class Out:
    """How an output is made of the plain ones: ``given`` is the position of the input that it is; else the next ``count`` plain outputs,
    and those of ``kept``, make one of ``form`` (None: it is the next one). ``numbers``: which of the form's sizes and strides are plain
    outputs, by position; empty where none are."""

    form: Form | None = None
    count: int = 1
    given: int | None = None
    numbers: tuple[int | None, ...] = ()
    tangent: Form | None = None
    """How its gradient looks, where it is differentiated."""
    same: int | None = None
    """An earlier output that it is."""
    kept: tuple[int | None, ...] = ()
    """Where integers inside of it (or it itself) are the very tensors that others have, too: by plain tensor, None where it is the next
    output, ``k`` for plain output ``k``, ``-1 - k`` for plain input ``k``. Empty where all are outputs."""


@dataclass(frozen=True)
class Bound:
    """After the call attribute ``path[-1]`` of input ``position`` (of a wrapper in it, where the path is longer) is plain output
    ``source``."""

    position: int
    path: tuple[str, ...]
    source: int


class Unwrap:
    """Takes the outputs of a graph apart; ``outs`` and ``bound`` say how they are put together, once the graph was captured."""

    __name__ = __qualname__ = "unwrap"

    def __init__(self, wraps: Sequence[Wrap]) -> None:
        self.wraps = wraps
        self.__module__ = __name__
        self.outs: list[Out] = []
        self.bound: list[Bound] = []
        self.ran = False

    def __call__(self, items: Any, inputs: Sequence[Any] = ()) -> list[Any]:
        """``inputs``: the plain inputs of the graph."""
        given = {id(wrap.made): wrap for wrap in self.wraps}
        places = Places(inputs)
        flat = places.flat
        outs: list[Out] = []
        met: dict[int, int] = {}
        for item in items if isinstance(items, (list, tuple)) else (items,):
            item = waited(item)
            if not isinstance(item, torch.Tensor) or (form := apart(item)[0]) is None:
                outs.append(Out(count=0, kept=(place,)) if (place := places.of_integers(item)) is not None else Out())
                flat += [item] if place is None else []
            elif id(item) in given:
                outs.append(Out(count=0, given=given[id(item)].position))
            elif id(item) in met:
                outs.append(Out(count=0, same=met[id(item)]))
            else:
                met[id(item)] = len(outs)
                outs.append(_taken(item, form, places))
        self.bound = [bound for wrap in self.wraps for bound in _rebound(wrap, flat)]
        self.outs, self.ran = outs, True
        return flat


class Places:
    """``flat``: the plain outputs so far. Finds tensors that say where rows lie among them and the inputs: each is one object, which tells
    whose rows are as long as whose."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.flat: list[Any] = []
        self.given = {id(value): -1 - k for k, value in reversed(list(enumerate(inputs))) if isinstance(value, torch.Tensor)}

    def of(self, leaf: Any) -> int | None:
        """As in ``Out.kept``."""
        return self.given.get(id(leaf), next((k for k, out in enumerate(self.flat) if out is leaf), None))

    def of_integers(self, item: Any) -> int | None:
        """The place of an output that is an input of integers itself: as that, or as what is inside of one."""
        plain = isinstance(item, torch.Tensor) and not item.is_floating_point() and not item.is_complex()
        return self.given.get(id(item)) if plain else None


def _taken(item: Any, form: Form, places: Places) -> Out:
    """Puts what is inside of an output at the end of the plain ones."""
    leaves, flat = apart(item)[1], places.flat
    if not is_jagged(form.cls):  # what is put together when the plan has run is known to come out as the class it is
        with _numbered(form.cls), torch.no_grad():
            put_together(form, iter(leaves))
    tangent = None
    kept: tuple[int | None, ...] = tuple(None if own else places.of(leaf) for leaf, own in zip(leaves, form.differentiated, strict=True))
    if item.requires_grad and torch.is_grad_enabled():
        looks = Looks.of(item)
        if not looks.differentiable:
            why = (
                f"what is inside of a {form.cls.__qualname__} that requires grad "
                "are no floating-point tensors: nothing says what its gradient is"
            )
            raise GraphError("GI061", "an output that is a wrapper of integers and requires grad", why=why, hint="return it dequantised")
        seen = {*map(id, flat), *places.given}  # whose gradients take ways of their own: autograd would put them behind this output
        tangent = tangent_of(form, leaves)
        fixed, parts = kept_of(form, leaves), differentiated(form, leaves)
        parts = list(_Unwrapped.apply(item, tangent, [leaf.detach() if id(leaf) in seen else leaf for leaf in parts], fixed))
        leaves = completed(form, parts, fixed)
    outputs = [leaf for leaf, place in zip(leaves, kept, strict=True) if place is None]
    flat += outputs
    numbers: list[int | None] = []
    for number in numbers_of(form):
        numbers.append(len(flat) if isinstance(number, torch.SymInt) else None)
        if isinstance(number, torch.SymInt):
            flat.append(number)
    moved = tuple(numbers) if any(n is not None for n in numbers) else ()
    return Out(form, len(outputs), None, moved, tangent, None, kept if len(outputs) < len(leaves) else ())


def tangent_of(form: Form, leaves: Sequence[Any]) -> Form:
    """How the gradient of an output looks: like the output, unless its class says otherwise."""
    if not hasattr(form.cls, "__coerce_tangent_metadata__"):
        return form
    sizes = next((leaf.context.sizes for leaf in leaves if isinstance(leaf, FakeTensor) and isinstance(leaf.context, FakeContext)), None)
    context = FakeContext(sizes, data=None)  # whoever sums what each device has asks how much that is
    with context, torch.no_grad():
        like = put_together(
            form, iter([context.from_meta(leaf.meta, leaf.device) if isinstance(leaf, FakeTensor) else leaf for leaf in leaves])
        )
        found = apart(like.__coerce_tangent_metadata__())[0]
    if found is None or found.count != form.count:
        raise GraphError("GI061", f"an output that is a {form.cls.__qualname__} whose gradient is made of other tensors")
    return found


def waited(item: Any) -> Any:
    """The tensor itself, once what other processes have sent of it is there: a graph gives nothing that is still under way."""
    if not takes_operators(type(item)):
        return item
    if hasattr(type(item), "trigger_wait"):
        return item.trigger_wait()
    form = apart(item)[0]
    assert form is not None
    parts = {name: getattr(item, name) for name in form.names}
    now = {name: waited(part) for name, part in parts.items()}
    if all(now[name] is part for name, part in parts.items()):
        return item
    return unflattened(form, now)


class _Unwrapped(torch.autograd.Function):
    """``apply(wrapper, form, leaves, kept)`` gives the differentiated ones of what is inside of the wrapper, for autograd computed from
    it."""

    @staticmethod
    def forward(ctx: Any, wrapper: Any, form: Form, leaves: list[Any], kept: list[Any]) -> Any:
        ctx.form, ctx.kept = form, kept
        return tuple(leaves)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return assembled(ctx.form, completed(ctx.form, gradients, ctx.kept)), None, None, None


def _rebound(wrap: Wrap, flat: list[Any]) -> list[Bound]:
    """The attributes of an input that are other tensors than before; these are put at the end of ``flat``. Raises GraphError GI062 where
    more than that has changed."""
    if wrap.made is None or wrap.given is None:
        return []
    form, leaves = apart(wrap.made)
    if form is not None and is_jagged(form.cls):  # it may have got to know how long rows are
        known = set(form.names) - set(wrap.given.names)
        leaves = [leaf for name, leaf in zip(form.names, leaves, strict=True) if name not in known]
        form = replace(form, names=wrap.given.names, parts=wrap.given.parts) if len(leaves) == wrap.given.count else form
    if form is None or not wrap.given.fits(form) or tuple(form.sizes) != tuple(wrap.given.sizes):
        why = f"the metadata of a {wrap.given.cls.__qualname__} is not what it was before the call"
        raise GraphError("GI062", "an input that changes what it is", why=why, hint="make a new tensor, and return it")
    found = []
    for before, now, path in zip(wrap.inside, leaves, _paths(form), strict=True):
        if before is not now:
            found.append(Bound(wrap.position, path, len(flat)))
            flat.append(now)
    return found


def _paths(form: Form) -> list[tuple[str, ...]]:
    """Where the plain tensors inside are, as names of attributes."""
    tensors = [(name, part) for name, part in zip(form.names, form.parts, strict=True) if type(part) is not Thing]
    return [(name, *rest) for name, part in tensors for rest in (_paths(part) if type(part) is Form else [()])]
