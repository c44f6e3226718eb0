"""Kinds of tensor subclasses as users write them: quantised in groups, quantised twice, factors and corrections, kept results, units, sets of
names, rows of lengths, buckets, intervals, dual numbers, triangles, halves of one memory, integers with float gradients, blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten
SAME = (aten.detach.default, aten.clone.default, aten.alias.default)


class Kind(torch.Tensor):
    """``INSIDE`` are the attributes that are tensors, ``SAYS`` those of the context, in the order of the constructor."""

    INSIDE: tuple[str, ...] = ()
    SAYS: tuple[str, ...] = ()
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, *values: Any, size: Any = None, stride: Any = None) -> Any:
        own, strides, like = cls.looks(*values)
        size, strides = own if size is None else size, strides if stride is None else stride
        more = {} if strides is None else {"strides": strides}
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=like.dtype, device=like.device, **more)  # type: ignore[attr-defined]

    def __init__(self, *values: Any, size: Any = None, stride: Any = None) -> None:
        for name, value in zip((*self.INSIDE, *self.SAYS), values, strict=True):
            setattr(self, name, value)

    @classmethod
    def looks(cls, first: Any, *_: Any) -> Any:
        """Sizes and strides of the whole, and a tensor of its type."""
        return first.shape, first.stride(), first

    def __tensor_flatten__(self) -> Any:
        return list(self.INSIDE), tuple(getattr(self, name) for name in self.SAYS)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(*(inner[name] for name in cls.INSIDE), *context, size=size, stride=stride)

    def whole(self) -> Any:
        raise NotImplementedError

    @classmethod
    def opened(cls, func: Any, args: Any, kwargs: Any, read: Callable[[Any], Any] | None = None) -> Any:
        """The operator on what ``read`` gives of the wrappers."""
        args, kwargs = pytree.tree_map_only(cls, read or cls.whole, (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def on_parts(cls, func: Any, args: Any, kwargs: Any) -> Any:
        """A wrapper of what the operator gives for each part; says what the first wrapper says."""
        first = next(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, cls))
        parts = [cls.opened(func, args, kwargs, lambda t, name=name: getattr(t, name)) for name in cls.INSIDE]
        says = [getattr(first, name) for name in cls.SAYS]
        result = pytree.tree_map(lambda *p: cls(*p, *says) if isinstance(p[0], torch.Tensor) else p[0], *parts)
        return return_and_correct_aliasing(func, args, kwargs, result)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        if func in SAME:
            first = args[0]
            parts = [func(getattr(first, name), **kwargs) for name in cls.INSIDE]
            made = cls(*parts, *(getattr(first, name) for name in cls.SAYS), size=first.shape, stride=first.stride())
            return return_and_correct_aliasing(func, args, kwargs, made)
        return cls.operate(func, args, kwargs)

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        return cls.opened(func, args, kwargs)


class Grouped(Kind):
    """Quantised in groups with scales and zero points."""

    INSIDE = ("codes", "scale", "zero")

    @classmethod
    def looks(cls, codes: Any, scale: Any, zero: Any) -> Any:  # type: ignore[override]
        return (codes.shape[0], codes.shape[1] * codes.shape[2]), None, scale

    @classmethod
    def of(cls, weight: Any, group: int = 4) -> Any:
        parts = weight.detach().view(weight.shape[0], -1, group)
        low, high = parts.amin(-1, True), parts.amax(-1, True)
        scale = (high - low).clamp(min=1e-5) / 15
        zero = (-low / scale).round()
        return cls(((parts / scale).round() + zero).clamp(0, 15).to(torch.uint8), scale, zero)

    def whole(self) -> Any:
        return ((self.codes.to(self.scale.dtype) - self.zero) * self.scale).view(self.shape)  # type: ignore[attr-defined]


class Twice(Kind):
    """Four bits each, looked up; the scales are quantised themselves."""

    INSIDE, SAYS = ("packed", "scales", "middle"), ("block", "sizes")
    TABLE = torch.linspace(-1, 1, 16, dtype=torch.float64)

    @classmethod
    def looks(cls, packed: Any, scales: Any, middle: Any, block: int, sizes: Any) -> Any:  # type: ignore[override]
        return sizes, None, middle

    @classmethod
    def of(cls, weight: Any, block: int = 8) -> Any:
        parts = weight.detach().reshape(-1, block)
        scale = parts.abs().amax(1)
        codes = (parts / scale[:, None]).unsqueeze(-1).sub(cls.TABLE).abs().argmin(-1).to(torch.uint8).view(-1)
        mean = scale.mean()
        return cls((codes[::2] << 4) | codes[1::2], Grouped.of((scale - mean).view(4, -1)), mean, block, tuple(weight.shape))

    def whole(self) -> Any:
        codes = torch.stack([self.packed >> 4, self.packed & 15], -1).view(-1).long()  # type: ignore[attr-defined]
        scale = self.scales.whole().view(-1) + self.middle  # type: ignore[attr-defined]
        return (self.TABLE[codes].view(-1, self.block) * scale[:, None]).view(self.sizes)  # type: ignore[attr-defined]


class Corrected(Kind):
    """A product of two factors, and what is added at some places."""

    INSIDE = ("left", "right", "places", "values_there")

    @classmethod
    def looks(cls, left: Any, right: Any, *_: Any) -> Any:
        return (left.shape[0], right.shape[1]), None, left

    def whole(self) -> Any:
        return self.added(self.left @ self.right)  # type: ignore[attr-defined]

    def added(self, dense: Any) -> Any:
        return dense.reshape(-1).index_add(0, self.places, self.values_there).view(dense.shape)  # type: ignore[attr-defined]

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.mm.default and isinstance(args[1], cls) and not isinstance(args[0], cls):
            x, w = args
            return (x @ w.left) @ w.right + x @ w.added(x.new_zeros(w.shape))  # type: ignore[attr-defined]
        return super().operate(func, args, kwargs)


class Keeping(Kind):
    """Keeps what it computed for the first operator."""

    INSIDE = ("codes", "scale")
    kept: Any = None

    @classmethod
    def looks(cls, codes: Any, scale: Any) -> Any:  # type: ignore[override]
        return codes.shape, codes.stride(), scale

    def whole(self) -> Any:
        if self.kept is None:
            self.kept = self.codes.to(self.scale.dtype) * self.scale  # type: ignore[attr-defined]
        return self.kept


class Unit(Kind):
    """Powers of two units, which operators reckon with; refuses what has none."""

    INSIDE, SAYS = ("number",), ("unit",)

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        units = [t.unit if isinstance(t, cls) else (0, 0) for t in args if isinstance(t, torch.Tensor)]  # type: ignore[attr-defined]
        name, unit = func._schema.name.partition("::")[2], units[0]
        if name in ("mul", "mm") and len(units) > 1:
            unit = tuple(a + b for a, b in zip(*units[:2], strict=True))
        elif name == "div" and len(units) > 1:
            unit = tuple(a - b for a, b in zip(*units[:2], strict=True))
        elif (name in ("add", "sub", "add_") and len(set(units)) > 1) or (name == "exp" and unit != (0, 0)):
            raise ValueError(f"{name} of {units}")
        found = cls.opened(func, args, kwargs, lambda t: t.number)
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_map_only(torch.Tensor, lambda t: cls(t, unit), found))


class Named(Kind):
    """Whose work is in it: the names of all operands."""

    INSIDE, SAYS = ("number",), ("names_of",)

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        names = frozenset().union(*(t.names_of for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, cls)))  # type: ignore[attr-defined]
        found = cls.opened(func, args, kwargs, lambda t: t.number)
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_map_only(torch.Tensor, lambda t: cls(t, names), found))


class Rows(Kind):
    """Rows of which only the first items count: sums over them see no others."""

    INSIDE = ("padded", "lengths")

    def counts(self) -> Any:
        return (torch.arange(self.padded.shape[1])[None] < self.lengths[:, None])[..., None]  # type: ignore[attr-defined]

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        first = next(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, cls))
        if func is aten.sum.dim_IntList and list(args[1]) == [1]:
            return (first.padded * first.counts()).sum(1)  # type: ignore[attr-defined]
        found = cls.opened(func, args, kwargs, lambda t: t.padded)
        made = pytree.tree_map_only(torch.Tensor, lambda t: cls(t, first.lengths), found)  # type: ignore[attr-defined]
        return return_and_correct_aliasing(func, args, kwargs, made)


class Buckets(Kind):
    """A table of common and of rare words."""

    INSIDE = ("common", "rare")

    @classmethod
    def looks(cls, common: Any, rare: Any) -> Any:  # type: ignore[override]
        return (common.shape[0] + rare.shape[0], common.shape[1]), None, common

    def whole(self) -> Any:
        return torch.cat([self.common, self.rare])  # type: ignore[attr-defined]

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.embedding.default:
            table, words = args[:2]
            cut = table.common.shape[0]
            found = F.embedding(words.clamp(max=cut - 1), table.common), F.embedding((words - cut).clamp(min=0), table.rare)
            return torch.where((words < cut)[..., None], *found)
        return super().operate(func, args, kwargs)


class Interval(Kind):
    """What a number lies between."""

    INSIDE = ("low", "high")

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        low, high = ([getattr(t, name) if isinstance(t, cls) else t for t in args] for name in cls.INSIDE)
        if func is aten.neg.default:
            return cls(-high[0], -low[0])
        if func is aten.sub.Tensor:
            return cls(low[0] - high[1], high[0] - low[1])
        if func is aten.mul.Tensor:
            found = torch.stack([a * b for a in (low[0], high[0]) for b in (low[1], high[1])])
            return cls(found.amin(0), found.amax(0))
        return cls.on_parts(func, args, kwargs)


class Dual(Kind):
    """A number and its derivative; knows few operators."""

    INSIDE = ("number", "slope")

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        n = [t.number if isinstance(t, cls) else t for t in args]  # type: ignore[attr-defined]
        s = [t.slope if isinstance(t, cls) else torch.zeros_like(t) if isinstance(t, torch.Tensor) else 0 for t in args]  # type: ignore[attr-defined]
        if func is aten.mul.Tensor:
            return cls(n[0] * n[1], n[0] * s[1] + s[0] * n[1])
        if func is aten.sin.default:
            return cls(n[0].sin(), n[0].cos() * s[0])
        parts = (aten.sum.default, aten.t.default, aten.view.default, aten.expand.default)
        if func in parts or (func is aten.add.Tensor and all(isinstance(t, cls) for t in args)):
            return cls.on_parts(func, args, kwargs)
        raise NotImplementedError(f"{func} of dual numbers")


class Triangle(Kind):
    """The lower triangle of a symmetric matrix."""

    INSIDE, SAYS = ("items_below",), ("side",)

    @classmethod
    def looks(cls, items: Any, side: int) -> Any:  # type: ignore[override]
        return (side, side), None, items

    @classmethod
    def of(cls, x: Any) -> Any:
        rows, columns = torch.tril_indices(x.shape[0], x.shape[0])
        return cls(x[rows, columns], x.shape[0])

    def whole(self) -> Any:
        rows, columns = torch.tril_indices(self.side, self.side)  # type: ignore[attr-defined]
        low = self.items_below.new_zeros(self.side, self.side)  # type: ignore[attr-defined]
        low[rows, columns] = self.items_below  # type: ignore[attr-defined]
        return low + low.t() - low.diagonal().diag()

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.t.default:
            return return_and_correct_aliasing(func, args, kwargs, cls(aten.alias.default(args[0].items_below), args[0].side))
        alone = all(isinstance(t, (cls, int, float)) for t in args)
        if alone and func in (aten.add.Tensor, aten.mul.Tensor, aten.add_.Tensor, aten.mul_.Tensor, aten.neg.default):
            return cls.on_parts(func, args, kwargs)
        return super().operate(func, args, kwargs)


class Half(Kind):
    """One half of a memory that another may have the other half of."""

    INSIDE, SAYS = ("both",), ("second",)

    @classmethod
    def looks(cls, both: Any, second: bool) -> Any:  # type: ignore[override]
        return (both.shape[0] // 2, both.shape[1]), (both.shape[1], 1), both

    def whole(self) -> Any:
        return self.both.chunk(2)[int(self.second)]  # type: ignore[attr-defined]

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        found = super().operate(func, args, kwargs)
        return args[0] if func._schema.name.endswith("_") else found


class Rounded(Kind):
    """Bytes with a scale, also where it is written: state of an optimizer, weights that are trained."""

    INSIDE = ("bytes_of", "scale")

    @classmethod
    def looks(cls, number: Any, scale: Any) -> Any:  # type: ignore[override]
        return number.shape, number.stride(), scale

    @classmethod
    def of(cls, x: Any) -> Any:
        scale = x.detach().abs().amax().clamp(min=1e-12) / 127
        return cls((x.detach() / scale).round().to(torch.int8), scale)

    def whole(self) -> Any:
        return self.bytes_of.to(self.scale.dtype) * self.scale  # type: ignore[attr-defined]

    @classmethod
    def operate(cls, func: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.zeros_like.default:
            return cls.of(torch.zeros(args[0].shape, dtype=args[0].dtype))
        if not func._schema.name.endswith("_") or not isinstance(args[0], cls):
            return super().operate(func, args, kwargs)
        first, *others = args
        rest = pytree.tree_map_only(cls, cls.whole, others)
        new = cls.of(rest[0] if func is aten.copy_.default else func(first.whole().clone(), *rest, **kwargs))
        first.bytes_of.copy_(new.bytes_of)
        first.scale.copy_(new.scale)
        return first


class Told(Rounded):
    """Is told of ``linear``, which it has a gradient of its own for."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return _Linear.apply(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return x @ weight.whole().t()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        return gradient @ weight.whole(), gradient.t() @ x


