"""Graphs that fail when they run: the program fails as it would by itself, and leaves what it would leave.

What a program changes comes after its graph. Where a graph that writes nothing raises, nothing has happened yet, and the function runs as
it is: its exception is the program's own, from its own line, after what comes before it."""

from __future__ import annotations

import logging
import types
from typing import Any, Callable

import torch
from msgspec import Struct
from torch._C import _functorch

from opmill_fake_tensors.passing import interrupting

from .chance_states import States, put_back
from .thread_state import switched, switches

log = logging.getLogger("opmill.internal")
#: Torch functions that write to an argument or to a state without saying so in their names.
WRITING = frozenset("batch_norm instance_norm native_batch_norm backward manual_seed setitem delitem".split())


#: In-place methods of tensors that change what no version counts.
UNCOUNTED = frozenset(
    "requires_grad_ detach_ resize_ resize_as_ set_ share_memory_ squeeze_ unsqueeze_ transpose_ t_ swapdims_ swapaxes_ as_strided_ "
    "rename_ apply_ map_ map2_".split()
)


def may_run_again(graph: torch.fx.Graph, outside: list[torch.Tensor]) -> bool:
    """Whether running a part of the graph leaves nothing behind. What is not known to write nothing is taken to write. ``outside``: what
    stood for tensors that are not the graph's own when it was recorded; their versions count what was written to them, whatever view it
    went through."""
    counted = not any(node.target is getattr and node.args[1] == "data" for node in graph.nodes)
    if not all(is_harmless(node) or (counted and is_counted_write(node)) for node in graph.nodes):
        return False
    return not any(fake.is_inference() or fake._version for fake in outside)


def name_of(node: torch.fx.Node) -> str:
    """What a node of the graph calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def is_counted_write(node: torch.fx.Node) -> bool:
    """Whether the node writes to a tensor and does nothing else; numbers that it draws are drawn again (`undoing`)."""
    target, name = node.target, name_of(node)
    if node.op == "call_function" and getattr(target, "__module__", None) == "_operator":
        return name == "setitem" or name.startswith("i")
    of_tensors = node.op == "call_method" or isinstance(target, types.MethodDescriptorType) or getattr(torch, name, None) is target
    return of_tensors and name.endswith("_") and not name.endswith("__") and name not in UNCOUNTED


def is_harmless(node: torch.fx.Node) -> bool:
    """Whether a step of a graph changes nothing that is there when the graph has failed."""
    if node.op not in ("call_function", "call_method"):
        return node.op != "call_module"
    target: object = node.target
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True:
        return False
    if isinstance(target, torch._ops.OpOverloadPacket):
        return all(map(writes_nothing, (getattr(target, overload) for overload in target.overloads())))
    if isinstance(target, torch._ops.OpOverload):
        return writes_nothing(target)
    name = name_of(node)
    of_tensors = isinstance(target, (str, types.MethodDescriptorType))
    module = "torch" if of_tensors else getattr(target, "__module__", None) or ""
    if name in WRITING or isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if module == "_operator":
        return not name.startswith("i") or name in ("invert", "inv", "is_", "is_not", "index")
    written = name.endswith("_") and not name.endswith("__")
    return not written and (
        module in ("builtins", "math") or (module.split(".")[0] in ("torch", "opmill_fake_tensors") and "distributed" not in module)
    )


def writes_nothing(operator: Any) -> bool:
    """What operators of the program do beside what their schemas say is not known."""
    return not operator._schema.is_mutable and operator.namespace in ("aten", "prims", "opmill_numpy")


class Failing(Struct, eq=False):
    """What happens where a graph raises. ``plain``: the function as it is, None where the graph may have left something behind; ``strict``:
    that the graph fails and the function does not is an error; ``unless_begun``: the function where what runs the graph says that it had
    left nothing behind yet (``begun`` of its exception is False); ``before``: the switches of the thread when the graph began;
    ``levels``: how many function transforms it was in."""

    plain: Callable[..., object] | None
    unless_begun: Callable[..., object] | None
    strict: bool
    before: dict[object, tuple[object, ...]]
    levels: int
    told: bool = False

    def behind(self, states: States) -> Callable[..., object]:
        """The same for a call that drew from generators, which were in these states before."""

        def failed(error: Exception, args: tuple[object, ...], kwargs: dict[str, object], *called: Callable[..., object]) -> object:
            if self.again(error) is not None:
                put_back(states)
            return self(error, args, kwargs, *called)

        return failed

    def again(self, error: Exception) -> Callable[..., object] | None:
        """What is run for the call; None: the error is its outcome."""
        if interrupting(error) is not None:
            return None
        plain = self.plain or (None if getattr(error, "begun", True) else self.unless_begun)
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        return None if hooked else plain  # hooks of the program have seen tensors of the graph; a checkpoint ends its second run by raising

    def __call__(
        self, error: Exception, args: tuple[object, ...], kwargs: dict[str, object], called: Callable[..., object] | None = None
    ) -> object:
        """The result of the call: what the function itself gives or raises (``called``: the one that was called, where several share the
        graph). An error that is ``mistaken`` is none of the program's: who runs the graph asks for the function instead, and is told that
        it ran."""
        if _functorch.get_dynamic_layer_stack_depth() > self.levels:
            _functorch.pop_dynamic_layer_stack_and_undo_to_depth(self.levels)
        for function, *given in switched(switches(), self.before):
            function(*given)
        plain = self.again(error)
        if plain is None:
            raise error
        result = (called or plain)(*args, **kwargs)
        mistaken = getattr(error, "mistaken", None)
        if mistaken is not None:
            mistaken()
        elif self.strict:
            raise error
        elif not self.told:
            self.told = True
            log.warning("the graph of %s failed and the function does not: %s: %s", plain.__qualname__, type(error).__name__, error)
        return result


__all__ = ["Failing", "may_run_again"]
