#include "run.h"

#include <time.h>

#include <algorithm>

#include "bounds.h"
#include "running.h"
#include "views.h"

namespace opmill {

namespace {

// Above this the GIL is released: giving it up and taking it back costs 0.2 us, more when threads contend.
constexpr double kReleaseAbove = 30.0;

struct NoGrad {
  NoGrad() : was(api.grad_enabled()) {
    if (was) api.set_grad_enabled(false);
  }
  ~NoGrad() {
    if (was) api.set_grad_enabled(true);
  }
  const bool was;
};

}  // namespace

double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

void Run::own(int slot, Handle handle) {
  slots_[slot].handle = handle;
  slots_[slot].owned = true;
  owned_.push_back(slot);
}

void Run::drop(int slot) {
  SlotState& state = slots_[slot];
  if (!state.owned) return;
  api.delete_handle(state.handle);
  state = SlotState{};
}

void Run::drop_all() {
  for (int slot : owned_) drop(slot);
  owned_.clear();
}

void Run::hold_gil() {
  if (!released_) return;
  PyEval_RestoreThread(released_);
  released_ = nullptr;
}

std::string Run::differs(int slot, Handle handle) const {
  const SlotInfo& info = program_.slots[slot];
  int32_t dtype = 0, device = 0;
  int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
  if (api.get_dtype(handle, &dtype) || api.get_device_type(handle, &device) || api.get_dim(handle, &dim))
    return "a tensor without metadata";
  if (dtype != dtype_code[info.dtype]) return "of another element type than the plan was compiled for";
  int32_t number = 0;
  if (device != device_type(info.device) ||
      (info.device >= 0 && (api.get_device_index(handle, &number) || number != device_index(info.device))))
    return "on another device than the plan was compiled for";
  const auto &want_sizes = instance_.sizes[slot], &want_strides = instance_.strides[slot];
  if (dim != static_cast<int64_t>(want_sizes.size())) return "of " + std::to_string(dim) + " dimensions";
  if (api.get_sizes(handle, &sizes) || api.get_strides(handle, &strides)) return "not a strided tensor";
  bool empty = false;
  for (int64_t i = 0; i < dim; i++) {
    if (sizes[i] != want_sizes[i])
      return "of size " + std::to_string(sizes[i]) + " in dimension " + std::to_string(i) + ", not " + std::to_string(want_sizes[i]);
    empty |= sizes[i] == 0;
  }
  for (int64_t i = 0; i < dim && !empty; i++)
    if (sizes[i] != 1 && strides[i] != want_strides[i])
      return "of stride " + std::to_string(strides[i]) + " in dimension " + std::to_string(i) + ", not " + std::to_string(want_strides[i]);
  void* data = nullptr;
  if (info.wants_data && !empty && (api.get_data_ptr(handle, &data) || !data)) return "a tensor without memory";
  return "";
}

bool Run::accept(int slot, PyObject* tensor, bool held) {
  const Handle handle = handle_of(tensor);
  if (!program_.slots[slot].known) {  // laid out as only its library knows
    slots_[slot].handle = handle;
    return true;
  }
  std::string difference = differs(slot, handle);
  if (!difference.empty()) return fail(nullptr, "RC052", (held ? "held tensor " : "input ") + program_.labels[slot] + " is " + difference);
  SlotState& state = slots_[slot];
  state.handle = handle;
  state.dtype = program_.slots[slot].dtype;
  if (program_.slots[slot].wants_data && api.get_data_ptr(handle, &state.data))
    return fail(nullptr, "RC053", program_.labels[slot] + " has no memory of its own");
  return true;
}

bool Run::inputs(PyObject* const* arguments) {
  for (size_t i = 0; i < program_.inputs.size(); i++)
    if (program_.inputs[i] >= 0 && !accept(program_.inputs[i], arguments[i], false)) return false;
  for (size_t i = 0; i < program_.held.size(); i++)
    if (!accept(program_.held_slots[i], program_.held[i], true)) return false;
  if (const int other = program_.exclusive ? shared_with_written() : -1; other >= 0)
    return fail(nullptr, "RC057", "an input that the plan writes shares memory with input " + program_.labels[other]);
  return true;
}

void Run::give(PyObject* outputs) {
  given_.resize(slots_.size());
  back_.assign(slots_.size(), -1);
  for (size_t i = 0; i < program_.outputs.size() && static_cast<Py_ssize_t>(i) < PyTuple_GET_SIZE(outputs); i++) {
    PyObject* tensor = PyTuple_GET_ITEM(outputs, i);
    const auto [kind, slot] = program_.outputs[i];
    if (kind == 0 && tensor != Py_None && program_.slots[slot].kind == SlotKind::fresh) given_[slot] = handle_of(tensor);
  }
  for (size_t i = 0; i < program_.outputs.size() && static_cast<Py_ssize_t>(i) < PyTuple_GET_SIZE(outputs); i++) {
    const auto [kind, slot] = program_.outputs[i];
    if (kind == 0 && PyTuple_GET_ITEM(outputs, i) != Py_None) give_root(slot, handle_of(PyTuple_GET_ITEM(outputs, i)));
  }
}

// Where `tensor` is given for a view of a tensor that the plan allocates, that one lies around it, if the memory reaches so far.
void Run::give_root(int slot, Handle tensor) {
  const SlotInfo& info = program_.slots[slot];
  const int root = info.root;
  if (root < 0 || root == slot || info.late || given_[root]) return;
  const SlotInfo& whole = program_.slots[root];
  if (whole.kind != SlotKind::fresh || whole.late || info.dtype != whole.dtype) return;
  const int64_t size = dtype_bytes[whole.dtype], before = instance_.byte_offset[slot] - instance_.byte_offset[root];
  int64_t offset = 0, bytes = 0;
  int32_t code = 0;
  if (before % size || api.get_storage_offset(tensor, &offset) || api.get_storage_size(tensor, &bytes) || api.get_dtype(tensor, &code))
    return;
  const int64_t start = offset - before / size;
  if (code != dtype_code[whole.dtype] || start < 0 || (start + span_of(instance_.sizes[root], instance_.strides[root])) * size > bytes)
    return;
  given_[root] = tensor;
  back_[root] = before / size;
}

// The inputs belong to the call from here on; the list is emptied. Tensors are let go with their last step.
void Run::take(PyObject* list) {
  taken_ = true;
  for (int slot : program_.inputs) {
    Handle mine = nullptr;
    if (slot >= 0 && api.new_handle(slots_[slot].handle, &mine) == 0) own(slot, mine);
  }
  PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr);
}

