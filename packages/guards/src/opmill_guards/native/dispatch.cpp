// CompiledFunction: a function with specialised variants. A call is bound to the function's locals, the guard tree of each entry looks
// at them, and the first entry that fits is called with the same arguments. Without one, `on_miss` names the callable to use.
// Functions of one piece of code may share what was made of it: each has a CompiledFunction of its own that looks among the entries of the
// `shared` one. The guards of these see the function that is called as one more local, the last, and load it as the last value.
#include "binding.h"

#include <structmember.h>

namespace guards {

namespace {

struct Entry {
  PyObject_HEAD PyObject *guards, *tree, *target, *direct;
  Py_ssize_t hits;
};

struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *function, *on_miss, *entries, *dict, *weakrefs;
  CompiledFunction* shared;  // whose entries these are, null where they are its own
  Signature signature;
  Py_ssize_t recent;  // where the last hit was: looked at first
  char disabled;
  char tail;  // whether its caller makes the calls that a TailCall asks for
  char given;  // whether entries are given the function that is called
};

// --- entries

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Entry*>(object);
  Py_VISIT(self->guards);
  Py_VISIT(self->tree);
  Py_VISIT(self->target);
  Py_VISIT(self->direct);
  return 0;
}

// Only `guards` is cleared: a call in another thread may still use the tree and the target, which function and entries tuple release.
int entry_clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<Entry*>(object)->guards);
  return 0;
}

void entry_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Entry*>(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->guards);
  Py_XDECREF(self->tree);
  Py_XDECREF(self->target);
  Py_XDECREF(self->direct);
  Py_TYPE(object)->tp_free(object);
}

PyMemberDef entry_members[] = {
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "the GuardSet"},
    {"target", T_OBJECT, offsetof(Entry, target), READONLY, "what is called on a hit"},
    {"direct", T_OBJECT, offsetof(Entry, direct), READONLY, "the DirectCall that is made instead, None if there is none"},
    {"tree", T_OBJECT, offsetof(Entry, tree), READONLY, "the native tree"},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), READONLY, "how often the guards held"},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject make_entry_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.Entry";
  type.tp_basicsize = sizeof(Entry);
  type.tp_dealloc = entry_dealloc;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_traverse = entry_traverse;
  type.tp_clear = entry_clear;
  type.tp_members = entry_members;
  return type;
}

CompiledFunction* cast(PyObject* object) { return reinterpret_cast<CompiledFunction*>(object); }

// The one that has the entries.
CompiledFunction* owner(CompiledFunction* self) { return self->shared == nullptr ? self : self->shared; }

Py_ssize_t count_locals(CompiledFunction* self) { return owner(self)->signature.total() + owner(self)->given; }

// Whether a function has code, globals and defaults as many as the one that entries are shared by. (None of the other's own is looked at.)
bool is_of_code(PyObject* function, PyObject* other) {
  const auto defaults = [](PyObject* of) {
    PyObject* found = PyFunction_GET_DEFAULTS(of);
    return found == nullptr ? -1 : PyTuple_GET_SIZE(found);
  };
  const auto named = [](PyObject* of) {
    PyObject* found = PyFunction_GET_KW_DEFAULTS(of);
    return found == nullptr ? -1 : PyDict_GET_SIZE(found);
  };
  return PyFunction_GET_CODE(function) == PyFunction_GET_CODE(other) && PyFunction_GET_GLOBALS(function) == PyFunction_GET_GLOBALS(other) &&
         defaults(function) == defaults(other) && named(function) == named(other);
}

// The locals of a call of the function, itself among them where entries are given it. `function` is held by the caller.
bool bind_locals(CompiledFunction* self, Locals* locals, PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  const CompiledFunction* own = owner(self);
  if (own->given && !is_of_code(function, own->function)) { return false; }
  if (!locals->bind(own->signature, function, args, count, keywords)) { return false; }
  if (own->given) { locals->append(own->signature.total(), function); }
  return true;
}

// --- calling

