#include "recorded.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda.h"
#include "symbols.h"

namespace opmill {

namespace {

using Result = int;  // CUresult

constexpr int kRelaxed = 2;            // CU_STREAM_CAPTURE_MODE_RELAXED: what other threads do meanwhile is theirs
constexpr unsigned kNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
constexpr int kKernelNode = 0, kFillNode = 2;  // CU_GRAPH_NODE_TYPE_KERNEL and MEMSET
// Attributes that a kernel is started with: cooperative, cluster dimension, its scheduling, preferred cluster dimension, share of shared memory.
constexpr int kAttributes[] = {2, 4, 5, 11, 14};

// CUlaunchAttribute.
struct Attribute {
  int id = 0;
  alignas(8) unsigned char value[64] = {};
};
static_assert(sizeof(Attribute) == 72);

// CUlaunchConfig.
struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct Parameters {
  void* function;
  unsigned grid[3], block[3], shared;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};

// CUDA_MEMSET_NODE_PARAMS.
struct Filling {
  uint64_t address;
  size_t pitch;
  unsigned value, element_size;
  size_t width, height;
};

struct Driver {
  Result (*stream_create)(void**, unsigned) = nullptr;
  Result (*capturing)(void*, int*) = nullptr;
  Result (*begin)(void*, int) = nullptr;
  Result (*end)(void*, void**) = nullptr;
  Result (*nodes)(void*, void**, size_t*) = nullptr;
  Result (*roots)(void*, void**, size_t*) = nullptr;
  Result (*dependents)(void*, void**, size_t*) = nullptr;
  Result (*node_type)(void*, int*) = nullptr;
  Result (*parameters)(void*, Parameters*) = nullptr;
  Result (*attribute)(void*, int, void*) = nullptr;
  Result (*filling)(void*, Filling*) = nullptr;
  Result (*fill_bytes)(uint64_t, unsigned char, size_t, void*) = nullptr;
  Result (*fill_words)(uint64_t, unsigned, size_t, void*) = nullptr;
  Result (*destroy)(void*) = nullptr;
  Result (*launch)(const Config*, void*, void**, void**) = nullptr;
};

// The driver's functions; `launch` is null where it lacks one.
const Driver& driver() {
  static const Driver found = [] {
    Driver made;
    const bool whole = cuda_driver() && !find_symbols(cuda_driver(), {
                                                                         {&made.stream_create, "cuStreamCreate"},
                                                                         {&made.capturing, "cuStreamIsCapturing"},
                                                                         {&made.begin, "cuStreamBeginCapture_v2"},
                                                                         {&made.end, "cuStreamEndCapture"},
                                                                         {&made.nodes, "cuGraphGetNodes"},
                                                                         {&made.roots, "cuGraphGetRootNodes"},
                                                                         {&made.dependents, "cuGraphNodeGetDependentNodes"},
                                                                         {&made.node_type, "cuGraphNodeGetType"},
                                                                         {&made.parameters, "cuGraphKernelNodeGetParams_v2"},
                                                                         {&made.attribute, "cuGraphKernelNodeGetAttribute"},
                                                                         {&made.filling, "cuGraphMemsetNodeGetParams"},
                                                                         {&made.fill_bytes, "cuMemsetD8Async"},
                                                                         {&made.fill_words, "cuMemsetD32Async"},
                                                                         {&made.destroy, "cuGraphDestroy"},
                                                                         {&made.launch, "cuLaunchKernelEx"},
                                                                     });
    return whole ? made : Driver{};
  }();
  return found;
}

std::mutex mutex;  // one recording at a time
constexpr int kMostAlive = 8192;  // some KiB of the host's memory each
std::atomic<int> alive{0};

// The stream of ours that stands for another; nothing ever runs in it.
void* stream_of(int device, void* other) {
  static std::map<std::pair<int, void*>, void*> known;
  void*& stream = known[{device, other}];
  if (!stream && driver().stream_create(&stream, kNonBlocking)) stream = nullptr;
  return stream;
}

}  // namespace

struct Recorded::Node {
  bool is_kernel = true;
  Parameters kernel{};
  std::vector<Attribute> attributes;
  Filling filling{};
};

std::unique_ptr<Recorded> Recorded::of(int device, void* other, const Issue& issue) {
  if (!driver().launch) return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  void* stream = stream_of(device, other);
  if (!stream || driver().begin(stream, kRelaxed)) return nullptr;
  auto made = std::make_unique<Recorded>();
  alive++;
  made->stream_ = stream;
  const bool issued = issue(stream);
  if (driver().end(stream, &made->graph_) || !issued) return nullptr;
  // Along the chain from the one root: each node has at most one behind it.
  size_t all = 0, count = 1;
  void* node = nullptr;
  if (driver().nodes(made->graph_, nullptr, &all) || !all || driver().roots(made->graph_, &node, &count) || count != 1) return nullptr;
  for (size_t i = 0; i < all; i++) {
    if (!made->read(node)) return nullptr;
    size_t behind = 0;
    if (driver().dependents(node, nullptr, &behind) || behind != (i + 1 < all ? 1u : 0u)) return nullptr;
    void* before = node;
    if (behind && driver().dependents(before, &node, &behind)) return nullptr;
  }
  return made;
}

bool Recorded::read(void* node) {
  int type = -1;
  Node read;
  if (driver().node_type(node, &type)) return false;
  if (type == kFillNode) {
    read.is_kernel = false;
    if (driver().filling(node, &read.filling) || read.filling.height != 1 ||
        (read.filling.element_size != 1 && read.filling.element_size != 4))
      return false;
    nodes_.push_back(std::move(read));
    return true;
  }
  if (type != kKernelNode || driver().parameters(node, &read.kernel)) return false;
  if (!read.kernel.function)
    read.kernel.function = read.kernel.kernel;  // one of a library that is loaded lazily; the driver takes it as well
  for (int id : kAttributes) {
    Attribute attribute;
    attribute.id = id;
    const Attribute unset = attribute;
    if (driver().attribute(node, id, attribute.value) == 0 && std::memcmp(attribute.value, unset.value, sizeof unset.value) != 0)
      read.attributes.push_back(attribute);
  }
  nodes_.push_back(std::move(read));
  return true;
}

bool Recorded::start(void* stream) const {
  for (const Node& node : nodes_) {
    const Filling& filling = node.filling;
    if (!node.is_kernel) {
      if (filling.element_size == 1 ? driver().fill_bytes(filling.address, static_cast<unsigned char>(filling.value), filling.width, stream)
                                    : driver().fill_words(filling.address, filling.value, filling.width, stream))
        return false;
      continue;
    }
    const Parameters& kernel = node.kernel;
    const Config config = {{kernel.grid[0], kernel.grid[1], kernel.grid[2]},
                           {kernel.block[0], kernel.block[1], kernel.block[2]},
                           kernel.shared,
                           stream,
                           node.attributes.data(),
                           static_cast<unsigned>(node.attributes.size())};
    if (driver().launch(&config, kernel.function, kernel.parameters, kernel.parameters ? nullptr : kernel.extra)) return false;
  }
  return true;
}

bool Recorded::fills(const void* data, size_t bytes) const {
  const uint64_t first = reinterpret_cast<uint64_t>(data);
  for (const Node& node : nodes_)
    if (!node.is_kernel && node.filling.address >= first &&
        node.filling.address + node.filling.width * node.filling.element_size <= first + bytes)
      return true;
  return false;
}

Recorded::~Recorded() {
  if (stream_) alive--;
  if (graph_) driver().destroy(graph_);
}

namespace {

constexpr int64_t kMostKept = 256 << 20;
std::atomic<int64_t> kept{0};  // bytes, by the recordings of all plans

}  // namespace

bool Recordings::Entry::keep(std::vector<Handle> made, int64_t bytes) {
  results_ = std::move(made);
  bytes_ = bytes;
  return kept.fetch_add(bytes) + bytes <= kMostKept;
}

void Recordings::Entry::drop() {
  recorded.reset();
  kept -= std::exchange(bytes_, 0);
  for (Handle handle : results_)
    if (handle) api.delete_handle(handle);
  results_.clear();
}

Recordings::Entry::~Entry() { drop(); }

Recordings::Entry* Recordings::find(const Addresses& addresses) {
  for (const auto& entry : entries_)
    if (entry->addresses == addresses) return entry.get();
  if (entries_.size() < kEntries) entries_.emplace_back();
  entries_[next_++ % kEntries] = std::make_unique<Entry>(addresses);
  return nullptr;
}

bool Recordings::due(Entry& entry, void* stream) {
  if (entry.tried || left_ <= 0 || alive >= kMostAlive || is_captured(stream)) return false;
  entry.tried = true;
  left_--;
  return true;
}

bool is_captured(void* stream) {
  int found = 1;
  return !driver().launch || driver().capturing(stream, &found) || found;
}

}  // namespace opmill
