// Operators that start a kernel or two and allocate little but their results (attention): started from a recording, which keeps the results. Torch's
// operator takes 12 to 20 us on the host, its kernel 3.
#include <dlfcn.h>

#include "running.h"

namespace opmill {

namespace {

constexpr double kMoment = 20;  // microseconds
constexpr int64_t kMostBytes = 8 << 20;  // kept for one call: above that the kernel takes longer than the operator takes on the host

// Makes a stream torch's current one, until it goes.
class CurrentStream {
 public:
  CurrentStream(void* stream, int device) {
    using Make = Status (*)(void*, int32_t, void**);
    static const auto make =
        reinterpret_cast<Make>(cuda_library() ? dlsym(cuda_library(), "aoti_torch_create_cuda_stream_guard") : nullptr);
    if (!make || make(stream, device, &guard_)) guard_ = nullptr;
  }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;
  ~CurrentStream() {
    using Drop = Status (*)(void*);
    static const auto drop =
        reinterpret_cast<Drop>(cuda_library() ? dlsym(cuda_library(), "aoti_torch_delete_cuda_stream_guard") : nullptr);
    if (guard_ && drop) drop(guard_);
  }
  bool made() const { return guard_; }

 private:
  void* guard_ = nullptr;
};

// What was asked of torch's allocator on a device so far: blocks and bytes, -1 where it does not tell. The GIL is held.
struct Asked {
  int64_t blocks = -1, bytes = -1;
};

Asked asked_of_torch(int device) {
  Asked asked;
  if (PyObject* module = PyImport_ImportModule("opmill_runtime_cache.devices.cuda.kernel")) {
    if (PyObject* pair = PyObject_CallMethod(module, "given_out", "i", device)) {
      int64_t blocks = 0, bytes = 0;
      if (PyArg_ParseTuple(pair, "ll", &blocks, &bytes)) asked = {blocks, bytes};
      Py_DECREF(pair);
    }
    Py_DECREF(module);
  }
  PyErr_Clear();
  return asked;
}

// Bytes that a tensor on a GPU asked for; 0 for none.
int64_t bytes_of(Handle tensor) {
  int64_t bytes = 0;
  int32_t device = kCpu;
  const bool defined = tensor && *reinterpret_cast<void**>(tensor) != *reinterpret_cast<void**>(undefined_tensor());
  if (!defined || api.get_device_type(tensor, &device) || device != kCuda || api.get_storage_size(tensor, &bytes)) return 0;
  return bytes;
}

}  // namespace

// Whether the call was made from a recording; then `done` says whether it succeeded.
bool Run::replay(int number, bool* done) {
  const CallInfo& call = program_.calls[number];
  if (captured_ < 0) captured_ = is_captured(stream_);  // a graph would use the results after the recording is gone
  if (captured_) return false;
  int64_t bytes = 0;
  for (int slot : call.results)
    if (slot >= 0) {
      if (program_.slots[slot].late || cuda_index(program_.slots[slot].device) != program_.cuda) return false;
      bytes += span_of(instance_.sizes[slot], instance_.strides[slot]) * dtype_bytes[program_.slots[slot].dtype];
    }
  if (!bytes || bytes > kMostBytes) return false;
  Recordings::Addresses addresses = {stream_};
  for (size_t i = 0; i < call.tensors.size(); i++) addresses[i + 1] = slots_[call.tensors[i]].data;
  Recordings& recordings = instance_.recordings[number];
  Recordings::Entry* entry = recordings.find(addresses);
  std::string problem;
  CudaContext context(program_.cuda, &problem);
  if (!entry || !problem.empty()) return false;
  if (!entry->recorded && (!recordings.due(*entry, stream_) || !record(call, *entry))) return false;
  *done = entry->recorded->start(stream_) || fail(nullptr, "RC048", "the kernel of " + call.name + " cannot be started");
  for (size_t i = 0; i < call.results.size(); i++) {
    const int slot = call.results[i];
    if (slot < 0) continue;
    slots_[slot] = SlotState{};
    slots_[slot].handle = entry->results()[i];
    slots_[slot].dtype = program_.slots[slot].dtype;
    api.get_data_ptr(entry->results()[i], &slots_[slot].data);
  }
  return true;
}

// What is recorded of `issue`. The driver refuses to wait for a whole device while anything on it is recorded, and a thread that asks for that then is
// told so. Threads of Python cannot ask while the GIL is held here, and one that gave it up to do so has begun to wait a moment later, which is no harm.
std::unique_ptr<Recorded> Run::recorded(const Recorded::Issue& issue) {
  const bool was_released = released_ != nullptr;
  hold_gil();
  for (const double begin = now_us(); now_us() < begin + kMoment;) continue;
  std::unique_ptr<Recorded> made = Recorded::of(program_.cuda, stream_, issue);
  if (was_released) released_ = PyEval_SaveThread();
  return made;
}

// What the kernels of a recording use must stay ours as long as it does: the results, and at most one block that the operator gave back, which is
// taken again here. That it is the same one shows in that the operator filled a part of it.
bool Run::record(const CallInfo& call, Recordings::Entry& entry) {
  std::vector<Handle> tensors(slots_.size()), results;
  for (int slot : call.tensors) tensors[slot] = slots_[slot].handle;
  const CellSource source{tensors.data(), instance_.values.data()};
  const bool was_released = released_ != nullptr;
  hold_gil();
  const Asked before = asked_of_torch(program_.cuda);
  entry.recorded = recorded([&](void* stream) {
    const CurrentStream current(stream, program_.cuda);
    return current.made() && call.shim.invoke(call.shim.function, call.cells, source, &results) == 0;
  });
  const Asked after = asked_of_torch(program_.cuda);
  if (was_released) released_ = PyEval_SaveThread();
  for (size_t i = 0; i < call.returns.size() && i < results.size(); i++)
    if (call.returns[i] == kIntegerResult) results[i] = nullptr;
  int64_t blocks = after.blocks - before.blocks, rest = after.bytes - before.bytes, kept = rest, one = 1;
  for (Handle result : results)
    if (const int64_t own = bytes_of(result)) blocks--, rest -= own;
  bool fits = entry.recorded && before.blocks >= 0 && blocks == (rest ? 1 : 0) && rest >= 0 && rest <= kMostBytes &&
              results.size() == call.results.size();
  if (fits && rest) {
    const CurrentStream current(entry.recorded->stream(), program_.cuda);
    Handle again = nullptr;
    void* data = nullptr;
    fits = current.made() && api.empty_strided(1, &rest, &one, dtype_code[1], kCuda, program_.cuda, &again) == 0 &&
           api.get_data_ptr(again, &data) == 0;
    fits = fits && entry.recorded->fills(data, static_cast<size_t>(rest));
    results.push_back(again);
  }
  for (size_t i = 0; fits && i < call.results.size(); i++) fits = call.results[i] < 0 || differs(call.results[i], results[i]).empty();
  if (!entry.keep(std::move(results), kept) || !fits) entry.drop();
  return entry.recorded != nullptr;
}

}  // namespace opmill
