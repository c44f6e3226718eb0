#include "gemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_api.h"

namespace opmill {

namespace {

template <class T>
struct Blas {
  using Product = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*,
                           const int*, const T*, T*, const int*);
  using Batch = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T**, const int*, const T**,
                         const int*, const T*, T**, const int*, const int*, const int*);
  static Product product;
  static Batch batch;
};
template <class T>
typename Blas<T>::Product Blas<T>::product = nullptr;
template <class T>
typename Blas<T>::Batch Blas<T>::batch = nullptr;

template <class F>
void find(void* library, const char* name, F* target) {
  *target = reinterpret_cast<F>(dlsym(library, name));
}

int (*set_threads)(int) = nullptr;  // MKL's setting for the calling thread; returns the former one

// MKL starts its team even for a product of a microsecond, and the team's barrier costs more than it saves.
constexpr double kSmall = 1 << 19;  // multiplications: 14 us on one thread, 16 on two; four times as many take 48 and 35

class FewThreads {
 public:
  explicit FewThreads(const Gemm& g) : small_(set_threads && static_cast<double>(g.m) * g.n * g.k * g.batch <= kSmall) {
    if (small_) before_ = set_threads(1);
  }
  ~FewThreads() {
    if (small_) set_threads(before_);
  }

 private:
  bool small_;
  int before_ = 0;
};

bool fits(int64_t value) { return value > 0 && value <= INT32_MAX; }

// How BLAS (column-major) sees a matrix of (rows, columns): as itself ('N' after swapping roles) or transposed.
// `leading` is the distance of rows (row-major) or columns (column-major). Returns 'R', 'C' or 0 for neither.
char order_of(const Matrix& x, int64_t* leading) {
  const bool one_column = x.columns == 1, one_row = x.rows == 1;
  if ((x.column_stride == 1 || one_column) && (one_row || x.row_stride >= x.columns)) {
    *leading = one_row ? x.columns : x.row_stride;
    return 'R';
  }
  if ((x.row_stride == 1 || one_row) && (one_column || x.column_stride >= x.rows)) {
    *leading = one_column ? x.rows : x.column_stride;
    return 'C';
  }
  return 0;
}

Matrix transposed(Matrix x) {
  std::swap(x.rows, x.columns);
  std::swap(x.row_stride, x.column_stride);
  return x;
}

// Copies the bias of rows [first, last), counted over all batches.
template <class T>
void spread_rows(const Gemm& gemm, T* out, const T* bias, int64_t first, int64_t last) {
  const Matrix &to = gemm.out, &from = gemm.bias;
  for (int64_t r = first; r < last; r++) {
    const int64_t b = r / to.rows, i = r % to.rows;
    T* row = out + b * to.batch_stride + i * to.row_stride;
    const T* source = bias + b * from.batch_stride + i * from.row_stride;
    if (from.column_stride == 1 && to.column_stride == 1) {
      std::memcpy(row, source, to.columns * sizeof(T));
    } else {
      for (int64_t j = 0; j < to.columns; j++) row[j * to.column_stride] = source[j * from.column_stride];
    }
  }
}

// The OpenMP runtime that torch brought along, found by name: linking one would start a second team of threads.
void (*start_team)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
int (*thread_number)() = nullptr;
int (*team_size)() = nullptr;
int (*inside_team)() = nullptr;

constexpr int64_t kSpreadGrain = 32768;  // elements a thread should have to itself, as in torch's own loops

template <class T>
struct Spread {
  const Gemm* gemm;
  T* out;
  const T* bias;
  static void part(void* data) {
    const auto& self = *static_cast<Spread*>(data);
    const int64_t rows = self.gemm->out.rows * self.gemm->out.batch, team = team_size(), mine = thread_number();
    spread_rows(*self.gemm, self.out, self.bias, rows * mine / team, rows * (mine + 1) / team);
  }
};

template <class T>
void spread(const Gemm& gemm, T* out, const T* bias) {
  const int64_t rows = gemm.out.rows * gemm.out.batch;
  const int64_t parts = std::min(rows, rows * gemm.out.columns / kSpreadGrain);
  uint32_t threads = 1;
  if (parts < 2 || !start_team || inside_team() || api.get_num_threads(&threads) || threads < 2)
    return spread_rows(gemm, out, bias, 0, rows);
  Spread<T> work{&gemm, out, bias};
  start_team(Spread<T>::part, &work, threads, 0);  // the whole team: one of another size would have to be built
}

bool run_packed(const Gemm& g, void* out, const void* a, const void* b) {
  return g.packed->multiply(static_cast<float*>(out), g.ld_out, static_cast<const float*>(a), g.ld_second, g.trans_second == 'T',
                            static_cast<const float*>(b), static_cast<float>(g.beta));
}

