"""Which element types an operator's kernels take: seen by running it once on a few zeros.

Meta kernels promote where kernels for processors refuse (``lerp`` of two types, a layer norm with a weight of another), and know nothing of
types for which no kernel was written. What eager then raises is raised while tracing, in eager's words, which name types and no sizes."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .places import lead_into_memory

_OF_TYPES = re.compile(
    r"dtype|\b(?:scalar|data|same) ?types?\b|not implemented for|\bcast\b|\b(?:long|int|byte|float|double) tensor\b|\btype "
    r"promotion\b|\b(?:integral|floating|complex|boolean|bool|half)\b",
    re.I,
)
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
_SMALL = 3
_GROWING = frozenset("size sizes repeats output_size shape pad minlength steps num_classes scale_factors bins".split())
"""Arguments by which results are larger than what they are made of: tried with few."""
_FEW = 16
_CHEAP, _MOST = 1 << 12, 1 << 22
"""Elements that are tried as they are, and where nothing smaller fits."""
_ABOVE = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.FuncTorchDynamicLayerBackMode
)
"""Function transforms: what is made here is no tensor of theirs."""
_LIMIT = 20_000
_found: dict[Any, Exception | None] = {}
"""By operator, types and ranks of its arguments, and which of their dimensions are empty; with all numbers, where the kernel said something
else of these arguments than which types it takes."""


def refusal(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """What the operator's kernel for processors says of the element types of these arguments (meta tensors for tensors); None where it
    takes them."""
    if "out" in kwargs:
        return None  # which is written, and has a size of its own
    types: list[torch.dtype] = []
    key: list[Any] = [func]
    numbers: list[int] = []
    for value in (*args, *kwargs.values()):
        _describe(value, types, key, numbers)
    if not types:
        return None
    known = tuple(key)
    if known in _found:
        return _found[known]
    exactly = (*known, *numbers)
    if exactly not in _found:
        if len(_found) > _LIMIT:
            _found.clear()
        error = _tried(func, *_few(func, args, kwargs))
        of_types = error is not None and isinstance(error, _REFUSALS) and bool(_OF_TYPES.search(str(error)))
        if error is None or of_types:
            exactly = known
        _found[exactly] = error if of_types else None
    return _found[exactly]


def _describe(value: Any, types: list[torch.dtype], key: list[Any], numbers: list[int]) -> None:
    """Adds to ``key`` what which types a kernel takes may depend on, and to ``numbers`` the rest."""
    if isinstance(value, torch.Tensor):
        types.append(value.dtype)
        key += (value.dtype, value.dim())
        sizes = [_number(n) for n in value.shape]
        numbers += sizes
        if 0 in sizes:  # kernels return early, or say something else first
            key.append(tuple(n == 0 for n in sizes))
    elif isinstance(value, (list, tuple)):
        key.append(len(value))
        for v in value:
            _describe(v, types, key, numbers)
    else:
        if type(value) in (int, torch.SymInt):
            numbers.append(_number(value))
        key.append(value if type(value) in (torch.dtype, str, bool) else type(value))


def _few(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments, with counts that make results large cut down."""
    names = [a.name for a in func._schema.arguments] if isinstance(func, torch._ops.OpOverload) else ()
    if _GROWING.isdisjoint(names):
        return args, kwargs
    cut = [_cut(a) if name in _GROWING else a for a, name in zip(args, names, strict=False)]
    return cut, {k: _cut(v) if k in _GROWING else v for k, v in kwargs.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cut(v) for v in value]
    return min(_number(value), _FEW) if type(value) in (int, torch.SymInt) else value


def _tried(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """As it is where that is cheap, else on as few elements as dimensions that are equal stay equal with; where these do not fit for
    another reason, as it is."""
    sizes: set[int] = set()
    elements = _sizes_in((args, tuple(kwargs.values())), sizes)
    smaller = {n: _SMALL + 1 + k for k, n in enumerate(sorted(n for n in sizes if n > _SMALL))}
    with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher(), torch._C._ExcludeDispatchKeyGuard(_ABOVE):
        error = _raised(func, args, kwargs, {} if elements <= _CHEAP else smaller)
        if error is not None and not _OF_TYPES.search(str(error)) and _CHEAP < elements <= _MOST:
            error = _raised(func, args, kwargs, {})
    return error


def _raised(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], smaller: Mapping[int, int]) -> Exception | None:
    try:
        given = [_zeros(a, smaller) for a in args], {k: _zeros(v, smaller) for k, v in kwargs.items()}
        lead_into_memory(func, *given)
    except (RuntimeError, TypeError, NotImplementedError):
        return None  # no zeros of this type
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            func(*given[0], **given[1])
    except Exception as e:
        return e.with_traceback(None)
    return None


def _sizes_in(value: Any, found: set[int]) -> int:
    """Adds the sizes of the tensors to ``found``; how many elements they have."""
    if isinstance(value, torch.Tensor):
        sizes = [_number(n) for n in value.shape]
        found.update(sizes)
        return math.prod(sizes)
    return sum(_sizes_in(v, found) for v in value) if isinstance(value, (list, tuple)) else 0


def _number(n: Any) -> int:
    """A size, or what it was when it was met: no matter which, for nothing is decided by it."""
    if type(n) is int:
        return n
    hint = n.node.hint if n.node.has_hint() else None
    return hint if type(hint) is int else _SMALL + 1


def _zeros(value: Any, smaller: Mapping[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros([smaller.get(n, n) for n in map(_number, value.shape)], dtype=value.dtype, device="cpu")
    if type(value) in (list, tuple):
        return type(value)(smaller.get(v, v) if type(v) is int else _zeros(v, smaller) for v in value)
    if type(value) is torch.SymInt:
        return smaller.get(_number(value), _number(value))
    return torch.device("cpu") if type(value) is torch.device else value
