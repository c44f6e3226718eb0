// Preloaded into a process (LD_PRELOAD): allocations fail from the nth on, for a while. Counted are those of the whole process, or
// those that opmill's own libraries and kernels ask for. What ends the process by a signal is told first, frame by frame.

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

volatile int armed = 0;
int own_only = 0, told_to = 2;
long counted = 0, first = 0, behind = 0;

bool is_own(void* caller) {
  dl_find_object found;  // dladdr would look through all of torch's symbols
  return _dl_find_object(caller, &found) == 0 && strstr(found.dlfo_link_map->l_name, "opmill");
}

bool fails(void* caller) {
  if (!armed || (own_only && !is_own(caller))) return false;
  const long n = __atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
  if (n < first || n >= behind) return false;
  errno = ENOMEM;
  return true;
}

void tell(int number) {
  void* frames[48];
  const int count = backtrace(frames, 48);
  backtrace_symbols_fd(frames, count, told_to);
  signal(number, SIG_DFL);
  raise(number);
}

void* asked_of_new(size_t size, size_t alignment, void* caller) {
  void* made = fails(caller) ? nullptr : alignment ? __libc_memalign(alignment, size ? size : 1) : __libc_malloc(size ? size : 1);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void faults_arm(long at, long length, int own, int to) {
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs while there is memory
  counted = 0, first = at, behind = at + length, own_only = own, told_to = to;
  for (int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) signal(number, tell);
  armed = 1;
}

long faults_disarm(void) {
  armed = 0;
  return counted;
}

void* malloc(size_t size) { return fails(CALLER) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(CALLER) ? nullptr : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails(CALLER) ? nullptr : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return fails(CALLER) ? nullptr : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return fails(CALLER) ? nullptr : __libc_memalign(alignment, size); }

int posix_memalign(void** to, size_t alignment, size_t size) {
  void* made = fails(CALLER) ? nullptr : __libc_memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *to = made;
  return 0;
}

void* mmap(void* at, size_t length, int protection, int flags, int file, off_t offset) {
  if (fails(CALLER)) return reinterpret_cast<void*>(-1);
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, length, protection, flags, file, offset));
}
void* mmap64(void* at, size_t length, int protection, int flags, int file, off_t offset) {
  if (fails(CALLER)) return reinterpret_cast<void*>(-1);
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, length, protection, flags, file, offset));
}
}

void* operator new(size_t size) { return asked_of_new(size, 0, CALLER); }
void* operator new[](size_t size) { return asked_of_new(size, 0, CALLER); }
void* operator new(size_t size, std::align_val_t by) { return asked_of_new(size, static_cast<size_t>(by), CALLER); }
void* operator new[](size_t size, std::align_val_t by) { return asked_of_new(size, static_cast<size_t>(by), CALLER); }
