// Sums of products over windows: convolutions, and whatever has their form. One copy serves all shapes of a translation unit.
//
// out[m, p] = sum over k of a[m, k] * b[k, p]: k runs over (channel, tap line, tap column), p over the output points, and b[k, p] is the
// element that tap k of the window at p covers, or zero outside. Rows of b are laid out in scratch, a block of points at a time; a is read
// where it lies, one element for a vector of points, so that nothing is kept between calls and nothing can be stale.
// The blocking is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): a panel of b in the
// first-level cache, the block in the second.
//
// Before this text stand: `lanes` as the macro CONTRACT_LANES, the vector type `cvec`, its unaligned twin `cvecu`, and contract_fma(x, y, z).

struct contraction {
  long rows, row_step;  // of a, and the elements between two
  long channels, tap_lines, tap_columns;  // k, contiguous in a
  long height, width, channel_step, line_step;  // of b's source, whose lines are contiguous
  long stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  long images, image_step, out_lines, out_width;  // the points
  long a_image_step, a_line_step;  // of a, where it has points too (weight_gradient.h)
  // What follows is made of the above by contract_plan or stencil_plan.
  long block_lines, block_columns;  // points of a block: several whole lines, or a part of one
  long channels_a_pass, rows_a_pass, pitch;  // pitch: elements between rows of scratch
  long staged_lines, staged_width, direct;  // direct: rows of b are read where they lie
  long units, threads;  // shares of the work, and the threads that it is worth
  long depthwise;  // of a stencil: channels lie in lanes (depthwise.h)
};

// Called with s = {image, first row, rows, first point, points, points of an image, pitch, the sizes of the kernel}; the sums lie in the
// last pointer, `pitch` elements a row.
typedef void (*contract_finish)(void* const* p, const long* s);

enum {
  CONTRACT_GROUP = CONTRACT_LANES < 16 ? 12 : 24,  // rows that are handed to threads together: whole tiles
  CONTRACT_ROWS = CONTRACT_LANES < 16 ? 128 : 144,  // and those that go through all points of a block one after the other
  CONTRACT_DEPTH = 144,  // terms of the sums in one pass, about: a panel of three vectors fills two thirds of a first-level cache of 32 KiB
  CONTRACT_POINTS = 224,  // points of a block at most: with the depth, a quarter of a second-level cache of 512 KiB
  CONTRACT_PANEL = 1 << 15,  // most elements of a block of b,
  CONTRACT_SUMS = 1 << 16,  // and of the sums of one pass over rows; all of it is on the stack
  CONTRACT_GRAIN = 1 << 17,  // multiplications below which another thread is not worth waking
};

static inline long contract_parts(long count, long of) { return (count + of - 1) / of; }
static inline long contract_up(long count, long step) { return contract_parts(count, step) * step; }
static inline long contract_least(long x, long y) { return x < y ? x : y; }
static inline long contract_most(long x, long y) { return x > y ? x : y; }

// How many lines a block has: those that leave the fewest vectors half empty, and few blocks. A smaller last block weighs where there are few images,
// as somebody waits for who has none of it.
static long contract_lines(const contraction& d, long most) {
  long best = 1, least = -1;
  for (long lines = 1; lines <= contract_least(d.out_lines, most / d.out_width); ++lines) {
    const long blocks = contract_parts(d.out_lines, lines), whole = contract_parts(lines * d.out_width, CONTRACT_LANES);
    const long last = contract_parts((d.out_lines - (blocks - 1) * lines) * d.out_width, CONTRACT_LANES);
    const long cost = 2 * ((blocks - 1) * whole + last) + blocks + (d.images < 4 ? 2 * (whole - last) : 0);
    if (least < 0 || cost <= least) best = lines, least = cost;
  }
  return best;
}