// The entry whose guards hold, null if none; with an exception set where the call is to raise it. `recent` goes first. `loaded`: what its target is to be given.
Ref find_entry(CompiledFunction* self, PyObject* const* locals, Loaded* loaded) {
  const Ref entries = Ref::borrow(owner(self)->entries);  // a check may run Python, and entries may be replaced meanwhile
  if (!entries) { return Ref(); }
  const Py_ssize_t count = PyTuple_GET_SIZE(entries.get()), total = count_locals(self);
  const Py_ssize_t recent = self->recent < count ? self->recent : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Py_ssize_t position = i == 0 ? recent : i <= recent ? i - 1 : i;
    auto* entry = reinterpret_cast<Entry*>(PyTuple_GET_ITEM(entries.get(), position));
    if (tree_check(entry->tree, locals, total, loaded)) {
      self->recent = position;
      ++entry->hits;
      return Ref::borrow(reinterpret_cast<PyObject*>(entry));
    }
    if (PyErr_Occurred()) { break; }
  }
  return Ref();
}

Ref ask_on_miss(CompiledFunction* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  Ref positional(PyTuple_New(count)), named(PyDict_New());
  if (!positional || !named) { return Ref(); }
  for (Py_ssize_t i = 0; i < count; ++i) { PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i])); }
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(keywords, i), args[count + i]) < 0) { return Ref(); }
  }
  const Ref on_miss = Ref::borrow(owner(self)->on_miss);
  if (!on_miss) { return Ref::borrow(self->function); }
  Ref target(PyObject_CallFunctionObjArgs(on_miss.get(), reinterpret_cast<PyObject*>(self), positional.get(), named.get(), nullptr));
  if (!target && PyErr_ExceptionMatches(PyExc_RecursionError)) {  // the stack has no room for a look; the function itself may need less
    PyErr_Clear();
    return Ref::borrow(self->function);
  }
  return target;
}

// Calls a target with what was loaded, as a tuple, before the arguments. A caller that leaves room in front of them has that word used and
// put back.
PyObject* call_loaded(PyObject* target, Loaded& values, PyObject* const* args, size_t flagged, PyObject* keywords) {
  const Ref held(values.tuple());
  values.clear();
  PyObject* loaded = held.get();
  if (loaded == nullptr) { return nullptr; }
  const size_t count = PyVectorcall_NARGS(flagged), total = count + (keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords));
  if ((flagged & PY_VECTORCALL_ARGUMENTS_OFFSET) != 0) {
    auto** first = const_cast<PyObject**>(args) - 1;
    PyObject* before = std::exchange(*first, loaded);
    PyObject* result = PyObject_Vectorcall(target, first, count + 1, keywords);
    *first = before;
    return result;
  }
  std::vector<PyObject*> all{loaded};
  all.insert(all.end(), args, args + total);
  return PyObject_Vectorcall(target, all.data(), count + 1, keywords);
}

