"""Kernels for tests, in C++."""

import json

from opmill_runtime_cache.plan.contract import Contract, Touched, encode
from opmill_runtime_cache.plan.model import KernelRef, Size
from opmill_runtime_cache.store import key_of

_SOURCE = r"""
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
// Writes 1 and waits for another thread to answer 2, a long time at most. It is long before it asks: a plan that was quick once, because the
// answer was, keeps the GIL when it runs again.
int64_t answered(void* const* p, const int64_t*) {
  volatile float* flag = (volatile float*)p[0];
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 1000000);
  *flag = 1;
  for (const time_t begun = time(nullptr); *flag != 2 && time(nullptr) < begun + 60;) sched_yield();
  return *flag == 2 ? 0 : 1;
}
int64_t checked(void* const* p, const int64_t* n) {  // fails with check 2 on a negative number
  for (int64_t i = 0; i < n[0]; i++) if (((float*)p[0])[i] < 0) return 2;
  return 0;
}
int64_t picked(void* const* p, const int64_t* n) {  // out = a[at], the places checked before any is used
  const int64_t *a = (const int64_t*)p[0], *at = (const int64_t*)p[1];
  int64_t* out = (int64_t*)p[2];
  for (int64_t i = 0; i < n[0]; i++) if (at[i] < 0 || at[i] >= n[0]) return 1;
  for (int64_t i = 0; i < n[0]; i++) out[i] = a[at[i]];
  return 0;
}
}
"""


def contracts(**of: Contract) -> str:
    """C++ that exports what each kernel touches."""
    return "".join(
        f'extern "C" {{ extern const char {n}_contract[]; const char {n}_contract[] = {json.dumps(encode(c))}; }}\n' for n, c in of.items()
    )


def floats(*written: bool, numel: Size = "n") -> tuple[Touched, ...]:
    return tuple(Touched("float32", each, numel) for each in written)


KERNELS = _SOURCE + contracts(
    add=Contract(("n",), floats(False, False, True)),
    affine=Contract(("n", "factor"), floats(False, True)),
    answered=Contract((), floats(True, numel=1), 1),
    checked=Contract(("n",), floats(False), 2),
    picked=Contract(("n",), tuple(Touched("int64", written, "n") for written in (False, False, True)), 1, 0, ((2, 1, True),)),
)


def kernel(entry: str) -> KernelRef:
    """A kernel of the fixture's library."""
    return KernelRef("cpu", "cpu-so", key_of(KERNELS), entry)
