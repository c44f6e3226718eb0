"""Processes that measure, one thing each, and say what they found as a line of JSON; processes that tell what they come to, line by line;
and processes that run one script together. What they find is a table."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_REASON = 300
"""Characters."""
_ENDS_WITH_PARENT = 1


def measured(command: Sequence[str], timeout: float, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The last line of JSON that the command prints; ``{"failed": why, "stderr": its last lines}`` where it gives none within ``timeout``
    seconds, or fails."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"no result after {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
        return {"failed": reason[-1][:_REASON], "stderr": "\n".join(reason[-40:])}
    return dict(json.loads(lines[-1]))


def caches(folder: str | Path) -> dict[str, str]:
    """This process's environment with the caches of both compilers in the folder."""
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "OPMILL_CACHE_DIR": f"{folder}/opmill"}


def table_line(values: Iterable[object], form: str = "") -> str:
    """A row of a table in Markdown; ``form`` is that of floats."""
    return "| " + " | ".join(format(value, form) if isinstance(value, float) else str(value) for value in values) + " |"


def table_head(columns: Collection[str]) -> str:
    return f"{table_line(columns)}\n{'|---' * len(columns)}|"


class Telling:
    """A process that writes lines of JSON into a pipe. What it writes elsewhere is kept aside."""

    def __init__(self, process: subprocess.Popen[bytes], lines: IO[str], noise: IO[bytes]) -> None:
        self.process, self._lines, self._noise = process, lines, noise

    def next(self, limit: float) -> Any:
        """The next line's value; None where none comes within ``limit`` seconds. Raises EOFError where no more will come."""
        if not select.select([self._lines.fileno()], [], [], limit)[0]:
            return None
        line = self._lines.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def noise(self, most: int) -> str:
        """The end of what it has written elsewhere."""
        self._noise.seek(0)
        return self._noise.read()[-most:].decode(errors="replace")


@contextlib.contextmanager
def telling(start: Callable[[int], tuple[Sequence[str], Mapping[str, str]]], folder: str | None = None) -> Iterator[Telling]:
    """A process that is ended with the block. ``start``: its command and environment, given the descriptor that it writes lines to;
    ``folder``: where it runs."""
    read, write = os.pipe()
    with os.fdopen(read) as lines, tempfile.TemporaryFile() as noise:
        try:
            command, environment = start(write)
            process = subprocess.Popen(
                command, pass_fds=[write], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=noise, stderr=noise
            )
        finally:
            os.close(write)
        try:
            yield Telling(process, lines, noise)
        finally:
            process.kill()
            process.wait()


class Ended(RuntimeError):
    """Processes that ran together ended with other exit codes than they should have; says which, and the end of what they wrote."""


def together(
    program: Path,
    folder: Path,
    *arguments: str,
    size: int = 2,
    backend: str = "gloo",
    limit: float = 300,
    codes: Sequence[int] = (),
) -> list[str]:
    """What ``python PROGRAM RANK SIZE STORE ARGUMENTS`` prints on each rank; ``folder`` is for the store that joins them and for opmill's
    cache, unless the environment names one. All are ended after ``limit`` seconds. Raises subprocess.TimeoutExpired then, and `Ended`
    where one ends with another code than that of ``codes``, 0 where there are none."""
    environment = {"OPMILL_CACHE_DIR": str(folder / "cache"), **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if backend == "gloo":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # models are on the processor, and torch would place fully sharded parameters on GPUs
    commands = [[sys.executable, str(program), str(rank), str(size), str(folder / "store"), *arguments] for rank in range(size)]
    running = [subprocess.Popen(c, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        said = [process.communicate(timeout=limit) for process in running]
    finally:
        for process in running:
            process.kill()
    if [process.returncode for process in running] != list(codes or [0] * size):
        raise Ended("\n".join(f"exit code {p.returncode}: {err[-2000:]}" for p, (_, err) in zip(running, said, strict=True)))
    return [out for out, _ in said]


def launched() -> bool:
    """Joins the processes that torchrun has started, where it has: over NCCL with a GPU each, where there are as many, else over Gloo."""
    import torch
    import torch.distributed as dist

    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return False
    with contextlib.suppress(AttributeError):  # Linux: end with torchrun, which gives each process a session of its own
        ctypes.CDLL(None).prctl(_ENDS_WITH_PARENT, signal.SIGKILL)
    own = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if own:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if own else "gloo")
    return True


def place() -> torch.device:
    """Where the tensors of this process are: on its GPU where the group's backend is NCCL."""
    import torch
    import torch.distributed as dist

    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
