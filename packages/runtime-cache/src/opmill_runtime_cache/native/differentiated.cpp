#include "differentiated.h"

#include <structmember.h>

#include <vector>

#include "contained.h"
#include "history.h"
#include "torch_api.h"

namespace opmill {

namespace {

PyTypeObject* noted_type;

// Names of attributes and methods, made once.
struct {
  PyObject *noted, *to_save, *materialize_grads, *saved_tensors, *clear, *is_view, *detach, *is_neg, *is_conj, *backward, *take;
} names;

struct Tangent {
  Py_ssize_t output;
  int32_t dtype;
  std::vector<int64_t> strides;
};

enum class Place { input, held, output };

struct Saved {
  Place place;
  Py_ssize_t index;
};

// What Python gave, by the names of `differentiated_new`.
struct Rules {
  PyObject *apply, *transformed, *keeps, *drawn, *run, *owner, *held, *otherwise, *relaid, *refused, *tensor;
  Py_ssize_t inputs, outputs, gradients;
  std::vector<char> owned;
  std::vector<Saved> saved;
  std::vector<Py_ssize_t> connected;
  std::vector<Tangent> tangents;

  std::vector<PyObject**> objects() {
    return {&apply, &transformed, &keeps, &drawn, &run, &owner, &held, &otherwise, &relaid, &refused, &tensor};
  }
};

struct Differentiated {
  PyObject_HEAD vectorcallfunc call;
  Rules* rules;
};

// One call: what running it again would take, and, while the forward runs, what it was given and what it gave.
struct Noted {
  PyObject_HEAD PyObject* by;
  PyObject *inputs, *drawn, *outputs;
  PyObject* const* arguments;
  int64_t versions;
  Py_ssize_t count;  // of tensors that the node is connected to
};

Rules& rules_of(const Noted& noted) { return *reinterpret_cast<Differentiated*>(noted.by)->rules; }

bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, static_cast<PyTypeObject*>(api.tensor_type)); }

// Whether a tensor holds its elements itself: levels of torch.func, batches and wrappers have implementations of their own kinds.
bool is_plain(PyObject* tensor) { return kind_of_implementation(handle_of(tensor)) == api.plain; }

// 1, 0, or -1 with an error set.
int truth(PyObject* result) {
  const int found = result ? PyObject_IsTrue(result) : -1;
  Py_XDECREF(result);
  return found;
}

// ---- the forward ----

