// What single steps of a program do: kernels, matrix products, torch's operators.
#include "running.h"

#include <algorithm>
#include <set>

#include "bounds.h"
#include "views.h"

namespace opmill {

bool Run::launch(const Step& step) {
  if (step.late && !launch_fits(program_, instance_, step, slots_.data(), &failure)) return false;
  if (!step.apart.empty() && !launch_apart(program_, instance_, step, slots_.data(), &failure)) return false;
  constexpr size_t kRoom = 32;
  void* few_pointers[kRoom];
  int64_t few_sizes[kRoom];
  std::vector<void*> many_pointers;
  std::vector<int64_t> many_sizes;
  void** pointers = few_pointers;
  int64_t* sizes = few_sizes;
  if (step.slots.size() > kRoom) many_pointers.resize(step.slots.size()), pointers = many_pointers.data();
  if (step.values.size() > kRoom) many_sizes.resize(step.values.size()), sizes = many_sizes.data();
  for (size_t i = 0; i < step.slots.size(); i++) pointers[i] = slots_[step.slots[i]].data;
  for (size_t i = 0; i < step.values.size(); i++) sizes[i] = instance_.values[step.values[i]];
  const int64_t failed = step.kernel(pointers, sizes);
  if (failed == 0) {
    for (int slot : step.bumps)
      if (!counted(slot)) return begun = true, false;
    return true;
  }
  if (failed > 0 && failed <= static_cast<int64_t>(step.failures.size()))
    return fail(step.failures[failed - 1].type, "", step.failures[failed - 1].message);
  return fail(PyExc_RuntimeError, "", "kernel returned " + std::to_string(failed));
}

bool Run::launch_cuda(const Step& step) {
  if (step.late && !launch_fits(program_, instance_, step, slots_.data(), &failure)) return false;
  if (!step.apart.empty() && !launch_apart(program_, instance_, step, slots_.data(), &failure)) return false;
  const int64_t bytes = instance_.values[step.b], one = 1;
  Handle block = nullptr;  // back to torch's allocator at the end: what runs after this on the stream may have it
  void* scratch = nullptr;
  if (bytes && (api.empty_strided(1, &bytes, &one, dtype_code[1], step.a < 0 ? kCpu : kCuda, std::max(step.a, 0), &block) ||
                api.get_data_ptr(block, &scratch)))
    return fail(program_.out_of_memory, "", "cannot allocate the " + std::to_string(bytes) + " bytes that a kernel works in");
  bool done = true;
  for (size_t i = 0; i < step.launches.size() && done; i++) done = start(step, step.launches[i], static_cast<char*>(scratch));
  if (block) api.delete_handle(block);
  for (int slot : step.bumps)
    if (!counted(slot)) return begun = true, false;
  return done;
}

bool Run::start(const Step& step, const CudaLaunch& launch, char* scratch) {
  const CudaGrid grid = {instance_.values[launch.grid[0]], instance_.values[launch.grid[1]], instance_.values[launch.grid[2]]};
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return true;
  constexpr size_t kRoom = 64;
  const size_t count = launch.args.size() + 2;  // and two pointers that Triton's kernels take for themselves
  uint64_t few[kRoom], pointers = 0;
  void* few_parameters[kRoom];
  std::vector<uint64_t> many;
  std::vector<void*> many_parameters;
  uint64_t* words = few;
  void** parameters = few_parameters;
  if (count > kRoom) many.resize(count), many_parameters.resize(count), words = many.data(), parameters = many_parameters.data();
  for (size_t i = 0; i < launch.args.size(); i++) {
    const CudaArg& arg = launch.args[i];
    switch (arg.kind) {
      case CudaArgKind::buffer:
        pointers |= words[i] = reinterpret_cast<uint64_t>(slots_[step.slots[arg.index]].data);
        break;
      case CudaArgKind::scratch:
        if (instance_.values[arg.value] < 0 || instance_.values[arg.value] > instance_.values[step.b])
          return fail(nullptr, "RC058", "a kernel's scratch memory ends before what it is given of it");
        words[i] = reinterpret_cast<uint64_t>(scratch) + instance_.values[arg.value];
        break;
      case CudaArgKind::size:
        words[i] = static_cast<uint64_t>(instance_.values[step.values[arg.index]]);
        break;  // its low half is the int32
      case CudaArgKind::error:
        words[i] = reinterpret_cast<uint64_t>(alarm_.word);
        break;
      case CudaArgKind::word:
        words[i] = static_cast<uint64_t>(instance_.values[arg.value]);
        break;
      case CudaArgKind::check:
        words[i] = static_cast<uint64_t>(step.c);
        break;
    }
  }
  words[count - 2] = words[count - 1] = 0;
  for (size_t i = 0; i < count; i++) parameters[i] = &words[i];
  for (const CudaForm& form : launch.forms) {
    bool fits = (pointers & (form.align - 1)) == 0;
    for (size_t i = 0; i < form.fits.size() && fits; i++) fits = instance_.values[form.fits[i]] < form.limit;
    if (!fits) continue;
    void* stream = step.a < 0 || step.a == program_.cuda ? stream_ : cuda_stream(step.a);
    const std::string problem = cuda_launch(form.function, grid, 32 * form.warps, form.shared, stream, parameters, form.waits);
    return problem.empty() || fail(nullptr, "RC048", problem);
  }
  return fail(nullptr, "RC047", "no form of a kernel takes these sizes");
}

bool Run::gemm(const CallInfo& call, const Gemm& gemm) {
  const BlasCall& blas = call.blas;
  run_gemm(gemm, slots_[blas.out].data, blas.bias >= 0 ? slots_[blas.bias].data : nullptr, slots_[blas.a].data, slots_[blas.b].data);
  return written(blas.out);
}

// After a write, as in eager: torch refuses those to tensors made in inference mode, outside of it, once they are done.
bool Run::counted(int slot) {
  const std::string refused = count_write(slots_[slot].handle);
  return refused.empty() || fail(PyExc_RuntimeError, "", refused);
}

bool Run::written(int slot) {
  const int root = program_.slots[slot].root;
  const SlotKind kind = program_.slots[root].kind;
  return (kind != SlotKind::input && kind != SlotKind::held) || counted(root);
}

namespace {

bool aligned(const ProductMemory& memory, const void* a) {
  const uint64_t all = reinterpret_cast<uint64_t>(memory.out) | reinterpret_cast<uint64_t>(memory.bias) |
                       reinterpret_cast<uint64_t>(memory.b) | reinterpret_cast<uint64_t>(a);
  return all % CudaGemm::kAlignment == 0;
}

}  // namespace

bool Run::cuda_gemm(int number) {
  CudaGemm& gemm = *instance_.cuda_gemms[number];
  const CallInfo& call = program_.calls[number];
  const BlasCall& blas = call.blas;
  const ProductMemory memory = {data_of(blas.out), blas.bias >= 0 ? data_of(blas.bias) : nullptr, data_of(blas.b)};
  const void* a = slots_[blas.a].data;
  if (cuda_index(program_.slots[blas.out].device) != program_.cuda || !aligned(memory, a)) return shim_on_blobs(call);
  if (!provide_workspace(gemm)) return false;
  return start_product(number, gemm, memory, a) ? written(blas.out) : shim_on_blobs(call);
}

bool Run::start_product(int number, CudaGemm& gemm, const ProductMemory& memory, const void* a) {
  std::string problem;
  CudaContext context(program_.cuda, &problem);
  if (!problem.empty()) return false;
  const Recordings::Addresses addresses = {&gemm, memory.out, memory.bias, a, memory.b, workspace_data_};
  const auto issue = [&](void* stream) { return gemm.run(memory.out, memory.bias, a, memory.b, workspace_data_, stream); };
  Recordings::Entry* entry = instance_.recordings[number].find(addresses);
  if (entry && !entry->recorded && instance_.recordings[number].due(*entry, stream_)) entry->recorded = recorded(issue);
  return entry && entry->recorded ? entry->recorded->start(stream_) : issue(stream_);
}

// All of them, those at equal distances as one. The calls that follow are done then.
bool Run::cuda_grouped(GroupedGemm& group) {
  std::vector<ProductMemory> memory;
  const void* a = slots_[program_.calls[group.calls[0]].blas.a].data;
  bool fits = program_.cuda == cuda_index(program_.slots[program_.calls[group.calls[0]].blas.out].device);
  for (int number : group.calls) {
    const BlasCall& blas = program_.calls[number].blas;
    memory.push_back({data_of(blas.out), blas.bias >= 0 ? data_of(blas.bias) : nullptr, data_of(blas.b)});
    fits = fits && aligned(memory.back(), a);
  }
  for (size_t i = 0; i < memory.size();) {
    const int number = group.calls[i];
    const EqualRun run = fits ? equal_run(memory, i) : EqualRun{};
    CudaGemm* batch = run.count > 1 ? batch_of(program_, instance_, group, run.distances) : nullptr;
    if (batch && !provide_workspace(*batch)) return false;
    if (batch && start_product(number, *batch, memory[run.backwards ? i + run.count - 1 : i], a)) {
      i += run.count;
      continue;
    }
    if (!cuda_gemm(number)) return false;
    i++;
  }
  ahead_ = group.calls.size() - 1;
  return true;
}

// As much as the largest product of the program wants; batches, which are planned late, may want more.
bool Run::provide_workspace(const CudaGemm& gemm) {
  const size_t bytes = std::max(instance_.workspace, gemm.workspace_bytes());
  if (bytes <= workspace_bytes_) return true;
  if (workspace_) api.delete_handle(workspace_);
  workspace_ = nullptr, workspace_bytes_ = 0;
  const int64_t size = static_cast<int64_t>(bytes), one = 1;
  if (api.empty_strided(1, &size, &one, dtype_code[1], kCuda, program_.cuda, &workspace_) || api.get_data_ptr(workspace_, &workspace_data_))
    return fail(program_.out_of_memory, "", "cannot allocate the " + std::to_string(size) + " bytes that matrix products work in");
  workspace_bytes_ = bytes;
  return true;
}

// Where a tensor begins, also a view of one that the call was given whose step comes later.
char* Run::data_of(int slot) const {
  const SlotInfo& info = program_.slots[slot];
  const SlotKind kind = program_.slots[info.root].kind;
  if (info.kind == SlotKind::view && !info.late && info.dtype >= 0 && (kind == SlotKind::held || kind == SlotKind::input))
    return static_cast<char*>(slots_[info.root].data) + (instance_.span[slot] ? instance_.byte_offset[slot] : 0);
  return static_cast<char*>(slots_[slot].data);
}

// A product by torch's operator, on tensors made for this call alone.
bool Run::shim_on_blobs(const CallInfo& call) {
  std::vector<Handle> tensors(slots_.size()), made, results;
  bool done = true;
  for (int slot : call.tensors) {
    const SlotInfo& info = program_.slots[slot];
    const auto& sizes = instance_.sizes[slot];
    done = done && api.from_blob(data_of(slot), sizes.size(), sizes.data(), instance_.strides[slot].data(), 0, dtype_code[info.dtype],
                                 device_type(info.device), device_index(info.device), &tensors[slot]) == 0;
    if (tensors[slot]) made.push_back(tensors[slot]);
  }
  const CellSource source{tensors.data(), instance_.values.data()};
  if (done && call.route == Route::shim) done = call.shim.invoke(call.shim.function, call.cells, source, &results) == 0;
  else if (done) done = call_dispatcher(call.name.c_str(), call.overload.c_str(), call.cells, call.returns, source, &results);
  for (Handle handle : results) api.delete_handle(handle);
  for (Handle handle : made) api.delete_handle(handle);
  if (!done) return fail(nullptr, "RC045", "torch cannot compute " + call.name + " of tensors that lie so");
  return written(call.blas.out);
}

bool Run::take_results(const CallInfo& call, const std::vector<Handle>& results) {
  const bool none_wanted = call.results.empty();  // an out variant returns what it was given
  if (!none_wanted && results.size() != call.results.size()) {
    for (Handle handle : results) api.delete_handle(handle);
    return fail(nullptr, "RC043",
                call.name + " returned " + std::to_string(results.size()) + " tensors, not " + std::to_string(call.results.size()));
  }
  for (size_t i = 0; i < results.size(); i++) {
    const int slot = none_wanted ? -1 : call.results[i];
    if (slot < 0) {
      if (results[i]) api.delete_handle(results[i]);
      continue;
    }
    if (!results[i]) {
      for (size_t rest = i + 1; rest < results.size(); rest++)
        if (results[rest]) api.delete_handle(results[rest]);
      return fail(nullptr, "RC043", call.name + " returned no tensor for " + program_.labels[slot]);
    }
    own(slot, results[i]);
    const SlotInfo& info = program_.slots[slot];
    if (info.known && ((info.late && !resolve_slot(program_, instance_, slot, &failure)) || !keep_promise(slot))) {
      for (size_t rest = i + 1; rest < results.size(); rest++)
        if (results[rest]) api.delete_handle(results[rest]);
      return false;
    }
    int32_t code = -1;
    int64_t dim = 0;
    if (!program_.slots[slot].wants_data) continue;
    const Handle handle = slots_[slot].handle;
    if (api.get_dim(handle, &dim) == 0 && api.get_dtype(handle, &code) == 0) slots_[slot].dtype = dtype_index(code);
    api.get_data_ptr(handle, &slots_[slot].data);
  }
  return stayed(call);
}

// An operator that writes to a tensor may give it other memory where its sizes do not fit. The plan has pointers into the former one.
bool Run::stayed(const CallInfo& call) {
  for (int slot : call.written) {
    const int root = program_.slots[slot].root;
    void* data = nullptr;
    if (program_.slots[root].kind == SlotKind::arena || !program_.slots[root].wants_data || !slots_[root].handle) continue;
    if (api.get_data_ptr(slots_[root].handle, &data) || data != slots_[root].data)
      return fail(nullptr, "RC045", call.name + " moved the memory of " + program_.labels[slot]);
  }
  return true;
}

// Fake kernels promise strides that real ones do not always keep: what follows relies on the promise, so such a result is copied.
bool Run::keep_promise(int slot) {
  SlotState& state = slots_[slot];
  int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
  const auto &want_sizes = instance_.sizes[slot], &want_strides = instance_.strides[slot];
  const bool strided =
      api.get_dim(state.handle, &dim) == 0 && api.get_sizes(state.handle, &sizes) == 0 && api.get_strides(state.handle, &strides) == 0;
  bool same = strided && dim == static_cast<int64_t>(want_sizes.size()), empty = false;
  for (int64_t i = 0; same && i < dim; i++) same = sizes[i] == want_sizes[i], empty |= sizes[i] == 0;
  if (const std::string difference = differs(slot, state.handle); difference.empty()) return true;
  else if (!same) return fail(nullptr, "RC056", program_.labels[slot] + " is " + difference);
  const SlotInfo& info = program_.slots[slot];
  int32_t code = 0;
  if (api.get_dtype(state.handle, &code) || code != dtype_code[info.dtype])
    return fail(nullptr, "RC056", program_.labels[slot] + " is of another element type than the plan was compiled for");
  Handle copy = nullptr;
  if (api.empty_strided(dim, want_sizes.data(), want_strides.data(), code, device_type(info.device), device_index(info.device), &copy))
    return fail(nullptr, "RC039", "torch cannot allocate " + program_.labels[slot]);
  const std::vector<Cell> cells = {{CellKind::tensor, 0, 0, {}, {}}, {CellKind::tensor, 0, 1, {}, {}}, {CellKind::word, 0, -1, {}, {}}};
  const Handle tensors[2] = {copy, state.handle};
  std::vector<Handle> results;
  const bool copied = call_dispatcher("aten::copy_", "", cells, {0}, {tensors, nullptr}, &results);
  for (Handle handle : results) api.delete_handle(handle);
  if (!copied) {
    api.delete_handle(copy);
    return fail(nullptr, "RC056", program_.labels[slot] + " cannot be copied into the strides that the plan was compiled for");
  }
  api.delete_handle(state.handle);
  state.handle = copy;
  return true;
}

bool Run::call_python(CallInfo& call) {
  const bool was_released = released_ != nullptr;
  hold_gil();
  auto run = [&]() -> bool {
    if (!call.python && !(call.python = PyObject_CallNoArgs(call.make_python))) return false;
    PyObject* arguments = PyTuple_New(call.python_slots.size() + call.python_values.size());
    if (!arguments) return false;
    Py_ssize_t next = 0;
    for (int slot : call.python_slots) {
      PyObject* tensor = slots_[slot].handle ? static_cast<PyObject*>(api.wrap(slots_[slot].handle)) : Py_NewRef(Py_None);
      PyTuple_SET_ITEM(arguments, next++, tensor);
    }
    for (int value : call.python_values) PyTuple_SET_ITEM(arguments, next++, PyLong_FromLongLong(instance_.values[value]));
    Warnings warnings;  // of operators that Python calls by their overloads, too
    PyObject* returned = PyErr_Occurred() ? nullptr : PyObject_CallObject(call.python, arguments);
    Py_DECREF(arguments);
    if (!returned) {
      PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
      PyErr_Fetch(&type, &value, &trace);
      if (!warnings.give()) PyErr_Clear();
      PyErr_Restore(type, value, trace);
      return false;
    }
    if (!warnings.give()) return Py_DECREF(returned), false;
    std::vector<Handle> results;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(returned); i++) {
      Handle copy = nullptr;
      PyObject* tensor = PyTuple_GET_ITEM(returned, i);
      if (PyObject_TypeCheck(tensor, static_cast<PyTypeObject*>(api.tensor_type))) api.new_handle(handle_of(tensor), &copy);
      results.push_back(copy);
    }
    Py_DECREF(returned);
    return take_results(call, results);
  };
  const bool done = run();
  if (!done && !failure.set) failure.set = true;  // the Python exception stands
  if (was_released && done) released_ = PyEval_SaveThread();
  return done;
}

