// DirectCall: what an entry runs where its function is nothing but a graph: what the guards load goes to the graph, and what the graph gives
// becomes the result, with no Python between.
#include "common.h"

namespace guards {

namespace {

// One of the values that a result is made of; they are made in order, the last is the result.
struct Part {
  enum Kind { Output, Input, Constant, Tuple, List, Dict, Object, KindCount } kind;
  size_t index = 0;  // of Output and Input
  PyObject* object = nullptr;  // of Constant; of Object its class
  PyTypeObject* base = nullptr;  // of Object: the class that makes and fills it
  std::vector<size_t> items;  // earlier parts
  std::vector<PyObject*> keys;  // of Dict and Object, each with an item; those of an Object's own attributes come last
  size_t stored = 0;  // of Object: how many keys are not attributes
};

struct DirectCall {
  PyObject_HEAD PyObject *graph, *recover, *failed, *description;
  std::vector<Part>* parts;
};

DirectCall* cast(PyObject* object) { return reinterpret_cast<DirectCall*>(object); }

// The exception that is set, with its traceback; then none is set any more.
Ref take_error() {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref(PyErr_GetRaisedException());
#else
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value != nullptr && traceback != nullptr) { PyException_SetTraceback(value, traceback); }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref(value);
#endif
}

// --- results

PyObject* output(PyObject* outputs, size_t index) {
  const auto position = static_cast<Py_ssize_t>(index);
  if (PyTuple_CheckExact(outputs) && position < PyTuple_GET_SIZE(outputs)) { return Py_NewRef(PyTuple_GET_ITEM(outputs, position)); }
  return PySequence_GetItem(outputs, position);
}

bool store(PyTypeObject* base, PyObject* object, PyObject* key, PyObject* item) {
  return (base == &PyODict_Type ? PyODict_SetItem(object, key, item) : PyDict_SetItem(object, key, item)) == 0;
}

PyObject* make_object(const Part& part, const std::vector<Ref>& made) {
  Ref none(PyTuple_New(0));
  Ref object(none ? part.base->tp_new(reinterpret_cast<PyTypeObject*>(part.object), none.get(), nullptr) : nullptr);
  for (size_t i = 0; object && i < part.stored; ++i) {
    if (!store(part.base, object.get(), part.keys[i], made[part.items[i]].get())) { return nullptr; }
  }
  if (!object || part.stored == part.keys.size()) { return object.release(); }
  const Ref attributes(PyObject_GenericGetDict(object.get(), nullptr));
  for (size_t i = part.stored; i < part.keys.size(); ++i) {
    if (!attributes || PyDict_SetItem(attributes.get(), part.keys[i], made[part.items[i]].get()) < 0) { return nullptr; }
  }
  return object.release();
}

PyObject* make_container(const Part& part, const std::vector<Ref>& made) {
  const auto count = static_cast<Py_ssize_t>(part.items.size());
  Ref result(part.kind == Part::Tuple ? PyTuple_New(count) : part.kind == Part::List ? PyList_New(count) : PyDict_New());
  for (Py_ssize_t i = 0; result && i < count; ++i) {
    PyObject* item = made[part.items[i]].get();
    if (part.kind == Part::Tuple) {
      PyTuple_SET_ITEM(result.get(), i, Py_NewRef(item));
    } else if (part.kind == Part::List) {
      PyList_SET_ITEM(result.get(), i, Py_NewRef(item));
    } else if (PyDict_SetItem(result.get(), part.keys[i], item) < 0) {
      return nullptr;
    }
  }
  return result.release();
}

PyObject* make(const Part& part, PyObject* outputs, Loaded& loaded, const std::vector<Ref>& made) {
  switch (part.kind) {
    case Part::Output:
      return output(outputs, part.index);
    case Part::Input:
      return Py_NewRef(loaded.values()[part.index]);
    case Part::Constant:
      return Py_NewRef(part.object);
    case Part::Object:
      return make_object(part, made);
    default:
      return make_container(part, made);
  }
}

PyObject* rebuild(const std::vector<Part>& parts, PyObject* outputs, Loaded& loaded) {
  std::vector<Ref> made;
  if (parts.size() == 1) { return make(parts[0], outputs, loaded, made); }
  made.reserve(parts.size());
  for (const Part& part : parts) {
    made.emplace_back(make(part, outputs, loaded, made));
    if (!made.back()) { return nullptr; }
  }
  return made.back().release();
}

// --- failures

Ref recovered(DirectCall* self, Loaded& loaded, size_t given) {
  const Ref error = take_error(), inputs(loaded.tuple(given));
  if (!inputs) { return Ref(); }
  return Ref(PyObject_CallFunctionObjArgs(self->recover, error.get(), inputs.get(), nullptr));
}

// The result of the call where the graph has raised: what `failed` makes of it. `function`: the one that was called, where it is among what
// the guards load, else null.
PyObject* fail(DirectCall* self, PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  const Ref error = take_error(), positional(PyTuple_New(count)), named(PyDict_New());
  if (!positional || !named) { return nullptr; }
  for (Py_ssize_t i = 0; i < count; ++i) { PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i])); }
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(keywords, i), args[count + i]) < 0) { return nullptr; }
  }
  return PyObject_CallFunctionObjArgs(self->failed, error.get(), positional.get(), named.get(), function, nullptr);
}

