#include "frozen.h"

#include "contained.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "torch_api.h"

namespace opmill {

namespace {

constexpr int kWords = 64;    // words of each tensor that are remembered where contents are sampled
constexpr int kSampled = 4;   // of which so many are compared in one call

PyObject** base_type;

// Where a tensor lies, and how often torch has written to it.
struct Place {
  const void* implementation = nullptr;
  void* data = nullptr;
  int64_t version = -1;
  bool versioned = false;  // tensors of inference mode count no writes

  bool operator==(const Place& other) const {
    return implementation == other.implementation && data == other.data && version == other.version;
  }
};

bool is_tensor(PyObject* object) { return *base_type && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(*base_type)); }

// Reads the place of a tensor; `versioned`: whether it counts writes, as far as is known.
bool read_place(PyObject* tensor, bool versioned, Place* place) {
  if (!is_tensor(tensor)) return false;
  const Handle handle = handle_of(tensor);
  place->implementation = *reinterpret_cast<const void* const*>(handle);
  place->versioned = versioned;
  if (api.get_data_ptr(handle, &place->data)) return false;
  if (!versioned) return true;
  try {
    place->version = api.version(handle);
  } catch (...) { return false; }
  return true;
}

struct Copy {
  std::vector<Place> places;
  std::vector<int64_t> bytes;           // of each tensor that is sampled, 0 of others
  std::vector<std::vector<int64_t>> words;  // what was found there
  std::vector<std::string> whole;           // all that a tensor held, of those that are compared so
  PyObject *run = nullptr, *memory = nullptr;
  int64_t token = 0, hits = 0;
};

// Whether the tensor holds what it held; `whole`: nothing of tensors of which that is not looked at.
bool holds(const Place& place, const std::string& whole) { return whole.empty() || !std::memcmp(place.data, whole.data(), whole.size()); }

int64_t word_at(const Place& place, int64_t bytes, int k) {
  const int64_t words = bytes / 8;
  int64_t value = 0;
  if (words == 0) {
    std::memcpy(&value, place.data, bytes);
    return value;
  }
  const int64_t at = words <= kWords ? std::min<int64_t>(k, words - 1) : k * (words - 1) / (kWords - 1);
  std::memcpy(&value, static_cast<const char*>(place.data) + 8 * at, 8);
  return value;
}

struct Frozen {
  PyObject_HEAD vectorcallfunc call;
  PyObject* miss;
  std::vector<Py_ssize_t>* positions;
  std::vector<Copy>* copies;
  Py_ssize_t count;    // of the inputs of a call
  size_t last;         // the copy that served the last call
  int64_t next_token;
  PyObject* weakrefs;
};

Frozen* as_frozen(PyObject* object) { return reinterpret_cast<Frozen*>(object); }

bool fits(const Frozen& self, const Copy& copy, PyObject* const* arguments) {
  for (size_t i = 0; i < copy.places.size(); i++) {
    Place now;
    const Place& then = copy.places[i];
    if (!read_place(arguments[(*self.positions)[i]], then.versioned, &now) || !(now == then)) return false;
    if (!copy.whole.empty() && !holds(now, copy.whole[i])) return false;
  }
  for (size_t i = 0; i < copy.words.size(); i++) {
    if (!copy.bytes[i]) continue;
    for (int j = 0; j < kSampled; j++) {
      const int k = static_cast<int>((copy.hits + int64_t{j} * (kWords / kSampled)) % kWords);
      if (word_at(copy.places[i], copy.bytes[i], k) != copy.words[i][k]) return false;
    }
  }
  return true;
}

// The copy that was made of these very tensors as they are now, or nullptr.
Copy* find(Frozen& self, PyObject* const* arguments) {
  const size_t count = self.copies->size();
  for (size_t n = 0; n < count; n++) {
    const size_t i = (self.last + n) % count;
    if (!fits(self, (*self.copies)[i], arguments)) continue;
    self.last = i;
    return &(*self.copies)[i];
  }
  return nullptr;
}

PyObject* frozen_call(PyObject* object, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  Frozen& self = *as_frozen(object);
  const Py_ssize_t given = PyVectorcall_NARGS(flags);
  if (keywords && PyTuple_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a plan takes no keyword arguments");
  if (given != self.count) return PyErr_Format(PyExc_TypeError, "a plan of %zd inputs was given %zd", self.count, given);
  Copy* copy = find(self, arguments);
  if (!copy) return PyObject_Vectorcall(self.miss, arguments, given, nullptr);
  copy->hits++;
  std::vector<PyObject*> rest;
  rest.reserve(given);
  size_t next = 0;
  for (Py_ssize_t i = 0; i < given; i++) {
    if (next < self.positions->size() && (*self.positions)[next] == i) next++;
    else rest.push_back(arguments[i]);
  }
  PyObject* run = Py_NewRef(copy->run);  // the call may let this thread's copies go
  PyObject* result = PyObject_Vectorcall(run, rest.data(), rest.size(), nullptr);
  Py_DECREF(run);
  return result;
}

PyObject* frozen_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *positions, *miss;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(arguments, "O!nO", &PyTuple_Type, &positions, &count, &miss)) return nullptr;
  if (!api.version || !*base_type) return PyErr_Format(PyExc_RuntimeError, "this torch does not tell how often a tensor was written to");
  auto* self = reinterpret_cast<Frozen*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->call = contained<frozen_call>;
  self->miss = Py_NewRef(miss);
  self->positions = new std::vector<Py_ssize_t>;
  self->copies = new std::vector<Copy>;
  self->count = count;
  Py_ssize_t before = -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positions); i++) {
    const Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
    if (PyErr_Occurred() || position <= before || position >= count) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "positions of inputs must rise");
      Py_DECREF(self);
      return nullptr;
    }
    self->positions->push_back(before = position);
  }
  return reinterpret_cast<PyObject*>(self);
}

