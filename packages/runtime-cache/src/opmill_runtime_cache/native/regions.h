// What a profiler is told of a call while one runs: the labels that the program put around its operators, and each kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "instance.h"

namespace opmill {

// Steps [begin, end) under one name. `depth`: how many are around one of the program's labels, which Python opens;
// -1: a kernel, or an operator called past the dispatcher.
struct Region {
  int begin = 0, end = 0;
  int depth = -1;
  PyObject* python_name = nullptr;  // borrowed
  std::string name;
  std::vector<int> slots;  // tensors that it is shown with
};

// All regions of a program: those that begin first come first, and of these the longest.
struct Regions {
  Regions() = default;
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;
  ~Regions() { Py_XDECREF(source); }  // with the GIL

  PyObject* source = nullptr;  // owned: what they were read from
  PyObject *enter = nullptr, *leave = nullptr;  // borrowed: name -> record, record -> None
  std::vector<Region> all;
};

// Whether a profiler watches this thread.
inline bool is_profiled() { return api.profiler_enabled && api.profiler_enabled(); }

// The regions of a program, made by `program.describe` when they are first asked for; nullptr where they cannot be had. With the GIL.
const Regions* regions_of(Program& program);

// The regions that are open while a call runs.
class Watch {
 public:
  Watch(const Regions& regions, const Program& program, const Instance& instance, PyThreadState** released)
      : regions_(regions), program_(program), instance_(instance), released_(released) {}
  ~Watch() { close_until(-1); }

  void before(int step, const std::vector<SlotState>& slots);
  void after(int step) { close_until(step + 1); }

 private:
  struct Open {
    int end, depth;
    PyObject* record;  // owned; of a label
    void* function;  // torch's, of others
  };
  void open(const Region& region, const std::vector<SlotState>& slots);
  void open_label(const Region& region);
  void close_depth(int depth);  // labels that are not around one of that depth
  void close_until(int step);  // those that end before it; -1: all
  void close(const Open& open);

  const Regions& regions_;
  const Program& program_;
  const Instance& instance_;
  PyThreadState** released_;  // of the run: nullptr while it has the GIL
  size_t next_ = 0;
  std::vector<Open> open_;
};

}  // namespace opmill
