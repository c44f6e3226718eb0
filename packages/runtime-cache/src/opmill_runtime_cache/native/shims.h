// Calls of torch operators: arguments as cells, taken either by a C shim with its exact signature or by the dispatcher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout.h"
#include "torch_api.h"

namespace opmill {

// One argument. `word` carries integers, bools, torch's enumerations, the bits of doubles, and 0 for None.
struct Cell {
  CellKind kind;
  int64_t word = 0;
  int index = -1;  // slot or value; of a tensor, -1 stands for none where the operator's schema asks for one
  std::string text;
  std::vector<Cell> items;
};

// A handle of no tensor, made once.
Handle undefined_tensor();

// What the tensors and sizes of one call are read from.
struct CellSource {
  const Handle* tensors;  // by slot
  const int64_t* values;

  Handle tensor(const Cell& cell) const { return cell.index < 0 ? undefined_tensor() : tensors[cell.index]; }
};

constexpr int kIntegerResult = 2;  // among the kinds of results: of no use to a plan

// Whether the dispatcher took the call; its results, as owned handles, are appended to `results`.
bool call_dispatcher(const char* name, const char* overload, const std::vector<Cell>& cells, const std::vector<int>& returns,
                     const CellSource& source, std::vector<Handle>* results);

using Invoker = Status (*)(void* function, const std::vector<Cell>& cells, const CellSource& source, std::vector<Handle>* results);

struct ShimCall {
  void* function = nullptr;
  Invoker invoke = nullptr;
};

// Finds the shim `symbol` and the invoker of `signature` (see shims.cpp); false when either is missing.
bool find_shim(const char* symbol, const char* signature, ShimCall* shim);

}  // namespace opmill
