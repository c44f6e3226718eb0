#include "bounds.h"

namespace opmill {

namespace {

bool multiply(int64_t a, int64_t b, int64_t* out) { return !__builtin_mul_overflow(a, b, out); }
bool add(int64_t a, int64_t b, int64_t* out) { return !__builtin_add_overflow(a, b, out); }

bool refuse(Failure* failure, std::string message) {
  *failure = {nullptr, "RC058", std::move(message), true};
  return false;
}

// How many elements of the type that a kernel takes one element is: a complex number is taken as two; 0 for another type.
int64_t parts_of(int dtype, int taken) {
  constexpr int kFloat32 = 11, kFloat64 = 12, kComplex64 = 13, kComplex128 = 14;
  if (dtype == taken) return 1;
  return (dtype == kComplex64 && taken == kFloat32) || (dtype == kComplex128 && taken == kFloat64) ? 2 : 0;
}

// How many elements a tensor of the running call spans; -1 where it does not lie in this kind of memory (`index` -1: on any device of
// that kind), or nowhere.
int64_t elements_of(const SlotState& state, int type, int index) {
  int32_t kind = 0, number = 0;
  int64_t dim = 0, *sizes = nullptr, *strides = nullptr, span = 0;
  if (!state.handle || api.get_device_type(state.handle, &kind) || kind != type) return -1;
  if (index >= 0 && (api.get_device_index(state.handle, &number) || number != index)) return -1;
  if (api.get_dim(state.handle, &dim) || api.get_sizes(state.handle, &sizes) || api.get_strides(state.handle, &strides)) return -1;
  if (!checked_span({sizes, sizes + dim}, {strides, strides + dim}, &span)) return -1;
  return span && !state.data ? -1 : span;
}

}  // namespace

bool checked_span(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t* span) {
  int64_t last = 0, step = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i] < 0 || strides[i] < 0) return false;
    empty |= sizes[i] == 0;
  }
  *span = 0;
  if (empty) return true;
  for (size_t i = 0; i < sizes.size(); i++)
    if (!multiply(sizes[i] - 1, strides[i], &step) || !add(last, step, &last)) return false;
  return add(last, 1, span);
}

bool range_of(const Program& program, const Instance& instance, int slot, int dtype, int64_t* start, int64_t* end) {
  (void)program;
  int64_t bytes = 0;
  *start = instance.byte_offset[slot];
  return multiply(instance.span[slot], dtype_bytes[dtype], &bytes) && add(*start, bytes, end);
}

bool inside_root(const Program& program, const Instance& instance, int slot) {
  const SlotInfo &info = program.slots[slot], &root = program.slots[info.root];
  if (info.dtype < 0 || root.dtype < 0 || !root.known || (root.late && !info.late)) return false;
  int64_t start = 0, end = 0, room = 0;
  if (!range_of(program, instance, slot, info.dtype, &start, &end) || !multiply(instance.span[info.root], dtype_bytes[root.dtype], &room))
    return false;
  return start >= 0 && start % dtype_bytes[info.dtype] == 0 && (start == end || end <= room);
}

bool storage_covers(Handle tensor, int dtype, int64_t start, int64_t end) {
  int64_t bytes = 0, offset = 0, before = 0;
  if (!tensor || dtype < 0 || api.get_storage_size(tensor, &bytes) || api.get_storage_offset(tensor, &offset)) return false;
  return multiply(offset, dtype_bytes[dtype], &before) && add(start, before, &start) && add(end, before, &end) && start >= 0 &&
         start <= end && end <= bytes;
}

bool launch_fits(const Program& program, const Instance& instance, const Step& step, const SlotState* slots, Failure* failure) {
  if (step.floor >= 0 && instance.values[step.floor] < 0) return refuse(failure, "a kernel would touch memory before its tensors");
  for (size_t i = 0; i < step.needs.size(); i++) {
    const int slot = step.slots[i];
    const SlotInfo& info = program.slots[slot];
    const int64_t needed = instance.values[step.needs[i]];
    int64_t there = instance.span[slot];
    const int64_t parts = parts_of(slots && info.dtype < 0 ? slots[slot].dtype : info.dtype, step.dtypes[i]);
    if (slots && !info.known && step.kind == StepKind::launch) there = elements_of(slots[slot], step.a, -1);
    else if (slots && !info.known) there = elements_of(slots[slot], step.a < 0 ? kCpu : kCuda, step.a);
    if (there < 0 || !parts || !multiply(there, parts, &there))
      return refuse(failure, program.labels[slot] + " is of another type than a kernel takes");
    if (needed > there)
      return refuse(failure, "a kernel touches " + std::to_string(needed) + " elements of " + program.labels[slot] + ", which has " +
                                 std::to_string(there));
  }
  return true;
}

