"""Sharing a nest's outer points among torch's own OpenMP threads.

Nothing is linked: the two OpenMP entries are weak symbols that resolve to the runtime that torch has loaded (any OpenMP runtime has
them), and where there is none the nest runs on the calling thread. ``torch.set_num_threads`` and regions already parallel are obeyed.
"""

from __future__ import annotations

GRAIN = 4 * 32768
"""Work (about operations, four a point at least) below which another thread is not worth waking: torch's own figure, 32768 points."""

PRELUDE = """extern "C" __attribute__((weak)) int omp_get_max_threads();
extern "C" __attribute__((weak)) int omp_in_parallel();
extern "C" __attribute__((weak)) int omp_get_thread_num();
extern "C" __attribute__((weak)) int omp_get_num_threads();
extern "C" __attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
typedef long (*nest)(void* const* p, const long* s, long from, long to);
struct shared_nest { nest run; void* const* p; const long* s; long count; long failed; };
static void run_share(void* data) {
  shared_nest* const n = (shared_nest*)data;
  const long threads = omp_get_num_threads(), me = omp_get_thread_num();
  const long share = n->count / threads, rest = n->count % threads;
  const long from = me * share + (me < rest ? me : rest), to = from + share + (me < rest);
  if (from < to) if (const long failed = n->run(n->p, n->s, from, to)) __atomic_store_n(&n->failed, failed, __ATOMIC_RELAXED);
}
static long run_nest(nest run, void* const* p, const long* s, long count, long worth) {
  long threads = worth < count ? worth : count;
  if (threads > 1 && GOMP_parallel && omp_get_max_threads && !omp_in_parallel()) {
    const long most = omp_get_max_threads();
    threads = threads < most ? threads : most;
    if (threads > 1) {
      shared_nest n = {run, p, s, count, 0};
      GOMP_parallel(run_share, &n, (unsigned)threads, 0);
      return n.failed;
    }
  }
  return run(p, s, 0, count);
}"""
