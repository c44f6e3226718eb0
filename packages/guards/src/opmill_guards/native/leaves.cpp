// One check of one value, by kind.
#include "common.h"

namespace guards {

namespace {

// Same exact type and equal, floats by bits. Constants only: no user code runs.
bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) { return true; }
  if (Py_TYPE(a) != Py_TYPE(b)) { return false; }
  if (PyFloat_CheckExact(a)) {
    return std::memcmp(&reinterpret_cast<PyFloatObject*>(a)->ob_fval, &reinterpret_cast<PyFloatObject*>(b)->ob_fval, sizeof(double)) == 0;
  }
  if (PyComplex_CheckExact(a)) {
    return std::memcmp(&reinterpret_cast<PyComplexObject*>(a)->cval, &reinterpret_cast<PyComplexObject*>(b)->cval, sizeof(Py_complex)) == 0;
  }
  if (PyTuple_Check(a)) {  // tuples and torch.Size
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) { return false; }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
      if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) { return false; }
    }
    return true;
  }
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

Py_ssize_t builtin_length(PyObject* value) {
  value = shown_by(value);
  if (PyDict_Check(value)) { return PyDict_GET_SIZE(value); }
  if (PyAnySet_Check(value)) { return PySet_GET_SIZE(value); }
  if (PyTuple_Check(value) || PyList_Check(value) || (environment.deque != nullptr && PyObject_TypeCheck(value, environment.deque))) {
    return Py_SIZE(value);
  }
  return -1;
}

bool same_key(PyObject* a, PyObject* b) { return a == b || PyObject_RichCompareBool(a, b, Py_EQ) == 1; }

