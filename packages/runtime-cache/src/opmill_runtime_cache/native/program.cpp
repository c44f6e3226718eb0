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
  Cell cell{static_cast<CellKind>(number(tuple, cell_row::kind)), 0, -1, {}, {}};
  PyObject* payload = at(tuple, cell_row::payload);
  switch (cell.kind) {
    case CellKind::tensor:
    case CellKind::value:
      cell.index = static_cast<int>(integer(payload));
      break;
    case CellKind::word:
      cell.word = integer(payload);
      break;
    case CellKind::text:
      cell.text = text(payload);
      break;
    case CellKind::some:
    case CellKind::list:
      each(payload, [&](PyObject* item) { cell.items.push_back(read_cell(item)); });
      break;
  }
  return cell;
}

SlotInfo read_slot(PyObject* tuple) {
  SlotInfo slot{};
  slot.kind = static_cast<SlotKind>(number(tuple, slot_row::kind));
  slot.dtype = number(tuple, slot_row::dtype);
  slot.known = at(tuple, slot_row::sizes) != Py_None;
  if (slot.known) {
    slot.sizes = numbers(at(tuple, slot_row::sizes));
    slot.strides = numbers(at(tuple, slot_row::strides));
  }
  slot.offset = number(tuple, slot_row::offset);
  slot.base = number(tuple, slot_row::base);
  slot.root = number(tuple, slot_row::root);
  slot.late = number(tuple, slot_row::late);
  slot.shares_version = number(tuple, slot_row::shares_version);
  if (at(tuple, slot_row::constant) != Py_None) slot.constant = handle_of(at(tuple, slot_row::constant));
  slot.device = number(tuple, slot_row::device);
  return slot;
}

CudaForm read_form(PyObject* tuple, int device) {
  namespace row = cuda_form_row;
  CudaForm form;
  char* image = nullptr;
  Py_ssize_t bytes = 0;
  if (PyBytes_AsStringAndSize(at(tuple, row::image), &image, &bytes)) return form;
  form.warps = number(tuple, row::warps);
  form.shared = number(tuple, row::shared);
  form.align = number(tuple, row::align);
  form.index_bits = number(tuple, row::index_bits);
  form.fits = numbers(at(tuple, row::fits));
  form.limit = integer(at(tuple, row::limit));
  form.waits = number(tuple, row::waits);
  form.function = cuda_function(text(at(tuple, row::name)), image, bytes, text(at(tuple, row::entry)), form.shared, device);
  return form;
}

CudaLaunch read_launch(PyObject* tuple, int device) {
  CudaLaunch launch;
  launch.grid = numbers(at(tuple, cuda_launch_row::grid));
  each(at(tuple, cuda_launch_row::args), [&](PyObject* item) {
    launch.args.push_back(
        {static_cast<CudaArgKind>(number(item, cuda_arg_row::kind)), number(item, cuda_arg_row::index), number(item, cuda_arg_row::value)});
  });
  each(at(tuple, cuda_launch_row::forms), [&](PyObject* item) { launch.forms.push_back(read_form(item, device)); });
  return launch;
}

Step read_cpu_launch(PyObject* tuple) {
  namespace row = launch_step;
  Step step;
  step.kernel = reinterpret_cast<int64_t (*)(void* const*, const int64_t*)>(PyLong_AsVoidPtr(at(tuple, row::address)));
  step.slots = numbers(at(tuple, row::slots));
  step.values = numbers(at(tuple, row::values));
  step.failures = failures(at(tuple, row::failures));
  step.bumps = numbers(at(tuple, row::bumps));
  step.needs = numbers(at(tuple, row::needs));
  step.dtypes = numbers(at(tuple, row::dtypes));
  step.floor = number(tuple, row::floor);
  step.late = number(tuple, row::late);
  step.apart = numbers(at(tuple, row::apart));
  step.a = number(tuple, row::type);
  return step;
}

