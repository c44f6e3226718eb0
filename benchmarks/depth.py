"""Compile time by phase at two depths of the same transformer: it should grow with what is distinct, not with depth.

usage: depth.py [FAMILY...] [--layers N M] [--rounds R] [--json FILE]
FAMILY: bert, gpt2, llama (all by default). Each depth is compiled ``--rounds`` times in a process of its own, each time with an empty
cache, so that the C++ compiler runs; shown is the fastest of each phase in milliseconds. ``backend`` is the sum of graph-ir's phases
(capture, lowering, schedule, code generation, build, plan, bind), ``frontend`` what else a first call costs over a later one: bytecode,
guards, and starting.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import zoo

_BERT = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
FAMILIES = {
    "bert": lambda n: zoo.text_model("BertModel", "BertConfig", **_BERT, num_hidden_layers=n),
    "gpt2": lambda n: zoo.text_model("GPT2LMHeadModel", "GPT2Config", n_embd=256, n_head=4, vocab_size=1000, n_layer=n),
    "llama": lambda n: zoo.text_model(
        "LlamaForCausalLM",
        "LlamaConfig",
        hidden_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=688,
        vocab_size=1000,
        num_hidden_layers=n,
    ),
}


def measure(family: str, layers: int, rounds: int) -> dict[str, float]:
    """Fastest milliseconds of each phase, in this process. The first round, which imports the compiler, does not count."""
    import opmill
    from measure import phases

    model, args, kwargs = FAMILIES[family](layers)()
    best: dict[str, float] = {}
    with torch.no_grad():
        for number in range(rounds + 1):
            opmill.reset()
            with tempfile.TemporaryDirectory() as cache:
                compiled = opmill.compile(model, fullgraph=True, options={"cache_dir": cache})
                times = [_timed(lambda: compiled(*args, **kwargs)) for _ in range(3)]
            found = phases(compiled)
            found |= {"backend": sum(found.values()), "frontend": 1e3 * (times[0] - min(times[1:])) - sum(found.values())}
            if number:
                best = {name: min(best.get(name, ms), ms) for name, ms in found.items()}
    return best


def _timed(call: object) -> float:
    start = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - start


def apart(family: str, layers: int, rounds: int) -> dict[str, float]:
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        family,
        "--layers",
        str(layers),
        str(layers),
        "--rounds",
        str(rounds),
        "--here",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--layers", type=int, nargs=2, default=[12, 24])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.family[0], options.layers[0], options.rounds)))
        return
    results: dict[str, dict[int, dict[str, float]]] = {}
    for family in options.family:
        results[family] = {n: apart(family, n, options.rounds) for n in options.layers}
        few, many = (results[family][n] for n in options.layers)
        print(f"\n{family:<16}" + "".join(f"{n:>6} layers" for n in options.layers) + "     ratio")
        for name in many:
            print(f"  {name:<14}{few.get(name, 0):>13.1f}{many[name]:>13.1f}{many[name] / max(few.get(name, 0), 1e-9):>10.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