// What a new entry loads for these arguments; false where its guards do not hold (or could not be asked: then an exception is set). One that loads nothing is taken at its word.
bool load_for(CompiledFunction* self, PyObject* entry, PyObject* const* args, Py_ssize_t count, PyObject* keywords, Loaded* loaded) {
  PyObject* tree = reinterpret_cast<Entry*>(entry)->tree;
  if (!tree_loads(tree)) { return true; }
  Locals locals;
  const bool bound = bind_locals(self, &locals, self->function, args, count, keywords);
  if (!bound) { PyErr_Clear(); }
  return bound && tree_check(tree, locals.values(), count_locals(self), loaded);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t flagged, PyObject* keywords) {
  auto* self = cast(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  const Ref keep = Ref::borrow(object);
  const Ref function = Ref::borrow(self->function);
  Ref target, direct;
  Loaded loaded;
  {
    Locals locals;
    if (self->disabled || !bind_locals(self, &locals, function.get(), args, count, keywords)) {
      PyErr_Clear();
      return PyObject_Vectorcall(function.get(), args, flagged, keywords);
    }
    Ref entry = find_entry(self, locals.values(), &loaded);
    if (!entry) {
      if (PyErr_Occurred()) { return nullptr; }
      target = ask_on_miss(self, args, count, keywords);
      if (!target) { return nullptr; }
      if (Py_TYPE(target.get()) == &EntryType) { entry = Ref::borrow(target.get()); }
      if (entry && !load_for(self, entry.get(), args, count, keywords, &loaded)) {
        if (PyErr_Occurred()) { return nullptr; }
        target = Ref::borrow(function.get());  // capturing it changed what it assumes
        entry = Ref();
      }
    }
    if (entry) {
      target = Ref::borrow(reinterpret_cast<Entry*>(entry.get())->target);
      direct = Ref::borrow(reinterpret_cast<Entry*>(entry.get())->direct);
    }
  }
  PyObject* result = direct              ? call_direct(direct.get(), loaded, owner(self)->given != 0, args, count, keywords)
                     : loaded.size() > 0 ? call_loaded(target.get(), loaded, args, flagged, keywords)
                                         : PyObject_Vectorcall(target.get(), args, flagged, keywords);
  return self->tail ? result : finish(result);
}

// --- methods

// Puts `change(entries)` in the place of the entries. Making it may run Python (the garbage collector) and so let another thread
// replace them: then it is made again from theirs, and nothing is lost.
template <class F>
bool replace_entries(CompiledFunction* self, F change) {
  for (;;) {
    const Ref before = Ref::borrow(self->entries);
    Ref after(change(before.get()));
    if (!after) { return false; }
    if (self->entries == before.get()) {
      Ref old(std::exchange(self->entries, after.release()));
      return true;
    }
  }
}

PyObject* insert(PyObject* object, PyObject* args) {
  auto* self = cast(object);
  PyObject *guards = nullptr, *target = nullptr, *direct = Py_None;
  if (!PyArg_ParseTuple(args, "OO|O", &guards, &target, &direct)) { return nullptr; }
  if (direct != Py_None && Py_TYPE(direct) != &DirectCallType) { return PyErr_Format(PyExc_TypeError, "%R is no DirectCall", direct); }
  if (!PyCallable_Check(target)) { return PyErr_Format(PyExc_TypeError, "the target of an entry must be callable, not %R", target); }
  self = owner(self);
  Ref tree(PyObject_CallMethod(guards, "native", "(O)", self->signature.names));
  if (!tree) { return nullptr; }
  if (!PyObject_TypeCheck(tree.get(), &TreeType)) { return PyErr_Format(PyExc_TypeError, "%R gives no native tree", guards); }
  auto* entry = reinterpret_cast<Entry*>(EntryType.tp_alloc(&EntryType, 0));
  if (entry == nullptr) { return nullptr; }
  Ref result(reinterpret_cast<PyObject*>(entry));
  entry->guards = Py_NewRef(guards);
  entry->tree = tree.release();
  entry->target = Py_NewRef(target);
  entry->direct = direct == Py_None ? nullptr : Py_NewRef(direct);
  Ref added(PyTuple_Pack(1, result.get()));
  const auto append = [&](PyObject* entries) { return added ? PySequence_Concat(entries, added.get()) : nullptr; };
  if (!replace_entries(self, append)) { return nullptr; }
  self->recent = PyTuple_GET_SIZE(self->entries) - 1;
  return result.release();
}

PyObject* remove(PyObject* object, PyObject* entry) {
  bool found = false;
  const auto without = [&](PyObject* entries) -> PyObject* {
    found = false;
    Ref kept(PyList_New(0));
    for (Py_ssize_t i = 0; kept && i < PyTuple_GET_SIZE(entries); ++i) {
      PyObject* other = PyTuple_GET_ITEM(entries, i);
      found = found || other == entry;
      if (other != entry && PyList_Append(kept.get(), other) < 0) { return nullptr; }
    }
    return kept ? PyList_AsTuple(kept.get()) : nullptr;
  };
  return replace_entries(owner(cast(object)), without) ? PyBool_FromLong(found) : nullptr;
}

PyObject* clear(PyObject* object, PyObject*) {
  Ref empty(PyTuple_New(0));
  if (!empty) { return nullptr; }
  Ref old(std::exchange(owner(cast(object))->entries, empty.release()));
  Py_RETURN_NONE;
}

// The locals of a call whose arguments are a tuple and a dictionary.
class Given {
 public:
  // False with an error set where they do not fit.
  bool bind(CompiledFunction* self, PyObject* args) {
    PyObject *positional = nullptr, *named = nullptr;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &positional, &PyDict_Type, &named)) { return false; }
    const Py_ssize_t count = PyTuple_GET_SIZE(positional);
    PyObject** items = reinterpret_cast<PyTupleObject*>(positional)->ob_item;
    values_.assign(items, items + count);
    keywords_ = Ref(PyTuple_New(PyDict_GET_SIZE(named)));
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t cursor = 0;
    for (Py_ssize_t i = 0; keywords_ && PyDict_Next(named, &cursor, &key, &value); ++i) {
      PyTuple_SET_ITEM(keywords_.get(), i, Py_NewRef(key));
      values_.push_back(value);
    }
    PyObject* names = keywords_ && PyTuple_GET_SIZE(keywords_.get()) > 0 ? keywords_.get() : nullptr;
    if (keywords_ && bind_locals(self, &locals_, self->function, values_.data(), count, names)) { return true; }
    if (!PyErr_Occurred()) { PyErr_Format(PyExc_TypeError, "the arguments do not fit %R", self->function); }
    return false;
  }
  PyObject* const* locals() const { return locals_.values(); }

 private:
  std::vector<PyObject*> values_;
  Ref keywords_;
  Locals locals_;  // refers to the values
};

