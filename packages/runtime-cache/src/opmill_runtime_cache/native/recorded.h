// Kernels that a library starts, recorded once and started again without it. cuBLASLt takes 6 to 8 us on the host for a product, starting the same kernel
// with the same parameters 4. The parameters hold addresses, so a recording is good for those it was made with.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "torch_api.h"

namespace opmill {

// What was started, as nodes of a CUDA graph: it keeps the parameters.
class Recorded {
 public:
  using Issue = std::function<bool(void* stream)>;
  // Of what `issue` starts in the stream it is given, without running it; the device's context is current. nullptr where that is more than kernels and
  // fillings of memory one after the other, or the driver cannot tell. The stream is one of ours that stands for `stream`: memory that torch takes for it comes back to
  // recordings for the same stream alone, in whose order all that uses it runs. Whoever waits for the whole device meanwhile gets an error from the driver: the
  // caller sees to it that nobody does.
  static std::unique_ptr<Recorded> of(int device, void* stream, const Issue& issue);
  Recorded() = default;
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  ~Recorded();

  bool start(void* stream) const;  // whether all of it was started
  void* stream() const { return stream_; }  // of ours, that it was recorded in
  // Whether one of the fillings is of memory in these bytes.
  bool fills(const void* data, size_t bytes) const;

 private:
  struct Node;
  bool read(void* node);
  void *graph_ = nullptr, *stream_ = nullptr;
  std::vector<Node> nodes_;
};

// The recordings of one step of an instance. Addresses that come twice are recorded: memory comes from torch's allocator, which in a program that
// repeats itself mostly gives the same again.
class Recordings {
 public:
  using Addresses = std::array<const void*, 6>;
  struct Entry {
    explicit Entry(const Addresses& of) : addresses(of) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    const Addresses addresses;
    bool tried = false;
    std::unique_ptr<Recorded> recorded;
    // Keeps what an operator allocated while it was recorded, and its kernels use each time they are started; false where recordings of all plans would
    // then keep too much.
    bool keep(std::vector<Handle> made, int64_t bytes);
    void drop();  // the recording, and what it keeps
    const std::vector<Handle>& results() const { return results_; }

   private:
    std::vector<Handle> results_;
    int64_t bytes_ = 0;
  };
  // What is known of these addresses, nullptr when they come for the first time (they are known from then on).
  Entry* find(const Addresses& addresses);
  // Whether it is time to record an entry. Never while the stream is captured by somebody.
  bool due(Entry& entry, void* stream);

 private:
  static constexpr size_t kEntries = 4;
  static constexpr int kMost = 64;  // recordings in all: a step whose addresses wander is not worth the next
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t next_ = 0;
  int left_ = kMost;
};

// Whether somebody captures what is started in the stream; true where the driver cannot tell.
bool is_captured(void* stream);

}  // namespace opmill
