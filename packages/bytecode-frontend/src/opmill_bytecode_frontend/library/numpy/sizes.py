"""Arrays whose sizes change. NumPy is asked about the sizes of this call, and what it says is asked again about other sizes: where that is
not what the program of torch gives there, or NumPy refuses them, the sizes are assumed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opmill_fake_tensors.symbols import index, index_of

from ...errors import Unsupported
from ...values.arrays import ArrayValue, is_symbolic, like_layout
from ...values.base import Lazy, Value
from ...values.number import SymbolicNumber
from ...values.sequence import SequenceValue, SliceValue

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

HINT = "use torch's functions, or compute it outside of the compiled function"
OTHERS: tuple[Callable[[int], int], ...] = (lambda n: n + 2, lambda n: n * 3)
"""Other sizes than those of the call: the first keep differences, the second keep what divides them."""

Sizes = Mapping[str, int]
Changing = Sequence[SymbolicNumber | ArrayValue]


DATA: tuple[Callable[[int], int], ...] = (lambda k: 17 + 2 * k, lambda k: 1)
"""The k-th size that only data tell, beside each of these."""


def other_sizes(vm: Interpreter) -> Iterator[Sizes]:
    """Other values for the sizes that may change, for asking NumPy whether what it gives changes with them."""
    symbols, data = vm.recorder.numbers.sizes.symbols, vm.recorder.numbers.sizes.data()
    for other, told_by_data in zip(OTHERS, DATA):
        values = {
            name: max(least(vm, name), told_by_data(data.index(name))) if symbol.hint is None else other(symbol.hint)
            for name, symbol in symbols.items()
        }
        yield vm.recorder.numbers.sizes.with_derived(values)
    if data:
        yield empty_sizes(vm)


def least(vm: Interpreter, name: str) -> int:
    """The smallest that a size can be."""
    return max(vm.recorder.numbers.sizes.bounds(index(name))[0] or 0, 0)


def empty_sizes(vm: Interpreter) -> Sizes:
    """The sizes of this call, and as little of what only data tell as there may be."""
    symbols = vm.recorder.numbers.sizes.symbols
    values = {name: least(vm, name) if symbol.hint is None else symbol.hint for name, symbol in symbols.items()}
    return vm.recorder.numbers.sizes.with_derived(values)


def of_data(value: SymbolicNumber | ArrayValue) -> bool:
    """Whether only data tell it, or a size of it."""
    numbers = [value.number] if isinstance(value, SymbolicNumber) else [*value.inner.fake.shape, *value.inner.fake.stride()]
    return any(type(n) is not int and not n.node.has_hint() for n in numbers)


def at(vm: Interpreter, number: object, sizes: Sizes) -> int:
    """What a number is for these sizes."""
    return int(vm.recorder.numbers.sizes.simplify(index_of(number)).evaluate(sizes))


def other_like(vm: Interpreter, value: ArrayValue, sizes: Sizes) -> Any:
    """An array of ones that is laid out as this one is for these sizes."""
    if not is_symbolic(value.inner.fake):
        return value.like
    shape, strides = ([at(vm, n, sizes) for n in numbers] for numbers in (value.inner.fake.shape, value.inner.fake.stride()))
    return like_layout(value.like.dtype, tuple(shape), tuple(s * value.like.itemsize for s in strides), 0 if value.once else 1)


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


def assume(vm: Interpreter, values: Changing) -> None:
    """From here on sizes of arrays, and numbers, are what they are now."""
    if any(of_data(value) for value in values):
        vm.unsupported("FE085", "NumPy's arrays of a size that data tell", "what NumPy does depends on it", HINT)
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
    by_data = any(map(of_data, given))
    for sizes in other_sizes(vm):
        try:
            want, arrays = asked(sizes)
        except Unsupported:
            if by_data:
                break
            continue
        if not agrees(vm, result, want, sizes):
            break
        if not without_items(want) and shared(want, arrays) != shared(*asked(None)):
            break
        if not by_data:
            return result
    else:
        if by_data:
            return result
    assume(vm, [*given, *changing(vm, [result])])
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


def flattened(values: Iterable[object]) -> Iterator[object]:
    """The items of lists and tuples, to any depth."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flattened(value)
        else:
            yield value


def without_items(want: object) -> bool:
    """Whether there is nothing to share memory in what NumPy gives."""
    return any(not getattr(each, "size", 1) for each in (want if isinstance(want, (list, tuple)) else [want]))


def shared(want: object, given: Sequence[object]) -> list[bool]:
    """Which of the arrays that NumPy was given each of its results shows."""
    np = sys.modules["numpy"]
    results = want if isinstance(want, (list, tuple)) else [want]
    return [isinstance(w, np.ndarray) and isinstance(a, np.ndarray) and np.may_share_memory(w, a) for w in results for a in given]


__all__ = ["HINT", "Sizes", "assume", "at", "changing", "empty_sizes", "flattened", "least", "of_data", "other_like", "settled"]
