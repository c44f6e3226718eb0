"""Higher-order operators (branches, loops, scans, flex attention): their functions are recorded as graphs of their own.

torch's front doors lead to the operators when they believe to be compiled; called as they are they would start torch's own compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import torch

from ...graph.regions import Region
from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue
from ...values.deferred import MARKS
from ...values.sequence import TupleValue
from ...values.tensor import TensorValue
from ..registry import named
from .bodies import flat, input_like, like, outputs, recording, without_effects

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


_OPS = "torch._higher_order_ops."
NONE = ConstantValue(None)


@named("torch.cond")
def interpreted(vm: Interpreter, *args: Value, **kwargs: Value) -> None:
    """Unlike other functions of torch, which are recorded as they are."""


@named(*(f"torch._dynamo.decorators.{name}" for name in MARKS))
def marked(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Inside of captured code sizes are what they are."""
    return NONE


class Body:
    """A function recorded for some inputs. ``results`` are the tensors that it gives."""

    def __init__(self, vm: Interpreter, function: Value, fakes: Sequence[object], args: Sequence[Value] = ()) -> None:
        self.region = Region()
        with recording(vm, self.region), without_effects(vm, function):
            self.inputs = [input_like(vm, self.region, fake, "x") for fake in fakes]
            self.returned = vm.call(function, [*self.inputs, *args], {})
            try:
                self.results, self.rebuild, self.structure = flat(vm, self.returned)
            except NotConstant as exc:
                disagreement(vm, f"it returns {exc}")
            self.nodes = [vm.recorder.node_of(t) for t in self.results]

    def geometry(self) -> list[tuple[torch.dtype, tuple[int, ...], torch.device]]:
        return [(t.fake.dtype, tuple(t.fake.shape), t.fake.device) for t in self.results]


def disagreement(vm: Interpreter, why: str) -> NoReturn:
    """Ends the graph where branches or turns give what does not agree."""
    vm.unsupported("FE084", "a branch or the body of a loop", why, "return tensors of the same types and sizes in the same structure")


def hold(vm: Interpreter, bodies: Sequence[Body], bare: Sequence[Body] = ()) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """Gives bodies the same further inputs, and makes the graph hold them: their nodes, and the inputs. ``bare`` bodies return their one
    tensor."""
    common = list(dict.fromkeys(node for body in bodies for node in body.region.lifted))
    for body in bodies:
        body.region.take(common)
    modules = [body.region.module(body.nodes[0] if body in bare else tuple(body.nodes)) for body in bodies]
    return [vm.recorder.hold("body", module) for module in modules], common


def tensors(vm: Interpreter, values: Value) -> list[TensorValue]:
    """The tensors of a sequence; refuses other items."""
    items = vm.unpack(values)
    found = [value for value in items if isinstance(value, TensorValue)]
    if len(found) != len(items):
        disagreement(vm, "it carries something other than tensors")
    return found


# ---- branches ------------------------------------------------------------------------------------------------------------


@named(_OPS + "cond.CondOp.__call__")
def cond(vm: Interpreter, op: Value, predicate: Value, then: Value, other: Value, operands: Value = TupleValue([])) -> Value:
    """``torch.cond()``: both sides become graphs, which must give the same kinds of tensors. A known predicate is a plain branch."""
    args = vm.unpack(operands)
    if not isinstance(predicate, TensorValue):
        return vm.call(then if vm.truth(predicate) else other, args, {})
    sides = [Body(vm, side, [], args) for side in (then, other)]
    if sides[0].geometry() != sides[1].geometry() or sides[0].structure != sides[1].structure:
        disagreement(vm, f"one side gives {shown(sides[0])}, the other {shown(sides[1])}")
    held, common = hold(vm, sides)
    node = vm.recorder.graph.call_function(op.real(), (vm.recorder.node_of(predicate), *held, tuple(common)))
    made = outputs(vm, node, [t.fake for t in sides[0].results], vm.recorder.fakes_of(common))
    return sides[0].rebuild(iter(made))


def shown(body: Body) -> str:
    """Types and sizes of what a body gives."""
    return str([f"{str(dtype).removeprefix('torch.')}{list(shape)}" for dtype, shape, _ in body.geometry()])


# ---- loops ---------------------------------------------------------------------------------------------------------------


@named(_OPS + "while_loop.WhileLoopOp.__call__")
def while_loop(vm: Interpreter, op: Value, test: Value, step: Value, carried: Value, additional: Value = TupleValue([])) -> Value:
    """``while_loop``: the test and the step become graphs over what is carried."""
    start = tensors(vm, carried)
    fakes = [like(vm, t.fake) for t in start]
    bodies = [Body(vm, function, fakes, vm.unpack(additional)) for function in (test, step)]
    if [g[:2] for g in bodies[0].geometry()] != [(torch.bool, ())] or bodies[1].geometry() != [
        (f.dtype, tuple(f.shape), f.device) for f in fakes
    ]:
        disagreement(vm, f"the test gives {shown(bodies[0])}, a turn {shown(bodies[1])}")
    held, common = hold(vm, bodies, bare=bodies[:1])
    nodes = tuple(map(vm.recorder.node_of, start))
    node = vm.recorder.graph.call_function(op.real(), (*held, nodes, tuple(common)))
    return TupleValue(outputs(vm, node, fakes, [t.fake for t in start] + vm.recorder.fakes_of(common)))


