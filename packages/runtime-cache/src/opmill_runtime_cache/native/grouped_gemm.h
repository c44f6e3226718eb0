// Products of one matrix with several others of the same form, q, k and v of an attention for one: on a GPU they are started as one batched product, which
// fills the device better and costs the host one start. The matrices stay where they are; they only have to lie at equal distances, as two always do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cublas.h"

namespace opmill {

struct Program;
struct Instance;

// Where the parts of one of them begin.
struct ProductMemory {
  char *out = nullptr, *bias = nullptr, *b = nullptr;
};

// Calls that nothing but views of what the call was given lies between.
struct GroupedGemm {
  using Distances = std::array<int64_t, 4>;  // how many; bytes between outputs, biases and second operands
  struct Batch {
    Distances distances;
    std::shared_ptr<CudaGemm> gemm;  // nullptr where cuBLASLt has none
  };
  std::vector<int> calls;
  std::vector<Batch> batches;  // planned so far
};

// By call: the group that it is the first of. Calls that are planned as products on a GPU alone.
std::vector<GroupedGemm> find_groups(const Program& program, const Instance& instance);

// A run of `memory` from `first` on that lies at equal distances, and in which order.
struct EqualRun {
  size_t count = 1;
  bool backwards = false;
  GroupedGemm::Distances distances{};
};
EqualRun equal_run(const std::vector<ProductMemory>& memory, size_t first);

// The product of that many calls at these distances; nullptr where there is none.
CudaGemm* batch_of(const Program& program, const Instance& instance, GroupedGemm& group, const GroupedGemm::Distances& distances);

}  // namespace opmill
