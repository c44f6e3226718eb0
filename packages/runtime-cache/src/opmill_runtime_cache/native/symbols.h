// Functions of libraries that are found at run time.
#pragma once

#include <dlfcn.h>

#include <initializer_list>

namespace opmill {

struct Symbol {
  void* target;  // a pointer to a function, to be filled
  const char* name;
};

// Fills the targets; the name of the first function that the library lacks, or nullptr.
inline const char* find_symbols(void* library, std::initializer_list<Symbol> symbols) {
  for (const Symbol& symbol : symbols)
    if (!(*static_cast<void**>(symbol.target) = dlsym(library, symbol.name))) return symbol.name;
  return nullptr;
}

}  // namespace opmill
