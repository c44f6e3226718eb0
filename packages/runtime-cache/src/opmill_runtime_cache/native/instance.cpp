#include "instance.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>

#include "bounds.h"
#include "views.h"

namespace opmill {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLargestArena = int64_t{1} << 46;  // far more than there is, and rounding up stays in 64 bits
constexpr uint64_t kNoBlock = ~uint64_t{0};  // stands for the block of an empty arena

bool fail(Failure* failure, PyObject* type, const char* code, std::string message) {
  *failure = {type, code, std::move(message), true};
  return false;
}

bool evaluate_early(const Program& program, Instance& instance, Failure* failure) {
  for (size_t i = 0; i < program.values.size(); i++) {
    const Value& value = program.values[i];
    if (value.late || value.code.empty()) continue;
    switch (evaluate(value, instance.values.data(), &instance.values[i])) {
      case Arithmetic::ok:
        break;
      case Arithmetic::division_by_zero:
        return fail(failure, PyExc_ZeroDivisionError, "", "integer division or modulo by zero");
      case Arithmetic::overflow:
        return fail(failure, PyExc_OverflowError, "", "a size does not fit 64 bits");
    }
  }
  return true;
}

Matrix matrix_of(const Instance& instance, int slot, int64_t batch, bool batched) {
  const auto &sizes = instance.sizes[slot], &strides = instance.strides[slot];
  const size_t first = batched ? 1 : 0;
  return {batch, sizes[first], sizes[first + 1], batched ? strides[0] : 0, strides[first], strides[first + 1]};
}

// The bias of addmm or baddbmm, broadcast to the output's sizes by zero strides.
bool broadcast(const Instance& instance, int slot, const Matrix& out, bool batched, Matrix* result) {
  const auto &sizes = instance.sizes[slot], &strides = instance.strides[slot];
  const size_t rank = batched ? 3 : 2;
  if (sizes.size() > rank) return false;
  int64_t wanted[3] = {out.batch, out.rows, out.columns}, stride[3] = {0, 0, 0};
  for (size_t i = 0; i < sizes.size(); i++) {
    const size_t to = 3 - sizes.size() + i;
    if (sizes[i] != wanted[to] && sizes[i] != 1) return false;
    stride[to] = sizes[i] == 1 ? 0 : strides[i];
  }
  *result = {out.batch, out.rows, out.columns, stride[0], stride[1], stride[2]};
  return true;
}

// torch multiplies the smallest batches in a loop of its own, which rounds otherwise than BLAS: sums of products without contraction.
bool is_looped(const std::vector<int64_t>& a, const std::vector<int64_t>& out) {
  constexpr int64_t kLooped = 400;  // multiplications of one product, below which it does
  return out[1] * out[2] * a[2] < kLooped;
}

// By what each is in the product: one slot may be the bias and a factor, too.
bool have_rank(const Program& program, const BlasCall& call) {
  for (int slot : {call.out, call.a, call.b})
    if (program.slots[slot].sizes.size() != (call.batched ? 3u : 2u)) return false;
  return true;
}

Gemm gemm_of(const Program& program, const Instance& instance, const BlasCall& call) {
  constexpr int kFloat32 = 11, kFloat64 = 12;
  const SlotInfo& out = program.slots[call.out];
  const bool batched = call.batched;
  if (!have_rank(program, call)) return {};
  for (int slot : {call.out, call.a, call.b, call.bias}) {
    if (slot < 0) continue;
    const SlotInfo& info = program.slots[slot];
    if (!info.known || info.late || info.device != -1 || info.dtype != out.dtype || (info.dtype != kFloat32 && info.dtype != kFloat64))
      return {};
  }
  const int64_t batch = batched ? instance.sizes[call.out][0] : 1;
  if (batched && is_looped(instance.sizes[call.a], instance.sizes[call.out])) return {};
  if (batched && (instance.sizes[call.a][0] != batch || instance.sizes[call.b][0] != batch)) return {};
  const Matrix target = matrix_of(instance, call.out, batch, batched);
  Matrix bias;
  if (call.bias >= 0 && !broadcast(instance, call.bias, target, batched, &bias)) return {};
  return plan_gemm(out.dtype == kFloat64, target, call.bias >= 0 ? &bias : nullptr, matrix_of(instance, call.a, batch, batched),
                   matrix_of(instance, call.b, batch, batched), call.beta, call.alpha);
}

// The packed form of the second matrix of a product of float32, where it stays; nullptr where there is none.
PackedMatrix* packed_of(const Program& program, const Instance& instance, const BlasCall& call, const Gemm& gemm) {
  const int root = program.slots[call.b].root;
  PackedShape shape;
  if (!call.rows || program.slots[root].kind != SlotKind::held || !packs(gemm, &shape) || shape.rows != call.rows) return nullptr;
  return program.packed->find(root, instance.byte_offset[call.b], shape);
}

// Products on GPUs that were planned, by everything that their plan depends on.
using CudaGemms = std::map<std::vector<int64_t>, std::shared_ptr<CudaGemm>>;

// bfloat16 and float16 only: how float32 is multiplied is a switch of torch that may change between calls.
std::shared_ptr<CudaGemm> cuda_gemm_of(const Program& program, const Instance& instance, const BlasCall& call, CudaGemms& known) {
  const SlotInfo& out = program.slots[call.out];
  const bool batched = call.batched;
  if (call.alpha != 1 || (call.bias >= 0 && call.beta != 1) || !have_rank(program, call)) return nullptr;
  for (int slot : {call.out, call.a, call.b, call.bias}) {
    if (slot < 0) continue;
    const SlotInfo& info = program.slots[slot];
    if (!info.known || info.late || cuda_index(info.device) < 0 || info.device != out.device || info.dtype != out.dtype) return nullptr;
    if (info.dtype != kFloat16 && info.dtype != kBfloat16) return nullptr;
  }
  const int64_t batch = batched ? instance.sizes[call.out][0] : 1;
  if (batched && (instance.sizes[call.a][0] != batch || instance.sizes[call.b][0] != batch)) return nullptr;
  const Matrix target = matrix_of(instance, call.out, batch, batched), a = matrix_of(instance, call.a, batch, batched),
               b = matrix_of(instance, call.b, batch, batched);
  Matrix bias{};
  if (call.bias >= 0 && !broadcast(instance, call.bias, target, batched, &bias)) return nullptr;
  std::vector<int64_t> key = {out.dtype, out.device, call.bias};
  key[2] = call.bias >= 0;
  for (const Matrix* m : {&target, &a, &b, static_cast<const Matrix*>(&bias)})
    key.insert(key.end(), {m->batch, m->rows, m->columns, m->batch_stride, m->row_stride, m->column_stride});
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  std::string problem;
  CudaContext context(cuda_index(out.device), &problem);
  std::shared_ptr<CudaGemm> made;
  if (problem.empty()) made = CudaGemm::plan(cuda_index(out.device), out.dtype == kFloat16, target, call.bias >= 0 ? &bias : nullptr, a, b);
  return known[key] = made;
}

void plan_calls(const Program& program, Instance& instance) {
  CudaGemms known;
  for (const CallInfo& call : program.calls) {
    Gemm gemm;
    std::shared_ptr<CudaGemm> on_gpu;
    if (call.blas.present && call.route != Route::python && cuda_index(program.slots[call.blas.out].device) >= 0)
      on_gpu = cuda_gemm_of(program, instance, call.blas, known);
    else if (call.blas.present) gemm = gemm_of(program, instance, call.blas);
    if (gemm.usable) gemm.packed = packed_of(program, instance, call.blas, gemm);
    if (on_gpu) instance.workspace = std::max(instance.workspace, on_gpu->workspace_bytes());
    instance.cuda_gemms.push_back(on_gpu);
    if ((!gemm.usable && !on_gpu) || !call.apart_late.empty())
      for (int slot : call.tensors) instance.needs_tensor[slot] = 1;
    instance.gemms.push_back(gemm);
  }
  instance.groups = find_groups(program, instance);
  instance.recordings.resize(program.calls.size());
  for (const auto& [kind, slot] : program.outputs)
    if (kind == 0) instance.needs_tensor[slot] = 1;
  for (const Step& step : program.steps)
    if (step.kind == StepKind::size_of || (step.kind == StepKind::item && program.slots[step.b].device != -1))
      instance.needs_tensor[step.b] = 1;
}

}  // namespace

