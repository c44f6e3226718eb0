// Trees of modules: cheap evidence that nothing changed since the last full check. Evidence is a list of words (the module's type,
// the place of its instance dictionary, in 3.11 the version of each dictionary; from 3.12 on dictionaries are watched and raise
// a flag) and the version tags of the classes. What changed leads to the full check, and on success the new evidence is remembered.
#include "common.h"

#include <algorithm>
#include <unordered_map>

#if PY_VERSION_HEX >= 0x030C0000
#define WATCHES_DICTS 1
#else
#define WATCHES_DICTS 0
#endif

namespace guards {

namespace {

struct Word {
    const uint64_t* address;
    uint64_t expected;
};

struct TypeVersion {
    PyTypeObject* type;
    unsigned int version;
};

struct Pin {
    PyObject* tensor;  // owned
    TensorSpec spec;
};

struct State {
    std::vector<PyObject*> modules;  // kept by the description, as are names, extra, then and recheck
    std::vector<Word> words;
    std::vector<PyObject*> dicts;  // owned; per module its own, then one a name; null where there is none
    std::vector<TypeVersion> types;  // borrowed: `recheck` keeps the classes
    std::vector<Pin> pins;
    PyObject *names = nullptr, *extra = nullptr, *then = nullptr, *recheck = nullptr;
    Py_ssize_t soft = 0;      // so many of the names are covered by `then`; changes behind the others are for `recheck`
    uint64_t generation = 0;  // of the remembered evidence
    bool stale = false;       // the last full check failed, or a watched dictionary changed
    bool hard = false;        // something changed that only `recheck` can judge, and it has not yet found it good
    bool hard_event = false;  // a watcher saw such a change since the last full check began
    size_t per_module() const { return 1 + PyTuple_GET_SIZE(names); }
};

struct ModuleWatch {
    PyObject_HEAD
    PyObject* description;
    State* state;
};

const uint64_t* as_word(const void* address) { return static_cast<const uint64_t*>(address); }
uint64_t pointer_bits(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

#if WATCHES_DICTS
struct Reliance {
    State* state;
    bool soft;
    bool operator==(const Reliance& other) const { return state == other.state && soft == other.soft; }
};
// Who relies on a dictionary. Guarded by the GIL.
std::unordered_map<PyObject*, std::vector<Reliance>>& watched() {
    static std::unordered_map<PyObject*, std::vector<Reliance>> map;
    return map;
}
int watcher = -1;

int on_dict_event(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
    auto found = watched().find(dict);
    if (found != watched().end()) {
        for (const Reliance& reliance : found->second) {
            reliance.state->stale = true;
            reliance.state->hard_event = reliance.state->hard_event || !reliance.soft;
            ++reliance.state->generation;
        }
    }
    return 0;
}

bool watch(State* state, PyObject* dict, bool soft) {
    if (watcher < 0 && (watcher = PyDict_AddWatcher(on_dict_event)) < 0) {
        return false;
    }
    watched()[dict].push_back({state, soft});
    return PyDict_Watch(watcher, dict) == 0;
}

void unwatch(State* state, PyObject* dict, bool soft) {
    auto found = watched().find(dict);
    if (found == watched().end()) {
        return;
    }
    auto position = std::find(found->second.begin(), found->second.end(), Reliance{state, soft});
    if (position != found->second.end()) {
        found->second.erase(position);
    }
    if (found->second.empty()) {
        watched().erase(found);
        if (PyDict_Unwatch(watcher, dict) < 0) {
            PyErr_Clear();
        }
    }
}
Word dict_word(PyObject*) {
    static const uint64_t zero = 0;
    return {&zero, 0};
}
#else
bool watch(State*, PyObject*, bool) { return true; }
void unwatch(State*, PyObject*, bool) {}
Word dict_word(PyObject* dict) {
    static const uint64_t zero = 0;
    if (dict == nullptr) {
        return {&zero, 0};
    }
    const uint64_t* version = &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
    return {version, *version};
}
#endif

// Whether `then` sees all that may change in the dictionary at this position: a module's own one and the first names.
bool is_soft(const State* state, size_t position) {
    return position < state->modules.size() * state->per_module() &&
           position % state->per_module() <= static_cast<size_t>(state->soft);
}

bool set_dict(State* state, size_t position, PyObject* dict) {
    PyObject* old = state->dicts[position];
    if (old == dict) {
        return true;
    }
    if (dict != nullptr && !watch(state, dict, is_soft(state, position))) {
        return false;
    }
    state->dicts[position] = Py_XNewRef(dict);
    if (old != nullptr) {
        unwatch(state, old, is_soft(state, position));
        Py_DECREF(old);
    }
    return true;
}

// From 3.13 on a dictionary may share its values with the object, and storing an attribute then tells no watcher. `popitem` gives a
// dictionary a table of its own (and the item goes back where it was, at the end); objects do not share with such a dictionary.
bool separate_values([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
    if (reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr || PyDict_GET_SIZE(dict) == 0) {
        return true;
    }
    Ref item(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyDict_Type), "popitem", "O", dict));
    return item && PyDict_SetItem(dict, PyTuple_GET_ITEM(item.get(), 0), PyTuple_GET_ITEM(item.get(), 1)) == 0;
#else
    return true;
#endif
}

// Remembers the evidence of one module as it is now. False with an error set where that cannot be done.
bool scan(State* state, size_t module) {
    PyObject* object = state->modules[module];
    const size_t dicts = state->per_module(), first_dict = module * dicts, first_word = module * (dicts + 2);
    Ref dict(PyObject_GenericGetDict(object, nullptr));
    PyObject** slot = dict_slot(object);
    if (!dict || slot == nullptr || *slot != dict.get()) {
        PyErr_SetString(PyExc_TypeError, "a watched object needs an instance dictionary");
        return false;
    }
    if (!separate_values(dict.get()) || !set_dict(state, first_dict, dict.get())) {
        return false;
    }
    state->words[first_word] = {as_word(&object->ob_type), pointer_bits(Py_TYPE(object))};
    state->words[first_word + 1] = {as_word(slot), pointer_bits(dict.get())};
    state->words[first_word + 2] = dict_word(dict.get());
    for (size_t i = 1; i < dicts; ++i) {
        PyObject* named = PyDict_GetItemWithError(dict.get(), PyTuple_GET_ITEM(state->names, i - 1));
        if (named == nullptr && PyErr_Occurred()) {
            return false;
        }
        named = named != nullptr && PyDict_Check(named) ? named : nullptr;
        if (!set_dict(state, first_dict + i, named)) {
            return false;
        }
        state->words[first_word + 2 + i] = dict_word(named);
    }
    return true;
}

bool scan_extra(State* state) {
    const size_t modules = state->modules.size(), dicts = state->per_module();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(state->extra); ++i) {
        PyObject* dict = PyTuple_GET_ITEM(state->extra, i);
        if (!set_dict(state, modules * dicts + i, dict)) {
            return false;
        }
        state->words[modules * (dicts + 2) + i] = dict_word(dict);
    }
    return true;
}

unsigned int current_version(PyTypeObject* type) {
#if WATCHES_DICTS
    PyUnstable_Type_AssignVersionTag(type);
#else
    static PyObject* name = PyUnicode_InternFromString("__class__");
    _PyType_Lookup(type, name);  // a lookup gives a type that has none its version
#endif
    return type->tp_version_tag;
}

bool types_hold(const State* state) {
    for (const TypeVersion& known : state->types) {
        if (known.version == 0 || known.type->tp_version_tag != known.version) {
            return false;
        }
    }
    return true;
}

bool words_hold(const Word* words, size_t count) {
    uint64_t difference = 0;
    for (size_t i = 0; i < count; ++i) {
        difference |= *words[i].address ^ words[i].expected;
    }
    return difference == 0;
}

// Whether what changed is only such as `then` looks at; remembers the evidence as it is now on the way.
bool rescan(State* state, bool* only_soft) {
    const size_t dicts = state->per_module(), words = dicts + 2, soft = 3 + state->soft;
    *only_soft = types_hold(state) && !std::exchange(state->hard_event, false);
    for (size_t module = 0; module < state->modules.size(); ++module) {
        const Word* first = &state->words[module * words];
        const bool hard_holds = words_hold(first, 2) && words_hold(first + soft, words - soft);
        *only_soft = *only_soft && hard_holds;
        if (!WATCHES_DICTS && hard_holds && words_hold(first, words)) {
            continue;
        }
        const std::vector<PyObject*> before(state->dicts.begin() + module * dicts, state->dicts.begin() + (module + 1) * dicts);
        if (!scan(state, module)) {
            return false;
        }
        for (size_t i = 1 + state->soft; i < dicts; ++i) {
            *only_soft = *only_soft && before[i] == state->dicts[module * dicts + i];
        }
    }
    const size_t extra = state->modules.size() * words;
    *only_soft = *only_soft && words_hold(&state->words[extra], state->words.size() - extra);
    for (TypeVersion& known : state->types) {
        known.version = current_version(known.type);
    }
    return scan_extra(state);
}

// The full check in Python: None, or the tensors as they are now, in the order of the pins.
bool recheck(State* state, PyObject* const* locals, Py_ssize_t count) {
    Ref tensors(PyObject_Vectorcall(state->recheck, locals, count, nullptr));
    if (!tensors || !PyTuple_Check(tensors.get()) || PyTuple_GET_SIZE(tensors.get()) != static_cast<Py_ssize_t>(state->pins.size())) {
        return false;
    }
    for (size_t i = 0; i < state->pins.size(); ++i) {
        Ref old(std::exchange(state->pins[i].tensor, Py_NewRef(PyTuple_GET_ITEM(tensors.get(), i))));
    }
    return true;
}

bool full_check(State* state, PyObject* const* locals, Py_ssize_t count) {
    state->stale = true;
    bool only_soft = false;
    const bool scanned = rescan(state, &only_soft);
    // Watchers report what happens from here on through the generation; in 3.11 the words do.
    const uint64_t generation = ++state->generation;
    if (!scanned) {
        state->hard = true;
        return false;
    }
    state->hard = state->hard || !only_soft;
    const bool easily = !state->hard && tree_check(state->then, locals, count);
    if (!easily && !recheck(state, locals, count)) {
        return false;
    }
    if (state->generation == generation) {
        state->stale = state->hard = false;
    }
    return true;
}

bool check(State* state, PyObject* const* locals, Py_ssize_t count) {
    if ((state->stale || !words_hold(state->words.data(), state->words.size()) || !types_hold(state)) && !full_check(state, locals, count)) {
        return false;
    }
    for (const Pin& pin : state->pins) {
        bool holds = false;
        if (pin.spec.decide(pin.tensor, &holds)) {
            if (!holds) {
                return false;
            }
            continue;
        }
        const Ref held = Ref::borrow(pin.tensor);  // another thread may put another tensor there while Python runs
        if (!pin.spec.check(held.get())) {
            return false;
        }
    }
    return true;
}

void clear_state(State* state) {
    std::vector<PyObject*> owned;
    owned.swap(state->dicts);
    for (size_t i = 0; i < owned.size(); ++i) {
        if (owned[i] != nullptr) {
            unwatch(state, owned[i], is_soft(state, i));
            Py_CLEAR(owned[i]);
        }
    }
    std::vector<Pin> pins;
    pins.swap(state->pins);
    for (Pin& pin : pins) {
        Py_CLEAR(pin.tensor);
    }
}

bool build(State* state, PyObject* description) {
    PyObject *modules = nullptr, *tensors = nullptr;
    if (!PyArg_ParseTuple(description, "O!O!nO!OO!O", &PyTuple_Type, &modules, &PyTuple_Type, &state->names, &state->soft, &PyTuple_Type,
                          &state->extra, &state->then, &PyTuple_Type, &tensors, &state->recheck)) {
        return false;
    }
    if (!PyObject_TypeCheck(state->then, &TreeType)) {
        PyErr_SetString(PyExc_TypeError, "expected a Tree");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modules); ++i) {
        PyObject* module = PyTuple_GET_ITEM(modules, i);
        state->modules.push_back(module);
        PyTypeObject* type = Py_TYPE(module);
        const auto known = [&](const TypeVersion& other) { return other.type == type; };
        if (std::none_of(state->types.begin(), state->types.end(), known)) {
            state->types.push_back({type, 0});
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); ++i) {
        PyObject *tensor = nullptr, *spec = nullptr;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tensors, i), "OO", &tensor, &spec)) {
            return false;
        }
        state->pins.push_back({Py_NewRef(tensor), {}});
        if (!state->pins.back().spec.parse(spec)) {
            return false;
        }
    }
    const size_t extra = PyTuple_GET_SIZE(state->extra), dicts = state->per_module();
    state->dicts.assign(state->modules.size() * dicts + extra, nullptr);
    state->words.resize(state->modules.size() * (dicts + 2) + extra);
    for (size_t i = 0; i < state->modules.size(); ++i) {
        if (!scan(state, i)) {
            return false;
        }
    }
    for (TypeVersion& known : state->types) {
        known.version = current_version(known.type);
    }
    return scan_extra(state);
}

