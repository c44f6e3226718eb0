// Shared declarations of the native guard checker. No torch header: torch is reached by probed layouts and dlsym.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "contained.h"
#include "loaded.h"

namespace guards {

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    PyObject* old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  static Ref borrow(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Python objects that the checks compare with; set once by `configure`.
struct Environment {
  PyObject* module_getattr = nullptr;     // torch.nn.Module.__getattr__
  PyObject* object_getattribute = nullptr;  // object.__getattribute__
  PyTypeObject* deque = nullptr;
  PyTypeObject* weak = nullptr;           // WeakObject of weak.py
  PyTypeObject* tensor = nullptr;         // torch._C.TensorBase
  PyObject* read_property = nullptr;      // (tensor, property, dim) -> int, for tensors that are not plain
  PyObject* check_tensor = nullptr;       // (TensorMatch, value) -> bool, for tensors that are not plain
};
extern Environment environment;

// A static type to fill in, as PyVarObject_HEAD_INIT would start it.
inline PyTypeObject blank_type() {
  PyTypeObject type{};
  const PyVarObject head = {PyObject_HEAD_INIT(nullptr) 0};
  type.ob_base = head;
  return type;
}

// --- access.cpp
enum class Access {
  Local,
  Pinned,
  Weak,
  Attr,
  InstanceDict,
  Item,
  ItemOfWeak,
  DictKeyAt,
  DictValueAt,
  Ahead,
  Iterated,
  Inside,
  ContextValue,
  TypeOf,
  Cell,
  Referent,
  TensorProperty
};
bool access_by_name(const char* name, Access* result);
// A new reference, or null (an error may be set).
PyObject* read_attribute(PyObject* object, PyObject* name);
PyObject* read_item(PyObject* object, PyObject* key);
PyObject* read_instance_dict(PyObject* object);
// The dictionary that a `types.MappingProxyType` shows; another object as it is. Borrowed.
PyObject* shown_by(PyObject* object);
PyObject* read_key_at(PyObject* object, Py_ssize_t position);
PyObject* read_value_at(PyObject* object, Py_ssize_t position);
PyObject* read_ahead(PyObject* iterator, Py_ssize_t distance);
PyObject* read_iterated(PyObject* iterator);
PyObject* read_inside(PyObject* iterator, Py_ssize_t position);
PyObject* read_context_value(PyObject* variable);
PyObject* read_cell(PyObject* object);
PyObject* read_referent(PyObject* object);
// Whether a weak reference is to this object, which lives.
bool refers_to(PyObject* reference, PyObject* object);
// A number that no dictionary had before and that changes whenever something in this one is rebound; 0 where there is none.
uint64_t dict_version(PyObject* object);
// Where an object keeps its instance dictionary, null if it has none or keeps it elsewhere.
PyObject** dict_slot(PyObject* object);
// The dictionary in that slot when there is one already (inline values are left alone), borrowed.
PyObject* existing_dict(PyObject* object);

// --- tensor.cpp
PyObject* read_tensor_property(PyObject* tensor, const char* property, Py_ssize_t dim);
bool configure_tensors(PyObject* layout);
PyObject* tensor_facts(PyObject* module, PyObject* tensor);
struct TensorSpec {
  static constexpr int inline_dims = 5;  // with more of them, torch keeps sizes and strides outside of the TensorImpl
  PyTypeObject* type = nullptr;
  PyObject* guard = nullptr;  // the TensorMatch, for the slow way
  bool native = false;
  uint16_t dtype = 0;
  uint16_t device = 0;  // type and index, a byte each, as they lie in memory
  bool any_sizes = true, any_strides = true, whole = false;
  std::vector<int64_t> sizes, strides;  // -1: any
  int64_t dims[2 * inline_dims] = {};   // where all are known: sizes, then strides, here and not elsewhere in memory
  size_t ndim = 0;                      // of `dims`
  int requires_grad = -1;
  bool any_keys = true;
  uint64_t keys = 0;
  bool parse(PyObject* description);
  bool check(PyObject* value) const;
  bool decide(PyObject* value, bool* holds) const;  // false where Python has to decide; runs none itself

 private:
  bool same_shape(const char* impl) const;
  bool fits_shape(const char* impl) const;
};

// --- leaves.cpp
struct Leaf {
  virtual ~Leaf() = default;
  // False means failure; an error may be set, and is the caller's to clear.
  virtual bool check(PyObject* value) const = 0;
  // Whether the answer cannot change as long as the value is this very object.
  virtual bool settled() const { return false; }
  // Whether the answer cannot change as long as the value is this very dictionary and nothing in it is rebound.
  virtual bool settled_in_dict() const { return false; }
};
std::unique_ptr<Leaf> make_leaf(PyObject* description);  // null with an error set

// --- remember.cpp
std::unique_ptr<Leaf> make_remember_leaf(PyObject* description);

// --- globals.cpp
bool configure_globals(PyObject* symbols);
PyObject* global_value(PyObject* module, PyObject* args);
std::unique_ptr<Leaf> make_global_leaf(PyObject* description);
std::unique_ptr<Leaf> make_default_devices_leaf(PyObject* operand);

// --- relations.cpp
// A relation between integers as (operation, operand) pairs; false where it cannot be decided here.
bool decide_relation(const std::vector<int64_t>& code, const std::vector<PyObject*>& values, bool* holds);

// --- tree.cpp
extern PyTypeObject TreeType;
// `loaded`, where it is not null, gets what the tree loads, if the guards hold; it is empty where the tree loads nothing. False with an
// exception set where one came that is no error (KeyboardInterrupt, one of a signal's handler): it is to be raised.
bool tree_check(PyObject* tree, PyObject* const* locals, Py_ssize_t count, Loaded* loaded = nullptr);

bool tree_loads(PyObject* tree);

// --- modules.cpp
extern PyTypeObject ModuleStructureType;
// Whether the tree of modules below `root` has the structure. `loaded`, where it is not null, gets those tensors that `loads` names.
bool module_structure_check(PyObject* structure, PyObject* root, PyObject* const* locals, Py_ssize_t count,
                            const std::vector<Pickup>& loads, Loaded* loaded);

size_t module_structure_size(PyObject* structure);  // how many tensors it pins

// --- direct.cpp
extern PyTypeObject DirectCallType;
// The result of a call with these arguments whose guards loaded these values. New, or null with an error set.
PyObject* call_direct(PyObject* direct, Loaded& loaded, bool with_function, PyObject* const* args, Py_ssize_t count, PyObject* keywords);

// --- dispatch.cpp
extern PyTypeObject EntryType;
extern PyTypeObject CompiledFunctionType;

// --- tail.cpp
extern PyTypeObject TailCallType;
// Makes the calls that a result asks for until one gives something else. Takes the reference; null is passed through.
PyObject* finish(PyObject* result);

// --- shown.cpp
extern PyTypeObject ShownType;
PyObject* finish_given(PyObject* module, PyObject* result);

}  // namespace guards