int64_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

Block::~Block() { tensor ? void(api.delete_handle(tensor)) : std::free(data); }

namespace {

std::unique_ptr<Block> of_torch(int64_t bytes, int device) {
  constexpr int kBytes = 1;  // uint8
  const int64_t one = 1;
  auto block = std::make_unique<Block>();
  void* data = nullptr;
  if (api.empty_strided(1, &bytes, &one, dtype_code[kBytes], device_type(device), device_index(device), &block->tensor) ||
      api.get_data_ptr(block->tensor, &data))
    return nullptr;
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->number = reinterpret_cast<uint64_t>(data);
  return block;
}

}  // namespace

std::unique_ptr<Block> Block::allocate(int64_t bytes, int device) {
  if (device >= 0) return of_torch(bytes, device);
  static std::atomic<uint64_t> count{0};
  const int64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, (bytes + alignment - 1) / alignment * alignment)) return nullptr;
#ifdef MADV_HUGEPAGE
  if (alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  auto block = std::make_unique<Block>();
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->number = ++count;
  return block;
}

Instance::~Instance() {
  for (Handle handle : kept) api.delete_handle(handle);
  for (const HeldView& held : held_views)
    if (held.view) api.delete_handle(held.view);
}

bool resolve_slot(const Program& program, Instance& instance, int slot, Failure* failure) {
  const SlotInfo& info = program.slots[slot];
  auto& sizes = instance.sizes[slot];
  auto& strides = instance.strides[slot];
  sizes.resize(info.sizes.size());
  strides.resize(info.strides.size());
  for (size_t i = 0; i < sizes.size(); i++) {
    sizes[i] = instance.values[info.sizes[i]];
    strides[i] = instance.values[info.strides[i]];
    if (sizes[i] < 0 || strides[i] < 0) return fail(failure, nullptr, "RC040", program.labels[slot] + " has a negative size or stride");
  }
  if (!checked_span(sizes, strides, &instance.span[slot]))
    return fail(failure, PyExc_OverflowError, "", "the memory of " + program.labels[slot] + " does not fit 64 bits");
  if (info.kind == SlotKind::arena) instance.byte_offset[slot] = instance.values[info.offset];
  if (info.kind == SlotKind::view && info.dtype >= 0) return offset_view(program, instance, slot, info.dtype, failure);
  return true;
}