// The argument: (modules, names of watched dictionaries, how many of the names are soft, further dictionaries, then, tensors, recheck)
PyObject* watch_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* description = nullptr;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &description)) {
        return nullptr;
    }
    auto* self = reinterpret_cast<ModuleWatch*>(type->tp_alloc(type, 0));
    if (self == nullptr) {
        return nullptr;
    }
    self->description = Py_NewRef(description);
    self->state = new State;
    if (!build(self->state, description)) {
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject*>(self);
}

int watch_traverse(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<ModuleWatch*>(object);
    Py_VISIT(self->description);
    if (self->state != nullptr) {
        for (PyObject* dict : self->state->dicts) {
            Py_VISIT(dict);
        }
        for (const Pin& pin : self->state->pins) {
            Py_VISIT(pin.tensor);
        }
    }
    return 0;
}

void watch_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<ModuleWatch*>(object);
    PyObject_GC_UnTrack(object);
    if (self->state != nullptr) {
        clear_state(self->state);
        delete self->state;
    }
    Py_XDECREF(self->description);
    Py_TYPE(object)->tp_free(object);
}

PyObject* is_stale(PyObject* object, void*) {
    const State* state = reinterpret_cast<ModuleWatch*>(object)->state;
    return PyBool_FromLong(state->stale || !words_hold(state->words.data(), state->words.size()) || !types_hold(state));
}

PyGetSetDef watch_getset[] = {
    {"stale", is_stale, nullptr, "whether the next check will be a full one", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject make_watch_type() {
    PyTypeObject type = blank_type();
    type.tp_name = "opmill_guards._native.ModuleWatch";
    type.tp_basicsize = sizeof(ModuleWatch);
    type.tp_dealloc = watch_dealloc;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = watch_traverse;
    type.tp_getset = watch_getset;
    type.tp_new = watch_new;
    return type;
}

}  // namespace

PyTypeObject ModuleWatchType = make_watch_type();

bool module_watch_check(PyObject* watch, PyObject* const* locals, Py_ssize_t count) {
    return check(reinterpret_cast<ModuleWatch*>(watch)->state, locals, count);
}

}  // namespace guards
