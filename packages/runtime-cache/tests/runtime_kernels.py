"""Kernels for tests, in C++."""

from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import key_of

KERNELS = r"""
#include <cstdint>
#include <sched.h>
#include <time.h>
extern "C" {
int64_t add(void* const* p, const int64_t* n) {  // out = a + b
  const float *a = (const float*)p[0], *b = (const float*)p[1];
  float* out = (float*)p[2];
  for (int64_t i = 0; i < n[0]; i++) out[i] = a[i] + b[i];
  return 0;
}
int64_t affine(void* const* p, const int64_t* n) {  // out = a * n[1] + 1; a may be out
  const float* a = (const float*)p[0];
  float* out = (float*)p[1];
  for (int64_t i = 0; i < n[0]; i++) out[i] = a[i] * (float)n[1] + 1;
  return 0;
}
int64_t answered(void* const* p, const int64_t*) {  // writes 1 and waits for another thread to answer 2, a long time at most
  volatile float* flag = (volatile float*)p[0];
  *flag = 1;
  for (const time_t begun = time(nullptr); *flag != 2 && time(nullptr) < begun + 60;) sched_yield();
  return *flag == 2 ? 0 : 1;
}
int64_t checked(void* const* p, const int64_t* n) {  // fails with check 2 on a negative number
  for (int64_t i = 0; i < n[0]; i++) if (((float*)p[0])[i] < 0) return 2;
  return 0;
}
}
"""


def kernel(entry: str) -> KernelRef:
    """A kernel of the fixture's library."""
    return KernelRef("cpu", "cpu-so", key_of(KERNELS), entry)
