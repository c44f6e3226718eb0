// Gradients of a stencil's weights: out[c, t] = sum over points p of a[c, p] * x[c, window p, t].
//
// Lines of both are laid out, x with its padding and a with zeros behind each line; then whole vectors of a meet those of x that a few taps
// cover, and the sums of these taps stay in registers over a block. Comes after core.h and uses its description of a window; `rows` are channels.

static void weight_gradient_plan(contraction& d) {
  if (depthwise_weight_gradient_plan(d)) return;
  const long wide = d.out_width * d.stride_w + d.tap_columns * d.dilation_w + 2 * CONTRACT_LANES;
  contract_cut(
      d, contract_most(4 * CONTRACT_LANES, contract_least(8 * CONTRACT_POINTS, contract_most(1, 6144 / wide / d.stride_h) * d.out_width)));
  d.pitch = contract_up(d.block_columns, CONTRACT_LANES);
  contract_divide(d, d.rows, d.tap_lines * d.tap_columns);
}

static inline float weight_gradient_sum(cvec x) {
  float total = 0;
  for (int l = 0; l < CONTRACT_LANES; ++l) total += x[l];
  return total;
}

// Adds to the sums of H x W taps, the first of which covers `from`; `h` and `w` are the elements from a tap to the next.
template <int H, int W>
static __attribute__((noinline)) void weight_gradient_tile(const float* y, long pitch, const float* from, long step, const long* h,
                                                           const long* w, long lines, float* sums, long taps) {
  cvec sum[H][W];
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < W; ++j) sum[i][j] = cvec{};
  for (long n = 0; n < lines; ++n, y += pitch, from += step)
    for (long v = 0; v < pitch; v += CONTRACT_LANES) {
      const cvec z = *(const cvecu*)(y + v);
#pragma GCC unroll 16
      for (int i = 0; i < H; ++i)
#pragma GCC unroll 16
        for (int j = 0; j < W; ++j) sum[i][j] = contract_fma(z, *(const cvecu*)(from + h[i] + w[j] + v), sum[i][j]);
    }
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < W; ++j) sums[i * taps + j] += weight_gradient_sum(sum[i][j]);
}

// All taps of one block.
static void weight_gradient_taps(const contraction& d, const float* y, const float* staged, long lines, float* sums) {
  const long line_size = d.stride_w * d.staged_width, step = d.stride_h * line_size;
  const long h[3] = {0, d.dilation_h * line_size, 2 * d.dilation_h * line_size};
  long* const w = (long*)__builtin_alloca(sizeof(long) * d.tap_columns);
  for (long j = 0; j < d.tap_columns; ++j) w[j] = j * d.dilation_w % d.stride_w * d.staged_width + j * d.dilation_w / d.stride_w;
  if (d.tap_columns == 3 && d.tap_lines == 3) return weight_gradient_tile<3, 3>(y, d.pitch, staged, step, h, w, lines, sums, 3);
  for (long i = 0; i < d.tap_lines; ++i, staged += d.dilation_h * line_size)
    for (long j = 0, left; j < d.tap_columns;) {
      left = d.tap_columns - j;
      float* const to = sums + i * d.tap_columns + j;
      if (left >= 7) weight_gradient_tile<1, 7>(y, d.pitch, staged, step, h, w + j, lines, to, 0), j += 7;
      else if (left >= 5) weight_gradient_tile<1, 5>(y, d.pitch, staged, step, h, w + j, lines, to, 0), j += 5;
      else if (left >= 3) weight_gradient_tile<1, 3>(y, d.pitch, staged, step, h, w + j, lines, to, 0), j += 3;
      else weight_gradient_tile<1, 1>(y, d.pitch, staged, step, h, w + j, lines, to, 0), j += 1;
    }
}

// The lines of a block, of both. What is behind a line is zero in both: zero times what is no number is none.
static void weight_gradient_stage(const contraction& d, const contract_block& k, const float* a, float* staged, float* y) {
  const long all = (k.lines - 1) * d.stride_h + (d.tap_lines - 1) * d.dilation_h + 1, line_size = d.stride_w * d.staged_width;
  const long count = k.columns + (d.tap_columns - 1) * d.dilation_w / d.stride_w + 1;
  contract_stage(d, k, 0, staged);
  for (long n = 0; n < all; ++n)
    for (long rest = 0; rest < d.stride_w; ++rest)
      contract_zero(staged + n * line_size + rest * d.staged_width + count, d.staged_width - count);
  for (long n = 0; n < k.lines; ++n, y += d.pitch) {
    contract_copy(y, a + n * d.a_line_step, k.columns);
    contract_zero(y + k.columns, d.pitch - k.columns);
  }
}

// Units [from, to): channels.
static void weight_gradient(const contraction& d, const float* a, const float* x, void* const* p, long pointers, const long* s, long sizes,
                            contract_finish finish, long from, long to) {
  if (d.depthwise) return depthwise_weight_gradient(d, a, x, p, pointers, s, sizes, finish, from, to);
  const long taps = d.tap_lines * d.tap_columns;
  float* const staged =
      (float*)__builtin_alloca_with_align(sizeof(float) * (d.staged_lines * d.stride_w * d.staged_width + 8 * CONTRACT_LANES), 512);
  float* const y = (float*)__builtin_alloca_with_align(sizeof(float) * d.block_lines * d.pitch, 512);
  float* const sums = (float*)__builtin_alloca_with_align(sizeof(float) * (taps + CONTRACT_LANES), 512);
  void** const all = (void**)__builtin_alloca(sizeof(void*) * (pointers + 1));
  contract_sizes(s, sizes);
  for (long i = 0; i < pointers; ++i) all[i] = p[i];
  all[pointers] = sums;
  for (; from < to; ++from) {
    contract_zero(sums, taps);
    for (long image = 0; image < d.images; ++image)
      for (long line = 0; line < d.out_lines; line += d.block_lines)
        for (long column = 0; column < d.out_width; column += d.block_columns) {
          const long lines = contract_least(d.block_lines, d.out_lines - line),
                     columns = contract_least(d.block_columns, d.out_width - column);
          const contract_block k = {x + image * d.image_step + from * d.channel_step, line, lines, column, columns, lines * columns};
          weight_gradient_stage(d, k, a + image * d.a_image_step + from * d.row_step + line * d.a_line_step + column, staged, y);
          weight_gradient_taps(d, y, staged, lines, sums);
        }
    contract_at(at, 0, from, 1, 0, taps, taps, taps);
    finish(all, at);
  }
}