bool launch_apart(const Program& program, const Instance& instance, const Step& step, const SlotState* slots, Failure* failure) {
  const auto place = [&](int position, uint64_t* begin) {
    *begin = reinterpret_cast<uint64_t>(slots[step.slots[position]].data);
    return instance.values[step.needs[position]] * dtype_bytes[step.dtypes[position]];
  };
  for (size_t i = 0; i + 2 < step.apart.size(); i += 3) {
    uint64_t a = 0, b = 0;
    const int64_t first = place(step.apart[i], &a), second = place(step.apart[i + 1], &b);
    if (first <= 0 || second <= 0 || a + first <= b || b + second <= a || (step.apart[i + 2] && a == b && first == second)) continue;
    return refuse(failure, "a kernel would write " + program.labels[step.slots[step.apart[i]]] + " over the indices that it reads from " +
                               program.labels[step.slots[step.apart[i + 1]]]);
  }
  return true;
}

namespace {

bool refuse_overlap(const Program& program, const CallInfo& call, const Apart& pair, Failure* failure) {
  return refuse(failure, call.name + " would write " + program.labels[pair.a] + " over " + program.labels[pair.b] + ", which it reads");
}

// Bytes [begin, end) of a tensor of the running call, and its sizes and strides; false where it lies in no memory.
bool where(const SlotState& state, uint64_t* begin, uint64_t* end, std::vector<int64_t>* form) {
  int32_t code = 0;
  int64_t dim = 0, *sizes = nullptr, *strides = nullptr, span = 0;
  void* data = nullptr;
  if (!state.handle || api.get_dtype(state.handle, &code) || dtype_index(code) < 0 || api.get_dim(state.handle, &dim) ||
      api.get_sizes(state.handle, &sizes) || api.get_strides(state.handle, &strides) || api.get_data_ptr(state.handle, &data) ||
      !checked_span({sizes, sizes + dim}, {strides, strides + dim}, &span))
    return false;
  *begin = reinterpret_cast<uint64_t>(data);
  *end = *begin + span * dtype_bytes[dtype_index(code)];
  form->assign(sizes, sizes + dim);
  form->insert(form->end(), strides, strides + dim);
  return span > 0;
}

}  // namespace

bool call_apart(const Program& program, const Instance& instance, const CallInfo& call, Failure* failure) {
  for (const Apart& pair : call.apart) {
    int64_t begin[2], end[2];
    if (!range_of(program, instance, pair.a, program.slots[pair.a].dtype, &begin[0], &end[0]) ||
        !range_of(program, instance, pair.b, program.slots[pair.b].dtype, &begin[1], &end[1]))
      return refuse_overlap(program, call, pair, failure);
    const bool same = pair.same && begin[0] == begin[1] && end[0] == end[1] && instance.sizes[pair.a] == instance.sizes[pair.b] &&
                      instance.strides[pair.a] == instance.strides[pair.b];
    if (begin[0] != end[0] && begin[1] != end[1] && begin[0] < end[1] && begin[1] < end[0] && !same)
      return refuse_overlap(program, call, pair, failure);
  }
  return true;
}

bool call_apart_late(const Program& program, const CallInfo& call, const SlotState* slots, Failure* failure) {
  for (const Apart& pair : call.apart_late) {
    uint64_t begin[2], end[2];
    std::vector<int64_t> form[2];
    if (!where(slots[pair.a], &begin[0], &end[0], &form[0]) || !where(slots[pair.b], &begin[1], &end[1], &form[1])) continue;
    const bool same = pair.same && begin[0] == begin[1] && end[0] == end[1] && form[0] == form[1];
    if (begin[0] < end[1] && begin[1] < end[0] && !same) return refuse_overlap(program, call, pair, failure);
  }
  return true;
}

}  // namespace opmill