@named(_OPS + "scan.ScanOp.__call__")
def scan(vm: Interpreter, op: Value, combine: Value, init: Value, xs: Value, additional_inputs: Value = TupleValue([])) -> Value:
    """``scan``: a turn becomes a graph over what is carried and a row of each of ``xs``."""
    start, rows = tensors(vm, init), tensors(vm, xs)
    body = Body(vm, combine, [like(vm, t.fake) for t in start] + row_fakes(vm, rows), vm.unpack(additional_inputs))
    if body.geometry()[: len(start)] != [(t.fake.dtype, tuple(t.fake.shape), t.fake.device) for t in start]:
        disagreement(vm, f"a turn gives {shown(body)}")
    [held], common = hold(vm, [body])
    recorder = vm.recorder
    node = recorder.graph.call_function(
        op.real(), (held, tuple(map(recorder.node_of, start)), tuple(map(recorder.node_of, rows)), tuple(common))
    )
    fakes = [t.fake for t in body.results[: len(start)]] + stacked(vm, body.results[len(start) :], rows)
    return body_result(vm, body, outputs(vm, node, fakes, [t.fake for t in (*start, *rows)] + recorder.fakes_of(common)))


@named(_OPS + "map.MapImpl.__call__")
def map_rows(vm: Interpreter, op: Value, function: Value, xs: Value, operands: Value) -> Value:
    """``map``: the function becomes a graph over a row of each of ``xs``."""
    rows = tensors(vm, xs)
    body = Body(vm, function, row_fakes(vm, rows), vm.unpack(operands))
    [held], common = hold(vm, [body])
    node = vm.recorder.graph.call_function(op.real(), (held, tuple(map(vm.recorder.node_of, rows)), tuple(common)))
    return body_result(vm, body, outputs(vm, node, stacked(vm, body.results, rows), [t.fake for t in rows] + vm.recorder.fakes_of(common)))


def body_result(vm: Interpreter, body: Body, made: list[Value]) -> Value:
    """What a body gives, put together of the node's outputs ``made``."""
    return body.rebuild(iter(made))


def row_fakes(vm: Interpreter, rows: Sequence[TensorValue]) -> list[torch.Tensor]:
    """A fake of one row of each tensor."""
    with torch.no_grad(), vm.recorder.context:
        return [like(vm, t.fake[0], requires_grad=t.fake.requires_grad) for t in rows]


def stacked(vm: Interpreter, results: Sequence[TensorValue], rows: Sequence[TensorValue]) -> list[torch.Tensor]:
    """Fakes of what a body gives for each row, stacked."""
    count = rows[0].fake.shape[0]
    with torch.no_grad(), vm.recorder.context:
        return [t.fake.new_empty((count, *t.fake.shape)) for t in results]


# ---- attention -----------------------------------------------------------------------------------------------------------


@named(_OPS + "flex_attention.FlexAttentionHOP.__call__")
def flex_attention(
    vm: Interpreter,
    op: Value,
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    score_mod: Value,
    block_mask: Value,
    scale: Value,
    options: Value,
    *buffers: Value,
) -> Value:
    """``flex_attention``: the score and mask functions become graphs over one score and its place."""
    recorder = vm.recorder
    q = query.fake
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.no_grad(), recorder.context:
        score = q.new_empty((), dtype=wide)
        at = [q.new_empty((), dtype=torch.int64) for _ in range(4)]
    score.requires_grad_(q.requires_grad)
    recorder.index_by_tensors += 1
    scoring, masking = Body(vm, score_mod, [score, *at]), Body(vm, vm.unpack(block_mask)[-1], at)
    recorder.index_by_tensors -= 1
    if [g[1] for g in (*scoring.geometry(), *masking.geometry())] != [(), ()]:
        disagreement(vm, "the functions of flex_attention give one number each")
    ([score_node], score_buffers), ([mask_node], mask_buffers) = (hold(vm, [body], bare=[body]) for body in (scoring, masking))
    lowered = [recorder.lower(v, False) for v in (query, key, value, TupleValue(vm.unpack(block_mask)[:-1]), scale, options)]
    args = (*lowered[:3], score_node, (*lowered[3], mask_node), *lowered[4:], tuple(score_buffers), tuple(mask_buffers))
    node = recorder.graph.call_function(op.real(), args)
    with torch.no_grad(), recorder.context:
        out = torch.empty_like(q).new_empty((*q.shape[:3], value.fake.shape[3]))
        sums = [q.new_empty(q.shape[:3], dtype=wide) for _ in range(2)]
    inputs = [query.fake, key.fake, value.fake, *recorder.fakes_of(score_buffers)]
    return TupleValue(outputs(vm, node, [out, *sums], inputs))
