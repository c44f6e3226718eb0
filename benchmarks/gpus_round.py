"""What is asked of several GPUs of one host, in a few minutes of two of them: groups of parts, each a process with a limit of its own.

usage: gpus_round.py [GROUP...] [--limit 450] [--output FOLDER]

GROUP, by default all, in this order: right (tests on two devices, losses of training over NCCL beside eager's: at once, while the compilers of
what is measured later fill their caches beside them); steps (sharded_steps.py on a model of 200 million parameters, and what of its exchanges
is hidden: FSDP2); parallel (the same of tensor and sequence parallel, FSDP2 of tensor parallel, DDP); example (examples/train_sharded.py under
each compiler in turns); quantised (quantised_block.py, where there is torchao). Whole rows go to rows.txt of FOLDER as they come. Where opmill
is not installed it runs from the sources (from_sources.py). Where there are no GPUs all of it runs on the processor, over Gloo and small.
"""

from __future__ import annotations

import importlib.util

import torch

from gpu_round import HERE, PYTHON, Part, go, script

DEVICES = torch.cuda.device_count() > 1
STEPS = 30 if DEVICES else 4
SIZES = ("--width", "1536", "--layers", "6", "--head", "128", "--words", "8000", "--rows", "8", "--length", "1024") if DEVICES else ()
MEASURED = (
    ("blocks, bfloat16", "whole, bfloat16"),
    ("tensor parallel, bfloat16", "fsdp2 + tensor parallel, bfloat16", "ddp, bfloat16", "sequence parallel, bfloat16"),
)
LOSSES = (
    ("fsdp2, outside", "fsdp2, blocks compiled before", "fsdp2, kept after forward"),
    ("ddp, outside", "ddp, inside", "fsdp2, blocks compiled after"),
    ("fsdp2, bfloat16", "fsdp2, bfloat16, outside", "fsdp2 + tensor parallel, outside"),
    ("fsdp2 + tensor parallel", "tensor parallel", "sequence parallel"),
)
QUANTISED = ("--config", "int8", "float8", "plain", "--modes", "default", "reduce-overhead", "--bandwidth", "3.35e12")
EXAMPLE = ("--width", "1024", "--heads", "8", "--depth", "6", "--rows", "16", "--length", "512") if DEVICES else ()
ROUNDS, SECONDS = (2, 60) if DEVICES else (1, 250)
"""Of the example, and that one run of it may take."""


def together(name: str, *arguments: str) -> list[str]:
    """A script run by a process for each of two devices."""
    return [*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(HERE / f"{name}.py"), *arguments]


def steps(*names: str, rounds: int) -> list[str]:
    return together("sharded_steps", *SIZES, "--rounds", str(rounds if DEVICES else 2), "--only", *names)


def example(steps: int, *compilers: str, rounds: int = ROUNDS) -> list[str]:
    limit = ("--rounds", str(rounds), "--limit", str(SECONDS))
    return script("sharded_example", *EXAMPLE, *limit, "--steps", str(steps), "--compilers", *compilers)


TESTS = ("integration_tests/test_several_gpus.py", "integration_tests/test_distributed.py::test_two_devices")
BYTES = [script("quantised_block", *QUANTISED)] if DEVICES and importlib.util.find_spec("torchao") else []
WARMING = [*(steps(*names, rounds=1) for names in MEASURED), example(3, "torch", "opmill", rounds=1), *BYTES] if DEVICES else []
ENVIRONMENT = {
    "OMP_NUM_THREADS": "4" if DEVICES else "1",
    "PYTHONFAULTHANDLER": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "8",
    "GLOO_SOCKET_IFNAME": "lo",
}
LONGEST = 45 if DEVICES else 300
GROUPS: dict[str, list[Part]] = {
    "right": [
        Part([[*PYTHON, "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider", *TESTS]], 110, WARMING),
        *(Part([together("distributed_losses", "--steps", str(STEPS), "--only", *names)], 110 if DEVICES else 400) for names in LOSSES),
    ],
    "steps": [Part([steps(name, rounds=20) for name in MEASURED[0]], LONGEST)],
    "parallel": [Part([steps(name, rounds=10) for name in MEASURED[1]], LONGEST)],
    "example": [Part([example(40 if DEVICES else 4, "eager", "torch", "opmill")], 3 * ROUNDS * SECONDS)],
    "quantised": [Part(BYTES, 60)],
}


def main() -> None:
    go(__doc__, GROUPS, limit=450 if DEVICES else 3000, **ENVIRONMENT)


if __name__ == "__main__":
    main()
