// How a value is reached from another: attributes, dictionaries, items, cells.
#include "common.h"

namespace guards {

Environment environment;

bool access_by_name(const char* name, Access* result) {
  static constexpr std::pair<const char*, Access> names[] = {
      {"local", Access::Local},
      {"pinned", Access::Pinned},
      {"attr", Access::Attr},
      {"dict", Access::InstanceDict},
      {"item", Access::Item},
      {"key_at", Access::DictKeyAt},
      {"type", Access::TypeOf},
      {"cell", Access::Cell},
      {"tensor", Access::TensorProperty},
      {"referent", Access::Referent},
      {"ahead", Access::Ahead},
      {"iterated", Access::Iterated},
      {"context", Access::ContextValue},
      {"inside", Access::Inside},
      {"weak", Access::Weak},
      {"item of weak", Access::ItemOfWeak},
      {"value_at", Access::DictValueAt},
  };
  for (const auto& [known, access] : names) {
    if (std::strcmp(known, name) == 0) {
      *result = access;
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "unknown accessor %s", name);
  return false;
}

PyObject** dict_slot(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)) {
    return reinterpret_cast<PyObject**>(object) - 3;  // the same place in 3.11, 3.12 and 3.13
  }
  if (type->tp_dictoffset > 0) { return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + type->tp_dictoffset); }
  return nullptr;
}

PyObject* existing_dict(PyObject* object) {
  PyObject** slot = dict_slot(object);
  if (slot == nullptr || *slot == nullptr || (reinterpret_cast<uintptr_t>(*slot) & 1) != 0) {
    return nullptr;  // 3.12 marks inline values by the lowest bit
  }
  return *slot;
}

static bool is_data_descriptor(PyObject* attribute) { return Py_TYPE(attribute)->tp_descr_set != nullptr; }

// What torch.nn.Module.__getattr__ would find; borrowed, null without an error when it has to be asked itself.
static PyObject* module_attribute(PyObject* dict, PyObject* name) {
  static PyObject* tables[3] = {PyUnicode_InternFromString("_parameters"), PyUnicode_InternFromString("_buffers"),
                                PyUnicode_InternFromString("_modules")};
  for (PyObject* table_name : tables) {
    PyObject* table = PyDict_GetItemWithError(dict, table_name);
    if (table == nullptr || !PyDict_Check(table)) { return nullptr; }
    PyObject* value = PyDict_GetItemWithError(table, name);
    if (value != nullptr || PyErr_Occurred()) { return value; }
  }
  return nullptr;
}

// What a function is made of, borrowed; null where the attribute is another one.
static PyObject* function_part(PyObject* function, PyObject* name) {
  static PyObject* closure = PyUnicode_InternFromString("__closure__");
  static PyObject* code = PyUnicode_InternFromString("__code__");
  static PyObject* globals = PyUnicode_InternFromString("__globals__");
  const auto or_none = [](PyObject* part) { return part == nullptr ? Py_None : part; };
  if (name == closure) { return or_none(PyFunction_GET_CLOSURE(function)); }
  if (name == code) { return PyFunction_GET_CODE(function); }
  return name == globals ? PyFunction_GET_GLOBALS(function) : nullptr;
}

PyObject* read_attribute(PyObject* object, PyObject* name) {
  if (PyFunction_Check(object)) {
    if (PyObject* part = function_part(object, name)) { return Py_NewRef(part); }
  }
  static PyObject* getattr_name = PyUnicode_InternFromString("__getattr__");
  static PyObject* getattribute_name = PyUnicode_InternFromString("__getattribute__");
  PyTypeObject* type = Py_TYPE(object);
  PyObject* dict = existing_dict(object);
  const bool generic = type->tp_getattro == PyObject_GenericGetAttr;
  if (dict == nullptr || PyType_Check(object) || PyModule_Check(object)) { return PyObject_GetAttr(object, name); }
  PyObject* hook = nullptr;
  if (!generic) {
    hook = _PyType_Lookup(type, getattr_name);
    if (hook == nullptr || hook != environment.module_getattr ||
        _PyType_Lookup(type, getattribute_name) != environment.object_getattribute) {
      return PyObject_GetAttr(object, name);
    }
  }
  PyObject* attribute = _PyType_Lookup(type, name);
  if (attribute != nullptr && is_data_descriptor(attribute)) { return PyObject_GetAttr(object, name); }
  Ref held = Ref::borrow(dict);
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value == nullptr && attribute == nullptr && hook != nullptr && !PyErr_Occurred()) { value = module_attribute(dict, name); }
  if (value != nullptr) { return Py_NewRef(value); }
  return PyErr_Occurred() ? nullptr : PyObject_GetAttr(object, name);
}

