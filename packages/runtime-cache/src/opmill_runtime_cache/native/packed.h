// Matrices that stay, as MKL's products read them best: packed once, where each product would lay them out anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace opmill {

// What the packed form of the second matrix of `a @ b` depends on, but for its elements: `a` has `rows` rows.
struct PackedShape {
  int rows, columns, depth, leading;
  bool transposed;  // b lies column by column
  float alpha;      // it is packed with this factor
};

// The packed form of one matrix. What it is made of must stay as it is: only its address is looked at.
class PackedMatrix {
 public:
  explicit PackedMatrix(const PackedShape& shape) : shape_(shape) {}
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;
  ~PackedMatrix();

  // out = beta * out + alpha * a @ b. False where `b` is not the matrix of the first call, or there is no memory: nothing is done then.
  bool multiply(float* out, int ld_out, const float* a, int ld_a, bool a_transposed, const float* b, float beta);

 private:
  bool make(const float* b);

  const PackedShape shape_;
  std::mutex mutex_;
  std::atomic<const float*> source_{nullptr};  // what `data_` was made of
  bool failed_ = false;
  void* data_ = nullptr;  // never moved: MKL notes in it how it is aligned
};

// The packed matrices of a program, which all its instances share.
class PackedMatrices {
 public:
  static bool available();
  // `root` and `offset` say which tensor it is part of, and where in it it begins.
  PackedMatrix* find(int root, int64_t offset, const PackedShape& shape);

 private:
  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::unique_ptr<PackedMatrix>> known_;
};

void load_packing(void* library);

}  // namespace opmill
