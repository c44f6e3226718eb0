#include "values.h"

#include <algorithm>

namespace opmill {

namespace {

enum Op : int64_t { PUSH, LOAD, ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX, NEG, LT, LE, GT, GE, EQ, NE };

Arithmetic apply(int64_t op, int64_t a, int64_t b, int64_t* out) {
  const bool divides = op == FLOORDIV || op == MOD;
  if (divides && b == 0) return Arithmetic::division_by_zero;
  if (op == FLOORDIV && b == -1) return __builtin_sub_overflow(0, a, out) ? Arithmetic::overflow : Arithmetic::ok;
  bool overflow = false;
  switch (op) {
    case ADD:
      overflow = __builtin_add_overflow(a, b, out);
      break;
    case SUB:
      overflow = __builtin_sub_overflow(a, b, out);
      break;
    case MUL:
      overflow = __builtin_mul_overflow(a, b, out);
      break;
    case FLOORDIV:
      *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
      break;
    case MOD:
      *out = b == -1 ? 0 : (a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b);
      break;
    case MIN:
      *out = std::min(a, b);
      break;
    case MAX:
      *out = std::max(a, b);
      break;
    case LT:
      *out = a < b;
      break;
    case LE:
      *out = a <= b;
      break;
    case GT:
      *out = a > b;
      break;
    case GE:
      *out = a >= b;
      break;
    case EQ:
      *out = a == b;
      break;
    default:
      *out = a != b;
      break;
  }
  return overflow ? Arithmetic::overflow : Arithmetic::ok;
}

}  // namespace

Arithmetic evaluate(const Value& value, const int64_t* values, int64_t* result) {
  std::vector<int64_t> stack;
  for (size_t i = 0; i < value.code.size(); i += 2) {
    const int64_t op = value.code[i], operand = value.code[i + 1];
    if (op == PUSH) {
      stack.push_back(operand);
    } else if (op == LOAD) {
      stack.push_back(values[operand]);
    } else if (op == NEG) {
      if (__builtin_sub_overflow(0, stack.back(), &stack.back())) return Arithmetic::overflow;
    } else {
      const int64_t right = stack.back();
      stack.pop_back();
      const Arithmetic state = apply(op, stack.back(), right, &stack.back());
      if (state != Arithmetic::ok) return state;
    }
  }
  *result = stack.back();
  return Arithmetic::ok;
}

}  // namespace opmill
