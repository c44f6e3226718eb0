// Matrix products of half precision on GPUs straight through cuBLASLt, which torch brings: a tenth of the host time of torch's operator.
#pragma once

#include <cstdint>
#include <memory>

#include "gemm.h"

namespace opmill {

// One product, out = a @ b (+ bias along rows, of each batch its own), with the algorithm that the library suggests for it.
class CudaGemm {
 public:
  // nullptr where the library is missing or has nothing for matrices that lie so on `device`, whose context is current. `type`: 0 bfloat16, 1 float16. `bias` may be null.
  static std::unique_ptr<CudaGemm> plan(int device, int type, const Matrix& out, const Matrix* bias, const Matrix& a, const Matrix& b);
  CudaGemm() = default;
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;
  ~CudaGemm();

  static constexpr int kAlignment = 16;  // bytes, of every pointer

  // Whether it was started; the device's context must be current. `workspace` has at least `workspace_bytes()`.
  bool run(void* out, const void* bias, const void* a, const void* b, void* workspace, void* stream);
  size_t workspace_bytes() const { return workspace_; }

 private:
  void* handle_ = nullptr;
  void *operation_ = nullptr, *first_ = nullptr, *second_ = nullptr, *result_ = nullptr;
  uint64_t algorithm_[8] = {};
  size_t workspace_ = 0;
  const void* bias_ = nullptr;
};

}  // namespace opmill
