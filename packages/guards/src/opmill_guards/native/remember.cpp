// What a Python function says of an object, which it is not asked again while all that it can have read is as it was: the attributes of the
// object, and what they hold. Anything that may change unseen makes the function be asked at each check.
#include "evidence.h"

#include <structmember.h>

#include <unordered_map>

namespace guards {

namespace {

// What is left of a walk through an object.
struct Walk {
  static constexpr int deepest = 8;
  Evidence* evidence;
  std::vector<Ref>* held;  // values of slots: nothing tells that one of them was freed and another has its address
  PyObject *names, *settled;
  int left = 256;  // objects
};

bool look_at(PyObject* value, int depth, Walk* walk);

// A class that was changed has the number 0 from 3.13 on, where nothing sets the flag; before, it may keep the old number without the flag.
bool has_version(PyTypeObject* type) {
  const bool valid = PY_VERSION_HEX >= 0x030D0000 || PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
  return valid && type->tp_version_tag != 0;
}

bool is_instance(PyObject* value, PyObject* classes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    if (PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes, i)))) { return true; }
  }
  return false;
}

bool is_constant(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value) || PyComplex_CheckExact(value) || PyType_Check(value);
}

bool is_tensor(PyObject* value) { return environment.tensor != nullptr && PyObject_TypeCheck(value, environment.tensor); }

bool look_at_items(PyObject* const* items, Py_ssize_t count, int depth, Walk* walk) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!look_at(items[i], depth, walk)) { return false; }
  }
  return true;
}

bool look_at_list(PyObject* list, int depth, Walk* walk) {
  auto* found = reinterpret_cast<PyListObject*>(list);
  const Py_ssize_t count = PyList_GET_SIZE(list);
  walk->evidence->add_word(&found->ob_base.ob_size, reinterpret_cast<void*>(count));
  walk->evidence->add_word(&found->ob_item, found->ob_item);
  for (Py_ssize_t i = 0; i < count; ++i) {
    walk->evidence->add_word(&found->ob_item[i], found->ob_item[i]);
    walk->held->push_back(Ref::borrow(found->ob_item[i]));
  }
  return look_at_items(found->ob_item, count, depth, walk);
}

// `own`: of the object itself, whose tensors of these names others vouch for.
bool look_at_dict(PyObject* dict, int depth, Walk* walk, bool own = false) {
  if (!PyDict_CheckExact(dict) || !separate_values(dict) || !walk->evidence->add_dict(dict)) { return false; }
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t cursor = 0; PyDict_Next(dict, &cursor, &key, &value);) {
    if (!is_constant(key)) { return false; }
    if (own && is_tensor(value) && PySequence_Contains(walk->names, key) == 1) { continue; }
    if (!look_at(value, depth, walk)) { return false; }
  }
  return true;
}

// What lies in `__slots__`, of all classes that the object has any of.
bool look_at_slots(PyObject* object, int depth, Walk* walk, bool own) {
  for (PyTypeObject* type = Py_TYPE(object); type != nullptr && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE); type = type->tp_base) {
    PyMemberDef* member = type->tp_members;
    for (; member != nullptr && member->name != nullptr; ++member) {
      if (member->type != T_OBJECT_EX) { continue; }
      auto** slot = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + member->offset);
      if (own && *slot != nullptr && is_tensor(*slot)) {
        const Ref name(PyUnicode_FromString(member->name));
        if (name && PySequence_Contains(walk->names, name.get()) == 1) { continue; }
      }
      walk->evidence->add_word(slot, *slot);
      if (*slot == nullptr) { continue; }
      walk->held->push_back(Ref::borrow(*slot));
      if (!look_at(*slot, depth, walk)) { return false; }
    }
  }
  return true;
}

