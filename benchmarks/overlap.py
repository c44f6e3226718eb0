"""How much of what processes send one another is hidden behind computing: a step of a model like Llama 7B, simulated on a group of
processes that is not there.

    python benchmarks/overlap.py [--ranks 8 64 512] [--layers 4] [--tokens 8192] [--torch] [--json FILE]

The program is what FSDP2, and FSDP2 with tensor and sequence parallelism, do to the blocks of the model, written with functional
collectives: weights are gathered where they are used, again in the backward (a checkpoint with a policy), and gradients are scattered. It
is captured and scheduled as for training; steps take what ``opmill_graph_ir.exchanges.costs`` says of them on hosts of 8 H100, joined by
400 Gbit/s for each GPU.

A row has milliseconds of computing, of exchanges, and of these the exposed: in the order as torch.compile leaves it (each exchange is
waited for where it starts; ``--torch`` looks at its graphs), and in opmill's. Then the highest point of memory that the plans use, were
exchanges waited for at once and in opmill's order, seconds for compiling and bytes of the plans, which shall not depend on the number of
ranks. It fails where opmill exposes more than torch.compile, or compiling grows."""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WIDTH, HIDDEN, HEADS, LENGTH = 4096, 11264, 32, 4096
ON_HOST = 8
GROWTH = 1.3
"""Compile times that differ by less are the same."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=8192, help="of one process")
    parser.add_argument("--torch", action="store_true", help="look at torch.compile's graphs: what runs between an exchange and its wait")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("RANKS", "TENSOR_PARALLEL"), type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args.layers, args.tokens, args.torch)))
        return 0
    rows = [row for ranks in args.ranks for parallel in (1, min(8, ranks // 4)) for row in [_apart(ranks, parallel, args)]]
    _print(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0 if _holds(rows) else 1


def _apart(ranks: int, parallel: int, args: argparse.Namespace) -> dict[str, Any]:
    """The row, of a process of its own: nothing of an earlier one is warm."""
    command = [sys.executable, __file__, "--one", str(ranks), str(parallel), "--layers", str(args.layers), "--tokens", str(args.tokens)]
    command += ["--torch"] if args.torch else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


class Enough(Exception):
    """What was asked for is there; nothing shall run."""


# ---- one row ---------------------------------------------------------------------------------------------------------------


def measure(ranks: int, parallel: int, layers: int, tokens: int, with_torch: bool) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from opmill_graph_ir.exchanges.costs import Machine

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks // parallel, parallel), mesh_dim_names=("data", "tensor"))
    model = _model(layers, mesh["data"].get_group(), mesh["tensor"].get_group())
    rows = max(1, tokens * parallel // LENGTH)
    x = torch.empty(rows, LENGTH // parallel, WIDTH, dtype=torch.bfloat16, requires_grad=True)

    def group(name: str) -> tuple[int, bool]:
        found = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name))
        return len(found), len({rank // ON_HOST for rank in found}) == 1

    machine = Machine(groups=group)
    row = {"ranks": ranks, "parallel": parallel, **_simulated(model, x, machine)}
    if with_torch:
        row["torch: beside"] = _of_torch(model, x)
    return row


def _simulated(model: Any, x: Any, machine: Any) -> dict[str, Any]:
    from opmill_graph_ir.capture.joint import capture_joint
    from opmill_graph_ir.capture.partition import partition
    from opmill_graph_ir.compiling import scheduled
    from opmill_graph_ir.exchanges.order import overlapped
    from opmill_graph_ir.exchanges.simulate import simulate
    from opmill_runtime_cache.plan.codec import encode

    begin = time.perf_counter()
    module, inputs = _captured(model, x)
    captured = time.perf_counter() - begin
    graphs = partition(capture_joint(module, inputs)).graphs
    schedules = [scheduled(graph)[1] for graph in graphs]
    ordered = [overlapped(s) for s in schedules]
    seconds = time.perf_counter() - begin
    plans = [_plan(schedule) for schedule in ordered]
    given = [simulate(s, machine, blocking=True) for s in schedules]
    row: dict[str, Any] = {
        "computing": sum(t.computing for t in given),
        "exchanging": sum(t.exchanging for t in given),
        "torch": sum(t.exposed for t in given),
        "capture_seconds": captured,
        "seconds": seconds,
        "bytes": sum(len(encode(plan)) for plan in plans),
        "steps": sum(len(s.steps) for s in schedules),
        "opmill": sum(simulate(s, machine).exposed for s in ordered),
        "memory": {"given": _highest(schedules, False), "opmill": _highest(ordered, True)},
    }
    return row


def _highest(schedules: Any, waited: bool) -> int:
    from opmill_graph_ir.exchanges.dependences import dependences
    from opmill_graph_ir.exchanges.order import held

    return max(held(schedule, dependences(schedule), waited=waited).top for schedule in schedules)


def _plan(schedule: Any) -> Any:
    """The plan, of kernels that nobody built."""
    from opmill_graph_ir.planning.build import build_plan
    from opmill_graph_ir.schedule.memory import plan_memory
    from opmill_runtime_cache.plan.model import KernelRef

    refs = {wanted: KernelRef("none", "none", "0" * 64, wanted[0].name) for wanted in schedule.wanted()}
    return build_plan("step", schedule, plan_memory(schedule), refs)


def _captured(model: Any, x: Any) -> tuple[Any, Any]:
    import opmill

    found: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        found.append((module, list(inputs)))
        raise Enough

    try:
        opmill.compile(model, backend=backend, fullgraph=True)(x)
    except Enough:
        pass
    return found[0]  # type: ignore[no-any-return]


def _of_torch(model: Any, x: Any) -> list[int]:
    """For each exchange in torch.compile's graphs how many operators run between it and its wait, as they are when its code generator gets
    them."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.virtualized import V

    found: list[int] = []

    def compiler(inference: bool, module: Any, inputs: Any) -> Any:
        with V.set_fake_mode(torch._guards.detect_fake_mode(inputs)):
            post_grad_passes(module, inference)
        nodes = [n for n in module.graph.nodes if n.op == "call_function"]
        for place, node in enumerate(nodes):
            if "_c10d_functional" in str(node.target) and "wait" not in str(node.target):
                [wait] = [k for k, n in enumerate(nodes) if n.args[:1] == (node,) and "wait_tensor" in str(n.target)]
                found.append(sum("_c10d" not in str(n.target) for n in nodes[place + 1 : wait]))
        return enough  # what it would give is of no interest, and takes long

    def enough(*args: Any) -> Any:
        raise Enough

    backend = aot_autograd(fw_compiler=functools.partial(compiler, False), bw_compiler=functools.partial(compiler, False))
    try:
        torch.compile(model, backend=backend, fullgraph=True)(x)
    except Enough:
        pass
    return found


