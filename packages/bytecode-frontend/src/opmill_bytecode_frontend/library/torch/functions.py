"""torch functions that are questions about the capture or the thread, and others that need more than recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributions.constraints import symmetric

from opmill_guards.source import Pinned

from ...assumptions.states import assume_state
from ...interpretation.optimizing import in_optimizer
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.mapping import DictValue
from ...values.sequence import ListValue, TupleValue
from ...values.tensor import TensorValue
from ..dispatch import ASKS_STATE, fold
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


@named(
    "torch.compiler.is_compiling",
    "torch.compiler.is_dynamo_compiling",
    "torch._dynamo.external_utils.is_compiling",
    "torch._utils_internal.is_compiling",
    "transformers.utils.import_utils.is_torchdynamo_compiling",
    "transformers.utils.import_utils.is_tracing",
)
def is_compiling(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Modules ask in order to leave hooks out that are called after an exception as well; these are not left out."""
    if in_optimizer(vm):
        return ConstantValue(False)
    caller = vm.frame
    always = caller is not None and caller.code is CALL_OF_MODULES and has_hooks_for_exceptions(caller.cells["self"].content)
    return ConstantValue(not always)


CALL_OF_MODULES = torch.nn.Module._call_impl.__code__


def has_hooks_for_exceptions(module: Any) -> bool:
    """Whether hooks of a module, or of all modules, are called also where ``forward`` raises."""
    module.assume_hooks()
    of_all = torch.nn.modules.module._global_forward_hooks_always_called
    return bool(of_all or module.table_now("_forward_hooks_always_called"))


