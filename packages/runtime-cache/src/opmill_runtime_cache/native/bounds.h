// That nothing of a plan reaches outside of its memory. All arithmetic is checked: sizes come from the plan and from the call.
#pragma once

#include "instance.h"

namespace opmill {

// Elements from the first to behind the last of a tensor; false where that does not fit 64 bits or a number is negative.
bool checked_span(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t* span);

// Bytes [start, end) of a slot whose sizes are resolved, counted from where its root's first element lies; false on overflow.
bool range_of(const Program& program, const Instance& instance, int slot, int dtype, int64_t* start, int64_t* end);

// Whether a view certainly stays inside what the plan knows of its root; one without elements may begin behind its end. Where it does not,
// the storage decides while a call runs.
bool inside_root(const Program& program, const Instance& instance, int slot);

// Whether a tensor's storage covers bytes [start, end), counted from its first element.
bool storage_covers(Handle tensor, int dtype, int64_t start, int64_t end);

// Whether the buffers that a launch reads indices from are apart from those that it writes. Fills `failure`.
bool launch_apart(const Program& program, const Instance& instance, const Step& step, const SlotState* slots, Failure* failure);

// Whether the tensors of a call are as far apart as its operator needs, as far as sizes and offsets decide that. Fills `failure`.
bool call_apart(const Program& program, const Instance& instance, const CallInfo& call, Failure* failure);

// The same for those of which only addresses tell.
bool call_apart_late(const Program& program, const CallInfo& call, const SlotState* slots, Failure* failure);

// Whether a launch stays inside its slots and their types are those of the kernel; `slots` of the running call, or none while only what
// is known before it is asked for. Fills `failure`.
bool launch_fits(const Program& program, const Instance& instance, const Step& step, const SlotState* slots, Failure* failure);

}  // namespace opmill
