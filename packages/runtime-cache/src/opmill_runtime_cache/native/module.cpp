#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <new>
#include <vector>

#include "contained.h"
#include "differentiated.h"
#include "frozen.h"
#include "gemm.h"
#include "history.h"
#include "run.h"

namespace {

using opmill::api;

struct State {
  PyObject* tensor_type = nullptr;  // torch.Tensor's base
  PyObject* numbered = nullptr;     // (code, message) -> exception
} state;

struct Executable {
  PyObject_HEAD vectorcallfunc call;
  PyObject* source;  // the tuple that `program` was read from; it owns every Python object the program uses
  opmill::Program* program;
  opmill::Pool* pool;
  opmill::CudaAlarm* alarm;
};

// The word that kernels report failed checks in, where some kernel takes it.
bool make_alarm(const opmill::Program& program, opmill::CudaAlarm* alarm) {
  for (const opmill::Step& step : program.steps)
    for (const opmill::CudaLaunch& launch : step.launches)
      for (const opmill::CudaArg& arg : launch.args) {
        if (arg.kind != opmill::CudaArgKind::error || alarm->word) continue;
        const std::string problem = alarm->make(program.cuda);
        if (!problem.empty()) return PyErr_Format(PyExc_RuntimeError, "%s", problem.c_str()), false;
      }
  return true;
}

PyObject* executable_call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  if (keywords && PyTuple_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a plan takes no keyword arguments");
  auto* executable = reinterpret_cast<Executable*>(self);
  return opmill::run_program(*executable->program, *executable->pool, *executable->alarm, arguments, PyVectorcall_NARGS(flags),
                             state.tensor_type, state.numbered);
}

PyObject* executable_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* source;
  if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &source)) return nullptr;
  if (!api.wrap) return PyErr_Format(PyExc_RuntimeError, "load() must come first");
  auto* self = reinterpret_cast<Executable*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->call = opmill::contained<executable_call>;
  self->source = Py_NewRef(source);
  self->program = new opmill::Program;
  self->pool = new opmill::Pool;
  self->alarm = new opmill::CudaAlarm;
  if (!opmill::read_program(source, self->program) || !make_alarm(*self->program, self->alarm)) {
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(self);
}

int executable_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Executable*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->source);
  return 0;
}

void executable_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto* self = reinterpret_cast<Executable*>(object);
  PyTypeObject* type = Py_TYPE(object);
  if (self->program)
    for (auto& call : self->program->calls) Py_XDECREF(call.python);
  delete self->alarm;
  delete self->pool;
  delete self->program;
  Py_XDECREF(self->source);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* executable_arena_bytes(PyObject* self, void*) {
  return PyLong_FromLongLong(reinterpret_cast<Executable*>(self)->pool->largest());
}
PyObject* executable_instances(PyObject* self, void*) { return PyLong_FromSize_t(reinterpret_cast<Executable*>(self)->pool->size()); }
PyObject* executable_name(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<Executable*>(self)->program->name.c_str());
}

// Runs the plan with its results in memory that the caller gives.
PyObject* executable_into(PyObject* self, PyObject* arguments) {
  PyObject *inputs, *outputs;
  if (!PyArg_ParseTuple(arguments, "O!O!", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs)) return nullptr;
  auto* executable = reinterpret_cast<Executable*>(self);
  std::vector<PyObject*> items;
  items.reserve(PyTuple_GET_SIZE(inputs));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) items.push_back(PyTuple_GET_ITEM(inputs, i));
  return opmill::run_program(*executable->program, *executable->pool, *executable->alarm, items.data(), items.size(), state.tensor_type,
                             state.numbered, outputs);
}

// Runs the plan on inputs that are the call's own.
PyObject* executable_take(PyObject* self, PyObject* list) {
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "take() takes a list");
  auto* executable = reinterpret_cast<Executable*>(self);
  PyObject* const* items = reinterpret_cast<PyListObject*>(list)->ob_item;
  return opmill::run_program(*executable->program, *executable->pool, *executable->alarm, items, PyList_GET_SIZE(list), state.tensor_type,
                             state.numbered, nullptr, list);
}

