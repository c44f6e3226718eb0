// Trees of modules: the structure that a capture assumes, and per tree that was found to have it a binding: evidence that nothing changed
// since, and where its tensors are. A tree is known by its root. A binding keeps nothing alive: as long as its evidence holds, the root, which
// the caller has, keeps all of it. What changed leads to a walk over the tree as it is now, and to another binding.
#include <algorithm>
#include <unordered_map>

#include "evidence.h"

namespace guards {

namespace {

// How one value of the tree is found from another. The first value is the root.
struct Step {
  enum Kind : int { Dict, Item, TupleItem, Attribute } kind;
  size_t base;
  PyObject* key;  // kept by the description
};

struct KnownModule {
  size_t value;
  PyTypeObject* type;
  PyObject* hooks;  // a tuple: of each kind in turn, the hooks in order, behind each kind an Ellipsis; empty where they may be any
};

struct TypeVersion {
  PyTypeObject* type;
  unsigned int version;
};

struct Pin {
  size_t value;
  TensorSpec spec;
};

struct Binding {
  Evidence evidence;
  std::vector<PyObject*> tensors;  // borrowed: as long as the evidence holds, they are there
  Ref root;  // a weak reference
};

struct Structure {
  std::vector<Step> steps;
  std::vector<KnownModule> modules;  // those that others are found in come first
  std::vector<PyObject*> tables, hooks;  // names of dictionaries of each module
  std::vector<TypeVersion> types;  // borrowed: `recheck` keeps the classes
  std::vector<PyObject*> extra;  // further dictionaries
  std::vector<Pin> pins;
  PyObject *then = nullptr, *recheck = nullptr;
  Evidence shared;  // of the further dictionaries
  bool classes_hold = true;  // as of the last look at them
  std::unordered_map<PyObject*, std::unique_ptr<Binding>> bindings;  // by root, which may be gone
  size_t room = 64;  // so many bindings before those of roots that are gone are dropped
  PyObject* recent_root = nullptr;
  Binding* recent = nullptr;
};

struct ModuleStructure {
  PyObject_HEAD PyObject* description;
  Structure* structure;
};

unsigned int current_version(PyTypeObject* type) {
#if WATCHES_DICTS
  PyUnstable_Type_AssignVersionTag(type);
#else
  static PyObject* name = PyUnicode_InternFromString("__class__");
  _PyType_Lookup(type, name);  // a lookup gives a type that has none its version
#endif
  return type->tp_version_tag;
}

bool types_hold(const Structure* structure) {
  for (const TypeVersion& known : structure->types) {
    if (known.version == 0 || known.type->tp_version_tag != known.version) { return false; }
  }
  return true;
}

bool remember_classes(Structure* structure) {
  structure->shared.forget();
  for (TypeVersion& known : structure->types) { known.version = current_version(known.type); }
  for (PyObject* dict : structure->extra) {
    if (!structure->shared.add_dict(dict)) { return false; }
  }
  return true;
}

// Classes and global hooks are as they were at capture: by versions, else by a look at them in Python.
bool classes_hold(Structure* structure) {
  if (structure->classes_hold && types_hold(structure) && structure->shared.holds()) { return true; }
  structure->classes_hold = false;
  if (!remember_classes(structure)) { return false; }
  const Ref answer(PyObject_CallNoArgs(structure->recheck));
  structure->classes_hold = answer.get() == Py_True;
  return structure->classes_hold;
}

// What torch.nn.Module finds where the class has no such attribute: borrowed, null where there is none.
PyObject* module_attribute(const Structure* structure, PyObject* module, PyObject* name) {
  PyObject* dict = existing_dict(module);
  if (dict == nullptr) { return nullptr; }
  PyObject* found = PyDict_GetItemWithError(dict, name);
  for (size_t i = 0; found == nullptr && !PyErr_Occurred() && i < structure->tables.size(); ++i) {
    PyObject* table = PyDict_GetItemWithError(dict, structure->tables[i]);
    if (table != nullptr && PyDict_Check(table)) { found = PyDict_GetItemWithError(table, name); }
  }
  return found;
}

// The instance dictionary, made where there is none yet; borrowed.
PyObject* own_dict(PyObject* object) {
  if (PyObject* dict = existing_dict(object)) { return dict; }
  const Ref made(PyObject_GenericGetDict(object, nullptr));
  PyErr_Clear();
  return made ? existing_dict(object) : nullptr;
}

PyObject* step_value(const Structure* structure, const Step& step, PyObject* base) {
  switch (step.kind) {
    case Step::Dict:
      return own_dict(base);
    case Step::Item:
      return PyDict_Check(base) ? PyDict_GetItemWithError(base, step.key) : nullptr;
    case Step::TupleItem: {
      const Py_ssize_t index = PyLong_AsSsize_t(step.key);
      return PyTuple_CheckExact(base) && index >= 0 && index < PyTuple_GET_SIZE(base) ? PyTuple_GET_ITEM(base, index) : nullptr;
    }
    case Step::Attribute:
      return module_attribute(structure, base, step.key);
  }
  return nullptr;
}

// Whether a module's hooks of one kind are those from `*place` on; moves that behind them.
bool same_hooks(PyObject* found, PyObject* expected, Py_ssize_t* place) {
  if (found != nullptr && PyDict_Check(found) && PyDict_GET_SIZE(found) > 0) {
    const Ref values(PyODict_Check(found) ? PyObject_CallMethod(found, "values", nullptr) : PyDict_Values(found));
    const Ref items(values ? PySequence_Fast(values.get(), "") : nullptr);
    if (!items) { return false; }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
      PyObject *hook = PyTuple_GET_ITEM(expected, (*place)++), *now = PySequence_Fast_GET_ITEM(items.get(), i);
      if (!(Py_TYPE(hook) == environment.weak ? refers_to(hook, now) : hook == now)) { return false; }
    }
  }
  return PyTuple_GET_ITEM(expected, (*place)++) == Py_Ellipsis;
}

bool add_module(const Structure* structure, const KnownModule& known, PyObject* module, Evidence* evidence) {
  if (Py_TYPE(module) != known.type) { return false; }
  PyObject* dict = own_dict(module);
  PyObject** slot = dict_slot(module);
  if (dict == nullptr || slot == nullptr || *slot != dict || !separate_values(dict)) { return false; }
  evidence->add_word(&module->ob_type, known.type);
  evidence->add_word(slot, dict);
  if (!evidence->add_dict(dict)) { return false; }
  for (PyObject* name : structure->tables) {
    PyObject* table = PyDict_GetItemWithError(dict, name);
    if (table == nullptr ? PyErr_Occurred() != nullptr : !PyDict_CheckExact(table)) { return false; }
    if (!evidence->add_dict(table)) { return false; }
  }
  Py_ssize_t place = 0;
  for (PyObject* name : structure->hooks) {
    PyObject* table = PyDict_GetItemWithError(dict, name);
    if (table == nullptr && PyErr_Occurred()) { return false; }
    if (PyTuple_GET_SIZE(known.hooks) > 0 && !same_hooks(table, known.hooks, &place)) { return false; }
    if (!evidence->add_dict(table != nullptr && PyDict_Check(table) ? table : nullptr)) { return false; }
  }
  return true;
}

// Looks at the tree as it is now; null where it is another one.
std::unique_ptr<Binding> look(const Structure* structure, PyObject* root, PyObject* const* locals, Py_ssize_t count) {
  std::vector<PyObject*> values{root};  // borrowed: nothing below runs code of the program's before the evidence is checked
  values.reserve(structure->steps.size() + 1);
  auto binding = std::make_unique<Binding>();
  binding->evidence.reserve(structure->modules.size() * 10);
  size_t next = 0;
  const auto take_modules = [&](size_t value) {
    for (; next < structure->modules.size() && structure->modules[next].value == value; ++next) {
      if (!add_module(structure, structure->modules[next], values[value], &binding->evidence)) { return false; }
    }
    return true;
  };
  if (!take_modules(0)) { return nullptr; }
  for (const Step& step : structure->steps) {
    PyObject* value = step_value(structure, step, values[step.base]);
    if (value == nullptr) { return nullptr; }
    values.push_back(value);
    if (!take_modules(values.size() - 1)) { return nullptr; }
  }
  for (const Pin& pin : structure->pins) { binding->tensors.push_back(values[pin.value]); }
  if (!tree_check(structure->then, locals, count) || !binding->evidence.holds()) { return nullptr; }
  binding->root = Ref(PyWeakref_NewRef(root, nullptr));
  PyErr_Clear();  // of objects that cannot be referred to weakly, bindings go with the others
  return binding;
}

bool is_gone(const Ref& weak) {
  if (!weak) { return true; }
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  const bool there = PyWeakref_GetRef(weak.get(), &object) == 1;
  Py_XDECREF(object);
  return !there;
#else
  return PyWeakref_GetObject(weak.get()) == Py_None;
#endif
}

void make_room(Structure* structure) {
  if (structure->bindings.size() < structure->room) { return; }
  for (auto it = structure->bindings.begin(); it != structure->bindings.end();) {
    it = is_gone(it->second->root) ? structure->bindings.erase(it) : std::next(it);
  }
  structure->room = std::max<size_t>(64, structure->bindings.size() * 2);
  structure->recent = nullptr;
}

// The binding of a root whose evidence holds; null where the tree is another one.
Binding* binding_of(Structure* structure, PyObject* root, PyObject* const* locals, Py_ssize_t count) {
  Binding* known = structure->recent;
  if (known == nullptr || structure->recent_root != root) {
    auto found = structure->bindings.find(root);
    known = found == structure->bindings.end() ? nullptr : found->second.get();
  }
  if (known == nullptr || !known->evidence.holds()) {
    auto made = look(structure, root, locals, count);
    if (!made) { return nullptr; }
    make_room(structure);
    structure->recent = nullptr;
    known = (structure->bindings[root] = std::move(made)).get();  // asked for when the one before is gone: that may run Python
  }
  structure->recent_root = root;
  return structure->recent = known;
}

// Where Python has to look at tensors, which may do anything to the binding: from the tensor at `first` on.
bool check_slowly(const Structure* structure, const Binding* binding, size_t first) {
  std::vector<Ref> tensors;
  for (size_t i = first; i < binding->tensors.size(); ++i) { tensors.push_back(Ref::borrow(binding->tensors[i])); }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!structure->pins[first + i].spec.check(tensors[i].get())) { return false; }
  }
  return true;
}

