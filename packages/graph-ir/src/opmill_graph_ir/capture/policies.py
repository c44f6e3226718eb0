"""What an activation checkpoint with a policy keeps: the policy of ``create_selective_checkpoint_contexts`` is asked of each operator, as
eager asks it, once the operator has run on fakes."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, SelectiveCheckpointContext

NOTE = "_checkpoint_context_fn"
"""Where the graph module of a checkpoint keeps its ``context_fn``, as torch's own compiler has it."""
Policy = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], "bool | None"]
"""Of an operator, its arguments and its result: True where the result is kept for the backward, False where it must be computed again, None
where it rather is."""


class Unnamed(Exception):
    """The policy has something in it that has no name which says what it does."""


def policy_of(module: Any) -> Policy | None:
    """The policy of a checkpoint's graph module; None where it keeps nothing."""
    make = getattr(module, "meta", {}).get(NOTE)
    if make is None:
        return None
    ask = getattr(make()[0], "policy_fn", None)
    return None if ask is None else functools.partial(_asked, ask)


def _asked(ask: Callable[..., Any], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool | None:
    if func in SAC_IGNORED_OPS:
        return None
    try:
        context = SelectiveCheckpointContext(is_recompute=False, op_output=out)
    except TypeError:  # torch 2.11
        context = SelectiveCheckpointContext(is_recompute=False)
    found = ask(context, func, *args, **kwargs)
    if isinstance(found, bool):
        return found or None
    if found is CheckpointPolicy.MUST_RECOMPUTE:
        return False
    return None if found is CheckpointPolicy.PREFER_RECOMPUTE else True


def judged(recorder: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Records an operator, and notes in what is recorded what the policy of the checkpoint says of it."""
    state = recorder.state
    policy, before = state.policy, len(state.graph.nodes)
    state.policy = None  # what the operator is made of here is no concern of the policy's
    try:
        result = recorder.run(func, args, kwargs)
    finally:
        state.policy = policy
    with torch._C._DisableTorchDispatch():
        kept = policy(func, tuple(args), dict(kwargs), result)
    for node in state.graph.nodes[before:]:
        node.kept, node.again = kept, kept is not True
    return result


def name_of(value: Any, depth: int = 8) -> object:
    """Equal names mean that the policies do the same, as far as code, constants and what it closes over tell. It is not proof against all
    that code can do; plans that were made under another policy keep other values and compute the same. Raises Unnamed."""
    if depth == 0:
        raise Unnamed
    inner = functools.partial(name_of, depth=depth - 1)
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.dtype, torch.device)):
        return type(value).__name__, repr(value)
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return "operator", str(value)
    if isinstance(value, enum.Enum):
        return type(value).__qualname__, value.name
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [inner(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(repr(inner(v)) for v in value)
    if isinstance(value, dict):
        return "dict", [(inner(k), inner(v)) for k, v in value.items()], inner(getattr(value, "default_factory", None))
    if isinstance(value, functools.partial):
        return "partial", inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
        return type(value).__name__, getattr(value, "__module__", ""), value.__name__
    if isinstance(value, types.FunctionType):
        return _name_of_function(value, inner)
    raise Unnamed


def _name_of_function(function: types.FunctionType, inner: Callable[[Any], object]) -> object:
    if str(function.__module__).partition(".")[0] == "torch":  # its version is in every key
        return "function", function.__module__, function.__qualname__
    code = function.__code__
    reads = [(name, inner(function.__globals__[name])) for name in code.co_names if name in function.__globals__]
    try:
        closed = [inner(cell.cell_contents) for cell in function.__closure__ or ()]
    except ValueError:  # an empty cell
        raise Unnamed from None
    return "function", _code(code), reads, closed, inner(function.__defaults__), inner(function.__kwdefaults__)


def _code(code: types.CodeType) -> object:
    constants = [_code(c) if isinstance(c, types.CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts]
    return code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants
