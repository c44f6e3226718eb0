#include "cuda.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "symbols.h"

namespace opmill {

namespace {

using Result = int;  // CUresult
using Context = void*;

constexpr int kPageableMemoryAccess = 88;    // CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
constexpr int kMaxDynamicShared = 8;        // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kWithoutAttribute = 48 << 10;  // dynamic shared memory that every kernel may use
constexpr unsigned kMappedPortable = 3;      // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP

constexpr int kProgrammaticVersion = 12030;  // of the driver: the first that records such launches in graphs

// CUlaunchAttribute, of which one is given.
struct LaunchAttribute {
  int id = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  alignas(8) int allowed = 1;
  char rest[60] = {};
};
static_assert(sizeof(LaunchAttribute) == 72);

// The first fields of CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  Result (*init)(unsigned) = nullptr;
  Result (*version)(int*) = nullptr;
  Result (*device_get)(int*, int) = nullptr;
  Result (*device_attribute)(int*, int, int) = nullptr;
  Result (*primary_retain)(Context*, int) = nullptr;
  Result (*context_current)(Context*) = nullptr;
  Result (*context_push)(Context) = nullptr;
  Result (*context_pop)(Context*) = nullptr;
  Result (*module_load)(void**, const void*) = nullptr;
  Result (*module_function)(void**, void*, const char*) = nullptr;
  Result (*function_attribute)(void*, int, int) = nullptr;
  Result (*launch)(const LaunchConfig*, void*, void**, void**) = nullptr;
  Result (*memory_allocate)(uint64_t*, size_t) = nullptr;
  Result (*memory_free)(uint64_t) = nullptr;
  Result (*memory_set)(uint64_t, unsigned, size_t) = nullptr;
  Result (*host_allocate)(void**, size_t, unsigned) = nullptr;
  Result (*host_pointer)(uint64_t*, void*, unsigned) = nullptr;
  Result (*host_free)(void*) = nullptr;
  Result (*error_name)(Result, const char**) = nullptr;
  Result (*error_text)(Result, const char**) = nullptr;
  bool ready = false, programmatic = false;
} driver;

void *torch_cuda = nullptr, *libcuda = nullptr;
int32_t (*current_stream)(int32_t, void**) = nullptr;
std::mutex mutex;
std::map<int, Context> contexts;

std::string described(const char* what, Result code) {
  const char *name = nullptr, *text = nullptr;
  if (driver.error_name) driver.error_name(code, &name);
  if (driver.error_text) driver.error_text(code, &text);
  return std::string(what) + " failed: " + (name ? name : std::to_string(code)) + (text ? std::string(", ") + text : "");
}

// The context that torch uses on a device, kept for the life of the process; nullptr with `problem` filled.
Context context_of(int device, std::string* problem) {
  if (!driver.ready) return *problem = "the GPU driver is not loaded", nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  Context& context = contexts[device];
  if (context) return context;
  int handle = 0;
  if (Result code = driver.device_get(&handle, device)) *problem = described("cuDeviceGet", code);
  else if (Result failed = driver.primary_retain(&context, handle)) *problem = described("cuDevicePrimaryCtxRetain", failed);
  return context;
}

// Compiled by the driver when first used. Parameters: the word, and where to copy it.
const char* const kWatch = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry opmill_watch(.param .u64 word, .param .u64 seen)
{
  .reg .pred %p;
  .reg .b32 %r;
  .reg .b64 %a, %b;
  ld.param.u64 %a, [word];
  ld.param.u64 %b, [seen];
  cvta.to.global.u64 %a, %a;
  ld.global.b32 %r, [%a];
  setp.eq.s32 %p, %r, 0;
  @%p bra done;
  st.volatile.global.b32 [%b], %r;
  membar.sys;
  trap;
done:
  ret;
}
)";

}  // namespace

CudaContext::CudaContext(int device, std::string* problem) {
  Context wanted = context_of(device, problem), current = nullptr;
  if (!wanted) return;
  driver.context_current(&current);
  if (current == wanted) return;
  if (Result code = driver.context_push(wanted)) *problem = described("cuCtxPushCurrent", code);
  else pushed_ = true;
}

CudaContext::~CudaContext() {
  Context popped = nullptr;
  if (pushed_) driver.context_pop(&popped);
}

struct CudaFunction {
  std::string entry, image;
  int shared = 0, device = 0;
  void* function = nullptr;

  std::string load() {
    std::lock_guard<std::mutex> lock(loading);
    if (function) return "";
    void *module = nullptr, *found = nullptr;
    if (Result code = driver.module_load(&module, image.data())) return described("cuModuleLoadData", code) + " (kernel " + entry + ")";
    if (Result code = driver.module_function(&found, module, entry.c_str()))
      return described("cuModuleGetFunction", code) + " (kernel " + entry + ")";
    if (shared > kWithoutAttribute)
      if (Result code = driver.function_attribute(found, kMaxDynamicShared, shared))
        return described("cuFuncSetAttribute", code) + " (kernel " + entry + ")";
    function = found;
    image.clear();
    image.shrink_to_fit();
    return "";
  }

  std::mutex loading;
};