// {name: value} of the locals that a call with these arguments has.
PyObject* bind(PyObject* object, PyObject* args) {
  auto* self = cast(object);
  Given given;
  if (!given.bind(self, args)) { return nullptr; }
  Ref result(PyDict_New());
  PyObject* names = owner(self)->signature.names;
  for (Py_ssize_t i = 0; result && i < count_locals(self); ++i) {
    if (PyDict_SetItem(result.get(), PyTuple_GET_ITEM(names, i), given.locals()[i]) < 0) { return nullptr; }
  }
  return result.release();
}

// What a call with these arguments would run, None where no entry fits.
PyObject* find(PyObject* object, PyObject* args) {
  auto* self = cast(object);
  Given given;
  if (!given.bind(self, args)) { return nullptr; }
  Ref entry = find_entry(self, given.locals(), nullptr);
  if (!entry && PyErr_Occurred()) { return nullptr; }
  return entry ? entry.release() : Py_NewRef(Py_None);
}

PyObject* explain_miss(PyObject* object, PyObject* args) {
  Ref locals(bind(object, args));
  Ref failures(PyList_New(0));
  if (!locals || !failures) { return nullptr; }
  const Ref entries = Ref::borrow(owner(cast(object))->entries);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries.get()); ++i) {
    auto* entry = reinterpret_cast<Entry*>(PyTuple_GET_ITEM(entries.get(), i));
    Ref failure(PyObject_CallMethod(entry->guards, "explain", "(O)", locals.get()));
    if (!failure || (failure.get() != Py_None && PyList_Append(failures.get(), failure.get()) < 0)) { return nullptr; }
  }
  return failures.release();
}

PyObject* get_bound(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// What the type does not answer, the wrapped function does: __name__, __code__, __defaults__, __annotations__ and the like.
PyObject* get_attribute(PyObject* object, PyObject* name) {
  PyObject* result = PyObject_GenericGetAttr(object, name);
  if (result != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) { return result; }
  PyErr_Clear();
  return PyObject_GetAttr(cast(object)->function, name);
}

template <const char* name>
PyObject* from_function(PyObject* object, void*) {
  return PyObject_GetAttrString(cast(object)->function, name);
}
constexpr char doc_name[] = "__doc__", module_name[] = "__module__", qualified_name[] = "__qualname__";

PyObject* get_wrapped(PyObject* object, void*) { return Py_NewRef(cast(object)->function); }
PyObject* get_entries(PyObject* object, void*) { return Py_NewRef(owner(cast(object))->entries); }
PyObject* get_on_miss(PyObject* object, void*) { return Py_XNewRef(owner(cast(object))->on_miss); }
PyObject* repr(PyObject* object) { return PyUnicode_FromFormat("<compiled %R>", cast(object)->function); }
PyObject* copy(PyObject* object, PyObject*) { return Py_NewRef(object); }
PyObject* reduce(PyObject* object, PyObject*) { return from_function<qualified_name>(object, nullptr); }

// --- life

// The names of the locals with one more behind them.
bool append_name(Signature* signature, PyObject* name) {
  Ref last(PyTuple_Pack(1, name));
  PyObject* names = last ? PySequence_Concat(signature->names, last.get()) : nullptr;
  if (names == nullptr) { return false; }
  Py_SETREF(signature->names, names);
  return true;
}

PyObject* function_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"fn", "on_miss", "tail", "given", "shared", nullptr};
  PyObject *function = nullptr, *on_miss = Py_None, *given = Py_None, *shared = Py_None;
  int tail = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|OpOO", const_cast<char**>(names), &PyFunction_Type, &function, &on_miss, &tail,
                                   &given, &shared)) {
    return nullptr;
  }
  const bool own = shared == Py_None, named = given != Py_None;
  if (own && !PyCallable_Check(on_miss)) { return PyErr_Format(PyExc_TypeError, "on_miss must be callable, not %R", on_miss); }
  if (named && !PyUnicode_Check(given)) { return PyErr_Format(PyExc_TypeError, "given is the name of a local, not %R", given); }
  if (!own && (Py_TYPE(shared) != type || !cast(shared)->given || cast(shared)->shared != nullptr)) {
    return PyErr_Format(PyExc_TypeError, "the entries of %R cannot be shared", shared);
  }
  Signature signature;
  Ref entries(PyTuple_New(0));
  if (!entries || !signature.read(PyFunction_GET_CODE(function))) { return nullptr; }
  auto* self = named && !append_name(&signature, given) ? nullptr : cast(type->tp_alloc(type, 0));
  if (self == nullptr) {
    Py_DECREF(signature.names);
    return nullptr;
  }
  self->vectorcall = contained<call>;
  self->function = Py_NewRef(function);
  self->on_miss = own ? Py_NewRef(on_miss) : nullptr;
  self->entries = entries.release();
  self->shared = own ? nullptr : cast(Py_NewRef(shared));
  self->signature = signature;
  self->tail = static_cast<char>(tail);
  self->given = static_cast<char>(named);
  return reinterpret_cast<PyObject*>(self);
}

