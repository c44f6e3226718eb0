"""Losses of training with quantised, rounded and checkpointed parts of a model, compiled against eager, in one process and sharded over two.

    python benchmarks/quantised_losses.py [--processes 2] [--steps 20] [--only NAME ...] [--json FILE]

torchao's training that is aware of quantisation, training in float8 (emulated where the processor has no such products) and int8, low-rank
updates of weights of four and eight bits, checkpoints that choose what they keep; alone, under FSDP2, and tensor parallel. A row has how far
compiled losses are from eager's, and how far those of eager are whose weights differ in the last place: rounding turns that into another
code now and then, and nothing is further from right than that. Then graphs and breaks of opmill and of torch.compile (its capture: what it
captures runs as torch's operators). The script fails where losses are further apart than ten times that, or opmill breaks more often."""

from __future__ import annotations

import argparse
import collections
import functools
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import processes
from distributed_losses import Model, Sizes, tensor_parallel

SIZES = Sizes(width=64, hidden=128, layers=2)
LIMIT = 1200  # seconds for all processes together
FLOOR = 1e-5
SAVED = (torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)
Prepare = Callable[[Model], Model]


def of_blocks(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear) and "blocks" in name


# ---- what is made of the model ---------------------------------------------------------------------------------------------


def qat(**what: Any) -> Prepare:
    def prepare(model: Model) -> Model:
        from torchao.quantization import quantize_
        from torchao.quantization.qat import QATConfig

        quantize_(model, QATConfig(step="prepare", **{name: make() for name, make in what.items()}), of_blocks)
        return model

    return prepare


def integers(**options: Any) -> Any:
    from torchao.quantization.qat import IntxFakeQuantizeConfig

    return IntxFakeQuantizeConfig(torch.int4, group_size=32, **options)


def dynamic() -> Any:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup

    return Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))


def rounded() -> Any:
    from torchao.quantization.qat import Float8FakeQuantizeConfig

    return Float8FakeQuantizeConfig()


def float8(recipe: str = "", **options: Any) -> Prepare:
    def prepare(model: Model) -> Model:
        import dataclasses

        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name(recipe) if recipe else Float8LinearConfig(**options)
        return convert_to_float8_training(model, config=dataclasses.replace(config, emulate=True), module_filter_fn=of_blocks)  # type: ignore[no-any-return]

    return prepare


def trained(name: str) -> Prepare:
    def prepare(model: Model) -> Model:
        from torchao.prototype import quantized_training
        from torchao.quantization import quantize_

        quantize_(model, getattr(quantized_training, name)(), of_blocks)
        return model

    return prepare


