"""A compiled graph of plain tensors behind wrappers: takes inputs apart at each call, and puts outputs together.

For autograd the wrappers are what is differentiated: one node gives the carriers of their gradients, which the graph takes, and one makes
the wrappers of what the graph returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from opmill_fake_tensors.jagged import is_jagged
from opmill_fake_tensors.symbols import index_of
from opmill_fake_tensors.wrappers import Form, Thing, numbers_of, same_context, take_apart, with_numbers

from ..errors import GraphError
from .again import COERCE, Again, OtherGradient, may_differ
from .input_views import Views
from .nodes import Bound, Looks, Out, assembled, completed, differentiated, kept_of, waited


@dataclass(frozen=True)
class Sizes:
    """Where symbolic sizes are found: ``places`` has the plain input and its dimension for each, by the text of the size."""

    places: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, flat: Sequence[Any]) -> Sizes | None:
        """Those of the inputs of a graph; None where there are none."""
        tensors = [(k, x) for k, x in enumerate(flat) if isinstance(x, torch.Tensor)]
        sizes = [(n, (k, d)) for k, x in tensors for d, n in enumerate(x.shape) if isinstance(n, torch.SymInt)]
        return cls({str(n): place for n, place in reversed(sizes)}) if sizes else None

    def read(self, number: Any, flat: Sequence[Any]) -> Any:
        if not isinstance(number, torch.SymInt):
            return number
        size = index_of(number)
        if not size.symbols <= self.places.keys():
            raise GraphError("GI061", f"a gradient of {number} elements along a dimension", why="no input tells the number")
        places = {name: self.places[name] for name in size.symbols}
        return size.evaluate({name: flat[position].shape[dim] for name, (position, dim) in places.items()})

    def of_call(self, gradients: Mapping[int, Looks], flat: Sequence[Any]) -> dict[int, Looks]:
        """How gradients look for these plain inputs."""
        found = {}
        for position, looks in gradients.items():
            form = looks.form
            if form is not None:
                sizes = [self.read(n, flat) for n in numbers_of(form)]
                form = with_numbers(form, iter(sizes))
            found[position] = Looks(form, tuple(tuple(self.read(n, flat) for n in part) for part in looks.sizes), looks.dtypes)
        return found


class WrappedGraph:
    """Calls ``inner``, a compiled graph of plain tensors: its inputs are the tensors inside of each input, then the carriers of gradients.
    ``forms``: by input, None for plain ones and sizes; ``gradients``: how the gradients of inputs look, by position; ``sizes``: what
    tells their sizes where these are symbolic; ``places``: of each tensor inside, which plain input it is; ``captured``: the graph itself,
    for gradients that look otherwise than those that it was compiled for; ``views``: outputs that it does not give."""

    def __init__(
        self,
        inner: Any,
        forms: Sequence[Form | None],
        gradients: dict[int, Looks],
        outs: Sequence[Out],
        bound: Sequence[Bound],
        sizes: Sizes | None = None,
        places: Sequence[int] = (),
        captured: Callable[..., Any] | None = None,
        views: Views | None = None,
    ) -> None:
        self.inner, self.outs, self.bound = inner, tuple(outs), tuple(bound)
        self.report, self.plan, self.views = inner.report, inner.plan, views
        self.openers = [opener(form) if form is not None else _detached if k in gradients else None for k, form in enumerate(forms)]
        self.gradients, self.sizes = gradients, sizes
        # a plain output may have a part in a gradient that is a wrapper for the other outputs alone
        mixed = any(forms[k] is None for k in gradients) and any(out.form is None for out in outs)
        self.captured = captured if not bound and not mixed and any(may_differ(out.tangent) for out in outs) else None
        firsts = [k for k, place in enumerate(places) if place not in places[:k]]
        self.firsts = firsts if len(firsts) < len(places) else None
        self.plain = all(out.form is None and out.given is None and out.same is None and not out.kept for out in self.outs)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        results = self._computed(inputs)
        return results if self.views is None else self.views.among(results, inputs)

    def _computed(self, inputs: Sequence[Any]) -> Sequence[Any]:
        flat: list[Any] = []
        for value, open_ in zip(inputs, self.openers, strict=True):
            if open_ is None:
                flat.append(value)
            else:
                open_(value, flat)
        if self.firsts is not None:
            flat = [flat[k] for k in self.firsts]
        again = Again(self.captured, inputs, flat) if self.captured is not None and torch.is_grad_enabled() else None
        if self.gradients:
            gradients = self.gradients if self.sizes is None else self.sizes.of_call(self.gradients, flat)
            flat += _Opened.apply(gradients, *(inputs[position] for position in gradients))
        outputs = self.inner(*flat)
        for bound in self.bound:
            owner = inputs[bound.position]
            for name in bound.path[:-1]:
                owner = getattr(owner, name)
            setattr(owner, bound.path[-1], outputs[bound.source])
        if self.plain:
            return outputs[: len(self.outs)]
        return self._put_together(inputs, flat, outputs, again if again is not None and again.unwritten() else None)

    def _put_together(self, inputs: Sequence[Any], flat: Sequence[Any], outputs: Sequence[Any], again: Again | None) -> list[Any]:
        result: list[Any] = []
        position = 0
        waiting: list[tuple[int, Form, Form, Sequence[Any]]] = []
        for out in self.outs:
            leaves = outputs[position : position + out.count]
            position += out.count + sum(n is not None for n in out.numbers)
            if out.kept:
                came = iter(leaves)
                leaves = [next(came) if k is None else outputs[k] if k >= 0 else flat[-1 - k] for k in out.kept]
            if out.given is not None or out.same is not None:
                result.append(inputs[out.given] if out.given is not None else out.same)
            elif out.form is None:
                result.append(leaves[0])
            else:
                form = _measured(out, outputs)
                if out.tangent is not None and any(leaf.requires_grad for leaf in leaves):
                    waiting.append((len(result), form, form if out.tangent is out.form else out.tangent, leaves))
                    result.append(None)
                else:
                    result.append(assembled(form, leaves))
        if waiting:
            forms = [(form, tangent, kept_of(form, leaves)) for _, form, tangent, leaves in waiting]
            leaves = [leaf for _, form, _, leaves in waiting for leaf in differentiated(form, leaves)]
            made = _Closed.apply(forms, again, [k for k, *_ in waiting], *leaves, *(() if again is None else again.differentiated))
            for (k, *_), wrapper in zip(waiting, made, strict=True):
                result[k] = wrapper
        for k, out in enumerate(self.outs):
            if out.same is not None:
                result[k] = result[out.same]
        return result


def _measured(out: Out, outputs: Sequence[Any]) -> Form:
    """The form with the sizes of this call."""
    assert out.form is not None
    if not out.numbers:
        return out.form
    return with_numbers(out.form, (n if k is None else outputs[k] for n, k in zip(numbers_of(out.form), out.numbers, strict=True)))


def opener(form: Form) -> Callable[[Any, list[Any]], None]:
    """What puts the tensors inside of a wrapper of this form at the end of a list."""
    if all(part is None for part in form.parts):
        names = form.names

        def flat(value: Any, into: list[Any]) -> None:
            into += [getattr(value, name) for name in names]

        return flat
    tensors = [(name, part) for name, part in zip(form.names, form.parts, strict=True) if type(part) is not Thing]
    parts = [(name, opener(part) if type(part) is Form else None) for name, part in tensors]

    def nested(value: Any, into: list[Any]) -> None:
        for name, inner in parts:
            if inner is None:
                into.append(getattr(value, name))
            else:
                inner(getattr(value, name), into)

    return nested


def _detached(value: Any, into: list[Any]) -> None:
    """A plain input whose gradient is a wrapper."""
    into.append(value.detach())


class _Opened(torch.autograd.Function):
    """``apply(gradients, *wrappers)`` gives the carriers of their gradients: tensors of the right sizes without memory."""

    @staticmethod
    def forward(ctx: Any, gradients: dict[int, Looks], *wrappers: Any) -> Any:
        ctx.gradients = gradients
        ctx.kept = [_kept_inside(looks.form, wrapper) for looks, wrapper in zip(gradients.values(), wrappers, strict=True)]
        ctx.set_materialize_grads(False)
        return tuple(
            carrier for looks, wrapper in zip(gradients.values(), wrappers, strict=True) for carrier in carriers(looks, wrapper.device)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *found: Any) -> Any:
        came = iter(found)
        looked = zip(ctx.gradients.values(), ctx.kept, strict=True)
        return None, *(_gradient(looks, [next(came) for _ in looks.sizes], kept) for looks, kept in looked)


def carriers(looks: Looks, device: torch.device) -> list[torch.Tensor]:
    """Tensors without memory of their own that have the sizes and types that a wrapper's parts have."""
    return [
        torch.empty((), dtype=dtype, device=device).expand(tuple(sizes)) for sizes, dtype in zip(looks.sizes, looks.dtypes, strict=True)
    ]


