// What was made of tensors that are promised to stay, kept by which tensors they were: finding it is the check that they have not changed.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace opmill {

// Adds the type `Frozen` to the module; `tensor_type`: where torch.Tensor's base is found once load() has run. -1 with a Python error set.
int add_frozen(PyObject* module, PyObject** tensor_type);

}  // namespace opmill
