"""Tensors that are made of other tensors: classes with ``__torch_dispatch__`` that can be taken apart and put together.

torch's protocol: ``__tensor_flatten__`` gives the names of the attributes that are tensors and a context that says the rest,
``__tensor_unflatten__`` makes a tensor of the class of both. Such a tensor is a *wrapper*; what is inside may be one, too. A :class:`Form`
is all of a wrapper but its plain tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.masked import MaskedTensor

from .errors import FakeTensorError
from .jagged import VALUES, is_jagged, rows_among, speak_of_rows
from .lazily import once_for_each_class
from .symbols.index import Index
from .tensor import FakeTensor

_MASKED = ("_masked_data", "_masked_mask")
_LAYOUTS = "torch.distributed.tensor._dtensor_spec"
_DISPATCH = torch._C._disabled_torch_dispatch_impl


@once_for_each_class
def takes_operators(cls: type) -> bool:
    """Whether a class of tensors says itself what operators on them do."""
    return issubclass(cls, torch.Tensor) and cls is not FakeTensor and getattr(cls, "__torch_dispatch__", _DISPATCH) is not _DISPATCH


def is_wrapper(cls: Any) -> bool:
    """Whether tensors of this class are wrappers."""
    return takes_operators(cls) and (cls is MaskedTensor or (hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")))


def flattened(tensor: Any) -> tuple[Sequence[str], Any]:
    """What ``__tensor_flatten__`` gives for a wrapper, or would: torch's masked tensors have none."""
    return (_MASKED, None) if type(tensor) is MaskedTensor else tensor.__tensor_flatten__()


def unflattened(form: Form, parts: Mapping[str, Any]) -> Any:
    """What ``__tensor_unflatten__`` gives for the form, or would."""
    if form.cls is not MaskedTensor:
        return form.cls.__tensor_unflatten__(parts, form.context, form.sizes, form.strides)
    data = parts[_MASKED[0]]  # the constructor would copy it, and warn
    looks = {"dtype": data.dtype, "layout": data.layout, "device": data.device}
    made = torch.Tensor._make_wrapper_subclass(
        MaskedTensor, form.sizes, **looks, dispatch_sizes_strides_policy="strides", dispatch_layout=True
    )
    for name in _MASKED:
        setattr(made, name, parts[name])
    return made


def is_over_mesh(cls: Any) -> bool:
    """Whether tensors of this class are laid out over a mesh of devices: DTensors."""
    return takes_operators(cls) and hasattr(getattr(cls, "_op_dispatcher", None), "sharding_propagator")


def mode_of_fakes() -> object:
    """The mode of torch's own fake tensors that is on, if one is. DTensor has one on while it asks an operator for nothing but the sizes of
    its whole result: what runs then is no part of a graph."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


class NotTakenApart(TypeError):
    """A tensor whose class takes operators, and that cannot be taken apart into plain tensors and put together again."""


@dataclass(frozen=True, eq=False)
class Thing:
    """What is inside of a wrapper and no tensor: a mesh of devices, say. It is the same for all tensors of the form."""

    value: Any

    count = 0
    differentiated = ()

    def fits(self, other: Any) -> bool:
        return type(other) is Thing and same_context(self.value, other.value)


@dataclass(frozen=True, eq=False)
class Form:
    """``cls.__tensor_unflatten__({name: part}, context, sizes, strides)`` makes a tensor of this form. ``parts``: the forms of what is
    inside, in the order of ``names``; None for plain tensors. ``sizes`` and ``strides`` (in elements) are those of the tensor itself."""

    cls: Any
    names: tuple[str, ...]
    context: Any
    sizes: Sequence[Any]
    strides: Sequence[Any]
    parts: tuple[Form | Thing | None, ...]
    is_parameter: bool = False

    @property
    def count(self) -> int:
        """How many plain tensors there are inside."""
        return sum(1 if part is None else part.count for part in self.parts)

    @property
    def differentiated(self) -> tuple[bool, ...]:
        """Of each plain tensor inside, whether the gradient of the tensor has one there: all but those that say where rows of a jagged
        tensor lie, which are the gradient's as well."""
        kept = is_jagged(self.cls)
        found: list[bool] = []
        for name, part in zip(self.names, self.parts, strict=True):
            inner = (True,) if part is None else part.differentiated
            found += [False] * len(inner) if kept and name != VALUES else inner
        return tuple(found)

    def fits(self, other: Any) -> bool:
        """Whether the other form says the same, but for sizes."""
        return (
            type(other) is Form
            and self.cls is other.cls
            and self.names == other.names
            and same_context(self.context, other.context)
            and all(theirs is None if own is None else own.fits(theirs) for own, theirs in zip(self.parts, other.parts, strict=True))
        )

    def contradicts(self, other: Form) -> bool:
        """Whether a form of the same class certainly says something else; contexts that only identity tells apart may say the same."""
        if self.names != other.names or _tell_apart(self.context, other.context):
            return True
        pairs = zip(self.parts, other.parts, strict=True)
        return any(
            type(own) is Form and (type(theirs) is not Form or own.cls is not theirs.cls or own.contradicts(theirs))
            for own, theirs in pairs
        )


