// Shown: a slot of a class, asked of whose objects it is the slot, and asked of the class itself a function of Python's. Who traces a program
// looks at classes, and finds that; calls go by what the slot holds.
#include "common.h"

namespace guards {

namespace {

struct Shown {
  PyObject_HEAD PyObject *slot, *function;
};

Shown* cast(PyObject* object) { return reinterpret_cast<Shown*>(object); }

PyObject* shown_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *slot = nullptr, *function = nullptr;
  if (!PyArg_ParseTuple(args, "O!O", &PyMemberDescr_Type, &slot, &function)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) {
    cast(self)->slot = Py_NewRef(slot);
    cast(self)->function = Py_NewRef(function);
  }
  return self;
}

int shown_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(cast(object)->slot);
  Py_VISIT(cast(object)->function);
  return 0;
}

int shown_clear(PyObject* object) {
  Py_CLEAR(cast(object)->function);  // the slot stays: it may be asked while what is garbage goes
  return 0;
}

void shown_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Py_XDECREF(cast(object)->slot);
  Py_XDECREF(cast(object)->function);
  Py_TYPE(object)->tp_free(object);
}

PyObject* shown_get(PyObject* self, PyObject* object, PyObject* type) {
  if (object != nullptr) return PyMemberDescr_Type.tp_descr_get(cast(self)->slot, object, type);
  return Py_XNewRef(cast(self)->function != nullptr ? cast(self)->function : Py_None);
}

int shown_set(PyObject* self, PyObject* object, PyObject* value) {
  return PyMemberDescr_Type.tp_descr_set(cast(self)->slot, object, value);
}

PyTypeObject make_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.Shown";
  type.tp_basicsize = sizeof(Shown);
  type.tp_dealloc = shown_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = shown_traverse;
  type.tp_clear = shown_clear;
  type.tp_descr_get = contained<shown_get>;
  type.tp_descr_set = shown_set;
  type.tp_new = contained<shown_new>;
  return type;
}

}  // namespace

PyTypeObject ShownType = make_type();

}  // namespace guards