bool check(Structure* structure, PyObject* root, PyObject* const* locals, Py_ssize_t count, const std::vector<Pickup>& loads,
           Loaded* loaded) {
  if (root == nullptr || !classes_hold(structure)) { return false; }
  const Binding* binding = binding_of(structure, root, locals, count);
  if (binding == nullptr) { return false; }
  if (loaded != nullptr) {  // before any Python runs, which may do anything to the binding
    for (const Pickup& load : loads) { loaded->set(load.position, Py_NewRef(binding->tensors[load.index])); }
  }
  for (size_t i = 0; i < structure->pins.size(); ++i) {
    bool holds = false;
    if (!structure->pins[i].spec.decide(binding->tensors[i], &holds)) { return check_slowly(structure, binding, i); }
    if (!holds) { return false; }
  }
  return true;
}

bool parse_names(PyObject* names, std::vector<PyObject*>* result) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) { result->push_back(PyTuple_GET_ITEM(names, i)); }
  return true;
}

bool parse_tree(Structure* structure, PyObject* steps, PyObject* modules) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) {
    int kind = 0;
    Py_ssize_t base = 0;
    PyObject* key = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, i), "inO", &kind, &base, &key)) { return false; }
    structure->steps.push_back({static_cast<Step::Kind>(kind), static_cast<size_t>(base), key});
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modules); ++i) {
    Py_ssize_t value = 0;
    PyObject *type = nullptr, *hooks = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(modules, i), "nO!O!", &value, &PyType_Type, &type, &PyTuple_Type, &hooks)) { return false; }
    auto* exact = reinterpret_cast<PyTypeObject*>(type);
    structure->modules.push_back({static_cast<size_t>(value), exact, hooks});
    const auto known = [&](const TypeVersion& other) { return other.type == exact; };
    if (std::none_of(structure->types.begin(), structure->types.end(), known)) { structure->types.push_back({exact, 0}); }
  }
  return true;
}

