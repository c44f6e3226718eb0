// Windows moved over each channel alone, as many channels abreast as a vector has lanes: for lines that are shorter than vectors, and steps.
//
// Squares of memory are read across, so that a place of the image is one vector of channels; then any tap of any place is a whole vector,
// whatever the line's length and the step, and lines of padding are not multiplied at all. The sums go back the same way.
// Comes after core.h and before stencil.h, and uses the description of a window; `rows` are channels.

enum {
  DEPTHWISE_PLACES = 2048
};  // places that are laid out at a time: with the widest vectors a quarter of a second-level cache of 512 KiB

// Whether it is done so, and how it is cut: blocks are some lines of a group of channels.
static bool depthwise_plan(contraction& d) {
  const long reach = (d.tap_lines - 1) * d.dilation_h + 1;
  const long wide = contract_most(d.pad_w + d.width, (d.out_width - 1) * d.stride_w + (d.tap_columns - 1) * d.dilation_w + 1);
  const long most = DEPTHWISE_PLACES / wide;  // lines
  if (d.height == 1 && d.out_width < 4 * CONTRACT_LANES)
    d.line_step = d.width;  // else it has none, and is long enough to lie along vectors
  if (d.rows < CONTRACT_LANES || d.pad_w < 0 || d.line_step < d.width || most < reach) return false;
  const long fit = contract_least(most, d.height <= most ? d.out_lines : (most - reach) / d.stride_h + 1);
  d.block_lines = contract_parts(d.out_lines, contract_parts(d.out_lines, fit));
  d.block_columns = d.out_width;
  d.staged_lines = contract_least(d.height, (d.block_lines - 1) * d.stride_h + reach);
  d.staged_width = wide;
  d.pitch = contract_up(d.block_lines * d.out_width, CONTRACT_LANES);
  contract_divide(d, contract_parts(d.rows, CONTRACT_LANES) * d.images * contract_parts(d.out_lines, d.block_lines),
                  d.tap_lines * d.tap_columns);
  return d.depthwise = true;
}

// Lays out elements [0, count) of channels `step` apart: lines of `width` elements, `line_step` apart, become `wide` places each.
static void depthwise_lay(const float* from, long step, long count, long width, long line_step, float* to, long wide) {
  if (count < CONTRACT_LANES) {
    for (long i = 0; i < count; ++i)
      if (i % line_step < width)
        for (long l = 0; l < CONTRACT_LANES; ++l) to[(i / line_step * wide + i % line_step) * CONTRACT_LANES + l] = from[l * step + i];
    return;
  }
  for (long i = 0; i < count; i += CONTRACT_LANES) {
    const long first = contract_least(i, count - CONTRACT_LANES);  // the last square covers some places twice
    cvec place[CONTRACT_LANES];
    contract_square(from + first, step, place);
    long column = first % line_step;
    float* at = to + (first / line_step * wide + column) * CONTRACT_LANES;
#pragma GCC unroll 16
    for (int k = 0; k < CONTRACT_LANES; ++k, at += CONTRACT_LANES) {
      if (column < width) *(cvec*)at = place[k];
      if (++column == line_step) column = 0, at += (wide - line_step) * CONTRACT_LANES;
    }
  }
}

// The same of some lines: all that lies between them, too, unless they are far apart.
static void depthwise_lines(const float* from, long step, long lines, long width, long line_step, float* to, long wide) {
  const long together = line_step <= 2 * width ? contract_most(lines, 1) : 1;
  for (long n = 0; n < lines; n += together)
    depthwise_lay(from + n * line_step, step, (together - 1) * line_step + width, width, line_step, to + n * wide * CONTRACT_LANES, wide);
}

// The lines of a group of channels that windows at some lines of points cover. Returns the first of them.
static long depthwise_stage(const contraction& d, const float* x, long line, long lines, float* staged) {
  const long first = contract_most(0, line * d.stride_h - d.pad_h);
  const long last = contract_least(d.height, (line + lines - 1) * d.stride_h - d.pad_h + (d.tap_lines - 1) * d.dilation_h + 1);
  depthwise_lines(x + first * d.line_step, d.channel_step, last - first, d.width, d.line_step, staged + d.pad_w * CONTRACT_LANES,
                  d.staged_width);
  return first;
}

// Channels by rows again, `pitch` elements apart; of both, whole vectors are read and written.
static void depthwise_turn(const float* wide, long count, float* to, long pitch) {
  for (long i = 0; i < count; i += CONTRACT_LANES) {
    cvec row[CONTRACT_LANES];
    contract_square(wide + i * CONTRACT_LANES, CONTRACT_LANES, row);
#pragma GCC unroll 16
    for (int k = 0; k < CONTRACT_LANES; ++k) *(cvec*)(to + k * pitch + i) = row[k];
  }
}