// An input whose memory meets that of one that the plan writes, -1 where there is none: intervals by their start, each beside what reaches farthest
// of those before it.
int Run::shared_with_written() const {
  struct Interval {
    char *begin, *end;
    int slot;
    bool written;
  };
  std::vector<Interval> intervals;
  intervals.reserve(program_.inputs.size() + program_.held_slots.size());
  for (const std::vector<int>* slots : {&program_.inputs, &program_.held_slots})
    for (int slot : *slots) {
      if (slot < 0 || !program_.slots[slot].known) continue;
      char* begin = static_cast<char*>(slots_[slot].data);
      const int64_t bytes = span_of(instance_.sizes[slot], instance_.strides[slot]) * dtype_bytes[program_.slots[slot].dtype];
      if (bytes) intervals.push_back({begin, begin + bytes, slot, program_.slots[slot].exclusive});
    }
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  const Interval *any = nullptr, *written = nullptr;
  for (const Interval& now : intervals) {
    if (written && now.begin < written->end) return now.slot;
    if (now.written && any && now.begin < any->end) return any->slot;
    if (!any || now.end > any->end) any = &now;
    if (now.written && (!written || now.end > written->end)) written = &now;
  }
  return -1;
}

bool Run::arithmetic(int value) {
  switch (evaluate(program_.values[value], instance_.values.data(), &instance_.values[value])) {
    case Arithmetic::division_by_zero:
      return fail(PyExc_ZeroDivisionError, "", "integer division or modulo by zero");
    case Arithmetic::overflow:
      return fail(PyExc_OverflowError, "", "a size does not fit 64 bits");
    default:
      return true;
  }
}

