// One call of a program while it runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance.h"
#include "regions.h"

namespace opmill {

double now_us();

class Run {
 public:
  Run(Program& program, Instance& instance, CudaAlarm& alarm, bool recording)
      : program_(program),
        instance_(instance),
        alarm_(alarm),
        slots_(instance.slots),
        stream_(program.cuda >= 0 ? cuda_stream(program.cuda) : nullptr),
        recording_(recording) {}
  ~Run() {
    hold_gil();  // an exception passes by
    drop_all();
    if (workspace_) api.delete_handle(workspace_);
  }

  bool inputs(PyObject* const* arguments);
  void give(PyObject* outputs);
  void give_root(int slot, Handle tensor);
  void take(PyObject* list);
  bool steps(bool without_gil, const Regions* regions);
  PyObject* outputs();
  Failure failure;
  bool begun = false;  // a step that failed comes behind what outsiders see, or has written it

 private:
  bool fail(PyObject* type, const char* code, std::string message) {
    failure = {type, code, std::move(message), true};
    return false;
  }
  bool accept(int slot, PyObject* tensor, bool held);
  template <bool kWatched, bool kTimed>
  bool each_step(Watch* watch);
  bool step(const Step& step);
  bool define(int slot);
  bool launch(const Step& step);
  bool launch_cuda(const Step& step);
  bool start(const Step& step, const CudaLaunch& launch, char* scratch);
  bool call(int number);
  bool has_dimensions(const CallInfo& call);
  bool call_python(CallInfo& call);
  bool replay(int number, bool* done);
  bool record(const CallInfo& call, Recordings::Entry& entry);
  std::unique_ptr<Recorded> recorded(const Recorded::Issue& issue);
  bool take_results(const CallInfo& call, const std::vector<Handle>& results);
  bool keep_promise(int slot);
  int shared_with_written() const;
  bool item(int value, int slot);
  bool arithmetic(int value);
  bool gemm(const CallInfo& call, const Gemm& gemm);
  bool cuda_gemm(int number);
  bool cuda_grouped(GroupedGemm& group);
  bool start_product(int number, CudaGemm& gemm, const ProductMemory& memory, const void* a);
  bool provide_workspace(const CudaGemm& gemm);
  char* data_of(int slot) const;
  bool shim_on_blobs(const CallInfo& call);
  bool counted(int slot);
  bool written(int slot);
  void own(int slot, Handle handle);
  bool stays_inside(int slot);
  bool stayed(const CallInfo& call);
  bool reuse_view(int slot, const SlotState& root);
  void keep_view(int slot, const SlotState& root, Handle view);
  void drop(int slot);
  void drop_all();
  void hold_gil();
  std::string differs(int slot, Handle handle) const;

  Program& program_;
  Instance& instance_;
  CudaAlarm& alarm_;
  std::vector<SlotState>& slots_;
  void* stream_;
  const bool recording_;  // the caller's grad mode
  std::vector<int> owned_;
  std::vector<Handle> given_;   // by slot, or empty
  std::vector<int64_t> back_;   // by slot: -1, or what is given is a view of it, whose first element has so many before it
  bool taken_ = false;          // the inputs are ours
  Handle workspace_ = nullptr;  // of matrix products; the next one in the stream may have it
  void* workspace_data_ = nullptr;
  size_t workspace_bytes_ = 0;
  int captured_ = -1;  // whether the stream is captured by somebody, -1 as long as nobody asked
  size_t ahead_ = 0;  // calls that come next and are done already
  PyThreadState* released_ = nullptr;
};

}  // namespace opmill
