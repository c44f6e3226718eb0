// Relations between sizes as postfix programs over 64-bit integers. What does not fit (other types, overflow, division by zero) is left
// to Python. The operations are numbered as in `kinds/size_relation.py`.
#include "common.h"

#include <algorithm>

namespace guards {

namespace {

enum Operation : int64_t { Push, Load, Add, Sub, Mul, FloorDiv, Mod, Min, Max, Lt, Le, Gt, Ge, Eq, Ne, Neg, Abs, Not, Both, Either };

// False where the result is no 64-bit integer.
bool combine(int64_t operation, int64_t a, int64_t b, int64_t* result) {
  switch (operation) {
    case Add:
      return !__builtin_add_overflow(a, b, result);
    case Sub:
      return !__builtin_sub_overflow(a, b, result);
    case Mul:
      return !__builtin_mul_overflow(a, b, result);
    case FloorDiv:
    case Mod: {
      if (b == 0 || b == -1) { return false; }
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      *result = operation == FloorDiv ? a / b - down : a % b + (down ? b : 0);
      return true;
    }
    case Min:
      *result = std::min(a, b);
      return true;
    case Max:
      *result = std::max(a, b);
      return true;
    case Lt:
      *result = a < b;
      return true;
    case Le:
      *result = a <= b;
      return true;
    case Gt:
      *result = a > b;
      return true;
    case Ge:
      *result = a >= b;
      return true;
    case Eq:
      *result = a == b;
      return true;
    case Ne:
      *result = a != b;
      return true;
    case Both:
      *result = a != 0 && b != 0;
      return true;
    case Either:
      *result = a != 0 || b != 0;
      return true;
    default:
      return false;
  }
}

bool integer(PyObject* value, int64_t* result) {
  int overflow = 0;
  if (value == nullptr || !PyLong_CheckExact(value)) { return false; }
  *result = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

}  // namespace

bool decide_relation(const std::vector<int64_t>& code, const std::vector<PyObject*>& values, bool* holds) {
  constexpr size_t room = 32;
  int64_t stack[room];
  size_t depth = 0;
  for (size_t i = 0; i + 1 < code.size(); i += 2) {
    const int64_t operation = code[i], operand = code[i + 1];
    if (operation == Push || operation == Load) {
      if (depth == room) { return false; }
      stack[depth] = operand;
      if (operation == Load && (static_cast<size_t>(operand) >= values.size() || !integer(values[operand], &stack[depth]))) {
        return false;
      }
      ++depth;
    } else if (operation == Neg || operation == Abs || operation == Not) {
      if (depth < 1) { return false; }
      int64_t& top = stack[depth - 1];
      if (operation == Not) {
        top = top == 0;
      } else if ((operation == Neg || top < 0) && __builtin_sub_overflow(0, top, &top)) {
        return false;
      }
    } else {
      if (depth < 2) { return false; }
      --depth;
      if (!combine(operation, stack[depth - 1], stack[depth], &stack[depth - 1])) { return false; }
    }
  }
  *holds = depth == 1 && stack[0] != 0;
  return depth == 1;
}

}  // namespace guards