bool offset_view(const Program& program, Instance& instance, int slot, int dtype, Failure* failure) {
  const SlotInfo& info = program.slots[slot];
  int64_t bytes = 0;
  if (__builtin_mul_overflow(instance.values[info.offset], dtype_bytes[dtype], &bytes) ||
      __builtin_add_overflow(instance.byte_offset[info.base], bytes, &instance.byte_offset[slot]))
    return fail(failure, PyExc_OverflowError, "", "where " + program.labels[slot] + " begins does not fit 64 bits");
  return true;
}

namespace {

// A tensor over the arena of a device whose addresses may mean nothing to torch: it shares the storage of the block, which then ends with the call.
bool over_block(const Program& program, Instance& instance, int slot, int64_t start, Handle* handle, Failure* failure) {
  constexpr int kBytes = 1;  // uint8
  const SlotInfo& info = program.slots[slot];
  Handle flat = nullptr;
  instance.shares_block = true;
  bool made = retyped(instance.block->tensor, kBytes, info.dtype, info.device, &flat);
  if (made) {
    made = api.reinterpret(flat, instance.sizes[slot].size(), instance.sizes[slot].data(), instance.strides[slot].data(),
                           start / dtype_bytes[info.dtype], handle) == 0;
    api.delete_handle(flat);
  }
  return made || fail(failure, nullptr, "RC039", "torch cannot make a tensor over the arena for " + program.labels[slot]);
}

}  // namespace

