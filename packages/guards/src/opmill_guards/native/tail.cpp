// TailCall: what a target gives instead of a result, to have another callable called after it has left the stack. Code that goes on in
// function after function (a loop with a graph break in it) neither nests calls nor leaves those that have ended in tracebacks.
#include <utility>

#include "common.h"

namespace guards {

namespace {

struct TailCall {
  PyObject_HEAD PyObject *function, *args;
};

TailCall* cast(PyObject* object) { return reinterpret_cast<TailCall*>(object); }

PyObject* tail_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  if (count == 0 || (keywords != nullptr && PyDict_GET_SIZE(keywords) > 0)) {
    return PyErr_Format(PyExc_TypeError, "TailCall(function, *args) takes a callable and positional arguments");
  }
  Ref rest(PyTuple_GetSlice(args, 1, count));
  PyObject* self = rest ? type->tp_alloc(type, 0) : nullptr;
  if (self != nullptr) {
    cast(self)->function = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    cast(self)->args = rest.release();
  }
  return self;
}

int tail_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(cast(object)->function);
  Py_VISIT(cast(object)->args);
  return 0;
}

void tail_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Py_XDECREF(cast(object)->function);
  Py_XDECREF(cast(object)->args);
  Py_TYPE(object)->tp_free(object);
}

// Lets go of the arguments in order, as a frame does of its variables, where nobody else has the tuple: which goes first may show.
void let_go(PyObject* args) {
  if (Py_REFCNT(args) != 1 || PyTuple_GET_SIZE(args) == 0) return;
  if (PyObject_GC_IsTracked(args)) PyObject_GC_UnTrack(args);  // nobody is to find it while it is half empty
  PyObject** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) Py_CLEAR(items[i]);
}

PyTypeObject make_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.TailCall";
  type.tp_basicsize = sizeof(TailCall);
  type.tp_dealloc = tail_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = tail_traverse;
  type.tp_new = contained<tail_new>;
  return type;
}

}  // namespace

PyTypeObject TailCallType = make_type();

PyObject* finish(PyObject* result) {
  while (result != nullptr && Py_TYPE(result) == &TailCallType) {
    const Ref tail(result);  // whoever gave it may hold it until all has ended: what it holds is taken out
    const Ref function(std::exchange(cast(result)->function, nullptr)), args(std::exchange(cast(result)->args, nullptr));
    if (!function || !args) {
      PyErr_SetString(PyExc_RuntimeError, "a TailCall is called once");
      return nullptr;
    }
    PyObject* const* items = reinterpret_cast<PyTupleObject*>(args.get())->ob_item;
    result = PyObject_Vectorcall(function.get(), items, PyTuple_GET_SIZE(args.get()), nullptr);
    let_go(args.get());
  }
  return result;
}

PyObject* finish_given(PyObject*, PyObject* result) { return finish(Py_NewRef(result)); }

}  // namespace guards