def _model(layers: int, data: Any, tensor: Any) -> Any:
    """Blocks of which each process has a part of the weights, divided by the groups ``data`` and ``tensor``."""
    import torch
    import torch.distributed._functional_collectives as functional
    import torch.nn.functional as F
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    parts = tensor.size()

    def weight(rows: int, columns: int | None = None) -> Any:
        size = (rows // data.size(),) if columns is None else (rows // data.size(), columns)
        return torch.nn.Parameter(torch.empty(size, dtype=torch.bfloat16))

    def gathered(w: Any) -> Any:
        return functional.all_gather_tensor_autograd(w, 0, data) if data.size() > 1 else w

    def whole(x: Any) -> Any:
        return functional.all_gather_tensor_autograd(x, 1, tensor) if parts > 1 else x

    def summed(x: Any) -> Any:
        return functional.reduce_scatter_tensor_autograd(x, "sum", 1, tensor) if parts > 1 else x

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = weight(WIDTH), weight(WIDTH)
            self.q, self.k, self.v = (weight(WIDTH // parts, WIDTH) for _ in range(3))
            self.out = weight(WIDTH, WIDTH // parts)
            self.gate, self.up = (weight(HIDDEN // parts, WIDTH) for _ in range(2))
            self.down = weight(WIDTH, HIDDEN // parts)

        def forward(self, x: Any) -> Any:
            h = whole(F.rms_norm(x, (WIDTH,), gathered(self.first)))
            rows, length, _ = h.shape
            q, k, v = (F.linear(h, gathered(w)).view(rows, length, HEADS // parts, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, -1)
            x = x + summed(F.linear(mixed, gathered(self.out)))
            h = whole(F.rms_norm(x, (WIDTH,), gathered(self.second)))
            return x + summed(F.linear(F.silu(F.linear(h, gathered(self.gate))) * F.linear(h, gathered(self.up)), gathered(self.down)))

    again = (torch.ops._c10d_functional.all_gather_into_tensor.default, torch.ops._c10d_functional.wait_tensor.default)

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_RECOMPUTE if op in again else CheckpointPolicy.PREFER_SAVE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(Block() for _ in range(layers))

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            return x

    return Model()


# ---- the table -------------------------------------------------------------------------------------------------------------


def _print(rows: list[dict[str, Any]]) -> None:
    print(
        "| ranks | parallel | computing | exchanges | exposed: torch.compile | opmill | memory, at once / opmill MiB | compile s | plans "
        "KiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        times = " | ".join(f"{1e3 * row[name]:.1f}" for name in ("computing", "exchanging", "torch"))
        ours = f"{1e3 * row['opmill']:.1f} ({row['opmill'] / row['torch']:.2f}x)"
        memory = " / ".join(str(row["memory"][name] >> 20) for name in ("given", "opmill"))
        how = "FSDP2" if row["parallel"] == 1 else f"FSDP2 + TP {row['parallel']}"
        print(f"| {row['ranks']} | {how} | {times} | {ours} | {memory} | {row['seconds']:.2f} | {row['bytes'] / 1024:.0f} |")
        if "torch: beside" in row:
            found = row["torch: beside"]
            print(f"  torch.compile: {len(found)} exchanges, {sum(found)} operators between them and their waits")


def _holds(rows: list[dict[str, Any]]) -> bool:
    good = all(row["opmill"] <= row["torch"] * 1.001 for row in rows)
    for kind in (False, True):
        alike = [row for row in rows if (row["parallel"] > 1) == kind]
        first = alike[0]
        good &= all(row["bytes"] < GROWTH * first["bytes"] and row["seconds"] < GROWTH * first["seconds"] + 0.5 for row in alike)
    return good


if __name__ == "__main__":
    sys.exit(main())
