#pragma once
#include <Python.h>

// Adds the frame evaluation functions to the extension module; -1 with an exception set on failure.
int add_eval_frame(PyObject* module);
