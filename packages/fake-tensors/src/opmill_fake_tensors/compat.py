"""Keeps ``torch._dynamo`` from being imported by accident.

Functions that torch decorates with ``torch._compile._disable_dynamo`` (its Python meta kernels among them) import
``torch._dynamo`` (about two seconds) at their first call, unless the function that they wrap carries ``__dynamo_disable``. We put a
:class:`_WhenLoaded` there: it runs the function plainly while ``torch._dynamo`` is not loaded, and does what torch would have done
once somebody else has loaded it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

import torch

from .twins import twins

_MARK = "__dynamo_disable"
_DECORATED = torch._compile._disable_dynamo(lambda: None).__code__


class _WhenLoaded:
    """Stands for ``torch._dynamo.disable(fn)``."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")
        disable = getattr(dynamo, "disable", None)  # absent while the import of torch._dynamo is still running
        if disable is None:
            return self.fn(*args, **kwargs)
        disabled = disable(self.fn, True, wrapping=False)
        setattr(self.fn, _MARK, disabled)
        return disabled(*args, **kwargs)


def defuse(fn: object) -> None:
    """Makes ``fn``, and every function that it wraps, callable without importing ``torch._dynamo``. Does nothing for other objects."""
    waiting, seen = [fn], set()
    while waiting:
        f = waiting.pop()
        if type(f) is not FunctionType or id(f) in seen:
            continue
        seen.add(id(f))
        closure = f.__closure__ or ()
        if f.__code__ is _DECORATED:
            wrapped = next(c for name, cell in zip(f.__code__.co_freevars, closure, strict=True) if name == "fn" for c in [_contents(cell)])
            if type(wrapped) is FunctionType and _MARK not in wrapped.__dict__:
                setattr(wrapped, _MARK, _WhenLoaded(wrapped))
        # decorators keep what they wrap in a cell, not always under __wrapped__
        waiting += [c for cell in closure if type(c := _contents(cell)) is FunctionType]


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _meta_kernel_modules() -> Iterator[Any]:
    prefixes = ("torch._refs", "torch._decomp", "torch._prims", "torch._meta_registrations")
    for name, module in list(sys.modules.items()):
        if name.startswith(prefixes):
            yield module


_OTHERWISE = (
    "multilabel_margin_loss_forward",  # labels behind the first -1 count in that of the twin
    "dropout",  # the twin copies where nothing is dropped, the kernel gives its argument
)
_RESAMPLINGS = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
)
_HIDING = (
    *"hardshrink softshrink multi_margin_loss native_batch_norm upsample_bilinear2d upsample_bicubic2d".split(),
    *_RESAMPLINGS.split(),
    *(
        f"{name}.vec"
        for name in f"{_RESAMPLINGS} upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa "
        "_upsample_bicubic2d_aa".split()
    ),
)
"""Of these the kernels in C++ take symbolic sizes, and refuse element types that the twins, which are other operators, compute with."""


@functools.cache
def distrust_twins() -> None:
    """Takes torch's Python twins of operators away that are something else than their kernels in C++, and puts others in the place of those
    that this package has. Called before Python twins are looked for."""
    keys = torch._C.DispatchKey
    for name in (*_OTHERWISE, *_HIDING):
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        for key in (keys.Autograd, keys.CompositeImplicitAutograd):
            operator.py_kernels.pop(key, None)
        operator._dispatch_cache.clear()
    for operator, twin in twins().items():
        for key in (keys.Autograd, keys.CompositeImplicitAutograd):
            operator.py_kernels[key] = twin
        operator._dispatch_cache.clear()


_done: set[str] = set()
_modules_seen = [0]


def defuse_meta_kernels() -> None:
    """Defuses every function of the modules that hold torch's Python meta kernels and decompositions, once each (50 ms). Called before
    whatever may run one of them; there is a look at all modules (a millisecond) only where there are others than before."""
    loaded = len(sys.modules)
    if _modules_seen[0] == loaded:
        return
    for module in _meta_kernel_modules():
        if module.__name__ not in _done:
            for value in list(vars(module).values()):
                defuse(value)
            _done.add(module.__name__)
    if "tables" not in _done:
        for table in list(torch._decomp.global_decomposition_table.values()):
            for fn in list(table.values()):
                defuse(fn)
        _done.add("tables")
    _modules_seen[0] = loaded