PyObject* frozen_add(PyObject* object, PyObject* arguments) {
  PyObject *tensors, *run, *bytes, *memory = Py_None;
  if (!PyArg_ParseTuple(arguments, "O!OO!|O", &PyTuple_Type, &tensors, &run, &PyTuple_Type, &bytes, &memory)) return nullptr;
  Frozen& self = *as_frozen(object);
  const Py_ssize_t count = static_cast<Py_ssize_t>(self.positions->size());
  if (PyTuple_GET_SIZE(tensors) != count || (PyTuple_GET_SIZE(bytes) != count && PyTuple_GET_SIZE(bytes) != 0))
    return PyErr_Format(PyExc_ValueError, "%zd tensors are wanted", count);
  Copy copy;
  for (Py_ssize_t i = 0; i < count; i++) {
    Place place;
    PyObject* tensor = PyTuple_GET_ITEM(tensors, i);
    if (!read_place(tensor, true, &place) && !read_place(tensor, false, &place))
      return PyErr_Format(PyExc_TypeError, "tensor %zd has no memory of its own", i);
    if (!place.versioned) place.version = -1;
    copy.places.push_back(place);
    if (!PyTuple_GET_SIZE(bytes)) continue;
    const long long size = PyLong_AsLongLong(PyTuple_GET_ITEM(bytes, i));
    if (size == -1 && PyErr_Occurred()) return nullptr;
    copy.bytes.push_back(std::max(size, 0LL));
    copy.whole.push_back(size < 0 ? std::string(static_cast<const char*>(place.data), -size) : std::string());
    copy.words.emplace_back();
    for (int k = 0; k < kWords && copy.bytes.back(); k++) copy.words.back().push_back(word_at(place, copy.bytes.back(), k));
  }
  copy.run = Py_NewRef(run);
  copy.memory = Py_NewRef(memory);
  copy.token = self.next_token++;
  const int64_t token = copy.token;
  self.copies->push_back(std::move(copy));
  self.last = self.copies->size() - 1;
  return PyLong_FromLongLong(token);
}

PyObject* frozen_remove(PyObject* object, PyObject* token) {
  Frozen& self = *as_frozen(object);
  const long long number = PyLong_AsLongLong(token);
  if (PyErr_Occurred()) return nullptr;
  for (auto it = self.copies->begin(); it != self.copies->end(); ++it) {
    if (it->token != number) continue;
    PyObject *run = it->run, *memory = it->memory;
    const int64_t hits = it->hits;
    self.copies->erase(it);
    self.last = 0;
    Py_DECREF(run);  // last: it may run code that comes back here
    Py_DECREF(memory);
    return PyLong_FromLongLong(hits);
  }
  Py_RETURN_NONE;
}

