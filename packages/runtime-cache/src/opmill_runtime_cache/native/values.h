// Size expressions in postfix form; the instruction numbers are `plan.expr.Op`.
#pragma once

#include <cstdint>
#include <vector>

namespace opmill {

struct Value {
  std::vector<int64_t> code;  // pairs (instruction, operand); empty for a value that is given, not computed
  bool late = false;          // depends on what only a step of the call makes known
};

enum class Arithmetic { ok, division_by_zero, overflow };

// Computes `value` from the values before it.
Arithmetic evaluate(const Value& value, const int64_t* values, int64_t* result);

}  // namespace opmill
