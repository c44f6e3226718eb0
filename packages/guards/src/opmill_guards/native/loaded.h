// The values that a guard tree hands to the target of an entry.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace guards {

// Owned references, in the order in which the target takes them, with one word of room in front for whoever is called with them.
class Loaded {
 public:
  Loaded() = default;
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() { clear(); }

  // Empties it and makes room for `count` values, all null. False without memory (no error is set).
  bool start(size_t count) {
    clear();
    if (count > few) {
      large_.reset(new (std::nothrow) PyObject*[count + 1]);
      if (!large_) { return false; }
    }
    all_ = count > few ? large_.get() : own_;
    size_ = count;
    for (size_t i = 0; i <= count; ++i) { all_[i] = nullptr; }
    return true;
  }
  void clear() {
    const size_t size = std::exchange(size_, 0);  // letting go of a value may run anything
    for (size_t i = 0; i < size; ++i) { Py_XDECREF(values()[i]); }
  }
  void set(size_t position, PyObject* owned) { values()[position] = owned; }
  PyObject** values() { return all_ + 1; }
  size_t size() const { return size_; }
  // A new tuple of the first values; null with an error set.
  PyObject* tuple(size_t count) {
    PyObject* result = PyTuple_New(count);
    for (size_t i = 0; result != nullptr && i < count; ++i) { PyTuple_SET_ITEM(result, i, Py_NewRef(values()[i])); }
    return result;
  }
  PyObject* tuple() { return tuple(size_); }

 private:
  static constexpr size_t few = 15;
  size_t size_ = 0;
  PyObject** all_ = own_;
  PyObject* own_[few + 1];
  std::unique_ptr<PyObject*[]> large_;
};

// Of a tree of modules the tensor of that number, or where `watch` is -1 what the slot holds, and which of the loaded values it is.
struct Pickup {
  Py_ssize_t watch;
  size_t index, position;
};

}  // namespace guards
