"""Random networks through the whole compiler, against eager and float64: results, gradients of inputs and weights, statistics of norms.

``python benchmarks/fuzz_networks.py [--seed 0] [--count 200] [--batch 10] [--only SEED]``

Kernels of a batch of networks are built together. A disagreement is printed with the network's source and its seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from fuzz_graphs import Verdict, failed, fuzz, meant_strides, prepare
from fuzz_training import weighted
from opmill_graph_ir.backend import CompiledGraph, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.schedule.steps import schedule
from opmill_runtime_cache.store import Store
from random_networks import Network, random_network

Found = dict[str, torch.Tensor]
NUDGES = 4
"""Runs on inputs that are moved by a rounding: where they tell much, kinks and poles are near, and rounding decides."""


def inputs_of(network: Network, dtype: torch.dtype = torch.float32, nudge: int = 0) -> list[torch.Tensor]:
    """Copies of the inputs that keep their layout."""
    made = []
    for x in network.inputs:
        new = (
            torch.empty_strided(x.shape, x.stride(), dtype=dtype).copy_(x)
            if x._base is None
            else x._base.to(dtype).clone().as_strided(x.shape, x.stride(), x.storage_offset())
        )
        if nudge:
            new = new * (1 + 1e-7 * torch.randn(x.shape, generator=torch.Generator().manual_seed(nudge), dtype=torch.float64)).to(dtype)
        made.append(new.requires_grad_(network.grad))
    return made


def modes(network: Network, dtype: torch.dtype = torch.float32) -> ExitStack:
    """The modes that a network runs in; the reference in float64 runs in no mixed precision."""
    stack = ExitStack()
    stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
    torch.backends.mha.set_fastpath_enabled(False)  # eager's other way through a transformer's layer, which lays results out otherwise
    if not network.grad:
        stack.enter_context(torch.no_grad())
    if network.autocast and dtype is torch.float32:
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
    return stack


def run(network: Network, call: Any, module: nn.Module, inputs: list[torch.Tensor]) -> Found:
    """What a call gives: results, gradients of a sum that weighs each element otherwise, buffers afterwards."""
    torch.manual_seed(1)
    with modes(network, inputs[0].dtype):
        results = call(*inputs)
    found = {f"output {k}": r.detach() for k, r in enumerate(results)}
    if any(r.requires_grad for r in results):
        weighted(results).backward()
        leaves = [*((f"input {k}", x) for k, x in enumerate(inputs)), *module.named_parameters()]
        found |= {f"gradient of {name}": x.grad for name, x in leaves if x.grad is not None}
    return found | {f"buffer {name}": b for name, b in module.named_buffers()}


def kernels_of(network: Network) -> list[LoopKernel]:
    """The kernels of all plans; none where the network is refused."""
    try:
        traced, inputs = torch.fx.symbolic_trace(network.module()), inputs_of(network)
        with modes(network):
            graphs = partition(capture_joint(traced, inputs)).graphs if network.grad else [functionalize(traced, inputs)]
        return [k for graph in graphs for k in schedule(lower(graph)).kernels()]
    except Exception:
        return []


def check(network: Network, store: Store) -> Verdict:
    """Compiles a network and compares two runs of it with eager's."""
    plain, wide = network.module(), network.module(torch.float64)
    try:
        want = run(network, plain, plain, inputs_of(network))
        exact = run(network, wide, wide, inputs_of(network, torch.float64))
    except RuntimeError as error:
        return Verdict(network, "skipped", str(error).splitlines()[0][:90])
    for again in range(2):
        module = network.module()
        try:
            with modes(network):
                compiled = compile_graph(
                    torch.fx.symbolic_trace(module), inputs_of(network), options=GraphOptions(verify=True, cache=bool(again)), store=store
                )
            got = run(network, compiled, module, inputs_of(network))
        except Exception as error:
            return failed(network, error)
        if problem := _problem(network, got, want, exact):
            return Verdict(network, "wrong", problem)
    return Verdict(network, "operators" if isinstance(compiled, CompiledGraph) and compiled.report.operators_only else "right")


def _problem(network: Network, got: Found, want: Found, exact: Found) -> str:
    if got.keys() != want.keys():
        return f"{sorted(got.keys() ^ want.keys())} come only once"
    nudged: list[Found] = []
    for name, w in want.items():
        g, e = got[name], exact[name]
        if (g.dtype, g.shape) != (w.dtype, w.shape) or (name.startswith("output") and meant_strides(g) != meant_strides(w)):
            return f"{name}: {g.dtype}{list(g.shape)} {g.stride()} instead of {w.dtype}{list(w.shape)} {w.stride()}"
        if not w.is_floating_point():
            if not torch.equal(g, w):
                return f"{name}: {g} instead of {w}"
            continue
        scale = float(e.abs().max()) if e.numel() else 0.0
        slack, off = 2e-5 * (scale + 0.01) + 5 * distance(w, e), distance(g, e)
        if off > slack:
            nudged = nudged or _nudged(network)
            slack += 5 * max(distance(n[name], e) for n in nudged)
        if not off <= slack and not (name.startswith("gradient") and _is_eagers_fault(network, name, g, e)):
            return f"{name}: off by {off:.2g} of {scale:.2g}, allowed {slack:.2g}"
    return ""


def _is_eagers_fault(network: Network, name: str, got: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether numbers agree with a gradient, and do not with eager's. (torch reads gradients of batch norms of one image that lie channels
    last as if they did not.)"""
    name, step = name.removeprefix("gradient of "), 1e-6
    direction = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def moved(by: float) -> torch.Tensor:
        module, inputs = network.module(torch.float64), inputs_of(network, torch.float64)
        leaves = {f"input {k}": x for k, x in enumerate(inputs)} | dict(module.named_parameters())
        with torch.no_grad():
            leaves[name] += by * direction
        return weighted(module(*inputs)).detach()

    slope = float(moved(step) - moved(-step)) / (2 * step)
    mine, theirs = (abs(float((t.double() * direction).sum()) - slope) for t in (got, eager))
    return mine <= 1e-4 * abs(slope) + 1e-4 and theirs > 10 * mine


def _nudged(network: Network) -> list[Found]:
    modules = [network.module() for _ in range(NUDGES)]
    return [run(network, module, module, inputs_of(network, nudge=k + 1)) for k, module in enumerate(modules)]


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def verdicts(seeds: Sequence[int], store: Store, batch: int = 10) -> Iterator[Verdict]:
    """Checks the networks of ``seeds``."""
    for start in range(0, len(seeds), batch):
        networks = [random_network(s) for s in seeds[start : start + batch]]
        prepare((k for n in networks for k in kernels_of(n)), store)
        for network in networks:
            yield check(network, store)


def main() -> int:
    return fuzz(__doc__, verdicts, 10, lambda network: network.inputs)


if __name__ == "__main__":
    raise SystemExit(main())
