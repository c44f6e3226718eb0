// PEP 523: offers Python frames to a callback before they run, only while a thread has one set.
//
// The hook is process-wide in the interpreter, the callback is a thread's own: other threads pass straight through. Nothing is
// installed while no thread has a callback.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <vector>

#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#include "eval_frame.h"

#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

namespace {

#if PY_VERSION_HEX >= 0x030D0000
PyCodeObject* code_of(_PyInterpreterFrame* frame) { return reinterpret_cast<PyCodeObject*>(frame->f_executable); }
PyObject* function_of(_PyInterpreterFrame* frame) { return frame->f_funcobj; }
bool is_fresh(_PyInterpreterFrame* frame) { return frame->instr_ptr == _PyCode_CODE(code_of(frame)); }
#elif PY_VERSION_HEX >= 0x030C0000
PyCodeObject* code_of(_PyInterpreterFrame* frame) { return frame->f_code; }
PyObject* function_of(_PyInterpreterFrame* frame) { return frame->f_funcobj; }
bool is_fresh(_PyInterpreterFrame* frame) { return frame->prev_instr == _PyCode_CODE(code_of(frame)) - 1; }
#else
PyCodeObject* code_of(_PyInterpreterFrame* frame) { return frame->f_code; }
PyObject* function_of(_PyInterpreterFrame* frame) { return reinterpret_cast<PyObject*>(frame->f_func); }
bool is_fresh(_PyInterpreterFrame* frame) { return frame->prev_instr == _PyCode_CODE(code_of(frame)) - 1; }
#endif

thread_local PyObject* callback = nullptr;
Py_ssize_t active_threads = 0;  // under the GIL
_PyFrameEvalFunction underlying = nullptr;
bool installed = false;
Py_ssize_t skip_index = -1;
#if PY_VERSION_HEX >= 0x030C0000
PyObject* empty_code = nullptr;  // returns None at once
#endif

// Frees a frame that will not run. Up to 3.11 the caller of the evaluator does; from 3.12 on the evaluator must, and only its own
// exit knows how: so it runs a function body that returns at once, in this frame.
bool discard(PyThreadState* state, _PyInterpreterFrame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  Py_INCREF(empty_code);
#if PY_VERSION_HEX >= 0x030D0000
  Py_SETREF(frame->f_executable, empty_code);
  frame->instr_ptr = _PyCode_CODE(reinterpret_cast<PyCodeObject*>(empty_code));
#else
  PyCodeObject* code = frame->f_code;
  frame->f_code = reinterpret_cast<PyCodeObject*>(empty_code);
  Py_DECREF(code);
  frame->prev_instr = _PyCode_CODE(frame->f_code) - 1;
#endif
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* nothing = _PyEval_EvalFrameDefault(state, frame, 0);
  if (nothing == nullptr) {  // a signal handler raised: the newer exception wins
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return false;
  }
  Py_DECREF(nothing);
  PyErr_Restore(type, value, traceback);
#else
  (void)state;
  (void)frame;
#endif
  return true;
}

bool add_keywords(PyObject* keywords, std::vector<PyObject*>& arguments, PyObject* names) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(keywords, &position, &key, &value)) {
    if (PyList_Append(names, key) < 0) return false;
    arguments.push_back(value);
  }
  return true;
}