PyObject* differentiated_call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  const Rules& rules = *reinterpret_cast<Differentiated*>(self)->rules;
  const Py_ssize_t given = PyVectorcall_NARGS(flags);
  const int transformed = truth(PyObject_CallNoArgs(rules.transformed));
  if (transformed < 0) return nullptr;
  std::vector<PyObject*> passed{nullptr, nullptr};
  bool plain = !transformed && given == rules.inputs && !(keywords && PyTuple_GET_SIZE(keywords));
  for (size_t i = 0; plain && i < rules.connected.size(); i++) {
    const Py_ssize_t at = rules.connected[i];
    PyObject* value = at < given ? arguments[at] : PyTuple_GET_ITEM(rules.held, at - given);
    plain = is_tensor(value) && is_plain(value);
    passed.push_back(value);
  }
  if (!plain) return PyObject_Vectorcall(rules.otherwise, arguments, given, keywords);
  auto* noted = reinterpret_cast<Noted*>(noted_type->tp_alloc(noted_type, 0));
  if (!noted) return nullptr;
  noted->by = Py_NewRef(self);
  noted->arguments = arguments;
  noted->count = rules.connected.size();
  passed[1] = reinterpret_cast<PyObject*>(noted);
  PyObject* returned = PyObject_Vectorcall(rules.apply, passed.data() + 1, (passed.size() - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  noted->arguments = nullptr;
  PyObject* outputs = noted->outputs;
  noted->outputs = nullptr;
  Py_DECREF(noted);
  PyObject* result = returned && outputs ? PyTuple_New(rules.outputs) : nullptr;
  for (Py_ssize_t k = 0; result && k < rules.outputs; k++) PyTuple_SET_ITEM(result, k, Py_NewRef(PyTuple_GET_ITEM(outputs, k)));
  for (size_t k = 0; result && k < rules.tangents.size(); k++) {
    PyObject* before = PyTuple_GET_ITEM(result, rules.tangents[k].output);
    PyTuple_SET_ITEM(result, rules.tangents[k].output, Py_NewRef(PyTuple_GET_ITEM(returned, k)));
    Py_DECREF(before);
  }
  Py_XDECREF(returned);
  Py_XDECREF(outputs);
  return result;
}

// What the plan gives. Autograd forbids writes to views that are made here, where it does not look: they are none in the end.
PyObject* outputs_of(const Rules& rules, const Noted& noted) {
  PyObject* found = PyObject_Vectorcall(rules.run, noted.arguments, rules.inputs, nullptr);
  PyObject* made = found ? PySequence_Tuple(found) : nullptr;
  Py_XDECREF(found);
  if (made && PyTuple_GET_SIZE(made) < rules.outputs) {
    PyErr_SetString(PyExc_RuntimeError, "a plan gave fewer outputs than it has");
    Py_CLEAR(made);
  }
  for (Py_ssize_t k = 0; made && k < rules.outputs; k++) {
    PyObject* output = PyTuple_GET_ITEM(made, k);
    const int view = is_tensor(output) ? truth(PyObject_CallMethodNoArgs(output, names.is_view)) : 0;
    PyObject* alone = view > 0 ? PyObject_CallMethodNoArgs(output, names.detach) : nullptr;
    if (view < 0 || (view > 0 && !alone)) {
      Py_CLEAR(made);
    } else if (alone) {
      PyTuple_SET_ITEM(made, k, alone);
      Py_DECREF(output);
    }
  }
  return made;
}

// Tells autograd what to keep; false with an error set.
bool save(const Rules& rules, const Noted& noted, PyObject* context) {
  PyObject* kept = PyTuple_New(rules.saved.size());
  for (size_t i = 0; kept && i < rules.saved.size(); i++) {
    const auto [place, k] = rules.saved[i];
    PyObject* value = place == Place::input ? noted.arguments[k] : PyTuple_GetItem(place == Place::held ? rules.held : noted.outputs, k);
    if (value) PyTuple_SET_ITEM(kept, i, Py_NewRef(value));
    else Py_CLEAR(kept);
  }
  const bool done = kept && !PyObject_SetAttr(context, names.to_save, kept) &&
                    !PyObject_SetAttr(context, names.materialize_grads, Py_False) &&
                    !PyObject_SetAttr(context, names.noted, reinterpret_cast<PyObject*>(const_cast<Noted*>(&noted)));
  Py_XDECREF(kept);
  return done;
}

// forward(context, noted, *connected): runs the plan of a call that autograd has noted.
PyObject* forward(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 2 || !Py_IS_TYPE(arguments[1], noted_type)) return PyErr_Format(PyExc_TypeError, "forward() takes a call that was noted");
  Noted& noted = *reinterpret_cast<Noted*>(arguments[1]);
  if (!noted.arguments || noted.outputs) return PyErr_Format(PyExc_RuntimeError, "a call runs once");
  const Rules& rules = rules_of(noted);
  noted.inputs = references_to(noted.arguments, rules.inputs, rules.owned.data());
  if (!noted.inputs) return nullptr;
  if (rules.drawn != Py_None && !(noted.drawn = PyObject_CallNoArgs(rules.drawn))) return nullptr;
  noted.outputs = outputs_of(rules, noted);
  if (!noted.outputs || !save(rules, noted, arguments[0])) return nullptr;
  noted.versions =
      versions_in(noted.arguments, rules.inputs) + versions_in(PySequence_Fast_ITEMS(rules.held), PyTuple_GET_SIZE(rules.held));
  PyObject* returned = PyTuple_New(rules.tangents.size());
  for (size_t k = 0; returned && k < rules.tangents.size(); k++)
    PyTuple_SET_ITEM(returned, k, Py_NewRef(PyTuple_GET_ITEM(noted.outputs, rules.tangents[k].output)));
  return returned;
}

// ---- the backward ----

