// What a differentiated call notes of its tensors.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace opmill {

// How often these values, where they are tensors, were written to, in all. `api.version` must be there.
int64_t versions_in(PyObject* const* values, Py_ssize_t count);

// A list of `values`, with weak references in place of leaves that require grad and of tensors that `owned` marks; null with a Python error
// set. `api.requires_grad` must be there.
PyObject* references_to(PyObject* const* values, Py_ssize_t count, const char* owned);

// versions(tuple, tuple, ...) -> int | None: how often their tensors were written to, in all; None before load().
PyObject* versions(PyObject* module, PyObject* const* tuples, Py_ssize_t count);

// references(tuple, count, owned: bytes) -> list | None: the first `count` values, weak references in place of leaves that require grad and of
// tensors that `owned` marks; None before load().
PyObject* references(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace opmill
