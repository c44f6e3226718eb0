// Calls that autograd differentiates, with no Python of ours between it and the plans.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace opmill {

// Adds the types `Differentiated` and `Noted`, and `forward` and `backward` of the autograd function that they are called through.
int add_differentiated(PyObject* module);

}  // namespace opmill
