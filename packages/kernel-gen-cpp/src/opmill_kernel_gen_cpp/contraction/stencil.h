// Windows moved over each channel alone (depthwise convolutions): out[c, p] = sum over taps t of a[c, t] * x[c, window p, t].
//
// A few lines of a channel are laid out with their padding, then each tap multiplies whole vectors of them: the sums of R lines by V vectors
// stay in registers over all taps. Comes after core.h and uses its description of a window; `rows` are channels.

enum {
  STENCIL_STAGED = 6144
};  // elements of a channel that are laid out at a time, about: three quarters of a first-level cache of 32 KiB

// A block is some lines of one channel.
static void stencil_plan(contraction& d) {
  if (depthwise_plan(d)) return;
  const long wide = d.out_width * d.stride_w + d.tap_columns * d.dilation_w + 2 * CONTRACT_LANES;
  const long fit = contract_most(1, (STENCIL_STAGED / wide - d.tap_lines * d.dilation_h) / d.stride_h);
  contract_cut(d, contract_most(4 * CONTRACT_LANES, contract_least(8 * CONTRACT_POINTS, fit * d.out_width)));
  d.pitch = d.block_lines * d.block_columns;
  contract_divide(d, d.rows * d.images, d.tap_lines * d.tap_columns);
}

template <int R, int V>
static __attribute__((noinline)) void stencil_tile(const contraction& d, const float* a, const float* staged, float* to, long columns) {
  const long line_size = d.stride_w * d.staged_width;
  cvec sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[r][v] = cvec{};
  for (long h = 0; h < d.tap_lines; ++h)
    for (long w = 0; w < d.tap_columns; ++w) {
      const float* from =
          staged + h * d.dilation_h * line_size + w * d.dilation_w % d.stride_w * d.staged_width + w * d.dilation_w / d.stride_w;
      const cvec c = contract_splat(*a++);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v)
          sum[r][v] = contract_fma(c, *(const cvecu*)(from + r * d.stride_h * line_size + v * CONTRACT_LANES), sum[r][v]);
    }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) *(cvecu*)(to + r * columns + v * CONTRACT_LANES) = sum[r][v];
}

// Whole lines of V vectors, R at a time. What the last vector of a line writes too much, the next line overwrites.
template <int R, int V>
static void stencil_lines(const contraction& d, const float* a, const float* staged, float* sums, long lines, long columns) {
  const long step = d.stride_h * d.stride_w * d.staged_width;
  long line = 0;
  for (; line + R <= lines; line += R) stencil_tile<R, V>(d, a, staged + line * step, sums + line * columns, columns);
  for (; line < lines; ++line) stencil_tile<1, V>(d, a, staged + line * step, sums + line * columns, columns);
}

// One line, in parts of about equal width: up to eight sums at a time.
static void stencil_long_line(const contraction& d, const float* a, const float* staged, float* sums, long vectors) {
  for (long v = 0, take; v < vectors; v += take) {
    const long left = vectors - v, parts = (left + 7) / 8;
    take = (left + parts - 1) / parts;
    if (take > 7) stencil_tile<1, 8>(d, a, staged + v * CONTRACT_LANES, sums + v * CONTRACT_LANES, 0);
    else if (take > 6) stencil_tile<1, 7>(d, a, staged + v * CONTRACT_LANES, sums + v * CONTRACT_LANES, 0);
    else stencil_tile<1, 4>(d, a, staged + v * CONTRACT_LANES, sums + v * CONTRACT_LANES, 0), take = left < 4 ? left : 4;
  }
}

static void stencil_sums(const contraction& d, const float* a, const float* staged, float* sums, long lines, long columns) {
  const long vectors = (columns + CONTRACT_LANES - 1) / CONTRACT_LANES, step = d.stride_h * d.stride_w * d.staged_width;
  if (vectors == 1) stencil_lines<6, 1>(d, a, staged, sums, lines, columns);
  else if (vectors == 2) stencil_lines<4, 2>(d, a, staged, sums, lines, columns);
  else if (vectors == 3) stencil_lines<2, 3>(d, a, staged, sums, lines, columns);
  else if (vectors == 4) stencil_lines<2, 4>(d, a, staged, sums, lines, columns);
  else
    for (long line = 0; line < lines; ++line) stencil_long_line(d, a, staged + line * step, sums + line * columns, vectors);
}

// Units [from, to): channels of images.
static void stencil(const contraction& d, const float* a, const float* x, void* const* p, long pointers, const long* s, long sizes,
                    contract_finish finish, long from, long to) {
  if (d.depthwise) return depthwise(d, a, x, p, pointers, s, sizes, finish, from, to);
  const long laid = d.staged_lines * d.stride_w * d.staged_width + 8 * CONTRACT_LANES;
  float* const staged = (float*)__builtin_alloca_with_align(sizeof(float) * laid, 512);
  float* const sums = (float*)__builtin_alloca_with_align(sizeof(float) * (d.pitch + 4 * CONTRACT_LANES), 512);
  void** const all = (void**)__builtin_alloca(sizeof(void*) * (pointers + 1));
  contract_sizes(s, sizes);
  for (long i = 0; i < pointers; ++i) all[i] = p[i];
  all[pointers] = sums;
  contract_zero(staged, laid);  // vectors reach beyond lines: stack taken for numbers is often subnormal, and slow
  for (; from < to; ++from) {
    const long image = from / d.rows, row = from % d.rows;
    for (long line = 0; line < d.out_lines; line += d.block_lines) {
      const long lines = d.out_lines - line < d.block_lines ? d.out_lines - line : d.block_lines;
      for (long column = 0; column < d.out_width; column += d.block_columns) {
        const long columns = d.out_width - column < d.block_columns ? d.out_width - column : d.block_columns;
        const contract_block k = {x + image * d.image_step + row * d.channel_step, line, lines, column, columns, lines * columns};
        contract_stage(d, k, 0, staged);
        stencil_sums(d, a + row * d.row_step, staged, sums, lines, columns);
        contract_at(at, image, row, 1, line * d.out_width + column, lines * columns, d.out_lines * d.out_width, d.pitch);
        finish(all, at);
      }
    }
  }
}
