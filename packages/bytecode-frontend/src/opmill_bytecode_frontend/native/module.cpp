#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "eval_frame.h"
#include "known_hash.h"

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__native() {
  PyObject* created = PyModule_Create(&module);
  if (created && (add_eval_frame(created) < 0 || add_known_hash(created) < 0)) Py_CLEAR(created);
  return created;
}
