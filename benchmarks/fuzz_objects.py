"""Random programs about one object under compile, against the plain run: what they note and give, how they leave the object.

``python benchmarks/fuzz_objects.py [KIND...] [--seed 0] [--count 40] [--most 3]``

Each program is called four times, with one object or with others, which may be changed between; its graphs run as they are
(``backend="eager"``). ``--count`` programs of each kind are drawn. A difference is printed with its seed, up to ``--most`` of a kind.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import opmill
from random_objects import KINDS, Program, outcome, program


def difference(drawn: Program) -> str:
    """Empty where the compiled program does what the plain one does; programs that raise something plainly are not judged."""
    try:
        want = outcome(drawn)
    except Exception:
        return ""
    try:
        got = outcome(drawn, lambda function: opmill.compile(function, backend="eager"))
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    for call, (mine, eager) in enumerate(zip(got, want, strict=True)):
        if mine != eager:
            at = next((i for i, (a, b) in enumerate(zip(mine, eager)) if a != b), min(len(mine), len(eager)))
            near = slice(max(0, at - 100), at + 100)
            return f"call {call}: ...{mine[near]}\n   instead of ...{eager[near]}"
    return ""


def differences(kind: str, seed: int, count: int) -> Iterator[tuple[int, Program, str]]:
    for each in range(seed, seed + count):
        drawn = program(kind, each)
        if found := difference(drawn):
            yield each, drawn, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--most", type=int, default=3)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    total = 0
    for kind in chosen.kinds or KINDS:
        found = list(differences(kind, chosen.seed, chosen.count))
        for seed, drawn, text in found[: chosen.most]:
            print(f"--- {kind}, seed {seed}: {text}\n{drawn.source}", flush=True)
        print(f"{kind}: {chosen.count} programs, {len(found)} differ", flush=True)
        total += len(found)
    return 1 if total else 0


if __name__ == "__main__":
    raise SystemExit(main())