@named(
    "torch.compiler.is_exporting",
    "transformers.utils.import_utils.is_torchdynamo_exporting",
    "transformers.utils.import_utils.is_jit_tracing",
    "torch._jit_internal.is_scripting",
    "torch.jit._trace.is_tracing",
    "torch.onnx.is_in_onnx_export",
    "transformers.utils.import_utils.is_fx_tracing",
    "torch.fx._symbolic_trace.is_fx_tracing",
    "transformers.utils.import_utils.is_torch_fx_proxy",
    "transformers.utils.generic.is_torch_fx_proxy",
    "transformers.utils.import_utils.is_cuda_stream_capturing",
)
@handles(
    torch.jit.is_scripting,
    torch.jit.is_tracing,
)
def is_false(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Questions whether something traces, scripts or exports: captured code says no, as the plain run does."""
    return ConstantValue(False)


@handles(torch._C._get_tracing_state)
def nobody_traces(vm: Interpreter) -> Value:
    """The state of ``torch.jit.trace``: None."""
    return NONE


@handles(torch.is_tensor)
def is_tensor(vm: Interpreter, value: Value) -> Value:
    """``torch.is_tensor()``."""
    return ConstantValue(issubclass(value.python_type(), torch.Tensor))


def _of_tensor(fn: Any, of: Callable[[Interpreter, TensorValue, Any], Value], told: object) -> None:
    """A function of one tensor. What else it is given is torch's to refuse, or an object that says itself what torch's functions mean."""

    @handles(fn)
    def asked(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        given = [*args, *kwargs.values()]
        one = len(given) == 1 and kwargs.keys() <= {"input"} and isinstance(given[0], TensorValue)
        return of(vm, cast(TensorValue, given[0]), told) if one else vm.recorder.call_function(vm, fn, list(args), kwargs)


for _fn in (torch.is_floating_point, torch.is_complex, torch.numel):
    _of_tensor(_fn, lambda vm, value, fn: vm.recorder.evaluate(vm, fn, [value], {}), _fn)
for _name in ("is_conj", "is_neg", "is_inference", "resolve_conj", "resolve_neg"):
    _of_tensor(getattr(torch, _name), lambda vm, value, name: vm.call(vm.getattr(value, name), [], {}), _name)
for _name in ("real", "imag"):
    _of_tensor(getattr(torch, _name), lambda vm, value, name: vm.getattr(value, name), _name)


@handles(torch._C._log_api_usage_once, torch._C._functorch.maybe_get_level)
def ignored(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """What only counts calls, or asks for a level that nobody else has, for torch itself: left out."""
    return ConstantValue(None)


@named("torch.distributions.constraints._PositiveDefinite.check")
def positive_definite(vm: Interpreter, constraint: Value, matrix: Value) -> Value:
    """Torch's own asks whether a matrix is symmetric before it factors it."""
    check = type(symmetric).check
    found = vm.call(vm.wrap(check, Pinned(check, "check")), [constraint, matrix], {})
    return vm.call(vm.wrap(definite, Pinned(definite, "definite")), [found, matrix], {})


def definite(found: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """What the check gives, where ``found`` is whether matrices are symmetric: all of them are looked at again if all are."""
    if matrix.shape[-1] != matrix.shape[-2]:
        return found
    return torch.where(found.all(), torch.linalg.cholesky_ex(matrix).info.eq(0), found)


@named("torch.distributions.distribution._all_true_or_runtime_assert")
def all_true(vm: Interpreter, valid: Value, message: Value) -> Value:
    """Since torch 2.15, instead of ``valid.all()``: what distributions ask before they raise. The graph checks the tensor where it runs."""
    return valid.method(vm, "all", [], {})


@named("torch._check_tensor_all")
def check_tensor_all(vm: Interpreter, condition: Value, message: Value = NONE) -> Value:
    """Checked when the graph runs. What a message that is computed would say is not known now."""
    if not isinstance(condition, TensorValue) or condition.fake.dtype is not torch.bool:
        vm.unsupported("FE011", "torch._check_tensor_all of something other than a tensor of bools")
    text = "Expected cond to be True, but got False"
    if not isinstance(message, ConstantValue):
        said = vm.call(message, [], {})
        text = said.value if isinstance(said, ConstantValue) else text
    checked = cast(TensorValue, condition.method(vm, "all", [], {}))
    vm.recorder.graph.call_function(torch._assert_async, (vm.recorder.node_of(checked), str(text)))
    return NONE


@handles(torch._assert)
def assertion(vm: Interpreter, condition: Value, message: Value) -> Value:
    """``torch._assert()``: of a tensor a check when the graph runs, of others now."""
    if isinstance(condition, TensorValue):
        return vm.recorder.call_function(vm, torch._assert_async, [condition, message], {})
    if not vm.truth(condition):
        vm.throw(AssertionError, message)
    return ConstantValue(None)


@handles(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(vm: Interpreter, lists: Value, with_indices: Value = ConstantValue(False)) -> Value:
    """As torch's multi-tensor functions sort what they are given: the places of the first list's tensors, by device and type."""
    columns = [vm.unpack(column) for column in vm.unpack(lists)]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, tensor in enumerate(columns[0]):
        if not isinstance(tensor, TensorValue):
            vm.unsupported("FE011", "grouping of something other than tensors")
        groups.setdefault((tensor.fake.device, tensor.fake.dtype), []).append(place)
    out = DictValue({})
    for key, places in groups.items():
        parts = ListValue([ListValue([column[k] for k in places] if column else []) for column in columns])
        numbers = ListValue([ConstantValue(k) for k in places] if vm.truth(with_indices) else [])
        out.store(vm, TupleValue([ConstantValue(part) for part in key]), TupleValue([parts, numbers]))
    return out


def _state(fn: Any) -> None:
    @handles(fn)
    def asked(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if ASKS_STATE.search(fn.__name__):
            assume_state(vm, fn, list(args), kwargs)
        return fold(vm, fn, list(args), kwargs)


for _name in (
    "is_grad_enabled",
    "is_autocast_enabled",
    "get_autocast_dtype",
    "is_autocast_cache_enabled",
    "get_default_dtype",
    "is_autocast_cpu_enabled",
    "get_autocast_gpu_dtype",
    "get_autocast_cpu_dtype",
    "promote_types",
    "can_cast",
    "get_num_threads",
):
    if hasattr(torch, _name):
        _state(getattr(torch, _name))
