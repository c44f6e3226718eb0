"""Tensor subclasses that people use: torchao's quantised weights, DTensor over one process; whole graphs, right against eager."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import opmill
from opmill.compile import record_of

torchao = pytest.importorskip("torchao.quantization")


class Block(nn.Module):
    """A block of a transformer without its attention."""

    def __init__(self, width: int = 64, inner: int = 128) -> None:
        super().__init__()
        self.names = nn.Embedding(32, width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner, bias=False), nn.Linear(inner, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.names(tokens)
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def groups(size: int) -> Any:
    from torchao.quantization.granularity import PerGroup

    return PerGroup(size)


def rehearsed(base: Any) -> Any:
    """Training that is aware of the quantisation to come."""
    from torchao.quantization.qat import QATConfig

    return QATConfig(base, step="prepare")


def trained(name: str) -> Any:
    import torchao.prototype.quantized_training as training

    return getattr(training, name)()


INFERENCE: dict[str, Callable[[], Any]] = {
    "int8": lambda: torchao.Int8WeightOnlyConfig(),
    "int8 in groups": lambda: torchao.Int8WeightOnlyConfig(granularity=groups(32)),
    "int8 dynamic": lambda: torchao.Int8DynamicActivationInt8WeightConfig(),
    "float8": lambda: torchao.Float8WeightOnlyConfig(),
    "int4": lambda: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups(32)),
    "int8 dynamic, int4": lambda: torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=groups(32)),
}
TRAINING: dict[str, Callable[[], Any]] = {
    "aware of int4": lambda: rehearsed(torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups(32))),
    "aware of int8": lambda: rehearsed(
        torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=groups(32))
    ),
    "int8 weights": lambda: trained("int8_weight_only_quantized_training"),
    "int8 products": lambda: trained("int8_mixed_precision_training"),
    "ternary": lambda: trained("bitnet_training"),
}


def quantised(config: Callable[[], Any]) -> tuple[Block, Block, torch.Tensor]:
    """The block before and after, and tokens."""
    torch.manual_seed(0)
    block = Block()
    changed = copy.deepcopy(block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchao.quantize_(changed, config())
    return block, changed, torch.randint(0, 32, (2, 8))


@pytest.mark.parametrize("name", INFERENCE)
def test_quantised_weights(name: str) -> None:
    block, changed, tokens = quantised(INFERENCE[name])
    with torch.no_grad():
        compiled = opmill.compile(changed, fullgraph=True)
        expected, exact = changed(tokens), block.double()(tokens)
        for _ in range(2):
            got = compiled(tokens)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        assert (got - exact).norm() <= (expected - exact).norm() * 1.01 + 1e-6


class Convolutions(nn.Module):
    """What a normalisation knows stands beside quantised weights."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(self.begin(x).mean((2, 3))).relu())


OTHERS: dict[str, Callable[[], tuple[nn.Module, Callable[[int], torch.Tensor]]]] = {
    "a layer of torch's": lambda: (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), lambda n: torch.randn(n, 5, 64)),
    "convolutions": lambda: (Convolutions(), lambda n: torch.randn(n, 3, 8, 8)),
}


@pytest.mark.parametrize("name", ["int8", "float8", "int8 dynamic, int4"])
@pytest.mark.parametrize("model", OTHERS)
def test_other_models(model: str, name: str) -> None:
    torch.manual_seed(0)
    changed, given = OTHERS[model]()
    torchao.quantize_(changed.eval(), INFERENCE[name]())
    compiled = opmill.compile(changed, fullgraph=True)
    with torch.no_grad():
        for rows in (2, 4, 3):
            x = given(rows)
            torch.testing.assert_close(compiled(x), changed(x), rtol=1e-4, atol=1e-4)
    record = record_of(compiled)
    assert record is not None and len(record[1].graphs) == 2


@pytest.mark.parametrize("name", TRAINING)
def test_training_with_quantised_weights(name: str) -> None:
    _, changed, tokens = quantised(TRAINING[name])
    compiled = opmill.compile(changed, fullgraph=True)
    parameters = [p for p in changed.parameters() if p.requires_grad]
    found = [torch.autograd.grad(model(tokens).square().sum(), parameters) for model in (compiled, changed)]
    for one, other in zip(*found, strict=True):
        assert type(one) is type(other)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_weights_are_read_at_each_call() -> None:
    _, changed, tokens = quantised(INFERENCE["int8"])
    other = quantised(INFERENCE["int8"])[1]
    with torch.no_grad():
        compiled = opmill.compile(changed, fullgraph=True)
        before = compiled(tokens)
        changed.up.weight.qdata.neg_()
        assert not torch.equal(compiled(tokens), before)
        torch.testing.assert_close(compiled(tokens), changed(tokens))
        changed.up.weight = other.up.weight
        torch.testing.assert_close(compiled(tokens), before)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    if not dist.is_available() or not dist.is_gloo_available() or dist.is_initialized():
        pytest.skip("needs gloo, and no group of processes")
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def sharded(*sizes: int, mesh: Any, dim: int | None = 0) -> Any:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    torch.manual_seed(len(sizes))
    return distribute_tensor(torch.randn(sizes), mesh, [Replicate() if dim is None else Shard(dim)])


def replicated(x: Any) -> Any:
    from torch.distributed.tensor import Replicate

    return x.redistribute(x.device_mesh, [Replicate()])


