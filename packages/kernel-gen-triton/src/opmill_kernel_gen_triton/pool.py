"""Compiler processes: as many as there is work for, kept warm between builds, gone when this process is."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import BuildProgress
from opmill_runtime_cache.forking import ForkLock


@dataclass(frozen=True)
class Compiled:
    """A cubin and what Triton says of it (``entry``, ``warps``, ``shared``, ``scratch``, ``profile``)."""

    cubin: bytes
    facts: dict[str, Any]


class Pool:
    """Runs :mod:`.worker` processes. Safe for several threads; closed when it is collected, and at exit."""

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self.progress = BuildProgress()
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._all: list[subprocess.Popen[bytes]] = []
        self._guard = ForkLock()
        self._owner = os.getpid()
        self._close = weakref.finalize(self, _close_all, self._all, self._owner)

    def compile_all(self, jobs: Sequence[dict[str, Any]]) -> list[Compiled]:
        """Compiles several jobs at once, in order. Raises KernelBuildError with the compiler's message."""
        if os.getpid() != self._owner:  # after a fork, the processes belong to the parent
            return Pool(self.limit).compile_all(jobs)
        self.progress.begin(len(jobs))
        if len(jobs) <= 1:
            return [self._counted(job) for job in jobs]
        with ThreadPoolExecutor(min(self.limit, len(jobs))) as threads:
            return list(threads.map(self._counted, jobs))

    def _counted(self, job: dict[str, Any]) -> Compiled:
        try:
            return self._compile(job)
        finally:
            self.progress.add()

    def close(self) -> None:
        """Ends the processes."""
        self._close()

    def _compile(self, job: dict[str, Any]) -> Compiled:
        for attempt in (0, 1):
            process = self._take()
            try:
                done = _ask(process, job)
            except (OSError, ValueError) as error:  # it ended meanwhile: idle for too long, or killed
                _end(process)
                with self._guard:
                    self._all.remove(process)
                if attempt:
                    raise KernelBuildError("KT002", "a compiler process ended unexpectedly", where=job["name"], why=str(error)) from error
                continue
            self._idle.put(process)
            if "error" in done.facts:
                raise KernelBuildError(
                    "KT003",
                    "Triton refused a generated kernel",
                    where=f"{job['name']}\n{job['text']}",
                    why=done.facts["error"],
                    hint="this is a bug of the generator, or a version of triton it does not know",
                )
            return done
        raise AssertionError

    def _take(self) -> subprocess.Popen[bytes]:
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                break
            if process.poll() is None:
                return process
            with self._guard:
                self._all.remove(process)
        command = [sys.executable, "-m", f"{__package__}.worker"]
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        with self._guard:
            self._all.append(process)
        return process


def _ask(process: subprocess.Popen[bytes], job: dict[str, Any]) -> Compiled:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise OSError(f"exit status {process.poll()}")
    facts = json.loads(line)
    cubin = process.stdout.read(facts["bytes"])
    if len(cubin) != facts["bytes"]:
        raise OSError("its answer was cut short")
    return Compiled(cubin, facts)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass
    process.terminate()
    process.wait()


def _close_all(processes: list[subprocess.Popen[bytes]], owner: int) -> None:
    if os.getpid() == owner:
        for process in processes:
            _end(process)
        processes.clear()