PyObject* read_instance_dict(PyObject* object) {
  if (PyType_Check(object)) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyType_GetDict(reinterpret_cast<PyTypeObject*>(object));
#else
    return Py_XNewRef(reinterpret_cast<PyTypeObject*>(object)->tp_dict);
#endif
  }
  if (PyObject* dict = existing_dict(object)) { return Py_NewRef(dict); }
  return PyObject_GenericGetDict(object, nullptr);
}

static PyObject* sequence_item(PyObject* const* items, Py_ssize_t size, PyObject* key) {
  Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
  if (index == -1 && PyErr_Occurred()) { return nullptr; }
  index += index < 0 ? size : 0;
  return index < 0 || index >= size ? nullptr : Py_NewRef(items[index]);
}

struct MappingProxy {
  PyObject_HEAD PyObject* mapping;
};

PyObject* shown_by(PyObject* object) {
  if (Py_TYPE(object) != &PyDictProxy_Type) { return object; }
  PyObject* mapping = reinterpret_cast<MappingProxy*>(object)->mapping;
  return PyDict_CheckExact(mapping) || Py_TYPE(mapping) == &PyODict_Type ? mapping : object;
}

PyObject* read_item(PyObject* object, PyObject* key) {
  object = shown_by(object);
  if (PyDict_Check(object)) { return Py_XNewRef(PyDict_GetItemWithError(object, key)); }
  if (PyTuple_Check(object)) { return sequence_item(reinterpret_cast<PyTupleObject*>(object)->ob_item, PyTuple_GET_SIZE(object), key); }
  if (PyList_Check(object)) { return sequence_item(reinterpret_cast<PyListObject*>(object)->ob_item, PyList_GET_SIZE(object), key); }
  if (environment.deque != nullptr && PyObject_TypeCheck(object, environment.deque)) {
    Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) { return nullptr; }
    index += index < 0 ? Py_SIZE(object) : 0;
    return index < 0 || index >= Py_SIZE(object) ? nullptr : environment.deque->tp_as_sequence->sq_item(object, index);
  }
  return nullptr;
}

// Borrowed; the key is not asked for its hash.
static bool entry_at(PyObject* dict, Py_ssize_t position, PyObject** key, PyObject** value) {
  if (!PyDict_Check(dict)) { return false; }
  Py_ssize_t cursor = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &cursor, key, value); ++i) {
    if (i == position) { return true; }
  }
  return false;
}

PyObject* read_key_at(PyObject* object, Py_ssize_t position) {
  object = shown_by(object);
  if (PyODict_Check(object)) {  // its order is its own, not that of the dict below
    Ref iterator(PyODict_Type.tp_iter(object));
    Ref key;
    for (Py_ssize_t i = 0; iterator && i <= position; ++i) {
      key = Ref(PyIter_Next(iterator.get()));
      if (!key) { return nullptr; }
    }
    return key.release();
  }
  PyObject *key = nullptr, *value = nullptr;
  return entry_at(object, position, &key, &value) ? Py_NewRef(key) : nullptr;
}

PyObject* read_value_at(PyObject* object, Py_ssize_t position) {
  object = shown_by(object);
  if (PyODict_Check(object)) {
    const Ref key(read_key_at(object, position));
    return key ? Py_XNewRef(PyDict_GetItemWithError(object, key.get())) : nullptr;
  }
  PyObject *key = nullptr, *value = nullptr;
  return entry_at(object, position, &key, &value) ? Py_NewRef(value) : nullptr;
}

// Python's own iterators as CPython 3.11 to 3.14 lay them out: over lists and tuples, and over dictionaries.
struct SequenceIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};

struct TableIterator {
  PyObject_HEAD PyObject* dict;
  Py_ssize_t used;
  Py_ssize_t position;
};

