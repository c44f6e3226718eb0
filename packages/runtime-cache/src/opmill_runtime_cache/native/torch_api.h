// The C interface of torch, found by name at run time: no torch header is needed to build, and any torch that
// exports these symbols serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace opmill {

struct AtenTensor;
using Handle = AtenTensor*;  // points to an at::Tensor
using Status = int32_t;      // 0 is success

struct TorchApi {
  void* library = nullptr;  // libtorch_cpu, for further look-ups

  // Required.
  Status (*get_data_ptr)(Handle, void**);
  Status (*get_dim)(Handle, int64_t*);
  Status (*get_sizes)(Handle, int64_t**);
  Status (*get_strides)(Handle, int64_t**);
  Status (*get_size)(Handle, int64_t, int64_t*);
  Status (*get_dtype)(Handle, int32_t*);
  Status (*get_device_type)(Handle, int32_t*);
  Status (*get_device_index)(Handle, int32_t*);
  Status (*get_storage_offset)(Handle, int64_t*);
  Status (*get_storage_size)(Handle, int64_t*);
  Status (*empty_strided)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, Handle*);
  Status (*from_blob)(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, Handle*);
  Status (*reinterpret)(Handle, int64_t, const int64_t*, const int64_t*, int64_t, Handle*);
  Status (*view_dtype)(Handle, int32_t, Handle*);
  Status (*clone)(Handle, Handle*);
  Status (*new_handle)(Handle, Handle*);
  Status (*delete_handle)(Handle);
  bool (*grad_enabled)();
  void (*set_grad_enabled)(bool);
  Status (*call_dispatcher)(const char*, const char*, uint64_t*, uint64_t);
  Status (*new_list)(size_t, void**);
  Status (*list_push)(void*, uint64_t);
  Status (*list_size)(void*, size_t*);
  Status (*list_get)(void*, size_t, uint64_t*);
  Status (*delete_list)(void*);
  Status (*get_num_threads)(uint32_t*);
  Status (*item)(Handle, int64_t*);  // waits for the device
  uint64_t (*abi_version)();

  // Optional.
  Status (*new_string)(const char*, size_t, void**) = nullptr;
  Status (*new_stable_value)(uint64_t**) = nullptr;  // absent before torch 2.13: plain operator new
  void (*bump_version)(Handle) = nullptr;  // throws: `count_write`
  int64_t (*version)(Handle) = nullptr;  // how often it was written to; throws for a tensor of inference mode
  bool (*requires_grad)(const void*) = nullptr;  // of a TensorImpl
  Status (*new_undefined)(Handle*) = nullptr;  // a tensor that is none
  bool (*profiler_enabled)() = nullptr;  // on this thread
  Status (*record_start)(const char*, void*, void* const*, uint64_t, void**) = nullptr;  // name, named values, values, count -> record
  Status (*record_end)(void*) = nullptr;
  Status (*tensor_value)(Handle, void**) = nullptr;
  Status (*delete_value)(void*) = nullptr;

  void (*listen)(void*) = nullptr;  // torch::PyWarningHandler, made in `Warnings::room_`
  void (*listened)(void*) = nullptr;  // its end; throws where a warning is an error

  void* (*wrap)(Handle) = nullptr;  // THPVariable_Wrap(const at::TensorBase&) -> new reference
  void* tensor_type = nullptr;      // of Python, borrowed: what a tensor is an instance of
  const void* plain = nullptr;      // `kind_of_implementation` of tensors that hold their elements themselves
  int64_t word = 0;                 // index of the word of a Python tensor that is its at::Tensor
};

extern TorchApi api;

// Fills `api`; returns the name of a missing symbol, or nullptr.
const char* load_torch(const char* libtorch_cpu, const char* libtorch_python);

// Codes of element types in the order of `plan.model.DTYPES`.
constexpr int kDtypes = 17;
extern int32_t dtype_code[kDtypes];  // torch's number
extern const int64_t dtype_bytes[kDtypes];
constexpr int kFloat16 = 9, kBfloat16 = 10;
int dtype_index(int32_t code);  // -1 for one that plans do not know

constexpr int32_t kCpu = 0, kCuda = 1;  // torch's numbers of device types

// A device is torch's number of its type above its index; -1 is the host, and -2 one that only the tensor itself tells (devices/protocol.py).
inline int32_t device_type(int device) { return device < 0 ? kCpu : device >> 8; }
inline int32_t device_index(int device) { return device < 0 ? 0 : device & 0xff; }
inline int cuda_index(int device) { return device_type(device) == kCuda ? device_index(device) : -1; }

// Warnings of operators that this thread calls in the meantime become Python's, as where Python calls them; without it they go to stderr.
class Warnings {
 public:
  Warnings();
  ~Warnings() { give(); }
  bool give();  // false: one of them is an error, and Python's exception is set. Takes the GIL where there are any.

 private:
  bool listens_ = false;
  alignas(16) char room_[256];  // more than torch's object takes
};

// Counts a write to a tensor, for autograd; what torch says where it refuses one (of inference mode, outside of it), else nothing.
std::string count_write(Handle tensor);

// The same for tensors whose implementations are of one C++ class: the word that its virtual functions are found by.
inline const void* kind_of_implementation(Handle tensor) { return **reinterpret_cast<const void* const* const*>(tensor); }

inline Handle handle_of(void* object) { return reinterpret_cast<Handle>(static_cast<void**>(object) + api.word); }

}  // namespace opmill