// Whether the plan reads the gradient as it is: 1, 0, or -1 with an error set.
int fits(const Rules& rules, const Tangent& tangent, PyObject* gradient) {
  if (!Py_IS_TYPE(gradient, reinterpret_cast<PyTypeObject*>(rules.tensor)) || !is_plain(gradient)) return 0;
  const Handle handle = handle_of(gradient);
  int32_t dtype = 0;
  int64_t dim = 0, *strides = nullptr;
  if (api.get_dtype(handle, &dtype) || api.get_dim(handle, &dim) || api.get_strides(handle, &strides)) return 0;
  if (dtype != tangent.dtype || dim != static_cast<int64_t>(tangent.strides.size())) return 0;
  for (int64_t i = 0; i < dim; i++)
    if (strides[i] != tangent.strides[i]) return 0;
  const int negative = truth(PyObject_CallMethodNoArgs(gradient, names.is_neg));
  const int conjugate = negative ? 0 : truth(PyObject_CallMethodNoArgs(gradient, names.is_conj));
  return negative < 0 || conjugate < 0 ? -1 : !negative && !conjugate;
}

// The gradients by the plan, as a sequence. `given`: tangents, then what was saved.
PyObject* gradients_of(const Rules& rules, PyObject* given) {
  PyObject* plan = PyObject_GetAttr(rules.owner, names.backward);
  PyObject* found = plan ? PyObject_CallMethodOneArg(plan, names.take, given) : nullptr;
  Py_XDECREF(plan);
  if (!found && PyList_GET_SIZE(given) && PyErr_ExceptionMatches(rules.refused)) {  // hooks brought something back laid out otherwise
    PyErr_Clear();
    found = PyObject_CallOneArg(rules.relaid, given);
  }
  PyObject* listed = found ? PySequence_Tuple(found) : nullptr;
  Py_XDECREF(found);
  return listed;
}

// Whether nobody will ask for what was saved again: then autograd forgets it now. -1 with an error set.
int let_go(const Rules& rules, Noted* noted, PyObject* context) {
  const int kept = rules.keeps == Py_None ? 1 : truth(PyObject_CallNoArgs(rules.keeps));
  if (kept) return kept < 0 ? -1 : 0;
  PyObject* cleared = PyObject_CallMethodNoArgs(context, names.clear);
  if (!cleared) return -1;
  Py_DECREF(cleared);
  Py_CLEAR(noted->inputs);
  return 1;
}

PyObject* run_backward(const Rules& rules, Noted* noted, PyObject* context, PyObject* const* gradients) {
  PyObject* saved = PyObject_GetAttr(context, names.saved_tensors);
  const Py_ssize_t tangents = rules.tangents.size(), kept = saved && PyTuple_Check(saved) ? PyTuple_GET_SIZE(saved) : 0;
  PyObject* given = saved ? PyList_New(tangents + kept) : nullptr;
  for (Py_ssize_t k = 0; given && k < tangents; k++) PyList_SET_ITEM(given, k, Py_NewRef(gradients[k]));
  for (Py_ssize_t k = 0; given && k < kept; k++) PyList_SET_ITEM(given, tangents + k, Py_NewRef(PyTuple_GET_ITEM(saved, k)));
  Py_XDECREF(saved);
  PyObject* found = given && let_go(rules, noted, context) >= 0 ? gradients_of(rules, given) : nullptr;
  Py_XDECREF(given);
  if (!found) return nullptr;
  PyObject* result = PyTuple_New(1 + noted->count);
  for (Py_ssize_t i = 0; result && i <= noted->count; i++) {
    const bool asked = i > 0 && i <= rules.gradients && i <= PyTuple_GET_SIZE(found);
    PyTuple_SET_ITEM(result, i, Py_NewRef(asked ? PyTuple_GET_ITEM(found, i - 1) : Py_None));
  }
  Py_DECREF(found);
  return result;
}

