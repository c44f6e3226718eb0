"""The tests of libraries nobody here wrote, run plainly and with opmill compiling: what passes plainly and does not pass compiled.

usage: foreign_suites.py [SUITE...] [--how HOW] [--backend NAME] [--take N] [--tests TEXT] [--limit SECONDS] [--suite-limit SECONDS] [--folder FOLDER]
       [--json FILE] [--floor PERCENT] [--list]

A suite's source distribution and its wheel come from PyPI, without their requirements, into a folder of its own below ``--folder``; nothing
is installed in the environment. ``--take`` tests are drawn of each suite (always the same ones) and run in processes of their own; where
one crashes or takes too long, the rest goes on in another. ``--how``: {hows}. A finding is a test that passes plainly and, compiled, does
not, or warns of something else, or had opmill log an error that it survived. The exit status is 1 where fewer than ``--floor`` percent pass.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreign_plugin import HOWS
from processes import telling

HERE = Path(__file__).resolve().parent
PASSED = "passed"


@dataclass(frozen=True)
class Suite:
    """A distribution on PyPI with its version, where its tests are (in what it installs, or else in its source distribution, where there
    is one), what else it needs, what its tests want to find in the environment, its own compilers (``module:name``, for ``--how instead``;
    with a ``?`` what they are asked whether they run), methods of tensors that it names and torch no longer has, and which of its tests
    are meant, as ``pytest -k`` says it (tests with ten thousand parameters would be all that is drawn)."""

    version: str
    tests: str
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sources: bool = True
    compilers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    meant: str = ""


SCIPY = ("scipy",)
TRIO = ("trio", "outcome", "sniffio", "attrs", "sortedcontainers", "idna")
LEARNING = ("scikit-learn", "joblib", "threadpoolctl", "narwhals", *SCIPY)
PLOTS = ("matplotlib", "pyparsing", "cycler", "kiwisolver", "contourpy", "fonttools", "python-dateutil", "six")
PANDAS = ("pandas", "pytz", "python-dateutil", "six")
GYM = ("gymnasium", "farama-notifications", "cloudpickle")
SUITES = {
    "accelerate": Suite("1.15.0", "tests", ("parameterized",)),
    "addict": Suite("2.4.0", "test_addict.py"),
    "anyio": Suite(
        "4.16.0",
        "tests",
        (*TRIO, "pytest-mock", "hypothesis", "trustme", "cryptography", "cffi", "pycparser", "blockbuster", "forbiddenfruit"),
    ),
    "anytree": Suite("2.13.0", "tests", ("six",)),
    "array-api-compat": Suite("1.16.0", "array_api_compat/tests", sources=False),
    "arrow": Suite("1.4.0", "tests", ("python-dateutil", "six", "tzdata", "pytz", "simplejson", "pytest-mock")),
    "attrs": Suite("26.1.0", "tests", ("hypothesis", "sortedcontainers", "cloudpickle")),
    "autoray": Suite("0.11.0", "tests", ("opt_einsum", *SCIPY), meant="torch or numpy"),
    "backpack-for-pytorch": Suite("1.7.1", "test", ("einops", "unfoldNd", "pytest-cases", "decopatch", "makefun")),
    "beartype": Suite("0.23.1", "beartype_test"),
    "boltons": Suite("26.2.0", "tests"),
    "cachetools": Suite("8.0.2", "tests"),
    "cattrs": Suite("26.2.1", "tests", ("attrs", "hypothesis", "sortedcontainers", "immutables")),
    "cebra": Suite(
        "0.6.1",
        "tests",
        ("cloudpickle", *PANDAS, "literate-dataclasses", "tables", "h5py", *PLOTS, *LEARNING),
    ),
    "click": Suite("8.5.1", "tests", meant="not stress"),
    "compressed-tensors": Suite("0.20.0", "tests", ("loguru",)),
    "curated-transformers": Suite("2.0.1", "curated_transformers/tests", ("curated-tokenizers", "catalogue")),
    "curvlinops-for-pytorch": Suite(
        "3.0.1",
        "test",
        (
            "backpack-for-pytorch",
            "unfoldNd",
            "einops",
            "einconv",
            "linear_operator",
            "opt_einsum",
            "jaxtyping",
            "wadler-lindig",
            *SCIPY,
        ),
    ),
    "dacite": Suite("1.9.2", "tests"),
    "deepctr-torch": Suite("0.3.0", "tests", LEARNING),
    "deepinv": Suite("0.5.0", "deepinv/tests", ("einops", "natsort", *SCIPY)),
    "depyf": Suite("0.20.0", "tests", ("astor", "dill")),
    "dpath": Suite("2.2.0", "tests", ("nose2", "hypothesis", "sortedcontainers")),
    "e3nn": Suite("0.6.0", "tests", ("opt_einsum_fx", "opt_einsum", *SCIPY)),
    "einops": Suite("0.8.2", "einops/tests", ("parameterized",), {"EINOPS_TEST_BACKENDS": "numpy,torch"}),
    "ema-pytorch": Suite("0.8.3", "tests"),
    "entmax": Suite("1.3", "entmax", sources=False),
    "evotorch": Suite("0.6.1", "tests", ("cma", "msgpack", "ray", *PANDAS, *GYM, *PLOTS)),
    "frozendict": Suite("2.5.1", "test"),
    "funcy": Suite("2.1", "tests", ("whatever",)),
    "funsor": Suite("0.4.8", "test", ("makefun", "multipledispatch", "opt_einsum", "pyro-ppl", "pyro-api")),
    "glom": Suite("25.12.0", "glom/test", ("boltons", "face", "attrs"), sources=False),
    "gpytorch": Suite("1.15.2", "test", ("linear_operator==0.6.1", "mpmath", "jaxtyping", "wadler-lindig", *LEARNING)),
    "hyperlink": Suite("21.0.0", "hyperlink/test", ("idna",)),
    "intervaltree": Suite("3.2.1", "test", ("sortedcontainers",)),
    "jinja2": Suite("3.1.6", "tests", ("markupsafe", "trio", "outcome", "sniffio", "attrs", "sortedcontainers", "idna")),
    "jsonpickle": Suite("4.1.4", "tests"),
    "jsonschema": Suite("4.26.0", "jsonschema/tests", ("referencing", "attrs", "rpds-py", "jsonschema-specifications", "jsonpath-ng")),
    "julius": Suite("0.2.8", "tests"),
    "lark": Suite("1.3.1", "tests"),
    "lightning-thunder": Suite(
        "0.2.6",
        "thunder/tests",
        ("looseversion", "optree", "opt_einsum", "dill", "mpmath==1.3.0", "pytest-benchmark", "py-cpuinfo"),
        sources=False,
        compilers=(
            "thunder.core.interpreter:interpret",
            "thunder.core.interpreter:is_jitting_with_raise?",
            "thunder.core.interpreter:is_jitting?",
            "thunder:jit",
        ),
        missing=("align_as", "align_to", "has_names", "refine_names", "rename"),
    ),
    "linear_operator": Suite("0.6.1", "test", ("mpmath", "jaxtyping", "wadler-lindig", *SCIPY)),
    "local-attention": Suite("1.11.2", "tests", ("einops", "hyper-connections", "torch-einops-utils")),
    "markdown-it-py": Suite("4.3.0", "tests", ("mdurl", "pytest-regressions", "pytest-datadir")),
    "marshmallow": Suite("4.4.0", "tests", ("simplejson",)),
    "mistune": Suite("3.4.0", "tests"),
    "more-itertools": Suite("11.2.1", "tests"),
    "multidict": Suite("7.2.1", "tests", ("hypothesis", "sortedcontainers")),
    "munch": Suite("4.0.0", "tests"),
    "networkx": Suite("3.6.1", "networkx", sources=False),
    "neuraloperator": Suite(
        "2.0.0", "neuralop", ("tensorly", "tensorly-torch", "torch-harmonics", "opt_einsum", "ruamel.yaml", "zencfg", "flaky", *SCIPY)
    ),
    "neurodiffeq": Suite("0.7.0", "tests", ("pandas", "pytz", "seaborn", "dill", "ordered_set", "tensorboard", *PLOTS, *SCIPY)),
    "nflows": Suite("0.14", "tests", ("torchtestcase", "tensorboard", *PLOTS)),
    "nngeometry": Suite("0.4", "tests"),
    "normflows": Suite("1.7.3", "normflows"),
    "norse": Suite("1.1.0", "norse/torch", ("nir", "nirtorch", "h5py", *PLOTS)),
    "omegaconf": Suite("2.4.0", "tests", ("attrs", "pytest-mock", "build", "pyproject_hooks")),
    "opacus": Suite("1.6.0", "opacus/tests", ("opt_einsum", *SCIPY)),
    "opt_einsum": Suite("3.4.0", "opt_einsum", sources=False),
    "optimum-quanto": Suite("0.2.7", "test", ("ninja",)),
    "parso": Suite("0.8.7", "test"),
    "peft": Suite(
        "0.21.2", "tests", ("parameterized", "datasets", "dill", "pyarrow", "pandas", "multiprocess", "xxhash", "aiohttp", *SCIPY)
    ),
    "pluggy": Suite("1.7.0", "testing"),
    "portion": Suite("2.6.3", "tests", ("sortedcontainers",)),
    "poutyne": Suite("1.19.0", "tests", ("lightning-utilities", "torchmetrics")),
    "ptwt": Suite("1.0.1", "tests", ("PyWavelets", *SCIPY)),
    "pydash": Suite("8.1.0", "tests"),
    "pykeen": Suite(
        "1.11.1",
        "tests",
        (
            "dataclasses-json",
            "marshmallow",
            "typing-inspect",
            "mypy-extensions",
            "click-default-group",
            "optuna",
            "cloudpickle",
            "sqlalchemy",
            "alembic",
            "mako",
            "colorlog",
            "greenlet",
            "pandas",
            "pytz",
            "tabulate",
            "more-click",
            "more-itertools",
            "pystow",
            "docdata",
            "class-resolver",
            "torch-max-mem",
            "torch-ppr",
            "unittest-templates",
            "python-dateutil",
            "six",
            *LEARNING,
        ),
    ),
    "pymde": Suite("0.3.0", "pymde", (*PLOTS, *SCIPY), sources=False),
    "pyparsing": Suite("3.3.3", "tests"),
    "pyro-ppl": Suite("1.9.2", "tests", ("pyro-api", "opt_einsum", *SCIPY)),
    "pyrsistent": Suite("0.20.0", "tests", ("hypothesis", "sortedcontainers")),
    "python-box": Suite("8.0.0", "test", ("toml", "msgpack", "ruamel.yaml", "tomli-w")),
    "python-dateutil": Suite("4.0.0", "tests", ("tzdata", "hypothesis", "sortedcontainers", "freezegun", "six")),
    "pytorch-forecasting": Suite("1.8.0", "tests", ("pandas", "python-dateutil", "pytz", "six", "scikit-base", *LEARNING)),
    "pytorch-ignite": Suite("0.5.5", "tests/ignite", ("cloudpickle", "dill", *PLOTS, *LEARNING)),
    "pytorch-widedeep": Suite("1.7.0", "tests", (*PANDAS, "einops", "wrapt", "torchmetrics", "gensim", "smart_open", *LEARNING)),
    "pytorch_optimizer": Suite("4.1.0", "tests"),
    "pytorch-warmup": Suite("0.2.0", "test"),
    "schema": Suite("0.7.8", "test_schema.py"),
    "segmentation_models_pytorch": Suite("0.6.0", "tests"),
    "simpleeval": Suite("1.0.8", "tests"),
    "sinabs": Suite("3.1.3", "tests", ("pbr", "nir", "nirtorch", "h5py", *PLOTS)),
    "singd": Suite("0.0.5", "test", ("einops", "einconv", "imageio", "memory-profiler", "codetiming", *PLOTS)),
    "skorch": Suite("1.4.0", "skorch/tests", ("cloudpickle", "tabulate", *LEARNING)),
    "stable_baselines3": Suite("2.9.2", "tests", ("cloudpickle", *PANDAS, *GYM, *PLOTS)),
    "sympy": Suite("1.14.0", "sympy/core/tests", ("mpmath",), sources=False),
    "tensorly": Suite("0.10.0", "tensorly", SCIPY, {"TENSORLY_BACKEND": "pytorch"}, sources=False),
    "tensorly-torch": Suite("0.5.0", "tltorch", ("tensorly", "opt_einsum", *SCIPY), {"TENSORLY_BACKEND": "pytorch"}),
    "timm": Suite("1.0.31", "tests"),
    "tinydb": Suite("4.9.0", "tests"),
    "tomlkit": Suite("0.15.2", "tests"),
    "toolz": Suite("1.2.0", "toolz/tests", sources=False),
    "torch-affine-utils": Suite("0.6.0", "tests", ("einops",)),
    "torch-cubic-spline-grids": Suite("0.6.0", "tests", ("einops",)),
    "torch-einops-utils": Suite("0.2.0", "tests", ("einops",)),
    "torch-fourier-filter": Suite("0.6.0", "tests", ("einops", "starfile", "torch-ctf", "torch-grid-utils", *PANDAS, *SCIPY)),
    "torch-grid-utils": Suite("0.6.0", "tests", ("einops", *SCIPY)),
    "torch-optimizer": Suite("0.3.0", "tests", ("pytorch_ranger",)),
    "torch-pruning": Suite("1.6.1", "tests"),
    "torchani": Suite("2.9.0", "tests", ("ase", "parameterized", "h5py", *PLOTS, *SCIPY)),
    "torchao": Suite("0.18.0", "test", ("parameterized",), sources=False),
    "torchkbnufft": Suite("1.5.2", "tests", SCIPY),
    "torchsde": Suite("0.2.6", "tests", ("trampoline", *SCIPY)),
    "transitions": Suite("0.9.3", "tests", ("six",)),
    "trio": Suite("0.35.0", "trio", (*TRIO[1:], "trustme", "cryptography", "cffi", "pycparser"), sources=False),
    "typeguard": Suite("4.6.0", "tests"),
    "uncertainties": Suite("3.2.3", "tests"),
    "unfoldNd": Suite("0.2.3", "test"),
    "vit-pytorch": Suite("1.26.11", "tests"),
    "wrapt": Suite("2.5.2", "tests"),
    "xitorch": Suite("0.5.1", "xitorch/_tests", SCIPY),
    "zennit": Suite("0.5.1", "tests"),
    "zuko": Suite("1.6.0", "tests"),
}


# --- what is run --------------------------------------------------------------------------------------------------------------------


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments], check=True, stdout=sys.stderr)


def fetched(folder: Path, requirement: str) -> Path:
    """The folder into which a distribution has been installed, without what it requires."""
    place = folder / "installed" / requirement
    if not place.exists():
        half = place.with_name(f"{place.name}.half")
        pip("install", "--no-deps", "--upgrade", "--target", str(half), requirement)
        half.rename(place)
    return place


def sources(folder: Path, requirement: str) -> Path:
    """The folder of a source distribution, unpacked."""
    place = folder / "sources" / requirement
    if not place.exists():
        half = place.with_name(f"{place.name}.half")
        pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(half), requirement)
        [archive] = half.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(half, filter="data")
        archive.unlink()
        [unpacked] = half.iterdir()
        unpacked.rename(place)
        half.rmdir()
    return place


@dataclass(frozen=True)
class Prepared:
    """A suite on this machine: where pytest runs, what it is given, and what can be imported."""

    folder: Path
    tests: Path
    path: tuple[Path, ...]
    suite: Suite

    @staticmethod
    def of(name: str, folder: Path) -> Prepared:
        suite = SUITES[name]
        requirement = f"{name}=={suite.version}"
        installed = [fetched(folder, each) for each in (requirement, *suite.needs)]
        source = sources(folder, requirement) if suite.sources else installed[0]
        inside = installed[0] / suite.tests  # tests that are installed are imported from there
        return Prepared(source, inside if inside.exists() else source / suite.tests, (*installed, source), suite)


# --- one process --------------------------------------------------------------------------------------------------------------------


def one_process(suite: Prepared, how: str, skipped: set[str], arguments: Any, until: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What the lines of one process say; a crash or a hang of a test is an outcome of it and the end."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "pytest.ini"
        empty.write_text("[pytest]\n")
        path = [*map(str, suite.path), os.environ.get("PYTHONPATH", ""), str(HERE)]
        environment = {"OPMILL_CACHE_DIR": f"{folder}/cache", **os.environ, **suite.suite.environment}
        environment |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "1"}
        options = ["-q", "-p", "foreign_plugin", "-p", "no:cacheprovider", "-c", str(empty), f"--rootdir={suite.folder}"]
        wanted = " and ".join(f"({each})" for each in (suite.suite.meant, arguments.tests) if each)
        options += ["--continue-on-collection-errors", "-k", wanted]

        def start(write: int) -> tuple[list[str], dict[str, str]]:
            request = {"how": how, "backend": arguments.backend, "limit": arguments.limit if how != "plain" else arguments.limit / 4}
            request |= {
                "skipped": sorted(skipped),
                "take": arguments.take,
                "channel": write,
                "compilers": suite.suite.compilers,
                "missing": suite.suite.missing,
            }
            command = [sys.executable, "-m", "pytest", *options, str(suite.tests)]
            return command, {**environment, "OPMILL_FOREIGN": json.dumps(request)}

        running = ""
        with telling(start, folder) as process:
            while True:
                limit = min(2 * arguments.limit if running else 300, max(1, until - time.monotonic()))
                try:
                    told = process.next(limit)
                except EOFError:
                    yield "crashed", running, {"text": f"exit status {process.process.wait()}\n{process.noise(4000)}"}
                    return
                if told is None:
                    if time.monotonic() < until:  # else it is not the test that took so long
                        yield "hung", running, {"text": f"no end within {limit:.0f} s"}
                    return
                kind, test, details = told
                if kind == "end":
                    if arguments.verbose:
                        process.process.wait()
                        print(process.noise(6000), file=sys.stderr)
                    return
                running = test if kind == "started" else ""
                if kind == "not collected":
                    print(f"{test} cannot be collected: {details['text'].strip().splitlines()[-1]}", file=sys.stderr)
                elif kind != "started":
                    yield kind, test, details


def outcomes(suite: Prepared, how: str, arguments: Any, skipped: set[str] = frozenset()) -> dict[str, tuple[str, dict[str, Any]]]:  # type: ignore[assignment]
    """Test -> (outcome, details), in as many processes as it takes."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    until = time.monotonic() + arguments.suite_limit
    while time.monotonic() < until:
        before, broken = len(found), False
        for kind, test, details in one_process(suite, how, skipped | set(found), arguments, until):
            found[test or "the process"] = (kind, details)
            broken = kind in ("crashed", "hung")
        if not broken or len(found) == before:
            break
    return found


