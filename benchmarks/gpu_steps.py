"""A training step on a GPU as people write it: mixed precision, fused AdamW; a line of JSON.

usage: gpu_steps.py gpt2|vit_l eager|torch|opmill[-MODE] [--once]

``gpt2``: 124 million parameters, 8 x 1024 tokens. ``vit_l``: ViT-L/16, 32 images. ``ms``: median of steps, the device waited for after each;
``kernels_ms``: how long the device works in a step (kernels that begin while those before them end count once), ``top`` by kernel
(microseconds, waiting included, and how often); ``losses``: of some steps, to compare.
``--once`` compiles, and says nothing.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_measure import compiled

STEPS = 3
"""That are profiled."""


def gpt2() -> tuple[torch.nn.Module, Any, Callable[..., torch.Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    ids = torch.randint(0, config.vocab_size, (8, 1024), device="cuda")
    return GPT2LMHeadModel(config), ids, lambda model, batch: model(input_ids=batch, labels=batch).loss


def vit_l() -> tuple[torch.nn.Module, Any, Callable[..., torch.Tensor]]:
    import timm

    batch = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (32,), device="cuda")
    model = timm.create_model("vit_large_patch16_224")
    return model, batch, lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def step_of(name: str, compiler: str) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model, batch, loss_of = {"gpt2": gpt2, "vit_l": vit_l}[name]()
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    function = compiled(compiler, model)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(function, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def profiled(step: Callable[[], object]) -> dict[str, Any]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    taken: collections.Counter[str] = collections.Counter()
    often: collections.Counter[str] = collections.Counter()
    events = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    for event in events:
        taken[event.name] += event.device_time
        often[event.name] += 1
    busy = last = 0.0
    for start, end in sorted((e.time_range.start, e.time_range.end) for e in events):
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    top = [(name, round(us / STEPS, 1), round(often[name] / STEPS, 1)) for name, us in taken.most_common(40)]
    return {"kernels_ms": round(busy / 1e3 / STEPS, 2), "kernels": sum(often.values()) // STEPS, "top": top}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("gpt2", "vit_l"))
    parser.add_argument("compiler")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    step = step_of(options.model, options.compiler)
    start = time.perf_counter()
    losses = [float(step())]
    first = time.perf_counter() - start
    if options.once:
        return
    losses += [float(step()) for _ in range(4)]
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    row = {"model": options.model, "compiler": options.compiler, "ms": round(statistics.median(times), 2), "first_s": round(first, 1)}
    row |= {"peak_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2), "losses": [round(x, 4) for x in losses]}
    print(json.dumps({**row, **profiled(step)}), flush=True)


if __name__ == "__main__":
    main()