struct TypeLeaf final : Leaf {
  PyObject* type;
  explicit TypeLeaf(PyObject* operand) : type(operand) {}
  bool check(PyObject* value) const override { return reinterpret_cast<PyObject*>(Py_TYPE(value)) == type; }
  // Objects of classes made by `class`, and modules, may be given another class.
  bool settled() const override {
    auto* exact = reinterpret_cast<PyTypeObject*>(type);
    return PyType_Check(type) && !PyType_HasFeature(exact, Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(exact, &PyModule_Type);
  }
};

struct IsLeaf final : Leaf {
  PyObject* object;
  explicit IsLeaf(PyObject* operand) : object(operand) {}
  bool check(PyObject* value) const override { return value == object; }
  bool settled() const override { return true; }
};

// Of an object that the guards do not keep. Where the same dictionary holds it as before, it lives.
struct IsWeakLeaf final : Leaf {
  PyObject* reference;
  explicit IsWeakLeaf(PyObject* operand) : reference(operand) {}
  bool check(PyObject* value) const override { return refers_to(reference, value); }
  bool settled() const override { return true; }
};

struct EqualsLeaf final : Leaf {
  PyObject* constant;
  explicit EqualsLeaf(PyObject* operand) : constant(operand) {}
  bool check(PyObject* value) const override { return same_constant(value, constant); }
  bool settled() const override { return true; }
};

struct LengthLeaf final : Leaf {
  Py_ssize_t length;
  explicit LengthLeaf(PyObject* operand) : length(PyLong_AsSsize_t(operand)) {}
  bool check(PyObject* value) const override { return length >= 0 && builtin_length(value) == length; }
  bool settled_in_dict() const override { return true; }
};

struct DictKeysLeaf final : Leaf {
  // `ways`: of each key whether it is a weak reference to the one that is expected, None where it may be any; empty for plain ones.
  PyObject *keys = nullptr, *ways = nullptr;
  explicit DictKeysLeaf(PyObject* operand) { PyArg_ParseTuple(operand, "O!O!", &PyTuple_Type, &keys, &PyTuple_Type, &ways); }
  bool check(PyObject* value) const override {
    const Py_ssize_t count = PyTuple_GET_SIZE(keys);
    value = shown_by(value);
    if (!PyDict_Check(value) || PyDict_GET_SIZE(value) != count) { return false; }
    return PyODict_Check(value) ? check_ordered(value, count) : check_plain(value, count);
  }
  bool settled_in_dict() const override { return true; }
  bool same(PyObject* key, Py_ssize_t i) const {
    PyObject* expected = PyTuple_GET_ITEM(keys, i);
    PyObject* way = PyTuple_GET_SIZE(ways) > 0 ? PyTuple_GET_ITEM(ways, i) : Py_False;
    return way == Py_None || (way == Py_True ? refers_to(expected, key) : same_key(key, expected));
  }
  bool check_plain(PyObject* value, Py_ssize_t count) const {
    PyObject *key = nullptr, *item = nullptr;
    Py_ssize_t cursor = 0, i = 0;
    for (; PyDict_Next(value, &cursor, &key, &item); ++i) {
      Ref held = Ref::borrow(key);
      if (i >= count || !same(key, i)) { return false; }
    }
    return i == count;
  }
  bool check_ordered(PyObject* value, Py_ssize_t count) const {
    Ref iterator(PyODict_Type.tp_iter(value));
    for (Py_ssize_t i = 0; iterator && i < count; ++i) {
      Ref key(PyIter_Next(iterator.get()));
      if (!key || !same(key.get(), i)) { return false; }
    }
    return static_cast<bool>(iterator);
  }
};

struct AbsentLeaf final : Leaf {
  PyObject* key;
  explicit AbsentLeaf(PyObject* operand) : key(operand) {}
  bool check(PyObject* value) const override {
    value = shown_by(value);
    return PyDict_Check(value) && PyDict_Contains(value, key) == 0;
  }
  bool settled_in_dict() const override { return true; }
};

struct CallLeaf final : Leaf {
  PyObject* function;
  explicit CallLeaf(PyObject* operand) : function(operand) {}
  bool check(PyObject* value) const override {
    Ref answer(PyObject_CallOneArg(function, value));
    return answer && PyObject_IsTrue(answer.get()) == 1;
  }
};

struct TensorLeaf final : Leaf {
  TensorSpec spec;
  bool check(PyObject* value) const override { return spec.check(value); }
};

template <class T>
std::unique_ptr<Leaf> make(PyObject* operand) {
  return std::make_unique<T>(operand);
}

std::unique_ptr<Leaf> make_tensor(PyObject* operand) {
  auto leaf = std::make_unique<TensorLeaf>();
  return leaf->spec.parse(operand) ? std::move(leaf) : nullptr;
}

}  // namespace

// A leaf is described by (kind, operand); the operand is kept alive by the description.
std::unique_ptr<Leaf> make_leaf(PyObject* description) {
  const char* kind = nullptr;
  PyObject* operand = nullptr;
  if (!PyArg_ParseTuple(description, "sO", &kind, &operand)) { return nullptr; }
  static constexpr std::pair<const char*, std::unique_ptr<Leaf> (*)(PyObject*)> kinds[] = {
      {"type", make<TypeLeaf>},         {"is", make<IsLeaf>},
      {"is weak", make<IsWeakLeaf>},    {"equals", make<EqualsLeaf>},
      {"length", make<LengthLeaf>},     {"dict_keys", make<DictKeysLeaf>},
      {"absent", make<AbsentLeaf>},     {"call", make<CallLeaf>},
      {"tensor", make_tensor},          {"global", make_global_leaf},
      {"remember", make_remember_leaf}, {"default devices", make_default_devices_leaf},
  };
  for (const auto& [name, factory] : kinds) {
    if (std::strcmp(name, kind) == 0) {
      auto leaf = factory(operand);
      return PyErr_Occurred() ? nullptr : std::move(leaf);
    }
  }
  PyErr_Format(PyExc_ValueError, "unknown leaf %s", kind);
  return nullptr;
}

}  // namespace guards
