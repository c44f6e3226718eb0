#include "regions.h"

namespace opmill {

namespace {

// Has the GIL, whether the run gave it up or not, and leaves an exception that is on its way as it is.
class WithGil {
 public:
  explicit WithGil(PyThreadState** released) : released_(released), was_(*released != nullptr) {
    if (was_) PyEval_RestoreThread(*released_);
    PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~WithGil() {
    if (PyErr_Occurred()) PyErr_Clear();  // a label that cannot be shown is no reason to fail
    PyErr_Restore(type_, value_, traceback_);
    if (was_) *released_ = PyEval_SaveThread();
  }

 private:
  PyThreadState** released_;
  const bool was_;
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

std::vector<int> shown_slots(const Program& program, int step) {
  const Step& found = program.steps[step];
  if (found.kind == StepKind::launch || found.kind == StepKind::launch_cuda) return found.slots;
  return found.kind == StepKind::call ? program.calls[found.a].tensors : std::vector<int>();
}

// Whether torch's dispatcher does not get to see the step, and says nothing of it itself.
bool is_silent(const Program& program, int step) {
  const Step& found = program.steps[step];
  if (found.kind != StepKind::call) return true;
  return program.calls[found.a].blas.present || program.calls[found.a].route == Route::shim;
}

bool read_regions(PyObject* source, const Program& program, Regions* regions) {
  PyObject* items = nullptr;
  if (!PyArg_ParseTuple(source, "OOO!", &regions->enter, &regions->leave, &PyTuple_Type, &items)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
    Region region;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(items, i), "iiiU", &region.begin, &region.end, &region.depth, &region.python_name)) return false;
    const char* name = PyUnicode_AsUTF8(region.python_name);
    if (!name) return false;
    region.name = name;
    if (region.depth < 0) {
      if (region.begin < 0 || region.begin >= static_cast<int>(program.steps.size()) || !is_silent(program, region.begin)) continue;
      region.slots = shown_slots(program, region.begin);
    }
    regions->all.push_back(std::move(region));
  }
  return true;
}

}  // namespace

const Regions* regions_of(Program& program) {
  if (program.regions || !program.describe) return program.regions.get();
  PyObject* source = PyObject_CallNoArgs(program.describe);
  auto made = std::make_shared<Regions>();
  made->source = source;
  if (!source || !PyTuple_Check(source) || !read_regions(source, program, made.get())) {
    PyErr_WriteUnraisable(program.describe);
    return nullptr;
  }
  if (!program.regions) program.regions = std::move(made);  // else another thread was first
  return program.regions.get();
}

void Watch::before(int step, const std::vector<SlotState>& slots) {
  while (next_ < regions_.all.size() && regions_.all[next_].begin <= step) {
    const Region& region = regions_.all[next_++];
    if (region.depth < 0) close_until(step);
    else close_depth(region.depth);
    open(region, slots);
  }
  close_until(step);
}

void Watch::open(const Region& region, const std::vector<SlotState>& slots) {
  if (region.depth >= 0) return open_label(region);
  if (!api.record_start || !api.record_end) return;
  std::vector<Handle> made;
  std::vector<void*> shown;
  for (int slot : region.slots) {
    const SlotState& state = slots[slot];
    Handle tensor = state.handle;
    const SlotInfo& info = program_.slots[slot];
    if (!tensor && state.data && state.dtype >= 0) {
      const auto& sizes = instance_.sizes[slot];
      if (api.from_blob(state.data, sizes.size(), sizes.data(), instance_.strides[slot].data(), 0, dtype_code[state.dtype],
                        device_type(info.device), device_index(info.device), &tensor))
        continue;
      made.push_back(tensor);
    }
    void* value = nullptr;
    if (tensor && api.tensor_value && !api.tensor_value(tensor, &value)) shown.push_back(value);
  }
  void* function = nullptr;
  if (!api.record_start(region.name.c_str(), nullptr, shown.data(), shown.size(), &function))
    open_.push_back({region.end, region.depth, nullptr, function});
  for (void* value : shown) api.delete_value(value);
  for (Handle tensor : made) api.delete_handle(tensor);
}

void Watch::open_label(const Region& region) {
  WithGil gil(released_);
  PyObject* record = PyObject_CallOneArg(regions_.enter, region.python_name);
  if (record) open_.push_back({region.end, region.depth, record, nullptr});
}

void Watch::close_depth(int depth) {
  while (!open_.empty() && open_.back().depth >= depth) {
    const Open last = open_.back();
    open_.pop_back();
    close(last);
  }
}

void Watch::close_until(int step) {
  while (!open_.empty() && (step < 0 || open_.back().end <= step)) {
    const Open last = open_.back();
    open_.pop_back();
    close(last);
  }
}

void Watch::close(const Open& open) {
  if (!open.record) {
    api.record_end(open.function);
    return;
  }
  WithGil gil(released_);
  PyObject* done = PyObject_CallOneArg(regions_.leave, open.record);
  Py_XDECREF(done);
  Py_DECREF(open.record);
}

}  // namespace opmill
