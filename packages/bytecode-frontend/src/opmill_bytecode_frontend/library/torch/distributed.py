"""torch.distributed in captured code: what a process group says of itself is constant; exchanges are operators of ``_c10d_functional``,
anything else runs natively."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import torch

from opmill_fake_tensors.errors import DataDependent
from opmill_fake_tensors.strides import is_dense
from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.number import operand
from ...values.sequence import SequenceValue
from ...values.tensor import TensorValue
from ..registry import named, receives_function

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


Size: TypeAlias = "int | torch.SymInt"

_C10D = "torch.distributed.distributed_c10d."


@named("torch.distributed._functional_collectives._are_we_tracing")
def are_we_tracing(vm: Interpreter) -> Value:
    """What functional collectives give is waited for where it is read: a compiled graph knows where that is."""
    return vm.fresh(True)


@named(_C10D + "get_backend")
def backend_of(vm: Interpreter, group: Value | None = None) -> Value:
    """The name of a group's backend, which never changes: torch has it in a table that does."""
    c10d = torch.distributed.distributed_c10d
    found = vm.call(vm.wrap(c10d._group_or_default_group, Pinned(c10d, "group")), [] if group is None else [group], {})
    real = found.real()
    if not isinstance(real, torch.distributed.ProcessGroup) or real.rank() < 0:
        return refuse(vm, "get_backend", "there is no such process group, or this process is not in it")
    return ConstantValue(torch.distributed.get_backend(real))


@named("torch.nn.parallel.distributed.DistributedDataParallel.forward")
def data_parallel(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Its bookkeeping differs from call to call; while it runs, the module in it is captured for itself."""
    why = "it prepares the exchange of gradients anew at each call; the module in it is captured"
    vm.unsupported(
        "FE080", "DistributedDataParallel.forward", why, "compile the module inside: DistributedDataParallel(opmill.compile(model))"
    )


@named("torch.distributed.nn.functional._deprecated")
def deprecated(vm: Interpreter, *names: Value) -> Value:
    """Its warning is given when the call is captured: it is the same for all."""
    name, instead = (name.constant() for name in names)
    warnings.warn(f"torch.distributed.nn.functional.{name} is deprecated, use {instead} instead.", FutureWarning, stacklevel=2)
    return ConstantValue(None)


@named("torch.distributed.nn.functional._not_supported_under_compile")
def supported(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """torch's own compiler does not take what this compiler does."""
    return ConstantValue(None)


def refuse(vm: Interpreter, name: str, why: str) -> NoReturn:
    """Ends the graph at a call of torch.distributed."""
    vm.unsupported("FE082", f"call of torch.distributed.{name}", why, "it runs between two graphs")


def exchange(function: str, *names: str, checked: Callable[..., None] | None = None) -> None:
    """Calls of torch's functions ``names`` run ``function`` of ``collectives.py`` instead, where that does the same, which ``checked``
    says: it may also say what is meant by an argument."""

    def call(vm: Interpreter, *args: Value, _name: str, **kwargs: Value) -> Value:
        from ...graph import collectives, exchange_operators

        exchange_operators.define()
        theirs = inspect.unwrap(getattr(torch.distributed.distributed_c10d, _name))
        try:
            given = inspect.signature(theirs).bind(*args, **kwargs)
        except TypeError as error:
            return refuse(vm, _name, str(error))
        given.apply_defaults()
        values = [v if isinstance(v, Value) else vm.wrap(v, Pinned(v, _name)) for v in given.arguments.values()]
        known = dict(zip(given.arguments, values, strict=True))
        (checked or check)(vm, _name, known)
        values = [ConstantValue(reduction(vm, _name, v)) if n == "op" else v for n, v in known.items()]
        ours = getattr(collectives, function)
        return vm.call(vm.wrap(ours, Pinned(ours, function)), values, {})

    for name in names or (function,):
        named(_C10D + name)(_bound(call, name))


def _bound(call: Callable[..., Value], name: str) -> Callable[..., Value]:
    return lambda vm, *args, **kwargs: call(vm, *args, _name=name, **kwargs)


for _function, *_names in (
    ("all_reduce",),
    ("broadcast",),
    ("all_gather_into_tensor", "all_gather_into_tensor", "all_gather_single", "_all_gather_base"),
    ("all_gather",),
    ("reduce_scatter_tensor", "reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base"),
    ("reduce_scatter",),
    ("all_to_all_single",),
    ("all_to_all",),
):
    exchange(_function, *_names)


def reduction(vm: Interpreter, name: str, op: Value) -> str:
    """The name of a reduction in operators of graphs."""
    given = op.real()
    kind = getattr(given, "op", given)  # a ReduceOp holds the number of its kind
    text = getattr(kind, "name", "")
    if type(given).__name__ not in ("ReduceOp", "RedOpType") or text not in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        refuse(vm, name, f"a reduction by {op.describe()}")
    return text.lower()


def check(vm: Interpreter, name: str, given: dict[str, Value]) -> None:
    """Refuses what torch's function would refuse, and what operators of graphs do in another way."""
    group = group_of(vm, name, given["group"])
    lists = {p: tensors_of(vm, name, p, v) for p, v in given.items() if p not in _OTHERS}
    tensors = [t.fake for given in lists.values() for t in given]
    if len({(t.dtype, t.device.type) for t in tensors}) > 1:
        refuse(vm, name, "its tensors have several types or devices")
    if any(not (t.is_contiguous() or (name == "all_reduce" and is_dense(t.shape, t.stride()))) for t in tensors):
        refuse(vm, name, "a tensor is not contiguous")
    kind, gloo = tensors[0].dtype, torch.distributed.get_backend(group) == "gloo"
    op = reduction(vm, name, given["op"]) if "op" in given else ""
    if kind.is_complex and op not in ("", "sum"):
        refuse(vm, name, "complex numbers are only added")
    if op in ("band", "bor", "bxor") and (kind.is_floating_point or kind.is_complex):
        refuse(vm, name, "bits of floats")
    if gloo and kind not in OF_GLOO and not kind.is_complex:
        refuse(vm, name, f"Gloo has no {kind}")
    for source, count in (("src", torch.distributed.get_world_size()), ("group_src", group.size())):
        if source in given and number_of(given[source]) not in (None, *range(count)):
            refuse(vm, name, "there is no such process")
    if len(lists) == 2 and not _fit(name, group.size(), gloo, lists):
        refuse(vm, name, "sizes do not fit the number of processes, or are not equal")
    if "input_split_sizes" in given:
        own = torch.distributed.get_rank(group)
        sent, taken = (_parts(vm, given[f"{end}_split_sizes"], group.size(), lists[end][0].fake) for end in ("input", "output"))
        if not sent or not taken or not same((sent[own],), (taken[own],)):
            refuse(vm, name, "parts do not fit the number of processes, or the tensor")


_OTHERS = ("op", "group", "async_op", "src", "group_src", "output_split_sizes", "input_split_sizes")
"""Parameters that are no tensors."""
OF_GLOO = frozenset(
    getattr(torch, name) for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "bool", "int32", "int64")
)
"""What Gloo exchanges."""