// backward(context, *gradients): one for the call that was noted, then one for each tensor that it was connected to.
PyObject* backward(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "backward() takes a context");
  PyObject* object = PyObject_GetAttr(arguments[0], names.noted);
  if (!object) return nullptr;
  if (!Py_IS_TYPE(object, noted_type)) {
    Py_DECREF(object);
    return PyErr_Format(PyExc_TypeError, "backward() takes a context of forward()");
  }
  auto* noted = reinterpret_cast<Noted*>(object);
  const Rules& rules = rules_of(*noted);
  int usual = !api.grad_enabled() && count - 1 == static_cast<Py_ssize_t>(rules.tangents.size());
  for (size_t k = 0; usual > 0 && k < rules.tangents.size(); k++) usual = fits(rules, rules.tangents[k], arguments[1 + k]);
  PyObject* result = nullptr;
  if (usual > 0) result = run_backward(rules, noted, arguments[0], arguments + 1);
  else if (usual == 0) {
    std::vector<PyObject*> passed{arguments[0], object};
    passed.insert(passed.end(), arguments + 1, arguments + count);
    PyObject* slowly = PyObject_GetAttrString(rules.owner, "slowly");
    if (slowly) result = PyObject_Vectorcall(slowly, passed.data(), passed.size(), nullptr);
    Py_XDECREF(slowly);
  }
  Py_DECREF(object);
  return result;
}

// ---- the types ----

bool read_numbers(PyObject* tuple, std::vector<int64_t>* numbers) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    numbers->push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

bool read_rules(PyObject* saved, PyObject* connected, PyObject* tangents, PyObject* owned, Rules* rules) {
  const Py_ssize_t known = rules->inputs + PyTuple_GET_SIZE(rules->held);
  rules->owned.assign(PyBytes_AS_STRING(owned), PyBytes_AS_STRING(owned) + PyBytes_GET_SIZE(owned));
  bool right = rules->inputs >= 0 && rules->outputs >= 0 && PyBytes_GET_SIZE(owned) == rules->inputs;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(saved); i++) {
    int place;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(saved, i), "in", &place, &index)) return false;
    right &= place >= 0 && place <= 2 && index >= 0 && (place != 0 || index < rules->inputs);
    rules->saved.push_back({static_cast<Place>(place), index});
  }
  std::vector<int64_t> positions;
  if (!read_numbers(connected, &positions)) return false;
  for (int64_t at : positions) right &= at >= 0 && at < known;
  rules->connected.assign(positions.begin(), positions.end());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tangents); i++) {
    Tangent tangent;
    int dtype;
    PyObject* strides;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tangents, i), "niO!", &tangent.output, &dtype, &PyTuple_Type, &strides)) return false;
    right &= dtype >= 0 && dtype < kDtypes && tangent.output >= 0 && tangent.output < rules->outputs;
    tangent.dtype = right ? dtype_code[dtype] : 0;
    if (!read_numbers(strides, &tangent.strides)) return false;
    rules->tangents.push_back(tangent);
  }
  if (!right) PyErr_SetString(PyExc_ValueError, "what a differentiated call is told does not fit together");
  return right;
}

PyObject* differentiated_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  if (!api.wrap || !api.version || !api.requires_grad || !api.plain) return PyErr_Format(PyExc_RuntimeError, "load() must come first");
  static const char* const known[] = {"apply",     "transformed", "keeps",     "drawn",    "run",    "owner",   "held",
                                      "otherwise", "relaid",      "refused",   "tensor",   "inputs", "outputs", "gradients",
                                      "owned",     "saved",       "connected", "tangents", nullptr};
  Rules rules{};
  PyObject *owned, *saved, *connected, *tangents;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$OOOOOOO!OOOOnnnSO!O!O!", const_cast<char**>(known), &rules.apply,
                                   &rules.transformed, &rules.keeps, &rules.drawn, &rules.run, &rules.owner, &PyTuple_Type, &rules.held,
                                   &rules.otherwise, &rules.relaid, &rules.refused, &rules.tensor, &rules.inputs, &rules.outputs,
                                   &rules.gradients, &owned, &PyTuple_Type, &saved, &PyTuple_Type, &connected, &PyTuple_Type, &tangents) ||
      !read_rules(saved, connected, tangents, owned, &rules))
    return nullptr;
  auto* self = reinterpret_cast<Differentiated*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->call = contained<differentiated_call>;
  self->rules = new Rules(rules);
  for (PyObject** object : self->rules->objects()) Py_INCREF(*object);
  return reinterpret_cast<PyObject*>(self);
}

int differentiated_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (Rules* rules = reinterpret_cast<Differentiated*>(object)->rules)
    for (PyObject** each : rules->objects()) Py_VISIT(*each);
  return 0;
}

void differentiated_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto* self = reinterpret_cast<Differentiated*>(object);
  PyTypeObject* type = Py_TYPE(object);
  if (self->rules)
    for (PyObject** each : self->rules->objects()) Py_DECREF(*each);
  delete self->rules;
  type->tp_free(object);
  Py_DECREF(type);
}

