"""``torch.utils.checkpoint``: what is computed again for the backward is a graph of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint as CHECKPOINTED
from torch.utils.checkpoint import create_selective_checkpoint_contexts as SELECTIVE
from torch.utils.checkpoint import noop_context_fn

from ...graph.regions import Region
from ...values.base import MISSING, NotConstant, Value
from ...values.constant import ConstantValue
from ...values.functions import FunctionValue, PartialValue
from ...values.tensor import TensorValue
from ..registry import named
from ..reified import real_of
from .bodies import flat, outputs, recording, without_effects

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


class Checkpoint(HigherOrderOperator):
    """A graph that is computed again for the backward. Where a backend traces it, it is torch's operator for that; where it runs as it is,
    the function of the user: torch's operator draws other random numbers when it computes again, which those who trace it must see to."""

    def __init__(self) -> None:
        super().__init__("opmill_checkpoint")

    def __call__(self, module: torch.fx.GraphModule, *args: object, use_reentrant: bool = False) -> object:
        if _is_traced():
            return tag_activation_checkpoint(module, *args, use_reentrant=use_reentrant)
        contexts = module.meta.get("_checkpoint_context_fn", noop_context_fn)
        return CHECKPOINTED(module, *args, use_reentrant=use_reentrant, context_fn=contexts)


def _is_traced() -> bool:
    return torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch) or any(
        mode.is_infra_mode() for mode in _get_current_dispatch_mode_stack()
    )


CHECKPOINT = Checkpoint()


def chooses_what_to_save(contexts: Value) -> bool:
    """Whether a ``context_fn`` does no more than that, which changes no result: it is torch's own for it, or calls that."""
    function = contexts.function if isinstance(contexts, PartialValue) else contexts
    if not isinstance(function, FunctionValue):
        return False
    named = (*function.code.co_names, *function.code.co_freevars)  # the function around it may have imported it
    return function.obj in (noop_context_fn, SELECTIVE) or SELECTIVE.__name__ in named


def real_policy(vm: Interpreter, contexts: Value) -> object:
    """The ``context_fn`` as an object that can be called while the graph is compiled; None for one that keeps nothing, or that is made of
    what only a call knows: what is computed again then is as right."""
    found = real_of(vm, contexts)
    return None if found is MISSING or found is noop_context_fn else found


@named("torch.utils.checkpoint.checkpoint")
def checkpoint(vm: Interpreter, function: Value, *args: Value, **kwargs: Value) -> Value:
    """``torch.utils.checkpoint.checkpoint()``: the function is captured, and what it computes is marked as to be computed again."""
    reentrant = kwargs.pop("use_reentrant", NONE)
    contexts = kwargs.pop("context_fn", None)
    if contexts is not None and not chooses_what_to_save(contexts):
        vm.unsupported("FE016", "activation checkpointing under contexts of the program", "a graph does not enter them")
    policy = None if contexts is None else real_policy(vm, contexts)
    for option in ("determinism_check", "debug", "preserve_rng_state", "early_stop"):
        kwargs.pop(option, None)
    if not torch.is_grad_enabled():
        return vm.call(function, list(args), kwargs)
    if vm.truth(reentrant) and not any(isinstance(a, TensorValue) and a.fake.requires_grad for a in args):
        vm.unsupported("FE016", "reentrant activation checkpointing", "no argument requires grad: nothing inside would get a gradient")
    region, recorder = Region(), vm.recorder
    with recording(vm, region), without_effects(vm, function):
        result = vm.call(function, list(args), kwargs)
        try:
            results, rebuild, _ = flat(vm, result)
        except NotConstant as exc:
            vm.unsupported("FE016", "activation checkpointing", f"the function returns {exc}")
        out = [recorder.node_of(t) for t in results]
    common = list(region.lifted)
    module = region.module(tuple(out))
    if policy is not None:
        module.meta["_checkpoint_context_fn"] = policy
    held = recorder.hold("checkpointed", module)
    node = recorder.graph.call_function(CHECKPOINT, (held, *common), {"use_reentrant": False})
    return rebuild(iter(outputs(vm, node, [t.fake for t in results], recorder.fakes_of(common))))
