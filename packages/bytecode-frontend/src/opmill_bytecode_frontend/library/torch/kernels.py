"""Launches of Triton kernels in captured code: ``kernel[grid](...)`` is an operator of the graph that writes what the kernel writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from opmill_guards.guard import Is

from ...graph.versions import memory
from ...kernels.mutation_analysis import Indirect, plain_function, written
from ...kernels.operators import Launch, operator_of
from ...values.base import MISSING, NotConstant, Value
from ...values.constant import ConstantValue
from ...values.launcher import KernelLauncher
from ...values.mapping import DictValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue
from ...values.tensor import TensorValue
from ..registry import named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


_CONSTANT = (bool, int, float, str, type(None))


def refuse(vm: Interpreter, why: str) -> NoReturn:
    """Ends the graph at a launch."""
    vm.unsupported("FE081", "launch of a Triton kernel", why, "launch it between two compiled functions")


@named("triton.runtime.jit.KernelInterface.__getitem__")
def launcher(vm: Interpreter, kernel: Value, grid: Value) -> Value:
    """``kernel[grid]``: what launches it."""
    return KernelLauncher(lambda vm, *args, **kwargs: launch(vm, kernel, grid, args, kwargs), kernel, grid)


@named("triton.runtime.jit.JITFunction.run", "triton.runtime.autotuner.Autotuner.run", "triton.runtime.interpreter.InterpretedFunction.run")
def run(vm: Interpreter, kernel: Value, *args: Value, grid: Value, warmup: Value = ConstantValue(False), **kwargs: Value) -> Value:
    """``kernel.run()``: a launch; preparing one (``warmup``) is refused."""
    if vm.truth(warmup):
        refuse(vm, "it is not run, but prepared")
    return launch(vm, kernel, grid, args, kwargs)


def launch(vm: Interpreter, kernel: Value, grid: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """A launch of a Triton kernel of the program: a step of the graph, which says what it writes to."""
    obj = kernel.real()
    if obj is MISSING:
        refuse(vm, "the kernel is made in captured code")
    if kernel.source is not None:
        vm.guard(Is(kernel.source, obj))
    try:
        names = list(plain_function(obj).__code__.co_varnames[: plain_function(obj).__code__.co_argcount])
        stored = written(obj) | frozenset(getattr(obj, "reset_to_zero", None) or ()) | frozenset(getattr(obj, "restore_value", None) or ())
    except TypeError as exc:
        refuse(vm, str(exc))
    except Indirect:
        refuse(vm, "it makes pointers of what it loads, so what it writes to is not known")
    if len(args) > len(names):
        refuse(vm, "it has more arguments than the kernel has parameters")
    given = {**dict(zip(names, args)), **kwargs}
    tensors, numbers, constants = sorted_arguments(vm, given)
    grids, configurations, axes = grids_of(vm, obj, grid, given)
    writes = tuple(bool(stored.intersection(parameters)) for parameters, _ in tensors)
    check_memory(vm, [value for _, value in tensors], writes)
    found = Launch(
        obj, tuple(parameters for parameters, _ in tensors), tuple(name for name, _ in numbers), constants, writes, configurations, axes
    )
    if not tensors:
        refuse(vm, "none of its arguments is a tensor")
    target = operator_of(found)
    vm.recorder.call_function(
        vm, target, [*(value for _, value in tensors), ListValue([value for _, value in numbers]), ListValue(grids)], {}
    )
    return ConstantValue(None)


def sorted_arguments(
    vm: Interpreter, given: dict[str, Value]
) -> tuple[list[tuple[tuple[str, ...], TensorValue]], list[tuple[str, Value]], tuple[tuple[str, object], ...]]:
    """Tensors, each once with the parameters that it is given for; numbers that may change; other arguments, which are constants."""
    tensors: dict[int, tuple[list[str], TensorValue]] = {}
    numbers: list[tuple[str, Value]] = []
    constants: list[tuple[str, object]] = []
    for name, value in given.items():
        if isinstance(value, TensorValue):
            tensors.setdefault(id(value), ([], value))[0].append(name)
        elif isinstance(value, SymbolicNumber) and value.python_type() is int:
            numbers.append((name, value))
        else:
            try:
                constant = value.constant()
                hash(constant)
            except (NotConstant, TypeError):
                refuse(vm, f"argument {name} is {value.describe()}")
            constants.append((name, constant))
    return [(tuple(names), value) for names, value in tensors.values()], numbers, tuple(constants)


def check_memory(vm: Interpreter, tensors: list[TensorValue], writes: tuple[bool, ...]) -> None:
    """A kernel that writes one tensor and knows its memory by another name, too, cannot be given a copy of it."""
    memories = [memory(t.fake) for t in tensors]
    for tensor, place, wrote in zip(tensors, memories, writes, strict=True):
        if wrote and memories.count(place) > 1:
            refuse(vm, f"{tensor.describe()} shares memory with another argument and is written")


def grids_of(
    vm: Interpreter, kernel: Any, grid: Value, given: dict[str, Value]
) -> tuple[list[Value], tuple[tuple[tuple[str, object], ...], ...], int]:
    """The grid, three numbers for each configuration that the kernel may be launched with; these; and how many numbers the program gave."""
    configurations: tuple[tuple[tuple[str, object], ...], ...] = ()
    if not callable_grid(grid):
        numbers = vm.unpack(grid) if isinstance(grid, SequenceValue) else [grid]
        return padded(vm, numbers), (), len(numbers)
    kind = type(kernel).__name__
    if kind == "Autotuner":
        configurations = tuple(tuple(sorted(c.kwargs.items())) for c in kernel.configs)
        kernel = kernel.fn
        kind = type(kernel).__name__
    if kind == "Heuristics":
        refuse(vm, "heuristics choose constants that its grid may depend on")
    defaults = {
        n: vm.fresh(p)
        for n, p in zip(
            reversed(plain_function(kernel).__code__.co_varnames[: plain_function(kernel).__code__.co_argcount]),
            reversed(plain_function(kernel).__defaults__ or ()),
        )
    }
    found: list[Value] = []
    axes = 3
    for constants in configurations or ((),):
        meta = {**defaults, **given, **{name: vm.fresh(value) for name, value in constants}}
        result = vm.call(grid, [DictValue({n: (ConstantValue(n), v) for n, v in meta.items()})], {})
        numbers = vm.unpack(result) if isinstance(result, SequenceValue) else [result]
        found += padded(vm, numbers)
        axes = len(numbers)
    return found, configurations, axes


def callable_grid(grid: Value) -> bool:
    """Whether a grid has to be called with the kernel's constants."""
    return not isinstance(grid, (SequenceValue, ConstantValue, SymbolicNumber))


def padded(vm: Interpreter, numbers: list[Value]) -> list[Value]:
    """A grid's one to three numbers as three."""
    if not 1 <= len(numbers) <= 3 or any(n.python_type() is not int for n in numbers):
        refuse(vm, "its grid is not one to three whole numbers")
    return [*numbers, *[ConstantValue(1)] * (3 - len(numbers))]
