"""What can be seen of a program on a GPU: doctor, explain, profile and check of a small transformer's forward and training step, torch.profiler
with the program's labels, bisect of what is slow. Each part is told with what has to hold of it, and the time that it took.

usage: gpu_seen.py [PART...] [--output FOLDER]

Where opmill is not installed it runs from the sources (from_sources.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import from_sources

HERE = Path(__file__).resolve()
WIDTH, HEADS, WORDS, BATCH, LAYERS = 512, 8, 256, 8, 4


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("attention"):
            q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        with torch.profiler.record_function("feed forward"):
            return x + self.down(F.gelu(self.up(self.second(x))))


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(x))


def products() -> float:
    """Operations of the products of a forward."""
    linear = 2 * BATCH * WORDS * WIDTH * WIDTH * (3 + 1 + 4 + 4)
    return LAYERS * (linear + 2 * 2 * BATCH * WORDS * WORDS * WIDTH)


def told(profile: Any, model: str, times: float) -> dict[str, bool]:
    """What has to hold of a profile."""
    inner = profile.by_module()
    names = [".".join(filter(None, (model, f"blocks.{k}"))) for k in range(LAYERS)]
    counted = sum(step.flops for step in profile.steps)
    return {
        "steps take no longer than calls": profile.seconds <= 1.2 * profile.compiled,
        "the products' operations": abs(counted / (times * products()) - 1) < 0.15,
        "each block has time in both": all(n in inner and inner[n].seconds > 0 and inner[n].eager > 0 for n in names),
        "blocks are alike": max(inner[n].seconds for n in names) < 1.5 * min(inner[n].seconds for n in names),
        "none beyond the limit": all(step.share < 1.3 for step in profile.steps if step.seconds > 20e-6),
        "lines": all(step.lines or step.origin.startswith("write") for step in profile.steps),
    }


def doctor(folder: Path) -> dict[str, bool]:
    done = subprocess.run([sys.executable, "-m", "opmill", "doctor"], capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr[-2000:])
    return {
        "ready on both": "ready on cpu, cuda" in done.stdout.replace("\n", " ") or done.stdout.count("ready") >= 2,
        "status 0": done.returncode == 0,
    }


def forward(folder: Path) -> dict[str, bool]:
    import opmill

    model, x = Small().cuda().half().eval(), torch.randn(BATCH, WORDS, WIDTH, device="cuda", dtype=torch.half)
    with torch.no_grad():
        compiled = opmill.compile(model)
        explained = opmill.explain(compiled, speed=True)(x)
        print(explained, *map(repr, explained.kernels[:2]), str(explained.source)[:700], sep="\n")
        profile = opmill.profile(model)(x)
        print(profile)
        checked = opmill.check(model)(x)
        print(checked)
    return {**told(profile, "", 1), "one graph": len(explained.graphs) == 1, "right": bool(checked)}


def training(folder: Path) -> dict[str, bool]:
    import opmill

    model, x = Small().cuda(), torch.randn(BATCH, WORDS, WIDTH, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = opmill.compile(model)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    profile = opmill.profile(step, calls=5)(x)
    print(profile)
    return told(profile, "compiled", 3)


def labels(folder: Path) -> dict[str, bool]:
    from torch.profiler import ProfilerActivity, profile

    import opmill

    seen: dict[str, bool] = {}
    for mode in ("default", "reduce-overhead"):
        model = Small().cuda().half().eval()
        x = torch.randn(BATCH, WORDS, WIDTH, device="cuda", dtype=torch.half)
        compiled = opmill.compile(model, mode=mode)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
                for _ in range(2):
                    compiled(x)
                torch.cuda.synchronize()
        trace = folder / f"{mode}.json"
        found.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        kernels = [e for e in events if e.get("cat") == "kernel"]
        names = [e["name"] for e in events if e.get("cat") in ("user_annotation", "cpu_op", "gpu_user_annotation")]
        print(sorted({name for name in names if name.startswith("opmill::forward")}))
        print(f"{mode}: {len(kernels)} kernels, first {[e['name'][:60] for e in kernels[:6]]}")
        print(found.key_averages().table(sort_by="self_device_time_total", row_limit=14, max_name_column_width=60)[:4500])
        shown = {"region": any(n.startswith("opmill::forward") for n in names), "kernels": bool(kernels)}
        if mode == "default":
            shown["labels"] = {"attention", "feed forward"} <= set(names)
            shown["kernels by operators and lines"] = any(n.startswith("opmill::") and "gpu_seen.py:" in n for n in names)
        seen |= {f"{mode}: {what}": holds for what, holds in shown.items()}
        trace.unlink()
    return seen


def slow(folder: Path) -> dict[str, bool]:
    """A program whose inputs lie on the processor: advice; and a report of what was compiled."""
    import opmill

    def f(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * scale[:, None]).softmax(-1)

    explained = opmill.explain(opmill.compile(f))(torch.randn(512, 512, device="cuda"), torch.randn(512, device="cuda"))
    halves = torch.randn(301, 301, device="cuda", dtype=torch.half)
    unaligned = opmill.explain(opmill.compile(lambda a: a @ a))(halves)
    processor = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU())
    with torch.no_grad():
        idle = opmill.explain(opmill.compile(processor))(torch.randn(8192, 4096))
    print(explained, *unaligned.advice, *idle.advice, sep="\n")
    os.environ["OPMILL_TRACE"] = str(folder / "trace")
    opmill.profile(f)(torch.randn(512, 512, device="cuda"), torch.randn(512, device="cuda"))
    page = opmill.report(folder / "trace").read_text()
    del os.environ["OPMILL_TRACE"]
    found = opmill.bisect(f, of="race")(torch.randn(64, 64, device="cuda"), torch.randn(64, device="cuda"))
    print(found)
    return {
        "unaligned, or padded": any("301" in line for line in unaligned.advice) or "301" not in _products(unaligned),
        "on the processor": any("processor" in line for line in idle.advice),
        "a report with times": "coloured by measured time" in page,
        "no race": not found,
    }


def _products(explained: Any) -> str:
    """What the plan calls products with."""
    return "".join(line for line in str(explained.plan).splitlines() if "mm" in line and "call(" in line)


PARTS: dict[str, Callable[[Path], dict[str, bool]]] = {
    "doctor": doctor,
    "forward": forward,
    "training": training,
    "labels": labels,
    "slow": slow,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if importlib.util.find_spec("opmill") is None:
        with tempfile.TemporaryDirectory(prefix="seen-") as folder:
            environment = {**from_sources.environment(Path(folder)), "OPMILL_CACHE_DIR": f"{folder}/cache"}
            sys.exit(subprocess.run([sys.executable, "-W", "ignore", str(HERE), *sys.argv[1:]], env=environment).returncode)
    failed = []
    for name in options.parts or PARTS:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            seen = PARTS[name](options.output)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            seen = {"it runs": False}
        for what, holds in seen.items():
            print(f"{'holds' if holds else 'FAILS'}: {name}: {what}")
        failed += [f"{name}: {what}" for what, holds in seen.items() if not holds]
        print(f"== {name} took {time.monotonic() - start:.1f} s", flush=True)
    print("failed:", *failed, sep="\n  ") if failed else print("all of it holds")


if __name__ == "__main__":
    main()