class LowRank(nn.Module):
    """A weight that stays, and a product of two small ones that are trained."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))  # type: ignore[no-any-return]


class FourBits(LowRank):
    def __init__(self, base: nn.Linear) -> None:
        from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import linear_nf4, to_nf4

        super().__init__(base)
        base.weight = nn.Parameter(to_nf4(base.weight.detach(), 64, 8), requires_grad=False)
        self.product = linear_nf4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x, self.base.weight) + self.up(self.down(x))


def low_rank(bits: int) -> Prepare:
    def prepare(model: Model) -> Model:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        if bits == 8:
            quantize_(model, Int8WeightOnlyConfig(), of_blocks)
        for name, module in list(model.named_modules()):
            if of_blocks(module, name):
                owner, _, last = name.rpartition(".")
                setattr(model.get_submodule(owner), last, (LowRank if bits == 8 else FourBits)(module))
        return model

    return prepare


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, contexts: Any) -> None:
        super().__init__()
        self.inner, self.contexts = inner, contexts

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False, context_fn=self.contexts)


def always(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in SAVED else CheckpointPolicy.PREFER_RECOMPUTE


def every_other() -> Any:
    """Every other product is kept: policies may count."""
    counts: collections.Counter[bool] = collections.Counter()

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        counts[context.is_recompute] += op is SAVED[0]
        kept = op is SAVED[0] and counts[context.is_recompute] % 2
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpointed(contexts: Any) -> Prepare:
    def prepare(model: Model) -> Model:
        for position, block in enumerate(model.blocks):
            model.blocks[position] = Checkpointed(block, contexts)
        return model

    return prepare


PREPARED: dict[str, Prepare] = {
    "qat, weights of 4 bits": qat(weight_config=integers),
    "qat, 8 bits by 4": qat(base_config=dynamic),
    "qat, float8": qat(weight_config=rounded, activation_config=rounded),
    "float8": float8(),
    "float8, by rows": float8("rowwise"),
    "float8, gathered": float8(enable_fsdp_float8_all_gather=True),
    "int8 products": trained("int8_mixed_precision_training"),
    "bitnet": trained("bitnet_training"),
    "low rank on 8 bits": low_rank(8),
    "low rank on 4 bits": low_rank(4),
    "checkpoints": checkpointed(functools.partial(create_selective_checkpoint_contexts, always)),
    "checkpoints that count": checkpointed(every_other),
}
PARALLEL = ("float8", "float8, by rows", "int8 products")
"""What torchao lets be tensor parallel."""
REFUSED = {"fsdp2": ("low rank on 8 bits",), "tensor parallel": tuple(name for name in PREPARED if name not in PARALLEL)}
"""What eager does not run."""


# ---- how it is spread ------------------------------------------------------------------------------------------------------


def spread(how: str, model: Any, compiled: Callable[[Any], Any]) -> Any:
    if how == "one process":
        return compiled(model)
    if how == "tensor parallel":
        tensor_parallel(model, init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",)), False)
        return compiled(model)
    for position, block in enumerate(model.blocks):
        model.blocks[position] = block = compiled(block)
        fully_shard(block)
    fully_shard(model)
    return model


def losses(name: str, how: str, compiled: Callable[[Any], Any], steps: int, moved: bool = False) -> list[float]:
    torch.manual_seed(0)
    model = Model(SIZES)
    if moved:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + (torch.randint_like(p, 3) - 1) * 2.0**-23)
        torch.manual_seed(0)
        Model(SIZES)  # which draws as many numbers
    call = spread(how, PREPARED[name](model), compiled)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, foreach=False)
    torch.manual_seed(1 + (dist.get_rank() if how == "fsdp2" else 0))
    tokens, found = torch.randint(0, SIZES.words, (8, 4, 17)), []
    for step in range(steps):
        batch = tokens[step % len(tokens)]
        loss = F.cross_entropy(call(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


def row(name: str, how: str, steps: int) -> dict[str, Any]:
    import opmill
    from opmill.compile import record_of

    made: list[Any] = []

    def compiled(module: Any) -> Any:
        made.append(opmill.compile(module))
        return made[-1]

    eager = losses(name, how, lambda module: module, steps)
    moved, ours = losses(name, how, lambda module: module, steps, True), losses(name, how, compiled, steps)
    records = list({id(r): r for _, r in map(record_of, made)}.values())
    found = {
        "configuration": name,
        "spread": how,
        "last loss": ours[-1],
        "opmill from eager": max(abs(a - b) for a, b in zip(ours, eager, strict=True)),
        "eager, last place": max(abs(a - b) for a, b in zip(moved, eager, strict=True)),
        "graphs": sum(len(r.graphs) for r in records),
        "breaks": sum(len(r.breaks) for r in records),
        "reasons": sorted({str(b)[:600] for r in records for b in r.breaks}),
        "fallbacks": [g.fallback for r in records for g in r.graphs if g.fallback],
    }
    opmill.reset()
    return found | dict(zip(("torch: graphs", "breaks of torch"), of_torch(name, how), strict=True))


def of_torch(name: str, how: str) -> tuple[int, int]:
    """Graphs and breaks of torch.compile."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    losses(name, how, lambda module: torch.compile(module, backend="aot_eager"), 2)
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def work(how: str, steps: int, names: list[str]) -> Iterator[dict[str, Any]]:
    warnings.simplefilter("ignore")
    for name in names:
        if name not in REFUSED.get(how, ()):
            yield row(name, how, steps)


def is_right(found: dict[str, Any]) -> bool:
    alike = found["opmill from eager"] <= 10 * found["eager, last place"] + FLOOR
    return bool(alike and not found["fallbacks"] and found["breaks"] <= found["breaks of torch"])


def together(how: str, size: int, steps: int, names: list[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        said = processes.together(Path(__file__), Path(folder), how, str(steps), *names, size=size, limit=LIMIT)
    return [json.loads(line) for line in said[0].splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="of training")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--spread", nargs="*", default=["one process", "fsdp2", "tensor parallel"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [n for n in PREPARED if not options.only or n in options.only]
    rows = [
        found for how in options.spread for found in together(how, 1 if how == "one process" else options.processes, options.steps, names)
    ]
    columns = [key for key in rows[0] if key not in ("fallbacks", "reasons")]
    print(processes.table_head(columns))
    for found in rows:
        print(processes.table_line([found[c] for c in columns], ".2e"))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    wrong = [(found["configuration"], found["spread"]) for found in rows if not is_right(found)]
    raise SystemExit(f"other losses or more breaks: {wrong}" if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        rank, size, store, how, steps, *chosen = sys.argv[1:]
        dist.init_process_group("gloo", store=dist.FileStore(store, int(size)), rank=int(rank), world_size=int(size))
        for found in work(how, int(steps), chosen):
            print(json.dumps(found), flush=True)
        dist.destroy_process_group()
    else:
        main()