// Whether an operator that does not look itself is told dimensions (its second argument) that its tensor has.
bool Run::has_dimensions(const CallInfo& call) {
  int64_t count = 0;
  if (call.cells.size() < 2 || call.cells[0].kind != CellKind::tensor || call.cells[0].index < 0) return false;
  const Cell& dimensions = call.cells[1];
  if (dimensions.kind != CellKind::list || !slots_[call.cells[0].index].handle) return false;
  if (api.get_dim(slots_[call.cells[0].index].handle, &count)) return false;
  std::set<int64_t> known;
  for (const Cell& each : dimensions.items) {
    const int64_t at = each.kind == CellKind::value ? instance_.values[each.index] : each.word;
    if (at < 0 || at >= count || !known.insert(at).second) return false;
  }
  return true;
}

bool Run::call(int number) {
  CallInfo& call = program_.calls[number];
  if (call.trusts && !has_dimensions(call)) return fail(nullptr, "RC045", call.name + " is told of dimensions that its tensor has not got");
  if (!call.apart_late.empty() && !call_apart_late(program_, call, slots_.data(), &failure)) return false;
  if (instance_.gemms[number].usable) return gemm(call, instance_.gemms[number]);
  if (ahead_) return ahead_--, true;
  if (!instance_.groups[number].calls.empty()) return cuda_grouped(instance_.groups[number]);
  if (instance_.cuda_gemms[number]) return cuda_gemm(number);
  if (bool done = false; call.replayable && replay(number, &done)) return done;
  if (call.route == Route::python) return call_python(call);
  constexpr size_t kRoom = 64;
  Handle few[kRoom];
  std::vector<Handle> many;
  Handle* tensors = few;
  if (slots_.size() > kRoom) many.resize(slots_.size()), tensors = many.data();
  for (int slot : call.tensors) tensors[slot] = slots_[slot].handle;
  const CellSource source{tensors, instance_.values.data()};
  std::vector<Handle> results;
  Warnings warnings;
  bool done = call.route == Route::shim
                  ? call.shim.invoke(call.shim.function, call.cells, source, &results) == 0
                  : call_dispatcher(call.name.c_str(), call.overload.c_str(), call.cells, call.returns, source, &results);
  if (!warnings.give()) {
    for (Handle handle : results) api.delete_handle(handle);
    hold_gil();
    failure.set = true;  // the Python exception stands
    return false;
  }
  if (done && call.route == Route::shim)
    for (size_t i = 0; i < call.returns.size() && i < results.size(); i++)
      if (call.returns[i] == kIntegerResult) results[i] = nullptr;
  // The shims tell no exception type: run it again through Python, which raises the right one.
  return done ? take_results(call, results) : call_python(call);
}

}  // namespace opmill
