// An instance: everything of a program that is fixed once its sizes are: the values, where slots lie, tensors over the arena. One call at
// a time uses an instance, with a block of memory for its arena; the pool keeps instances and blocks that are not in use. Instances of
// different sizes take turns with one block, so that memory grows with the largest call and not with the number of sizes.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "cublas.h"
#include "gemm.h"
#include "program.h"

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

// Memory for arenas. On a GPU it comes from torch's allocator and goes back there after each call: that one knows of streams, and other
// programs share it. It mostly gives the same address again, which is then the block's number.
struct Block {
  static std::unique_ptr<Block> allocate(int64_t bytes, int device);  // nullptr where there is none
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  char* data = nullptr;
  int64_t bytes = 0;
  uint64_t number = 0;  // never used twice, or on a GPU the address
  Handle tensor = nullptr;
};

struct Instance {
  Instance() = default;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();

  std::vector<int64_t> key, values;
  int64_t bytes = 0;             // of the arena
  std::unique_ptr<Block> block;  // while a call runs
  uint64_t placed_on = 0;        // number of the block that slots and tensors point into
  std::vector<SlotState> slots;
  std::vector<std::vector<int64_t>> sizes, strides;  // by slot, of those known and not late
  std::vector<int64_t> byte_offset;                  // by slot: from the root's first element (arena: from the arena)
  std::vector<char> needs_tensor;                    // by slot
  std::vector<Gemm> gemms;                           // by call
  std::vector<std::shared_ptr<CudaGemm>> cuda_gemms;  // by call; products of one geometry share one
  size_t workspace = 0;                              // bytes that the largest of them wants
  std::vector<Handle> kept;                          // tensors over the block
  std::vector<HeldView> held_views;                  // by slot: views of held tensors, as of the last call that made them
  double microseconds = -1;                          // of recent calls
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

// Points what lies in the arena into the instance's block, unless it does already.
bool settle(const Program& program, Instance& instance, Failure* failure);

// Points a slot that lies in the arena at its bytes; `handle` gets a new tensor over them where a step needs one.
bool place(const Program& program, Instance& instance, int slot, Handle* handle, Failure* failure);

class Pool {
 public:
  explicit Pool(int64_t max_bytes) : max_bytes_(max_bytes) {}
  // An idle instance of these sizes, rather one whose block is idle too; nullptr where there is none.
  std::unique_ptr<Instance> take(const std::vector<int64_t>& key);
  // Gives the instance a block that is large enough; false with `failure` filled.
  bool provide(const Program& program, Instance& instance, Failure* failure);
  void give(std::unique_ptr<Instance> instance);
  int64_t bytes();
  size_t size();

 private:
  using Blocks = std::list<std::unique_ptr<Block>>;
  static constexpr size_t kMaxIdle = 64;
  std::unique_ptr<Block> remove(Blocks::iterator at);
  Blocks::iterator find(uint64_t number);
  std::mutex mutex_;
  std::list<std::unique_ptr<Instance>> idle_;  // most recently used first, as are the blocks
  Blocks blocks_;
  int64_t max_bytes_, bytes_ = 0;
};

}  // namespace opmill