// Changes when the memory of a held tensor does.
PyObject* executable_held_at(PyObject* self, PyObject*) {
  uint64_t mixed = 14695981039346656037u;
  for (PyObject* tensor : reinterpret_cast<Executable*>(self)->program->held) {
    void* data = nullptr;
    api.get_data_ptr(opmill::handle_of(tensor), &data);
    mixed = (mixed ^ reinterpret_cast<uint64_t>(data)) * 1099511628211u;
  }
  return PyLong_FromUnsignedLongLong(mixed);
}

// Notes a write to every held tensor that the plan writes, for autograd.
PyObject* executable_touch_held(PyObject* self, PyObject*) {
  const opmill::Program& program = *reinterpret_cast<Executable*>(self)->program;
  for (const opmill::Step& step : program.steps)
    for (int slot : step.bumps)
      for (size_t i = 0; i < program.held_slots.size(); i++) {
        if (program.held_slots[i] != slot) continue;
        const std::string refused = opmill::count_write(opmill::handle_of(program.held[i]));
        if (!refused.empty()) return PyErr_Format(PyExc_RuntimeError, "%s", refused.c_str());
      }
  Py_RETURN_NONE;
}

// Begins, or ends, the timing of each step. What it took until now is forgotten where it begins.
PyObject* executable_time_steps(PyObject* self, PyObject* on) {
  const int wanted = PyObject_IsTrue(on);
  if (wanted < 0) return nullptr;
  opmill::Program& program = *reinterpret_cast<Executable*>(self)->program;
  if (wanted) {
    if (program.clock.empty()) program.clock.resize(program.steps.size());  // and never again: a call may be writing to it
    std::fill(program.clock.begin(), program.clock.end(), 0.0);
  }
  program.timed = wanted;
  Py_RETURN_NONE;
}

PyObject* executable_step_seconds(PyObject* self, void*) {
  const std::vector<double>& clock = reinterpret_cast<Executable*>(self)->program->clock;
  PyObject* result = PyTuple_New(clock.size());
  for (size_t i = 0; result && i < clock.size(); i++) {
    PyObject* seconds = PyFloat_FromDouble(clock[i] * 1e-6);
    if (!seconds) Py_CLEAR(result);
    else PyTuple_SET_ITEM(result, i, seconds);
  }
  return result;
}

