// The guard tree: accessors shared as a trie, leaf checks at its nodes, relations between values, trees of modules last.
#include "common.h"

#include <algorithm>

namespace guards {

namespace {

struct Node {
  Access access = Access::Local;
  PyObject* key = nullptr;       // attribute name, item key, pinned object; kept alive by the program
  const char* property = nullptr;  // of TensorProperty
  Py_ssize_t index = 0;          // of a local, a key's position, a dimension
  Py_ssize_t slot = -1;          // where relations find the value
  std::vector<std::unique_ptr<Leaf>> leaves;
  std::vector<Node> children;
  bool settled = false;          // an item whose checks hold as long as its dictionary keeps its version
  bool remembers = false;        // something below need not be looked at again while this dictionary keeps its version
  mutable uint64_t version = 0;  // at which all of that was found good
  mutable uint64_t looks = 0;    // how often it was looked through
  mutable PyObject* cached = nullptr;  // of an item: the value then, borrowed from the dictionary
};

struct Relation {
  enum Kind { Same, Distinct, Call, Sizes } kind = Same;
  PyObject* function = nullptr;
  std::vector<int64_t> code;  // of Sizes: what `decide_relation` takes; `function` where that cannot decide
  std::vector<Py_ssize_t> slots;
};

// A tree of modules, the slot of its root, and which of its tensors are loaded.
struct Watch {
  PyObject* structure;
  Py_ssize_t slot;
  std::vector<Pickup> loads;
};

struct Program {
  std::vector<std::unique_ptr<Leaf>> first;
  std::vector<Node> roots;
  Py_ssize_t slots = 0;
  std::vector<Relation> relations;
  std::vector<Watch> watches;
  std::vector<Pickup> loads;  // what lies in slots
  size_t loaded = 0;        // how many values are loaded in all
};

struct Tree {
  PyObject_HEAD PyObject* description;
  Program* program;
};

struct Call {
  static constexpr Py_ssize_t few = 4;
  Call(PyObject* const* given, Py_ssize_t length, Py_ssize_t wanted) : locals(given), count(length), slots(own) {
    if (wanted > few) {
      many.resize(wanted);
      slots = many.data();
    }
  }
  PyObject* const* locals;
  Py_ssize_t count;
  Ref* slots;
  Ref own[few];
  std::vector<Ref> many;
};

PyObject* get(const Node& node, PyObject* value, const Call& call) {
  switch (node.access) {
    case Access::Local:
      return node.index < call.count ? Py_XNewRef(call.locals[node.index]) : nullptr;
    case Access::Pinned:
      return Py_NewRef(node.key);
    case Access::Weak:
      return read_referent(node.key);
    case Access::Attr:
      return read_attribute(value, node.key);
    case Access::InstanceDict:
      return read_instance_dict(value);
    case Access::Item:
      return read_item(value, node.key);
    case Access::ItemOfWeak: {
      const Ref key(read_referent(node.key));
      return key ? read_item(value, key.get()) : nullptr;
    }
    case Access::DictKeyAt:
      return read_key_at(value, node.index);
    case Access::DictValueAt:
      return read_value_at(value, node.index);
    case Access::Ahead:
      return read_ahead(value, node.index);
    case Access::Iterated:
      return read_iterated(value);
    case Access::Inside:
      return read_inside(value, node.index);
    case Access::ContextValue:
      return read_context_value(value);
    case Access::TypeOf:
      return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    case Access::Cell:
      return read_cell(value);
    case Access::Referent:
      return read_referent(value);
    case Access::TensorProperty:
      return read_tensor_property(value, node.property, node.index);
  }
  return nullptr;
}

bool run(const Node& node, Ref value, Call& call) {
  if (!value) { return false; }
  const uint64_t version = node.remembers ? dict_version(value.get()) : 0;
  const bool known = version != 0 && version == node.version;
  const uint64_t look = known ? node.looks : ++node.looks;  // a check may run Python, and so this again
  for (const auto& leaf : node.leaves) {
    if (!(known && leaf->settled_in_dict()) && !leaf->check(value.get())) { return false; }
  }
  for (const Node& child : node.children) {
    const bool still = known && look == node.looks;
    if (still && child.settled) { continue; }
    const bool item = child.access == Access::Item;
    Ref next = still && item ? Ref::borrow(child.cached) : Ref(get(child, value.get(), call));
    if (!still) { node.version = 0; }  // what was cached of another dictionary goes, whether this one is good or not
    child.cached = item ? next.get() : nullptr;
    if (!run(child, std::move(next), call)) { return false; }
  }
  if (version != 0 && !known) {  // only what was all read under one version counts
    node.version = look == node.looks && dict_version(value.get()) == version ? version : 0;
  }
  if (node.slot >= 0) { call.slots[node.slot] = std::move(value); }
  return true;
}

bool holds(const Relation& relation, const Call& call) {
  std::vector<PyObject*> values;
  values.reserve(relation.slots.size());
  for (Py_ssize_t slot : relation.slots) { values.push_back(call.slots[slot].get()); }
  switch (relation.kind) {
    case Relation::Same:
      return values[0] == values[1];
    case Relation::Distinct:
      if (values.size() > 16) {
        std::sort(values.begin(), values.end());
        return std::adjacent_find(values.begin(), values.end()) == values.end();
      }
      for (size_t i = 0; i < values.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (values[i] == values[j]) { return false; }
        }
      }
      return true;
    case Relation::Sizes: {
      bool result = false;
      if (decide_relation(relation.code, values, &result)) { return result; }
      [[fallthrough]];
    }
    case Relation::Call: {
      Ref answer(PyObject_Vectorcall(relation.function, values.data(), values.size(), nullptr));
      return answer && PyObject_IsTrue(answer.get()) == 1;
    }
  }
  return false;
}

bool check_watches(const Program& program, const Call& call, Loaded* loaded) {
  if (loaded != nullptr && !loaded->start(program.loaded)) { return false; }
  for (const Watch& watch : program.watches) {
    if (!module_structure_check(watch.structure, call.slots[watch.slot].get(), call.locals, call.count, watch.loads, loaded)) {
      return false;
    }
  }
  if (loaded != nullptr) {
    for (const Pickup& load : program.loads) { loaded->set(load.position, Py_NewRef(call.slots[load.index].get())); }
  }
  return true;
}

bool check_program(const Program& program, PyObject* const* locals, Py_ssize_t count, Loaded* loaded) {
  Call call(locals, count, program.slots);
  for (const auto& leaf : program.first) {
    if (!leaf->check(Py_None)) { return false; }
  }
  for (const Node& root : program.roots) {
    if (!run(root, Ref(get(root, nullptr, call)), call)) { return false; }
  }
  for (const Relation& relation : program.relations) {
    if (!holds(relation, call)) { return false; }
  }
  return check_watches(program, call, loaded);
}

bool parse_leaves(PyObject* descriptions, std::vector<std::unique_ptr<Leaf>>* leaves) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(descriptions); ++i) {
    auto leaf = make_leaf(PyTuple_GET_ITEM(descriptions, i));
    if (!leaf) { return false; }
    leaves->push_back(std::move(leaf));
  }
  return true;
}