// Whether the copy was made of the tensors as they are now; sampled contents are compared whole.
PyObject* frozen_is_fresh(PyObject* object, PyObject* arguments) {
  PyObject* tensors;
  long long token;
  if (!PyArg_ParseTuple(arguments, "LO!", &token, &PyTuple_Type, &tensors)) return nullptr;
  const Frozen& self = *as_frozen(object);
  for (const Copy& copy : *self.copies) {
    if (copy.token != token || PyTuple_GET_SIZE(tensors) != static_cast<Py_ssize_t>(copy.places.size())) continue;
    for (size_t i = 0; i < copy.places.size(); i++) {
      Place now;
      if (!read_place(PyTuple_GET_ITEM(tensors, i), copy.places[i].versioned, &now) || !(now == copy.places[i])) Py_RETURN_FALSE;
      if (!copy.whole.empty() && !holds(now, copy.whole[i])) Py_RETURN_FALSE;
      for (int k = 0; !copy.words.empty() && copy.bytes[i] && k < kWords; k++)
        if (word_at(now, copy.bytes[i], k) != copy.words[i][k]) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

PyObject* frozen_tokens(PyObject* object, void*) {
  const Frozen& self = *as_frozen(object);
  PyObject* list = PyList_New(0);
  for (size_t i = 0; list && i < self.copies->size(); i++) {
    PyObject* token = PyLong_FromLongLong((*self.copies)[i].token);
    if (!token || PyList_Append(list, token)) Py_CLEAR(list);
    Py_XDECREF(token);
  }
  return list;
}

int frozen_traverse(PyObject* object, visitproc visit, void* arg) {
  Frozen& self = *as_frozen(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self.miss);
  if (self.copies)
    for (const Copy& copy : *self.copies) {
      Py_VISIT(copy.run);
      Py_VISIT(copy.memory);
    }
  return 0;
}

int frozen_clear(PyObject* object) {
  Frozen& self = *as_frozen(object);
  Py_CLEAR(self.miss);
  if (self.copies) {
    std::vector<Copy> copies;
    copies.swap(*self.copies);
    for (const Copy& copy : copies) {
      Py_DECREF(copy.run);
      Py_DECREF(copy.memory);
    }
  }
  return 0;
}

void frozen_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Frozen& self = *as_frozen(object);
  if (self.weakrefs) PyObject_ClearWeakRefs(object);
  frozen_clear(object);
  PyTypeObject* type = Py_TYPE(object);
  delete self.copies;
  delete self.positions;
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef frozen_methods[] = {
    {"add", contained<frozen_add>, METH_VARARGS,
     "add(tensors, run, bytes, memory=None) -> token: calls with these tensors, as they are now, go to run(*other inputs). bytes: how much "
     "of each is sampled, 0 for none, less than 0 for as much that is compared whole in each call; () looks at nothing. memory: kept with "
     "the copy."},
    {"remove", contained<frozen_remove>, METH_O, "remove(token) -> int | None: forgets a copy; how many calls it served."},
    {"is_fresh", contained<frozen_is_fresh>, METH_VARARGS,
     "is_fresh(token, tensors) -> bool: whether the tensors are as they were when it was added."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef frozen_properties[] = {{"tokens", contained<frozen_tokens>, nullptr, "The copies there are, oldest first.", nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef frozen_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Frozen, call), READONLY, nullptr},
                                {"__weaklistoffset__", T_PYSSIZET, offsetof(Frozen, weakrefs), READONLY, nullptr},
                                {nullptr, 0, 0, 0, nullptr}};

PyType_Slot frozen_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(contained<frozen_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(frozen_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(frozen_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(frozen_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getset, frozen_properties},
    {Py_tp_members, frozen_members},
    {Py_tp_methods, frozen_methods},
    {Py_tp_doc,
     const_cast<char*>("Frozen(positions, count, miss): calls of `count` inputs, those at `positions` being tensors that were "
                       "promised to stay. A call with tensors that a copy was made of goes to that; any other to miss(*inputs).")},
    {0, nullptr}};

PyType_Spec frozen_spec = {"opmill_runtime_cache._native.Frozen", sizeof(Frozen), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, frozen_slots};

}  // namespace

int add_frozen(PyObject* module, PyObject** tensor_type) {
  base_type = tensor_type;
  PyObject* type = PyType_FromSpec(&frozen_spec);
  return type ? PyModule_AddObject(module, "Frozen", type) : -1;
}

}  // namespace opmill
