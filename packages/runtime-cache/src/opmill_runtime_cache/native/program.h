// A plan as the executor wants it: what `executor/program.py` lowers a Plan to. Python objects in here are borrowed from the tuple
// that the program was read from.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda.h"
#include "layout.h"
#include "packed.h"
#include "shims.h"
#include "torch_api.h"
#include "values.h"

namespace opmill {

struct SlotInfo {
  SlotKind kind;
  int dtype;                       // index into DTYPES, -1 where only the tensor itself knows
  bool known;                      // sizes and strides are known
  std::vector<int> sizes, strides;  // values
  int offset;                      // value: bytes in the arena, or elements from the base
  int base;                        // of a view; position of an input or held tensor
  int root;                        // the slot whose storage this is
  bool late;                       // depends on late values
  bool shares_version;             // a view that must share its base's version counter
  int device = -1;                 // see device_type
  bool wants_data = false;         // some step reads its data pointer
  bool exclusive = false;          // an input whose memory must not meet that of other inputs
  Handle constant = nullptr;
};

struct FailureText {
  PyObject* type;
  std::string message;
};

struct Step {
  StepKind kind{};
  int a = -1, b = -1, c = -1;
  int64_t (*kernel)(void* const*, const int64_t*) = nullptr;
  std::vector<int> slots, values, bumps;
  std::vector<int> needs, dtypes;  // of a launch, by slot: the value of how many elements it touches, and their type; or empty
  int floor = -1;     // value that must not be negative
  std::vector<int> apart;  // of a launch: positions in `slots` by twos, whose memory may not overlap, and 1 where it may be the same
  bool late = false;  // its bounds are known only while a call runs
  std::vector<FailureText> failures;
  std::vector<CudaLaunch>
      launches;  // of a launch on CUDA device `a` (-1: memory of the CPU, that device 0 reaches); `b`: value, bytes of scratch; `c`: what a failing first check reports
};

struct BlasCall {
  bool present = false;
  int out = -1, bias = -1, a = -1, b = -1;
  double beta = 0, alpha = 1;
  bool batched = false;
  int rows = 0;  // of `a`, where `b` stays and is to be packed for products of so many
};

// Slots whose memory may not overlap, unless they may be the same tensor and are.
struct Apart {
  int a, b;
  bool same;
};

struct CallInfo {
  std::string name, overload;
  Route route = Route::python;
  std::vector<Cell> cells;
  std::vector<int> results;  // slots, -1 for dropped ones
  std::vector<int> returns;  // per result of the schema: 0 a tensor, 1 a list of tensors, 2 an integer
  std::vector<int> tensors;  // slots of which the call needs a tensor
  std::vector<int> written;  // slots that the operator writes
  std::vector<Apart> apart, apart_late;  // decided before a call, and while it runs
  ShimCall shim;
  BlasCall blas;
  bool replayable = false;  // what it starts depends on nothing but where its tensors lie
  bool trusts = false;  // takes the dimensions that it is told for its tensor's without a look
  PyObject* make_python;  // () -> callable(*tensors, *sizes) -> tuple
  std::vector<int> python_slots, python_values;
  PyObject* python = nullptr;  // owned; made when first needed
};

struct KeyPart {
  int input;  // position of a size input, or -1
  int tensor, dim;  // position of a call input, or -1 - position of a held tensor; its size in `dim`, or its stride in -1 - `dim`
  int value;
};

struct Regions;

struct Program {
  std::string name;
  std::vector<Value> values;
  std::vector<KeyPart> key;
  std::vector<SlotInfo> slots;
  std::vector<int> inputs;  // per call input: its slot, or -1 for a size
  std::vector<int> held_slots;  // per held tensor
  std::vector<PyObject*> held;  // borrowed
  std::vector<std::string> labels;  // per slot: what messages call it
  int arena = -1;  // value: bytes
  std::vector<Step> steps;
  std::vector<CallInfo> calls;
  int device = -1;  // of the arena
  int cuda = -1;  // the first CUDA device there is
  std::vector<FailureText> alarms;  // what kernels on it may report, in the order of the steps; the first is reported by the largest number
  PyObject* out_of_memory = nullptr;  // borrowed; the type that is raised when there is no more memory on a device
  bool exclusive = false;  // whether an input's memory must not meet that of others
  std::vector<std::pair<int, int>> outputs;  // (0 slot | 1 value | 2 None, number)
  std::vector<std::pair<int, std::vector<int>>>
      releases;  // steps in order, with slots of inputs (and views of them) that none after them uses
  PyObject* describe = nullptr;  // borrowed: () -> what a profiler is told, see `regions.cpp`
  size_t visible = 0;  // the first step that outsiders see; a run that fails behind it is not to be made again
  bool timed = false;  // whether calls that begin now add to `clock`
  std::vector<double> clock;  // microseconds of each step in all calls; empty until somebody asks
  std::unique_ptr<PackedMatrices> packed = std::make_unique<PackedMatrices>();  // of its held tensors
  std::shared_ptr<Regions> regions;  // once a profiler has watched a call; with the GIL
};

// Reads the tuple of `executor/program.py`; false with a Python exception set.
bool read_program(PyObject* tuple, Program* program);

}  // namespace opmill