// What a dictionary's version vouches for. Keys that are strings or numbers run no code when they are looked up.
void settle(Node* node) {
  const auto is_settled = [](const std::unique_ptr<Leaf>& leaf) { return leaf->settled(); };
  const auto plain_key = [](const Node& child) {
    if (child.access == Access::ItemOfWeak) { return false; }
    return child.access != Access::Item || PyUnicode_CheckExact(child.key) || PyLong_CheckExact(child.key);
  };
  bool any = false;
  for (Node& child : node->children) {
    child.settled = child.access == Access::Item && child.children.empty() && child.slot < 0 &&
                    std::all_of(child.leaves.begin(), child.leaves.end(), is_settled);
    any = any || child.access == Access::Item;
  }
  for (const auto& leaf : node->leaves) { any = any || leaf->settled_in_dict(); }
  // The dictionary of **kwargs is a new one at each call.
  node->remembers = any && node->access != Access::Local && std::all_of(node->children.begin(), node->children.end(), plain_key);
}

// (accessor, key, index, slot, leaves, children)
bool parse_node(PyObject* description, Node* node) {
  const char* access = nullptr;
  PyObject *leaves = nullptr, *children = nullptr;
  if (!PyArg_ParseTuple(description, "sOnnO!O!", &access, &node->key, &node->index, &node->slot, &PyTuple_Type, &leaves, &PyTuple_Type,
                        &children) ||
      !access_by_name(access, &node->access) || !parse_leaves(leaves, &node->leaves)) {
    return false;
  }
  if (node->access == Access::TensorProperty && (node->property = PyUnicode_AsUTF8(node->key)) == nullptr) { return false; }
  node->children.resize(PyTuple_GET_SIZE(children));
  for (size_t i = 0; i < node->children.size(); ++i) {
    if (!parse_node(PyTuple_GET_ITEM(children, i), &node->children[i])) { return false; }
  }
  settle(node);
  return true;
}

