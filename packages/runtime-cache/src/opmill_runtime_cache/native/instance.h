// An instance: everything of a program that is fixed once its sizes are: the values, where slots lie, tensors over the arena. One call at
// a time uses an instance, with a block of memory for its arena; a pool keeps the instances that are not in use, and the process such blocks.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cublas.h"
#include "gemm.h"
#include "program.h"
#include "recorded.h"
#include "grouped_gemm.h"

namespace opmill {

struct SlotState {
  void* data = nullptr;
  Handle handle = nullptr;
  int dtype = -1;
  bool owned = false;  // the handle belongs to the running call
};

// A view of a held tensor, good while that tensor is the same and its memory stays where it was.
struct HeldView {
  Handle view = nullptr;  // owned
  Handle root = nullptr;
  void* data = nullptr;
  int64_t storage_bytes = 0;
};

// Memory for arenas. On a device it comes from torch's allocator and goes back there after each call: that one knows of streams, and other
// programs share it. It mostly gives the same address again, which is then the block's number.
struct Block {
  static std::unique_ptr<Block> allocate(int64_t bytes, int device);  // nullptr where there is none
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  char* data = nullptr;
  int64_t bytes = 0;
  uint64_t number = 0;  // never used twice, or on a device the address
  Handle tensor = nullptr;
};

struct Instance {
  Instance() = default;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();

  std::vector<int64_t> key, values;
  int64_t bytes = 0;  // of the arena
  std::unique_ptr<Block> block;  // while a call runs
  uint64_t placed_on = 0;  // number of the block that slots and tensors point into
  std::vector<SlotState> slots;
  std::vector<std::vector<int64_t>> sizes, strides;  // by slot, of those known and not late
  std::vector<int64_t> byte_offset;  // by slot: from the root's first element (arena: from the arena)
  std::vector<int64_t> span;  // by slot: elements from the first to behind the last
  std::vector<char> unbounded;  // by slot: views that reach beyond what is known of their root; their storage is asked in each call
  std::vector<char> needs_tensor;  // by slot
  std::vector<Gemm> gemms;  // by call
  std::vector<std::shared_ptr<CudaGemm>> cuda_gemms;  // by call; products of one geometry share one
  size_t workspace = 0;  // bytes that the largest of them wants
  std::vector<GroupedGemm> groups;  // by call: those that start with it
  std::vector<Recordings> recordings;  // by call: of products on GPUs
  std::vector<Handle> kept;  // tensors over the block
  bool shares_block = false;  // they hold its memory: they go when it does
  std::vector<HeldView> held_views;  // by slot: views of held tensors, as of the last call that made them
  double microseconds = -1;  // of recent calls
  uint32_t calls = 0;
};

// What went wrong, to be raised once the GIL is held.
struct Failure {
  PyObject* type = nullptr;  // borrowed; nullptr: a Python exception is already set
  std::string code, message;
  bool set = false;
};

// Builds an instance for the values of the key; nullptr with `failure` filled.
std::unique_ptr<Instance> make_instance(const Program& program, const std::vector<int64_t>& key, Failure* failure);

// Elements from the first to behind the last of a tensor of these sizes and strides.
int64_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

// Fills sizes, strides and byte offset of a slot from the values.
bool resolve_slot(const Program& program, Instance& instance, int slot, Failure* failure);

// Fills the byte offset of a view of elements of this type.
bool offset_view(const Program& program, Instance& instance, int slot, int dtype, Failure* failure);

// Points what lies in the arena into the instance's block, unless it does already.
bool settle(const Program& program, Instance& instance, Failure* failure);

// Points a slot that lies in the arena at its bytes; `handle` gets a new tensor over them where a step needs one.
bool place(const Program& program, Instance& instance, int slot, Handle* handle, Failure* failure);

// The process's memory for arenas that no call uses. Plans that run one after the other work in the same memory, the forward and the backward of
// a model for one: there is as much of it as the largest needs that run at once, while its plan lives.
class Arenas {
 public:
  static Arenas& shared();
  // The block of that number if it is idle, else the smallest that is large enough, else a new one; nullptr where there is none.
  std::unique_ptr<Block> take(uint64_t number, int64_t bytes);
  void give(std::unique_ptr<Block> block);
  bool has(uint64_t number);
  // A plan that wants `now` bytes, and wanted `before`, lives; with no bytes any more, it is gone.
  void want(int64_t before, int64_t now);
  int64_t bytes();

 private:
  using Blocks = std::list<std::unique_ptr<Block>>;
  static constexpr int64_t kMaxBytes = int64_t{2} << 30;  // kept beyond the first block
  Blocks::iterator find(uint64_t number);
  std::unique_ptr<Block> remove(Blocks::iterator at);
  std::mutex mutex_;
  Blocks blocks_;  // most recently used first
  int64_t bytes_ = 0;
  std::multiset<int64_t> wanted_;
};

// The idle instances of one program.
class Pool {
 public:
  ~Pool() { Arenas::shared().want(largest_, 0); }
  // An idle instance of these sizes, rather one whose block is idle too; nullptr where there is none.
  std::unique_ptr<Instance> take(const std::vector<int64_t>& key);
  // Gives the instance a block that is large enough; false with `failure` filled.
  bool provide(const Program& program, Instance& instance, Failure* failure);
  void give(std::unique_ptr<Instance> instance);
  int64_t largest();
  size_t size();

 private:
  static constexpr size_t kMaxIdle = 64;
  std::mutex mutex_;
  std::list<std::unique_ptr<Instance>> idle_;  // most recently used first
  int64_t largest_ = 0;  // bytes that an instance wanted
};

}  // namespace opmill
