"""What is asked of several GPUs of one host, in a few minutes of two of them: groups of parts, each a process with a limit of its own.

usage: gpus_round.py [GROUP...] [--limit 190] [--output FOLDER]

GROUP, by default all, in this order: right (tests on two devices, losses of training over NCCL: at once, while the compilers of what is
measured later fill their caches beside them); steps (sharded_steps.py on a model of 200 million parameters, and what of its exchanges is
hidden: FSDP2); parallel (the same of DDP, tensor and sequence parallel); quantised (quantised_block.py). Whole rows go to rows.txt of FOLDER as they come. Where opmill is not installed it runs from the
sources (from_sources.py).
"""

from __future__ import annotations

from gpu_round import HERE, PYTHON, Part, go, script

STEPS = 30
SIZES = ("--width", "1536", "--layers", "6", "--head", "128", "--words", "8000", "--rows", "8", "--length", "1024")
MEASURED = (
    ("blocks, bfloat16", "whole, bfloat16"),
    ("ddp, bfloat16", "tensor parallel, bfloat16", "sequence parallel, bfloat16"),
)
LOSSES = (
    ("ddp, outside", "fsdp2, outside", "fsdp2, blocks compiled before", "fsdp2, bfloat16"),
    ("fsdp2 + tensor parallel", "fsdp2 + tensor parallel, outside", "tensor parallel", "sequence parallel"),
)
QUANTISED = ("--config", "int8", "float8", "plain", "--modes", "default", "reduce-overhead", "--bandwidth", "3.35e12")


def together(name: str, *arguments: str) -> list[str]:
    """A script run by a process for each of two devices."""
    return [*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(HERE / f"{name}.py"), *arguments]


def steps(*names: str, rounds: int) -> list[str]:
    return together("sharded_steps", *SIZES, "--rounds", str(rounds), "--only", *names)


TESTS = ("integration_tests/test_several_gpus.py", "integration_tests/test_distributed.py::test_two_devices")
WARMING = [*(steps(*names, rounds=1) for names in MEASURED), script("quantised_block", *QUANTISED)]
GROUPS: dict[str, list[Part]] = {
    "right": [
        Part([[*PYTHON, "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider", *TESTS]], 100, WARMING),
        *(Part([together("distributed_losses", "--steps", str(STEPS), "--only", *names)], 100) for names in LOSSES),
    ],
    "steps": [Part([steps(*MEASURED[0], rounds=20)], 45)],
    "parallel": [Part([steps(name, rounds=10) for name in MEASURED[1]], 45)],
    "quantised": [Part([script("quantised_block", *QUANTISED)], 60)],
}


def main() -> None:
    go(__doc__, GROUPS, limit=190, OMP_NUM_THREADS="4", PYTHONFAULTHANDLER="1")


if __name__ == "__main__":
    main()