bool build(Structure* structure, PyObject* description) {
  PyObject *steps = nullptr, *modules = nullptr, *tables = nullptr, *hooks = nullptr, *extra = nullptr, *pins = nullptr;
  if (!PyArg_ParseTuple(description, "O!O!O!O!O!O!O!O", &PyTuple_Type, &steps, &PyTuple_Type, &modules, &PyTuple_Type, &tables,
                        &PyTuple_Type, &hooks, &PyTuple_Type, &extra, &TreeType, &structure->then, &PyTuple_Type, &pins,
                        &structure->recheck) ||
      !parse_tree(structure, steps, modules)) {
    return false;
  }
  parse_names(tables, &structure->tables);
  parse_names(hooks, &structure->hooks);
  parse_names(extra, &structure->extra);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pins); ++i) {
    Py_ssize_t value = 0;
    PyObject* spec = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pins, i), "nO", &value, &spec)) { return false; }
    structure->pins.push_back({static_cast<size_t>(value), {}});
    if (!structure->pins.back().spec.parse(spec)) { return false; }
  }
  return remember_classes(structure);
}

// The argument: (steps, modules, names of tables, names of dictionaries of hooks, further dictionaries, then, tensors, recheck)
PyObject* structure_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* description = nullptr;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &description)) { return nullptr; }
  auto* self = reinterpret_cast<ModuleStructure*>(type->tp_alloc(type, 0));
  if (self == nullptr) { return nullptr; }
  self->description = Py_NewRef(description);
  self->structure = new Structure;
  if (!build(self->structure, description)) {
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(self);
}

