"""compute-sanitizer over the kernels of the shared case table: out-of-bounds accesses (memcheck) and races in shared memory (racecheck).

``python benchmarks/gpu_sanitize.py FOLDER`` builds the cubins once (which needs no GPU), then starts a few sanitized processes, each with a
part of the cases. Such a process has neither torch nor Triton in it: what it loads of them would be watched as well, and takes minutes.
Every buffer is an allocation of its own of exactly its size, and every compiled form of a kernel that may run is run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("memcheck", "racecheck")
OPTIONS = {"memcheck": ["--leak-check", "no"], "racecheck": ["--racecheck-report", "analysis"]}


# ---- building, without a GPU -----------------------------------------------------------------------------------------------


def build(folder: Path, arch: int, pattern: str, every: int) -> Path:
    """Compiles all cases and writes what a launch of each needs; the file."""
    from opmill_graph_ir.errors import KernelBuildError
    from opmill_graph_ir.generator.protocol import GeneratorOptions
    from opmill_graph_ir.loops.cases import cases
    from opmill_kernel_gen_triton.generator import ARTIFACT, TritonKernelGenerator
    from opmill_runtime_cache.plan.sealed import unseal
    from opmill_runtime_cache.store import Store

    store, generator = Store(folder / "store"), TritonKernelGenerator(arch)
    options = GeneratorOptions("cuda:0")
    chosen = [c for c in cases() if re.search(pattern, c.name) and generator.claims(c.kernel, options) is None]
    chosen = chosen[::every]
    try:
        refs = generator.build([c.kernel for c in chosen], options, store)
    except KernelBuildError as error:
        sys.exit(f"some kernels could not be built: {error}")
    jobs = []
    for case, ref in zip(chosen, refs, strict=True):
        data, _, cubins = unseal(store.get(ARTIFACT, ref.key))
        jobs.append(_job(case, cubins, data))
    path = folder / "jobs.pickle"
    path.write_bytes(pickle.dumps(jobs))
    return path


def _job(case: Any, artifact: bytes, data: Any) -> dict[str, Any]:
    from opmill_runtime_cache.plan.expr import evaluate

    values = dict(zip(data.sizes, case.sizes, strict=True))

    def number(size: Any) -> int:
        return int(evaluate(size, values))

    steps = []
    for step in data.steps:
        forms = [
            (artifact[f.offset : f.offset + f.size], f.entry, f.warps, f.shared, f.index_bits)
            for f in step.forms
            if all(number(s) < f.limit for s in f.fits)
        ]
        args = [
            (a.kind, number(a.value) if a.kind == "scratch" else case.sizes[a.index] if a.kind == "size" else a.index) for a in step.args
        ]
        steps.append({"grid": number(step.grid), "args": args, "forms": forms})
    buffers = [_bytes(t) for t in case.buffers().values()]
    return {
        "name": case.name,
        "buffers": buffers,
        "steps": steps,
        "scratch": number(data.scratch),
        "checks": data.checks,
        "expect": case.expect,
    }


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(-1).untyped_storage()) if tensor.numel() else b""


# ---- running, in a sanitized process ---------------------------------------------------------------------------------------


class Driver:
    """The few functions of the driver that a launch takes. Errors end the process: the sanitizer has said more about them."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self("cuCtxSetCurrent", self.context)

    def __call__(self, name: str, *args: Any) -> None:
        code = getattr(self.library, name)(*args)
        if code:
            print(f"FAILED {name}: error {code}", flush=True)
            sys.exit(3)

    def memory(self, size: int, data: bytes = b"") -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        if data:
            self("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))
        return pointer

    def launch(self, form: Any, grid: int, words: list[int]) -> None:
        cubin, entry, warps, shared, _ = form
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), cubin)
        self("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        if shared > 48 << 10:
            self("cuFuncSetAttribute", function, 8, shared)
        values = [ctypes.c_uint64(word & (1 << 64) - 1) for word in (*words, 0, 0)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        self("cuLaunchKernel", function, grid, 1, 1, 32 * warps, 1, 1, shared, None, pointers, None)
        self("cuCtxSynchronize")
        self("cuModuleUnload", module)


def run_part(path: Path, part: int, parts: int, shared_only: bool) -> None:
    """Every form of every ``parts``-th case, each with fresh contents."""
    driver = Driver()
    ran = 0
    for job in pickle.loads(path.read_bytes())[part::parts]:
        for k in range(max(len(s["forms"]) for s in job["steps"])):
            forms = [s["forms"][min(k, len(s["forms"]) - 1)] for s in job["steps"]]
            if shared_only and not any(form[3] for form in forms):
                continue
            print(f"CASE {job['name']} form {k}", flush=True)
            buffers = [driver.memory(len(data), data) for data in job["buffers"]]
            scratch, error = driver.memory(job["scratch"]), driver.memory(4, b"\0" * 4)
            given = {"buffer": lambda v: buffers[v].value, "scratch": lambda v: scratch.value + v, "size": lambda v: v}
            given |= {"error": lambda v: error.value, "check": lambda v: job["checks"]}
            for step, form in zip(job["steps"], forms, strict=True):
                if step["grid"] > 0:
                    driver.launch(form, step["grid"], [given[kind](value) for kind, value in step["args"]])
            for pointer in (*buffers, scratch, error):
                driver("cuMemFree_v2", pointer)
            ran += 1
    print(f"RAN {ran}", flush=True)


# ---- starting them ---------------------------------------------------------------------------------------------------------


def sanitize(path: Path, tool: str, parts: int, limit: float, out: Path) -> dict[str, Any]:
    program = shutil.which("compute-sanitizer")
    if program is None:
        sys.exit("compute-sanitizer is not installed")
    begin = time.perf_counter()
    running = []
    for part in range(parts):
        command = [
            program,
            "--tool",
            tool,
            *OPTIONS[tool],
            "--error-exitcode",
            "9",
            sys.executable,
            __file__,
            "--part",
            f"{part}/{parts}",
            str(path),
        ]
        log = (out / f"{tool}{part}.log").open("w")
        running.append(
            subprocess.Popen([*command, *(["--shared-only"] if tool == "racecheck" else [])], stdout=log, stderr=subprocess.STDOUT)
        )
    found: dict[str, Any] = {"tool": tool, "launches": 0, "cases": [], "codes": []}
    for part, process in enumerate(running):
        try:
            process.wait(max(1.0, limit - (time.perf_counter() - begin)))
        except subprocess.TimeoutExpired:
            process.kill()
        found["codes"].append(process.poll())
        text = (out / f"{tool}{part}.log").read_text(errors="replace")
        found["launches"] += text.count("CASE ")
        found["cases"] += [
            block.split("\n", 1)[0]
            for block in text.split("CASE ")[1:]
            if "========= " in block.replace("ERROR SUMMARY: 0", "").split("RAN")[0]
        ]
    found["seconds"] = round(time.perf_counter() - begin, 1)
    found["clean"] = found["codes"] == [0] * parts and not found["cases"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for cubins and logs")
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--only", default="", help="cases whose names match")
    parser.add_argument("--every", type=int, default=1, help="every so manieth case")
    parser.add_argument("--parts", type=int, default=8, help="sanitized processes at a time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each tool")
    parser.add_argument("--tools", nargs="*", default=TOOLS, choices=(*TOOLS, "none"))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--shared-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, parts = map(int, options.part.split("/"))
        return run_part(options.folder, part, parts, options.shared_only)
    options.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    path = options.folder / "jobs.pickle"
    if not path.exists():
        path = build(options.folder, options.arch, options.only, options.every)
    print(f"built in {time.perf_counter() - begin:.1f} s", flush=True)
    found = [sanitize(path, tool, options.parts, options.limit, options.folder) for tool in options.tools if tool != "none"]
    print(json.dumps(found))
    (options.folder / "sanitize.json").write_text(json.dumps(found, indent=1))
    sys.exit(any(not each["clean"] for each in found))


if __name__ == "__main__":
    main()
