// Facts of tensors, read from the TensorImpl directly. The layout is probed and verified in Python (`probe.py`), never assumed:
// where it is unknown, or a tensor is not plain (its class may answer for sizes), the Python check decides.
#include "common.h"

#include <algorithm>

namespace guards {

namespace {
constexpr int inline_dims = TensorSpec::inline_dims;

struct Layout {
  bool known = false;
  Py_ssize_t cdata = 0;                                                             // in the Python object
  Py_ssize_t ndim = 0, sizes = 0, strides = 0, storage_offset = 0, dtype = 0, device = 0, keys = 0;  // in the TensorImpl
  uint64_t plain = 0;    // dispatch keys that leave sizes, strides and device to the TensorImpl
  uint64_t wrapper = 0;  // those that do so where no bit of `asked` is set at `policy`: the class is asked for nothing of it
  Py_ssize_t policy = 0;
  uint64_t asked = 0;
  bool (*requires_grad)(const void*) = nullptr;
};
Layout layout;

template <class T>
T load(const char* base, Py_ssize_t offset) {
  T result;
  std::memcpy(&result, base + offset, sizeof(T));
  return result;
}

const char* impl_of(PyObject* tensor) { return load<const char*>(reinterpret_cast<const char*>(tensor), layout.cdata); }

struct Shape {
  int64_t ndim;
  const int64_t *sizes, *strides;
};

Shape shape_of(const char* impl) {
  const int64_t ndim = load<int64_t>(impl, layout.ndim);
  if (ndim <= inline_dims) {
    return {ndim, reinterpret_cast<const int64_t*>(impl + layout.sizes), reinterpret_cast<const int64_t*>(impl + layout.strides)};
  }
  const auto* outside = load<const int64_t*>(impl, layout.sizes);
  return {ndim, outside, outside + ndim};
}

// Whether the TensorImpl itself says what sizes, strides and device are.
bool is_plain(const char* impl) {
  const auto keys = load<uint64_t>(impl, layout.keys);
  if (keys == 0) { return false; }
  if ((keys & ~layout.plain) == 0) { return true; }
  return layout.asked != 0 && (keys & ~(layout.plain | layout.wrapper)) == 0 && (load<uint64_t>(impl, layout.policy) & layout.asked) == 0;
}

bool matches(const std::vector<int64_t>& expected, const int64_t* found) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] >= 0 && expected[i] != found[i]) { return false; }
  }
  return true;
}

bool read_offset(PyObject* description, const char* name, Py_ssize_t* result) {
  PyObject* value = PyDict_GetItemString(description, name);
  if (value == nullptr) {
    PyErr_Format(PyExc_KeyError, "%s", name);
    return false;
  }
  *result = PyLong_AsSsize_t(value);
  return *result != -1 || !PyErr_Occurred();
}

bool read_dims(PyObject* description, bool* any, std::vector<int64_t>* result) {
  *any = description == Py_None;
  if (*any) { return true; }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(description); ++i) {
    PyObject* item = PyTuple_GET_ITEM(description, i);
    result->push_back(item == Py_None ? -1 : PyLong_AsLongLong(item));
    if (PyErr_Occurred()) { return false; }
  }
  return true;
}
}  // namespace

bool configure_tensors(PyObject* description) {
  if (description == Py_None) {
    layout.known = false;
    return true;
  }
  Layout found;
  Py_ssize_t function = 0;
  const std::pair<const char*, Py_ssize_t*> offsets[] = {
      {"cdata", &found.cdata},      {"ndim", &found.ndim},     {"sizes", &found.sizes}, {"strides", &found.strides},
      {"dtype", &found.dtype},      {"device", &found.device}, {"keys", &found.keys},   {"storage_offset", &found.storage_offset},
      {"requires_grad", &function}, {"policy", &found.policy},
  };
  for (const auto& [name, target] : offsets) {
    if (!read_offset(description, name, target)) { return false; }
  }
  for (const auto& [name, target] : {std::pair{"plain", &found.plain}, {"wrapper", &found.wrapper}, {"asked", &found.asked}}) {
    PyObject* bits = PyDict_GetItemString(description, name);
    *target = bits == nullptr ? 0 : PyLong_AsUnsignedLongLong(bits);
  }
  if (PyErr_Occurred()) { return false; }
  found.requires_grad = reinterpret_cast<bool (*)(const void*)>(function);
  found.known = true;
  layout = found;
  return true;
}

// The facts as read natively, for `probe.py` to verify: (dtype code, device type, device index, sizes, strides, offset, keys, requires_grad).
PyObject* tensor_facts(PyObject*, PyObject* tensor) {
  if (!layout.known || environment.tensor == nullptr || !PyObject_TypeCheck(tensor, environment.tensor)) {
    return PyErr_Format(PyExc_TypeError, "not a tensor, or its layout is unknown");
  }
  const char* impl = impl_of(tensor);
  const Shape shape = shape_of(impl);
  Ref sizes(PyTuple_New(shape.ndim)), strides(PyTuple_New(shape.ndim));
  for (Py_ssize_t i = 0; i < shape.ndim; ++i) {
    PyTuple_SET_ITEM(sizes.get(), i, PyLong_FromLongLong(shape.sizes[i]));
    PyTuple_SET_ITEM(strides.get(), i, PyLong_FromLongLong(shape.strides[i]));
  }
  PyObject* requires_grad = layout.requires_grad ? PyBool_FromLong(layout.requires_grad(impl)) : Py_NewRef(Py_None);
  return Py_BuildValue("iiiOOLKN", load<uint16_t>(impl, layout.dtype), load<int8_t>(impl, layout.device),
                       load<int8_t>(impl, layout.device + 1), sizes.get(), strides.get(), load<int64_t>(impl, layout.storage_offset),
                       load<uint64_t>(impl, layout.keys), requires_grad);
}

