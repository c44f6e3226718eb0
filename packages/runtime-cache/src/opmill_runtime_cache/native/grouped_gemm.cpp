#include "grouped_gemm.h"

#include <algorithm>
#include <cstdlib>

#include "instance.h"

namespace opmill {

namespace {

constexpr int64_t kLargest =
    8 << 20;  // elements of one output: four tiles of 128 x 128 for each multiprocessor, more fill the device by themselves
constexpr size_t kMostBatches = 8;     // planned for one group; weights that wander are not followed

bool given(const Program& program, int slot) {
  const SlotInfo& info = program.slots[slot];
  const SlotKind kind = program.slots[info.root].kind;
  return (kind == SlotKind::held || kind == SlotKind::input) && info.known && !info.late && info.dtype >= 0;
}

bool in_arena(const Program& program, int slot) {
  const SlotInfo& info = program.slots[slot];
  return program.slots[info.root].kind == SlotKind::arena && !info.late;
}

bool apart(const Program& program, const Instance& instance, int one, int other) {
  const auto end = [&](int slot) {
    return instance.byte_offset[slot] + span_of(instance.sizes[slot], instance.strides[slot]) * dtype_bytes[program.slots[slot].dtype];
  };
  return end(one) <= instance.byte_offset[other] || end(other) <= instance.byte_offset[one];
}

// Whether a call may be part of a group at all.
bool fits(const Program& program, const Instance& instance, int number) {
  const BlasCall& call = program.calls[number].blas;
  if (!instance.cuda_gemms[number] || instance.sizes[call.out].size() != 2) return false;
  if (instance.unbounded[call.b] || (call.bias >= 0 && instance.unbounded[call.bias])) return false;
  if (!in_arena(program, call.out) || !given(program, call.b) || (call.bias >= 0 && !given(program, call.bias))) return false;
  return instance.sizes[call.out][0] * instance.sizes[call.out][1] <= kLargest &&
         (!in_arena(program, call.a) || apart(program, instance, call.a, call.out));
}

bool joins(const Program& program, const Instance& instance, const std::vector<int>& group, int number) {
  if (!fits(program, instance, number)) return false;
  const BlasCall &first = program.calls[group[0]].blas, &call = program.calls[number].blas;
  if (call.a != first.a || instance.cuda_gemms[number] != instance.cuda_gemms[group[0]]) return false;  // one geometry has one plan
  return std::all_of(group.begin(), group.end(),
                     [&](int before) { return apart(program, instance, program.calls[before].blas.out, call.out); });
}

}  // namespace

std::vector<GroupedGemm> find_groups(const Program& program, const Instance& instance) {
  std::vector<GroupedGemm> found(program.calls.size());
  std::vector<int> group;
  const auto close = [&] {
    if (group.size() > 1) found[group[0]].calls = group;
    group.clear();
  };
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::define && program.slots[step.a].kind == SlotKind::view && given(program, step.a)) continue;
    if (step.kind == StepKind::call && !group.empty() && joins(program, instance, group, step.a)) {
      group.push_back(step.a);
      continue;
    }
    close();
    if (step.kind == StepKind::call && fits(program, instance, step.a)) group.push_back(step.a);
  }
  close();
  return found;
}

EqualRun equal_run(const std::vector<ProductMemory>& memory, size_t first) {
  const auto between = [&](size_t i) {
    return GroupedGemm::Distances{0, memory[i + 1].out - memory[i].out, memory[i + 1].bias - memory[i].bias, memory[i + 1].b - memory[i].b};
  };
  EqualRun run;
  if (first + 1 >= memory.size()) return run;
  run.distances = between(first);
  const auto& [none, out, bias, b] = run.distances;
  run.backwards = out < 0;
  if (run.backwards ? bias > 0 || b > 0 : bias < 0 || b < 0) return EqualRun{};
  while (first + run.count < memory.size() && between(first + run.count - 1) == between(first)) run.count++;
  for (int64_t& distance : run.distances) distance = std::abs(distance);
  run.distances[0] = static_cast<int64_t>(run.count);
  return run;
}

CudaGemm* batch_of(const Program& program, const Instance& instance, GroupedGemm& group, const GroupedGemm::Distances& distances) {
  for (const GroupedGemm::Batch& batch : group.batches)
    if (batch.distances == distances) return batch.gemm.get();
  if (group.batches.size() >= kMostBatches) return nullptr;
  const BlasCall& call = program.calls[group.calls[0]].blas;
  const SlotInfo& info = program.slots[call.out];
  const int64_t size = dtype_bytes[info.dtype], count = distances[0];
  const auto matrix = [&](int slot, int64_t distance) {
    const auto &sizes = instance.sizes[slot], &strides = instance.strides[slot];
    return Matrix{count, sizes[0], sizes[1], distance / size, strides[0], strides[1]};
  };
  const Matrix out = matrix(call.out, distances[1]), a = matrix(call.a, 0), b = matrix(call.b, distances[3]);
  const Matrix bias = {count, out.rows, out.columns, distances[2] / size, 0, 1};
  std::string problem;
  CudaContext context(cuda_index(info.device), &problem);
  std::shared_ptr<CudaGemm> made;
  if (problem.empty()) made = CudaGemm::plan(cuda_index(info.device), info.dtype == kFloat16, out, call.bias >= 0 ? &bias : nullptr, a, b);
  group.batches.push_back({distances, made});
  return made.get();
}

}  // namespace opmill
