"""What the store keeps of graphs with wrappers: for which graphs, and what is read back."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.two_tensor import TwoTensor

from opmill_fake_tensors.wrappers import Form
from opmill_graph_ir.backend import GraphOptions, compile_graph, default_store
from opmill_graph_ir.planning.key import graph_key
from opmill_graph_ir.wrapped import stored
from opmill_graph_ir.wrapped.nodes import Bound, Looks, Out
from opmill_graph_ir.wrapped.stored import Ends, Names, Unnamed
from opmill_runtime_cache.errors import StoreWarning
from opmill_runtime_cache.store import Store


class Color(enum.Enum):
    RED = 1


class Meta(NamedTuple):
    sizes: Any
    dtype: Any


@dataclasses.dataclass
class Settings:
    block: list[int]
    color: Color


class OfTheProgram(TwoTensor):
    """A program's own: nobody knows what another version of it does."""


VALUES = [
    None, True, 1, -(2**40), 0.1, float("inf"), "text", torch.float16, torch.device("cpu"), torch.strided, torch.channels_last,
    (1, (2.0, None)), [1, [2]], torch.Size([2, 3]), {"a": (1,), 2: [3]}, Color.RED, Meta((1, 2), torch.int8), Settings([1, 2], Color.RED), TwoTensor,
]  # fmt: skip


@pytest.fixture
def of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "package_of", lambda cls: ("tests", "1"))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_what_they_were(value: Any, of_tests: None) -> None:
    data = msgspec.msgpack.decode(msgspec.msgpack.encode(Names(()).value(value)))
    found = Names(()).read(data)
    assert type(found) is type(value) and found == value


@pytest.mark.parametrize(
    "value", [object(), lambda: 1, {1}, torch.zeros(1), iter([]), OfTheProgram, Color.RED], ids=lambda v: type(v).__name__
)
def test_what_has_no_sound_name_is_not_kept(value: Any) -> None:
    with pytest.raises(Unnamed):
        Names(()).value(value)


@pytest.mark.parametrize(
    "data",
    [
        ["object", ["builtins", "dict"], []], ["enum", ["os", "system"], "x"], ["named", ["subprocess", "Popen"], 1], ["type", ["os", "nothing"]],
        ["object", ["torch.nn.modules.linear", "Linear"], []], ["placement", "Popen"], ["mesh", 3], ["dtype", "torch.nn"], ["unknown", 1], [],
    ],
    ids=str,
)  # fmt: skip
def test_other_data_makes_nothing(data: Any) -> None:
    form = ["form", ["torch.testing._internal.two_tensor", "TwoTensor"], ["a", "b"], data, [1], [1], [None, None], False]
    assert Ends.decoded(msgspec.msgpack.encode([[], [[form, 1, None, [], None, None]], []]), Names(())) is None
    assert Ends.decoded(msgspec.msgpack.encode(data), Names(())) is None


def test_ends_are_what_they_were() -> None:
    form = Form(TwoTensor, ("a", "b"), None, torch.Size([2, 3]), (3, 1), (None, None), True)
    outer = Form(TwoTensor, ("a", "b"), ("x", 1), torch.Size([2, 3]), (3, 1), (form, form))
    ends = Ends(
        {1: Looks(outer, ((2, 3),) * 4, (torch.float32,) * 4)},
        [Out(outer, 4, None, (), form), Out(), Out(None, 0, 2)],
        [Bound(0, ("a",), 3)],
    )
    names = Names(())
    again = Ends.decoded(ends.encoded(names), names)
    assert again is not None and again.encoded(names) == ends.encoded(names)
    assert again.gradients[1].form is not None and again.gradients[1].form.fits(outer) and again.bound == ends.bound
    assert list(again.outs[0].form.sizes) == [2, 3] and again.outs[0].form.parts[0].is_parameter


def double(w: Any) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda w: (w * 2, (w + 1).sum(0)))


def key(gm: torch.fx.GraphModule, *inputs: Any) -> str | None:
    return graph_key(gm, inputs, GraphOptions(), ())


def test_keys_tell_wrappers_apart(tmp_path: Path) -> None:
    def made(*sizes: int, nested: bool = False, grad: bool = False, dtype: Any = torch.float32) -> Any:
        inner = [torch.ones(sizes, dtype=dtype, requires_grad=grad) for _ in range(2)]
        return TwoTensor(TwoTensor(*inner), TwoTensor(*inner)) if nested else TwoTensor(*inner)

    gm = double(None)
    samples = [made(2, 3), made(3, 2), made(2, 3, nested=True), made(2, 3, grad=True), made(2, 3, dtype=torch.float64), torch.ones(2, 3)]
    keys = [key(gm, sample) for sample in samples]
    assert None not in keys and len(set(keys)) == len(samples)
    assert key(gm, made(2, 3)) == keys[0]
    assert key(gm, OfTheProgram(torch.ones(2, 3), torch.ones(2, 3))) is None


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    store, w = Store(tmp_path), TwoTensor(torch.randn(2, 3), torch.randn(2, 3))
    found = [compile_graph(double(w), [w], store=store).report.cached for _ in range(2)]
    name = graph_key(double(w), [w], GraphOptions(), (), store.portable)
    assert found == [False, True] and name is not None
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and stored.KIND in path.parts]
    assert kept
    for path in kept:
        path.write_bytes(b"nothing of the kind")
    with pytest.warns(StoreWarning, match="RC060"):
        compiled = compile_graph(double(w), [w], store=Store(tmp_path))
    assert not compiled.report.cached
    got = compiled(w)
    assert type(got[0]) is TwoTensor
    torch.testing.assert_close(got[0].b, w.b * 2)
    torch.testing.assert_close(got[1].a, (w.a + 1).sum(0))


@pytest.fixture
def ranks() -> Iterator[Any]:
    """Makes this process one of four."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def become(rank: int) -> Any:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        return dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))

    yield become
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_tensors_over_a_mesh(ranks: Any, tmp_path: Path) -> None:
    """A plan knows which rank it is for, and which groups it sends to; within a rank it is found again."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    def apart(mesh: Any, *placements: Any) -> Any:
        return DTensor.from_local(torch.ones(4, 6), mesh, placements, run_check=False)

    def computed(x: Any) -> Any:
        return x @ x.t(), x.sum()

    store, keys = Store(tmp_path), set()
    for rank in (0, 1):
        mesh = ranks(rank)
        layouts = [(Shard(0), Shard(1)), (Shard(1), Replicate()), (Replicate(), Replicate()), (Partial("sum"), Replicate())]
        gm = torch.fx.symbolic_trace(computed)
        keys |= {key(gm, apart(mesh, *layout)) for layout in layouts} | {key(gm, apart(mesh["b"], Shard(0)))}
        x = apart(mesh, *layouts[0])
        for known in (False, True) if rank == 0 else ():  # torch keeps the groups of the first process that this one was
            compiled = compile_graph(torch.fx.symbolic_trace(computed), [x], store=store)
            assert compiled.report.cached is known
            for got, expected in zip(compiled(x), computed(x), strict=True):
                assert type(got) is DTensor and got.placements == expected.placements and got.device_mesh == mesh
                assert got.shape == expected.shape and got.to_local().shape == expected.to_local().shape
    assert None not in keys and len(keys) == 10


def test_the_store_of_the_process_is_used_where_none_is_given() -> None:
    w = TwoTensor(torch.randn(7, 3), torch.randn(7, 3))
    compile_graph(double(w), [w])
    assert compile_graph(double(w), [w]).report.cached and default_store() is not None