def over(x: torch.Tensor, mesh: Any) -> Any:
    from torch.distributed.tensor import DTensor, Shard

    return DTensor.from_local(x, mesh, [Shard(0)])


DTENSORS: dict[str, Callable[[Any, Any], Any]] = {
    "points": lambda x, w: x * 2 + w,
    "a product": lambda x, w: torch.nn.functional.linear(x, w),
    "another layout": lambda x, w: replicated(x) @ w,
    "of this process": lambda x, w: (x @ w).to_local() + 1,
    "as one": lambda x, w: (x.full_tensor() + 1, w.sum()),
    "made": lambda x, w: over(x.to_local(), x.device_mesh) * w,
    "where it lies": lambda x, w: x + w if x.placements[0].is_shard() and x.device_mesh.size() == 1 else w,
}


def same(got: Any, expected: Any) -> None:
    if isinstance(expected, (list, tuple)):
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    elif hasattr(expected, "full_tensor"):
        assert type(got) is type(expected) and got.placements == expected.placements
        same(got.full_tensor(), expected.full_tensor())
    else:
        torch.testing.assert_close(settled(got), settled(expected))


def settled(x: Any) -> Any:
    """What collectives of eager's give waits for itself."""
    return x.trigger_wait() if hasattr(x, "trigger_wait") else x


@pytest.mark.parametrize("name", DTENSORS)
def test_tensors_over_a_mesh(name: str, mesh: Any) -> None:
    function = DTENSORS[name]
    x, w = sharded(4, 4, mesh=mesh), sharded(4, 4, mesh=mesh, dim=None)
    compiled = opmill.compile(function, fullgraph=True)
    for _ in range(2):
        same(compiled(x, w), function(x, w))


def test_tensor_parallel_layers(mesh: Any) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(4, 8)
    compiled = opmill.compile(model, fullgraph=True)
    found = []
    for run in (compiled, model):
        result = settled(run(x))
        result.square().sum().backward()
        found.append([result.detach(), *(p.grad for p in model.parameters())])
        model.zero_grad()
    same(*found)


def test_gradients_over_a_mesh(mesh: Any) -> None:
    x, w = sharded(4, 8, mesh=mesh), nn.Parameter(sharded(8, 8, mesh=mesh))
    compiled = opmill.compile(lambda x, w: torch.relu(x @ w).sum(1), fullgraph=True)
    found = [torch.autograd.grad(run(x, w).sum(), w) for run in (compiled, lambda x, w: torch.relu(x @ w).sum(1))]
    same(*found)


REWRAPPED: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "laid out as it is": (True, lambda x: x.redistribute(x.device_mesh, x.placements)),
    "and beside it": (True, lambda x: (x.redistribute(x.device_mesh, x.placements) * 2).sin() + x),
    "its part": (True, lambda x: x.to_local()),
    "a view of its part": (True, lambda x: x.to_local().t()),
    "rows": (False, lambda x: torch.nested.nested_tensor_from_jagged(x, OFFSETS).values()),
    "rows of it": (False, lambda x: torch.nested.nested_tensor_from_jagged(x, OFFSETS)),
    "rows of it, computed": (False, lambda x: torch.nested.nested_tensor_from_jagged(x, OFFSETS).sin()),
}
OFFSETS = torch.tensor([0, 1, 4])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", REWRAPPED)
def test_inputs_whose_memory_a_result_wraps_keep_their_place_in_autograd(name: str, mesh: Any) -> None:
    over_mesh, program = REWRAPPED[name]
    compiled, x, found = opmill.compile(program), sharded(4, 8, mesh=mesh), []
    for run in (compiled, program):
        leaf = (x if over_mesh else torch.arange(12.0).view(4, 3)).detach().requires_grad_()
        for _ in range(2):
            result = run(leaf)
            assert leaf.is_leaf and not (over_mesh and leaf._local_tensor.requires_grad)
            plain = result.values() if result.is_nested else result.to_local() if hasattr(result, "placements") else result
            plain.sin().sum().backward()
        found.append([plain.detach(), leaf.grad])
    same(*found)


def test_a_loss_that_is_computed_in_parts_inside_of_a_block_and_outside(mesh: Any) -> None:
    from torch.distributed.tensor.parallel import loss_parallel

    def loss(x: Any, target: torch.Tensor) -> Any:
        return nn.functional.cross_entropy(x * 2, target)

    compiled, target = opmill.compile(loss), torch.tensor([0, 3, 1])
    for inside in (False, True, False, True):
        x, found = sharded(3, 8, mesh=mesh, dim=1), []
        for run in (loss, compiled):
            leaf = x.detach().requires_grad_()
            with loss_parallel() if inside else contextlib.nullcontext():
                try:  # outside, DTensors and plain tensors are not mixed
                    result = run(leaf, target)
                    result.backward()
                    found.append([result.detach(), leaf.grad])
                except RuntimeError as error:
                    found.append([str(error)])
        if inside:
            same(*found)
        else:
            assert found[0] == found[1]
    record = record_of(compiled)
    assert record is not None and not record[1].breaks


def test_plain_tensors_stand_for_replicated_ones_only_inside_of_the_block(mesh: Any) -> None:
    from torch.distributed.tensor.experimental import implicit_replication

    x, y = sharded(4, 4, mesh=mesh), torch.ones(4)
    compiled = opmill.compile(lambda x, y: x * 2 + y)
    for _ in range(2):
        with implicit_replication():
            same(compiled(x, y), x * 2 + y)
        with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
            compiled(x, y)
