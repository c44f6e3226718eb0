"""Arrays whose sizes change. NumPy is asked about the sizes of this call, and what it says is asked again about other sizes: where that is
not what the program of torch gives there, or NumPy refuses them, the sizes are assumed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from opmill_fake_tensors.symbols import index_of
from opmill_guards.source import Pinned

from ...errors import Unsupported
from ...values.arrays import ArrayValue, is_symbolic, like_layout
from ...values.base import Lazy, Value
from ...values.number import SymbolicNumber
from ...values.sequence import SequenceValue, SliceValue

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

OTHERS: tuple[Callable[[int], int], ...] = (lambda n: n + 2, lambda n: n * 3)
"""Other sizes than those of the call: the first keep differences, the second keep what divides them."""

Sizes = Mapping[str, int]
Changing = Sequence[SymbolicNumber | ArrayValue]


def other_sizes(vm: Interpreter) -> Iterator[Sizes]:
    symbols = vm.recorder.numbers.sizes.symbols
    for other in OTHERS:
        yield {name: 0 if symbol.hint is None else other(symbol.hint) for name, symbol in symbols.items()}


def at(vm: Interpreter, number: object, sizes: Sizes) -> int:
    """What a number is for these sizes."""
    return int(vm.recorder.numbers.sizes.simplify(index_of(number)).evaluate(sizes))


def other_like(vm: Interpreter, value: ArrayValue, sizes: Sizes) -> Any:
    """An array of ones that is laid out as this one is for these sizes."""
    if not is_symbolic(value.inner.fake):
        return value.like
    shape, strides = ([at(vm, n, sizes) for n in numbers] for numbers in (value.inner.fake.shape, value.inner.fake.stride()))
    return like_layout(value.like.dtype, tuple(shape), tuple(s * value.like.itemsize for s in strides))


def parts(vm: Interpreter, values: Iterable[object]) -> Iterator[object]:
    """The values among these, and in the lists, tuples and slices among them."""
    for value in values:
        if type(value) is Lazy:
            value = vm.wrap(value.obj, value.source)
        if isinstance(value, SequenceValue):
            yield from parts(vm, value.items)
        elif isinstance(value, SliceValue):
            yield from parts(vm, value.parts)
        else:
            yield value


def changing(vm: Interpreter, values: Iterable[object]) -> list[SymbolicNumber | ArrayValue]:
    """The arrays whose sizes are not assumed, and the numbers that are not, among values."""
    found: list[SymbolicNumber | ArrayValue] = []
    for value in parts(vm, values):
        if isinstance(value, SymbolicNumber):
            found.append(value)
        elif isinstance(value, ArrayValue) and is_symbolic(value.inner.fake):
            found.append(value)
    return found


def assume(values: Changing) -> None:
    """From here on sizes of arrays, and numbers, are what they are now."""
    for value in values:
        if isinstance(value, SymbolicNumber):
            value.constant()
        else:
            for n in (*value.inner.fake.shape, *value.inner.fake.stride()):
                int(n)


def settled(
    vm: Interpreter,
    result: Value,
    asked: Callable[[Sizes | None], tuple[object, list[object]]],
    given: Sequence[SymbolicNumber | ArrayValue],
) -> Value:
    """``result``, once it is what NumPy gives for other sizes too. ``asked(sizes)``: what that is, and the arrays that it was given;
    ``given``: what may be assumed."""
    if not given:
        return result
    for sizes in other_sizes(vm):
        try:
            want, arrays = asked(sizes)
        except Unsupported:
            continue
        if agrees(vm, result, want, sizes) and shared(want, arrays) == shared(*asked(None)):
            return result
        break
    assume([*given, *changing(vm, [result])])
    return result


def agrees(vm: Interpreter, result: Value, want: Any, sizes: Sizes) -> bool:
    """Whether a value is for these sizes what NumPy gives for them."""
    if isinstance(want, (list, tuple)):
        items = getattr(result, "items", None)
        return isinstance(items, list) and len(items) == len(want) and all(agrees(vm, r, w, sizes) for r, w in zip(items, want))
    if not isinstance(result, ArrayValue) or type(want) is not type(result.like):
        return False
    fake = result.inner.fake
    shape, strides = (tuple(at(vm, n, sizes) for n in numbers) for numbers in (fake.shape, fake.stride()))
    if want.dtype != result.like.dtype or want.shape != shape:
        return False
    if result.stands_for is not None:
        return True  # its sizes are assumed, and how it lies is no tensor's matter
    return 0 in shape or all(n == 1 or s * want.itemsize == t for n, s, t in zip(shape, strides, want.strides))


CONSTANTS = frozenset("tensor as_tensor scalar_tensor full zeros ones empty arange eye linspace".split())
"""Functions that make tensors of what is told them."""


def is_fixed(vm: Interpreter, array: ArrayValue) -> bool:
    """Whether an array holds the same at each call: it is computed from constants alone, and nothing was written to any of them."""
    made = {each.node for each in vm.recorder.inputs if isinstance(each.source, Pinned)}  # once, of constants
    if array.inner.node is None:
        return False
    used = behind(array.inner.node)
    for node in used:
        told = node.op == "call_function" and getattr(node.target, "__name__", "") in CONSTANTS
        if node.op not in ("call_function", "call_method", "placeholder") or not (node.all_input_nodes or node in made or told):
            return False
    writing = (n for n in vm.recorder.graph.nodes if "out" in n.kwargs or (n.op == "call_method" and re.search(r"[^_]_$", str(n.target))))
    return all(used.isdisjoint(behind(node)) for node in writing)


def known_integer(vm: Interpreter, array: ArrayValue) -> int | bool | None:
    """The number that it is, where the program makes it of constants and its text is that of a number of Python's."""
    if not array.is_number or array.like.dtype.kind not in "iub" or array.inner.fake.numel() != 1 or not is_fixed(vm, array):
        return None
    found: dict[torch.fx.Node, Any] = {each.node: each.obj for each in vm.recorder.inputs if each.node is not None}
    used = behind(array.inner.node)
    with torch._C._DisableTorchDispatch():
        for node in vm.recorder.graph.nodes:
            if node in used and node not in found:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
                function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
                found[node] = function(*args, **kwargs)
    return cast("int | bool", found[array.inner.node].item()) if array.inner.node in found else None


def behind(node: torch.fx.Node) -> set[torch.fx.Node]:
    """A node, and all that it is computed from."""
    seen, todo = {node}, [node]
    while todo:
        more = [each for each in todo.pop().all_input_nodes if each not in seen]
        seen.update(more)
        todo += more
    return seen


def flattened(values: Iterable[object]) -> Iterator[object]:
    """The items of lists and tuples, to any depth."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flattened(value)
        else:
            yield value


def shared(want: object, given: Sequence[object]) -> list[bool]:
    """Which of the arrays that NumPy was given each of its results shows."""
    np = sys.modules["numpy"]
    results = want if isinstance(want, (list, tuple)) else [want]
    return [isinstance(w, np.ndarray) and isinstance(a, np.ndarray) and np.may_share_memory(w, a) for w in results for a in given]


__all__ = ["Sizes", "assume", "at", "changing", "flattened", "is_fixed", "known_integer", "other_like", "settled"]
