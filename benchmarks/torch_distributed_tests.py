"""Torch's own tests of several processes, those that ship in the wheel, compiled by opmill against eager.

    python benchmarks/torch_distributed_tests.py [PART ...] [--processes 2] [--only TEXT] [--share 1/8] [--json FILE]

Parts:

- ``suite``: the tests of collectives, DistributedDataParallel and averaging of `torch.testing._internal.distributed.distributed_test`, each as
  it is, then compiled itself, then with each outermost call of a module compiled. A finding is a test whose outcome differs.
- ``models``: the models of torch's tests of DTensor and FSDP, under the plans and wrappers that these tests use, trained for some steps.
- ``operators``: torch's database of operators, whose samples are distributed in every way that torch's own test of DTensor does.

Each process writes what it finds as it finds it, so that a hang shows where it is; the exit status is 1 where something differs."""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import processes

LIMIT = 3000
"""Seconds for all processes together."""
WAIT = 25
"""Seconds that an exchange waits for other processes."""
EACH = 120
"""Seconds that one case may take."""
PARTS = ("suite", "models", "operators")
Row = dict[str, Any]
Said = Callable[[Row], None]


class Late(BaseException):
    """A case took longer than it may. Nothing that handles errors handles it."""


def late(*_: object) -> None:
    raise Late


class Place:
    """One process of all. It meets the others before each case, in a group that nobody used before."""

    def __init__(self, rank: int, size: int, folder: str) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.folder, self.case, self.met = rank, size, folder, 0, 0
        self.store = dist.FileStore(f"{folder}/meeting", size)

    def meet(self, seconds: float = WAIT) -> None:
        """Waits for all processes. How often they meet in a case may differ, where it fails."""
        self.said("here", seconds)

    def said(self, word: str, seconds: float = WAIT, when: str = "") -> list[str]:
        """What each process says, once all have; ``when`` the case is over, say: processes may have met in it differently often."""
        self.met += not when
        keys = [f"{self.case}/{when or self.met}/{rank}" for rank in range(self.size)]
        self.store.set(keys[self.rank], word)
        self.store.wait(keys, timedelta(seconds=seconds))
        return [self.store.get(key).decode() for key in keys]

    def group(self, run: Callable[[], Any]) -> tuple[str, str]:
        """``run`` in a new default group: (how it ended, what is said of it)."""
        import torch.distributed as dist

        self.case, self.met = self.case + 1, 0
        self.said("here", 4 * EACH, "begins")

        def inside() -> Any:
            store = dist.FileStore(f"{self.folder}/group{self.case}", self.size)
            dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=timedelta(seconds=WAIT))
            self.said("here", when="have joined")  # one that skips the test at once would leave while others connect
            return run()

        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, EACH)
        try:
            return _outcome(inside)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if dist.is_initialized():
                dist.destroy_process_group()


def _outcome(run: Callable[[], Any]) -> tuple[str, str]:
    import unittest

    try:
        said = run()
    except unittest.SkipTest as error:
        return "skipped", str(error)
    except SystemExit as error:  # how torch's tests skip in processes of their own
        return "skipped", f"exit {error.code}"
    except Late:
        return "late", f"no end within {EACH} s"
    except Exception as error:
        logging.getLogger(__name__).debug("a case failed", exc_info=True)
        return "failed", f"{type(error).__name__}: {str(error)[:1500]}"
    return ("wrong", said) if said else ("passed", "")


# --- all processes ------------------------------------------------------------------------------------------------------------------


def found(part: str, size: int, *, only: str = "", share: str = "1/1", limit: float = LIMIT) -> list[list[Row]]:
    """The rows of each process, as far as they came. Raises `processes.Ended` where one of them ends badly."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            processes.together(Path(__file__), Path(folder), part, only, share, size=size, limit=limit)
        except subprocess.TimeoutExpired:
            print(f"{part}: no end within {limit:.0f} s", file=sys.stderr)
        files = [Path(folder) / f"rows{rank}" for rank in range(size)]
        return [[json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [] for file in files]


def differing(rows: list[list[Row]]) -> dict[str, list[str]]:
    """Case -> what is said of it, by the processes that say anything."""
    said: dict[str, list[str]] = {}
    for rank, each in enumerate(rows):
        for row in each:
            if row["said"]:
                said.setdefault(row["case"], []).append(f"[{rank}] {row['said']}")
    return said


def work(part: str, place: Place, only: str, share: tuple[int, int], say: Said) -> None:
    if part == "suite":
        from torch_distributed_suite import cases, run
    elif part == "models":
        from torch_distributed_models import cases, run
    else:
        from torch_distributed_operators import cases, run
    names = [name for name in cases(place) if only in name]
    for name in names[share[0] - 1 :: share[1]]:
        for row in run(name, place):
            say({"case": name, **row})


def one_process(rank: int, size: int, store: str, part: str, only: str, share: str) -> None:
    folder = str(Path(store).parent)
    place = Place(rank, size, folder)
    with open(f"{folder}/rows{rank}", "w") as file:

        def say(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        first, parts = map(int, share.split("/"))
        work(part, place, only, (first, parts), say)
        place.said("done", 4 * EACH, "all over")


def shown(part: str, rows: list[list[Row]]) -> Iterator[str]:
    counted = collections.Counter(row["outcome"] for row in rows[0])
    breaks = sum(row.get("breaks", 0) for row in rows[0])
    graphs = sum(row.get("graphs", 0) for row in rows[0])
    kinds = ", ".join(f"{count} {kind}" for kind, count in counted.items())
    yield f"{part}: {len({row['case'] for row in rows[0]})} cases, {kinds}; {graphs} graphs, {breaks} breaks"
    for case, said in differing(rows).items():
        yield f"    {case}"
        yield from (f"        {text}" for text in said)
    reasons = collections.Counter(reason for row in rows[0] for reason in row.get("reasons", ()))
    yield from (f"    {count:4} breaks: {reason}" for reason, count in reasons.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="cases that have this in their name")
    parser.add_argument("--share", default="1/1", help="K/N: the K-th of N parts of the cases")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one part")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    all_rows, wrong = {}, False
    for part in options.parts or PARTS:
        all_rows[part] = rows = found(part, options.processes, only=options.only, share=options.share, limit=options.limit)
        print("\n".join(shown(part, rows)), flush=True)
        wrong |= bool(differing(rows)) or len({len(each) for each in rows}) > 1
        if options.json:
            options.json.write_text(json.dumps(all_rows, indent=1))
    return int(wrong)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "0"
        one_process(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(main())
