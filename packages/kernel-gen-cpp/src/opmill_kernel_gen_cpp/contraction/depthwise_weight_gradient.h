// Gradients of a stencil's weights with channels in lanes: out[c, t] = sum over points p of a[c, p] * x[c, window p, t].
//
// A point of a meets the places that a line of taps covers; there is nothing to add up across lanes. Comes after depthwise.h, and cuts blocks as it does.

enum { WEIGHT_GRADIENT_POINTS = 256 };  // that are summed up one after the other, before that is added to the rest: for exactness

static bool depthwise_weight_gradient_plan(contraction& d) {
  if (d.out_lines == 1) d.a_line_step = d.out_width;
  if (d.a_line_step < d.out_width || !depthwise_plan(d)) return false;
  d.units = contract_parts(d.rows, CONTRACT_LANES);
  return true;
}

// Adds to the sums of W taps next to each other. C: points at a time, each with sums of its own, so that there are enough to hide their latency.
template <int W, int C>
static __attribute__((noinline)) void depthwise_weight_gradient_tile(const contraction& d, const float* y, const float* staged, float* to,
                                                                     long lines) {
  const long step = d.stride_w * CONTRACT_LANES, down = d.stride_h * d.staged_width * CONTRACT_LANES, right = d.dilation_w * CONTRACT_LANES;
  cvec sum[C][W];
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c)
#pragma GCC unroll 16
    for (int w = 0; w < W; ++w) sum[c][w] = cvec{};
  for (long n = 0; n < lines; ++n, staged += down) {
    const float* from = staged;
    long column = 0;
    for (; column + C <= d.out_width; column += C)
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c, y += CONTRACT_LANES, from += step) {
        const cvec z = *(const cvec*)y;
#pragma GCC unroll 16
        for (int w = 0; w < W; ++w) sum[c][w] = contract_fma(z, *(const cvec*)(from + w * right), sum[c][w]);
      }
    for (; column < d.out_width; ++column, y += CONTRACT_LANES, from += step) {
      const cvec z = *(const cvec*)y;
#pragma GCC unroll 16
      for (int w = 0; w < W; ++w) sum[0][w] = contract_fma(z, *(const cvec*)(from + w * right), sum[0][w]);
    }
  }
#pragma GCC unroll 16
  for (int c = 1; c < C; ++c)
#pragma GCC unroll 16
    for (int w = 0; w < W; ++w) sum[0][w] += sum[c][w];
#pragma GCC unroll 16
  for (int w = 0; w < W; ++w) *(cvec*)(to + w * CONTRACT_LANES) += sum[0][w];
}

// One line of taps, in parts of about equal width.
static void depthwise_weight_gradient_line(const contraction& d, const float* y, const float* staged, float* to, long lines) {
  for (long w = 0, take; w < d.tap_columns; w += take, staged += take * d.dilation_w * CONTRACT_LANES, to += take * CONTRACT_LANES) {
    const long left = d.tap_columns - w;
    take = contract_parts(left, contract_parts(left, 7));
    switch (take) {
      case 7:
        depthwise_weight_gradient_tile<7, 1>(d, y, staged, to, lines);
        break;
      case 6:
        depthwise_weight_gradient_tile<6, 1>(d, y, staged, to, lines);
        break;
      case 5:
        depthwise_weight_gradient_tile<5, 2>(d, y, staged, to, lines);
        break;
      case 4:
        depthwise_weight_gradient_tile<4, 2>(d, y, staged, to, lines);
        break;
      case 3:
        depthwise_weight_gradient_tile<3, 3>(d, y, staged, to, lines);
        break;
      case 2:
        depthwise_weight_gradient_tile<2, 4>(d, y, staged, to, lines);
        break;
      default:
        depthwise_weight_gradient_tile<1, 4>(d, y, staged, to, lines);
    }
  }
}

// All taps of one block. Only points whose line of the window lies in the image count; of x and a, the first of a group of channels.
static void depthwise_weight_gradient_block(const contraction& d, const float* a, const float* x, long line, long lines, float* staged,
                                            float* y, float* sums) {
  const long first = depthwise_stage(d, x, line, lines, staged), some = contract_most(1, WEIGHT_GRADIENT_POINTS / d.out_width);
  depthwise_lines(a + line * d.a_line_step, d.row_step, lines, d.out_width, d.a_line_step, y, d.out_width);
  for (long h = 0; h < d.tap_lines; ++h) {
    const long off = h * d.dilation_h - d.pad_h;  // the place of the tap for the first line of points
    const long begin = contract_most(line, off < 0 ? contract_parts(-off, d.stride_h) : 0);
    const long end = contract_least(line + lines, off < d.height ? contract_parts(d.height - off, d.stride_h) : 0);
    for (long n = begin; n < end; n += some) {
      const float* const from = staged + (n * d.stride_h + off - first) * d.staged_width * CONTRACT_LANES;
      depthwise_weight_gradient_line(d, y + (n - line) * d.out_width * CONTRACT_LANES, from, sums + h * d.tap_columns * CONTRACT_LANES,
                                     contract_least(some, end - n));
    }
  }
}

// Units [from, to): groups of channels; the last starts earlier where channels do not fill it.
static void depthwise_weight_gradient(const contraction& d, const float* a, const float* x, void* const* p, long pointers, const long* s,
                                      long sizes, contract_finish finish, long from, long to) {
  const long taps = d.tap_lines * d.tap_columns, pitch = contract_up(taps, CONTRACT_LANES),
             laid = d.staged_lines * d.staged_width * CONTRACT_LANES;
  float* const staged = (float*)__builtin_alloca_with_align(sizeof(float) * laid, 512);
  float* const y = (float*)__builtin_alloca_with_align(sizeof(float) * d.block_lines * d.out_width * CONTRACT_LANES, 512);
  float* const wide = (float*)__builtin_alloca_with_align(sizeof(float) * pitch * CONTRACT_LANES, 512);
  float* const sums = (float*)__builtin_alloca_with_align(sizeof(float) * pitch * CONTRACT_LANES, 512);
  void** const all = (void**)__builtin_alloca(sizeof(void*) * (pointers + 1));
  contract_sizes(s, sizes);
  for (long i = 0; i < pointers; ++i) all[i] = p[i];
  contract_zero(staged, laid);
  for (; from < to; ++from) {
    const long row = contract_least(from * CONTRACT_LANES, d.rows - CONTRACT_LANES), done = from * CONTRACT_LANES - row;
    contract_zero(wide, pitch * CONTRACT_LANES);
    for (long image = 0; image < d.images; ++image)
      for (long line = 0; line < d.out_lines; line += d.block_lines) {
        const float* const of_a = a + image * d.a_image_step + row * d.row_step;
        depthwise_weight_gradient_block(d, of_a, x + image * d.image_step + row * d.channel_step, line,
                                        contract_least(d.block_lines, d.out_lines - line), staged, y, wide);
      }
    depthwise_turn(wide, taps, sums, pitch);
    all[pointers] = sums + done * pitch;
    contract_at(at, 0, row + done, CONTRACT_LANES - done, 0, taps, taps, pitch);
    finish(all, at);
  }
}
