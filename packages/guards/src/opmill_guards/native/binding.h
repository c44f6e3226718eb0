// From the arguments of a call to the locals of the called code object, as the interpreter would bind them.
#pragma once
#include "common.h"

namespace guards {

struct Signature {
  Py_ssize_t positional_only = 0, positional = 0, keyword_only = 0;  // `positional` includes the positional-only ones
  bool varargs = false, varkeywords = false;
  PyObject* names = nullptr;  // owned tuple, in the order of the locals
  Py_ssize_t total() const { return positional + keyword_only + varargs + varkeywords; }
  bool read(PyObject* code);
};

// The locals of one call. `values` holds borrowed references to the arguments and defaults; what was built is owned here.
class Locals {
 public:
  Locals() = default;
  Locals(const Locals&) = delete;
  Locals& operator=(const Locals&) = delete;
  // False where the call does not fit the signature (an error may be set) and the function itself has to complain.
  bool bind(const Signature& signature, PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* keywords);
  // One more behind the `total` that were bound; borrowed.
  void append(Py_ssize_t total, PyObject* value);
  PyObject* const* values() const { return values_; }

 private:
  static constexpr Py_ssize_t inline_size = 16;
  bool bind_keywords(const Signature& signature, PyObject* const* args, PyObject* keywords, Py_ssize_t parameters);
  bool fill_defaults(const Signature& signature, PyObject* function);
  PyObject* const* values_ = nullptr;
  PyObject* inline_[inline_size];
  std::vector<PyObject*> large_;
  PyObject** own_ = nullptr;
  Ref varargs_, varkeywords_;
};

}  // namespace guards