int function_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = cast(object);
  Py_VISIT(self->function);
  Py_VISIT(self->on_miss);
  Py_VISIT(self->entries);
  Py_VISIT(self->shared);
  Py_VISIT(self->dict);
  return 0;
}

int function_clear(PyObject* object) {
  auto* self = cast(object);
  Py_CLEAR(self->on_miss);
  Py_CLEAR(self->dict);
  Ref empty(PyTuple_New(0));
  Ref old(std::exchange(self->entries, empty.release()));
  return 0;
}

void function_dealloc(PyObject* object) {
  auto* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) { PyObject_ClearWeakRefs(object); }
  Py_XDECREF(self->function);
  Py_XDECREF(self->on_miss);
  Py_XDECREF(self->entries);
  Py_XDECREF(self->shared);
  Py_XDECREF(self->dict);
  Py_XDECREF(self->signature.names);
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef function_methods[] = {
    {"insert", contained<insert>, METH_VARARGS,
     "insert(guards, target, direct=None) -> Entry: target runs whenever the guards hold, with what they load in front of its arguments; "
     "direct, which does the same, where there is one"},
    {"remove", contained<remove>, METH_O, "remove(entry) -> bool: whether it was there"},
    {"clear", contained<clear>, METH_NOARGS, "Forget all entries."},
    {"bind", contained<bind>, METH_VARARGS, "bind(args, kwargs) -> dict: the locals of such a call; TypeError if they do not fit"},
    {"find", contained<find>, METH_VARARGS, "find(args, kwargs) -> the entry that fits such a call, or None"},
    {"explain_miss", contained<explain_miss>, METH_VARARGS, "explain_miss(args, kwargs) -> list: of each entry the first guard that fails"},
    {"__copy__", contained<copy>, METH_NOARGS, nullptr},
    {"__deepcopy__", contained<copy>, METH_O, nullptr},
    {"__reduce__", contained<reduce>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef function_members[] = {
    {"disabled", T_BOOL, offsetof(CompiledFunction, disabled), 0, "while true, calls go straight to the function"},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef function_getset[] = {
    {"entries", contained<get_entries>, nullptr, "the entries, oldest first", nullptr},
    {"on_miss", contained<get_on_miss>, nullptr, "called with (compiled, args, kwargs) when no entry fits", nullptr},
    {"__wrapped__", contained<get_wrapped>, nullptr, "the function", nullptr},
    {"__doc__", from_function<doc_name>, nullptr, nullptr, nullptr},
    {"__module__", from_function<module_name>, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject make_function_type() {
  PyTypeObject type = blank_type();
  type.tp_name = "opmill_guards._native.CompiledFunction";
  type.tp_basicsize = sizeof(CompiledFunction);
  type.tp_dealloc = function_dealloc;
  type.tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_repr = contained<repr>;
  type.tp_getattro = contained<get_attribute>;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_traverse = function_traverse;
  type.tp_clear = function_clear;
  type.tp_weaklistoffset = offsetof(CompiledFunction, weakrefs);
  type.tp_dictoffset = offsetof(CompiledFunction, dict);
  type.tp_methods = function_methods;
  type.tp_members = function_members;
  type.tp_getset = function_getset;
  type.tp_descr_get = contained<get_bound>;
  type.tp_new = contained<function_new>;
  return type;
}

}  // namespace

PyTypeObject EntryType = make_entry_type();
PyTypeObject CompiledFunctionType = make_function_type();

}  // namespace guards