// Calls the replacement with the arguments that stand bound in the frame's first slots.
PyObject* call_with_frame(PyObject* replacement, _PyInterpreterFrame* frame, PyCodeObject* code) {
  PyObject** slots = frame->localsplus;
  const int positional = code->co_argcount, named = code->co_kwonlyargcount;
  const int star = (code->co_flags & CO_VARARGS) ? 1 : 0, keywords = (code->co_flags & CO_VARKEYWORDS) ? 1 : 0;
  if (!named && !star && !keywords) return PyObject_Vectorcall(replacement, slots, positional, nullptr);

  std::vector<PyObject*> arguments(slots, slots + positional);
  if (star) {
    PyObject* rest = slots[positional + named];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rest); ++i) arguments.push_back(PyTuple_GET_ITEM(rest, i));
  }
  const size_t unnamed = arguments.size();
  PyObject *names = PyList_New(0), *varnames = nullptr, *kwnames = nullptr, *result = nullptr;
  bool good = names != nullptr;
  if (good && named) {
    varnames = PyCode_GetVarnames(code);
    good = varnames != nullptr;
    for (int i = 0; good && i < named; ++i) {
      good = PyList_Append(names, PyTuple_GET_ITEM(varnames, positional + i)) == 0;
      arguments.push_back(slots[positional + i]);
    }
  }
  if (good && keywords) good = add_keywords(slots[positional + named + star], arguments, names);
  if (good) kwnames = PyList_AsTuple(names);
  if (kwnames) {
    // The dictionary may change while the call runs: hold what was taken from it.
    for (PyObject* argument : arguments) Py_INCREF(argument);
    result = PyObject_Vectorcall(replacement, arguments.data(), unnamed, kwnames);
    for (PyObject* argument : arguments) Py_DECREF(argument);
  }
  Py_XDECREF(names);
  Py_XDECREF(varnames);
  Py_XDECREF(kwnames);
  return result;
}

bool is_candidate(_PyInterpreterFrame* frame) {
  PyCodeObject* code = code_of(frame);
  constexpr int body = CO_OPTIMIZED | CO_NEWLOCALS;
  if ((code->co_flags & body) != body) return false;  // a module's or class's
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) return false;
  if (!is_fresh(frame) || !function_of(frame) || !PyFunction_Check(function_of(frame))) return false;
  void* skipped = nullptr;
  PyUnstable_Code_GetExtra(reinterpret_cast<PyObject*>(code), skip_index, &skipped);
  return skipped == nullptr;
}

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throwing) {
  PyObject* asked = callback;
  if (!asked || throwing || !is_candidate(frame)) return underlying(state, frame, throwing);

  // Neither the callback nor the replacement is offered frames: the replacement intercepts for itself what it wants to.
  PyCodeObject* code = code_of(frame);
  callback = nullptr;
  PyObject* pair[] = {reinterpret_cast<PyObject*>(code), function_of(frame)};
  PyObject* replacement = PyObject_Vectorcall(asked, pair, 2, nullptr);
  if (replacement == Py_None) {
    Py_DECREF(replacement);
    callback = asked;
    return underlying(state, frame, throwing);
  }
  PyObject* result = replacement ? call_with_frame(replacement, frame, code) : nullptr;
  Py_XDECREF(replacement);
  if (!discard(state, frame)) Py_CLEAR(result);
  callback = asked;
  return result;
}

void start() {
  if (installed) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  underlying = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
  installed = true;
}

void stop() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Somebody else may have put a hook on top in the meantime, which still leads here; then this one stays below it.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) return;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, underlying);
  installed = false;
}

bool is_callback(PyObject* wanted) {
  if (wanted == Py_None || PyCallable_Check(wanted)) return true;
  PyErr_Format(PyExc_TypeError, "a callback or None is wanted, not %.100s", Py_TYPE(wanted)->tp_name);
  return false;
}

// Takes a reference to `wanted` and gives the one to what was there before; null stands for None in both.
PyObject* exchange(PyObject* wanted) {
  PyObject* before = callback;
  callback = wanted;
  if (callback && !before && active_threads++ == 0) start();
  if (!callback && before && --active_threads == 0) stop();
  return before;
}

PyObject* set_callback(PyObject*, PyObject* wanted) {
  if (!is_callback(wanted)) return nullptr;
  PyObject* before = exchange(wanted == Py_None ? nullptr : Py_NewRef(wanted));
  return before ? before : Py_NewRef(Py_None);
}

