"""torch.distributed in captured code: what a process group says of itself is constant; exchanges are operators of ``_c10d_functional``,
anything else runs natively."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.sequence import SequenceValue
from ...values.tensor import TensorValue
from ..registry import named, receives_function

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


_C10D = "torch.distributed.distributed_c10d."


@named("torch.distributed._functional_collectives._are_we_tracing")
def are_we_tracing(vm: Interpreter) -> Value:
    """What functional collectives give is waited for where it is read: a compiled graph knows where that is."""
    return vm.fresh(True)


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


def _exchange(function: str, *names: str) -> None:
    """Calls of torch's functions ``names`` run ``function`` of ``collectives.py`` instead, where that does the same."""

    def call(vm: Interpreter, *args: Value, _name: str, **kwargs: Value) -> Value:
        from ...graph import collectives

        theirs = inspect.unwrap(getattr(torch.distributed.distributed_c10d, _name))
        try:
            given = inspect.signature(theirs).bind(*args, **kwargs)
        except TypeError as error:
            return refuse(vm, _name, str(error))
        given.apply_defaults()
        values = [v if isinstance(v, Value) else vm.wrap(v, Pinned(v, _name)) for v in given.arguments.values()]
        check(vm, _name, dict(zip(given.arguments, values, strict=True)))
        values = [ConstantValue(reduction(vm, _name, v)) if n == "op" else v for n, v in zip(given.arguments, values, strict=True)]
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
    _exchange(_function, *_names)


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
    group = _group(vm, name, given["group"])
    lists = {p: _tensors(vm, name, p, v) for p, v in given.items() if p not in _OTHERS}
    tensors = [t.fake for given in lists.values() for t in given]
    if len({(t.dtype, t.device.type) for t in tensors}) > 1:
        refuse(vm, name, "its tensors have several types or devices")
    if any(not t.is_contiguous() for t in tensors):
        refuse(vm, name, "a tensor is not contiguous")
    if tensors[0].is_complex() and "op" in given and reduction(vm, name, given["op"]) != "sum":
        refuse(vm, name, "complex numbers are only added")
    if len(lists) == 2 and "input_split_sizes" not in given and not _fit(group.size(), *map(_sizes, lists.values())):
        refuse(vm, name, "sizes do not fit the number of processes, or are not equal")


_OTHERS = ("op", "group", "async_op", "src", "group_src", "output_split_sizes", "input_split_sizes")
"""Parameters that are no tensors."""


def _group(vm: Interpreter, name: str, value: Value) -> torch.distributed.ProcessGroup:
    c10d = torch.distributed.distributed_c10d
    group = value.real()
    if group is None and c10d.GroupMember.WORLD is not None:
        group = c10d.GroupMember.WORLD
    if not isinstance(group, torch.distributed.ProcessGroup):
        refuse(vm, name, "there is no such process group, or this process is not in it")
    if group in c10d._world.pg_coalesce_state:
        refuse(vm, name, "it is one of several that are put together")
    return group


def _tensors(vm: Interpreter, name: str, parameter: str, value: Value) -> list[TensorValue]:
    items = vm.unpack(value) if isinstance(value, SequenceValue) else [value]
    found = []
    for item in items:
        if not isinstance(item, TensorValue):
            refuse(vm, name, f"argument {parameter} is {item.describe()}")
        found.append(item)
    return found


def _sizes(tensors: list[TensorValue]) -> list[object]:
    return [t.fake.numel() for t in tensors]


def _fit(count: int, written: list[Any], read: list[Any]) -> bool:
    """Whether what ``count`` processes send one another is what is written: lists have an item for each, single tensors are parts of equal
    size."""
    if len(written) > 1 or len(read) > 1:
        whole = [sizes for sizes in (written, read) if len(sizes) > 1]
        return all(len(sizes) == count for sizes in whole) and (len(whole) == 2 or len({*written, *read}) == 1)
    return any(bool(a == b * count) for a, b in ((written[0], read[0]), (read[0], written[0])))


@receives_function(
    "torch.distributed.tensor._api.DTensor.from_local", "torch.distributed.tensor._api.distribute_tensor",
    *(f"torch.distributed.tensor._api.{name}" for name in ("ones", "empty", "full", "rand", "randn", "zeros")),
)  # fmt: skip
def over_a_mesh(vm: Interpreter, function: object, *args: Value, **kwargs: Value) -> Value:
    """Functions that give tensors over a mesh: each is one operation of the graph, and runs while that is recorded."""
    return vm.recorder.call_function(vm, function, list(args), kwargs)
