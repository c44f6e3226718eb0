"""CPython's own tests with each test method called between two tensor operations of a compiled function, against the plain run.

usage: cpython_tests.py [MODULE...] [--tests TEXT] [--limit SECONDS] [--module-limit SECONDS] [--jobs N] [--json FILE] [--floor PERCENT]

The modules are those of the running interpreter's ``test`` package that ``MODULES`` names and that exist there. Each runs twice, plain and
compiled (``opmill.compile(..., backend="eager")``: no kernels are made), in processes of its own; a method that crashes its process or
takes longer than ``--limit`` is noted, and the rest goes on in a new process. What counts are the methods that pass plain: how many pass
compiled. Those that may differ are in ``cpython_differences.txt``, each with its reason; they count as what they are, failed. The exit
status is 1 where fewer than ``--floor`` percent pass, where one crashes or hangs, or where one fails that the list does not name.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import importlib
import importlib.util
import json
import os
import pkgutil
import random
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path
from typing import Any, Iterator

from processes import telling

HERE = Path(__file__).resolve()
DIFFERENCES = HERE.with_name("cpython_differences.txt")
MODULES = """
    abc abstract_numbers asyncgen augassign baseexception binop bisect bool builtin bytes call class cmath collections compare complex
    contains context contextlib copy copyreg coroutines dataclasses decorators defaultdict deque descr dict dictcomps dictviews
    dynamicclassattribute enum enumerate except_star exception_group exception_hierarchy exception_variations exceptions float
    format fractions fstring funcattrs functools generator_stop generators genericalias genericclass genexps global heapq index inspect
    int isinstance iter iterlen itertools keywordonlyarg list listcomps long math metaclass module named_expressions numeric_tower
    opcodes operator ordered_dict patma positional_only_arg pow property raise random range reprlib richcmp scope set setcomps slice
    sort statistics string string_literals subclassinit super traceback tuple type_annotations typechecks types typing unary unicode
    unicode_identifiers unpack unpack_ex userdict userlist userstring weakref weakset with yield_from
""".split()
PASSED = "passed"


# --- one module, in a process of its own --------------------------------------------------------------------------------------------


class Outcomes(unittest.TestResult):
    """Writes ``[kind, test, text]`` lines: when a test starts and what it came to. A test passes when nothing of it failed."""

    def __init__(self, channel: Any) -> None:
        super().__init__()
        self.channel = channel
        self.found: tuple[str, str] = (PASSED, "")

    def say(self, kind: str, test: unittest.TestCase, text: str = "") -> None:
        self.channel.write(json.dumps([kind, test.id(), text[-6000:]]) + "\n")
        self.channel.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.found = (PASSED, "")
        self.say("started", test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.say(self.found[0], test, self.found[1])

    def note(self, kind: str, error: Any) -> None:
        if self.found[0] in (PASSED, "skipped"):
            self.found = (kind, "".join(traceback.format_exception(*error)) if isinstance(error, tuple) else str(error))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.note("failed", err)

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.note("failed", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note("skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.note("expected failure", err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.note("failed", "unexpected success")


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def between(x: Any, body: Any) -> Any:
    y = x + 1
    body()
    return y * 2


def enclose(test: unittest.TestCase) -> None:
    """The test's method becomes one that calls it between two tensor operations, compiled. Each has a code object of its own, so that none
    meets the limit of recompiling for another."""
    import functools
    import types

    import torch

    import opmill

    body = getattr(test, test._testMethodName)
    code = between.__code__.replace(co_name=test._testMethodName)
    compiled = opmill.compile(types.FunctionType(code, globals(), "between"), backend="eager")

    @functools.wraps(body)
    def method() -> None:
        x = torch.ones(3)
        limit = sys.getrecursionlimit()
        try:
            result = compiled(x, body)
        finally:
            sys.setrecursionlimit(limit)  # a test that fails may leave another one behind
        if result.tolist() != [4.0, 4.0, 4.0]:
            raise AssertionError(f"the tensor is {result}")

    setattr(test, test._testMethodName, method)


def run_module(name: str, how: str, skipped: set[str], wanted: str, channel: Any) -> None:
    from test import support

    support.use_resources = []
    support.verbose = 0
    if how == "compiled":
        import torch

        import opmill

        opmill.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # what the compiler imports is imported
    module = importlib.import_module(f"test.test_{name}")
    modules = [module]
    if hasattr(module, "__path__"):  # its tests may stand in files of its own
        found = [each.name for each in pkgutil.iter_modules(module.__path__) if each.name.startswith("test_")]
        modules += [importlib.import_module(f"{module.__name__}.{each}") for each in found]
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(
        loader.loadTestsFromTestCase(kind)
        for kind in dict.fromkeys(kind for each in modules for kind in vars(each).values() if isinstance(kind, type))
        if issubclass(kind, unittest.TestCase) and kind is not unittest.TestCase
    )
    result = Outcomes(channel)
    by_class: dict[type, unittest.TestSuite] = {}
    for case in cases(suite):
        if case.id() in skipped or wanted not in case.id():
            continue
        if how == "compiled" and not isinstance(case, unittest.IsolatedAsyncioTestCase):
            enclose(case)
        by_class.setdefault(type(case), unittest.TestSuite()).addTest(case)
    for group in by_class.values():
        random.seed(0)
        group.run(result)
    channel.write(json.dumps(["end", "", ""]) + "\n")
    channel.flush()


# --- all modules --------------------------------------------------------------------------------------------------------------------


def one_process(name: str, how: str, skipped: set[str], arguments: Any, until: float) -> Iterator[tuple[str, str, str]]:
    """What the lines of one process say; a crash or a hang of a test is an outcome of it and the end."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "OPMILL_CACHE_DIR": f"{folder}/cache"}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), environment.get("PYTHONPATH", "")])

        def start(write: int) -> tuple[list[str], dict[str, str]]:
            request = json.dumps([name, how, sorted(skipped), arguments.tests, write])
            return [sys.executable, "-c", f"import cpython_tests as c; c.child({request!r})"], environment

        running = ""
        with telling(start, folder) as process:
            while True:
                limit = min(arguments.limit if running else 120, max(1, until - time.monotonic()))
                try:
                    told = process.next(limit)
                except EOFError:
                    yield "crashed", running, f"exit status {process.process.wait()}\n{process.noise(4000)}"
                    return
                if told is None:
                    yield "hung", running, f"no end within {limit:.0f} s"
                    return
                kind, test, text = told
                if kind == "end":
                    return
                running = test if kind == "started" else ""
                if kind != "started":
                    yield kind, test, text


