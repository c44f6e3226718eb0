// Invokers of torch's C shims. A signature is a string of one letter per argument; each letter is a type below, which says how
// it appears in the C signature. Results come last in C, as pointers to handles (or to integers, which fill the same word).
#include "shims.h"

#include "cuda.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace opmill {

namespace {

double as_double(int64_t word) {
  double value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

int64_t integer_of(const Cell& cell, const CellSource& source) {
  return cell.kind == CellKind::value ? source.values[cell.index] : cell.word;
}

double double_of(const Cell& cell, const CellSource& source) {
  return cell.kind == CellKind::value ? static_cast<double>(source.values[cell.index]) : as_double(cell.word);
}

bool is_none(const Cell& cell) { return cell.kind == CellKind::word; }  // of an optional argument

// Each type: what C takes (`As`), and how to make it from a cell; `Room` is what must outlive the call.
struct T {  // Tensor
  struct Room {};
  static std::tuple<Handle> make(const Cell& cell, const CellSource& source, Room&) { return {source.tensor(cell)}; }
};
struct O {  // Tensor?
  struct Room {
    Handle handle;
  };
  static std::tuple<Handle*> make(const Cell& cell, const CellSource& source, Room& room) {
    if (is_none(cell)) return {nullptr};
    room.handle = source.tensors[cell.items[0].index];
    return {&room.handle};
  }
};
struct I {  // int
  struct Room {};
  static std::tuple<int64_t> make(const Cell& cell, const CellSource& source, Room&) { return {integer_of(cell, source)}; }
};
struct B {  // bool
  struct Room {};
  static std::tuple<int32_t> make(const Cell& cell, const CellSource& source, Room&) {
    return {static_cast<int32_t>(integer_of(cell, source))};
  }
};
struct F {  // float, and Scalar, which the shims take as double
  struct Room {};
  static std::tuple<double> make(const Cell& cell, const CellSource& source, Room&) { return {double_of(cell, source)}; }
};
struct E {  // float? and Scalar?
  struct Room {
    double value;
  };
  static std::tuple<double*> make(const Cell& cell, const CellSource& source, Room& room) {
    if (is_none(cell)) return {nullptr};
    room.value = double_of(cell.items[0], source);
    return {&room.value};
  }
};
struct X {  // Scalar?[]
  struct Room {
    double values[8];
    const double* items[8];
  };
  static std::tuple<const double**, int64_t> make(const Cell& cell, const CellSource& source, Room& room) {
    const int64_t count = static_cast<int64_t>(cell.items.size());
    for (int64_t i = 0; i < count && i < 8; i++) {
      const bool none = is_none(cell.items[i]);
      if (!none) room.values[i] = double_of(cell.items[i].items[0], source);
      room.items[i] = none ? nullptr : &room.values[i];
    }
    return {room.items, count};
  }
};
struct S {  // str
  struct Room {};
  static std::tuple<const char*> make(const Cell& cell, const CellSource&, Room&) { return {cell.text.c_str()}; }
};
struct Q {  // str?
  struct Room {
    const char* text;
  };
  static std::tuple<const char**> make(const Cell& cell, const CellSource&, Room& room) {
    if (is_none(cell)) return {nullptr};
    room.text = cell.items[0].text.c_str();
    return {&room.text};
  }
};
struct N {  // int?
  struct Room {
    int64_t value;
  };
  static std::tuple<int64_t*> make(const Cell& cell, const CellSource& source, Room& room) {
    if (is_none(cell)) return {nullptr};
    room.value = integer_of(cell.items[0], source);
    return {&room.value};
  }
};
struct L {  // int[]
  struct Room {
    int64_t items[8];
  };
  static std::tuple<const int64_t*, int64_t> make(const Cell& cell, const CellSource& source, Room& room) {
    const int64_t count = static_cast<int64_t>(cell.items.size());
    for (int64_t i = 0; i < count && i < 8; i++) room.items[i] = integer_of(cell.items[i], source);
    return {room.items, count};
  }
};

struct P {  // int[]?
  struct Room {
    L::Room list;
    const int64_t* items;
  };
  static std::tuple<const int64_t**, int64_t> make(const Cell& cell, const CellSource& source, Room& room) {
    if (is_none(cell)) return {nullptr, 0};
    const auto [items, count] = L::make(cell.items[0], source, room.list);
    room.items = items;
    return {&room.items, count};
  }
};
struct M {  // bool[]
  struct Room {
    int32_t items[8];
  };
  static std::tuple<const int32_t*, int64_t> make(const Cell& cell, const CellSource& source, Room& room) {
    const int64_t count = static_cast<int64_t>(cell.items.size());
    for (int64_t i = 0; i < count && i < 8; i++) room.items[i] = static_cast<int32_t>(integer_of(cell.items[i], source));
    return {room.items, count};
  }
};

template <class... Types>
struct Invoke {
  template <int Results>
  static Status call(void* function, const std::vector<Cell>& cells, const CellSource& source, std::vector<Handle>* results) {
    return with(function, cells, source, results, std::index_sequence_for<Types...>{}, std::make_index_sequence<Results>{});
  }

 private:
  template <size_t... Is, size_t... Rs>
  static Status with(void* function, const std::vector<Cell>& cells, const CellSource& source, std::vector<Handle>* results,
                     std::index_sequence<Is...>, std::index_sequence<Rs...>) {
    std::tuple<typename Types::Room...> rooms;
    Handle out[sizeof...(Rs) + 1] = {};
    auto arguments = std::tuple_cat(Types::make(cells[Is], source, std::get<Is>(rooms))..., std::make_tuple(&out[Rs]...));
    const Status status = apply(function, arguments);
    if (status == 0) (results->push_back(out[Rs]), ...);
    return status;
  }

  template <class... Cs>
  static Status apply(void* function, const std::tuple<Cs...>& arguments) {
    return std::apply(reinterpret_cast<Status (*)(Cs...)>(function), arguments);
  }
};

// Signature, then ">" and the number of results.
const std::unordered_map<std::string, Invoker> kInvokers = {
    {"TTT>0", Invoke<T, T, T>::call<0>},                 // mm, bmm
    {"TTTTFF>0", Invoke<T, T, T, T, F, F>::call<0>},     // addmm, baddbmm
    {"TTF>1", Invoke<T, T, F>::call<1>},                 // add
    {"TF>1", Invoke<T, F>::call<1>},                     // mul by a scalar
    {"TFF>1", Invoke<T, F, F>::call<1>},                 // add a scalar
    {"FT>1", Invoke<F, T>::call<1>},                     // scalar to the power of a tensor
    {"TTB>0", Invoke<T, T, B>::call<0>},                 // copy_
    {"TTOLLLBLI>1", Invoke<T, T, O, L, L, L, B, L, I>::call<1>},  // convolution
    {"TTTFBOE>2", Invoke<T, T, T, F, B, O, E>::call<2>},          // attention
    {"TLLLLB>2", Invoke<T, L, L, L, L, B>::call<2>},              // max_pool2d_with_indices
    {"TLLLBBN>1", Invoke<T, L, L, L, B, B, N>::call<1>},          // avg_pool2d
    {"TF>0", Invoke<T, F>::call<0>},                              // fill_
    {"TTOLLLISXQ>1", Invoke<T, T, O, L, L, L, I, S, X, Q>::call<1>},              // mkldnn convolution with an activation
    {"TTTOLLLISEQXQ>1", Invoke<T, T, T, O, L, L, L, I, S, E, Q, X, Q>::call<1>},  // and an addend, fresh or in place
    {"TTOSXQ>1", Invoke<T, T, O, S, X, Q>::call<1>},                              // mkldnn linear with an activation
    {"TL>1", Invoke<T, L>::call<1>},                              // _adaptive_avg_pool2d
    {"TTTFBBE>9", Invoke<T, T, T, F, B, B, E>::call<9>},          // flash attention: of its results two are integers
    {"TTTOBFBE>4", Invoke<T, T, T, O, B, F, B, E>::call<4>},      // memory-efficient attention
    {"TTTOBFBBE>9", Invoke<T, T, T, O, B, F, B, B, E>::call<9>},  // cuDNN's attention
    {"TTTTTTFBOE>3", Invoke<T, T, T, T, T, T, F, B, O, E>::call<3>},                                 // backward of attention
    {"TTTTTTTTIIFBTTE>3", Invoke<T, T, T, T, T, T, T, T, I, I, F, B, T, T, E>::call<3>},             // of flash attention
    {"TTTTTTTTTFMBE>4", Invoke<T, T, T, T, T, T, T, T, T, F, M, B, E>::call<4>},                     // of memory-efficient attention
    {"TTTTTTTTTTTIIFBE>3", Invoke<T, T, T, T, T, T, T, T, T, T, T, I, I, F, B, E>::call<3>},         // of cuDNN's attention
    {"TTTPLLLBLIM>3", Invoke<T, T, T, P, L, L, L, B, L, I, M>::call<3>},                             // of convolution
};

}  // namespace

bool find_shim(const char* symbol, const char* signature, ShimCall* shim) {
  const auto found = kInvokers.find(signature);
  void* function = dlsym(api.library, symbol);
  if (!function && cuda_library()) function = dlsym(cuda_library(), symbol);
  if (found == kInvokers.end() || !function) return false;
  *shim = {function, found->second};
  return true;
}

}  // namespace opmill
