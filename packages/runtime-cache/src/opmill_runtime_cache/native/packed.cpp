#include "packed.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace opmill {

namespace {

// Of MKL's header: how matrices lie, whether they are turned or packed, and which one is meant.
constexpr int kRowMajor = 101, kPlain = 111, kTurned = 112, kPacked = 151, kSecond = 162;
constexpr size_t kPage = 4096;

size_t (*pack_size)(int, int, int, int) = nullptr;
void (*pack)(int, int, int, int, int, int, float, const float*, int, float*) = nullptr;
void (*compute)(int, int, int, int, int, int, const float*, int, const float*, int, float, float*, int) = nullptr;

template <class F>
void find_symbol(void* library, const char* name, F* target) {
  *target = reinterpret_cast<F>(dlsym(library, name));
}

}  // namespace

void load_packing(void* library) {
  find_symbol(library, "cblas_sgemm_pack_get_size", &pack_size);
  find_symbol(library, "cblas_sgemm_pack", &pack);
  find_symbol(library, "cblas_sgemm_compute", &compute);
}

bool PackedMatrices::available() { return pack_size && pack && compute; }

PackedMatrix::~PackedMatrix() { std::free(data_); }

bool PackedMatrix::make(const float* b) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (source_.load(std::memory_order_relaxed) || failed_) return source_.load(std::memory_order_relaxed) == b;
  failed_ = true;
  const size_t bytes = pack_size(kSecond, shape_.rows, shape_.columns, shape_.depth);
  if (!bytes || posix_memalign(&data_, kPage, bytes)) return data_ = nullptr, false;  // much of it is never touched
  pack(kRowMajor, kSecond, shape_.transposed ? kTurned : kPlain, shape_.rows, shape_.columns, shape_.depth, shape_.alpha, b, shape_.leading,
       static_cast<float*>(data_));
  failed_ = false;
  source_.store(b, std::memory_order_release);
  return true;
}

bool PackedMatrix::multiply(float* out, int ld_out, const float* a, int ld_a, bool a_transposed, const float* b, float beta) {
  if (source_.load(std::memory_order_acquire) != b && !make(b)) return false;
  compute(kRowMajor, a_transposed ? kTurned : kPlain, kPacked, shape_.rows, shape_.columns, shape_.depth, a, ld_a,
          static_cast<const float*>(data_), shape_.columns, beta, out, ld_out);
  return true;
}

PackedMatrix* PackedMatrices::find(int root, int64_t offset, const PackedShape& shape) {
  int32_t factor;
  std::memcpy(&factor, &shape.alpha, sizeof factor);
  const std::vector<int64_t> key = {root, offset, shape.rows, shape.columns, shape.depth, shape.leading, shape.transposed, factor};
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<PackedMatrix>& found = known_[key];
  if (!found) found = std::make_unique<PackedMatrix>(shape);
  return found.get();
}

}  // namespace opmill
