"""Symbols of torch's libraries that native code finds by name: C shims, which torch keeps stable, and mangled names, which it does not."""

from __future__ import annotations

from .row import Row, rows

CPU_SYMBOLS: tuple[Row, ...] = (
    *rows(
        "plans run in Python, slowly",
        "aoti_torch_get_data_ptr aoti_torch_get_dim aoti_torch_get_sizes aoti_torch_get_strides aoti_torch_get_size aoti_torch_get_dtype "
        "aoti_torch_get_device_type aoti_torch_get_device_index aoti_torch_item_int64 aoti_torch_get_storage_offset "
        "aoti_torch_get_storage_size "
        "aoti_torch_empty_strided aoti_torch_create_tensor_from_blob aoti_torch__reinterpret_tensor aoti_torch_cpu_view_dtype "
        "aoti_torch_clone "
        "aoti_torch_new_tensor_handle aoti_torch_delete_tensor_object aoti_torch_grad_mode_is_enabled aoti_torch_grad_mode_set_enabled "
        "torch_call_dispatcher torch_new_list_reserve_size torch_list_push_back torch_list_size torch_list_get_item torch_delete_list "
        "torch_get_num_threads aoti_torch_abi_version aoti_torch_dtype_bool aoti_torch_dtype_uint8 aoti_torch_dtype_int8 "
        "aoti_torch_dtype_int16 "
        "aoti_torch_dtype_int32 aoti_torch_dtype_int64 aoti_torch_dtype_uint16 aoti_torch_dtype_uint32 aoti_torch_dtype_uint64 "
        "aoti_torch_dtype_float16 aoti_torch_dtype_bfloat16 aoti_torch_dtype_float32 aoti_torch_dtype_float64 aoti_torch_dtype_complex64 "
        "aoti_torch_dtype_complex128 aoti_torch_dtype_float8_e4m3fn aoti_torch_dtype_float8_e5m2",
        required=True,
    ),
    *rows(
        "operators with strings, or with tensors left out, are called through Python",
        "torch_new_string_handle aoti_torch_new_uninitialized_tensor",
    ),
    *rows("operators with strings, or with tensors left out, are called through Python", "torch_new_stable_ivalue", since=(2, 13)),
    *rows("writes to inputs are told to autograd through Python", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"),
    *rows(
        "profilers see nothing of kernels",
        "_ZN5torch8profiler4impl15profilerEnabledEv aoti_record_function_start aoti_record_function_end aoti_torch_tensor_to_ivalue "
        "aoti_torch_delete_c10_value_object",
    ),
    *rows("weights cannot be frozen: how often a tensor was written to is not known", "_ZNK2at10TensorBase8_versionEv"),
    *rows("whether a tensor requires grad is asked through Python", "_ZNK3c1010TensorImpl13requires_gradEv"),
    *rows(
        "this operator is called through the dispatcher: some microseconds a call",
        "aoti_torch_cpu_mm_out aoti_torch_cpu_addmm_out aoti_torch_cpu_bmm_out aoti_torch_cpu_baddbmm_out aoti_torch_cpu_convolution "
        "aoti_torch_cpu_convolution_backward aoti_torch_cpu_max_pool2d_with_indices aoti_torch_cpu_avg_pool2d "
        "aoti_torch_cpu__adaptive_avg_pool2d "
        "aoti_torch_cpu__linear_pointwise aoti_torch_cpu_mkldnn__convolution_pointwise aoti_torch_cpu_mkldnn__convolution_pointwise_binary "
        "aoti_torch_cpu_add_Scalar aoti_torch_cpu_add_Tensor aoti_torch_cpu_fill__Scalar aoti_torch_cpu_mul_Scalar "
        "aoti_torch_cpu_pow_Scalar "
        "aoti_torch_cpu_pow_Tensor_Scalar aoti_torch_cpu_mkldnn__convolution_pointwise_binary_ "
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu "
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    *rows(
        "this switch is read through Python at each call",
        "_ZN3c108GradMode10is_enabledEv _ZN3c1013InferenceMode10is_enabledEv _ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE "
        "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE _ZN2at8autocast25is_autocast_cache_enabledEv "
        "_ZN3c1031get_default_dtype_as_scalartypeEv _ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv "
        "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv _ZN3c104impl20TorchDispatchModeTLS9stack_lenEv "
        "_ZNK2at7Context23deterministicAlgorithmsEv _ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv "
        "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE _ZN5torch3jit6tracer15getTracingStateEv _ZN2at13globalContextEv "
        "_ZN5torch8autograd11AnomalyMode8_enabledE",
    ),
)
"""Of ``libtorch_cpu``, or of what it loads."""

PYTHON_SYMBOLS: tuple[Row, ...] = (
    *rows("plans run in Python, slowly", "_Z16THPVariable_WrapRKN2at10TensorBaseE", required=True),
    *rows(
        "warnings of operators that a plan calls go to stderr, past Python's filters",
        "_ZN5torch16PyWarningHandlerC1Ev _ZN5torch16PyWarningHandlerD1Ev",
    ),
)
"""Of ``libtorch_python``."""

CUDA_SYMBOLS: tuple[Row, ...] = (
    *rows(
        "plans on GPUs cannot be run natively",
        "aoti_torch_get_current_cuda_stream aoti_torch_create_cuda_stream_guard aoti_torch_delete_cuda_stream_guard",
        required=True,
    ),
    *rows(
        "attention on GPUs is called through the dispatcher, and not recorded",
        "aoti_torch_cuda__scaled_dot_product_flash_attention aoti_torch_cuda__scaled_dot_product_flash_attention_backward "
        "aoti_torch_cuda__scaled_dot_product_efficient_attention aoti_torch_cuda__scaled_dot_product_efficient_attention_backward "
        "aoti_torch_cuda__scaled_dot_product_cudnn_attention aoti_torch_cuda__scaled_dot_product_cudnn_attention_backward",
    ),
)
"""Of ``libtorch_cuda``, where torch was built for GPUs."""