// Blocks of at most about `most` points: whole lines where one fits.
static void contract_cut(contraction& d, long most) {
  if (d.out_width <= most) {
    d.block_lines = contract_lines(d, most);
    d.block_columns = d.out_width;
  } else {
    d.block_lines = 1;
    d.block_columns = contract_up(contract_parts(d.out_width, contract_parts(d.out_width, most)), CONTRACT_LANES);
  }
  d.staged_lines = (d.block_lines - 1) * d.stride_h + (d.tap_lines - 1) * d.dilation_h + 1;
  d.staged_width = d.block_columns + (d.tap_columns - 1) * d.dilation_w / d.stride_w + 1 + CONTRACT_LANES;
}

static void contract_divide(contraction& d, long units, long depth) {
  d.units = units;
  d.threads = d.rows * d.images * d.out_lines * d.out_width * depth / CONTRACT_GRAIN;
}

// How the work is cut. It depends on the shape alone: results are the same for any number of threads.
static void contract_plan(contraction& d) {
  const long taps = d.tap_lines * d.tap_columns, depth = d.channels * taps;
  const long passes = contract_least(d.channels, contract_most(1, (depth + CONTRACT_DEPTH / 2) / CONTRACT_DEPTH));
  d.channels_a_pass = contract_parts(d.channels, passes);
  contract_cut(d, contract_most(3 * CONTRACT_LANES, contract_least(CONTRACT_POINTS, CONTRACT_PANEL / (d.channels_a_pass * taps))));
  d.pitch = contract_up(d.block_lines * d.block_columns, CONTRACT_LANES);
  d.rows_a_pass = contract_least(contract_most(CONTRACT_GROUP, CONTRACT_SUMS / d.pitch / CONTRACT_GROUP * CONTRACT_GROUP),
                                 contract_up(d.rows, CONTRACT_GROUP));
  d.direct = taps == 1 && d.out_lines == 1 && d.stride_w == 1 && d.pad_h == 0 && d.pad_w == 0;
  const long blocks = contract_parts(d.out_lines, d.block_lines) * contract_parts(d.out_width, d.block_columns);
  contract_divide(d, contract_parts(d.rows, CONTRACT_GROUP) * blocks * d.images, depth);
}

