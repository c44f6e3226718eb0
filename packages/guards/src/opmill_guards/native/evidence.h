// Evidence that dictionaries are as they were: versions in 3.11, watchers that raise a flag from 3.12 on. Nothing here keeps a dictionary
// alive: who relies on one checks, in this order, that its owner still has it, and then that it did not change.
#pragma once
#include "common.h"

#if PY_VERSION_HEX >= 0x030C0000
#define WATCHES_DICTS 1
#else
#define WATCHES_DICTS 0
#endif

namespace guards {

struct Word {
  const uint64_t* address;
  uint64_t expected;
};

inline const uint64_t* as_word(const void* address) { return static_cast<const uint64_t*>(address); }
inline uint64_t pointer_bits(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// A set of dictionaries that were seen at one time.
class Evidence {
 public:
  Evidence() = default;
  Evidence(const Evidence&) = delete;
  Evidence& operator=(const Evidence&) = delete;
  ~Evidence() { forget(); }
  // Adds a dictionary, null for one that is not there. False with an error set.
  bool add_dict(PyObject* dict);
  void add_word(const void* address, const void* expected) { words_.push_back({as_word(address), pointer_bits(expected)}); }
  // Each word vouches for the memory of those behind it: the first that differs ends the comparison.
  bool holds() const {
    if (stale_) { return false; }
    const Word *word = words_.data(), *const end = word + words_.size();
    for (; end - word >= 4; word += 4) {  // thousands of words in a large model: this loop is most of a call
      if (*word[0].address != word[0].expected || *word[1].address != word[1].expected || *word[2].address != word[2].expected ||
          *word[3].address != word[3].expected) {
        return false;
      }
    }
    for (; word != end; ++word) {
      if (*word->address != word->expected) { return false; }
    }
    return true;
  }
  void forget();
  void reserve(size_t words) { words_.reserve(words); }
  void changed() { stale_ = true; }

 private:
  std::vector<Word> words_;
  std::vector<PyObject*> dicts_;  // borrowed: those that are watched
  bool stale_ = false;            // something that is watched has changed, or is gone
};

// From 3.13 on a dictionary may share its values with the object, and storing an attribute then tells no watcher: gives it its own.
bool separate_values(PyObject* dict);

}  // namespace guards
