#include "history.h"

#include <cstdint>

#include "torch_api.h"

namespace opmill {

namespace {

bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, static_cast<PyTypeObject*>(api.tensor_type)); }

// Whether gradients are summed up in the tensor; -1 with a Python error set.
int is_leaf(PyObject* tensor) {
  if (!api.requires_grad(*reinterpret_cast<const void* const*>(handle_of(tensor)))) return 0;
  PyObject* leaf = PyObject_GetAttrString(tensor, "is_leaf");
  const int found = leaf ? PyObject_IsTrue(leaf) : -1;
  Py_XDECREF(leaf);
  return found;
}

}  // namespace

int64_t versions_in(PyObject* const* values, Py_ssize_t count) {
  int64_t sum = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!is_tensor(values[i])) continue;
    try {
      sum += api.version(handle_of(values[i]));
    } catch (const std::exception&) {}  // of inference mode: it counts no writes
  }
  return sum;
}

PyObject* references_to(PyObject* const* values, Py_ssize_t count, const char* owned) {
  PyObject* result = PyList_New(count);
  for (Py_ssize_t i = 0; result && i < count; i++) {
    const int weak = !is_tensor(values[i]) ? 0 : owned[i] ? 1 : is_leaf(values[i]);
    PyObject* kept = weak < 0 ? nullptr : weak ? PyWeakref_NewRef(values[i], nullptr) : Py_NewRef(values[i]);
    if (kept) PyList_SET_ITEM(result, i, kept);
    else Py_CLEAR(result);
  }
  return result;
}

PyObject* versions(PyObject*, PyObject* const* tuples, Py_ssize_t count) {
  if (!api.wrap || !api.version) Py_RETURN_NONE;
  int64_t sum = 0;
  for (Py_ssize_t k = 0; k < count; k++) {
    if (!PyTuple_Check(tuples[k])) return PyErr_Format(PyExc_TypeError, "versions() takes tuples");
    sum += versions_in(PySequence_Fast_ITEMS(tuples[k]), PyTuple_GET_SIZE(tuples[k]));
  }
  return PyLong_FromLongLong(sum);
}

PyObject* references(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 3 || !PyTuple_Check(arguments[0]) || !PyLong_Check(arguments[1]) || !PyBytes_Check(arguments[2]))
    return PyErr_Format(PyExc_TypeError, "references() takes a tuple, a number and bytes");
  if (!api.wrap || !api.requires_grad) Py_RETURN_NONE;
  const Py_ssize_t wanted = PyLong_AsSsize_t(arguments[1]);
  if (wanted < 0 || wanted > PyTuple_GET_SIZE(arguments[0]) || wanted > PyBytes_GET_SIZE(arguments[2]))
    return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "there are not so many values");
  return references_to(PySequence_Fast_ITEMS(arguments[0]), wanted, PyBytes_AS_STRING(arguments[2]));
}

}  // namespace opmill