PyObject* read_tensor_property(PyObject* tensor, const char* property, Py_ssize_t dim) {
  if (environment.tensor == nullptr || !PyObject_TypeCheck(tensor, environment.tensor)) { return nullptr; }
  if (layout.known) {
    const char* impl = impl_of(tensor);
    if (impl != nullptr && is_plain(impl)) {
      if (std::strcmp(property, "storage_offset") == 0) { return PyLong_FromLongLong(load<int64_t>(impl, layout.storage_offset)); }
      const Shape shape = shape_of(impl);
      dim += dim < 0 ? shape.ndim : 0;
      if (dim < 0 || dim >= shape.ndim) { return nullptr; }
      return PyLong_FromLongLong(std::strcmp(property, "size") == 0 ? shape.sizes[dim] : shape.strides[dim]);
    }
  }
  return PyObject_CallFunction(environment.read_property, "Osn", tensor, property, dim);
}

// (guard, type, dtype code or None, device type, device index, sizes, strides, requires_grad, keys); None for the code: decided in Python.
bool TensorSpec::parse(PyObject* description) {
  PyObject *code = nullptr, *size_tuple = nullptr, *stride_tuple = nullptr, *grad = nullptr, *key_set = nullptr, *exact = nullptr;
  int device_type = 0, device_index = 0;
  if (!PyArg_ParseTuple(description, "OO!OiiOOOO", &guard, &PyType_Type, &exact, &code, &device_type, &device_index, &size_tuple,
                        &stride_tuple, &grad, &key_set)) {
    return false;
  }
  type = reinterpret_cast<PyTypeObject*>(exact);
  native = code != Py_None && layout.known && environment.tensor != nullptr && PyType_IsSubtype(type, environment.tensor);
  if (native) { dtype = static_cast<uint16_t>(PyLong_AsLong(code)); }
  const int8_t place[2] = {static_cast<int8_t>(device_type), static_cast<int8_t>(device_index)};
  std::memcpy(&device, place, sizeof device);
  requires_grad = grad == Py_None ? -1 : grad == Py_True;
  native = native && (requires_grad < 0 || layout.requires_grad != nullptr);
  any_keys = key_set == Py_None;
  keys = any_keys ? 0 : PyLong_AsUnsignedLongLong(key_set);
  if (PyErr_Occurred() || !read_dims(size_tuple, &any_sizes, &sizes) || !read_dims(stride_tuple, &any_strides, &strides)) { return false; }
  const auto known = [](const std::vector<int64_t>& dims) {
    return std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  };
  whole = !any_sizes && !any_strides && sizes.size() == strides.size() && sizes.size() <= inline_dims && known(sizes) && known(strides);
  if (whole) {
    ndim = sizes.size();
    std::copy(sizes.begin(), sizes.end(), dims);
    std::copy(strides.begin(), strides.end(), dims + ndim);
  }
  return true;
}

bool TensorSpec::decide(PyObject* value, bool* holds) const {
  if (Py_TYPE(value) != type) {
    *holds = false;
    return true;
  }
  const char* impl = native ? impl_of(value) : nullptr;
  if (impl == nullptr || !is_plain(impl)) { return false; }
  const auto found = load<uint64_t>(impl, layout.keys);
  *holds = (any_keys || found == keys) && load<uint16_t>(impl, layout.dtype) == dtype && load<uint16_t>(impl, layout.device) == device &&
           (whole ? same_shape(impl) : fits_shape(impl)) && (requires_grad < 0 || layout.requires_grad(impl) == (requires_grad == 1));
  return true;
}

// All sizes and strides are known, and lie in the TensorImpl.
bool TensorSpec::same_shape(const char* impl) const {
  uint64_t difference = static_cast<uint64_t>(load<int64_t>(impl, layout.ndim)) ^ ndim;
  for (size_t i = 0; i < ndim; ++i) {
    difference |= static_cast<uint64_t>(load<int64_t>(impl, layout.sizes + 8 * i) ^ dims[i]);
    difference |= static_cast<uint64_t>(load<int64_t>(impl, layout.strides + 8 * i) ^ dims[ndim + i]);
  }
  return difference == 0;
}

bool TensorSpec::fits_shape(const char* impl) const {
  const Shape shape = shape_of(impl);
  return (any_sizes || (shape.ndim == static_cast<int64_t>(sizes.size()) && matches(sizes, shape.sizes))) &&
         (any_strides || (shape.ndim == static_cast<int64_t>(strides.size()) && matches(strides, shape.strides)));
}

bool TensorSpec::check(PyObject* value) const {
  bool holds = false;
  if (decide(value, &holds)) { return holds; }
  PyObject* arguments[] = {guard, value};
  Ref answer(PyObject_Vectorcall(environment.check_tensor, arguments, 2, nullptr));
  return answer.get() == Py_True;
}

}  // namespace guards
