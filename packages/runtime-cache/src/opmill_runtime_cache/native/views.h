// Tensors over the storage of other tensors.
#pragma once

#include "instance.h"

namespace opmill {

// A view, as slot `slot` describes it, of the tensor in its root slot; false when torch refuses.
bool make_view(const Program& program, const Instance& instance, int slot, Handle* result);

}  // namespace opmill
