"""Things that change, under compile and not: what captured code reads of them is what is there at the call, and what it writes is seen.

``python benchmarks/changing.py [NAME ...] [--part K --of N]``

``changing.txt`` has a row for each: how it is made, what is read, and how it changes the nth time. Of a row six programs are made: it is
changed between calls, in the call, between two reads of it, or behind a graph break, and it is an argument, a global, or held by another
object. Each is called four times. A row runs in two forked processes, plain and compiled, as much of what changes is the process's.
"""

from __future__ import annotations

import argparse
import json
import linecache
import os
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

import opmill
from opmill_bytecode_frontend import capture

HERE = Path(__file__).parent
SECONDS, CALLS = 60, 4
FORMS = {
    "between calls": ("(o, x, n)", "{read}", "argument", True),
    "in the call": ("(o, x, n)", "[{change}][:0], {read}", "argument", False),
    "between reads": ("(o, x, n)", "{read}, [{change}][:0], {read}", "argument", False),
    "behind a break": ("(o, x, n)", "{read}, [outside(lambda: ({change}))][:0], {read}", "argument", False),
    "of a global": ("(_, x, n)", "{read}", "global", True),
    "held": ("(h, x, n)", "[{read} for o in (h['it'][0],)][0]", "held", True),
}
"""A program: its parameters, what it gives, where the thing is found, and whether it is changed between its calls."""


def rows() -> list[tuple[str, str, str, str]]:
    """Name, how it is made, read and changed."""
    lines = (HERE / "changing.txt").read_text().splitlines()
    return [tuple(part.strip() for part in line.split(" | ")) for line in lines if not line.startswith("#")]  # type: ignore[misc]


def seen(call: Callable[[], object]) -> str:
    """What a call gives or raises, without addresses."""
    try:
        return re.sub(r"0x[0-9a-f]+", "", repr(call()))
    except Exception as error:
        return re.sub(r"0x[0-9a-f]+", "", f"{type(error).__name__}: {error}")


def sequence(row: tuple[str, str, str, str], form: str, compiled: bool) -> list[str]:
    """What the calls of one program give, and what is read of the thing after each."""
    _, make, read, change = row
    head, result, found_at, between = FORMS[form]
    body = result.format(read=read, change=change)
    source = f"def program{head}:\n    return {body}, x + 1\n"
    names: dict[str, Any] = {"outside": opmill.disable(lambda call: call()), "__name__": "changing_program"}
    exec(compile((HERE / "changing_objects.py").read_text(), "<changing objects>", "exec", dont_inherit=True), names)
    linecache.cache["<changing>"] = (len(source), None, source.splitlines(True), "<changing>")
    exec(compile(source, "<changing>", "exec", dont_inherit=True), names)
    exec(f"def make(): return {make}\ndef read(o): return {read}\ndef change(o, n): return {change}\n", names)
    names["o"] = o = names["make"]()
    program = capture(names["program"], "eager") if compiled else names["program"]
    given = {"argument": o, "global": None, "held": {"it": [o]}}[found_at]
    told = []
    for n in range(1, CALLS + 1):
        told.append(seen(lambda n=n: program(given, torch.ones(1, dtype=torch.float32, device="cpu"), n)))  # type: ignore[misc]
        told.append(seen(lambda: names["read"](o)))
        if between:
            seen(lambda n=n: names["change"](o, n))  # type: ignore[misc]
    return told


def in_child(row: tuple[str, str, str, str], compiled: bool) -> dict[str, list[str]]:
    """All programs of a row, in a process of their own; nothing where that ends."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        with open(writing, "w") as pipe:
            signal.alarm(SECONDS)
            torch.manual_seed(0)
            numpy.random.seed(0)
            random.seed(0)
            warnings.simplefilter("ignore")
            sys.stdout = sys.stderr = open(os.devnull, "w")
            json.dump({form: sequence(row, form, compiled) for form in FORMS}, pipe)
            pipe.flush()
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {}


def differences(row: tuple[str, str, str, str]) -> Iterator[str]:
    """Where the compiled programs of a row are not what the plain ones are."""
    plain, compiled = in_child(row, False), in_child(row, True)
    if not plain or not compiled:
        yield f"{row[0]}: no answer of the {'compiled' if plain else 'plain'} program"
        return
    for form in FORMS:
        for k, (want, got) in enumerate(zip(plain[form], compiled[form], strict=True)):
            if want != got:
                yield f"{row[0]}, {form}, {'after ' * (k % 2)}call {k // 2}:\n  plain    {want[:300]}\n  compiled {got[:300]}"
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    capture(lambda x: x + 1, "eager")(torch.ones(1))  # what all children need is imported once
    chosen = [row for row in rows() if not options.names or row[0] in options.names][options.part :: options.of]
    count = 0
    for row in chosen:
        for text in differences(row):
            print(text, flush=True)
            count += 1
    print(f"{len(chosen) * len(FORMS)} programs, {count} differ")
    sys.exit(bool(count) or not chosen)


if __name__ == "__main__":
    main()
