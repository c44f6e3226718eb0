"""The benchmark history: what each run of ``sweep.py`` measured, one JSON line for each model and compiler, kept in the repository.

usage: history.py [FILE] [--model MODEL]
Prints, by model and compiler, the speed over eager of each run. Ratios to eager measured in the same process are what can be compared
between runs; seconds are of the machine that the line names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "history.jsonl"
SLOWER = 0.03
"""What may be lost between a run and those before it."""
LAST = 5
"""Runs that a new one is compared with."""
FIGURES = {
    "cold s": ("cold", "first_s"),
    "warm s": ("warm", "first_s"),
    "steady ms": ("warm", "steady_ms"),
    "eager ms": ("warm", "eager_ms"),
}


def lines(machine: Mapping[str, Any], results: Mapping[str, Any], commit: str, now: datetime) -> Iterator[dict[str, Any]]:
    """What a sweep measured, as lines of the history; what failed has no line."""
    for model, compilers in results.items():
        for compiler, phases in compilers.items():
            found = {name: round(phases[phase][key], 6) for name, (phase, key) in FIGURES.items() if key in phases[phase]}
            if len(found) == len(FIGURES):
                yield {
                    "date": now.isoformat(timespec="seconds"), "commit": commit, "machine": dict(machine), "model": model, "compiler": compiler,
                    **found, "speed": round(found["eager ms"] / found["steady ms"], 4),
                }  # fmt: skip


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []


def append(file: Path, machine: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Adds a sweep to the history; what is slower in it than in the runs before on such a machine."""
    before, new = read(file), list(lines(machine, results, _commit(), datetime.now(UTC)))
    with file.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in new)
    return slower(before, new)


def slower(before: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Of each new line that lost speed over eager against the median of the last runs of its kind, what it lost."""
    said = []
    for line in new:
        alike = [b["speed"] for b in before if all(b[key] == line[key] for key in ("machine", "model", "compiler"))][-LAST:]
        if alike and line["speed"] < (usual := statistics.median(alike)) * (1 - SLOWER):
            said.append(f"{line['model']} {line['compiler']}: {line['speed']:.2f}x of eager, {usual:.2f}x before")
    return said


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=FILE.parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--model")
    chosen = parser.parse_args()
    rows: dict[tuple[str, str], list[str]] = {}
    for line in read(chosen.file):
        if chosen.model in (None, line["model"]):
            rows.setdefault((line["model"], line["compiler"]), []).append(f"{line['speed']:.2f}x")
    for (model, compiler), speeds in sorted(rows.items()):
        print(f"{model:24} {compiler:8} {' '.join(speeds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
