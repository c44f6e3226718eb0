"""Reference interpreter of loop kernels: the oracle that schedules and generators are tested against.

Nests run one after the other, phases too; each is vectorised over the whole grid of its axes with torch. Buffers are flat
tensors, an index counts elements from their start, as a pointer would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .arithmetic import apply, torch_dtype
from .attending import attend
from .index import FloorDiv, Index
from .ir import Axis, Const, Expr, IndexValue, Let, Load, LoopKernel, Nest, Op, Reduction, Ref, Scan, Store


@dataclass
class _Grid:
    """The axes of a nest and of one of its phases, and what names mean there. Values are tensors that broadcast over ``shape``."""

    shape: list[int]
    values: dict[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    sizes: Mapping[str, int]
    wide: bool
    memo: dict[Expr, torch.Tensor] = field(default_factory=dict)


def evaluate(kernel: LoopKernel, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = (), *, wide: bool = False) -> int:
    """Runs ``kernel`` on flat tensors by buffer name, writing into them; ``sizes`` are the values of ``kernel.symbols``.

    Returns 0, or 1 + the number of the first check that failed (nothing of its phase is stored then). With ``wide``, float32
    arithmetic is done in float64; buffers given as float64 then keep the full result."""
    values = dict(zip(kernel.symbols, sizes, strict=True))
    number = 0
    if kernel.attention is not None:
        attend(kernel.attention, buffers, lambda f, names, shape: _value(f, _Grid(list(shape), dict(names), buffers, {}, wide)), wide=wide)
    for nest in kernel.nests:
        failed = _run_nest(nest, buffers, values, wide, number)
        if failed:
            return failed
        number += sum(len(p.checks) for p in nest.phases)
    return 0


def _run_nest(nest: Nest, buffers: Mapping[str, torch.Tensor], sizes: Mapping[str, int], wide: bool, number: int) -> int:
    outer = [a.extent.evaluate(sizes) for a in nest.axes]
    visible: dict[str, torch.Tensor] = _axis_values(nest.axes, outer, 0)
    for phase in nest.phases:
        inner = [a.extent.evaluate(sizes) for a in phase.axes]
        padded = {n: v.reshape(tuple(v.shape) + (1,) * len(inner)) for n, v in visible.items()}
        padded |= {n: v.reshape((1,) * len(outer) + tuple(v.shape)) for n, v in _axis_values(phase.axes, inner, 0).items()}
        grid = _Grid(outer + inner, padded, buffers, sizes, wide)
        _bind_lets(phase.lets, grid)
        for i, check in enumerate(phase.checks):
            if math.prod(grid.shape) and not bool(_value(check.condition, grid).all()):
                return number + i + 1
        number += len(phase.checks)
        reduced = [_reduce(r, grid, len(outer)) for r in phase.reductions]
        for scan in phase.scans:
            grid.values.update(_scan(scan, grid))
        stores = [(s, _offsets(s.index, grid), _value(s.value, grid)) for s in phase.stores]
        for store, offsets, value in stores:
            _store(store, offsets, value, grid)
        if not phase.axes:
            visible.update({let.name: grid.values[let.name] for let in phase.lets})
        for group in reduced:
            visible.update(group)
    return 0


def _axis_values(axes: Sequence[Axis], extents: Sequence[int], before: int) -> dict[str, torch.Tensor]:
    rank = len(axes)
    return {
        a.name: torch.arange(n).reshape([1] * (before + i) + [n] + [1] * (rank - i - 1))
        for i, (a, n) in enumerate(zip(axes, extents, strict=True))
    }


def _bind_lets(lets: Sequence[Let], grid: _Grid) -> None:
    for let in lets:
        grid.values[let.name] = _value(let.value, grid)


def _offsets(index: Index, grid: _Grid) -> torch.Tensor:
    """An index expression over the grid, as int64."""
    total = torch.zeros([1] * len(grid.shape), dtype=torch.int64)
    for monomial, coefficient in index.terms:
        product = torch.full([1] * len(grid.shape), coefficient, dtype=torch.int64)
        for atom in monomial:
            if isinstance(atom, str):
                factor = grid.values[atom] if atom in grid.values else torch.tensor(grid.sizes[atom])
            else:
                n, d = _offsets(atom.numerator, grid), _offsets(atom.denominator, grid)
                factor = torch.div(n, d, rounding_mode="floor") if isinstance(atom, FloorDiv) else torch.remainder(n, d)
            product = product * factor
        total = total + product
    return total


def _value(expr: Expr, grid: _Grid) -> torch.Tensor:
    if (known := grid.memo.get(expr)) is None:
        known = grid.memo[expr] = _VALUES[type(expr)](expr, grid)
    return known


def _const(expr: Const, grid: _Grid) -> torch.Tensor:
    return torch.tensor(expr.value, dtype=torch_dtype(expr.dtype, grid.wide)).reshape([1] * len(grid.shape))


def _index_value(expr: IndexValue, grid: _Grid) -> torch.Tensor:
    return _offsets(expr.index, grid).to(torch_dtype(expr.dtype, grid.wide))


def _load(expr: Load, grid: _Grid) -> torch.Tensor:
    offsets = _offsets(expr.index, grid)
    memory = grid.buffers[expr.buffer]
    dtype = torch_dtype(expr.dtype, grid.wide)
    if expr.mask is None:
        return memory[offsets].to(dtype)
    mask = _value(expr.mask, grid)
    offsets, mask = torch.broadcast_tensors(offsets, mask)
    other = torch.tensor(expr.other.value if expr.other is not None else 0, dtype=dtype)
    if not memory.numel():
        return other.expand(mask.shape)
    return torch.where(mask, memory[torch.where(mask, offsets, 0)].to(dtype), other)


def _op(expr: Op, grid: _Grid) -> torch.Tensor:
    args = [_value(a, grid) for a in expr.args]
    if expr.name == "bitcast":  # the bits of the narrow type count, whatever the arithmetic is done in
        return args[0].to(torch_dtype(expr.args[0].dtype)).view(torch_dtype(expr.dtype)).to(torch_dtype(expr.dtype, grid.wide))
    return apply(expr.name, args, torch_dtype(expr.dtype, grid.wide))


def _ref(expr: Ref, grid: _Grid) -> torch.Tensor:
    return grid.values[expr.name]


_VALUES: dict[type, Callable[..., torch.Tensor]] = {Const: _const, IndexValue: _index_value, Load: _load, Op: _op, Ref: _ref}


def _store(store: Store, offsets: torch.Tensor, value: torch.Tensor, grid: _Grid) -> None:
    memory = grid.buffers[store.buffer]
    offsets, value = (
        t.expand(grid.shape)[..., : store.first] if store.first is not None else t.expand(grid.shape) for t in (offsets, value)
    )
    offsets, value = offsets.reshape(-1), value.reshape(-1).to(memory.dtype)
    if store.mode == "set":
        memory[offsets] = value
    else:
        _COMBINE[store.mode](memory, offsets, value)


def _combined(reduce: str) -> Callable[..., object]:
    def combine(memory: torch.Tensor, offsets: torch.Tensor, value: torch.Tensor) -> None:
        if memory.dtype == torch.bool:
            narrow = memory.to(torch.uint8)
            memory.copy_(narrow.scatter_reduce_(0, offsets, value.to(torch.uint8), {"sum": "amax", "prod": "amin"}.get(reduce, reduce)))
        else:
            memory.scatter_reduce_(0, offsets, value, reduce)

    return combine


_COMBINE = {"add": _combined("sum"), "mul": _combined("prod"), "max": _combined("amax"), "min": _combined("amin")}


def _reduce(reduction: Reduction, grid: _Grid, outer: int) -> dict[str, torch.Tensor]:
    dtype = torch_dtype(reduction.dtype, grid.wide)
    rows = _value(reduction.value, grid).expand(grid.shape).to(dtype)
    rows = rows.reshape([*grid.shape[:outer], math.prod(grid.shape[outer:])])
    return dict(zip(reduction.names, REDUCERS[reduction.op](rows, dtype), strict=True))


def _welford(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    mean = rows.mean(-1, dtype=dtype)
    return mean, ((rows - mean.unsqueeze(-1)) ** 2).sum(-1, dtype=dtype)


def _xor(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    total = torch.zeros(rows.shape[:-1], dtype=dtype)
    for j in range(rows.shape[-1]):
        total = total ^ rows[..., j]
    return (total,)


REDUCERS = {
    "sum": lambda r, d: ((r.sum(-1, dtype=d) if d != torch.bool else r.any(-1)),),
    "prod": lambda r, d: ((r.prod(-1, dtype=d) if d != torch.bool else r.all(-1)),),
    "max": lambda r, d: (r.amax(-1),),
    "min": lambda r, d: (r.amin(-1),),
    "any": lambda r, d: (r.any(-1),),
    "all": lambda r, d: (r.all(-1),),
    "xor": _xor,
    "argmax": lambda r, d: (r.amax(-1), _first(r, r.amax(-1, keepdim=True))),
    "argmin": lambda r, d: (r.amin(-1), _first(r, r.amin(-1, keepdim=True))),
    "welford": _welford,
}


def _scan(scan: Scan, grid: _Grid) -> dict[str, torch.Tensor]:
    """Results at every point of the grid; its last dimension is the one that is gone along."""
    dtype = torch_dtype(scan.dtype, grid.wide)
    rows = [_value(v, grid).expand(grid.shape).to(dtype) for v in scan.values]
    n = grid.shape[-1]
    if scan.reverse:
        rows = [r.flip(-1) for r in rows]
    results = SCANNERS[scan.op](*rows)
    if scan.reverse:
        results = tuple(r.flip(-1) for r in results)
        results = (results[0], *(n - 1 - r for r in results[1:]))
    return dict(zip(scan.names, (r.to(dtype) if k == 0 else r for k, r in enumerate(results)), strict=True))


def _affine(factor: torch.Tensor, term: torch.Tensor) -> tuple[torch.Tensor, ...]:
    state = term[..., 0]
    out = [state]
    for k in range(1, term.shape[-1]):
        state = factor[..., k] * state + term[..., k]
        out.append(state)
    return (torch.stack(out, -1),)


SCANNERS: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "sum": lambda r: (r.cumsum(-1),),
    "prod": lambda r: (r.cumprod(-1),),
    "logaddexp": lambda r: (r.logcumsumexp(-1),),
    "affine": _affine,
    "argmax": lambda r: tuple(torch.cummax(r, -1)),
    "argmin": lambda r: tuple(torch.cummin(r, -1)),
    "ascending": lambda r: tuple(torch.sort(r, dim=-1, stable=True)),
    "descending": lambda r: tuple(torch.sort(r, dim=-1, descending=True, stable=True)),
}


def _first(rows: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """Position of the first element equal to ``best`` (NaN equals NaN)."""
    hit = rows == best
    if rows.is_floating_point():
        hit = hit | (rows.isnan() & best.isnan())
    return hit.to(torch.uint8).argmax(-1)