// (kind, function or None, slots, code)
bool parse_relation(PyObject* description, Relation* relation) {
  const char* kind = nullptr;
  PyObject *slots = nullptr, *code = nullptr;
  if (!PyArg_ParseTuple(description, "sOO!O!", &kind, &relation->function, &PyTuple_Type, &slots, &PyTuple_Type, &code)) { return false; }
  relation->kind = std::strcmp(kind, "same") == 0       ? Relation::Same
                   : std::strcmp(kind, "distinct") == 0 ? Relation::Distinct
                   : std::strcmp(kind, "sizes") == 0    ? Relation::Sizes
                                                        : Relation::Call;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code); ++i) { relation->code.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(code, i))); }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); ++i) { relation->slots.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, i))); }
  return !PyErr_Occurred();
}

// (first leaves, root nodes, slot count, relations, trees of modules, loads)
bool parse_program(PyObject* description, Program* program) {
  PyObject *first = nullptr, *roots = nullptr, *relations = nullptr, *watches = nullptr, *loads = nullptr;
  if (!PyArg_ParseTuple(description, "O!O!nO!O!O!", &PyTuple_Type, &first, &PyTuple_Type, &roots, &program->slots, &PyTuple_Type,
                        &relations, &PyTuple_Type, &watches, &PyTuple_Type, &loads) ||
      !parse_leaves(first, &program->first)) {
    return false;
  }
  program->roots.resize(PyTuple_GET_SIZE(roots));
  for (size_t i = 0; i < program->roots.size(); ++i) {
    if (!parse_node(PyTuple_GET_ITEM(roots, i), &program->roots[i])) { return false; }
  }
  program->relations.resize(PyTuple_GET_SIZE(relations));
  for (size_t i = 0; i < program->relations.size(); ++i) {
    if (!parse_relation(PyTuple_GET_ITEM(relations, i), &program->relations[i])) { return false; }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watches); ++i) {
    Watch watch{};
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(watches, i), "O!n", &ModuleStructureType, &watch.structure, &watch.slot)) { return false; }
    program->watches.push_back(watch);
  }
  program->loaded = PyTuple_GET_SIZE(loads);
  for (size_t i = 0; i < program->loaded; ++i) {
    Py_ssize_t watch = 0, index = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(loads, i), "nn", &watch, &index)) { return false; }
    auto& own = watch < 0 ? program->loads : program->watches[watch].loads;
    own.push_back({watch, static_cast<size_t>(index), i});
  }
  return true;
}

PyObject* tree_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* description = nullptr;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &description)) { return nullptr; }
  auto program = std::make_unique<Program>();
  if (!parse_program(description, program.get())) { return nullptr; }
  auto* self = reinterpret_cast<Tree*>(type->tp_alloc(type, 0));
  if (self != nullptr) {
    self->description = Py_NewRef(description);
    self->program = program.release();
  }
  return reinterpret_cast<PyObject*>(self);
}

int tree_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Tree*>(object)->description);
  return 0;
}

// The program borrows from the description: both go together, and only when the tree does (tuples break no cycle by themselves,
// entries and functions do).
void tree_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Tree*>(object);
  PyObject_GC_UnTrack(object);
  delete self->program;
  Py_XDECREF(self->description);
  Py_TYPE(object)->tp_free(object);
}

PyObject* tree_check_method(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const bool result = tree_check(self, args, count);
  return PyErr_Occurred() ? nullptr : PyBool_FromLong(result);
}

PyObject* tree_load_method(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  Loaded loaded;
  if (!tree_check(self, args, count, &loaded)) { return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None); }
  return loaded.tuple();
}

PyMethodDef tree_methods[] = {
    {"load", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(contained<tree_load_method>)), METH_FASTCALL,
     "load(*locals) -> tuple | None: what the target of an entry is given, None where a guard does not hold"},
    {"check", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(contained<tree_check_method>)), METH_FASTCALL,
     "check(*locals) -> bool: whether every guard holds for these values of the locals"},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject make_tree_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.Tree";
  type.tp_basicsize = sizeof(Tree);
  type.tp_dealloc = tree_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = tree_traverse;
  type.tp_methods = tree_methods;
  type.tp_new = contained<tree_new>;
  return type;
}

}  // namespace

PyTypeObject TreeType = make_tree_type();

bool tree_loads(PyObject* tree) { return reinterpret_cast<Tree*>(tree)->program->loaded > 0; }

// Errors in a check count as its failure.
bool tree_check(PyObject* tree, PyObject* const* locals, Py_ssize_t count, Loaded* loaded) {
  bool result = check_program(*reinterpret_cast<Tree*>(tree)->program, locals, count, loaded);
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
    result = false;  // the program is to end, or a call of it: no check may keep that to itself
  } else {
    PyErr_Clear();
  }
  if (!result && loaded != nullptr) { loaded->clear(); }
  return result;
}

}  // namespace guards
