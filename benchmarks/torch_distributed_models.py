"""The part ``models`` of ``torch_distributed_tests.py``: models of torch's tests of DTensor and FSDP, trained as they are and compiled."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
Compile = Callable[[Any], Any]
Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
"""A model that is ready to be called, and what it is called with on this rank."""


def _torch(name: str) -> Any:
    """A name of one of torch's modules of test models; they need more than torch to be imported."""
    from torch.testing._internal import common_fsdp
    from torch.testing._internal.distributed import common_state_dict
    from torch.testing._internal.distributed._tensor import common_dtensor

    return next(getattr(m, name) for m in (common_dtensor, common_fsdp, common_state_dict) if hasattr(m, name))


def _noise(*sizes: int, own: bool = False) -> torch.Tensor:
    """Random numbers, ``own`` ones on each rank."""
    source = torch.Generator().manual_seed(5 + (dist.get_rank() if own else 0))
    return torch.randn(*sizes, generator=source, dtype=torch.float64)


def _tokens(rows: int, own: bool = False) -> torch.Tensor:
    return torch.randint(0, 8, (rows, 8), generator=torch.Generator().manual_seed(3 + (dist.get_rank() if own else 0)))


def _mesh(*names: str) -> Any:
    size = dist.get_world_size()
    return init_device_mesh("cpu", (size,) if len(names) == 1 else (size // 2, 2), mesh_dim_names=names)


# --- tensor parallel ----------------------------------------------------------------------------------------------------------------


def mlp(compiled: Compile, sequence: bool = False, stacked: bool = False) -> Built:
    model = _torch("MLPStacked" if stacked else "MLPModule")("cpu").double()
    ends = ({"input_layouts": Shard(0)}, {"output_layouts": Shard(0)}) if sequence else ({}, {})
    plan = {"net1": ColwiseParallel(**ends[0]), "net2": RowwiseParallel(**ends[1])}
    for part in model.layers if stacked else [model]:
        parallelize_module(part, _mesh("tensor"), plan)
    return compiled(model), (_noise(8, 10, own=sequence),)


def _transformer(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return _torch("Transformer")(_torch("ModelArgs")(dropout_p=0.0, **options)).double()  # type: ignore[no-any-return]


def transformer(compiled: Compile, sequence: bool = False, local: bool = False, blocks: bool = False, **options: Any) -> Built:
    model = _transformer(use_attn_mask=local, **options)  # DTensors cannot be masked by what is none
    _torch("Transformer").parallelize(model, _mesh("tensor"), sequence, local_output_for_attn=local)
    return _compiled(model, compiled, blocks), (_tokens(4),)


def experts(compiled: Compile, tensor: bool = False, blocks: bool = False) -> Built:
    model = _transformer(num_experts=4, weight_tying=False, use_attn_mask=not tensor)
    mesh = _mesh("experts", "tensor") if tensor else _mesh("experts")
    tensors = mesh["tensor"] if tensor else None
    _torch("Transformer").parallelize(model, tensors, False, ep_mesh=mesh["experts"] if tensor else mesh)
    return _compiled(model, compiled, blocks), (_tokens(4, own=not tensor),)


def _compiled(model: Any, compiled: Compile, blocks: bool) -> nn.Module:
    if not blocks:
        return compiled(model)  # type: ignore[no-any-return]
    for position, layer in enumerate(model.layers):
        model.layers[position] = compiled(layer)
    return model  # type: ignore[no-any-return]


# --- sharded ------------------------------------------------------------------------------------------------------------------------


def stack(compiled: Compile, sequence: bool = False, checkpointed: bool = False, **options: Any) -> Built:
    torch.manual_seed(0)
    model = _torch("MLPStack")(8, with_seq_parallel=sequence).double()
    mesh = _mesh("data", "tensor")
    model.parallelize(mesh["tensor"], mesh["data"], checkpointed, **options)
    return compiled(model), (_noise(4, 8, 8),)


def sharded_transformer(compiled: Compile, blocks: bool = False, hybrid: bool = False, policy: Any = None, **options: Any) -> Built:
    model: Any = _transformer(**options)
    more = {"mesh": _mesh("replicas", "shards")} if hybrid else {}
    more |= {} if policy is None else {"mp_policy": policy()}
    for position, layer in enumerate(model.layers):
        layer = compiled(layer) if blocks else layer
        model.layers[position] = fully_shard(layer, **more)
    fully_shard(model, **more)
    return model if blocks else compiled(model), (_tokens(2, own=True),)


def sharded(compiled: Compile, make: Callable[[], nn.Module], parts: bool = True, **options: Any) -> Built:
    torch.manual_seed(0)
    model = make().double()
    for part in model.children() if parts else ():
        fully_shard(part, **options)
    return compiled(fully_shard(model, **options)), (_noise(4, 8, own=True),)


def of_fsdp(compiled: Compile, name: str, wrap: str) -> Built:
    """One of the models of torch's tests of FSDP; ``wrap``: by the first FSDP itself, by the second, or by DistributedDataParallel."""
    modes, places = _torch("FSDPInitMode"), _torch("DEVICEInitMode")
    mode = modes.RECURSIVE if wrap == "fsdp1" else modes.NO_FSDP
    options: Any = {} if wrap != "fsdp1" else {"fsdp_kwargs": {"use_orig_params": True, "device_id": torch.device("cpu")}}
    # which place: all are the processor's
    model = _torch(name).init(dist.group.WORLD, mode, places.DEVICE_NEVER, deterministic=True, **options)
    given = model.get_input(torch.device("cpu"))
    if wrap == "fsdp2":
        fully_shard(model)
    if wrap == "ddp":
        model = DistributedDataParallel(model)
    return compiled(model), given


def _half() -> Any:
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def _double_linear(second: bool) -> nn.Module:
    return _torch("DoubleLinear")(8, second)  # type: ignore[no-any-return]


of = functools.partial
CASES: dict[str, Callable[[Compile], Built]] = {
    # First: torch takes a mesh without names, once there was one of the same processes, for one with names.
    "fsdp2 x tensor parallel, stack": stack,
    "fsdp2 x tensor parallel, stack, sequence": of(stack, sequence=True),
    "fsdp2 x tensor parallel, stack, checkpointed": of(stack, checkpointed=True),
    "fsdp2 x tensor parallel, stack, kept": of(stack, reshard_after_forward=False),
    "experts x tensor parallel": of(experts, tensor=True),
    "hsdp, transformer": of(sharded_transformer, hybrid=True),
    "hsdp, transformer, blocks": of(sharded_transformer, hybrid=True, blocks=True),
    "mlp": mlp,
    "mlp, sequence": of(mlp, sequence=True),
    "mlp, stacked": of(mlp, stacked=True),
    "transformer": transformer,
    "transformer, blocks": of(transformer, blocks=True),
    "transformer, sequence": of(transformer, sequence=True),
    "transformer, local attention": of(transformer, local=True),
    "transformer, sequence, local attention": of(transformer, sequence=True, local=True),
    "transformer, untied": of(transformer, weight_tying=False),
    "transformer, checkpointed": of(transformer, checkpoint_activations=True),
    "transformer, sequence, checkpointed, blocks": of(transformer, sequence=True, checkpoint_activations=True, blocks=True),
    "transformer, tensor parallel experts": of(transformer, num_experts=4),
    "experts": experts,
    "experts, blocks": of(experts, blocks=True),
    "fsdp2, transformer": sharded_transformer,
    "fsdp2, transformer, blocks": of(sharded_transformer, blocks=True),
    "fsdp2, transformer, checkpointed": of(sharded_transformer, checkpoint_activations=True),
    "fsdp2, transformer, checkpointed, blocks": of(sharded_transformer, checkpoint_activations=True, blocks=True),
    "fsdp2, transformer, bfloat16": of(sharded_transformer, policy=_half),
    "fsdp2, stack": of(sharded, make=lambda: _torch("MLPStack")(8)),
    "fsdp2, mlp with a buffer": of(sharded, make=lambda: _torch("MLP")(8, with_buffer=True)),
    "fsdp2, two outputs": of(sharded, make=of(_double_linear, True)),
    "fsdp2, an unused part": of(sharded, make=of(_double_linear, False)),
    **{
        f"{wrap}, {name}": of(of_fsdp, name=name, wrap=wrap)
        for wrap in ("fsdp2", "ddp", "fsdp1")
        for name in ("TransformerWithSharedParams", "NestedWrappedModule", "NonUniformReqGradNWM")
    },
    "ddp, MixtureOfExperts": of(of_fsdp, name="MixtureOfExperts", wrap="ddp"),
}


def cases(place: Any) -> list[str]:
    return list(CASES)


# --- trained ------------------------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class NotInEager(Exception):
    """Torch does not run a case as it is, here."""


def plainly(name: str) -> list[Any]:
    try:
        return trained(name, lambda module: module)
    except Exception as error:
        raise NotInEager(f"{type(error).__name__}: {error}") from error


@sdpa_kernel(SDPBackend.MATH)
def trained(name: str, compiled: Compile) -> list[Any]:
    """Losses, the gradients of the first step, parameters and buffers in the end. Attention is made of other operators: DTensor knows no
    attention of the processor."""
    model, given = CASES[name](compiled)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9, foreach=False)
    found: list[Any] = []
    for step in range(STEPS):
        results = model(*given)
        loss = sum(r.double().square().mean() for r in (results if isinstance(results, tuple) else (results,)))
        loss.backward()
        found.append(_whole(loss))
        if not step:
            found += [None if p.grad is None else _whole(p.grad) for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *map(_whole, model.parameters()), *map(_whole, model.buffers())]


def apart(found: list[Any], wanted: list[Any], near: float) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if (one is None) != (other is None):
            return f"result {k} is {one}, not {other}"
        if one is None:
            continue
        if one.shape != other.shape or one.dtype is not other.dtype:
            return f"result {k} is {one.dtype}{list(one.shape)}, not {other.dtype}{list(other.shape)}"
        if not torch.allclose(one, other, rtol=near, atol=near):
            return f"result {k} of {len(found)} is off by {float((one - other).abs().max()):.2e}"
    return ""


def run(name: str, place: Any) -> Iterator[dict[str, Any]]:
    import opmill
    from opmill.compile import record_of

    said: dict[str, Any] = {}
    near = 2e-2 if "bfloat16" in name else 1e-5

    def both() -> str:
        made: list[Any] = []
        plain = plainly(name)

        def compiled(module: Any) -> Any:
            made.append(opmill.compile(module))
            return made[-1]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = trained(name, compiled)
        records = {id(r[1]): r[1] for r in map(record_of, made) if r is not None}.values()
        said["graphs"] = sum(len(r.graphs) for r in records)
        said["breaks"] = sum(len(r.breaks) for r in records)
        said["reasons"] = [str(b)[:600] for r in records for b in r.breaks]
        fallbacks = "".join(g.fallback for r in records for g in r.graphs)
        if os.environ.get("OPMILL_AGAINST_TORCH"):
            said["torch.compile"] = _with_torch_compile(name)
        return apart(ours, plain, near) or fallbacks

    opmill.reset()
    outcome, text = place.group(both)
    if text.startswith("NotInEager"):
        outcome = "skipped"
    yield {"outcome": outcome, "text": text, "said": text if outcome != "skipped" else "", **said}


def _with_torch_compile(name: str) -> str:
    """How many graph breaks torch.compile has, or how it fails."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    dynamo.reset()
    counters.clear()
    try:
        trained(name, lambda module: torch.compile(module, backend="aot_eager"))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return f"{sum(counters['graph_break'].values())} breaks"