def _tell_apart(one: Any, other: Any) -> bool:
    if same_context(one, other):
        return False
    if type(one) is not type(other):
        return True
    if isinstance(one, (tuple, list)):
        return len(one) != len(other) or any(map(_tell_apart, one, other))
    if isinstance(one, dict):
        return one.keys() != other.keys() or any(_tell_apart(value, other[key]) for key, value in one.items())
    try:
        told = getattr(type(one), "__eq__", None) is not getattr(object, "__eq__", None)
        return told and not bool(one == other)
    except Exception:  # as of tensors
        return False


def same_context(one: Any, other: Any) -> bool:
    """Whether two contexts say the same, but for sizes that a layout over a mesh of devices repeats. Those that cannot be compared do
    not."""
    if one is other:
        return True
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return all(map(same_context, one, other))
    try:
        if type(one).__module__ == _LAYOUTS and type(one) is type(other):
            if hasattr(one, "_check_equals"):
                return bool(one._check_equals(other, skip_shapes=True))
            if getattr(one, "_fields", ()) == ("shape", "stride", "dtype"):
                return bool(one.dtype == other.dtype)
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False


def _know_mesh(tensor: Any) -> None:
    """DTensor asks some operators what they are made of on a mesh of its own, of one process, which it makes once. Under fakes it cannot,
    says nothing of that, and lays out operands in another way: who has made one and who has not would wait for each other."""
    strategy: Any = getattr(tensor._op_dispatcher.sharding_propagator, "decomp_strategy", None)
    kind = tensor.device_mesh.device_type
    if kind not in getattr(strategy, "_fake_meshes", (kind,)):
        with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
            strategy._get_fake_mesh(kind)


def take_apart(tensor: Any) -> tuple[Form | None, list[torch.Tensor]]:
    """The form of a tensor, None for a plain one, and the plain tensors in it. Raises :class:`NotTakenApart`."""
    cls = type(tensor)
    if not takes_operators(cls):
        return None, [tensor]
    if is_over_mesh(cls):
        _know_mesh(tensor)
    if not is_wrapper(cls):
        raise NotTakenApart(f"{cls.__qualname__} defines __torch_dispatch__, but not __tensor_flatten__ and __tensor_unflatten__")
    try:
        names, context = flattened(tensor)
        parts = [getattr(tensor, name) for name in names]  # none of them is there while __init__ runs
    except Exception as error:
        raise NotTakenApart(f"__tensor_flatten__ of {cls.__qualname__} fails: {type(error).__name__}: {error}") from None
    forms: list[Form | Thing | None] = []
    leaves: list[torch.Tensor] = []
    for part in parts:
        form, inside = take_apart(part) if isinstance(part, torch.Tensor) else (Thing(part), [])
        forms.append(form)
        leaves += inside
    if is_jagged(cls):  # what is inside tells its sizes; whether it requires grad is said apart, as of others
        context, sizes, strides = {**context, "requires_grad": False}, (), ()
    else:
        sizes, strides = tensor.shape, tensor.stride() if tensor.layout is torch.strided else ()
    return Form(cls, tuple(names), context, sizes, strides, tuple(forms), getattr(tensor, "_is_param", False)), leaves


def put_together(form: Form | Thing | None, leaves: Iterator[Any]) -> Any:
    """A tensor of this form of the next plain tensors. Raises :class:`NotTakenApart` where its class makes one of another class, or none
    of what it says itself."""
    if form is None:
        return next(leaves)
    if type(form) is Thing:
        return form.value
    assert type(form) is Form
    parts = {name: put_together(part, leaves) for name, part in zip(form.names, form.parts, strict=True)}
    if is_jagged(form.cls) and type(rows := parts[rows_among(form.names)]) is FakeTensor:
        speak_of_rows(rows)
    try:
        made = unflattened(form, parts)
    except FakeTensorError:
        raise
    except Exception as error:  # it is called with what another method of the class gave, and its constructor may check that
        raise NotTakenApart(f"__tensor_unflatten__ of {form.cls.__qualname__} fails: {type(error).__name__}: {error}") from None
    if type(made) is not form.cls:  # a static method that a class has of its base, say
        raise NotTakenApart(f"__tensor_unflatten__ of {form.cls.__qualname__} gives a {type(made).__qualname__}")
    return made


def resized(form: Form, sizes: Sequence[int], like: torch.Tensor) -> Form:
    """The form with the sizes and strides of ``like`` wherever it has these ``sizes``."""
    parts = tuple(resized(part, sizes, like) if type(part) is Form else part for part in form.parts)
    if tuple(form.sizes) != tuple(sizes):
        return replace(form, parts=parts)
    return replace(form, sizes=like.shape, strides=like.stride(), parts=parts)


class Share(NamedTuple):
    """Of a size of a tensor and the same of a part inside: the whole is ``often`` times the part, and ``rest``, which is negative where
    other devices have smaller parts."""

    often: int
    rest: int

    def of(self, part: int) -> int:
        return part * self.often + self.rest