// R points of a line, under `lines` lines of taps.
template <int R>
static __attribute__((noinline)) void depthwise_tile(const contraction& d, const float* a, const float* staged, float* to, long lines) {
  const long step = d.stride_w * CONTRACT_LANES, down = d.dilation_h * d.staged_width * CONTRACT_LANES,
             right = d.dilation_w * CONTRACT_LANES;
  cvec sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = cvec{};
  for (long h = 0; h < lines; ++h, staged += down) {
    const float* from = staged;
    for (long w = 0; w < d.tap_columns; ++w, from += right, a += CONTRACT_LANES) {
      const cvec c = *(const cvec*)a;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sum[r] = contract_fma(c, *(const cvec*)(from + r * step), sum[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) *(cvec*)(to + r * CONTRACT_LANES) = sum[r];
}

// One line of points, in parts of about equal width.
static void depthwise_line(const contraction& d, const float* a, const float* staged, float* to, long lines) {
  const long step = d.stride_w * CONTRACT_LANES;
  for (long column = 0, take; column < d.out_width; column += take) {
    const long left = d.out_width - column;
    take = contract_parts(left, contract_parts(left, 8));
    const float* const from = staged + column * step;
    float* const at = to + column * CONTRACT_LANES;
    switch (take) {
      case 8:
        depthwise_tile<8>(d, a, from, at, lines);
        break;
      case 7:
        depthwise_tile<7>(d, a, from, at, lines);
        break;
      case 6:
        depthwise_tile<6>(d, a, from, at, lines);
        break;
      case 5:
        depthwise_tile<5>(d, a, from, at, lines);
        break;
      case 4:
        depthwise_tile<4>(d, a, from, at, lines);
        break;
      case 3:
        depthwise_tile<3>(d, a, from, at, lines);
        break;
      case 2:
        depthwise_tile<2>(d, a, from, at, lines);
        break;
      default:
        depthwise_tile<1>(d, a, from, at, lines);
    }
  }
}

// Some lines of points of a group of channels. Of x, the group's first channel; `a` and `wide` have channels in lanes.
static void depthwise_sums(const contraction& d, const float* a, const float* x, long line, long lines, float* staged, float* wide,
                           float* sums) {
  const long first = depthwise_stage(d, x, line, lines, staged);
  float* to = wide;
  for (long n = line; n < line + lines; ++n, to += d.out_width * CONTRACT_LANES) {
    const long top = n * d.stride_h - d.pad_h, none = top < 0 ? contract_parts(-top, d.dilation_h) : 0;  // lines of taps above the image
    const long taps = contract_least(d.tap_lines, top < d.height ? contract_parts(d.height - top, d.dilation_h) : 0) - none;
    const float* const from = staged + (top + none * d.dilation_h - first) * d.staged_width * CONTRACT_LANES;
    const float* const c = a + none * d.tap_columns * CONTRACT_LANES;
    depthwise_line(d, c, from, to, taps);
  }
  depthwise_turn(wide, lines * d.out_width, sums, d.pitch);
}

// Units [from, to): blocks of images of groups of channels. The last group starts earlier where channels do not fill it, and its first are left alone.
static void depthwise(const contraction& d, const float* a, const float* x, void* const* p, long pointers, const long* s, long sizes,
                      contract_finish finish, long from, long to) {
  const long taps = d.tap_lines * d.tap_columns, blocks = contract_parts(d.out_lines, d.block_lines),
             laid = d.staged_lines * d.staged_width * CONTRACT_LANES;
  float* const staged = (float*)__builtin_alloca_with_align(sizeof(float) * laid, 512);
  float* const turned = (float*)__builtin_alloca_with_align(sizeof(float) * taps * CONTRACT_LANES, 512);
  float* const wide = (float*)__builtin_alloca_with_align(sizeof(float) * d.pitch * CONTRACT_LANES, 512);
  float* const sums = (float*)__builtin_alloca_with_align(sizeof(float) * d.pitch * CONTRACT_LANES, 512);
  void** const all = (void**)__builtin_alloca(sizeof(void*) * (pointers + 1));
  contract_sizes(s, sizes);
  for (long i = 0; i < pointers; ++i) all[i] = p[i];
  contract_zero(staged, laid);
  for (long group, held = -1; from < to; ++from) {
    group = from / blocks / d.images;
    const long image = from / blocks % d.images, line = from % blocks * d.block_lines,
               lines = contract_least(d.block_lines, d.out_lines - line);
    const long row = contract_least(group * CONTRACT_LANES, d.rows - CONTRACT_LANES), done = group * CONTRACT_LANES - row;
    if (group != held) depthwise_lay(a + row * d.row_step, d.row_step, taps, taps, taps, turned, taps), held = group;
    depthwise_sums(d, turned, x + image * d.image_step + row * d.channel_step, line, lines, staged, wide, sums);
    all[pointers] = sums + done * d.pitch;
    contract_at(at, image, row + done, CONTRACT_LANES - done, line * d.out_width, lines * d.out_width, d.out_lines * d.out_width, d.pitch);
    finish(all, at);
  }
}
