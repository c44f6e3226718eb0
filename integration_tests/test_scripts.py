"""Scripts of the libraries that people train with, unchanged: ``opmill run`` prints what Python prints, and compiles them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "scripts"
#: Script -> what it imports beside torch, and how many graphs it has at least.
SCRIPTS = {
    "transformers_trainer": (("transformers", "accelerate"), 2),
    "accelerate_loop": (("accelerate",), 1),
    "lightning_fit": (("lightning", "lightning_utilities", "torchmetrics"), 2),
    "diffusers_blocks": (("diffusers", "transformers"), 2),
    "peft_adapters": (("peft", "transformers", "accelerate"), 2),
    "torchmetrics_loop": (("torchmetrics", "lightning_utilities"), 2),
    "timm_training": (("timm",), 2),
    "torchvision_training": (("torchvision",), 2),
    "torch_func": ((), 4),
    "numpy_statistics": (("numpy",), 2),
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
#: ``opmill run`` with the graphs counted at the end.
COUNTED = """
import atexit, sys, opmill
from opmill.cli import main
atexit.register(lambda: print("graphs", int(opmill.counters()["graphs"]), file=sys.stderr))
sys.exit(main())
"""


def environment(**more: str) -> dict[str, str]:
    paths = [str(FOLDER / "environment"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **more}


def printed(command: list[str], **more: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, *command], env=environment(**more), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_prints_what_python_prints(name: str) -> None:
    libraries, graphs = SCRIPTS[name]
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    path = str(FOLDER / f"{name}.py")
    want, _ = printed([path], PLAINLY="1")
    got, told = printed(["-c", COUNTED, "run", path])
    assert NUMBER.sub("#", got) == NUMBER.sub("#", want)
    numbers = [list(map(float, NUMBER.findall(text))) for text in (got, want)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=2e-3)
    counted = re.search(r"^graphs (\d+)$", told, re.MULTILINE)
    assert counted is not None
    assert int(counted[1]) >= graphs