int structure_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<ModuleStructure*>(object)->description);
  return 0;
}

void structure_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<ModuleStructure*>(object);
  PyObject_GC_UnTrack(object);
  delete self->structure;
  Py_XDECREF(self->description);
  Py_TYPE(object)->tp_free(object);
}

PyObject* knows(PyObject* object, PyObject* root) {
  Structure* structure = reinterpret_cast<ModuleStructure*>(object)->structure;
  const auto found = structure->bindings.find(root);
  return PyBool_FromLong(structure->classes_hold && types_hold(structure) && structure->shared.holds() &&
                         found != structure->bindings.end() && found->second->evidence.holds());
}

PyObject* bound(PyObject* object, void*) {
  return PyLong_FromSize_t(reinterpret_cast<ModuleStructure*>(object)->structure->bindings.size());
}

PyMethodDef structure_methods[] = {
    {"knows", contained<knows>, METH_O, "knows(root) -> bool: whether the next check of this tree compares evidence only"},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef structure_getset[] = {
    {"bound", contained<bound>, nullptr, "how many trees are remembered", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject make_structure_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.ModuleStructure";
  type.tp_basicsize = sizeof(ModuleStructure);
  type.tp_dealloc = structure_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = structure_traverse;
  type.tp_methods = structure_methods;
  type.tp_getset = structure_getset;
  type.tp_new = contained<structure_new>;
  return type;
}

}  // namespace

PyTypeObject ModuleStructureType = make_structure_type();

size_t module_structure_size(PyObject* structure) { return reinterpret_cast<ModuleStructure*>(structure)->structure->pins.size(); }

bool module_structure_check(PyObject* structure, PyObject* root, PyObject* const* locals, Py_ssize_t count,
                            const std::vector<Pickup>& loads, Loaded* loaded) {
  return check(reinterpret_cast<ModuleStructure*>(structure)->structure, root, locals, count, loads, loaded);
}

}  // namespace guards
