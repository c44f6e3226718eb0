"""Private names of torch's Python modules, grouped by what they are used for."""

from __future__ import annotations

from .row import Row, rows

NAMES: tuple[Row, ...] = (
    # --- tensors ---
    *rows("tensors are not recognised by native code", "torch._C.TensorBase", required=True),
    *rows(
        "programs that make tensors of their own classes end the graph",
        "torch.Tensor._make_subclass torch.Tensor._make_wrapper_subclass torch._C._disabled_torch_function_impl "
        "torch._C._disabled_torch_dispatch_impl",
        required=True,
    ),
    *rows(
        "checkpoints that a backend runs as they are draw other random numbers in the backward",
        "torch._C._dispatch_tls_is_dispatch_key_included torch._C.DispatchKey.PreDispatch "
        "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
    ),
    *rows("conjugated and negated views are copied", "torch._C._set_conj torch._C._set_neg torch._neg_view"),
    *rows("memory that a plan handed out is not used again while somebody holds it", "torch._C._storage_Use_Count"),
    *rows(
        "optimizers that group tensors by device and type end the graph", "torch._C._group_tensors_by_device_and_dtype torch._foreach_add_"
    ),
    *rows("functions of lists of tensors cannot be captured", "torch._foreach_neg torch._foreach_neg_", required=True),
    *rows("products of lists of tensors with numbers that change are rounded otherwise in half precision", "torch._foreach_mul_"),
    *rows(
        "captures that a signal interrupts leave a mode of torch's on",
        "torch._C._pop_torch_dispatch_stack torch._C._pop_torch_function_stack",
    ),
    *rows("slopes that change from call to call are a capture each", "torch._C._nn.leaky_relu torch._C._nn.elu"),
    *rows("bounds that change from call to call are a capture each", "torch._C._nn.hardtanh"),
    # --- operators, and running them on fakes ---
    *rows(
        "operators cannot be recorded",
        "torch._ops.HigherOrderOperator torch._ops.OpOverload torch._ops.OpOverloadPacket torch._ops._OpNamespace torch._ops._Ops",
        required=True,
    ),
    *rows(
        "operators cannot be run on fakes",
        "torch._C._DisableTorchDispatch torch._C.DisableTorchFunctionSubclass torch._C._DisablePythonDispatcher "
        "torch._C._EnablePythonDispatcher "
        "torch._C._ExcludeDispatchKeyGuard torch._C.DispatchKeySet torch._C.DispatchKey.Autograd torch._C._AutoDispatchBelowAutograd "
        "torch.utils._python_dispatch.TorchDispatchMode",
        required=True,
    ),
    *rows(
        "fakes run torch's meta kernels where a decomposition would do, or refuse the operator",
        "torch._decomp.decomposition_table torch._decomp.meta_table torch._decomp.global_decomposition_table "
        "torch._C._dispatch_has_kernel_for_dispatch_key torch._C._dispatch_dump_table torch._C._dispatch_keys",
    ),
    *rows("tracing imports torch's own compiler, which takes seconds", "torch._compile._disable_dynamo"),
    *rows(
        "graphs of tensors over a mesh have operators that are run for their sizes alone",
        "torch._C._get_dispatch_mode torch._C._TorchDispatchModeKey.FAKE",
    ),
    *rows(
        "tensors over a mesh that are laid out along another dimension have no symbolic sizes",
        "torch.distributed.distributed_c10d._resolve_process_group",
    ),
    *rows(
        "checks and sizes that programs state end the graph",
        "torch._assert torch._assert_async torch._check torch._check_is_size torch._sym_sqrt torch.ops.aten._assert_scalar",
    ),
    *rows(
        "scans, checkpointed blocks and functions of autograd end the graph",
        "torch._higher_order_ops.associative_scan.generic_associative_scan torch._higher_order_ops.wrap.tag_activation_checkpoint "
        "torch._functorch.autograd_function.autograd_function_apply torch.autograd.function._SingleLevelFunction",
    ),
    *rows(
        "frozen weights are not packed for processors",
        "torch.ops.mkldnn._convolution_pointwise torch.ops.mkldnn._convolution_transpose_pointwise "
        "torch.ops.mkldnn._is_mkldnn_bf16_supported torch.ops.mkldnn._linear_pointwise "
        "torch.ops.mkldnn._reorder_convolution_transpose_weight torch.ops.mkldnn._reorder_convolution_weight "
        "torch.ops.mkldnn._reorder_linear_weight",
    ),
    *rows(
        "programs whose graph fails in a backend of torch's do not run in its place",
        "torch._C._autograd._unsafe_set_version_counter",
    ),
    *rows(
        "results that autograd does not allow to be written may be written",
        "torch._C._autograd.CreationMeta torch._C._autograd._get_creation_meta torch._C._autograd._set_creation_meta",
    ),
    *rows("collectives are not waited for where they have to be", "torch.ops._c10d_functional.wait_tensor"),
    *rows(
        "functions of torch.distributed end the graph",
        "torch.distributed.distributed_c10d._group_or_default_group torch.distributed.distributed_c10d._canonicalize_group_rank "
        "torch.distributed.distributed_c10d._world",
    ),
    *rows("messages between processes end the graph", "torch._C._distributed_c10d._register_work"),
    *rows(
        "captures of tensors over a mesh that come before eager has run may lay out operands in another way than eager",
        "torch.utils._python_dispatch._disable_current_modes",
    ),
    # --- switches of a thread ---
    *rows(
        "changes of torch's switches are not seen by guards: stale code could run",
        "torch._C._len_torch_dispatch_stack torch._C._len_torch_function_stack torch._C._get_function_stack_at "
        "torch._C._is_torch_function_enabled "
        "torch._C._is_torch_function_all_disabled torch._C._is_torch_function_mode_enabled torch._C._get_tracing_state "
        "torch._C.DisableTorchFunction "
        "torch._C._is_any_autocast_enabled torch.autograd.forward_ad._current_level torch.fx._symbolic_trace.is_fx_symbolic_tracing "
        "torch.utils._device.DeviceContext torch.utils._device._device_constructors",
        required=True,
    ),
    *rows(
        "what captured code tells the libraries of GPUs, and a default dtype that it sets, end the graph",
        "torch._C._set_cudnn_enabled torch._C._get_cudnn_enabled torch._C._set_cudnn_benchmark torch._C._get_cudnn_benchmark "
        "torch._C._set_cudnn_deterministic torch._C._get_cudnn_deterministic torch._C._set_cudnn_allow_tf32 "
        "torch._C._get_cudnn_allow_tf32 torch._C._set_default_dtype",
    ),
    *rows(
        "captured code that sets a precision of products, or whether all warnings are shown, to what it is ends the graph",
        "torch._C._get_float32_matmul_precision torch._C._get_fp32_precision_getter torch._C._get_cublas_allow_tf32 "
        "torch._C._get_warnAlways",
    ),
    *rows("kron of tensors of changing sizes assumes them", "torch.ops.aten._unsafe_view torch.ops.aten._unsafe_view.default"),
    *rows("captured code cannot switch gradients", "torch._C._set_grad_enabled", required=True),
    *rows(
        "forward-mode differentiation ends the graph",
        "torch._C._enter_dual_level torch._C._exit_dual_level torch._C._is_fwd_grad_enabled torch._C._set_fwd_grad_enabled",
    ),
    *rows(
        "attention is chosen as if all its kernels were allowed",
        "torch._C._SDPBackend torch._C._get_cudnn_sdp_enabled torch._C._get_flash_sdp_enabled torch._C._get_math_sdp_enabled "
        "torch._C._get_mem_efficient_sdp_enabled torch._C._get_mkldnn_enabled",
    ),
    *rows(
        "implicit_replication() of tensors over a mesh ends the graph",
        "torch._C._get_dtensor_allow_implicit_replication torch._C._set_dtensor_allow_implicit_replication",
    ),
    *rows("which device a program has beside the processor is not known", "torch._C._get_accelerator", required=True),
    # --- transforms of torch.func ---
    *rows(
        "vmap, grad and jvp in captured code end the graph",
        "torch._C._functorch._add_batch_dim torch._C._functorch._remove_batch_dim torch._C._functorch._vmap_increment_nesting "
        "torch._C._functorch._vmap_decrement_nesting torch._C._functorch._grad_increment_nesting "
        "torch._C._functorch._grad_decrement_nesting "
        "torch._C._functorch._jvp_increment_nesting torch._C._functorch._jvp_decrement_nesting torch._C._functorch.TransformType.Vmap "
        "torch._C._functorch.TransformType.Grad "
        "torch._C._functorch.get_dynamic_layer_stack_depth torch._C._functorch.get_interpreter_stack torch._C._functorch.get_unwrapped "
        "torch._C._functorch.is_batchedtensor torch._C._functorch.is_functorch_wrapped_tensor torch._C._functorch.maybe_get_level "
        "torch._C._functorch.peek_interpreter_stack torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth "
        "torch._C._functorch.set_inplace_requires_grad_allowed torch._functorch.predispatch.lazy_load_decompositions "
        "torch._C.DispatchKey.FuncTorchDynamicLayerBackMode torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode",
    ),
    # --- autograd ---
    *rows(
        "saved tensors' hooks of the program are not seen, or its hooks are run on what is being captured",
        "torch._C._autograd._push_saved_tensors_default_hooks torch._C._autograd._pop_saved_tensors_default_hooks "
        "torch._C._autograd._top_saved_tensors_default_hooks torch._C._autograd._saved_tensors_hooks_disable "
        "torch._C._autograd._saved_tensors_hooks_enable torch._C._autograd._saved_tensors_hooks_get_disabled_error_message",
    ),
    *rows(
        "a backward keeps what it has used until it ends: more memory",
        "torch._C._FunctionBase torch._C._autograd._get_current_graph_task_keep_graph",
    ),
    *rows(
        "calls that are differentiated fail",
        "torch._C._are_functorch_transforms_active torch._C._functorch.is_legacy_batchedtensor torch._C._functorch.unwrap_if_dead "
        "torch.autograd.Function._backward_cls torch._C._FunctionBase.to_save torch._C._FunctionBase.materialize_grads",
        required=True,
    ),
    *rows("graphs that write through the data of a tensor fail", "torch.autograd._unsafe_preserve_version_counter", required=True),
    *rows(
        "gradients do not tell the lines that they come from",
        "torch._C._current_autograd_node torch.autograd._get_sequence_nr",
    ),
    *rows(
        "torch's own compiler, calling what opmill compiled, reads opmill",
        "torch._C._dynamo.eval_frame.set_code_exec_strategy torch._C._dynamo.eval_frame._FrameExecStrategy "
        "torch._C._dynamo.eval_frame._FrameAction",
    ),
    *rows("compiled autograd of torch's is not noticed", "torch._C._dynamo.compiled_autograd.set_autograd_compiler"),
    # --- modules, containers, devices ---
    *rows(
        "calls of modules are interpreted line by line",
        "torch.nn.Module._call_impl torch.nn.modules.module._global_forward_hooks_always_called torch._C._log_api_usage_once "
        "torch.nn.modules.module._global_module_registration_hooks",
    ),
    *rows(
        "what is compiled after fully_shard is not known to be sharded",
        "torch.distributed._composable_state._get_module_state torch.distributed._composable_state._insert_module_state",
    ),
    *rows("what other processes compile is not told", "torch.distributed.distributed_c10d._get_default_store"),
    *rows("gradients are not sent bucket by bucket", "torch.nn.parallel.DistributedDataParallel._active_ddp_module"),
    *rows(
        "containers of arguments are seen as opaque",
        "torch.utils._pytree.SUPPORTED_NODES torch.utils._pytree.TreeSpec torch.utils._pytree._LEAF_SPEC torch.utils._pytree.tree_map_only "
        "torch.utils._pytree.keystr torch.utils._pytree.tree_flatten torch.utils._pytree.tree_flatten_with_path "
        "torch.utils._pytree.tree_leaves "
        "torch.utils._pytree.tree_map torch.utils._pytree.tree_unflatten",
    ),
    *rows("CUDA graphs are not replayed", "torch.autograd._profiler_enabled"),
    *rows("a profiler sees no labels", "torch.ops.profiler._record_function_enter_new torch.ops.profiler._record_function_exit"),
    *rows(
        "jagged tensors are no fakes",
        "torch.nested._internal.nested_tensor.NestedTensor torch.nested._internal.nested_tensor._tensor_symint_registry "
        "torch.nested._internal.nested_tensor.get_tensor_symint torch.nested._internal.nested_int.NestedIntNode "
        "torch._C._get_constant_bool_symnode",
        required=True,
    ),
    *rows(
        "jagged tensors that captured code makes end the graph",
        "torch.nested._internal.nested_tensor._nt_view_dummy torch.nested._internal.nested_tensor.nested_from_padded "
        "torch.nested._internal.nested_tensor.nested_view_from_values_offsets "
        "torch.nested._internal.nested_tensor.nested_view_from_values_offsets_lengths",
        required=True,
    ),
    *rows("softmax of rows that are masked whole is torch's own", "torch._safe_softmax"),
    *rows("quantised tensors end the graph", "torch._make_per_tensor_quantized_tensor"),
)
"""In the order of the groups."""

CUDA_NAMES: tuple[Row, ...] = rows("plans on GPUs start on the wrong stream", "torch._C._cuda_getCurrentRawStream")
"""Of a torch that was built for GPUs."""
