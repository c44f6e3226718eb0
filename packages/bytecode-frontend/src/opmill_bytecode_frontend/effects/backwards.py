"""Backwards of the program's own that are parts of a graph. They are recorded where the forward is called and run later: what they read has
to be the same then.

Where a capture goes backward itself, or ends, each is recorded once more, and the graph ends before its forward where that gives another
one. What they read of objects that outlive the call is compared when they run (`graph.pending`)."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors.symbols import index

from ..errors import Unsupported
from ..graph import pending
from ..graph.leaves import is_leaf
from ..graph.regions import SIZE, Region
from ..graph.versions import written
from ..values.base import Raised, Value
from ..values.tensor import TensorValue
from .rebinding import is_rebound

if TYPE_CHECKING:
    from ..codegen.rebuild import Rebuilder
    from ..interpretation.machine import Interpreter

Record = Callable[[Region], object]
Drawn = tuple[str, object, list[object], str]


class Backward:
    """``record`` writes it into a region and gives what it returns, inside of ``forward``, whose tensors it reads; ``drawn`` is what it
    wrote, ``reads`` what it read; ``place``: where the graph may end before its forward;
    ``namespace``: that of the module where it is used."""

    def __init__(self, name: str, forward: Region, record: Record, place: int | None, namespace: Mapping[str, object]) -> None:
        self.name = name
        self.namespace = namespace
        self.forward = forward
        self.record = record
        self.place = place
        self.again = True
        """Whether it can be recorded again: its forward is in no body."""
        self.reads: list[tuple[object, Any, str]] = []
        self.drawn: Drawn = "", None, [], ""
        self.saved: list[tuple[torch.Tensor, int]] = []
        """What autograd keeps for it, with how often that had been written: it refuses a backward that would read something else."""
        self.unsaved: list[torch.Tensor] = []
        """Other tensors of the forward that it reads."""
        self.ran = False
        """Whether captured code has gone backward since."""

    def run(self, vm: Interpreter, region: Region) -> Any:
        before, vm.effects.reads = vm.effects.reads, []
        try:
            returned = self.record(region)
            self.reads = vm.effects.reads
        finally:
            vm.effects.reads = before
        self.drawn = drawing(region, returned)
        return returned


def drawing(region: Region, returned: object) -> Drawn:
    """What tells recorded graphs apart. A size is the same whichever step of the graph outside reads it."""
    sizes = {inner: f"size<{name}>" for outer, inner in region.lifted.items() if (name := outer.meta.get(SIZE))}

    def shown(node: torch.fx.Node) -> str:
        if node in sizes:
            return sizes[node]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: sizes.get(each, each))
        return f"{node.op} {node.name} {node.target!r} {args!r} {kwargs!r}"

    inner = {name: getattr(held, "code", id(held)) for name, held in region.attributes.items()}
    nodes = "\n".join(shown(node) for node in region.graph.nodes)
    return nodes, inner, [sizes.get(inside, outer) for outer, inside in region.lifted.items()], repr(returned)


def _as_known(vm: Interpreter, drawn: Drawn) -> object:
    """The same with sizes that have turned out to be one under one name."""
    sizes = vm.recorder.numbers.sizes

    def name(found: re.Match[str]) -> str:
        return f"size<{sizes.simplify(index(found[1]))}>" if found[1] in sizes.symbols else found[0]

    nodes, inner, lifted, returned = drawn
    said = [re.sub(r"size<(\w+)>", name, each) if isinstance(each, str) else each for each in (nodes, *lifted)]
    return said, inner, returned


def settle(vm: Interpreter) -> None:
    """Raises Unsupported where a backward would now do another thing than was recorded."""
    for backward in vm.effects.backwards:
        if not backward.again:
            continue
        if not backward.ran and any(written(fake) != version for fake, version in backward.saved):
            what = f"a tensor that is saved for the backward of {backward.name}"
            vm.unsupported("FE015", what, "it is written to before that runs, which autograd refuses", place=backward.place)
        before = backward.drawn
        try:
            vm.recorder.regions.append(backward.forward)
            with torch.no_grad():  # which is no step of the graph
                backward.run(vm, Region())
            changed = _as_known(vm, backward.drawn) != _as_known(vm, before)
        except (Unsupported, Raised):
            changed = True
        finally:
            vm.recorder.regions.pop()
        if changed:
            vm.unsupported("FE015", f"the backward of {backward.name}", "what it reads is changed before it runs", place=backward.place)


def settled(vm: Interpreter) -> None:
    """Before captured code goes backward: what was saved may be written from then on. A backward that does so itself is what is being
    compared."""
    if vm.effects.reads is not None:
        return
    settle(vm)
    for backward in vm.effects.backwards:
        backward.ran = True


def watch(vm: Interpreter, r: Rebuilder) -> bool:
    """Statements behind the graph that have those backwards compared which run when the call is over; whether there are any."""
    shown = [f"_g[{k}]" for k, value in enumerate(r.outputs) if isinstance(value, TensorValue) and has_history(value.fake)]
    changed = [v for v in vm.recorder.inputs if isinstance(v, TensorValue) and v.source is not None and was_written(v.fake)]
    if not vm.effects.backwards or not (shown or changed):
        return False
    settle(vm)
    if vm.may_break:
        refuse_unsaved(vm, r)
    count = len(r.body)
    shown += [r.source(value.source) for value in changed]
    for backward in vm.effects.backwards:
        found = list(dict.fromkeys(text for kind, owner, name in backward.reads if (text := read_text(vm, r, backward, kind, owner, name))))
        if found:
            r.body.append(f"{r.constants.name(pending.watch)}(({', '.join(shown)},), {backward.name!r}, {', '.join(found)})")
    return len(r.body) > count


def has_history(fake: torch.Tensor) -> bool:
    """Whether a fake was computed from what requires grad."""
    return bool(fake.requires_grad) and not is_leaf(fake)


def was_written(fake: torch.Tensor) -> bool:
    """Whether a fake with a history was written in place."""
    return has_history(fake) and not fake.is_inference() and fake._version > 0


def read_text(vm: Interpreter, r: Rebuilder, backward: Backward, kind: object, owner: Value, name: str) -> str | None:
    """The expression of one read; None for what nobody can reach when the call is over. Raises Unsupported for objects and containers that
    are the program's to change."""
    if not isinstance(owner, Value):
        text: str | None = r.constants.name(owner)
    elif owner.source is None:
        text = r.known(owner)
    elif kind is None:
        text = str(owner.source)
    else:
        text = r.expr(owner)
    if text is not None and kind is None:
        why = "it may be changed before the backward runs, which reads it"
        vm.unsupported("FE015", f"{owner.describe()} in the backward of {backward.name}", why, HINT, place=backward.place)
    if text is not None and vm.may_break and is_rebound(kind, name, [backward.namespace, *home_of(owner)]):
        why = "code of the program changes it, and may do so before the backward runs"
        vm.unsupported("FE015", f"{name} in the backward of {backward.name}", why, HINT, place=backward.place)
    return text and f"({r.constants.name(kind)}, {text}, {name!r})"


