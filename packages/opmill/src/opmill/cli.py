"""The ``opmill`` command: ``doctor`` tells what this machine can do, ``cache`` shows or clears the artifacts on disk."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from opmill_runtime_cache.store import default_root

from .__about__ import __version__
from .discover import find_generators, list_backends


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit status."""
    parser = argparse.ArgumentParser(prog="opmill", description=__doc__)
    parser.add_argument("--version", action="version", version=f"opmill {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what is installed, what can be built here, where the cache is").set_defaults(run=_doctor)
    cache = commands.add_parser("cache", help="the artifacts on disk")
    cache.add_argument("action", choices=("info", "clear"))
    cache.add_argument("--dir", type=Path, default=None, help="another cache folder than the usual one")
    cache.set_defaults(run=_cache)
    chosen = parser.parse_args(arguments)
    status: int = chosen.run(chosen, Console())
    return status


def _doctor(chosen: argparse.Namespace, console: Console) -> int:
    table = Table(show_header=False, title=f"opmill {__version__}", title_justify="left")
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    table.add_row("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    table.add_row("processor", torch.backends.cpu.get_cpu_capability())
    found = find_generators()
    for each in found:
        table.add_row(f"kernel generator {each.name}", "[green]ready[/]" if each.reason is None else f"[yellow]{each.reason}[/]")
    if not found:
        table.add_row("kernel generators", "[yellow]none: pip install 'opmill\\[cpp]'[/]")
    table.add_row("backends", ", ".join(list_backends()))
    root = _cache_root(None)
    table.add_row("cache", f"{root} ({_state(root)})")
    console.print(table)
    return 0 if any(each.reason is None for each in found) else 1


def _cache(chosen: argparse.Namespace, console: Console) -> int:
    root = _cache_root(chosen.dir)
    if chosen.action == "clear":
        entries, size = _measure(root)
        # The store's own folders only: whatever else lies in a folder that somebody named is not ours to remove.
        for folder in root.glob("v[0-9]*"):
            shutil.rmtree(folder, ignore_errors=True)
        console.print(f"removed {entries} files, {_size(size)} from {root}")
        return 0
    entries, size = _measure(root)
    console.print(f"{root}: {entries} files, {_size(size)}, {_state(root)}")
    return 0


def _cache_root(given: Path | None) -> Path:
    return Path(given if given is not None else default_root())


def _measure(root: Path) -> tuple[int, int]:
    files = [path for path in root.glob("v[0-9]*/**/*") if path.is_file()]
    return len(files), sum(path.stat().st_size for path in files)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _state(root: Path) -> str:
    if not root.exists():
        return "not made yet"
    return "writable" if os.access(root, os.W_OK) else "read-only: nothing new is kept"


if __name__ == "__main__":
    sys.exit(main())
