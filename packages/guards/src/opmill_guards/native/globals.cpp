// Process- and thread-wide switches of torch, read through the C++ functions that torch's libraries export. `probe.py` looks the
// symbols up and verifies each against the Python getter; a switch without a verified symbol is read in Python.
#include "common.h"

namespace guards {

namespace {
enum Switch {
  GradMode,
  InferenceMode,
  Autocast,
  AutocastDtype,
  AutocastCache,
  DefaultDtype,
  FunctionModes,
  FunctionState,
  DispatchModes,
  Deterministic,
  DeterministicWarn,
  KeyIncluded,
  Tracing,
  ForcedEager,
  Anomalies,
  SwitchCount,
};
constexpr const char* switch_names[SwitchCount] = {
    "grad_mode",          "inference_mode", "autocast",       "autocast_dtype", "autocast_cache",
    "default_dtype",      "function_modes", "function_state", "dispatch_modes", "deterministic",
    "deterministic_warn", "key_included",   "tracing",        "forced_eager",   "anomalies",
};

// Whether the program asked for everything to run as it is: `torch.compiler.set_stance("force_eager")` keeps that in torch's own compiler, which
// is not imported for it. The object that holds a stance does not change; the last one seen is kept.
bool forced_eager() {
  static PyObject* const module_name = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  static PyObject* const name = PyUnicode_InternFromString("_stance");
  static PyObject* last = nullptr;
  static bool forced = false;
  PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), module_name);
  PyObject* stance = module != nullptr && PyModule_Check(module) ? PyDict_GetItem(PyModule_GetDict(module), name) : nullptr;
  if (stance == nullptr) { return false; }
  if (stance != last) {
    PyObject* text = PyObject_GetAttrString(stance, "stance");
    forced = text != nullptr && PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, "force_eager") == 0;
    Py_XDECREF(text);
    PyErr_Clear();
    Py_INCREF(stance);
    Py_XSETREF(last, stance);
  }
  return forced;
}

void* functions[SwitchCount] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, reinterpret_cast<void*>(&forced_eager),
                                nullptr};
static_assert(ForcedEager == 13);
void* (*global_context)() = nullptr;

template <class R, class... A>
R call(Switch which, A... args) {
  return reinterpret_cast<R (*)(A...)>(functions[which])(args...);
}

int64_t read(Switch which, int argument) {
  switch (which) {
    case GradMode:
    case InferenceMode:
    case AutocastCache:
      return call<bool>(which);
    case Autocast:
      return call<bool>(which, static_cast<int8_t>(argument));
    case AutocastDtype:
      return call<int8_t>(which, static_cast<int8_t>(argument));
    case DefaultDtype:
    case FunctionState:
      return call<int8_t>(which);
    case FunctionModes:
    case DispatchModes:
      return call<int64_t>(which);
    case Deterministic:
    case DeterministicWarn:
      return call<bool, const void*>(which, global_context());
    case KeyIncluded:
      return call<bool>(which, static_cast<uint16_t>(argument));
    case Tracing:  // gives a reference to a shared pointer
      return *call<void* const*>(which) != nullptr;
    case ForcedEager:
      return call<bool>(which);
    case Anomalies:  // a variable, which torch's own functions read inline
      return *reinterpret_cast<const bool*>(functions[which]);
    default:
      return -1;
  }
}

int switch_by_name(const char* name) {
  for (int i = 0; i < SwitchCount; ++i) {
    if (std::strcmp(switch_names[i], name) == 0) { return i; }
  }
  PyErr_Format(PyExc_KeyError, "%s", name);
  return -1;
}

struct GlobalLeaf final : Leaf {
  struct Fact {
    Switch which;
    int argument;
    int64_t expected;
  };
  std::vector<Fact> facts;
  bool check(PyObject*) const override {
    for (const Fact& fact : facts) {
      if (read(fact.which, fact.argument) != fact.expected) { return false; }
    }
    return true;
  }
};

// The torch function modes that are on, each of which is a default device. The operand is (how to read the mode of a level, the class of
// such modes, their devices from the outermost on). A program may make another mode of the same device for every block.
struct DefaultDevices final : Leaf {
  Ref operand;
  explicit DefaultDevices(PyObject* operand) : operand(Py_NewRef(operand)) {}
  bool check(PyObject*) const override {
    static PyObject* const name = PyUnicode_InternFromString("device");
    PyObject* const read_mode = PyTuple_GET_ITEM(operand.get(), 0);
    PyObject* const devices = PyTuple_GET_ITEM(operand.get(), 2);
    const Py_ssize_t count = PyTuple_GET_SIZE(devices);
    if (read(FunctionModes, 0) != count) { return false; }
    for (Py_ssize_t i = 0; i < count; ++i) {
      Ref level(PyLong_FromSsize_t(i));
      Ref mode(level ? PyObject_CallOneArg(read_mode, level.get()) : nullptr);
      if (!mode || reinterpret_cast<PyObject*>(Py_TYPE(mode.get())) != PyTuple_GET_ITEM(operand.get(), 1)) { return false; }
      Ref device(PyObject_GetAttr(mode.get(), name));
      if (!device || PyObject_RichCompareBool(device.get(), PyTuple_GET_ITEM(devices, i), Py_EQ) != 1) { return false; }
    }
    return true;
  }
};
}  // namespace

// {switch: address}, 0 for one that is not to be used natively.
bool configure_globals(PyObject* symbols) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t cursor = 0;
  while (PyDict_Next(symbols, &cursor, &key, &value)) {
    const char* name = PyUnicode_AsUTF8(key);
    void* address = PyLong_AsVoidPtr(value);
    if (name == nullptr || PyErr_Occurred()) { return false; }
    if (std::strcmp(name, "global_context") == 0) {
      global_context = reinterpret_cast<void* (*)()>(address);
      continue;
    }
    const int which = switch_by_name(name);
    if (which < 0) { return false; }
    functions[which] = address;
  }
  return true;
}

// (switch, argument) -> its value now, for `probe.py` to verify.
PyObject* global_value(PyObject*, PyObject* args) {
  const char* name = nullptr;
  int argument = 0;
  if (!PyArg_ParseTuple(args, "s|i", &name, &argument)) { return nullptr; }
  const int which = switch_by_name(name);
  if (which < 0) { return nullptr; }
  if (functions[which] == nullptr) { return PyErr_Format(PyExc_KeyError, "%s", name); }
  return PyLong_FromLongLong(read(static_cast<Switch>(which), argument));
}

// The operand is a tuple of (switch, argument, expected).
std::unique_ptr<Leaf> make_global_leaf(PyObject* operand) {
  auto leaf = std::make_unique<GlobalLeaf>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operand); ++i) {
    const char* name = nullptr;
    int argument = 0;
    long long expected = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(operand, i), "siL", &name, &argument, &expected)) { return nullptr; }
    const int which = switch_by_name(name);
    if (which < 0 || functions[which] == nullptr) {
      PyErr_Format(PyExc_KeyError, "%s", name);
      return nullptr;
    }
    leaf->facts.push_back({static_cast<Switch>(which), argument, expected});
  }
  return leaf;
}

std::unique_ptr<Leaf> make_default_devices_leaf(PyObject* operand) { return std::make_unique<DefaultDevices>(operand); }

}  // namespace guards
