// GPU kernels through the driver API, found at run time: nothing of CUDA is needed to build or to import this package.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout.h"

namespace opmill {

// Makes a device's context current where another one is, or none (in a thread that has not used CUDA yet), until it goes.
class CudaContext {
 public:
  CudaContext(int device, std::string* problem);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

 private:
  bool pushed_ = false;
};

// One compiled form of a kernel (`plan/launch.py`, Form): loaded once a process and device, however many programs name it.
struct CudaFunction;

// What a launch needs of it. `image` is borrowed and must live until the first launch is done.
struct CudaForm {
  CudaFunction* function = nullptr;
  int warps = 1, shared = 0, align = 1, index_bits = 32;
  std::vector<int> fits;  // values that must be below `limit`
  int64_t limit = 0;
  bool waits = false;
};

struct CudaArg {
  CudaArgKind kind;
  int index = -1;  // of a buffer in the launch's slots, of a size in its values
  int value = -1;  // of scratch: where it starts, a value; of a word: it itself
};

struct CudaLaunch {
  std::vector<int> grid;  // three values
  std::vector<CudaArg> args;
  std::vector<CudaForm> forms;
};

// Finds libcuda, and in `torch_library` (libtorch_cuda, already loaded) torch's current stream; the reason why not, or "".
std::string load_cuda(const char* driver, const char* torch_library);
bool cuda_reaches_host();  // whether the first device's kernels may be given any memory of this process
void* cuda_library();  // libtorch_cuda, or nullptr
void* cuda_driver();   // libcuda, or nullptr

CudaFunction* cuda_function(const std::string& name, const char* image, size_t bytes, const std::string& entry, int shared, int device);

// torch's current stream of a device.
void* cuda_stream(int device);

// Programs along each dimension.
struct CudaGrid {
  int64_t x = 1, y = 1, z = 1;
};

// Starts `grid` programs of `threads` threads with `parameters`; what went wrong, or "". The device's context is current meanwhile. `waits`: the
// kernel itself waits for what is before it in the stream, and its programs may be there before that is done.
std::string cuda_launch(CudaFunction* function, CudaGrid grid, int threads, int shared, void* stream, void** parameters,
                        bool waits = false);

// The word that kernels put failed checks into, of one executable on one device. `word` is device memory and 0 until then; once it is not, the
// watch that runs behind the kernels copies it to `seen`, which the host reads without waiting, and stops the device, as a failed
// assertion of torch's own kernels does: nothing that was computed from unchecked indices can be read.
struct CudaAlarm {
  void* word = nullptr;
  volatile int32_t* seen = nullptr;
  std::string make(int device);
  std::string watch(void* stream);
  ~CudaAlarm();

 private:
  void* seen_on_device_ = nullptr;
  CudaFunction* function_ = nullptr;
  int device_ = -1;
};

}  // namespace opmill