# --- plainly and compiled -----------------------------------------------------------------------------------------------------------


def difference(plain: dict[str, Any], kind: str, compiled: dict[str, Any]) -> list[tuple[str, str]]:
    """(What differs, text) of a test that passes plainly."""
    if kind != PASSED:
        return [(kind, compiled["text"])]
    ours = [text for text in compiled["warned"] if text not in plain["warned"]]
    found = [("warned", text) for text in ours if not text.startswith(("OpmillWarning", "CaptureWarning", "GraphWarning"))]
    found += [("not warned", text) for text in plain["warned"] if text not in compiled["warned"]]
    found += [("fell back", text) for text in ours if "Warning: GI0" in text or "Warning: OM0" in text]
    return found + [("internal error", text) for text in compiled["told"]]


def compare(name: str, arguments: Any) -> dict[str, Any]:
    suite, start = Prepared.of(name, arguments.folder), time.monotonic()
    plain = outcomes(suite, "plain", arguments)
    passing = {test: details for test, (kind, details) in plain.items() if kind == PASSED}
    compiled = outcomes(suite, arguments.how, arguments, set(plain) - set(passing))
    found: dict[str, list[tuple[str, str]]] = {}
    counted: collections.Counter[str] = collections.Counter()
    for test, details in passing.items():
        kind, ours = compiled.get(test, ("not run", {"text": "the suite's time was over"}))
        counted.update({key: int(count) for key, count in ours.get("counted", {}).items()})
        if found_here := difference(details, kind, ours):
            found[test] = found_here
    if "the process" in compiled:
        found["the process"] = [(compiled["the process"][0], compiled["the process"][1]["text"])]
    kinds = collections.Counter(kind for kind, _ in plain.values())
    seconds = round(time.monotonic() - start)
    return {"suite": name, "plain": len(passing), "kinds": kinds, "found": found, "counted": counted, "seconds": seconds}


