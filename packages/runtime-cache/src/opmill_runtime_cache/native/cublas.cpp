#include "cublas.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "symbols.h"

namespace opmill {

namespace {

using Status = int;
constexpr int kHalfTypes[2] = {14, 2};                       // CUDA_R_16BF, CUDA_R_16F
constexpr int kFloat32 = 0, kComputeFloat32 = 68;            // CUDA_R_32F, CUBLAS_COMPUTE_32F
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasOffset = 10;
constexpr int kBias = 4;                                     // CUBLASLT_EPILOGUE_BIAS
constexpr int kBatchCount = 5, kBatchOffset = 6;             // of layouts
constexpr int kWorkspace = 1, kReductions = 3, kAlignments[4] = {5, 6, 7, 8};  // of preferences
constexpr uint32_t kExactReductions = 2;                     // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: partial sums stay in float32
constexpr size_t kLargestWorkspace = 32 << 20;

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Library {
  Status (*create)(void**) = nullptr;
  Status (*operation_create)(void**, int, int) = nullptr;
  Status (*operation_set)(void*, int, const void*, size_t) = nullptr;
  Status (*operation_destroy)(void*) = nullptr;
  Status (*layout_create)(void**, int, uint64_t, uint64_t, int64_t) = nullptr;
  Status (*layout_set)(void*, int, const void*, size_t) = nullptr;
  Status (*layout_destroy)(void*) = nullptr;
  Status (*preference_create)(void**) = nullptr;
  Status (*preference_set)(void*, int, const void*, size_t) = nullptr;
  Status (*preference_destroy)(void*) = nullptr;
  Status (*heuristic)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*) = nullptr;
  Status (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
                   const void*, void*, size_t, void*) = nullptr;
};

// The library that torch has loaded; its functions are null where there is none.
const Library& library() {
  static const Library found = [] {
    Library made;
    void* loaded = nullptr;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (!loaded) loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (!loaded) return made;
    const char* missing = find_symbols(loaded, {
                                                   {&made.create, "cublasLtCreate"},
                                                   {&made.operation_create, "cublasLtMatmulDescCreate"},
                                                   {&made.operation_set, "cublasLtMatmulDescSetAttribute"},
                                                   {&made.operation_destroy, "cublasLtMatmulDescDestroy"},
                                                   {&made.layout_create, "cublasLtMatrixLayoutCreate"},
                                                   {&made.layout_set, "cublasLtMatrixLayoutSetAttribute"},
                                                   {&made.layout_destroy, "cublasLtMatrixLayoutDestroy"},
                                                   {&made.preference_create, "cublasLtMatmulPreferenceCreate"},
                                                   {&made.preference_set, "cublasLtMatmulPreferenceSetAttribute"},
                                                   {&made.preference_destroy, "cublasLtMatmulPreferenceDestroy"},
                                                   {&made.heuristic, "cublasLtMatmulAlgoGetHeuristic"},
                                                   {&made.matmul, "cublasLtMatmul"},
                                               });
    return missing ? Library{} : made;
  }();
  return found;
}

// The library's handle for a device, made in its context.
void* handle_of(int device) {
  static std::mutex mutex;
  static std::map<int, void*> known;
  std::lock_guard<std::mutex> lock(mutex);
  void*& handle = known[device];
  if (!handle && library().create && library().create(&handle)) handle = nullptr;
  return handle;
}

// A row-major matrix is column-major when transposed. `transposed`: whether what lies in memory column by column is the matrix itself.
struct Lying {
  bool usable, transposed;
  int64_t leading;
};

Lying lying(const Matrix& m) {
  const bool by_rows = m.columns == 1 || m.column_stride == 1, by_columns = m.rows == 1 || m.row_stride == 1;
  if (by_rows && (m.rows == 1 || m.row_stride >= m.columns)) return {true, false, m.rows == 1 ? m.columns : m.row_stride};
  if (by_columns && (m.columns == 1 || m.column_stride >= m.rows)) return {true, true, m.columns == 1 ? m.rows : m.column_stride};
  return {false, false, 0};
}

void* layout_of(const Matrix& m, const Lying& as, int type) {
  void* layout = nullptr;
  const uint64_t rows = as.transposed ? m.rows : m.columns, columns = as.transposed ? m.columns : m.rows;
  if (library().layout_create(&layout, type, rows, columns, as.leading)) return nullptr;
  if (m.batch > 1) {
    const int32_t count = static_cast<int32_t>(m.batch);
    library().layout_set(layout, kBatchCount, &count, sizeof count);
    library().layout_set(layout, kBatchOffset, &m.batch_stride, sizeof m.batch_stride);
  }
  return layout;
}

}  // namespace