def group_of(vm: Interpreter, name: str, value: Value) -> torch.distributed.ProcessGroup:
    """The process group that an argument is. Refuses one that this process is not in."""
    c10d = torch.distributed.distributed_c10d
    group = value.real()
    if group is None and c10d.GroupMember.WORLD is not None:
        group = c10d.GroupMember.WORLD
    if not isinstance(group, torch.distributed.ProcessGroup):
        refuse(vm, name, "there is no such process group, or this process is not in it")
    if group in c10d._world.pg_coalesce_state:
        refuse(vm, name, "it is one of several that are put together")
    return group


def tensors_of(vm: Interpreter, name: str, parameter: str, value: Value) -> list[TensorValue]:
    """The tensors that an argument is, one or a list. Refuses others, and an empty list."""
    several = _is_list(parameter)
    items = vm.unpack(value) if several and isinstance(value, SequenceValue) else [value]
    found = []
    for item in items:
        if not isinstance(item, TensorValue) or (several and not isinstance(value, SequenceValue)):
            refuse(vm, name, f"argument {parameter} is {item.describe()}")
        found.append(item)
    if not found:
        refuse(vm, name, f"argument {parameter} is empty")
    return found


def _fit(name: str, count: int, gloo: bool, lists: dict[str, list[TensorValue]]) -> bool:
    """Whether what ``count`` processes send one another is what is written: lists have an item for each, single tensors are parts of equal
    size. Gloo asks for the same rows as well."""
    (written, several), (read, many) = (([tuple(t.fake.shape) for t in each], _is_list(p)) for p, each in lists.items())
    if several and many:
        return len(written) == len(read) == count
    if several or many:
        parts, [one] = (written, read) if several else (read, written)
        return len(parts) == count and all(same(one, each) for each in parts)
    if name == "all_to_all_single":
        return same(written[0][1:], read[0][1:])
    [whole], [part] = (written, read) if "gather" in name else (read, written)
    if gloo:
        return bool(part) and same((part[0] * count, *part[1:]), whole)
    return same((math.prod(part) * count,), (math.prod(whole),))


def _is_list(parameter: str) -> bool:
    return parameter.endswith("_list")


def _parts(vm: Interpreter, value: Value, count: int, tensor: torch.Tensor) -> list[Size | None]:
    """The sizes of a tensor's parts, of which each of ``count`` processes has one; none where they do not make up the tensor."""
    items = vm.unpack(value) if isinstance(value, SequenceValue) else []
    sizes: list[Size | None] = [number_of(item) for item in items]
    sizes += [] if items else [length // count for length in tensor.shape[:1]] * count
    whole = sum(size for size in sizes if size is not None)
    return sizes if len(sizes) == count and None not in sizes and same((whole,), tuple(tensor.shape[:1])) else []


def number_of(value: Value) -> Size | None:
    """The number that a value is, which may be symbolic; None where it is none."""
    number = operand(value)
    return number if isinstance(number, (int, torch.SymInt)) else None


def same(one: tuple[Size | None, ...], other: tuple[Size | None, ...]) -> bool:
    """Whether sizes are equal; what only data tell is taken to be, as the exchange itself says when it is not."""
    try:
        return len(one) == len(other) and all(bool(a == b) for a, b in zip(one, other, strict=True))
    except DataDependent:
        return True


@receives_function(
    "torch.distributed.tensor._api.DTensor.from_local", "torch.distributed.tensor.distribute_tensor",
    *(f"torch.distributed.tensor.{name}" for name in ("ones", "empty", "full", "rand", "randn", "zeros")),
)  # fmt: skip
def over_a_mesh(vm: Interpreter, function: object, *args: Value, **kwargs: Value) -> Value:
    """Functions that give tensors over a mesh: each is one operation of the graph, and runs while that is recorded."""
    return vm.recorder.call_function(vm, function, list(args), kwargs)