// A with-block during which a callback is set. It is native because signal handlers raise where Python code runs, and there it can be
// neither between setting the callback and being in the block, nor between leaving the block and putting the callback before it back.
struct Intercept {
  PyObject_HEAD PyObject *wanted, *before;  // null stands for None
  bool inside;
};

Intercept* cast(PyObject* object) { return reinterpret_cast<Intercept*>(object); }

PyObject* intercept_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject* wanted = nullptr;
  if (keywords && PyDict_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "intercept() takes no keyword arguments");
  if (!PyArg_ParseTuple(args, "O:intercept", &wanted) || !is_callback(wanted)) return nullptr;
  auto* self = cast(type->tp_alloc(type, 0));
  if (self) self->wanted = wanted == Py_None ? nullptr : Py_NewRef(wanted);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* intercept_enter(PyObject* object, PyObject*) {
  Intercept* self = cast(object);
  if (self->inside) return PyErr_Format(PyExc_RuntimeError, "an intercept is for one block at a time");
  self->before = exchange(Py_XNewRef(self->wanted));
  self->inside = true;
  return Py_NewRef(object);
}

PyObject* intercept_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
  Intercept* self = cast(object);
  if (self->inside) {
    self->inside = false;
    PyObject* own = exchange(self->before);  // with its reference
    self->before = nullptr;
    Py_XDECREF(own);
  }
  Py_RETURN_NONE;
}

int intercept_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(cast(object)->wanted);
  Py_VISIT(cast(object)->before);
  return 0;
}

int intercept_clear(PyObject* object) {
  Py_CLEAR(cast(object)->wanted);
  Py_CLEAR(cast(object)->before);
  return 0;
}

void intercept_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  intercept_clear(object);
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef intercept_methods[] = {
    {"__enter__", intercept_enter, METH_NOARGS, "Sets the callback."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(intercept_exit)), METH_FASTCALL, "Puts the one before back."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject make_intercept_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "opmill_bytecode_frontend._native.intercept";
  type.tp_doc =
      "``with intercept(callback):`` offers the frames that start in this thread to ``callback``; nests, not shareable.\n\n"
      "``intercept(None)`` suspends an outer one.";
  type.tp_basicsize = sizeof(Intercept);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_new = intercept_new;
  type.tp_traverse = intercept_traverse;
  type.tp_clear = intercept_clear;
  type.tp_dealloc = intercept_dealloc;
  type.tp_methods = intercept_methods;
  return type;
}

PyTypeObject intercept_type = make_intercept_type();

PyObject* skip_code(PyObject*, PyObject* arguments) {
  PyObject* code;
  int skipped = 1;
  if (!PyArg_ParseTuple(arguments, "O!|p", &PyCode_Type, &code, &skipped)) return nullptr;
  void* mark = skipped ? reinterpret_cast<void*>(1) : nullptr;
  if (PyUnstable_Code_SetExtra(code, skip_index, mark) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* is_installed(PyObject*, PyObject*) {
  return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate);
}

PyMethodDef methods[] = {
    {"set_callback", set_callback, METH_O, "Sets this thread's callback(code, function) -> replacement | None; returns the one before."},
    {"skip_code", skip_code, METH_VARARGS, "skip_code(code, skipped=True): never (or again) offer frames of this code."},
    {"is_installed", is_installed, METH_NOARGS, "Whether frames are evaluated through this module now."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_eval_frame(PyObject* module) {
  skip_index = PyUnstable_Eval_RequestCodeExtraIndex(nullptr);
  if (skip_index < 0) {
    PyErr_SetString(PyExc_RuntimeError, "no free slot for marks on code objects");
    return -1;
  }
#if PY_VERSION_HEX >= 0x030C0000
  empty_code = Py_CompileString("", "<replaced>", Py_file_input);
  if (!empty_code) return -1;
#endif
  if (PyType_Ready(&intercept_type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "intercept", reinterpret_cast<PyObject*>(&intercept_type)) < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}