template <class T>
void run(const Gemm& g, T* out, const T* bias, const T* a, const T* b) {
  if (g.reads_bias && out != bias) spread(g, out, bias);
  const FewThreads threads(g);
  if (std::is_same_v<T, float> && g.packed && run_packed(g, out, a, b)) return;
  const T alpha = static_cast<T>(g.alpha), beta = static_cast<T>(g.beta);
  const T* first = g.swapped ? a : b;
  const T* second = g.swapped ? b : a;
  const int64_t step_first = g.swapped ? g.a_batch_stride : g.b_batch_stride;
  const int64_t step_second = g.swapped ? g.b_batch_stride : g.a_batch_stride;
  if (g.batch > 1 && Blas<T>::batch) {
    std::vector<const T*> firsts(g.batch), seconds(g.batch);
    std::vector<T*> outs(g.batch);
    for (int64_t i = 0; i < g.batch; i++) {
      firsts[i] = first + i * step_first;
      seconds[i] = second + i * step_second;
      outs[i] = out + i * g.out_batch_stride;
    }
    const int groups = 1, size = static_cast<int>(g.batch);
    Blas<T>::batch(&g.trans_first, &g.trans_second, &g.m, &g.n, &g.k, &alpha, firsts.data(), &g.ld_first, seconds.data(), &g.ld_second,
                   &beta, outs.data(), &g.ld_out, &groups, &size);
    return;
  }
  for (int64_t i = 0; i < g.batch; i++) {
    Blas<T>::product(&g.trans_first, &g.trans_second, &g.m, &g.n, &g.k, &alpha, first + i * step_first, &g.ld_first,
                     second + i * step_second, &g.ld_second, &beta, out + i * g.out_batch_stride, &g.ld_out);
  }
}

}  // namespace

void load_blas(void* library) {
  find(library, "sgemm_", &Blas<float>::product);
  find(library, "dgemm_", &Blas<double>::product);
  find(library, "MKL_Set_Num_Threads_Local", &set_threads);
  find(library, "sgemm_batch_", &Blas<float>::batch);
  find(library, "dgemm_batch_", &Blas<double>::batch);
  load_packing(library);
  find(library, "omp_get_thread_num", &thread_number);
  find(library, "omp_get_num_threads", &team_size);
  find(library, "omp_in_parallel", &inside_team);
  find(library, "GOMP_parallel", &start_team);
  if (!thread_number || !team_size || !inside_team) start_team = nullptr;
}

Gemm plan_gemm(bool is_double, const Matrix& out_, const Matrix* bias, const Matrix& a_, const Matrix& b_, double beta, double alpha) {
  Gemm g;
  Matrix out = out_, a = a_, b = b_, addend = bias ? *bias : Matrix{};
  if (is_double ? !Blas<double>::product : !Blas<float>::product) return g;
  if (a.rows != out.rows || b.columns != out.columns || a.columns != b.rows || a.batch != out.batch || b.batch != out.batch) return g;
  if (!fits(out.batch) || !fits(out.rows) || !fits(out.columns) || !fits(a.columns)) return g;
  int64_t ld_out, ld_a, ld_b;
  if (order_of(out, &ld_out) == 'C') {  // solve the transposed problem: its output is row-major
    std::swap(a, b);
    a = transposed(a);
    b = transposed(b);
    out = transposed(out);
    addend = transposed(addend);
    g.swapped = true;
  }
  if (order_of(out, &ld_out) != 'R') return g;
  const char order_a = order_of(a, &ld_a), order_b = order_of(b, &ld_b);
  if (!order_a || !order_b || !fits(ld_out) || !fits(ld_a) || !fits(ld_b)) return g;
  // Row-major out = a b is column-major out^T = b^T a^T, and a row-major matrix is its transpose in column-major eyes.
  g.trans_first = order_b == 'R' ? 'N' : 'T';
  g.trans_second = order_a == 'R' ? 'N' : 'T';
  g.m = out.columns, g.n = out.rows, g.k = a.columns;
  g.ld_first = ld_b, g.ld_second = ld_a, g.ld_out = ld_out;
  g.alpha = alpha, g.beta = bias ? beta : 0;
  g.reads_bias = bias && beta != 0;  // beta 0 means that bias is not read: its NaN must not spread
  g.batch = out.batch, g.out_batch_stride = out.batch_stride;
  g.a_batch_stride = a_.batch_stride, g.b_batch_stride = b_.batch_stride;
  g.bias = addend, g.out = out;
  g.is_double = is_double, g.usable = true;
  return g;
}

bool packs(const Gemm& g, PackedShape* shape) {
  if (!PackedMatrices::available() || !g.usable || g.is_double || g.swapped || g.batch != 1) return false;
  *shape = {g.n, g.m, g.k, g.ld_first, g.trans_first == 'T', static_cast<float>(g.alpha)};
  return true;
}

void run_gemm(const Gemm& gemm, void* out, const void* bias, const void* a, const void* b) {
  if (gemm.is_double)
    run(gemm, static_cast<double*>(out), static_cast<const double*>(bias), static_cast<const double*>(a), static_cast<const double*>(b));
  else run(gemm, static_cast<float*>(out), static_cast<const float*>(bias), static_cast<const float*>(a), static_cast<const float*>(b));
}

}  // namespace opmill