bool Run::define(int slot) {
  const SlotInfo& info = program_.slots[slot];
  SlotState& state = slots_[slot];
  if (info.late && !resolve_slot(program_, instance_, slot, &failure)) return false;
  Handle handle = nullptr;
  if (info.kind == SlotKind::fresh) {
    const auto& sizes = instance_.sizes[slot];
    if (!given_.empty() && given_[slot]) {
      if (back_[slot] < 0) api.new_handle(given_[slot], &handle);
      else api.reinterpret(given_[slot], sizes.size(), sizes.data(), instance_.strides[slot].data(), -back_[slot], &handle);
    }
    if (!handle && api.empty_strided(sizes.size(), sizes.data(), instance_.strides[slot].data(), dtype_code[info.dtype],
                                     device_type(info.device), device_index(info.device), &handle))
      return fail(info.device < 0 ? PyExc_RuntimeError : program_.out_of_memory, "", "torch cannot allocate " + program_.labels[slot]);
    own(slot, handle);
    state.dtype = info.dtype;
    if (info.wants_data) api.get_data_ptr(handle, &state.data);
    return true;
  }
  if (program_.slots[info.root].kind == SlotKind::arena) {
    if (!place(program_, instance_, slot, &handle, &failure)) return false;
    if (handle) own(slot, handle);
    return true;
  }
  const SlotState& root = slots_[info.root];
  state.dtype = info.dtype >= 0 ? info.dtype : slots_[info.base].dtype;
  if (state.dtype < 0) return fail(nullptr, "RC041", program_.labels[slot] + " is a view of a tensor of unknown element type");
  if ((info.dtype < 0 || info.late) && !offset_view(program_, instance_, slot, state.dtype, &failure)) return false;
  if ((info.late || instance_.unbounded[slot]) && !stays_inside(slot)) return false;
  // no address is made for a view without elements, which may begin behind the end of its root
  if (info.wants_data) state.data = instance_.span[slot] ? static_cast<char*>(root.data) + instance_.byte_offset[slot] : root.data;
  if (!instance_.needs_tensor[slot]) return true;
  const bool lasting = program_.slots[info.root].kind == SlotKind::held && !info.late && !info.shares_version && root.data;
  if (lasting && reuse_view(slot, root)) return true;
  if (!make_view(program_, instance_, slot, recording_, &handle))
    return fail(nullptr, "RC042", "torch cannot make the view " + program_.labels[slot]);
  lasting ? keep_view(slot, root, handle) : own(slot, handle);
  return true;
}

// Asks the storage where what is known of the root does not decide.
bool Run::stays_inside(int slot) {
  const SlotInfo& info = program_.slots[slot];
  if (info.late && inside_root(program_, instance_, slot)) return true;
  const SlotState& root = slots_[info.root];
  const int dtype = slots_[slot].dtype;
  int64_t start = 0, end = 0;
  const bool aligned =
      dtype == root.dtype || (reinterpret_cast<int64_t>(root.data) + instance_.byte_offset[slot]) % dtype_bytes[dtype] == 0;
  if (aligned && range_of(program_, instance_, slot, dtype, &start, &end) &&
      (start == end ? start >= 0 : storage_covers(root.handle, root.dtype, start, end)))
    return true;
  return fail(nullptr, "RC058", program_.labels[slot] + " reaches outside of the memory that it views");
}

bool Run::reuse_view(int slot, const SlotState& root) {
  const HeldView& held = instance_.held_views[slot];
  int64_t bytes = 0;
  if (!held.view || held.root != root.handle || held.data != root.data || api.get_storage_size(root.handle, &bytes) ||
      held.storage_bytes != bytes)
    return false;
  slots_[slot].handle = held.view;
  return true;
}

void Run::keep_view(int slot, const SlotState& root, Handle view) {
  HeldView& held = instance_.held_views[slot];
  if (held.view) api.delete_handle(held.view);
  held = {view, root.handle, root.data, 0};
  api.get_storage_size(root.handle, &held.storage_bytes);
  slots_[slot].handle = view;
}

bool Run::item(int value, int slot) {
  const SlotState& state = slots_[slot];
  int64_t dim = 0, *sizes = nullptr;
  bool empty = program_.slots[slot].known && instance_.span[slot] == 0;
  if (!program_.slots[slot].known) {
    if (!state.handle || api.get_dim(state.handle, &dim) || api.get_sizes(state.handle, &sizes))
      return fail(nullptr, "RC044", program_.labels[slot] + " cannot be read as an integer");
    for (int64_t i = 0; i < dim; i++) empty |= sizes[i] == 0;
  }
  if (empty) return fail(nullptr, "RC044", program_.labels[slot] + " has no element that could be read");
  if (program_.slots[slot].device != -1) {
    if (state.handle && api.item(state.handle, &instance_.values[value]) == 0) return true;
    return fail(nullptr, "RC044", program_.labels[slot] + " cannot be read as an integer");
  }
  if (!state.data || state.dtype < 0) return fail(nullptr, "RC044", program_.labels[slot] + " cannot be read as an integer");
  switch (state.dtype) {
    case 0:
      instance_.values[value] = *static_cast<const uint8_t*>(state.data) != 0;
      return true;
    case 1:
      instance_.values[value] = *static_cast<const uint8_t*>(state.data);
      return true;
    case 2:
      instance_.values[value] = *static_cast<const int8_t*>(state.data);
      return true;
    case 3:
      instance_.values[value] = *static_cast<const int16_t*>(state.data);
      return true;
    case 4:
      instance_.values[value] = *static_cast<const int32_t*>(state.data);
      return true;
    case 5:
      instance_.values[value] = *static_cast<const int64_t*>(state.data);
      return true;
    case 6:
      instance_.values[value] = *static_cast<const uint16_t*>(state.data);
      return true;
    case 7:
      instance_.values[value] = *static_cast<const uint32_t*>(state.data);
      return true;
    default:
      return fail(nullptr, "RC044", program_.labels[slot] + " cannot be read as an integer");
  }
}

