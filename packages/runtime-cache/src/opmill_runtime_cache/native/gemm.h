// Matrix products straight through the BLAS that torch itself carries, without the 2 us of dispatch around it.
#pragma once

#include <cstdint>

#include "packed.h"

namespace opmill {

// A matrix (batch, rows, columns) in memory; strides in elements.
struct Matrix {
  int64_t batch, rows, columns;
  int64_t batch_stride, row_stride, column_stride;
};

// One product, out = beta * bias + alpha * a @ b, resolved to the arguments of BLAS.
struct Gemm {
  bool usable = false;
  bool is_double = false;
  bool reads_bias = false;
  char trans_first = 'N', trans_second = 'N';
  bool swapped = false;  // first operand of BLAS is a, not b
  int32_t m = 0, n = 0, k = 0, ld_first = 0, ld_second = 0, ld_out = 0;
  double alpha = 1, beta = 0;
  int64_t batch = 1, a_batch_stride = 0, b_batch_stride = 0, out_batch_stride = 0;
  Matrix bias{}, out{};
  PackedMatrix* packed = nullptr;  // b, where it stays; the program owns it
};

void load_blas(void* library);

// Whether BLAS can read the second matrix of a product packed, and how then.
bool packs(const Gemm& gemm, PackedShape* shape);

// Decides whether BLAS can do this product as it lies in memory. `bias` may be null (then beta is taken as 0).
Gemm plan_gemm(bool is_double, const Matrix& out, const Matrix* bias, const Matrix& a, const Matrix& b, double beta, double alpha);

void run_gemm(const Gemm& gemm, void* out, const void* bias, const void* a, const void* b);

}  // namespace opmill