Step read_cuda_launch(PyObject* tuple) {
  namespace row = launch_cuda_step;
  Step step;
  step.a = number(tuple, row::device);
  step.slots = numbers(at(tuple, row::slots));
  step.values = numbers(at(tuple, row::values));
  step.bumps = numbers(at(tuple, row::bumps));
  step.b = number(tuple, row::scratch);
  step.c = number(tuple, row::first);
  each(at(tuple, row::launches), [&](PyObject* item) { step.launches.push_back(read_launch(item, std::max(step.a, 0))); });
  step.needs = numbers(at(tuple, row::needs));
  step.dtypes = numbers(at(tuple, row::dtypes));
  step.floor = number(tuple, row::floor);
  step.late = number(tuple, row::late);
  step.apart = numbers(at(tuple, row::apart));
  return step;
}

Step read_step(PyObject* tuple) {
  const auto kind = static_cast<StepKind>(number(tuple, 0));
  Step step;
  switch (kind) {
    case StepKind::evaluate:
      step.a = number(tuple, evaluate_step::value);
      break;
    case StepKind::define:
      step.a = number(tuple, define_step::slot);
      break;
    case StepKind::launch:
      step = read_cpu_launch(tuple);
      break;
    case StepKind::launch_cuda:
      step = read_cuda_launch(tuple);
      break;
    case StepKind::call:
      step.a = number(tuple, call_step::call);
      break;
    case StepKind::free:
      step.slots = numbers(at(tuple, free_step::slots));
      break;
    case StepKind::check:
      step.a = number(tuple, check_step::value);
      step.failures = failures(at(tuple, check_step::failures));
      break;
    case StepKind::item:
      step.a = number(tuple, item_step::value);
      step.b = number(tuple, item_step::slot);
      break;
    case StepKind::size_of:
      step.a = number(tuple, size_step::value);
      step.b = number(tuple, size_step::slot);
      step.c = number(tuple, size_step::dim);
      break;
  }
  step.kind = kind;
  return step;
}

CallInfo read_call(PyObject* tuple) {
  namespace row = call_row;
  CallInfo call;
  call.name = text(at(tuple, row::name));
  call.overload = text(at(tuple, row::overload));
  call.trusts = call.name.rfind("aten::_fft_", 0) == 0;
  call.route = static_cast<Route>(number(tuple, row::route));
  each(at(tuple, row::cells), [&](PyObject* item) { call.cells.push_back(read_cell(item)); });
  call.results = numbers(at(tuple, row::results));
  call.returns = numbers(at(tuple, row::returns));
  call.tensors = numbers(at(tuple, row::tensors));
  call.written = numbers(at(tuple, row::written));
  const std::vector<int> apart = numbers(at(tuple, row::apart));
  for (size_t i = 0; i + 2 < apart.size(); i += 3) call.apart.push_back({apart[i], apart[i + 1], apart[i + 2] != 0});
  PyObject* shim = at(tuple, row::shim);
  if (call.route == Route::shim && !find_shim(text(at(shim, 0)).c_str(), text(at(shim, 1)).c_str(), &call.shim)) call.route = Route::python;
  PyObject* blas = at(tuple, row::blas);
  if (blas != Py_None) {
    call.blas = {true,
                 number(blas, blas_row::out),
                 number(blas, blas_row::bias),
                 number(blas, blas_row::a),
                 number(blas, blas_row::b),
                 PyFloat_AsDouble(at(blas, blas_row::beta)),
                 PyFloat_AsDouble(at(blas, blas_row::alpha)),
                 number(blas, blas_row::batched) != 0,
                 number(blas, blas_row::rows)};
  }
  call.make_python = at(tuple, row::make);
  call.python_slots = numbers(at(tuple, row::python_slots));
  call.python_values = numbers(at(tuple, row::python_values));
  call.replayable = integer(at(tuple, row::replayable)) && call.route == Route::shim;
  return call;
}

// Where two tensors lie to each other: decided by sizes and offsets, or only by their addresses, or they have memory of their own each.
enum class Together { never, early, late };

