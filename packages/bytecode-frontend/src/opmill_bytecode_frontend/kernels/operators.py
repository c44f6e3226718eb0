"""A Triton kernel with its constant arguments as an operator: ``opmill_kernels::NAME_`` launches it on tensors that it writes to, and
``opmill_kernels::NAME`` is the same as a function, which gives copies of these as they are after the launch. The first carries the kernel's
machine code (``opmill_kernel``) for backends that can start it themselves.

Arguments of both: the tensors, then the whole numbers, then the grid (three numbers for each configuration of an autotuned kernel). The
kernel is launched as the program would do it, by Triton."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from opmill_fake_tensors.forking import ForkLock

from .machine import Machine, machine_of

_SPACE = "opmill_kernels"
_lock = ForkLock()
_numbers = itertools.count()
"""For names: a number is never used again, for what came of a definition that failed on its way stays known to torch."""
_operators: dict[object, object] = {}
_library: list[torch.library.Library] = []


class Launch(Struct, frozen=True):
    """``tensors`` and ``numbers`` name the parameters that each of the operator's tensors and numbers is for; ``constants`` are the other
    arguments and launch options. ``written``: which of the tensors are written to. ``configurations``: of an autotuned kernel, the
    constants that each of them gives; the grid has three numbers for each. ``axes``: how many of three the program gave."""

    kernel: Any
    tensors: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    written: tuple[bool, ...]
    configurations: tuple[tuple[tuple[str, object], ...], ...] = ()
    axes: int = 3

    def __call__(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int], grid: Sequence[int]) -> None:
        arguments = {name: tensor for names, tensor in zip(self.tensors, tensors, strict=True) for name in names}
        arguments |= dict(zip(self.numbers, numbers, strict=True)) | dict(self.constants)
        self.kernel[self._grid(grid)](**arguments)

    def machine(self, dtypes: Sequence[torch.dtype], numbers: Sequence[int], device: int, aligned: bool) -> Machine | None:
        """Machine code for tensors of these types on a CUDA device, where it can be started without Triton."""
        if self.configurations:
            return None
        tensors = {name: (k, dtype) for k, (names, dtype) in enumerate(zip(self.tensors, dtypes, strict=True)) for name in names}
        return machine_of(self.kernel, tensors, dict(zip(self.numbers, numbers, strict=True)) | dict(self.constants), device, aligned)

    def _grid(self, grid: Sequence[int]) -> tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]:
        if not self.configurations:
            return tuple(grid[: self.axes])
        table = [(dict(c), tuple(grid[3 * k : 3 * k + self.axes])) for k, c in enumerate(self.configurations)]
        return lambda meta: next(found for constants, found in table if all(meta[name] == value for name, value in constants.items()))


def operator_of(launch: Launch) -> object:
    """The operator that writes, the same one for equal launches."""
    key = id(launch.kernel), launch.tensors, launch.numbers, _exactly(launch.constants), launch.written, launch.configurations, launch.axes
    with _lock:
        if key not in _operators:
            _operators[key] = _define(launch, next(_numbers))
        return _operators[key]


def _exactly(constants: tuple[tuple[str, Any], ...]) -> object:
    return tuple((name, type(value), repr(value) if isinstance(value, float) else value) for name, value in constants)


def _define(launch: Launch, number: int) -> object:
    if not _library:
        _library.append(torch.library.Library(_SPACE, "FRAGMENT"))
    library = _library[0]
    plain = getattr(launch.kernel, "__name__", "") or launch.tensors[0][0]
    name = f"{re.sub(r'[^A-Za-z0-9]+', '_', plain).strip('_') or 'kernel'}_{number}"
    count = len(launch.tensors)
    writes = [k for k, w in enumerate(launch.written) if w]
    rest = "SymInt[] numbers, SymInt[] grid"
    library.define(f"{name}_({', '.join(f'Tensor(a{k}!) t{k}' if k in writes else f'Tensor t{k}' for k in range(count))}, {rest}) -> ()")
    library.define(f"{name}({', '.join(f'Tensor t{k}' for k in range(count))}, {rest}) -> ({', '.join(['Tensor'] * len(writes))})")

    def write(*args: Any) -> None:
        launch(args[:count], args[count], args[count + 1])

    def copies(*args: Any) -> object:
        tensors = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t) if k in writes else t
            for k, t in enumerate(args[:count])
        ]
        launch(tensors, args[count], args[count + 1])
        return _results([tensors[k] for k in writes])

    def like(*args: Any) -> object:
        return _results([torch.empty_strided(args[k].shape, args[k].stride(), dtype=args[k].dtype, device=args[k].device) for k in writes])

    def nothing(*args: object) -> None:
        return None

    operators = []
    for suffix, run, shape in (("_", write, nothing), ("", copies, like)):
        for key, implementation in (("CPU", run), ("CUDA", run), ("Meta", shape)):
            library.impl(name + suffix, implementation, key)
        for key in ("Autograd", "ADInplaceOrView"):  # no derivative, as where the program launches it itself
            library.impl(name + suffix, torch.library.fallthrough_kernel, key)
        operator = getattr(getattr(torch.ops, _SPACE), name + suffix).default
        operator.opmill_shapes = lambda name, overload, args, kwargs, shape=shape: shape(*args)
        operators.append(operator)
    operators[0].opmill_kernel = launch.machine
    return operators[0]


def _results(tensors: list[torch.Tensor]) -> object:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