def child(request: str) -> None:
    name, how, skipped, wanted, descriptor = json.loads(request)
    with os.fdopen(descriptor, "w") as channel:
        run_module(name, how, set(skipped), wanted, channel)
    sys.stdout.flush()
    os._exit(0)


def outcomes(name: str, how: str, arguments: Any, skipped: set[str] = frozenset()) -> dict[str, tuple[str, str]]:  # type: ignore[assignment]
    """Test -> (outcome, text) of one module, in as many processes as it takes."""
    found: dict[str, tuple[str, str]] = {}
    until = time.monotonic() + arguments.module_limit
    while time.monotonic() < until:
        before = len(found)
        broken = False
        for kind, test, text in one_process(name, how, skipped | set(found), arguments, until):
            found[test or f"test.test_{name}"] = (kind, text)
            broken = kind in ("crashed", "hung")
        if not broken or len(found) == before:
            break
    return found


def compare(name: str, arguments: Any) -> dict[str, Any]:
    start = time.monotonic()
    plain = outcomes(name, "plain", arguments)
    passing = {test for test, (kind, _) in plain.items() if kind == PASSED}
    compiled = outcomes(name, "compiled", arguments, set(plain) - passing)
    missing = ("missing", "not run")
    failed = {test: compiled.get(test, missing) for test in sorted(passing) if compiled.get(test, missing)[0] != PASSED}
    whole = f"test.test_{name}"
    if whole in compiled:  # the process ended between two tests
        failed[whole] = compiled[whole]
    return {"module": name, "plain": len(passing), "failed": failed, "seconds": round(time.monotonic() - start)}


def expected_differences() -> dict[str, str]:
    """Test -> reason. A reason stands on a line of its own that begins with ``#`` and holds for the tests below it."""
    found, reason = {}, ""
    for line in DIFFERENCES.read_text().splitlines() if DIFFERENCES.exists() else []:
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            found[line.strip()] = reason
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="names without test_")
    parser.add_argument("--tests", default="", help="only tests whose name contains this")
    parser.add_argument("--limit", type=float, default=120, help="seconds one test may take")
    parser.add_argument("--module-limit", type=float, default=1800, help="seconds one module may take")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--floor", type=float, default=98.0)
    arguments = parser.parse_args()
    names = arguments.modules or [name for name in MODULES if importlib.util.find_spec(f"test.test_{name}")]
    expected, results = expected_differences(), []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(compare, name, arguments) for name in names]):
            result = done.result()
            results.append(result)
            kinds = collections.Counter(kind for kind, _ in result["failed"].values())
            others = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            print(
                f"{result['module']:24} {result['plain'] - len(result['failed']):5} of {result['plain']:5} {result['seconds']:5} s  "
                f"{others}",
                flush=True,
            )
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    failed = {test: outcome for result in results for test, outcome in result["failed"].items()}
    plain = sum(result["plain"] for result in results)
    unexpected = sorted(set(failed) - set(expected))
    worst = sorted(test for test, (kind, _) in failed.items() if kind in ("crashed", "hung", "missing"))
    share = 100 * (plain - len(failed)) / max(plain, 1)
    modules = sum(result["plain"] > 0 for result in results)
    print(
        f"{plain - len(failed)} of {plain} methods ({share:.2f}%) of {modules} modules; {len(failed) - len(unexpected)} differ for a "
        f"listed reason"
    )
    for test in unexpected:
        print(f"  {failed[test][0]:8} {test}: {(failed[test][1].strip().splitlines() or [''])[-1][:150]}")
    return int(share < arguments.floor or bool(worst) or bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