def home_of(owner: object) -> list[Mapping[str, object]]:
    """The namespace of the module that an owner of names is from."""
    if isinstance(owner, dict):
        return [owner]
    obj = getattr(owner, "obj", None)
    if isinstance(obj, types.ModuleType):
        return [vars(obj)]
    module = sys.modules.get(str(getattr(obj if isinstance(obj, (type, types.FunctionType)) else type(obj), "__module__", "")))
    return [] if module is None else [vars(module)]


def refuse_unsaved(vm: Interpreter, r: Rebuilder) -> None:
    """Raises Unsupported where a backward that is to run when the call is over reads tensors which others have, too, and which were not
    saved for it: eager then takes what they hold by then."""
    outside = [*vm.recorder.outside(), *(value.fake for value in r.outputs if isinstance(value, TensorValue))]
    memory = {id_ for fake in outside if (id_ := memory_of(fake)) is not None}
    for backward in vm.effects.backwards:
        if any(memory_of(fake) in memory for fake in backward.unsaved):
            why = "it is not saved by ctx.save_for_backward, and the program may write to it before the backward runs"
            hint = "ctx.save_for_backward(...) keeps tensors for a backward"
            vm.unsupported("FE015", f"a tensor that the backward of {backward.name} reads", why, hint, place=backward.place)


def memory_of(fake: torch.Tensor) -> int | None:
    """What tells the memory of a fake from others'; None where it has none."""
    meta = getattr(fake, "meta", None)
    return meta.untyped_storage()._cdata if isinstance(meta, torch.Tensor) else None


HINT = "keep what it needs of it in the ctx, numbers and tensors"


__all__ = ["Backward", "settled", "watch"]