bool Run::step(const Step& step) {
  switch (step.kind) {
    case StepKind::evaluate:
      return arithmetic(step.a);
    case StepKind::define:
      return define(step.a);
    case StepKind::launch:
      return launch(step);
    case StepKind::launch_cuda:
      return launch_cuda(step);
    case StepKind::call:
      return call(step.a);
    case StepKind::free:
      for (int slot : step.slots) drop(slot);
      return true;
    case StepKind::check:
      return instance_.values[step.a] ? true : fail(step.failures[0].type, "", step.failures[0].message);
    case StepKind::item:
      return item(step.a, step.b);
    case StepKind::size_of:
      if (!slots_[step.b].handle || api.get_size(slots_[step.b].handle, step.c, &instance_.values[step.a]))
        return fail(nullptr, "RC056", program_.labels[step.b] + " has no dimension " + std::to_string(step.c));
      return true;
  }
  return false;
}

template <bool kWatched, bool kTimed>
bool Run::each_step([[maybe_unused]] Watch* watch) {
  bool done = true;
  size_t release = 0;
  for (size_t i = 0; i < program_.steps.size() && done; i++) {
    if constexpr (kWatched) watch->before(static_cast<int>(i), slots_);
    [[maybe_unused]] const double start = kTimed ? now_us() : 0;
    done = step(program_.steps[i]);
    if constexpr (kTimed) program_.clock[i] += now_us() - start;
    if (!done) begun |= i > program_.visible || (i == program_.visible && program_.steps[i].kind == StepKind::call);
    for (; taken_ && release < program_.releases.size() && program_.releases[release].first <= static_cast<int>(i); release++)
      for (int slot : program_.releases[release].second) drop(slot);
    if constexpr (kWatched) watch->after(static_cast<int>(i));
  }
  if constexpr (kWatched) watch->before(static_cast<int>(program_.steps.size()), slots_);
  return done;
}

// `regions`: nullptr unless a profiler watches.
bool Run::steps(bool without_gil, const Regions* regions) {
  const bool timed = (instance_.calls++ & 15) < 2;
  const double start = timed ? now_us() : 0;
  if (without_gil) released_ = PyEval_SaveThread();
  bool done;
  if (regions) {
    Watch watch(*regions, program_, instance_, &released_);
    done = each_step<true, false>(&watch);
  } else {
    done = program_.timed ? each_step<false, true>(nullptr) : each_step<false, false>(nullptr);
  }
  if (done && !program_.alarms.empty())
    if (const std::string problem = alarm_.watch(stream_); !problem.empty()) done = fail(nullptr, "RC048", problem);
  hold_gil();
  if (timed) {
    const double spent = now_us() - start;
    instance_.microseconds = instance_.microseconds < 0 ? spent : std::min(spent, 0.5 * (instance_.microseconds + spent));
  }
  return done;
}

PyObject* Run::outputs() {
  PyObject* result = PyTuple_New(program_.outputs.size());
  for (size_t i = 0; result && i < program_.outputs.size(); i++) {
    const auto [kind, number] = program_.outputs[i];
    PyObject* output = nullptr;
    if (kind == 0) {
      Handle handle = slots_[number].handle, copy = nullptr;
      void* data = nullptr;
      const bool call_result = program_.slots[program_.slots[number].root].kind == SlotKind::result;
      if (handle && call_result && instance_.block && api.get_data_ptr(handle, &data) == 0 && data >= instance_.block->data &&
          data < instance_.block->data + instance_.block->bytes)
        api.clone(handle, &copy);  // an operator returned a view of the arena
      output = handle ? static_cast<PyObject*>(api.wrap(copy ? copy : handle)) : Py_NewRef(Py_None);
      if (copy) api.delete_handle(copy);
    } else {
      output = kind == 1 ? PyLong_FromLongLong(instance_.values[number]) : Py_NewRef(Py_None);
    }
    if (!output) {
      Py_CLEAR(result);
      break;
    }
    PyTuple_SET_ITEM(result, i, output);
  }
  return result;
}