std::string load_cuda(const char* library, const char* torch_library) {
  if (driver.ready) return "";
  void* cuda = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (!cuda) return std::string("there is no NVIDIA driver (") + library + " cannot be loaded)";
  const char* missing = find_symbols(cuda, {
                                               {&driver.init, "cuInit"},
                                               {&driver.version, "cuDriverGetVersion"},
                                               {&driver.device_get, "cuDeviceGet"},
                                               {&driver.device_attribute, "cuDeviceGetAttribute"},
                                               {&driver.primary_retain, "cuDevicePrimaryCtxRetain"},
                                               {&driver.context_current, "cuCtxGetCurrent"},
                                               {&driver.context_push, "cuCtxPushCurrent_v2"},
                                               {&driver.context_pop, "cuCtxPopCurrent_v2"},
                                               {&driver.module_load, "cuModuleLoadData"},
                                               {&driver.module_function, "cuModuleGetFunction"},
                                               {&driver.function_attribute, "cuFuncSetAttribute"},
                                               {&driver.launch, "cuLaunchKernelEx"},
                                               {&driver.memory_allocate, "cuMemAlloc_v2"},
                                               {&driver.memory_free, "cuMemFree_v2"},
                                               {&driver.memory_set, "cuMemsetD32_v2"},
                                               {&driver.host_allocate, "cuMemHostAlloc"},
                                               {&driver.host_pointer, "cuMemHostGetDevicePointer_v2"},
                                               {&driver.host_free, "cuMemFreeHost"},
                                               {&driver.error_name, "cuGetErrorName"},
                                               {&driver.error_text, "cuGetErrorString"},
                                           });
  if (missing) return std::string("the NVIDIA driver is too old: it has no ") + missing;
  torch_cuda = dlopen(torch_library, RTLD_NOW | RTLD_NOLOAD);
  if (!torch_cuda) return std::string("this torch is built without CUDA (") + torch_library + " is not loaded)";
  *reinterpret_cast<void**>(&current_stream) = dlsym(torch_cuda, "aoti_torch_get_current_cuda_stream");
  if (!current_stream) return "torch does not offer aoti_torch_get_current_cuda_stream to native code";
  if (Result code = driver.init(0)) return described("cuInit", code);
  int version = 0;
  driver.programmatic = driver.version(&version) == 0 && version >= kProgrammaticVersion;
  libcuda = cuda;
  driver.ready = true;
  return "";
}

bool cuda_reaches_host() {
  int device = 0, reaches = 0;
  return driver.ready && !driver.device_get(&device, 0) && !driver.device_attribute(&reaches, kPageableMemoryAccess, device) && reaches;
}

void* cuda_library() { return torch_cuda; }

void* cuda_driver() { return libcuda; }

CudaFunction* cuda_function(const std::string& name, const char* image, size_t bytes, const std::string& entry, int shared, int device) {
  // Never unloaded, as shared objects are not: kernels of a program that is gone may still be running.
  static std::map<std::pair<std::string, int>, std::unique_ptr<CudaFunction>> known;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<CudaFunction>& found = known[{name + "/" + entry, device}];  // a module may hold several functions
  if (!found) {
    found = std::make_unique<CudaFunction>();
    found->entry = entry;
    found->image.assign(image, bytes);
    found->shared = shared;
    found->device = device;
  }
  return found.get();
}

void* cuda_stream(int device) {
  void* stream = nullptr;
  current_stream(device, &stream);
  return stream;
}

std::string cuda_launch(CudaFunction* function, CudaGrid grid, int threads, int shared, void* stream, void** parameters, bool waits) {
  constexpr int64_t kMost = 65535;  // along y and z
  for (const auto& [count, most] : {std::pair{grid.x, static_cast<int64_t>(INT32_MAX)}, std::pair{grid.y, kMost}, std::pair{grid.z, kMost}})
    if (count > most) return "a grid of " + std::to_string(count) + " programs is too large";
  std::string problem;
  CudaContext context(function->device, &problem);
  if (problem.empty() && !function->function) problem = function->load();
  if (!problem.empty()) return problem;
  static const LaunchAttribute early;
  const LaunchConfig config = {static_cast<unsigned>(grid.x),
                               static_cast<unsigned>(grid.y),
                               static_cast<unsigned>(grid.z),
                               static_cast<unsigned>(threads),
                               1,
                               1,
                               static_cast<unsigned>(shared),
                               stream,
                               &early,
                               waits && driver.programmatic};
  const Result code = driver.launch(&config, function->function, parameters, nullptr);
  return code ? described("cuLaunchKernelEx", code) + " (kernel " + function->entry + ")" : "";
}

std::string CudaAlarm::make(int device) {
  std::string problem;
  CudaContext context(device, &problem);
  if (!problem.empty()) return problem;
  uint64_t address = 0, mapped = 0;
  void* host = nullptr;
  if (Result code = driver.memory_allocate(&address, sizeof(int32_t))) return described("cuMemAlloc", code);
  word = reinterpret_cast<void*>(address);
  if (Result code = driver.memory_set(address, 0, 1)) return described("cuMemsetD32", code);
  if (Result code = driver.host_allocate(&host, sizeof(int32_t), kMappedPortable)) return described("cuMemHostAlloc", code);
  std::memset(host, 0, sizeof(int32_t));
  if (Result code = driver.host_pointer(&mapped, host, 0)) return described("cuMemHostGetDevicePointer", code);
  seen = static_cast<volatile int32_t*>(host);
  seen_on_device_ = reinterpret_cast<void*>(mapped);
  device_ = device;
  function_ = cuda_function("opmill_watch", kWatch, std::strlen(kWatch) + 1, "opmill_watch", 0, device);
  return "";
}

std::string CudaAlarm::watch(void* stream) {
  void* parameters[] = {&word, &seen_on_device_};
  return cuda_launch(function_, {}, 1, 0, stream, parameters);
}

CudaAlarm::~CudaAlarm() {
  if (!word || device_ < 0) return;
  std::string problem;
  CudaContext context(device_, &problem);
  if (!problem.empty()) return;
  driver.memory_free(reinterpret_cast<uint64_t>(word));  // waits for what is running
  driver.host_free(const_cast<int32_t*>(seen));
}

}  // namespace opmill
