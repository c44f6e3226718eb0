"""The part ``operators`` of ``torch_distributed_tests.py``: torch's database of operators over DTensors, as they are and compiled.

Each sample's tensors are distributed in the ways that torch's own test of DTensor takes; what eager refuses has to be refused in the same words."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

SAMPLES, WAYS = 2, 3
"""Of each operator, and of each sample."""
SEED = 7
WITHOUT_VALUES = (
    "empty",
    "rand",
    "bernoulli",
    "multinomial",
    "normal",
    "dropout",
    "rrelu",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
)
"""Operators whose results are not compared: random, or memory that nobody has written."""


def cases(place: Any) -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    known = [op for op in op_db if torch.float64 in op.supported_dtypes("cpu")]
    names = [f"{op.name}{'.' * bool(op.variant_test_name)}{op.variant_test_name}" for op in known]
    return [name for name in names if not any(word in name for word in WITHOUT_VALUES)]


def _given(name: str, mesh: Any) -> Iterator[tuple[Callable[..., Any], Any, Any]]:
    """(the operator, arguments over the mesh, keyword arguments) of a few samples in a few ways."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.distributed._tensor.common_dtensor import DTensorConverter

    [op] = [op for op in op_db if f"{op.name}{'.' * bool(op.variant_test_name)}{op.variant_test_name}" == name]
    torch.manual_seed(SEED)
    samples = [*itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=op.supports_autograd), 12)]
    samples.sort(key=lambda s: -sum(t.numel() for t in pytree.tree_leaves((s.input, s.args, s.kwargs)) if isinstance(t, torch.Tensor)))
    for sample in samples[:: max(len(samples) // SAMPLES, 1)][:SAMPLES]:
        arguments, named = (sample.input, *sample.args), sample.kwargs
        ways = [*DTensorConverter(mesh, arguments, named).sharding_combs]
        wanted = {id(way) for way in ways[:: -max(len(ways) // WAYS, 1)][:WAYS]}
        converter = DTensorConverter(mesh, arguments, named)
        converter.sharding_combs = iter([way for way in ways if id(way) in wanted])
        while True:
            try:
                over, over_named = next(converter)
            except StopIteration:
                break
            except (RuntimeError, ValueError, TypeError):  # what cannot be distributed
                continue
            yield op.op, over, over_named


def _fresh(value: Any) -> Any:
    def again(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, again, value)


def outcome(call: Callable[..., Any], given: Any, named: Any) -> Any:
    """What comes out, where it lies, and the gradients; or what is raised."""
    given, named = _fresh((given, named))
    torch.manual_seed(SEED)
    try:
        results = call(*given, **named)
        ends = [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
        leaves = [t for t in pytree.tree_leaves((given, named)) if isinstance(t, torch.Tensor) and t.requires_grad]
        found = [*pytree.tree_leaves(results)]
        if ends and leaves:
            wanted = [torch.ones_like(r) for r in ends]
            found += torch.autograd.grad(ends, leaves, grad_outputs=wanted, allow_unused=True)
        return [type(results).__name__, *map(_told, found)]
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0][:200]


def _told(value: Any) -> Any:
    if isinstance(value, DTensor):
        return [str(value.placements), list(value.shape), value.requires_grad, _told(value.to_local().detach())]
    return value.detach() if isinstance(value, torch.Tensor) else value


def apart(found: Any, wanted: Any) -> str:
    if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
        if found.dtype is not wanted.dtype or found.shape != wanted.shape:
            return f"{found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        return "" if torch.allclose(found, wanted, 1e-7, 1e-7, equal_nan=True) else "other values"
    if isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        return next(filter(None, map(apart, found, wanted)), "")
    return "" if type(found) is type(wanted) and found == wanted else f"{found}, not {wanted}"[:600]


def run(name: str, place: Any) -> Iterator[dict[str, Any]]:
    """A row. Plans run torch's operators: kernels are tested elsewhere, by all samples."""
    import opmill
    from opmill.compile import record_of

    said: dict[str, Any] = {"graphs": 0, "breaks": 0, "reasons": [], "ways": 0, "refused": 0}

    def every() -> str:
        mesh, wrong = init_device_mesh("cpu", (dist.get_world_size(),)), []
        for op, given, named in _given(name, mesh):

            def program(*args: Any, op: Any = op, **kwargs: Any) -> Any:
                return op(*args, **kwargs)

            opmill.reset()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = outcome(program, given, named)
                if len(set(place.said("refused" if isinstance(wanted, tuple) else "right"))) > 1:
                    return "; ".join(wrong[:3])  # eager has left the processes apart: what they exchange next would not fit
                compiled = opmill.compile(program, options={"generators": ()})
                found = outcome(compiled, given, named)
            said["ways"] += 1
            said["refused"] += isinstance(wanted, tuple)
            record = record_of(compiled)
            assert record is not None
            if not isinstance(wanted, tuple):
                said["graphs"] += len(record[1].graphs)
                said["breaks"] += len(record[1].breaks)
                said["reasons"] += [str(b)[:400] for b in record[1].breaks]
            ways = [str(t.placements) for t in pytree.tree_leaves((given, named)) if isinstance(t, DTensor)]
            if text := apart(found, wanted):
                wrong.append(f"{ways}: {text}")
        return "; ".join(wrong[:3])

    result, text = place.group(every)
    yield {"outcome": result, "text": text, "said": text, **said}
