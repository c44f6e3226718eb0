"""Writes bundles: graphs as scripts, versions, options. Below everything that compiles, so that a compile that fails can write one."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct

from ..options import Options
from .program import module_text

MANIFEST = "bundle.json"


class Manifest(Struct):
    """What ``bundle.json`` says. ``graphs``: files of scripts; ``data``: those of real inputs, if they were asked for."""

    made: str
    versions: dict[str, str]
    platform: str
    environment: dict[str, str]
    options: dict[str, Any]
    graphs: list[str]
    data: list[str] = []
    error: str = ""


def write(
    graphs: Sequence[tuple[torch.fx.GraphModule, Sequence[Any]]],
    options: Options,
    folder: str | os.PathLike[str] | None = None,
    *,
    told: str = "",
    error: str = "",
    data: bool = False,
) -> Path:
    """Writes a bundle of these graphs; the folder it is in."""
    target = Path(tempfile.mkdtemp(prefix="opmill-bundle-") if folder is None else folder)
    target.mkdir(parents=True, exist_ok=True)
    names, files = [], []
    for number, (gm, inputs) in enumerate(graphs):
        names.append(f"graph{number}.py")
        (target / names[-1]).write_text(module_text(gm, inputs))
        if data:
            files.append(f"graph{number}.pt")
            torch.save({"inputs": list(inputs), "state": dict(gm.state_dict())}, target / files[-1])
    if told:
        (target / "explain.txt").write_text(told + "\n")
    manifest = Manifest(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        _versions(),
        f"{platform.platform()} {platform.python_version()} {torch.backends.cpu.get_cpu_capability()}",
        {k: v for k, v in os.environ.items() if k.startswith(("OPMILL_", "OMP_", "MKL_", "CUDA_VISIBLE", "CXX"))},
        asdict(options),
        names,
        files,
        error,
    )
    (target / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    return target


def _versions() -> dict[str, str]:
    wanted = ("torch", "triton", "numpy", "transformers")
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    return {name: version for name, version in sorted(found.items()) if name.startswith("opmill") or name in wanted}