Together together(const Program& program, int a, int b) {
  const SlotInfo &first = program.slots[a], &second = program.slots[b];
  const SlotKind one = program.slots[first.root].kind, other = program.slots[second.root].kind;
  const bool settled = first.known && second.known && !first.late && !second.late && first.dtype >= 0 && second.dtype >= 0;
  if (first.root == second.root || (one == SlotKind::arena && other == SlotKind::arena)) return settled ? Together::early : Together::late;
  const auto own = [](SlotKind kind) { return kind == SlotKind::arena || kind == SlotKind::fresh || kind == SlotKind::constant; };
  if (one == SlotKind::result || other == SlotKind::result) return Together::late;  // it may be a view of anything
  return own(one) || own(other) ? Together::never : Together::late;
}

void sort_apart(Program* program) {
  for (CallInfo& call : program->calls) {
    std::vector<Apart> early;
    for (const Apart& pair : call.apart) {
      const Together how = together(*program, pair.a, pair.b);
      if (how == Together::early) early.push_back(pair);
      if (how == Together::late) call.apart_late.push_back(pair);
    }
    call.apart = std::move(early);
  }
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
  for (const CallInfo& call : program->calls)  // whether an operator moved what it wrote shows in where it lies
    for (int slot : call.written)
      if (program->slots[program->slots[slot].root].kind != SlotKind::arena) mark(program->slots[slot].root);
  for (const CallInfo& call : program->calls)
    for (const Apart& pair : call.apart_late) mark(pair.a), mark(pair.b);
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
  namespace row = program_row;
  const auto part = [&](int field) { return at(tuple, field); };
  program->name = text(part(row::name));
  each(part(row::values), [&](PyObject* item) {
    Value value;
    value.late = integer(at(item, value_row::late)) != 0;
    each(at(item, value_row::code), [&](PyObject* word) { value.code.push_back(integer(word)); });
    program->values.push_back(std::move(value));
  });
  each(part(row::key), [&](PyObject* item) {
    program->key.push_back(
        {number(item, key_row::input), number(item, key_row::tensor), number(item, key_row::dim), number(item, key_row::value)});
  });
  each(part(row::slots), [&](PyObject* item) { program->slots.push_back(read_slot(item)); });
  program->inputs = numbers(part(row::positions));
  program->held_slots = numbers(part(row::held_slots));
  each(part(row::held), [&](PyObject* item) { program->held.push_back(item); });
  each(part(row::labels), [&](PyObject* item) { program->labels.push_back(text(item)); });
  program->arena = number(tuple, row::arena);
  each(part(row::steps), [&](PyObject* item) { program->steps.push_back(read_step(item)); });
  each(part(row::calls), [&](PyObject* item) { program->calls.push_back(read_call(item)); });
  each(part(row::outputs),
       [&](PyObject* item) { program->outputs.emplace_back(number(item, output_row::kind), number(item, output_row::number)); });
  for (int slot : numbers(part(row::exclusive))) program->exclusive = program->slots[slot].exclusive = true;
  program->device = number(tuple, row::device);
  program->alarms = failures(part(row::alarms));
  program->out_of_memory = part(row::out_of_memory);
  each(part(row::releases),
       [&](PyObject* item) { program->releases.emplace_back(number(item, release_row::step), numbers(at(item, release_row::slots))); });
  program->describe = part(row::describe);
  program->visible = static_cast<size_t>(number(tuple, row::visible));
  for (Step& step : program->steps)  // until here the number of the launch's first check
    if (step.kind == StepKind::launch_cuda) step.c = static_cast<int>(program->alarms.size()) - step.c;
  for (const SlotInfo& slot : program->slots)
    if (program->cuda < 0) program->cuda = cuda_index(slot.device);
  for (const Step& step : program->steps)
    if (program->cuda < 0 && step.kind == StepKind::launch_cuda) program->cuda = std::max(step.a, 0);
  find_kept(program);
  sort_apart(program);
  mark_data(program);
  if (program->exclusive)
    for (SlotInfo& slot : program->slots) slot.wants_data |= slot.known && (slot.kind == SlotKind::input || slot.kind == SlotKind::held);
  return !PyErr_Occurred();
}

}  // namespace opmill