bool place(const Program& program, Instance& instance, int slot, Handle* handle, Failure* failure) {
  const SlotInfo& info = program.slots[slot];
  int64_t start = 0, end = 0;
  if (!range_of(program, instance, slot, info.dtype, &start, &end) || start < 0 || end > instance.bytes || start > instance.bytes ||
      start % (info.kind == SlotKind::arena ? kAlignment : dtype_bytes[info.dtype]))
    return fail(failure, nullptr, "RC037",
                program.labels[slot] + " at byte " + std::to_string(start) + " does not fit the arena of " +
                    std::to_string(instance.bytes) + " bytes");
  SlotState& state = instance.slots[slot];
  state.data = instance.block ? instance.block->data + start : nullptr;
  state.dtype = info.dtype;
  if (!instance.needs_tensor[slot]) return true;
  if (instance.block && instance.block->tensor && device_type(program.device) != kCuda)
    return over_block(program, instance, slot, start, handle, failure);
  if (api.from_blob(state.data, instance.sizes[slot].size(), instance.sizes[slot].data(), instance.strides[slot].data(), 0,
                    dtype_code[info.dtype], device_type(program.device), device_index(program.device), handle))
    return fail(failure, nullptr, "RC039", "torch cannot make a tensor over the arena for " + program.labels[slot]);
  return true;
}

// What is known before a call runs: views inside their roots, launches inside their slots.
bool check_bounds(const Program& program, Instance& instance, Failure* failure) {
  for (size_t i = 0; i < program.slots.size(); i++) {
    const SlotInfo& info = program.slots[i];
    if (info.kind != SlotKind::view || program.slots[info.root].kind == SlotKind::arena) continue;
    if (info.late || !(instance.unbounded[i] = !inside_root(program, instance, i))) continue;
    const SlotInfo& root = program.slots[info.root];
    if ((root.kind == SlotKind::fresh || root.kind == SlotKind::constant) && !root.late)
      return fail(failure, nullptr, "RC058", program.labels[i] + " reaches outside of the memory that it views");
  }
  for (const Step& step : program.steps)
    if ((step.kind == StepKind::launch || step.kind == StepKind::launch_cuda) && !step.late &&
        !launch_fits(program, instance, step, nullptr, failure))
      return false;
  for (const CallInfo& call : program.calls)
    if (!call.apart.empty() && !call_apart(program, instance, call, failure)) return false;
  return true;
}

std::unique_ptr<Instance> make_instance(const Program& program, const std::vector<int64_t>& key, Failure* failure) {
  auto instance = std::make_unique<Instance>();
  const size_t count = program.slots.size();
  instance->key = key;
  instance->values.assign(program.values.size(), 0);
  for (size_t i = 0; i < key.size(); i++) instance->values[program.key[i].value] = key[i];
  if (!evaluate_early(program, *instance, failure)) return nullptr;
  instance->slots.resize(count);
  instance->sizes.resize(count);
  instance->strides.resize(count);
  instance->byte_offset.assign(count, 0);
  instance->needs_tensor.assign(count, 0);
  instance->span.assign(count, 0);
  instance->unbounded.assign(count, 0);
  instance->held_views.resize(count);
  for (size_t i = 0; i < count; i++)
    if (program.slots[i].known && !program.slots[i].late && !resolve_slot(program, *instance, i, failure)) return nullptr;
  if (!check_bounds(program, *instance, failure)) return nullptr;
  plan_calls(program, *instance);
  instance->bytes = instance->values[program.arena];
  if (instance->bytes < 0 || instance->bytes > kLargestArena) {
    fail(failure, PyExc_MemoryError, "", "cannot allocate an arena of " + std::to_string(instance->bytes) + " bytes");
    return nullptr;
  }
  for (size_t i = 0; i < count; i++) {
    const SlotInfo& info = program.slots[i];
    if (info.kind != SlotKind::constant) continue;
    instance->slots[i].handle = info.constant;
    instance->slots[i].dtype = info.dtype;
    if (info.wants_data) api.get_data_ptr(info.constant, &instance->slots[i].data);
  }
  return instance;
}

bool settle(const Program& program, Instance& instance, Failure* failure) {
  const uint64_t number = instance.block ? instance.block->number : kNoBlock;
  if (instance.placed_on == number) return true;
  for (Handle handle : instance.kept) api.delete_handle(handle);
  instance.kept.clear();
  instance.placed_on = 0;
  for (size_t i = 0; i < program.slots.size(); i++) {
    const SlotInfo& info = program.slots[i];
    const bool over_arena =
        info.kind == SlotKind::arena || (info.kind == SlotKind::view && program.slots[info.root].kind == SlotKind::arena);
    if (!over_arena || info.late) continue;
    Handle& handle = instance.slots[i].handle;
    handle = nullptr;
    if (!place(program, instance, i, &handle, failure)) return false;
    if (handle) instance.kept.push_back(handle);
  }
  instance.placed_on = number;
  return true;
}

