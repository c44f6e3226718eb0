#include "views.h"

namespace opmill {

namespace {

// as_strided through the dispatcher makes a view that shares the base's version counter, as eager's views do.
bool as_strided(Handle base, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset, Handle* result) {
  auto list = [](const std::vector<int64_t>& numbers) {
    Cell cell{CellKind::list, 0, -1, {}, {}};
    for (int64_t number : numbers) cell.items.push_back({CellKind::word, number, -1, {}, {}});
    return cell;
  };
  const std::vector<Cell> cells = {
      {CellKind::tensor, 0, 0, {}, {}}, list(sizes), list(strides), {CellKind::some, 0, -1, {}, {{CellKind::word, offset, -1, {}, {}}}}};
  std::vector<Handle> results;
  if (!call_dispatcher("aten::as_strided", "", cells, {0}, {&base, nullptr}, &results)) return false;
  *result = results[0];
  return true;
}

bool viewed_as(Handle base, int dtype, int device, Handle* result) {
  if (device == -1) return api.view_dtype(base, dtype_code[dtype], result) == 0;
  const std::vector<Cell> cells = {{CellKind::tensor, 0, 0, {}, {}}, {CellKind::word, dtype_code[dtype], -1, {}, {}}};
  std::vector<Handle> results;
  if (!call_dispatcher("aten::view", "dtype", cells, {0}, {&base, nullptr}, &results)) return false;
  *result = results[0];
  return true;
}

}  // namespace

bool retyped(Handle base, int from, int to, int device, Handle* result) {
  if (dtype_bytes[from] == dtype_bytes[to]) return viewed_as(base, to, device, result);
  int64_t storage = 0, offset = 0;
  if (api.get_storage_size(base, &storage) || api.get_storage_offset(base, &offset)) return false;
  int64_t count = storage / dtype_bytes[from] - offset;
  const int64_t ratio = dtype_bytes[to] / dtype_bytes[from];
  if (ratio > 1) count -= count % ratio;
  const int64_t one = 1;
  Handle flat = nullptr;
  if (api.reinterpret(base, 1, &count, &one, 0, &flat)) return false;
  const bool done = viewed_as(flat, to, device, result);
  api.delete_handle(flat);
  return done;
}

bool make_view(const Program& program, const Instance& instance, int slot, bool recording, Handle* result) {
  const SlotInfo& info = program.slots[slot];
  const SlotState& root = instance.slots[info.root];
  const int dtype = instance.slots[slot].dtype;
  const auto &sizes = instance.sizes[slot], &strides = instance.strides[slot];
  const int64_t offset = instance.byte_offset[slot] / dtype_bytes[dtype];
  Handle base = root.handle, temporary = nullptr;
  if (!base || root.dtype < 0) return false;
  if (root.dtype != dtype) {
    if (!retyped(base, root.dtype, dtype, info.device, &temporary)) return false;
    base = temporary;
  }
  bool made;
  if (info.shares_version) {
    int64_t start = 0;
    const bool known =
        recording && api.requires_grad && !api.requires_grad(*reinterpret_cast<void**>(base));  // else it would have a history
    if (known) api.set_grad_enabled(true);
    made = api.get_storage_offset(base, &start) == 0 && as_strided(base, sizes, strides, start + offset, result);
    if (known) api.set_grad_enabled(false);
  } else {
    made = api.reinterpret(base, sizes.size(), sizes.data(), strides.data(), offset, result) == 0;
  }
  if (temporary) api.delete_handle(temporary);
  return made;
}

}  // namespace opmill