def shown(result: dict[str, Any]) -> Iterator[str]:
    kinds = collections.Counter(kind for each in result["found"].values() for kind, _ in each)
    passed = result["plain"] - sum(each[0][0] in BROKEN for each in result["found"].values())
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    made = ", ".join(f"{count} {kind}" for kind, count in result["counted"].items())
    yield f"{result['suite']:28} {passed:4} of {result['plain']:4} {result['seconds']:5} s  ({made})  {told}"
    alike: dict[tuple[str, str], list[str]] = {}
    for test, each in result["found"].items():
        for kind, text in each:
            alike.setdefault((kind, (text.strip().splitlines() or [""])[-1][:200]), []).append(test)
    for (kind, text), tests in alike.items():
        yield f"    {kind:14} {text}\n{'':19}{len(set(tests))} tests: {', '.join([*dict.fromkeys(tests)][:3])}"


BROKEN = ("failed", "skipped", "slow", "crashed", "hung", "not run", "expected failure")


def main() -> int:
    text = (__doc__ or "").replace("{hows}", "; ".join(f"{how}: {what}" for how, what in HOWS.items()))
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help=", ".join(SUITES))
    parser.add_argument("--how", choices=HOWS, default="modules")
    parser.add_argument("--backend", default="opmill")
    parser.add_argument("--take", type=int, default=150, help="tests of a suite")
    parser.add_argument("--tests", default="", help="only tests that pytest -k finds by this")
    parser.add_argument("--limit", type=float, default=60, help="seconds one test may take compiled; plainly a quarter of it")
    parser.add_argument("--suite-limit", type=float, default=1800, help="seconds one suite may take, plainly and compiled each")
    parser.add_argument("--folder", type=Path, default=Path("build/foreign"), help="where distributions are kept")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--floor", type=float, default=98.0)
    parser.add_argument("--verbose", action="store_true", help="show what pytest says")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    results = []
    for name in arguments.suites or SUITES:
        try:
            result = compare(name, arguments)
        except subprocess.CalledProcessError as error:
            print(f"{name:28} cannot be had: {error}", flush=True)
            continue
        results.append(result)
        print("\n".join(shown(result)), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))
    plain = sum(result["plain"] for result in results)
    failed = sum(each[0][0] in BROKEN for result in results for each in result["found"].values())
    share = 100 * (plain - failed) / max(plain, 1)
    print(f"{plain - failed} of {plain} tests ({share:.2f}%) of {len(results)} suites pass compiled")
    return int(share < arguments.floor)


if __name__ == "__main__":
    sys.exit(main())