def shares(tensor: torch.Tensor, part: torch.Tensor, dims: Collection[int]) -> dict[int, Share] | None:
    """How ``part``, a tensor inside of ``tensor``, goes into it along each of these dimensions: more than once where other devices have
    other parts. None where it does not, or is too small to tell."""
    if part.dim() != tensor.dim():
        return None
    found = {}
    for d in dims:
        often = _devices_along(tensor, d) or int(tensor.size(d)) // max(int(part.size(d)), 1)
        found[d] = Share(often, int(tensor.size(d)) - often * int(part.size(d)))
    whole = all(part.size(d) > 1 and (not share.rest or is_over_mesh(type(tensor))) for d, share in found.items())
    return found if whole else None


def _devices_along(tensor: Any, d: int) -> int:
    """How many parts a tensor over a mesh is divided into along a dimension; 0 where it is none."""
    if not is_over_mesh(type(tensor)):
        return 0
    return math.prod(tensor.device_mesh.size(k) for k, placement in enumerate(tensor.placements) if placement.is_shard(d))


def first_shares(tensor: Any, dims: Collection[int]) -> tuple[str, dict[int, Share]] | None:
    """The first attribute that is a tensor with `shares` along these dimensions, and these."""
    names, _ = flattened(tensor)
    parts = ((name, getattr(tensor, name)) for name in names)
    found = ((name, shares(tensor, part, dims)) for name, part in parts if isinstance(part, torch.Tensor))
    return next(((name, each) for name, each in found if each is not None), None)


def inner_sizes(tensor: torch.Tensor, part: torch.Tensor, symbolic: Mapping[int, Index]) -> dict[int, Index]:
    """The sizes of a tensor inside along these dimensions of the wrapper, whose sizes these are; none where they do not hang together."""
    found = {}
    for d, (often, rest) in (shares(tensor, part, symbolic) or {}).items():
        terms = (symbolic[d] - rest).terms
        if any(count % often for _, count in terms):
            return {}
        found[d] = Index(tuple((product, count // often) for product, count in terms))
    return found


def numbers_of(form: Form) -> list[Any]:
    """The sizes and strides of a form, the symbolic numbers in its context, and those of the forms inside, in order."""
    inside = [n for part in form.parts if type(part) is Form for n in numbers_of(part)]
    return [*form.sizes, *form.strides, *_symbolic(form.context), *inside]


def with_numbers(form: Form, numbers: Iterator[Any]) -> Form:
    """The form with the next of these numbers, in the order of :func:`numbers_of`."""
    sizes = torch.Size([next(numbers) for _ in form.sizes])
    strides = tuple([next(numbers) for _ in form.strides])
    context = _numbered(form.context, numbers) if _symbolic(form.context) else form.context
    parts = tuple(with_numbers(p, numbers) if type(p) is Form else p for p in form.parts)
    return replace(form, context=context, sizes=sizes, strides=strides, parts=parts)


def _items(context: Any) -> dict[Any, Any]:
    """What a context is made of, by key; nothing of a layout over a mesh, which is told the sizes apart from it."""
    cls = type(context)
    if cls in (tuple, list, torch.Size) or hasattr(cls, "_make"):
        return dict(enumerate(context))
    if cls is dict:
        return dict(context)
    if is_dataclass(cls) and cls.__module__ != _LAYOUTS:
        return {field.name: getattr(context, field.name) for field in fields(context) if field.init}
    return {}


def says_sizes(thing: Any) -> bool:
    """Whether a symbolic number is in what a wrapper has: in a tuple, a list, a dict, a data class. In a layout over a mesh, too, which has
    the sizes of the whole."""
    if isinstance(thing, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    inside = _items(thing) or (vars(thing) if type(thing).__module__ == _LAYOUTS and is_dataclass(thing) else {})
    return any(map(says_sizes, inside.values()))


def _symbolic(context: Any) -> list[torch.SymInt]:
    if isinstance(context, torch.SymInt):
        return [context]
    return [number for item in _items(context).values() for number in _symbolic(item)]


def _numbered(context: Any, numbers: Iterator[Any]) -> Any:
    """The context with the next of these numbers in the places of its symbolic ones."""
    if isinstance(context, torch.SymInt):
        return next(numbers)
    if not _symbolic(context):
        return context
    found, cls = {key: _numbered(item, numbers) for key, item in _items(context).items()}, type(context)
    if cls is dict:
        return found
    if is_dataclass(cls):
        return replace(context, **found)
    return cls._make(found.values()) if hasattr(cls, "_make") else cls(found.values())


__all__ = [
    "Form",
    "NotTakenApart",
    "Share",
    "Thing",
    "first_shares",
    "flattened",
    "inner_sizes",
    "is_over_mesh",
    "is_wrapper",
    "mode_of_fakes",
    "numbers_of",
    "put_together",
    "resized",
    "same_context",
    "says_sizes",
    "shares",
    "take_apart",
    "takes_operators",
    "unflattened",
    "with_numbers",
]
