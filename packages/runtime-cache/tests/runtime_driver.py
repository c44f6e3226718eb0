"""A GPU driver for tests that has no GPU: a library with the driver's functions whose kernels are C functions, run at once on the CPU.

A kernel's machine code is ``fake:`` and the path of a shared object. What is asked of the driver is written down, a line a call.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.launch import Arg, Form, LaunchData
from opmill_runtime_cache.plan.launch import Step as LaunchStep
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.plan.sealed import seal
from opmill_runtime_cache.store import Store, key_of

DRIVER = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <string>
static std::string history;
static std::mutex guard;
static void* current = nullptr;
static int contexts[8];
static int fail_with = 0;
static void note(const char* format, ...) {
  char line[512];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  std::lock_guard<std::mutex> lock(guard);
  history += line;
  history += '\n';
}
static int watch(unsigned, unsigned, unsigned, void** p) {
  int32_t* word = *(int32_t**)p[0];
  if (*word) { **(int32_t**)p[1] = *word; note("trap"); }
  return 0;
}
extern "C" {
const char* fake_history() { return history.c_str(); }
void fake_forget() { history.clear(); }
void fake_fail(int code) { fail_with = code; }
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* out) { *out = 12030; return 0; }
int cuDeviceGetAttribute(int* out, int attribute, int) { *out = attribute == 88; return 0; }  // it reaches memory of the CPU
int cuDeviceGet(int* out, int device) { *out = device; return 0; }
int cuDevicePrimaryCtxRetain(void** out, int device) { note("context %d", device); *out = &contexts[device]; return 0; }
int cuCtxGetCurrent(void** out) { *out = current; return 0; }
int cuCtxPushCurrent_v2(void* context) { note("push"); current = context; return 0; }
int cuCtxPopCurrent_v2(void** out) { note("pop"); *out = current; current = nullptr; return 0; }
int cuModuleLoadData(void** module, const void* image) {
  const char* text = (const char*)image;
  if (strstr(text, ".version")) { note("load watch"); *module = (void*)1; return 0; }
  if (strncmp(text, "fake:", 5)) { note("refused"); return 200; }
  note("load");
  *module = dlopen(std::string(text + 5).c_str(), RTLD_NOW);
  return *module ? 0 : 209;
}
int cuModuleGetFunction(void** out, void* module, const char* name) {
  *out = module == (void*)1 ? (void*)watch : dlsym(module, name);
  return *out ? 0 : 500;
}
int cuFuncSetAttribute(void*, int attribute, int value) { note("attribute %d %d", attribute, value); return 0; }
struct Attribute { int id, unused, value; char rest[60]; };
struct Config { unsigned x, y, z, a, b, c, shared; void* stream; Attribute* attributes; unsigned count; };
int cuLaunchKernelEx(const Config* config, void* f, void** p, void**) {
  if (fail_with) return fail_with;
  if (config->b != 1 || config->c != 1 || config->count > 1 || !current) return 1;
  if (config->count) note("attribute %d is %d", config->attributes->id, config->attributes->value);
  if (f != (void*)watch) note(config->y == 1 && config->z == 1 ? "launch %u %u %u stream %ld" : "launch %u %u %u stream %ld over %u %u", config->x, config->a, config->shared, (long)config->stream, config->y, config->z);
  return ((int (*)(unsigned, unsigned, unsigned, void**))f)(config->x, config->a, config->shared, p);
}
int cuMemAlloc_v2(uint64_t* out, size_t bytes) { *out = (uint64_t)malloc(bytes); return 0; }
int cuMemFree_v2(uint64_t p) { free((void*)p); return 0; }
int cuMemsetD32_v2(uint64_t p, unsigned value, size_t count) { for (size_t i = 0; i < count; i++) ((uint32_t*)p)[i] = value; return 0; }
int cuMemHostAlloc(void** out, size_t bytes, unsigned) { *out = malloc(bytes); return 0; }
int cuMemHostGetDevicePointer_v2(uint64_t* out, void* p, unsigned) { *out = (uint64_t)p; return 0; }
int cuMemFreeHost(void* p) { free(p); return 0; }
int cuGetErrorName(int code, const char** out) { *out = code == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : "CUDA_ERROR_OTHER"; return 0; }
int cuGetErrorString(int, const char** out) { *out = "made up"; return 0; }
int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** out) { *out = (void*)(long)(100 + device); return 0; }
}
"""