namespace {

PyObject* raise(const Failure& failure, PyObject* numbered) {
  if (PyErr_Occurred()) return nullptr;
  if (failure.type) {
    PyErr_SetString(failure.type, failure.message.c_str());
    return nullptr;
  }
  PyObject* error = PyObject_CallFunction(numbered, "ss", failure.code.c_str(), failure.message.c_str());
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_XDECREF(error);
  return nullptr;
}

// Says with the exception whether something was written before that outsiders see (``begun``). Those that say nothing were not asked.
PyObject* raise_from_step(const Failure& failure, PyObject* numbered, bool begun) {
  raise(failure, numbered);
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const bool told = !begun || (value && PyObject_HasAttrString(value, "begun"));
  if (value && told && PyObject_SetAttrString(value, "begun", begun ? Py_True : Py_False) < 0) PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return nullptr;
}

bool read_key(const Program& program, PyObject* const* arguments, std::vector<int64_t>* key) {
  for (const KeyPart& part : program.key) {
    int64_t value = 0;
    if (part.input >= 0) {
      value = PyLong_AsLongLong(arguments[part.input]);
      if (value == -1 && PyErr_Occurred()) return false;
    } else {
      const Handle tensor = handle_of(part.tensor >= 0 ? arguments[part.tensor] : program.held[-1 - part.tensor]);
      const int dim = part.dim < 0 ? -1 - part.dim : part.dim;
      int64_t rank = 0, *strides = nullptr;
      if (api.get_dim(tensor, &rank) || dim >= rank ||
          (part.dim < 0 ? api.get_strides(tensor, &strides) : api.get_size(tensor, dim, &value)))
        return PyErr_Format(PyExc_IndexError, "input has no dimension %d", dim), false;
      if (part.dim < 0) value = strides[dim];
    }
    key->push_back(value);
  }
  return true;
}

}  // namespace

PyObject* run_program(Program& program, Pool& pool, CudaAlarm& alarm, PyObject* const* arguments, size_t count, PyObject* tensor_type,
                      PyObject* numbered, PyObject* given, PyObject* taken) {
  Failure failure;
  if (count != program.inputs.size()) {
    failure = {nullptr, "RC050",
               "plan '" + program.name + "' takes " + std::to_string(program.inputs.size()) + " inputs, not " + std::to_string(count),
               true};
    return raise(failure, numbered);
  }
  for (size_t i = 0; i < count; i++) {
    if (program.inputs[i] < 0 || PyObject_TypeCheck(arguments[i], reinterpret_cast<PyTypeObject*>(tensor_type))) continue;
    failure = {nullptr, "RC051", "input " + program.labels[program.inputs[i]] + " must be a tensor, not " + Py_TYPE(arguments[i])->tp_name,
               true};
    return raise(failure, numbered);
  }
  if (alarm.seen && *alarm.seen) {
    const size_t number = program.alarms.size() - static_cast<size_t>(*alarm.seen);
    if (number >= program.alarms.size()) failure = {PyExc_RuntimeError, "", "a kernel reported an unknown check", true};
    else
      failure = {program.alarms[number].type, "", program.alarms[number].message + " (in an earlier call, whose results are lost)", true};
    return raise(failure, numbered);
  }
  static thread_local bool threads_ready = false;
  uint32_t threads;
  if (!threads_ready) threads_ready = api.get_num_threads(&threads) == 0;  // makes torch set up this thread's OpenMP team
  std::vector<int64_t> key;
  if (!program.key.empty() && !read_key(program, arguments, &key)) return nullptr;
  std::unique_ptr<Instance> instance = pool.take(key);
  if (!instance && !(instance = make_instance(program, key, &failure))) return raise(failure, numbered);
  const Regions* regions = is_profiled() ? regions_of(program) : nullptr;
  PyObject* result = nullptr;
  bool begun = false, ran = false;
  if (pool.provide(program, *instance, &failure) && settle(program, *instance, &failure)) {
    NoGrad no_grad;
    Run run(program, *instance, alarm, no_grad.was);
    const bool release = instance->microseconds < 0 || instance->microseconds > kReleaseAbove;
    if (given) run.give(given);
    const bool accepted = run.inputs(arguments);
    if (accepted && taken) run.take(taken);
    if (accepted && run.steps(release, regions)) result = run.outputs();
    failure = run.failure;
    begun = run.begun;
    ran = accepted;
  }
  pool.give(std::move(instance));
  if (!result) return ran ? raise_from_step(failure, numbered, begun) : raise(failure, numbered);
  return result;
}

}  // namespace opmill