int noted_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Noted*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->by);
  Py_VISIT(self->inputs);
  Py_VISIT(self->drawn);
  Py_VISIT(self->outputs);
  return 0;
}

int noted_clear(PyObject* object) {
  auto* self = reinterpret_cast<Noted*>(object);
  Py_CLEAR(self->inputs);
  Py_CLEAR(self->drawn);
  Py_CLEAR(self->outputs);
  return 0;
}

void noted_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  noted_clear(object);
  auto* self = reinterpret_cast<Noted*>(object);
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(self->by);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef differentiated_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Differentiated, call), READONLY, nullptr},
                                        {nullptr, 0, 0, 0, nullptr}};

PyMemberDef noted_members[] = {
    {"inputs", T_OBJECT, offsetof(Noted, inputs), READONLY, "The inputs, or references to them; None once nobody can ask for them."},
    {"drawn", T_OBJECT, offsetof(Noted, drawn), READONLY, "What `drawn()` gave before the call."},
    {"versions", T_LONGLONG, offsetof(Noted, versions), READONLY, "How often inputs and held tensors had been written to, in all."},
    {"count", T_PYSSIZET, offsetof(Noted, count), READONLY, "Tensors that the node is connected to."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot differentiated_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(contained<differentiated_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(differentiated_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(differentiated_traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, differentiated_members},
    {Py_tp_doc, const_cast<char*>("A plan as a node of autograd, whose backward is another plan: differentiated(*inputs) -> tuple.")},
    {0, nullptr}};

PyType_Slot noted_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(noted_dealloc)},
                             {Py_tp_traverse, reinterpret_cast<void*>(noted_traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(noted_clear)},
                             {Py_tp_members, noted_members},
                             {Py_tp_doc, const_cast<char*>("A call of a `Differentiated`, and what running it again would take.")},
                             {0, nullptr}};

PyType_Spec differentiated_spec = {"opmill_runtime_cache._native.Differentiated", sizeof(Differentiated), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
                                   differentiated_slots};

PyType_Spec noted_spec = {"opmill_runtime_cache._native.Noted", sizeof(Noted), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          noted_slots};

PyMethodDef functions[] = {
    {"forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(contained<forward>)), METH_FASTCALL,
     "forward(context, noted, *connected) -> tuple: of the autograd function that a `Differentiated` is called through."},
    {"backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(contained<backward>)), METH_FASTCALL,
     "backward(context, *gradients) -> tuple: its node calls it as a method of its own."}};

}  // namespace

int add_differentiated(PyObject* module) {
  const std::pair<PyObject**, const char*> texts[] = {{&names.noted, "noted"},
                                                      {&names.to_save, "to_save"},
                                                      {&names.materialize_grads, "materialize_grads"},
                                                      {&names.saved_tensors, "saved_tensors"},
                                                      {&names.clear, "maybe_clear_saved_tensors"},
                                                      {&names.is_view, "_is_view"},
                                                      {&names.detach, "detach"},
                                                      {&names.is_neg, "is_neg"},
                                                      {&names.is_conj, "is_conj"},
                                                      {&names.backward, "backward"},
                                                      {&names.take, "take"}};
  for (const auto& [name, text] : texts)
    if (!*name && !(*name = PyUnicode_InternFromString(text))) return -1;
  PyObject* type = PyType_FromSpec(&differentiated_spec);
  if (!type || PyModule_AddObject(module, "Differentiated", type)) return -1;
  noted_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&noted_spec));
  if (!noted_type || PyModule_AddObjectRef(module, "Noted", reinterpret_cast<PyObject*>(noted_type))) return -1;
  PyObject* run = PyCFunction_New(&functions[0], nullptr);
  if (!run || PyModule_AddObject(module, "forward", run)) return -1;
  PyObject* back = PyCFunction_New(&functions[1], nullptr);
  PyObject* method = back ? PyInstanceMethod_New(back) : nullptr;  // bound to the node that it is looked up on, as functions in Python are
  Py_XDECREF(back);
  return method ? PyModule_AddObject(module, "backward", method) : -1;
}

}  // namespace opmill
