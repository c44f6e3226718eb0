// Written by `python -m opmill_runtime_cache.executor.layout`; a test compares it. What each field means is said there.
#pragma once

namespace opmill {

enum class SlotKind : int {
  input = 0,
  held = 1,
  constant = 2,
  arena = 3,
  view = 4,
  fresh = 5,
  result = 6,
};

enum class StepKind : int {
  evaluate = 0,
  define = 1,
  launch = 2,
  call = 3,
  free = 4,
  check = 5,
  item = 6,
  size_of = 7,
  launch_cuda = 8,
};

enum class Route : int {
  dispatcher = 0,
  python = 1,
  shim = 2,
};

enum class CellKind : int {
  tensor = 0,
  word = 1,
  value = 2,
  some = 3,
  list = 4,
  text = 5,
};

enum class CudaArgKind : int {
  buffer = 0,
  scratch = 1,
  size = 2,
  error = 3,
  check = 4,
  word = 5,
};

enum class OutputKind : int {
  slot = 0,
  value = 1,
  none = 2,
};

// Positions of the fields in the tuples.

namespace evaluate_step {
enum {
  value = 1,
  fields_ = 2,
};
}  // namespace evaluate_step

namespace define_step {
enum {
  slot = 1,
  fields_ = 2,
};
}  // namespace define_step

namespace launch_step {
enum {
  address = 1,
  slots = 2,
  values = 3,
  failures = 4,
  bumps = 5,
  needs = 6,
  dtypes = 7,
  floor = 8,
  late = 9,
  apart = 10,
  type = 11,
  fields_ = 12,
};
}  // namespace launch_step

namespace launch_cuda_step {
enum {
  device = 1,
  slots = 2,
  values = 3,
  bumps = 4,
  scratch = 5,
  first = 6,
  launches = 7,
  needs = 8,
  dtypes = 9,
  floor = 10,
  late = 11,
  apart = 12,
  fields_ = 13,
};
}  // namespace launch_cuda_step

namespace call_step {
enum {
  call = 1,
  fields_ = 2,
};
}  // namespace call_step

namespace free_step {
enum {
  slots = 1,
  fields_ = 2,
};
}  // namespace free_step

namespace check_step {
enum {
  value = 1,
  failures = 2,
  fields_ = 3,
};
}  // namespace check_step

namespace item_step {
enum {
  value = 1,
  slot = 2,
  fields_ = 3,
};
}  // namespace item_step

namespace size_step {
enum {
  value = 1,
  slot = 2,
  dim = 3,
  fields_ = 4,
};
}  // namespace size_step

namespace value_row {
enum {
  late = 0,
  code = 1,
  fields_ = 2,
};
}  // namespace value_row

namespace key_row {
enum {
  input = 0,
  tensor = 1,
  dim = 2,
  value = 3,
  fields_ = 4,
};
}  // namespace key_row

namespace slot_row {
enum {
  kind = 0,
  dtype = 1,
  sizes = 2,
  strides = 3,
  offset = 4,
  base = 5,
  root = 6,
  late = 7,
  constant = 8,
  device = 9,
  shares_version = 10,
  fields_ = 11,
};
}  // namespace slot_row

namespace cuda_arg_row {
enum {
  kind = 0,
  index = 1,
  value = 2,
  fields_ = 3,
};
}  // namespace cuda_arg_row

namespace cuda_form_row {
enum {
  name = 0,
  image = 1,
  entry = 2,
  warps = 3,
  shared = 4,
  align = 5,
  index_bits = 6,
  fits = 7,
  limit = 8,
  waits = 9,
  fields_ = 10,
};
}  // namespace cuda_form_row

namespace cuda_launch_row {
enum {
  grid = 0,
  args = 1,
  forms = 2,
  fields_ = 3,
};
}  // namespace cuda_launch_row

namespace cell_row {
enum {
  kind = 0,
  payload = 1,
  fields_ = 2,
};
}  // namespace cell_row

namespace blas_row {
enum {
  out = 0,
  bias = 1,
  a = 2,
  b = 3,
  beta = 4,
  alpha = 5,
  batched = 6,
  rows = 7,
  fields_ = 8,
};
}  // namespace blas_row

namespace call_row {
enum {
  name = 0,
  overload = 1,
  route = 2,
  cells = 3,
  results = 4,
  returns = 5,
  tensors = 6,
  shim = 7,
  blas = 8,
  make = 9,
  python_slots = 10,
  python_values = 11,
  replayable = 12,
  written = 13,
  apart = 14,
  fields_ = 15,
};
}  // namespace call_row

namespace output_row {
enum {
  kind = 0,
  number = 1,
  fields_ = 2,
};
}  // namespace output_row

namespace release_row {
enum {
  step = 0,
  slots = 1,
  fields_ = 2,
};
}  // namespace release_row

namespace program_row {
enum {
  name = 0,
  values = 1,
  key = 2,
  slots = 3,
  positions = 4,
  held_slots = 5,
  held = 6,
  labels = 7,
  arena = 8,
  steps = 9,
  calls = 10,
  outputs = 11,
  exclusive = 12,
  device = 13,
  alarms = 14,
  out_of_memory = 15,
  releases = 16,
  describe = 17,
  visible = 18,
  fields_ = 19,
};
}  // namespace program_row

}  // namespace opmill
