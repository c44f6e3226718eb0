// The extension module `_native`.
#include "common.h"

namespace guards {

namespace {

// configure(objects: dict, layout: dict | None, symbols: dict): once, by `probe.py`.
PyObject* configure(PyObject*, PyObject* args) {
  PyObject *objects = nullptr, *layout = nullptr, *symbols = nullptr;
  if (!PyArg_ParseTuple(args, "O!OO!", &PyDict_Type, &objects, &layout, &PyDict_Type, &symbols)) { return nullptr; }
  const auto take = [&](const char* name) { return Py_XNewRef(PyDict_GetItemString(objects, name)); };
  environment.module_getattr = take("module_getattr");
  environment.object_getattribute = take("object_getattribute");
  environment.deque = reinterpret_cast<PyTypeObject*>(take("deque"));
  environment.weak = reinterpret_cast<PyTypeObject*>(take("weak"));
  environment.tensor = reinterpret_cast<PyTypeObject*>(take("tensor"));
  environment.read_property = take("read_property");
  environment.check_tensor = take("check_tensor");
  if (!configure_tensors(layout) || !configure_globals(symbols)) { return nullptr; }
  Py_RETURN_NONE;
}

// show(name, function) -> the method of C: who looks up CompiledFunction.name finds the function; calls go the way of C all the same.
PyObject* show(PyObject*, PyObject* args) {
  PyObject *name = nullptr, *function = nullptr;
  if (!PyArg_ParseTuple(args, "UO", &name, &function)) { return nullptr; }
  PyObject* members = CompiledFunctionType.tp_dict;
  PyObject* before = Py_XNewRef(PyDict_GetItemWithError(members, name));
  if (before == nullptr || PyDict_SetItem(members, name, function) < 0) {
    Py_XDECREF(before);
    return nullptr;
  }
  PyType_Modified(&CompiledFunctionType);
  return before;
}

// instance_dict(object): its dictionary, whatever the object's class says that `__dict__` is.
PyObject* instance_dict(PyObject*, PyObject* object) { return read_instance_dict(object); }

PyMethodDef methods[] = {
    {"configure", contained<configure>, METH_VARARGS, nullptr},
    {"tensor_facts", contained<tensor_facts>, METH_O, nullptr},
    {"global_value", contained<global_value>, METH_VARARGS, nullptr},
    {"instance_dict", contained<instance_dict>, METH_O, "instance_dict(object): its dictionary, past a `__dict__` of its class's own"},
    {"show", contained<show>, METH_VARARGS, "show(name, function): what tracers find as CompiledFunction.name; gives what it was"},
    {"finish", contained<finish_given>, METH_O, "finish(result): what it is in the end, after the calls that a TailCall asks for"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace guards

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&guards::definition);
  if (module == nullptr) { return nullptr; }
  for (PyTypeObject* type : {&guards::TreeType, &guards::ModuleStructureType, &guards::EntryType, &guards::CompiledFunctionType,
                             &guards::TailCallType, &guards::ShownType, &guards::DirectCallType}) {
    if (PyModule_AddType(module, type) < 0) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
