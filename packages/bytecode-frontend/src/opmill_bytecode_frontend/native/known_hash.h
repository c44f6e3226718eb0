#pragma once
#include <Python.h>

// Adds `store_known` to the extension module; -1 with an exception set on failure.
int add_known_hash(PyObject* module);