Arenas& Arenas::shared() {
  static Arenas* arenas = new Arenas;  // never destroyed: plans may end after it would be
  return *arenas;
}

Arenas::Blocks::iterator Arenas::find(uint64_t number) {
  return std::find_if(blocks_.begin(), blocks_.end(), [&](const std::unique_ptr<Block>& block) { return block->number == number; });
}

std::unique_ptr<Block> Arenas::remove(Blocks::iterator at) {
  std::unique_ptr<Block> block = std::move(*at);
  blocks_.erase(at);
  bytes_ -= block->bytes;
  return block;
}

bool Arenas::has(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  return find(number) != blocks_.end();
}

std::unique_ptr<Block> Arenas::take(uint64_t number, int64_t bytes) {
  std::unique_ptr<Block> small;  // freed before a larger one is made
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = find(number);
    if (found == blocks_.end())
      for (auto it = blocks_.begin(); it != blocks_.end(); ++it)
        if ((*it)->bytes >= bytes && (found == blocks_.end() || (*it)->bytes < (*found)->bytes)) found = it;
    if (found != blocks_.end()) return remove(found);
    if (!blocks_.empty()) small = remove(blocks_.begin());
  }
  small.reset();
  return Block::allocate(bytes, -1);
}

void Arenas::give(std::unique_ptr<Block> block) {
  Blocks freed;  // destroyed outside the lock
  std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += block->bytes;
  blocks_.push_front(std::move(block));
  while (blocks_.size() > 1 && bytes_ > kMaxBytes) freed.push_back(remove(std::prev(blocks_.end())));
}

void Arenas::want(int64_t before, int64_t now) {
  Blocks freed;
  std::lock_guard<std::mutex> lock(mutex_);
  if (before) wanted_.erase(wanted_.find(before));
  if (now) wanted_.insert(now);
  if (now >= before) return;
  const int64_t most = wanted_.empty() ? 0 : *wanted_.rbegin();
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto next = std::next(it);
    if ((*it)->bytes > most) freed.push_back(remove(it));
    it = next;
  }
}

int64_t Arenas::bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

std::unique_ptr<Instance> Pool::take(const std::vector<int64_t>& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if ((*it)->key != key) continue;
    const bool settled = !(*it)->bytes || Arenas::shared().has((*it)->placed_on);
    if (settled || best == idle_.end()) best = it;
    if (settled) break;
  }
  if (best == idle_.end()) return nullptr;
  std::unique_ptr<Instance> found = std::move(*best);
  idle_.erase(best);
  return found;
}

bool Pool::provide(const Program& program, Instance& instance, Failure* failure) {
  if (!instance.bytes) return true;
  if (program.device >= 0) {
    instance.block = Block::allocate(instance.bytes, program.device);
  } else {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (instance.bytes > largest_) Arenas::shared().want(largest_, instance.bytes), largest_ = instance.bytes;
    }
    instance.block = Arenas::shared().take(instance.placed_on, instance.bytes);
  }
  return instance.block ||
         fail(failure, program.device >= 0 ? program.out_of_memory : PyExc_MemoryError, "",
              "cannot allocate the " + std::to_string(instance.bytes) + " bytes that plan '" + program.name + "' works in");
}

void Pool::give(std::unique_ptr<Instance> instance) {
  if (instance->shares_block) {
    for (Handle handle : instance->kept) api.delete_handle(handle);
    instance->kept.clear();
    instance->placed_on = 0;
  }
  if (instance->block && !instance->block->tensor) Arenas::shared().give(std::move(instance->block));
  instance->block.reset();
  std::list<std::unique_ptr<Instance>> dropped;  // destroyed outside the lock
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_front(std::move(instance));
  if (idle_.size() > kMaxIdle) dropped.splice(dropped.begin(), idle_, std::prev(idle_.end()));
}

int64_t Pool::largest() {
  std::lock_guard<std::mutex> lock(mutex_);
  return largest_;
}

size_t Pool::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return idle_.size();
}

}  // namespace opmill
