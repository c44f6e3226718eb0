"""Runs the packages from their sources on a machine where they are not installed and nothing can be fetched: builds native extensions beside
them, and writes the metadata that entry points are found by."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with the packages on Python's path; their metadata is put into ``folder``."""
    sources = [p.parent / "src" for p in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    with ThreadPoolExecutor() as threads:
        list(threads.map(_build, [native for source in sources for native in source.glob("opmill*/native")]))
    for project in ROOT.glob("packages/*/pyproject.toml"):
        _describe(tomllib.loads(project.read_text()), folder)
    paths = [*map(str, sources), str(folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _build(native: Path) -> None:
    output = native.parent / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    if output.exists():
        return
    command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{sysconfig.get_paths()['include']}"]
    subprocess.run([*command, *map(str, sorted(native.glob("*.cpp"))), "-o", str(output), "-ldl", "-pthread"], check=True)


def _describe(project: dict[str, object], folder: Path) -> None:
    facts = project["project"]
    assert isinstance(facts, dict)
    name = str(facts["name"])
    info = folder / f"{name.replace('-', '_')}-0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("\n".join(_entries(facts.get("entry-points", {}), facts.get("scripts", {}))))


def _entries(groups: dict[str, dict[str, str]], scripts: dict[str, str]) -> Iterator[str]:
    for group, found in {**groups, "console_scripts": scripts}.items():
        if found:
            yield from (f"[{group}]", *(f"{name} = {value}" for name, value in found.items()))
