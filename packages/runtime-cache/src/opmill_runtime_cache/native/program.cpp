#include "program.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace opmill {

namespace {

// Reading tuples. A mistake here is a mistake of program.py, so every reader just reports failure.

Py_ssize_t length(PyObject* tuple) { return PyTuple_GET_SIZE(tuple); }
PyObject* at(PyObject* tuple, Py_ssize_t i) { return PyTuple_GET_ITEM(tuple, i); }

int64_t integer(PyObject* object) { return PyLong_AsLongLong(object); }
int number(PyObject* tuple, Py_ssize_t i) { return static_cast<int>(integer(at(tuple, i))); }
std::string text(PyObject* object) {
  const char* utf8 = PyUnicode_AsUTF8(object);
  return utf8 ? utf8 : "";
}

template <class F>
void each(PyObject* tuple, F&& action) {
  for (Py_ssize_t i = 0; i < length(tuple) && !PyErr_Occurred(); i++) action(at(tuple, i));
}

std::vector<int> numbers(PyObject* tuple) {
  std::vector<int> result;
  each(tuple, [&](PyObject* item) { result.push_back(static_cast<int>(integer(item))); });
  return result;
}

std::vector<FailureText> failures(PyObject* tuple) {
  std::vector<FailureText> result;
  each(tuple, [&](PyObject* item) { result.push_back({at(item, 0), text(at(item, 1))}); });
  return result;
}

Cell read_cell(PyObject* tuple) {
  Cell cell{static_cast<CellKind>(number(tuple, 0)), 0, -1, {}, {}};
  PyObject* payload = at(tuple, 1);
  switch (cell.kind) {
    case CellKind::tensor:
    case CellKind::value: cell.index = static_cast<int>(integer(payload)); break;
    case CellKind::word: cell.word = integer(payload); break;
    case CellKind::text: cell.text = text(payload); break;
    case CellKind::some:
    case CellKind::list: each(payload, [&](PyObject* item) { cell.items.push_back(read_cell(item)); }); break;
  }
  return cell;
}

SlotInfo read_slot(PyObject* tuple) {
  SlotInfo slot{};
  slot.kind = static_cast<SlotKind>(number(tuple, 0));
  slot.dtype = number(tuple, 1);
  slot.known = at(tuple, 2) != Py_None;
  if (slot.known) {
    slot.sizes = numbers(at(tuple, 2));
    slot.strides = numbers(at(tuple, 3));
  }
  slot.offset = number(tuple, 4);
  slot.base = number(tuple, 5);
  slot.root = number(tuple, 6);
  slot.late = number(tuple, 7) & 1;
  slot.shares_version = number(tuple, 7) & 2;
  if (at(tuple, 8) != Py_None) slot.constant = handle_of(at(tuple, 8));
  slot.device = number(tuple, 9);
  return slot;
}

CudaForm read_form(PyObject* tuple, int device) {
  CudaForm form;
  char* image = nullptr;
  Py_ssize_t bytes = 0;
  if (PyBytes_AsStringAndSize(at(tuple, 1), &image, &bytes)) return form;
  form.warps = number(tuple, 3);
  form.shared = number(tuple, 4);
  form.align = number(tuple, 5);
  form.index_bits = number(tuple, 6);
  form.fits = numbers(at(tuple, 7));
  form.limit = integer(at(tuple, 8));
  form.waits = number(tuple, 9);
  form.function = cuda_function(text(at(tuple, 0)), image, bytes, text(at(tuple, 2)), form.shared, device);
  return form;
}

CudaLaunch read_launch(PyObject* tuple, int device) {
  CudaLaunch launch;
  launch.grid = numbers(at(tuple, 0));
  each(at(tuple, 1), [&](PyObject* item) { launch.args.push_back({static_cast<CudaArgKind>(number(item, 0)), number(item, 1), number(item, 2)}); });
  each(at(tuple, 2), [&](PyObject* item) { launch.forms.push_back(read_form(item, device)); });
  return launch;
}

Step read_step(PyObject* tuple) {
  Step step;
  step.kind = static_cast<StepKind>(number(tuple, 0));
  switch (step.kind) {
    case StepKind::launch:
      step.kernel = reinterpret_cast<int64_t (*)(void* const*, const int64_t*)>(PyLong_AsVoidPtr(at(tuple, 1)));
      step.slots = numbers(at(tuple, 2));
      step.values = numbers(at(tuple, 3));
      step.failures = failures(at(tuple, 4));
      step.bumps = numbers(at(tuple, 5));
      break;
    case StepKind::launch_cuda:
      step.a = number(tuple, 1);
      step.slots = numbers(at(tuple, 2));
      step.values = numbers(at(tuple, 3));
      step.bumps = numbers(at(tuple, 4));
      step.b = number(tuple, 5);
      step.c = number(tuple, 6);
      each(at(tuple, 7), [&](PyObject* item) { step.launches.push_back(read_launch(item, std::max(step.a, 0))); });
      break;
    case StepKind::free: step.slots = numbers(at(tuple, 1)); break;
    case StepKind::check:
      step.a = number(tuple, 1);
      step.failures = failures(at(tuple, 2));
      break;
    default:
      step.a = number(tuple, 1);
      if (length(tuple) > 2) step.b = number(tuple, 2);
      if (length(tuple) > 3) step.c = number(tuple, 3);
  }
  return step;
}

CallInfo read_call(PyObject* tuple) {
  CallInfo call;
  call.name = text(at(tuple, 0));
  call.overload = text(at(tuple, 1));
  call.route = static_cast<Route>(number(tuple, 2));
  each(at(tuple, 3), [&](PyObject* item) { call.cells.push_back(read_cell(item)); });
  call.results = numbers(at(tuple, 4));
  call.returns = numbers(at(tuple, 5));
  call.tensors = numbers(at(tuple, 6));
  PyObject* shim = at(tuple, 7);
  if (call.route == Route::shim && !find_shim(text(at(shim, 0)).c_str(), text(at(shim, 1)).c_str(), &call.shim)) call.route = Route::python;
  PyObject* blas = at(tuple, 8);
  if (blas != Py_None) {
    call.blas = {true,          number(blas, 0), number(blas, 1), number(blas, 2), number(blas, 3), PyFloat_AsDouble(at(blas, 4)),
                 PyFloat_AsDouble(at(blas, 5))};
  }
  call.make_python = at(tuple, 9);
  call.python_slots = numbers(at(tuple, 10));
  call.python_values = numbers(at(tuple, 11));
  call.replayable = integer(at(tuple, 12)) && call.route == Route::shim;
  return call;
}

void mark_data(Program* program) {
  auto mark = [&](int slot) {
    if (slot < 0) return;
    program->slots[slot].wants_data = true;
    program->slots[program->slots[slot].root].wants_data = true;
  };
  for (SlotInfo& slot : program->slots)  // views need their root's element type, too
    if (slot.kind == SlotKind::view) program->slots[slot.root].wants_data = true;
  for (const Step& step : program->steps) {
    if (step.kind == StepKind::launch || step.kind == StepKind::launch_cuda)
      for (int slot : step.slots) mark(slot);
    if (step.kind == StepKind::item) mark(step.b);
  }
  for (const CallInfo& call : program->calls)
    if (call.blas.present)
      for (int slot : {call.blas.out, call.blas.bias, call.blas.a, call.blas.b}) mark(slot);
  for (const CallInfo& call : program->calls)
    if (call.replayable)
      for (int slot : call.tensors) mark(slot);
}

// Results of operators that a recording may keep: no part of them leaves the program. Not those that Python sees.
void find_kept(Program* program) {
  std::set<int> leaving;
  const auto leaves = [&](int slot) {
    if (slot >= 0) leaving.insert(program->slots[slot].root);
  };
  for (const auto& [kind, slot] : program->outputs)
    if (kind == 0) leaves(slot);
  for (const CallInfo& call : program->calls)
    if (call.route == Route::python) std::for_each(call.python_slots.begin(), call.python_slots.end(), leaves);
  for (CallInfo& call : program->calls) {
    if (!call.replayable) continue;
    for (int slot : call.results) call.replayable = call.replayable && (slot < 0 || (!leaving.count(slot) && program->slots[slot].known));
    call.replayable = call.replayable && call.tensors.size() <= 4;
  }
}

}  // namespace

