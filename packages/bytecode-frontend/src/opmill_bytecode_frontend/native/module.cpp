#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&module); }
