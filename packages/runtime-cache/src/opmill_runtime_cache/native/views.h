// Tensors over the storage of other tensors.
#pragma once

#include "instance.h"

namespace opmill {

// A view, as slot `slot` describes it, of the tensor in its root slot; false when torch refuses. `recording`: whether the caller's grad mode is on, so
// that autograd lets a program write to a view that leaves.
bool make_view(const Program& program, const Instance& instance, int slot, bool recording, Handle* result);

// The first `to` elements' worth of `base`, of elements `from`, as elements `to`: all of its storage from its first element on, flat where the
// widths differ. The caller owns the result.
bool retyped(Handle base, int from, int to, int device, Handle* result);

}  // namespace opmill
