"""The system's C++ compiler: found, identified, run."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import BuildProgress

BASE_FLAGS = (
    "-std=c++17", "-O2", "-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize", "-shared", "-fPIC", "-fwrapv", "-fno-math-errno",
    "-ffp-contract=off", "-w",
)  # fmt: skip
"""No -ffast-math: NaN, infinities and signed zero keep their meaning. -fwrapv: integers wrap as torch's do. Vectors are written out here;
GCC 12 adds up the wrong elements where it makes vectors of a sum over short rows that are read backwards, and lanes that it finds to be
truths become -1 where it puts them together (x // x of integers). No -fno-trapping-math: GCC 12
then truncates floats that become integers and floats again, and -0.3 is a negative zero."""
CAREFUL_FLAGS = ("-O1",)
"""Added where the compiler itself fails: its bugs are mostly those of a pass that it then leaves out (GCC 12's loop vectoriser on some
masks)."""
LINK_FLAGS = ("-nostdlib", "-Wl,--hash-style=gnu", "-lgcc")
"""Everything a kernel calls (libm, OpenMP) is already in the process, but for conversions that the processor lacks (libgcc)."""
STUB = "libtorch_cpu.so"
TIMEOUT_S = 300
_LACKING = ("out of memory", "memory exhausted", "Cannot allocate memory", "Killed", "No space left on device", "temporarily unavailable")
"""What a compiler says that the machine cannot do at the moment: no fault of the source."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler: its command, and the text by which it is known in keys."""

    command: tuple[str, ...]
    version: str

    def compile(self, source: str, flags: tuple[str, ...], sleef: bool = False, where: Path | None = None) -> bytes:
        """The shared object made of ``source``, in a folder of its own in ``where`` (None: the system's temporary folder). Raises
        KernelBuildError with what the compiler said."""
        with tempfile.TemporaryDirectory(prefix="opmill-cpp-", dir=where) as folder:
            text, out = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
            text.write_text(source)
            link = list(LINK_FLAGS)
            if sleef:
                link += ["-Wl,--no-as-needed", str(self._stub(folder))]
            for more in ((), CAREFUL_FLAGS):
                try:
                    self._run([*self.command, *BASE_FLAGS, *flags, *more, str(text), "-o", str(out), *link], folder)
                    break
                except KernelBuildError as error:
                    if more or "internal compiler error" not in str(error):
                        raise
            return out.read_bytes()

    def _stub(self, folder: str) -> Path:
        """An empty library of libtorch_cpu's name: linking it is fast, and at run time the name finds the library that is loaded."""
        empty, stub = Path(folder, "stub.cpp"), Path(folder, STUB)
        empty.write_text("")
        self._run([*self.command, "-shared", "-nostdlib", f"-Wl,-soname,{STUB}", str(empty), "-o", str(stub)], folder)
        return stub

    def _run(self, command: list[str], folder: str) -> None:
        environment = {**os.environ, "TMPDIR": folder}  # the compiler's own files lie with ours, and go with them
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KernelBuildError("KC002", "the C++ compiler could not be run", where=shlex.join(command[:1]), why=str(error)) from error
        if done.returncode < 0 or (done.returncode and any(text in done.stderr for text in _LACKING)):
            lacking = OSError(errno.ENOMEM, done.stderr.strip()[:400] or f"ended by signal {-done.returncode}")
            raise KernelBuildError(
                "KC002", "the C++ compiler could not be run", where=shlex.join(command[:1]), why=str(lacking)
            ) from lacking
        if done.returncode:
            raise KernelBuildError(
                "KC001",
                "the C++ compiler refused a generated kernel",
                where=shlex.join(command),
                why=done.stderr.strip()[:4000] or f"exit status {done.returncode}",
                hint="this is a bug of the generator, or a compiler older than GCC 12; set CXX to another compiler",
            )

    def compile_all(
        self, jobs: list[tuple[str, tuple[str, ...], bool]], workers: int, where: Path | None = None, progress: BuildProgress | None = None
    ) -> list[bytes]:
        """Compiles several sources at once, in order of ``jobs``: (source, flags, needs Sleef). Each is as many pieces of ``progress`` as
        it has characters."""

        def made(job: tuple[str, tuple[str, ...], bool]) -> bytes:
            source, flags, sleef = job
            try:
                return self.compile(source, flags, sleef, where)
            finally:
                if progress is not None:
                    progress.add(len(source))

        if progress is not None:
            progress.begin(sum(len(source) for source, _, _ in jobs))

        if len(jobs) == 1:
            return [made(jobs[0])]
        with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            return list(pool.map(made, jobs))


@lru_cache(maxsize=8)
def _identify(command: tuple[str, ...], path: str, stamp: tuple[int, int]) -> str:
    """The compiler's first line about itself; asked again when the file at ``path`` changes, and where it could not be run."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else f"!exit status {done.returncode}"


def located() -> tuple[tuple[str, ...], str] | str:
    """The compiler's command and where it is: ``CXX``, else g++, else clang++; or why there is none."""
    wanted = os.environ.get("CXX")
    for text in [wanted] if wanted else ["g++", "clang++"]:
        command = tuple(shlex.split(text or ""))
        path = shutil.which(command[0]) if command else None
        if path is not None:
            return command, path
    return f"no C++ compiler: {wanted or 'neither g++ nor clang++'} is not on the path"


def find() -> Toolchain | str:
    """The compiler that is there and says what it is (it is run for that), or why there is none. Raises KernelBuildError (KC002) where it
    cannot be run at all, which may pass."""
    found = located()
    if isinstance(found, str):
        return found
    command, path = found
    try:
        info = os.stat(path)
        version = _identify(command, path, (info.st_mtime_ns, info.st_size))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelBuildError("KC002", "the C++ compiler could not be run", where=shlex.join(command), why=str(error)) from error
    return (
        Toolchain(command, version)
        if not version.startswith("!")
        else f"the C++ compiler {shlex.join(command)} does not run: {version[1:]}"
    )