def _kept_inside(form: Form | None, wrapper: Any) -> list[Any]:
    """What a gradient of this form takes over from the tensor."""
    if form is None or all(form.differentiated):
        return []
    return kept_of(form, [getattr(wrapper, name) for name in form.names])


def _gradient(looks: Looks, parts: list[Any], kept: list[Any]) -> Any:
    """The gradient of which these are the parts, and ``kept`` the others; None where none has come."""
    if all(part is None for part in parts):
        return None
    for k, part in enumerate(parts):
        if part is None:
            parts[k] = torch.zeros(tuple(looks.sizes[k]), dtype=looks.dtypes[k], device=next(p for p in parts if p is not None).device)
    return assembled(looks.form, completed(looks.form, parts, kept))


class _Closed(torch.autograd.Function):
    """``apply(forms, again, numbers, *leaves, *inputs)`` gives wrappers, outputs of these numbers. ``forms``: theirs, those of their
    gradients, and the plain tensors inside that are not differentiated. ``inputs``: what the graph is differentiated by, where ``again``
    computes the gradients of wrappers that look otherwise than was supposed."""

    @staticmethod
    def forward(ctx: Any, forms: list[tuple[Form, Form, list[Any]]], again: Again | None, numbers: list[int], *leaves: Any) -> Any:
        ctx.forms = [(form, tangent) for form, tangent, _ in forms]
        ctx.again, ctx.numbers, ctx.inputs = again, numbers, 0 if again is None else len(again.wanted)
        ctx.set_materialize_grads(False)
        given = iter([leaf.detach() for leaf in leaves[: len(leaves) - ctx.inputs]])
        return tuple(
            assembled(form, completed(form, (next(given) for _ in range(sum(form.differentiated))), kept)) for form, _, kept in forms
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        none = [None] * ctx.inputs
        try:
            leaves = [leaf for (_, form), gradient in zip(ctx.forms, gradients, strict=True) for leaf in _tangents(form, gradient)]
        except OtherGradient as error:
            if ctx.again is None:
                raise
            count = sum(sum(form.differentiated) for form, _ in ctx.forms)
            return None, None, None, *[None] * count, *ctx.again.gradients(error, ctx.numbers, gradients)
        return None, None, None, *leaves, *none


def _tangents(form: Form, gradient: Any) -> Iterator[Any]:
    """The plain tensors in the gradient of an output, which has to be like the output. A class may say how another is made so."""
    if gradient is None:
        yield from [None] * sum(form.differentiated)
        return
    gradient = waited(gradient)  # what other processes send of it may be under way
    looks, leaves = take_apart(gradient)
    if is_jagged(form.cls) and looks is not None and looks.cls is form.cls and same_context(looks.context, form.context):
        yield from differentiated(looks, leaves)  # whose rows are as long: autograd has seen to that
        return
    if not form.fits(looks):
        gradient = _coerced(form, gradient)
        looks, leaves = take_apart(gradient)
        if looks is None or looks.cls is not form.cls or len(leaves) != form.count:
            what = f"a gradient that is a {type(gradient).__qualname__}, of an output that is a {form.cls.__qualname__}"
            raise OtherGradient("GI063", what, why=_COMPILED_FOR, hint=f"give one of the output's class, or {_COERCE}")
        if not hasattr(type(gradient), COERCE) and form.contradicts(looks):
            what = f"a gradient whose metadata is not that of its {form.cls.__qualname__}"
            raise OtherGradient("GI063", what, why=_COMPILED_FOR, hint=_COERCE)
    yield from leaves


_COMPILED_FOR = "the backward was compiled for gradients like the output"
_COERCE = f"define {COERCE}(context, class) there"


def _coerced(form: Form, gradient: Any) -> Any:
    method = getattr(type(gradient), COERCE, None)
    if method is None:
        return gradient
    found = method(gradient, form.context) if type(gradient) is form.cls else method(gradient, form.context, form.cls)
    return gradient if found is None else found