// --- life

bool parse_indices(PyObject* tuple, size_t limit, std::vector<size_t>* result) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
    if (index < 0 || static_cast<size_t>(index) >= limit) {
      if (!PyErr_Occurred()) { PyErr_SetString(PyExc_ValueError, "a part is made of parts before it"); }
      return false;
    }
    result->push_back(static_cast<size_t>(index));
  }
  return true;
}

// (kind, index, object or None, base or None, items, keys, how many keys are stored)
bool parse_part(PyObject* description, size_t before, Part* part) {
  int kind = 0;
  Py_ssize_t index = 0, stored = 0;
  PyObject *object = nullptr, *base = nullptr, *items = nullptr, *keys = nullptr;
  if (!PyArg_ParseTuple(description, "inOOO!O!n", &kind, &index, &object, &base, &PyTuple_Type, &items, &PyTuple_Type, &keys, &stored) ||
      !parse_indices(items, before, &part->items)) {
    return false;
  }
  part->kind = static_cast<Part::Kind>(kind);
  part->index = static_cast<size_t>(index);
  part->object = object;
  part->stored = static_cast<size_t>(stored);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) { part->keys.push_back(PyTuple_GET_ITEM(keys, i)); }
  const bool keyed = part->kind == Part::Dict || part->kind == Part::Object;
  bool good = kind >= 0 && kind < Part::KindCount && index >= 0 && stored >= 0 && part->stored <= part->keys.size() &&
              (!keyed || part->keys.size() == part->items.size());
  if (part->kind == Part::Object) {
    part->base = PyType_Check(base) ? reinterpret_cast<PyTypeObject*>(base) : nullptr;
    const bool fills = part->base == &PyODict_Type || part->base == &PyDict_Type || (part->base == &PyBaseObject_Type && stored == 0);
    good = good && fills && PyType_Check(object) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object), part->base);
  }
  if (!good) { PyErr_Format(PyExc_ValueError, "%R is no part of a result", description); }
  return good;
}

PyObject* direct_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *graph = nullptr, *recover = nullptr, *failed = nullptr, *description = nullptr;
  if (!PyArg_ParseTuple(args, "OOOO!", &graph, &recover, &failed, &PyTuple_Type, &description)) { return nullptr; }
  if (!PyCallable_Check(graph) || !PyCallable_Check(failed) || (recover != Py_None && !PyCallable_Check(recover))) {
    return PyErr_Format(PyExc_TypeError, "DirectCall(graph, recover, failed, parts) takes callables");
  }
  auto parts = std::make_unique<std::vector<Part>>(PyTuple_GET_SIZE(description));
  for (size_t i = 0; i < parts->size(); ++i) {
    if (!parse_part(PyTuple_GET_ITEM(description, i), i, &(*parts)[i])) { return nullptr; }
  }
  if (parts->empty()) { return PyErr_Format(PyExc_ValueError, "a result has at least one part"); }
  auto* self = cast(type->tp_alloc(type, 0));
  if (self == nullptr) { return nullptr; }
  self->graph = Py_NewRef(graph);
  self->recover = recover == Py_None ? nullptr : Py_NewRef(recover);
  self->failed = Py_NewRef(failed);
  self->description = Py_NewRef(description);
  self->parts = parts.release();
  return reinterpret_cast<PyObject*>(self);
}

int direct_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = cast(object);
  Py_VISIT(self->graph);
  Py_VISIT(self->recover);
  Py_VISIT(self->failed);
  Py_VISIT(self->description);
  return 0;
}

// The parts borrow from the description.
void direct_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto* self = cast(object);
  delete self->parts;
  Py_XDECREF(self->graph);
  Py_XDECREF(self->recover);
  Py_XDECREF(self->failed);
  Py_XDECREF(self->description);
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject make_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.DirectCall";
  type.tp_basicsize = sizeof(DirectCall);
  type.tp_dealloc = direct_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = direct_traverse;
  type.tp_new = contained<direct_new>;
  return type;
}

}  // namespace

PyTypeObject DirectCallType = make_type();

PyObject* call_direct(PyObject* direct, Loaded& loaded, bool with_function, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  DirectCall* self = cast(direct);
  const size_t given = loaded.size() - with_function;
  Ref outputs(PyObject_Vectorcall(self->graph, loaded.values(), given | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!outputs && self->recover != nullptr && PyErr_ExceptionMatches(PyExc_Exception)) { outputs = recovered(self, loaded, given); }
  if (outputs) { return rebuild(*self->parts, outputs.get(), loaded); }
  if (!PyErr_ExceptionMatches(PyExc_Exception)) { return nullptr; }
  const Ref function = with_function ? Ref::borrow(loaded.values()[given]) : Ref();
  loaded.clear();
  return fail(self, function.get(), args, count, keywords);
}

}  // namespace guards
