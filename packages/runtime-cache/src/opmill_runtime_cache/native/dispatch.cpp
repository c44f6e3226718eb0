// The dispatcher's route: every argument becomes a 64-bit stable value.
#include <cstring>

#include "shims.h"

namespace opmill {

namespace {

bool stable_value(const Cell& cell, const CellSource& source, uint64_t* out) {
  switch (cell.kind) {
    case CellKind::tensor: {
      Handle copy = nullptr;  // the dispatcher takes ownership
      if (api.new_handle(source.tensor(cell), &copy)) return false;
      std::memcpy(out, &copy, sizeof copy);
      return true;
    }
    case CellKind::word:
      *out = static_cast<uint64_t>(cell.word);
      return true;
    case CellKind::value:
      *out = static_cast<uint64_t>(source.values[cell.index]);
      return true;
    case CellKind::some: {
      uint64_t inner = 0;
      if (!stable_value(cell.items[0], source, &inner)) return false;
      uint64_t* box = nullptr;
      if (api.new_stable_value) {
        if (api.new_stable_value(&box)) return false;
      } else {
        box = new uint64_t;
      }
      *box = inner;
      std::memcpy(out, &box, sizeof box);
      return true;
    }
    case CellKind::list: {
      void* list = nullptr;
      if (api.new_list(cell.items.size(), &list)) return false;
      for (const Cell& item : cell.items) {
        uint64_t inner = 0;
        if (!stable_value(item, source, &inner) || api.list_push(list, inner)) return false;
      }
      std::memcpy(out, &list, sizeof list);
      return true;
    }
    case CellKind::text: {
      void* text = nullptr;
      if (!api.new_string || api.new_string(cell.text.data(), cell.text.size(), &text)) return false;
      std::memcpy(out, &text, sizeof text);
      return true;
    }
  }
  return false;
}

Handle as_handle(uint64_t word) {
  Handle handle;
  std::memcpy(&handle, &word, sizeof handle);
  return handle;
}

}  // namespace

Handle undefined_tensor() {
  static const Handle none = [] {
    Handle made = nullptr;
    api.new_undefined(&made);
    return made;
  }();
  return none;
}

bool call_dispatcher(const char* name, const char* overload, const std::vector<Cell>& cells, const std::vector<int>& returns,
                     const CellSource& source, std::vector<Handle>* results) {
  constexpr size_t kStack = 32;
  uint64_t stack[kStack] = {};
  if (cells.size() > kStack || returns.size() > kStack) return false;
  for (size_t i = 0; i < cells.size(); i++)
    if (!stable_value(cells[i], source, &stack[i])) return false;
  if (api.call_dispatcher(name, overload, stack, api.abi_version())) return false;
  for (size_t i = 0; i < returns.size(); i++) {
    if (returns[i] == kIntegerResult) {
      results->push_back(nullptr);
      continue;
    }
    if (returns[i] == 0) {
      results->push_back(as_handle(stack[i]));
      continue;
    }
    void* list = as_handle(stack[i]);
    size_t size = 0;
    api.list_size(list, &size);
    for (size_t j = 0; j < size; j++) {
      uint64_t item = 0;
      api.list_get(list, j, &item);
      results->push_back(as_handle(item));
    }
    api.delete_list(list);
  }
  return true;
}

}  // namespace opmill
