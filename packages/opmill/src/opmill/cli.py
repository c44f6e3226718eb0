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
from rich.markup import escape
from rich.table import Table

from opmill_runtime_cache.store import default_root
from opmill_torch_contract import summary

from .__about__ import __version__
from .diagnose.limits import keep, measured
from .discover import find_generators, list_backends
from .doctor import devices, trials
from .filesystems import network_filesystem
from .replacing import run


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit status."""
    parser = argparse.ArgumentParser(prog="opmill", description=__doc__)
    parser.add_argument("--version", action="version", version=f"opmill {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="what is installed, what can be built here, where the cache is")
    doctor.add_argument("--operators", nargs="?", const="", metavar="PART", help="what is known of each operator whose name has PART in it")
    doctor.set_defaults(run=_doctor)
    commands.add_parser("pipeline", help="the steps of the compiler, by the names that print_after takes").set_defaults(run=_pipeline)
    cache = commands.add_parser("cache", help="the artifacts on disk")
    cache.add_argument("action", choices=("info", "clear"))
    cache.add_argument("--dir", type=Path, default=None, help="another cache folder than the usual one")
    cache.set_defaults(run=_cache)
    page = commands.add_parser("report", help="make one HTML page of the trace that OPMILL_TRACE=FOLDER wrote")
    page.add_argument("folder", type=Path)
    page.add_argument("-o", "--output", type=Path, default=None, help="where the page goes; FOLDER/report.html otherwise")
    page.set_defaults(run=_report)
    bundle = commands.add_parser("replay", help="compile and check the graphs of a bundle; runs the scripts in it")
    bundle.add_argument("folder", type=Path)
    bundle.set_defaults(run=_replay)
    script = commands.add_parser("run", help="run a Python script whose torch.compile, and that of its libraries, is opmill's")
    script.add_argument("script", type=Path)
    script.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    script.set_defaults(run=_run)
    chosen = parser.parse_args(arguments)
    status: int = chosen.run(chosen, Console())
    return status


def _run(chosen: argparse.Namespace, console: Console) -> int:
    run(chosen.script, chosen.arguments)
    return 0


def _doctor(chosen: argparse.Namespace, console: Console) -> int:
    if chosen.operators is not None:
        return _operators(chosen.operators, console)
    table = Table(show_header=False, title=f"opmill {__version__}", title_justify="left")
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    table.add_row("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    table.add_row("relied on in torch", escape(summary().partition(": ")[2]))
    table.add_row("processor", torch.backends.cpu.get_cpu_capability())
    found = find_generators()
    tried = [{"": each.reason} if each.reason is not None else trials(each.generator) for each in found]
    for each, problems in zip(found, tried, strict=True):
        rows = [f"[yellow]{escape(f'{device}: {told}' if device else told)}[/]" for device, told in problems.items() if told]
        ready = [device for device, told in problems.items() if not told]
        rows += [f"[green]ready[/] on {', '.join(ready)}"] if ready else []
        table.add_row(f"kernel generator {each.name}", "\n".join(rows) or "ready, but there is no device here that it is for")
    if not found:
        table.add_row("kernel generators", "[yellow]none: pip install 'opmill\\[cpp]'[/]")
    table.add_row("backends", ", ".join(list_backends()))
    root = _cache_root(None)
    table.add_row("cache", f"{root} ({_state(root)})")
    if kind := network_filesystem(root):
        table.add_row("", f"[yellow]on a file system of other machines ({kind}): OPMILL_CACHE_DIR names another folder[/]")
    for device in devices():
        table.add_row(f"{device} at most", _limits(device))
    console.print(table)
    return 0 if any("" in problems.values() for problems in tried) else 1


def _limits(device: str) -> str:
    """What a device can do, measured now and kept for profiles to come."""
    try:
        found = measured(device)
    except Exception as error:  # no memory left, a driver that fails
        return f"[yellow]{escape(str(error).splitlines()[0])}[/]"
    keep(device, found)
    speeds = ", ".join(f"{speed / 1e9:.1f} GB/s of {_size(size)}" for size, speed in reversed(found.copies))
    products = ", ".join(f"{speed / 1e9:.0f} in {kind}" for kind, speed in found.products.items())
    return f"{speeds}; GFLOP/s of products: {products}"


def _pipeline(chosen: argparse.Namespace, console: Console) -> int:
    from .pipeline import described

    console.print(described(), markup=False, highlight=False, soft_wrap=True)
    return 0


def _operators(part: str, console: Console) -> int:
    """A row for each operator that has a record; 1 where there is none."""
    from opmill_graph_ir.ops.table import COLUMNS, facts  # all lowerings are imported: only where they are asked for

    if not console.is_terminal:
        console = Console(width=max(console.width, _WIDE))  # a file or a pipe: names are not cut
    table = Table(*COLUMNS, title="operators", title_justify="left")
    for row in facts():
        if part in row[0]:
            table.add_row(*row)
    console.print(table)
    console.print("Others are torch's own: called as they are, their results saved for a backward, aliasing as their schemas say.")
    return 0 if table.row_count else 1


_WIDE = 180
"""Columns of a table of operators where no terminal says how many there are."""


def _report(chosen: argparse.Namespace, console: Console) -> int:
    from .trace.making import report

    console.print(str(report(chosen.folder, chosen.output)), markup=False, highlight=False, soft_wrap=True)
    return 0


def _replay(chosen: argparse.Namespace, console: Console) -> int:
    from .diagnose.bundle import replay  # not above: it needs the whole compiler

    seen = replay(chosen.folder)
    console.print(str(seen), markup=False)
    return 0 if seen else 1


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
    files = [path for path in root.glob("v[0-9]*/*/**/*") if path.is_file()]  # the secret beside the folders is no entry
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