PyMethodDef executable_methods[] = {
    {"into", opmill::contained<executable_into>, METH_VARARGS,
     "into(inputs, outputs) -> tuple: a call whose results lie in the given tensors where the plan would allocate them."},
    {"take", opmill::contained<executable_take>, METH_O,
     "take(inputs: list) -> tuple: a call that empties the list and lets each tensor go after the step that uses it last."},
    {"held_at", opmill::contained<executable_held_at>, METH_NOARGS, "A number that changes when the memory of a held tensor does."},
    {"time_steps", opmill::contained<executable_time_steps>, METH_O,
     "time_steps(on: bool): whether calls from now on note how long each step takes; those before are forgotten where it begins."},
    {"touch_held", opmill::contained<executable_touch_held>, METH_NOARGS, "Notes a write to the held tensors that the plan writes."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef executable_properties[] = {
    {"arena_bytes", opmill::contained<executable_arena_bytes>, nullptr, "Bytes of the largest arena that a call has worked in.", nullptr},
    {"instances", opmill::contained<executable_instances>, nullptr, "Idle instances kept for later calls.", nullptr},
    {"name", opmill::contained<executable_name>, nullptr, "The plan's name.", nullptr},
    {"step_seconds", opmill::contained<executable_step_seconds>, nullptr,
     "Seconds of each native step in all calls that were timed; empty where none was asked to be.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef executable_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Executable, call), READONLY, nullptr},
                                    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot executable_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(opmill::contained<executable_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(executable_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(executable_traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getset, executable_properties},
    {Py_tp_members, executable_members},
    {Py_tp_methods, executable_methods},
    {Py_tp_doc, const_cast<char*>("A plan bound to its held tensors and kernels: executable(*inputs) -> tuple.")},
    {0, nullptr}};

PyType_Spec executable_spec = {"opmill_runtime_cache._native.Executable", sizeof(Executable), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
                               executable_slots};

// The word of a Python tensor that equals its `_cdata` is its at::Tensor; -1 where there is none.
long long find_word(PyObject* tensor, unsigned long long cdata, Py_ssize_t size) {
  auto* words = reinterpret_cast<unsigned long long*>(tensor);
  for (Py_ssize_t i = sizeof(PyObject) / sizeof(void*); i < static_cast<Py_ssize_t>(size / sizeof(void*)); i++)
    if (words[i] == cdata) return i;
  return -1;
}

PyObject* load(PyObject*, PyObject* arguments) {
  const char *cpu, *python;
  PyObject *tensor, *tensor_type, *numbered;
  unsigned long long cdata;
  if (!PyArg_ParseTuple(arguments, "ssOKOO", &cpu, &python, &tensor, &cdata, &tensor_type, &numbered)) return nullptr;
  const long long word = find_word(tensor, cdata, reinterpret_cast<PyTypeObject*>(tensor_type)->tp_basicsize);
  if (word < 0) return PyUnicode_FromString("the tensor inside a Python tensor");
  if (const char* missing = opmill::load_torch(cpu, python)) {
    api.wrap = nullptr;
    return PyUnicode_FromString(missing);
  }
  api.word = word;
  api.plain = opmill::kind_of_implementation(opmill::handle_of(tensor));
  opmill::load_blas(api.library);
  Py_XSETREF(state.tensor_type, Py_NewRef(tensor_type));
  api.tensor_type = tensor_type;
  Py_XSETREF(state.numbered, Py_NewRef(numbered));
  Py_RETURN_NONE;
}

PyObject* cuda_reaches_host(PyObject*, PyObject*) { return PyBool_FromLong(opmill::cuda_reaches_host()); }

PyObject* packs_matrices(PyObject*, PyObject*) { return PyBool_FromLong(opmill::PackedMatrices::available()); }

PyObject* load_cuda(PyObject*, PyObject* arguments) {
  const char *driver, *torch_cuda;
  if (!PyArg_ParseTuple(arguments, "ss", &driver, &torch_cuda)) return nullptr;
  const std::string problem = opmill::load_cuda(driver, torch_cuda);
  if (problem.empty()) Py_RETURN_NONE;
  return PyUnicode_FromString(problem.c_str());
}

// New tensors over the memory of those in a list; what is no tensor stays.
PyObject* aliases(PyObject*, PyObject* list) {
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "aliases() takes a list");
  PyObject* result = PyTuple_New(PyList_GET_SIZE(list));
  for (Py_ssize_t i = 0; result && i < PyList_GET_SIZE(list); i++) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (!PyObject_TypeCheck(item, reinterpret_cast<PyTypeObject*>(state.tensor_type))) {
      PyTuple_SET_ITEM(result, i, Py_NewRef(item));
      continue;
    }
    opmill::Handle handle = opmill::handle_of(item), alias = nullptr;
    int64_t dim = 0, offset = 0, *sizes = nullptr, *strides = nullptr;
    PyObject* made = nullptr;
    if (!api.get_dim(handle, &dim) && !api.get_sizes(handle, &sizes) && !api.get_strides(handle, &strides) &&
        !api.reinterpret(handle, dim, sizes, strides, offset, &alias)) {
      made = static_cast<PyObject*>(api.wrap(alias));
      api.delete_handle(alias);
    }
    if (!made) {
      Py_DECREF(result);
      return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_RuntimeError, "torch cannot make a view of a tensor");
    }
    PyTuple_SET_ITEM(result, i, made);
  }
  return result;
}

// Where and how tensors lie: addresses, element types, sizes and strides, one after the other.
PyObject* places(PyObject*, PyObject* tuple) {
  if (!PyTuple_Check(tuple)) return PyErr_Format(PyExc_TypeError, "places() takes a tuple");
  std::vector<int64_t> words;
  words.reserve(8 * PyTuple_GET_SIZE(tuple));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!PyObject_TypeCheck(item, reinterpret_cast<PyTypeObject*>(state.tensor_type))) continue;
    const opmill::Handle handle = opmill::handle_of(item);
    void* data = nullptr;
    int32_t code = 0;
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    if (api.get_data_ptr(handle, &data) || api.get_dtype(handle, &code) || api.get_dim(handle, &dim) || api.get_sizes(handle, &sizes) ||
        api.get_strides(handle, &strides))
      return PyErr_Format(PyExc_RuntimeError, "torch cannot tell where a tensor lies");
    words.insert(words.end(), {reinterpret_cast<int64_t>(data), code, dim});
    words.insert(words.end(), sizes, sizes + dim);
    words.insert(words.end(), strides, strides + dim);
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
}

PyObject* idle_arena_bytes(PyObject*, PyObject*) { return PyLong_FromLongLong(opmill::Arenas::shared().bytes()); }

PyMethodDef methods[] = {
    {"versions", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(opmill::contained<opmill::versions>)), METH_FASTCALL,
     "versions(*tuples) -> int | None: how often the tensors in them were written to, in all; what is no tensor, or was made in inference "
     "mode, counts nothing. None before load()."},
    {"references", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(opmill::contained<opmill::references>)), METH_FASTCALL,
     "references(values: tuple, count: int, owned: bytes) -> list | None: the first `count` values; leaves of autograd, and tensors that "
     "`owned` marks with a byte that is not 0, as weak references. None before load()."},
    {"idle_arena_bytes", opmill::contained<idle_arena_bytes>, METH_NOARGS, "Bytes that the process keeps for the arenas of later calls."},
    {"aliases", opmill::contained<aliases>, METH_O,
     "aliases(list) -> tuple: new tensors over the memory of those in the list; what is no tensor stays."},
    {"places", opmill::contained<places>, METH_O, "places(tuple) -> bytes: where and how the tensors lie; nothing of what is no tensor."},
    {"packs_matrices", opmill::contained<packs_matrices>, METH_NOARGS,
     "packs_matrices() -> bool: whether torch's BLAS multiplies with packed matrices. load() comes before."},
    {"cuda_reaches_host", opmill::contained<cuda_reaches_host>, METH_NOARGS,
     "Whether GPU kernels may be given memory of the process's own."},
    {"load_cuda", opmill::contained<load_cuda>, METH_VARARGS,
     "load_cuda(driver library, libtorch_cuda)\n\n"
     "Finds the driver's functions and torch's current stream; returns None, or why it cannot."},
    {"load", opmill::contained<load>, METH_VARARGS,
     "load(libtorch_cpu, libtorch_python, tensor, its _cdata, tensor base type, (code, message) -> exception)\n\n"
     "Finds torch's functions; returns None, or the name of what is missing."},
    {nullptr, nullptr, 0, nullptr}};

int add_types(PyObject* module) {
  PyObject* type = PyType_FromSpec(&executable_spec);
  if (!type || PyModule_AddObject(module, "Executable", type) || opmill::add_differentiated(module)) return -1;
  return opmill::add_frozen(module, &state.tensor_type);
}

PyModuleDef_Slot module_slots[] = {{Py_mod_exec, reinterpret_cast<void*>(opmill::contained<add_types>)}, {0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The native executor of plans.", 0, methods, module_slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&definition); }