std::unique_ptr<CudaGemm> CudaGemm::plan(int device, int type, const Matrix& out, const Matrix* bias, const Matrix& a, const Matrix& b) {
  const Library& lt = library();
  void* handle = handle_of(device);
  if (!handle || out.batch * out.rows * out.columns * a.columns == 0 || out.batch > INT32_MAX) return nullptr;
  if (a.rows != out.rows || b.columns != out.columns || a.columns != b.rows || a.batch != out.batch || b.batch != out.batch) return nullptr;
  const Lying of_out = lying(out), of_a = lying(a), of_b = lying(b);
  if (!of_out.usable || of_out.transposed || !of_a.usable || !of_b.usable) return nullptr;
  if (bias && (bias->row_stride || (bias->column_stride != 1 && bias->columns > 1) || (out.batch > 1 && !bias->batch_stride)))
    return nullptr;
  auto gemm = std::make_unique<CudaGemm>();
  gemm->handle_ = handle;
  const int kind = kHalfTypes[type];
  // Column by column, the product is out^T = b^T @ a^T.
  gemm->first_ = layout_of(b, of_b, kind);
  gemm->second_ = layout_of(a, of_a, kind);
  gemm->result_ = layout_of(out, of_out, kind);
  if (!gemm->first_ || !gemm->second_ || !gemm->result_ || lt.operation_create(&gemm->operation_, kComputeFloat32, kFloat32))
    return nullptr;
  const int32_t transpose_first = of_b.transposed, transpose_second = of_a.transposed, epilogue = kBias;
  lt.operation_set(gemm->operation_, kTransA, &transpose_first, sizeof transpose_first);
  lt.operation_set(gemm->operation_, kTransB, &transpose_second, sizeof transpose_second);
  if (bias) lt.operation_set(gemm->operation_, kEpilogue, &epilogue, sizeof epilogue);
  if (bias && out.batch > 1 && lt.operation_set(gemm->operation_, kBiasOffset, &bias->batch_stride, sizeof bias->batch_stride))
    return nullptr;
  void* preference = nullptr;
  if (lt.preference_create(&preference)) return nullptr;
  const size_t largest = kLargestWorkspace;
  const uint32_t alignment = kAlignment, reductions = kExactReductions;
  lt.preference_set(preference, kWorkspace, &largest, sizeof largest);
  lt.preference_set(preference, kReductions, &reductions, sizeof reductions);
  for (int attribute : kAlignments) lt.preference_set(preference, attribute, &alignment, sizeof alignment);
  Heuristic best{};
  int count = 0;
  const Status failed =
      lt.heuristic(handle, gemm->operation_, gemm->first_, gemm->second_, gemm->result_, gemm->result_, preference, 1, &best, &count);
  lt.preference_destroy(preference);
  if (failed || count < 1 || best.state || best.workspace > kLargestWorkspace) return nullptr;
  for (int i = 0; i < 8; i++) gemm->algorithm_[i] = best.algorithm[i];
  gemm->workspace_ = best.workspace;
  return gemm;
}

CudaGemm::~CudaGemm() {
  if (operation_) library().operation_destroy(operation_);
  for (void* layout : {first_, second_, result_})
    if (layout) library().layout_destroy(layout);
}

bool CudaGemm::run(void* out, const void* bias, const void* a, const void* b, void* workspace, void* stream) {
  const float one = 1, zero = 0;
  if (bias && bias != bias_) {
    if (library().operation_set(operation_, kBiasPointer, &bias, sizeof bias)) return false;
    bias_ = bias;
  }
  return library().matmul(handle_, operation_, &one, b, first_, a, second_, &zero, out, result_, out, result_, algorithm_, workspace,
                          workspace_, stream) == 0;
}

}  // namespace opmill