class Blocks(Kind):
    """As many matrices as there are along the diagonal."""

    @staticmethod
    def __new__(cls, *blocks: Any, **_: Any) -> Any:
        sizes = [sum(b.shape[d] for b in blocks) for d in (0, 1)]
        return torch.Tensor._make_wrapper_subclass(cls, sizes, dtype=blocks[0].dtype, device=blocks[0].device)  # type: ignore[attr-defined]

    def __init__(self, *blocks: Any, **_: Any) -> None:
        self.count = len(blocks)
        for k, block in enumerate(blocks):
            setattr(self, f"block{k}", block)

    @property
    def blocks(self) -> list[Any]:
        return [getattr(self, f"block{k}") for k in range(self.count)]

    def __tensor_flatten__(self) -> Any:
        return [f"block{k}" for k in range(self.count)], self.count

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(*(inner[f"block{k}"] for k in range(context)))

    def whole(self) -> Any:
        return torch.block_diag(*self.blocks)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        alone = (*SAME, aten.t.default, aten.mul.Tensor, aten.mul_.Tensor)
        if func in alone and not any(isinstance(t, torch.Tensor) for t in args[1:]):
            found = [cls.opened(func, args, kwargs, lambda t, k=k: t.blocks[k]) for k in range(args[0].count)]
            return return_and_correct_aliasing(func, args, kwargs, cls(*found))
        return cls.opened(func, args, kwargs)