KERNELS = r"""
#include <cstdint>
template <class T> static T& at(void** p, int i) { return *(T*)p[i]; }
extern "C" {
int twice(unsigned grid, unsigned, unsigned, void** p) {  // (in, out, n): out = 2 * in, 16 elements a program
  float *in = at<float*>(p, 0), *out = at<float*>(p, 1);
  for (int64_t i = 0; i < 16 * (int64_t)grid && i < at<int32_t>(p, 2); i++) out[i] = 2 * in[i];
  return at<void*>(p, 3) || at<void*>(p, 4);  // the two pointers that Triton's kernels take last
}
int twice_wide(unsigned grid, unsigned threads, unsigned shared, void** p) {
  int32_t n = (int32_t)at<int64_t>(p, 2);
  void* parameters[] = {p[0], p[1], &n, p[3], p[4]};
  return twice(grid, threads, shared, parameters);
}
int store(unsigned, unsigned, unsigned, void** p) {  // (in, scratch): scratch[0] = the sum of four
  float* in = at<float*>(p, 0);
  at<float*>(p, 1)[0] = in[0] + in[1] + in[2] + in[3];
  return 0;
}
int fetch(unsigned, unsigned, unsigned, void** p) { at<float*>(p, 1)[0] = at<float*>(p, 0)[0]; return 0; }
int positive(unsigned, unsigned, unsigned, void** p) {  // (in, error, check): fails on negative numbers
  int32_t* error = at<int32_t*>(p, 1);
  if (*error == 0 && at<float*>(p, 0)[0] < 0) *error = at<int32_t>(p, 2);
  return 0;
}
int many(unsigned, unsigned, unsigned, void** p) {  // 80 inputs, out: their sum
  float sum = 0;
  for (int i = 0; i < 80; i++) sum += *at<float*>(p, i);
  *at<float*>(p, 80) = sum;
  return 0;
}
}
"""


DOUBLED = (Touched("float32", False, "n"), Touched("float32", True, "n"))
"""What most kernels here touch: n elements that they read, and n that they write."""


class FakeDriver:
    """The library in this process. ``path`` is what the executor is told to load."""

    def __init__(self, path: Path, kernels: Path) -> None:
        self.path, self.image = str(path), b"fake:" + str(kernels).encode() + b"\0"
        self.library = ctypes.CDLL(self.path, mode=ctypes.RTLD_GLOBAL)
        self.library.fake_history.restype = ctypes.c_char_p

    def history(self) -> list[str]:
        """What was asked since the last time."""
        lines = self.library.fake_history().decode().splitlines()
        self.library.fake_forget()
        return lines

    def fail(self, code: int) -> None:
        """Launches fail with this code from now on; 0: they work."""
        self.library.fake_fail(code)

    def form(self, entry: str, **facts: object) -> Form:
        return Form(**{"offset": 0, "size": len(self.image), "entry": entry, "warps": 4, "shared": 0, **facts})  # type: ignore[arg-type]

    def kernel(
        self, store: Store, *steps: LaunchStep, image: bytes | None = None, buffers: Sequence[Touched] = DOUBLED, **facts: object
    ) -> KernelRef:
        """A kernel of these launches on these buffers, put into the store."""
        data = LaunchData(**{"arch": 90, "sizes": (), "steps": steps, **facts})  # type: ignore[arg-type]
        contract = Contract(data.sizes, tuple(buffers), data.checks)
        artifact = seal(data, contract, self.image if image is None else image)
        key = key_of(artifact)
        store.put("cuda-cubin", key, artifact)
        return KernelRef("cubin", "cuda-cubin", key, "k")


__all__ = ["Arg", "DOUBLED", "DRIVER", "FakeDriver", "KERNELS", "LaunchStep"]
