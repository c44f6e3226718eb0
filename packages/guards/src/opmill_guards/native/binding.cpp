#include "binding.h"

#include <algorithm>

namespace guards {

bool Signature::read(PyObject* object) {
  if (!PyCode_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "expected a Python function");
    return false;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  positional_only = code->co_posonlyargcount;
  positional = code->co_argcount;
  keyword_only = code->co_kwonlyargcount;
  varargs = (code->co_flags & CO_VARARGS) != 0;
  varkeywords = (code->co_flags & CO_VARKEYWORDS) != 0;
  Ref all(PyCode_GetVarnames(code));
  names = all ? PyTuple_GetSlice(all.get(), 0, total()) : nullptr;
  return names != nullptr;
}

static Py_ssize_t find_name(const Signature& signature, PyObject* name, Py_ssize_t first, Py_ssize_t last) {
  for (Py_ssize_t i = first; i < last; ++i) {  // keyword names and co_varnames are interned: mostly found by identity
    if (PyTuple_GET_ITEM(signature.names, i) == name) { return i; }
  }
  for (Py_ssize_t i = first; i < last; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(signature.names, i), name) == 0) { return i; }
  }
  return -1;
}

bool Locals::bind_keywords(const Signature& signature, PyObject* const* args, PyObject* keywords, Py_ssize_t parameters) {
  const Py_ssize_t count = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    const Py_ssize_t index = find_name(signature, name, signature.positional_only, parameters);
    if (index >= 0) {
      if (own_[index] != nullptr) { return false; }
      own_[index] = args[i];
    } else if (!varkeywords_ || PyDict_SetItem(varkeywords_.get(), name, args[i]) < 0) {
      return false;
    }
  }
  return true;
}

bool Locals::fill_defaults(const Signature& signature, PyObject* function) {
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  const Py_ssize_t given = defaults == nullptr ? 0 : PyTuple_GET_SIZE(defaults), first = signature.positional - given;
  for (Py_ssize_t i = 0; i < signature.positional; ++i) {
    if (own_[i] == nullptr) {
      if (i < first) { return false; }
      own_[i] = PyTuple_GET_ITEM(defaults, i - first);
    }
  }
  PyObject* keyword_defaults = PyFunction_GET_KW_DEFAULTS(function);
  for (Py_ssize_t i = signature.positional; i < signature.positional + signature.keyword_only; ++i) {
    if (own_[i] == nullptr) {
      own_[i] = keyword_defaults == nullptr ? nullptr : PyDict_GetItemWithError(keyword_defaults, PyTuple_GET_ITEM(signature.names, i));
      if (own_[i] == nullptr) { return false; }
    }
  }
  return true;
}

bool Locals::bind(const Signature& signature, PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  const Py_ssize_t parameters = signature.positional + signature.keyword_only, total = signature.total();
  if (keywords == nullptr && count == total && total == signature.positional) {
    values_ = args;
    return true;
  }
  if (count > signature.positional && !signature.varargs) { return false; }
  if (total > inline_size) {
    large_.resize(total);
    own_ = large_.data();
  } else {
    own_ = inline_;
  }
  values_ = own_;
  std::fill_n(own_, total, nullptr);
  const Py_ssize_t direct = std::min(count, signature.positional);
  std::copy_n(args, direct, own_);
  Py_ssize_t next = parameters;
  if (signature.varargs) {
    varargs_ = Ref(PyTuple_New(count - direct));
    if (!varargs_) { return false; }
    for (Py_ssize_t i = direct; i < count; ++i) { PyTuple_SET_ITEM(varargs_.get(), i - direct, Py_NewRef(args[i])); }
    own_[next++] = varargs_.get();
  }
  if (signature.varkeywords) {
    varkeywords_ = Ref(PyDict_New());
    if (!varkeywords_) { return false; }
    own_[next] = varkeywords_.get();
  }
  return bind_keywords(signature, args + count, keywords, parameters) && fill_defaults(signature, function);
}

void Locals::append(Py_ssize_t total, PyObject* value) {
  if (total >= inline_size) {
    large_.resize(total + 1);
    own_ = large_.data();
  } else {
    own_ = inline_;
  }
  if (values_ != own_) { std::copy_n(values_, total, own_); }
  own_[total] = value;
  values_ = own_;
}

}  // namespace guards
