"""A compiler process: reads jobs, a JSON object a line, from its standard input; writes for each a line of JSON, then the cubin's bytes.

It ends when its parent does (end of input; at work, by watching for it) and after a while without work. Imports neither torch
nor opmill packages beside this file's own, so that it starts fast. Nothing is kept on disk: the store is the only cache.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

IDLE_S = 120.0
_WATCH_S = 1.0


def compile_job(job: dict[str, Any], folder: Path) -> tuple[dict[str, Any], bytes]:
    """The cubin of a job, and what is known of it. A job: ``text``, ``name``, ``signature`` (argument: Triton type), ``constants``,
    ``aligned`` (positions of pointers that are multiples of 16 bytes), ``arch``, ``warps``, ``stages``, ``contracts``."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = folder / f"{job['name']}.py"
    path.write_text(job["text"])
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    attributes = {(k,): [["tt.divisibility", 16]] for k in job["aligned"]}
    signature = {**job["signature"], **dict.fromkeys(job["constants"], "constexpr")}
    source = ASTSource(getattr(module, job["name"]), signature, job["constants"], attributes)
    options = {"num_warps": job["warps"], "num_stages": job["stages"], "enable_fp_fusion": job["contracts"]}
    made = triton.compile(source, target=GPUTarget("cuda", job["arch"], 32), options=options)
    meta = made.metadata
    facts = {
        "entry": meta.name,
        "warps": meta.num_warps,
        "shared": meta.shared,
        "scratch": getattr(meta, "global_scratch_size", 0) or 0,
        "profile": getattr(meta, "profile_scratch_size", 0) or 0,
    }
    return facts, made.asm["cubin"]


def _answer(line: bytes, folder: Path, out: BinaryIO) -> None:
    try:
        facts, cubin = compile_job(json.loads(line), folder)
    except BaseException as error:  # whatever went wrong belongs to this job
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        facts, cubin = {"error": f"{type(error).__name__}: {error}"[:8000]}, b""
    out.write(json.dumps({**facts, "bytes": len(cubin)}).encode() + b"\n" + cubin)
    out.flush()


def _watch(parent: int) -> None:
    """Leaves once the parent is gone. Linux's own signal for that would come when the thread ends that started this process."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def main() -> None:
    """Serves jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compilers print must not get between answers
    with tempfile.TemporaryDirectory(prefix="opmill-triton-") as folder:
        os.environ.update(TRITON_CACHE_DIR=folder, TRITON_DISABLE_LINE_INFO="1", TRITON_INTERPRET="0")
        source = sys.stdin.buffer.fileno()
        pending = b""
        while select.select([source], [], [], IDLE_S)[0]:
            data = os.read(source, 1 << 16)
            if not data:
                return
            pending += data
            while b"\n" in pending:
                line, _, pending = pending.partition(b"\n")
                _answer(line, Path(folder), out)


if __name__ == "__main__":
    main()
