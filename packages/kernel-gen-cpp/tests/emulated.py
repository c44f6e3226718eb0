"""Kernels for another processor, built by a cross compiler and run under emulation, with the interface of ``debug.Runner``.

One process runs one kernel: a small program for that processor reads a job, calls the kernel, and writes back what the buffers hold."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from opmill_graph_ir.loops.ir import LoopKernel
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.emit import isa
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.target import NEON
from opmill_runtime_cache.store import Store

COMPILER, EMULATOR, LIBRARIES = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"

# A job: the library's path and the kernel's name, each ended by a zero; how many sizes, and these; how many buffers, and for each
# its bytes as a number and in full. Every buffer ends where a page begins that nobody may touch. What comes out: what the kernel returned,
# then each buffer.
PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static char* text(FILE* in) { static char all[2][4096]; static int k; char* to = all[k++]; int n = 0; while ((to[n++] = fgetc(in)) > 0); return to; }
static long number(FILE* in) { long n; if (fread(&n, 8, 1, in) != 1) exit(3); return n; }
int main(int, char** given) {
  FILE* in = fopen(given[1], "rb");
  char *path = text(in), *name = text(in);
  static long sizes[64], bytes[4096];
  static void* buffers[4096];
  const long count = number(in);
  for (long k = 0; k < count; ++k) sizes[k] = number(in);
  const long many = number(in), page = 65536;
  for (long k = 0; k < many; ++k) {
    bytes[k] = number(in);
    const long room = (bytes[k] + page - 1) / page * page;
    char* memory = (char*)mmap(0, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + room, page, PROT_NONE);
    buffers[k] = memory + room - bytes[k];
    if (bytes[k] && fread(buffers[k], bytes[k], 1, in) != 1) return 4;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { fputs(dlerror(), stderr); return 5; }
  const long code = ((long (*)(void* const*, const long*))dlsym(library, name))(buffers, sizes);
  FILE* out = fopen(given[2], "wb");
  fwrite(&code, 8, 1, out);
  for (long k = 0; k < many; ++k) if (bytes[k]) fwrite(buffers[k], bytes[k], 1, out);
  return fclose(out);
}
"""


def missing() -> str | None:
    """What this machine lacks to run them; None where it has all."""
    return next((f"no {name}" for name in (COMPILER, EMULATOR) if shutil.which(name) is None), None)


def required() -> None:
    """Skips the test where something is missing, but where all is said to be there."""
    if (lack := missing()) is not None:
        assert "OPMILL_TEST_EMULATED" not in os.environ, lack
        pytest.skip(lack)


def _vector_functions() -> str:
    """What kernels take from torch's library, by libm: its vector functions, one lane after the other."""
    texts = ["#include <math.h>", *(f"typedef {c} {v} __attribute__((vector_size(16)));" for c, v in (("float", "f4"), ("double", "d2")))]
    for name, accuracy in isa.SLEEF_ULP.items():
        for vector, lanes, letter, suffix in (("f4", 4, "f", "f"), ("d2", 2, "d", "")):
            parameters = "xy" if name in isa.BINARY else "x"
            declared, called = (", ".join(form.format(p, v=vector) for p in parameters) for form in ("{v} {0}", "{0}[l]"))
            texts.append(
                f'extern "C" {vector} Sleef_{name}{letter}{lanes}_{accuracy}{NEON.sleef}({declared}) '
                f"{{ {vector} r; for (int l = 0; l < {lanes}; ++l) r[l] = ::{name}{suffix}({called}); return r; }}"
            )
    return "\n".join(texts)


class EmulatedRunner(Runner):
    """Kernels built for ``NEON`` together; ``run`` runs one, under emulation."""

    def __init__(self, kernels: Sequence[LoopKernel], store: Store, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", COMPILER)
            super().__init__(kernels, store, CppKernelGenerator(NEON))
        self.folder = folder
        self._build("runner", PROGRAM, "-rdynamic", "-Wl,--no-as-needed", "-lm", "-lgomp", "-ldl")
        self._build("libtorch_cpu.so", _vector_functions(), "-shared", "-fPIC", "-lm")

    def _build(self, name: str, source: str, *flags: str) -> None:
        text = self.folder / f"{name}.cpp"
        text.write_text(source)
        subprocess.run([COMPILER, "-O1", "-w", str(text), "-o", str(self.folder / name), *flags], check=True, timeout=120)

    def run(self, kernel: LoopKernel, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> int:
        ref = self.by_kernel[kernel]
        tensors = [buffers[b.name] for b in kernel.buffers]
        held = [bytes(t.untyped_storage()) for t in tensors]
        job, result = self.folder / "job", self.folder / "result"
        parts = [
            f"{self.store.path(ref.artifact_kind, ref.key)}\0{ref.entry}\0".encode(),
            struct.pack(f"<{len(sizes) + 1}q", len(sizes), *sizes),
        ]
        parts += [struct.pack("<q", len(tensors)), *(part for data in held for part in (struct.pack("<q", len(data)), data))]
        job.write_bytes(b"".join(parts))
        libraries = f"LD_LIBRARY_PATH={self.folder}"
        command = [
            EMULATOR,
            "-L",
            LIBRARIES,
            "-E",
            libraries,
            "-E",
            "OMP_NUM_THREADS=2",
            str(self.folder / "runner"),
            str(job),
            str(result),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{ref.entry}: exit status {done.returncode}: {done.stderr}"
        data = result.read_bytes()
        at = 8
        for tensor, old in zip(tensors, held, strict=True):
            fresh = torch.frombuffer(bytearray(data[at : at + len(old)]), dtype=torch.uint8) if old else torch.empty(0, dtype=torch.uint8)
            torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).copy_(fresh)
            at += len(old)
        return int(struct.unpack_from("<q", data)[0])