// The dictionary of an object and its slots; false where it may be more than these.
bool look_at_attributes(PyObject* object, int depth, Walk* walk, bool own) {
  PyTypeObject* type = Py_TYPE(object);
  if (!has_version(type)) { return false; }
  walk->evidence->add_word(&object->ob_type, type);
  if (PyObject** place = dict_slot(object)) {
    PyObject* dict = existing_dict(object);
    if (dict == nullptr) {
      const Ref made(PyObject_GenericGetDict(object, nullptr));
      PyErr_Clear();
      dict = made ? existing_dict(object) : nullptr;
    }
    if (dict == nullptr) { return false; }
    walk->evidence->add_word(place, dict);
    if (!look_at_dict(dict, depth, walk, own)) { return false; }
  }
  return look_at_slots(object, depth, walk, own);
}

bool is_plain_object(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  while (type != nullptr && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) { type = type->tp_base; }
  return type == &PyBaseObject_Type;
}

// False where something in it may change unseen.
bool look_at(PyObject* value, int depth, Walk* walk) {
  if (is_constant(value) || is_instance(value, walk->settled)) { return true; }
  if (depth >= Walk::deepest || --walk->left < 0 || is_tensor(value)) { return false; }
  if (PyTuple_Check(value) && dict_slot(value) == nullptr) {
    return look_at_items(reinterpret_cast<PyTupleObject*>(value)->ob_item, PyTuple_GET_SIZE(value), depth + 1, walk);
  }
  if (PyList_CheckExact(value)) { return look_at_list(value, depth + 1, walk); }
  if (PyDict_CheckExact(value)) { return look_at_dict(value, depth + 1, walk); }
  return is_plain_object(value) && look_at_attributes(value, depth + 1, walk, false);
}

struct Memory {
  Evidence evidence;
  std::vector<Ref> held;
  unsigned int version = 0;  // of the class
};

class RememberLeaf final : public Leaf {
 public:
  explicit RememberLeaf(PyObject* operand) {
    if (!PyArg_ParseTuple(operand, "OO!O!O!", &function_, &PyTuple_Type, &names_, &PyTuple_Type, &settled_, &PyTuple_Type, &read_)) {
      return;
    }
  }

  bool check(PyObject* value) const override {
    const auto found = memories_.find(value);
    if (found != memories_.end()) {
      const Memory& memory = *found->second;
      PyTypeObject* type = Py_TYPE(value);
      if (has_version(type) && type->tp_version_tag == memory.version && memory.evidence.holds()) { return true; }
      const std::unique_ptr<Memory> old = std::move(found->second);  // letting go of what it holds may run anything
      memories_.erase(found);
    }
    const Ref answer(PyObject_CallOneArg(function_, value));
    if (!answer || PyObject_IsTrue(answer.get()) != 1) { return false; }
    if (failures_ < patience) { remember(value); }
    return true;
  }

 private:
  static constexpr int patience = 4;  // how often it is tried to remember what cannot be
  static constexpr size_t most = 1 << 12;  // objects: blocks of a large model share a guard

  void remember(PyObject* value) const {
    auto memory = std::make_unique<Memory>();
    Walk walk{&memory->evidence, &memory->held, names_, settled_};
    const bool known = look_at_attributes(value, 0, &walk, true) &&
                       look_at_items(reinterpret_cast<PyTupleObject*>(read_)->ob_item, PyTuple_GET_SIZE(read_), 0, &walk);
    if (!known) {
      PyErr_Clear();
      ++failures_;
      return;
    }
    memory->version = Py_TYPE(value)->tp_version_tag;
    if (version_ == 0) { version_ = memory->version; }
    if (memory->version != version_) {  // other methods: what they read is not known
      failures_ = patience;
      return;
    }
    if (memories_.size() >= most) {
      const auto old = std::move(memories_);
      memories_.clear();
    }
    memories_[value] = std::move(memory);
  }

  PyObject *function_ = nullptr, *names_ = nullptr, *settled_ = nullptr, *read_ = nullptr;
  mutable std::unordered_map<PyObject*, std::unique_ptr<Memory>> memories_;
  mutable int failures_ = 0;
  mutable unsigned int version_ = 0;  // of the class, when it was first asked
};

}  // namespace

// (function, names of tensors that others vouch for, classes whose instances never change, objects that the function reads besides)
std::unique_ptr<Leaf> make_remember_leaf(PyObject* operand) { return std::make_unique<RememberLeaf>(operand); }

}  // namespace guards