PyObject* read_iterated(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyListIter_Type || type == &PyTupleIter_Type) { return Py_XNewRef(reinterpret_cast<SequenceIterator*>(iterator)->sequence); }
  if (type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type) {
    return Py_XNewRef(reinterpret_cast<TableIterator*>(iterator)->dict);
  }
  return nullptr;
}

PyObject* read_inside(PyObject* iterator, Py_ssize_t position) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type != &PyEnum_Type && type != &PyZip_Type && type != &PyMap_Type) { return nullptr; }
  Ref reduced(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  if (!reduced || !PyTuple_CheckExact(reduced.get()) || PyTuple_GET_SIZE(reduced.get()) < 2) { return nullptr; }
  PyObject* parts = PyTuple_GET_ITEM(reduced.get(), 1);
  if (!PyTuple_CheckExact(parts) || position < 0 || position >= PyTuple_GET_SIZE(parts)) { return nullptr; }
  return Py_NewRef(PyTuple_GET_ITEM(parts, position));
}

PyObject* read_context_value(PyObject* variable) {
  PyObject* found = nullptr;
  return PyContextVar_CheckExact(variable) && PyContextVar_Get(variable, nullptr, &found) == 0 ? found : nullptr;
}

PyObject* read_ahead(PyObject* iterator, Py_ssize_t distance) {
  Ref over(read_iterated(iterator));
  if (!over || distance < 0) { return nullptr; }
  if (Py_TYPE(iterator) == &PyListIter_Type || Py_TYPE(iterator) == &PyTupleIter_Type) {
    const Py_ssize_t at = reinterpret_cast<SequenceIterator*>(iterator)->index + distance;
    if (at < 0 || at >= PySequence_Fast_GET_SIZE(over.get())) { return nullptr; }
    return Py_NewRef(PySequence_Fast_GET_ITEM(over.get(), at));
  }
  auto* table = reinterpret_cast<TableIterator*>(iterator);
  if (PyODict_Check(over.get()) || table->used != PyDict_GET_SIZE(over.get())) { return nullptr; }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t cursor = table->position;
  for (Py_ssize_t i = 0; PyDict_Next(over.get(), &cursor, &key, &value); ++i) {
    if (i != distance) { continue; }
    if (Py_TYPE(iterator) == &PyDictIterItem_Type) { return PyTuple_Pack(2, key, value); }
    return Py_NewRef(Py_TYPE(iterator) == &PyDictIterValue_Type ? value : key);
  }
  return nullptr;
}

// The version tags of CPython 3.11 to 3.13, whose low eight bits are the watchers' from 3.12 on. Tags are unique among all dictionaries, so an
// equal one means the same dictionary as well. An OrderedDict can change its order without a new tag. From 3.13 on an object may store
// into values that it shares with its dictionary.
uint64_t dict_version(PyObject* object) {
#if PY_VERSION_HEX < 0x030E0000
  if (!PyDict_Check(object) || PyODict_Check(object)) { return 0; }
  const auto* dict = reinterpret_cast<const PyDictObject*>(object);
#if PY_VERSION_HEX >= 0x030D0000
  if (dict->ma_values != nullptr) { return 0; }
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const uint64_t tag = dict->ma_version_tag;
#pragma GCC diagnostic pop
  return PY_VERSION_HEX >= 0x030C0000 ? tag >> 8 : tag;
#else
  return 0;
#endif
}

PyObject* read_cell(PyObject* object) { return PyCell_Check(object) ? PyCell_Get(object) : nullptr; }

bool refers_to(PyObject* reference, PyObject* object) {
#if PY_VERSION_HEX >= 0x030D0000
  const Ref found(read_referent(reference));
  return found.get() == object;
#else
  return PyWeakref_GET_OBJECT(reference) == object && object != Py_None;  // which stands for one that died
#endif
}

PyObject* read_referent(PyObject* object) {
  if (!PyWeakref_CheckRef(object)) { return nullptr; }
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  return PyWeakref_GetRef(object, &found) > 0 ? found : nullptr;
#else
  PyObject* found = PyWeakref_GetObject(object);
  return found == Py_None ? nullptr : Py_NewRef(found);
#endif
}

}  // namespace guards
