#include "evidence.h"

#include <algorithm>
#include <unordered_map>

namespace guards {

#if WATCHES_DICTS
namespace {
// Who relies on a dictionary. Guarded by the GIL.
std::unordered_map<PyObject*, std::vector<Evidence*>>& watched() {
  static auto* map = new std::unordered_map<PyObject*, std::vector<Evidence*>>;  // never destroyed: dictionaries end after it would be
  return *map;
}
int watcher = -1;

int on_dict_event(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  auto found = watched().find(dict);
  if (found != watched().end()) {
    for (Evidence* evidence : found->second) { evidence->changed(); }
    if (event == PyDict_EVENT_DEALLOCATED) { watched().erase(found); }
  }
  return 0;
}
}  // namespace

bool Evidence::add_dict(PyObject* dict) {
  if (dict == nullptr) { return true; }
  if (watcher < 0 && (watcher = PyDict_AddWatcher(contained<on_dict_event>)) < 0) { return false; }
  if (PyDict_Watch(watcher, dict) < 0) { return false; }
  watched()[dict].push_back(this);
  dicts_.push_back(dict);
  return true;
}

void Evidence::forget() {
  for (PyObject* dict : dicts_) {
    auto found = watched().find(dict);  // not there: the dictionary is gone
    if (found == watched().end()) { continue; }
    auto position = std::find(found->second.begin(), found->second.end(), this);
    if (position != found->second.end()) { found->second.erase(position); }
    if (found->second.empty()) {
      watched().erase(found);
      if (PyDict_Unwatch(watcher, dict) < 0) { PyErr_Clear(); }
    }
  }
  dicts_.clear();
  words_.clear();
  stale_ = false;
}
#else
bool Evidence::add_dict(PyObject* dict) {
  if (dict != nullptr) {
    const uint64_t* version = &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
    words_.push_back({version, *version});
  }
  return true;
}

void Evidence::forget() {
  words_.clear();
  stale_ = false;
}
#endif

// `popitem` gives a dictionary a table of its own (and the item goes back where it was, at the end); objects do not share with such a one.
bool separate_values([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr || PyDict_GET_SIZE(dict) == 0) { return true; }
  Ref item(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyDict_Type), "popitem", "O", dict));
  return item && PyDict_SetItem(dict, PyTuple_GET_ITEM(item.get(), 0), PyTuple_GET_ITEM(item.get(), 1)) == 0;
#else
  return true;
#endif
}

}  // namespace guards
