#include "torch_api.h"

#include <dlfcn.h>

#include <exception>

namespace opmill {

TorchApi api;
int32_t dtype_code[kDtypes];
const int64_t dtype_bytes[kDtypes] = {1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 8, 16, 1, 1};

namespace {

const char* const kDtypeGetters[kDtypes] = {"aoti_torch_dtype_bool",          "aoti_torch_dtype_uint8",      "aoti_torch_dtype_int8",
                                            "aoti_torch_dtype_int16",         "aoti_torch_dtype_int32",      "aoti_torch_dtype_int64",
                                            "aoti_torch_dtype_uint16",        "aoti_torch_dtype_uint32",     "aoti_torch_dtype_uint64",
                                            "aoti_torch_dtype_float16",       "aoti_torch_dtype_bfloat16",   "aoti_torch_dtype_float32",
                                            "aoti_torch_dtype_float64",       "aoti_torch_dtype_complex64",  "aoti_torch_dtype_complex128",
                                            "aoti_torch_dtype_float8_e4m3fn", "aoti_torch_dtype_float8_e5m2"};

struct Symbol {
  void* target;
  const char* name;
  bool required;
};

}  // namespace

std::string count_write(Handle tensor) {
  if (!api.bump_version) return "";
  try {
    api.bump_version(tensor);
  } catch (const std::exception& error) {
    const std::string text = error.what();  // torch says next where in its sources
    return text.substr(0, text.find("\nException raised from"));
  } catch (...) { return "torch refuses that a tensor is written"; }
  return "";
}

Warnings::Warnings() : listens_(api.listen && api.listened) {
  if (listens_) api.listen(room_);
}

bool Warnings::give() {
  if (!listens_) return true;
  listens_ = false;
  try {
    api.listened(room_);
  } catch (...) { return false; }
  return true;
}

int dtype_index(int32_t code) {
  for (int i = 0; i < kDtypes; i++)
    if (dtype_code[i] == code) return i;
  return -1;
}

const char* load_torch(const char* libtorch_cpu, const char* libtorch_python) {
  void* cpu = dlopen(libtorch_cpu, RTLD_NOW | RTLD_NOLOAD);
  if (!cpu) return "libtorch_cpu";
  void* python = dlopen(libtorch_python, RTLD_NOW | RTLD_NOLOAD);
  if (!python) return "libtorch_python";
  api.library = cpu;
  const Symbol symbols[] = {
      {&api.get_data_ptr, "aoti_torch_get_data_ptr", true},
      {&api.get_dim, "aoti_torch_get_dim", true},
      {&api.get_sizes, "aoti_torch_get_sizes", true},
      {&api.get_strides, "aoti_torch_get_strides", true},
      {&api.get_size, "aoti_torch_get_size", true},
      {&api.get_dtype, "aoti_torch_get_dtype", true},
      {&api.get_device_type, "aoti_torch_get_device_type", true},
      {&api.get_device_index, "aoti_torch_get_device_index", true},
      {&api.item, "aoti_torch_item_int64", true},
      {&api.get_storage_offset, "aoti_torch_get_storage_offset", true},
      {&api.get_storage_size, "aoti_torch_get_storage_size", true},
      {&api.empty_strided, "aoti_torch_empty_strided", true},
      {&api.from_blob, "aoti_torch_create_tensor_from_blob", true},
      {&api.reinterpret, "aoti_torch__reinterpret_tensor", true},
      {&api.view_dtype, "aoti_torch_cpu_view_dtype", true},
      {&api.clone, "aoti_torch_clone", true},
      {&api.new_handle, "aoti_torch_new_tensor_handle", true},
      {&api.delete_handle, "aoti_torch_delete_tensor_object", true},
      {&api.grad_enabled, "aoti_torch_grad_mode_is_enabled", true},
      {&api.set_grad_enabled, "aoti_torch_grad_mode_set_enabled", true},
      {&api.call_dispatcher, "torch_call_dispatcher", true},
      {&api.new_list, "torch_new_list_reserve_size", true},
      {&api.list_push, "torch_list_push_back", true},
      {&api.list_size, "torch_list_size", true},
      {&api.list_get, "torch_list_get_item", true},
      {&api.delete_list, "torch_delete_list", true},
      {&api.get_num_threads, "torch_get_num_threads", true},
      {&api.abi_version, "aoti_torch_abi_version", true},
      {&api.new_string, "torch_new_string_handle", false},
      {&api.new_stable_value, "torch_new_stable_ivalue", false},
      {&api.new_undefined, "aoti_torch_new_uninitialized_tensor", false},
      {&api.bump_version, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", false},
      {&api.version, "_ZNK2at10TensorBase8_versionEv", false},
      {&api.requires_grad, "_ZNK3c1010TensorImpl13requires_gradEv", false},
      {&api.profiler_enabled, "_ZN5torch8profiler4impl15profilerEnabledEv", false},
      {&api.record_start, "aoti_record_function_start", false},
      {&api.record_end, "aoti_record_function_end", false},
      {&api.tensor_value, "aoti_torch_tensor_to_ivalue", false},
      {&api.delete_value, "aoti_torch_delete_c10_value_object", false},
  };
  for (const Symbol& symbol : symbols) {
    void* found = dlsym(cpu, symbol.name);
    if (!found && symbol.required) return symbol.name;
    *static_cast<void**>(symbol.target) = found;
  }
  *reinterpret_cast<void**>(&api.wrap) = dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
  if (!api.wrap) return "THPVariable_Wrap";
  *reinterpret_cast<void**>(&api.listen) = dlsym(python, "_ZN5torch16PyWarningHandlerC1Ev");
  *reinterpret_cast<void**>(&api.listened) = dlsym(python, "_ZN5torch16PyWarningHandlerD1Ev");
  for (int i = 0; i < kDtypes; i++) {
    auto getter = reinterpret_cast<int32_t (*)()>(dlsym(cpu, kDtypeGetters[i]));
    if (!getter) return kDtypeGetters[i];
    dtype_code[i] = getter();
  }
  return nullptr;
}

}  // namespace opmill
