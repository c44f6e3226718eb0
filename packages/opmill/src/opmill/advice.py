"""What costs time in a compiled callable and what to do about it, each with its number: for ``opmill.explain``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from msgspec import Struct, structs
from torch.utils import _pytree as pytree

from opmill_runtime_cache.devices.registry import traits_of

from .filesystems import network_filesystem
from .record import BreakRecord, GraphRecord, RecompileRecord

_OFTEN = 3
_SMALL = 64 << 10
"""Bytes of a step below which starting it takes about as long as running it."""
_MANY = 50
_CHANGING = (
    torch.nn.Dropout,
    torch.nn.Dropout1d,
    torch.nn.Dropout2d,
    torch.nn.Dropout3d,
    torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
    torch.nn.BatchNorm1d,
    torch.nn.BatchNorm2d,
    torch.nn.BatchNorm3d,
    torch.nn.SyncBatchNorm,
)
"""Modules that do something else in training mode."""


class Seen(Struct, frozen=True):
    """What advice is about. ``model``: what was compiled; ``result``: what its call returned; ``cache``: the folder that plans are kept
    in, empty for none."""

    graphs: Sequence[GraphRecord]
    breaks: Sequence[BreakRecord]
    recompiles: Sequence[RecompileRecord]
    model: Any
    result: Any
    cache: str = ""


def advice_on(seen: Seen) -> tuple[str, ...]:
    """A sentence for each finding."""
    return tuple(line for rule in RULES for line in rule(seen))


def _breaks(seen: Seen) -> Iterator[str]:
    for found in seen.breaks:
        if found.turns:
            yield f"the break at {found.where} is inside of a loop, and ends a graph in each turn: {found.hint or found.what}"
        elif found.times >= _OFTEN:
            yield f"the break at {found.where} was met {found.times} times: {found.hint or found.what}"


def _sizes(seen: Seen) -> Iterator[str]:
    changed = [each for each in seen.recompiles if each.reasons and "size" in each.reasons[0]]
    if len(changed) >= 2:
        took = sum(graph.seconds for graph in seen.graphs[-len(changed) :])
        told = changed[-1].reasons[0]
        yield (
            f"{len(changed)} recompiles for other sizes ({took:.1f} s in the backend), the last: {told}; "
            "opmill.mark_dynamic(tensor, dimension) ends them"
        )


def _training(seen: Seen) -> Iterator[str]:
    if not isinstance(seen.model, torch.nn.Module):
        return
    tensors = [t for t in pytree.tree_leaves(seen.result) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    tracked = any(t.requires_grad for t in tensors)
    changing = [m for m in seen.model.modules() if isinstance(m, _CHANGING)]
    if tensors and not tracked and seen.model.training and changing:
        count = "a module" if len(changing) == 1 else f"{len(changing)} modules"
        yield f"{count} (dropout, batch norm) in training mode, and no gradients are recorded: was .eval() forgotten?"
    if tracked and not seen.model.training:
        yield "gradients are recorded in evaluation mode: under torch.no_grad() nothing is kept for a backward"


def _specs(graph: GraphRecord) -> list[Any]:
    """What is known of the tensors that a graph makes."""
    steps = getattr(getattr(graph.report, "plan", None), "steps", ())
    promised = (spec for step in steps for spec in getattr(step, "specs", ()) if spec is not None)
    return [*(step.spec for step in steps if hasattr(step, "spec")), *promised]


def _float64(seen: Seen) -> Iterator[str]:
    for graph in seen.graphs:
        given = {item.spec.dtype for item in getattr(getattr(graph.report, "plan", None), "inputs", ()) if hasattr(item, "spec")}
        wide = [
            spec for spec in _specs(graph) if spec.dtype == "float64" and math.prod(n if isinstance(n, int) else 2 for n in spec.sizes) > 1
        ]
        if wide and "float32" in given and "float64" in given:
            yield (
                f"graph {graph.number}: {len(wide)} of {len(_specs(graph))} tensors are float64, of "
                "which an input is one, the others float32"
            )


def _small(seen: Seen) -> Iterator[str]:
    for graph in seen.graphs:
        count = getattr(graph.report, "launches", 0) + getattr(graph.report, "calls", 0)
        sizes = [math.prod(s.sizes) * getattr(torch, s.dtype).itemsize for s in _specs(graph) if all(isinstance(n, int) for n in s.sizes)]
        if count >= _MANY and sizes and max(sizes) < _SMALL:
            yield (
                f"graph {graph.number}: {count} steps, none of more than {max(sizes)} bytes: "
                "their number costs, not their work; larger batches are nearly free"
            )


def _uncompiled(seen: Seen) -> Iterator[str]:
    fallen = [graph for graph in seen.graphs if graph.fallback]
    if fallen:
        yield f"{len(fallen)} of {len(seen.graphs)} graphs run uncompiled, the first: {fallen[0].fallback.splitlines()[0]}"


def _plans(seen: Seen) -> Iterator[tuple[GraphRecord, Any]]:
    """Graphs that were compiled, with the plans of their forward and backward."""
    for graph in seen.graphs:
        yield from ((graph, plan) for plan in getattr(graph.report, "plans", ()))


def _bytes(specs: Iterable[Any]) -> float:
    return sum(getattr(torch, s.dtype).itemsize * math.prod(n for n in s.sizes if isinstance(n, int)) for s in specs)


def _devices(seen: Seen) -> Iterator[str]:
    for graph, plan in _plans(seen):
        given = [item.spec for item in plan.inputs if hasattr(item, "spec")]
        lying = [
            spec for spec in given if traits_of(spec.device).host and math.prod(n if isinstance(n, int) else 2 for n in spec.sizes) > 1
        ]
        if lying and not traits_of(plan.device).host:
            told = ", ".join(f"{spec.dtype}{list(spec.sizes)}" for spec in lying[:_OFTEN])
            yield (
                f"graph {graph.number}: {len(lying)} of {len(given)} inputs ({told}; {_bytes(lying):.0f} bytes) lie on the processor and "
                f"the others on {plan.device}: each call waits for their copies; make them there, with "
                f'device="{plan.device}", or move them once'
            )
    there = torch.get_device_module().device_count() if torch.accelerator.is_available() else 0
    work = [spec for graph in seen.graphs for spec in _specs(graph)]
    if there and work and all(traits_of(spec.device).host for spec in work) and _bytes(work) > _MUCH:
        kind = torch.accelerator.current_accelerator()
        yield f"{_bytes(work) / 2**20:.0f} MiB of results are made on the processor while {there} {kind} devices are idle: .to('{kind}')"


def _specs_by_slot(plan: Any) -> dict[int, Any]:
    """What is known of the tensors of a plan, by slot; sizes of views are their own."""
    found = {item.slot: item.spec for item in (*plan.inputs, *plan.constants) if hasattr(item, "spec")}
    for step in plan.steps:
        if hasattr(step, "spec"):
            found[step.slot] = step.spec
        elif hasattr(step, "base") and step.base in found:
            found[step.slot] = structs.replace(found[step.base], sizes=step.sizes, strides=step.strides)
        elif hasattr(step, "results"):
            pairs = zip(step.results, step.specs, strict=False)
            found |= {slot: spec for slot, spec in pairs if slot is not None and spec is not None}
    return found


def _unaligned(seen: Seen) -> Iterator[str]:
    """Products of half precision on devices that multiply in blocks."""
    for graph, plan in _plans(seen):
        specs = _specs_by_slot(plan) if not traits_of(plan.device).host else {}
        found: dict[int, int] = {}
        for step in plan.steps if specs else ():
            if _name(step) in _PRODUCTS:
                given = [specs[arg.index] for arg in step.args if getattr(arg, "index", None) in specs]
                halves = (n for spec in given if getattr(torch, spec.dtype).itemsize == 2 for n in spec.sizes[-2:])
                for size in {n for n in halves if isinstance(n, int) and n > _BLOCK and n % _BLOCK}:
                    found[size] = found.get(size, 0) + 1
        for size, times in found.items():
            yield (
                f"graph {graph.number}: {times} products of half precision have a dimension of {size}, which {_BLOCK} does not divide: "
                f"{-(-size // _BLOCK) * _BLOCK} (padded with {-size % _BLOCK}) is done in whole blocks"
            )


def _name(step: Any) -> str:
    """The operator that a step calls, without its overload; empty where it calls none."""
    return getattr(step, "op", "").removeprefix("aten::").partition(".")[0]


def _torchs_own(seen: Seen) -> Iterator[str]:
    for graph, plan in _plans(seen):
        names = [_name(step) for step in plan.steps if hasattr(step, "op")]
        whole = len(names) + sum(hasattr(step, "kernel") for step in plan.steps)
        own = [name for name in names if "::" in name]
        others = [name for name in names if name not in _LIBRARY and "::" not in name and not name.startswith(_BEST_ALONE)]
        if own:
            yield (
                f"graph {graph.number}: {len(own)} of {whole} steps are operators of a library ({_counted(own)}): no kernel reaches across "
                "one; where it is a few of torch's operators, write it of these"
            )
        if len(others) >= _OFTEN and 4 * len(others) >= whole:
            yield (
                f"graph {graph.number}: {len(others)} of {whole} steps are torch's own {_counted(others)}: no kernel reaches across one; "
                "opmill.profile tells what they take, and opmill doctor --operators which others become loops"
            )


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in Counter(names).most_common(_OFTEN))


def _cache(seen: Seen) -> Iterator[str]:
    kind = network_filesystem(seen.cache) if seen.cache else ""
    phases = [getattr(graph.report, "phases", None) or {} for graph in seen.graphs]
    took = sum(each.get("load", 0.0) + each.get("store", 0.0) for each in phases)
    if kind:
        yield (
            f"the cache {seen.cache} lies on a file system of other machines ({kind}), which took {took:.2f} s: OPMILL_CACHE_DIR names a "
            "local one, OPMILL_CACHE_URL one that machines share"
        )


_MUCH = 64 << 20
_BLOCK = 8
"""Elements of two bytes in the sixteen that tensor cores load at a time."""
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_LIBRARY = _PRODUCTS | {"mv", "addmv", "dot", "vdot", "convolution", "convolution_backward", "empty", "empty_strided", "sort", "topk"}
"""Operators that libraries do best, and such that cost nothing."""
_BEST_ALONE = ("_scaled_", "_flash_attention", "_efficient_attention", "mkldnn", "_fft", "rand", "bernoulli", "normal")
"""How the names of others begin."""

RULES: tuple[Callable[[Seen], Iterator[str]], ...] = (
    _uncompiled, _breaks, _sizes, _training, _devices, _float64, _unaligned, _small, _torchs_own, _cache
)  # fmt: skip

__all__ = ["RULES", "Seen", "advice_on"]