template <int R, int V>
static __attribute__((noinline)) void contract_tile(const float* a, long lda, const float* b, long ldb, float* c, long ldc, long depth,
                                                    bool add) {
  cvec sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[r][v] = cvec{};
  for (long k = 0; k < depth; ++k, b += ldb) {
    cvec x[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) x[v] = *(const cvecu*)(b + v * CONTRACT_LANES);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const cvec w = contract_splat(a[r * lda + k]);
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[r][v] = contract_fma(w, x[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      cvecu* const to = (cvecu*)(c + r * ldc + v * CONTRACT_LANES);
      *to = add ? *to + sum[r][v] : sum[r][v];
    }
}

struct contract_operands {
  const float* a;
  long lda;
  const float* b;
  long ldb;
  float* c;
  long ldc, depth;
  bool add;
};

// Rows [m, last) for V vectors of points from vector v on, as long as whole tiles of R rows fit. Returns the first row left.
template <int R, int V>
static long contract_rows(const contract_operands& o, long m, long last, long v) {
  for (; m + R <= last; m += R)
    contract_tile<R, V>(o.a + m * o.lda, o.lda, o.b + v * CONTRACT_LANES, o.ldb, o.c + m * o.ldc + v * CONTRACT_LANES, o.ldc, o.depth,
                        o.add);
  return m;
}

// Tiles have about twelve sums: enough to hide the latency of the additions, few enough for sixteen registers; vectors of sixteen come with thirty-two
// registers, and twenty-four sums load less for each.
static void contract_columns(const contract_operands& o, long first, long last, long v, long take) {
  const long count = last - first;
#if CONTRACT_LANES >= 16
  if (take == 4) return (void)contract_rows<1, 4>(o, contract_rows<3, 4>(o, contract_rows<6, 4>(o, first, last, v), last, v), last, v);
  if (take == 3) first = contract_rows<8, 3>(o, first, last, v);
  if (take == 2) first = contract_rows<12, 2>(o, first, last, v);
  if (take == 1) first = contract_rows<24, 1>(o, first, last, v);
#endif
  if (take == 3) {
    contract_rows<1, 3>(o, contract_rows<4, 3>(o, first, last, v), last, v);
  } else if (take == 2) {
    const long sixes = count % 6 == 2 && count > 2 ? last - 8 : last;  // two tiles of four rather than one of two
    contract_rows<1, 2>(o, contract_rows<4, 2>(o, contract_rows<6, 2>(o, first, sixes, v), last, v), last, v);
  } else {
    contract_rows<1, 1>(o, contract_rows<8, 1>(o, first, last, v), last, v);
  }
}

static void contract_product(const contract_operands& o, long rows, long vectors) {
  for (long first = 0; first < rows; first += CONTRACT_ROWS) {
    const long last = contract_least(first + CONTRACT_ROWS, rows);
    for (long v = 0, take; v < vectors; v += take) {
      const long left = vectors - v;
      take = left == 1 ? 1 : left == 4 ? (CONTRACT_LANES >= 16 ? 4 : 2) : left == 2 ? 2 : 3;
      contract_columns(o, first, last, v, take);
    }
  }
}

static inline void contract_copy(float* to, const float* from, long count) {
  long i = 0;
  for (; i + CONTRACT_LANES <= count; i += CONTRACT_LANES) *(cvecu*)(to + i) = *(const cvecu*)(from + i);
  for (; i < count; ++i) to[i] = from[i];
}

static inline void contract_zero(float* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = 0;
}

// One line of the source with its padding, columns of equal remainder by stride_w side by side: taps then read consecutive elements.
static void contract_stage_line(const contraction& d, float* to, const float* line, long column, long count) {
  for (long rest = 0; rest < d.stride_w; ++rest, to += d.staged_width) {
    const long at = column * d.stride_w - d.pad_w + rest;  // column of the source that to[0] stands for
    long begin = at < 0 ? (-at + d.stride_w - 1) / d.stride_w : 0;
    long end = at >= d.width ? 0 : (d.width - at + d.stride_w - 1) / d.stride_w;
    if (end > count) end = count;
    if (begin > end || !line) begin = end = line ? end : 0;
    contract_zero(to, begin);
    if (d.stride_w == 1 && begin < end)
      contract_copy(to + begin, line + at + begin, end - begin);  // no address of a line that is not there
    else if (d.stride_w == 2)
      for (long i = begin; i < end; ++i) to[i] = line[at + i * 2];  // shuffles of vectors
    else
      for (long i = begin; i < end; ++i) to[i] = line[at + i * d.stride_w];
    contract_zero(to + end, count - end);
  }
}

struct contract_block {
  const float* x;
  long line, lines, column, columns, points;
};

// The lines of one channel that a block's windows cover, with their padding.
static void contract_stage(const contraction& d, const contract_block& k, long channel, float* staged) {
  const long lines = (k.lines - 1) * d.stride_h + (d.tap_lines - 1) * d.dilation_h + 1;
  const long count = k.columns + (d.tap_columns - 1) * d.dilation_w / d.stride_w + 1, line_size = d.stride_w * d.staged_width;
  const float* const x = k.x + channel * d.channel_step;
  for (long n = 0; n < lines; ++n) {
    if (d.tap_lines == 1 && n % d.stride_h) continue;
    const long at = k.line * d.stride_h - d.pad_h + n;
    contract_stage_line(d, staged + n * line_size, at < 0 || at >= d.height ? nullptr : x + at * d.line_step, k.column, count);
  }
}

// Rows of b for some channels, by way of `staged`. Copies are of whole vectors: what one writes too much the next overwrites.
static void contract_rows_of_b(const contraction& d, const contract_block& k, long channel, long channels, float* staged, float* b) {
  const long line_size = d.stride_w * d.staged_width, vectors = (k.points + CONTRACT_LANES - 1) / CONTRACT_LANES * CONTRACT_LANES;
  for (long c = channel; c < channel + channels; ++c) {
    contract_stage(d, k, c, staged);
    for (long h = 0; h < d.tap_lines; ++h)
      for (long w = 0; w < d.tap_columns; ++w, b += d.pitch) {
        const float* from =
            staged + h * d.dilation_h * line_size + w * d.dilation_w % d.stride_w * d.staged_width + w * d.dilation_w / d.stride_w;
        float* to = b;
        for (long n = 0; n < k.lines; ++n, from += d.stride_h * line_size, to += k.columns)
          for (long i = 0; i < k.columns; i += CONTRACT_LANES) *(cvecu*)(to + i) = *(const cvecu*)(from + i);
        contract_zero(b + k.points, vectors - k.points);
      }
  }
}

// Rows [first, last) at the points of one block.
static void contract_run_block(const contraction& d, const float* a, const contract_block& k, long first, long last, float* staged,
                               float* b, float* sums) {
  const long taps = d.tap_lines * d.tap_columns, vectors = (k.points + CONTRACT_LANES - 1) / CONTRACT_LANES;
  for (long c = 0; c < d.channels; c += d.channels_a_pass) {
    const long channels = c + d.channels_a_pass < d.channels ? d.channels_a_pass : d.channels - c;
    contract_operands o = {a + first * d.row_step + c * taps, d.row_step, b, d.pitch, sums, d.pitch, channels * taps, c > 0};
    // A last vector may reach into the next channel; after the last one there is no memory to reach into.
    if (d.direct && (k.points % CONTRACT_LANES == 0 || c + channels < d.channels)) {
      o.b = k.x + c * d.channel_step + k.line * d.line_step + k.column;
      o.ldb = d.channel_step;
    } else {
      contract_rows_of_b(d, k, c, channels, staged, b);
    }
    contract_product(o, last - first, vectors);
  }
}

// The sizes that `finish` is given: room for those of a block, then those of the kernel.
#define contract_sizes(s, count)                                          \
  long* const at = (long*)__builtin_alloca(sizeof(long) * (7 + (count))); \
  for (long i = 0; i < (count); ++i) at[7 + i] = (s)[i]

#define contract_at(at, ...)               \
  do {                                     \
    const long now[7] = {__VA_ARGS__};     \
    __builtin_memcpy(at, now, sizeof now); \
  } while (0)

// Units [from, to): groups of rows, all groups of one block of points before the next.
static void contract(const contraction& d, const float* a, const float* x, void* const* p, long pointers, const long* s, long sizes,
                     contract_finish finish, long from, long to) {
  const long groups = contract_parts(d.rows, CONTRACT_GROUP), across = contract_parts(d.out_width, d.block_columns);
  const long blocks = across * contract_parts(d.out_lines, d.block_lines);
  float* const staged =
      (float*)__builtin_alloca_with_align(sizeof(float) * (d.staged_lines * d.stride_w * d.staged_width + 8 * CONTRACT_LANES), 512);
  float* const b = (float*)__builtin_alloca_with_align(
      sizeof(float) * (d.channels_a_pass * d.tap_lines * d.tap_columns * d.pitch + 2 * CONTRACT_LANES), 512);
  float* const sums = (float*)__builtin_alloca_with_align(sizeof(float) * d.rows_a_pass * d.pitch, 512);
  void** const all = (void**)__builtin_alloca(sizeof(void*) * (pointers + 1));
  contract_sizes(s, sizes);
  for (long i = 0; i < pointers; ++i) all[i] = p[i];
  all[pointers] = sums;
  while (from < to) {
    const long block = from / groups, group = from % groups, taken = contract_least(groups - group, to - from);
    const long image = block / blocks, line = block % blocks / across * d.block_lines, column = block % across * d.block_columns;
    contract_block k = {x + image * d.image_step,
                        line,
                        contract_least(d.block_lines, d.out_lines - line),
                        column,
                        contract_least(d.block_columns, d.out_width - column),
                        0};
    k.points = k.lines * k.columns;
    const long end = contract_least((group + taken) * CONTRACT_GROUP, d.rows);
    for (long m = group * CONTRACT_GROUP; m < end; m += d.rows_a_pass) {
      const long last = contract_least(m + d.rows_a_pass, end);
      contract_run_block(d, a, k, m, last, staged, b, sums);
      contract_at(at, image, m, last - m, line * d.out_width + column, k.points, d.out_lines * d.out_width, d.pitch);
      finish(all, at);
    }
    from += taken;
  }
}