bool read_program(PyObject* tuple, Program* program) {
  program->name = text(at(tuple, 0));
  each(at(tuple, 1), [&](PyObject* item) {
    Value value;
    value.late = integer(at(item, 0)) != 0;
    each(at(item, 1), [&](PyObject* word) { value.code.push_back(integer(word)); });
    program->values.push_back(std::move(value));
  });
  each(at(tuple, 2), [&](PyObject* item) {
    program->key.push_back({number(item, 0), number(item, 1), number(item, 2), number(item, 3)});
  });
  each(at(tuple, 3), [&](PyObject* item) { program->slots.push_back(read_slot(item)); });
  program->inputs = numbers(at(tuple, 4));
  program->held_slots = numbers(at(tuple, 5));
  each(at(tuple, 6), [&](PyObject* item) { program->held.push_back(item); });
  each(at(tuple, 7), [&](PyObject* item) { program->labels.push_back(text(item)); });
  program->arena = number(tuple, 8);
  each(at(tuple, 9), [&](PyObject* item) { program->steps.push_back(read_step(item)); });
  each(at(tuple, 10), [&](PyObject* item) { program->calls.push_back(read_call(item)); });
  each(at(tuple, 11), [&](PyObject* item) { program->outputs.emplace_back(number(item, 0), number(item, 1)); });
  for (int slot : numbers(at(tuple, 12))) program->exclusive = program->slots[slot].exclusive = true;
  program->device = number(tuple, 13);
  program->alarms = failures(at(tuple, 14));
  program->out_of_memory = at(tuple, 15);
  each(at(tuple, 16), [&](PyObject* item) { program->releases.emplace_back(number(item, 0), numbers(at(item, 1))); });
  for (Step& step : program->steps)  // until here the number of the launch's first check
    if (step.kind == StepKind::launch_cuda) step.c = static_cast<int>(program->alarms.size()) - step.c;
  for (const SlotInfo& slot : program->slots)
    if (program->cuda < 0) program->cuda = slot.device;
  for (const Step& step : program->steps)
    if (program->cuda < 0 && step.kind == StepKind::launch_cuda) program->cuda = std::max(step.a, 0);
  find_kept(program);
  mark_data(program);
  if (program->exclusive)
    for (SlotInfo& slot : program->slots) slot.wants_data |= slot.kind == SlotKind::input || slot.kind == SlotKind::held;
  return !PyErr_Occurred();
}

}  // namespace opmill
