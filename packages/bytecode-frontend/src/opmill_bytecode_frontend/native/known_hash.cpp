// Dictionaries whose keys have a `__hash__` of the program: put together again without asking for it a second time.
#include "known_hash.h"

// Exported by 3.11 to 3.13; 3.13 declares it in an internal header.
extern "C" int _PyDict_SetItem_KnownHash(PyObject* table, PyObject* key, PyObject* item, Py_hash_t hash);

static PyObject* store(PyObject*, PyObject* args) {
  PyObject *table, *key, *item;
  Py_ssize_t hash;
  if (!PyArg_ParseTuple(args, "O!OOn", &PyDict_Type, &table, &key, &item, &hash)) return nullptr;
  if (_PyDict_SetItem_KnownHash(table, key, item, hash) < 0) return nullptr;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"store_known", store, METH_VARARGS, "Store an item in a dictionary, under a key whose hash is given."},
    {nullptr, nullptr, 0, nullptr},
};

int add_known_hash(PyObject* module) { return PyModule_AddFunctions(module, functions); }
