"""Facts of tensors, natively and in Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

torch = pytest.importorskip("torch")
from opmill_guards import GuardSet, _native, probe, tensor_facts  # noqa: E402
from opmill_guards.guard import Equals, SizeRelation, TensorMatch  # noqa: E402
from opmill_guards.kinds.tensor_match import holds, of  # noqa: E402
from opmill_guards.source import Local, TensorProperty  # noqa: E402


class Wrapper(torch.Tensor):
    """Answers for its sizes itself."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes")

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.sym_size.default, torch.ops.aten.size.default):
            return args[0].inner.shape
        if function is torch.ops.aten.sym_stride.default:
            return args[0].inner.stride()
        if function is torch.ops.aten.dim.default:
            return args[0].inner.dim()
        return NotImplemented


class Unasked(torch.Tensor):
    """Takes operators, and is asked for nothing that the tensor says of itself; but for what ``answers`` names."""

    @staticmethod
    def __new__(cls, inner: Any, **answers: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device, **answers)

    def __init__(self, inner: Any, **answers: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.prim.device.default:
            return torch.device("meta")
        if function is torch.ops.prim.layout.default:
            return torch.strided
        return NotImplemented if "size" not in function.name() and "stride" not in function.name() else (2, 3)


def samples() -> dict[str, Any]:
    leaf = torch.zeros(2, 3, requires_grad=True)
    with torch.inference_mode():
        inference = torch.zeros(2, 3)
    return {
        "plain": torch.zeros(2, 3),
        "other size": torch.zeros(3, 3),
        "transposed": torch.zeros(3, 2).t(),
        "offset": torch.zeros(3, 3)[1:],
        "double": torch.zeros(2, 3, dtype=torch.float64),
        "half": torch.zeros(2, 3, dtype=torch.float16),
        "int": torch.zeros(2, 3, dtype=torch.int64),
        "bool": torch.zeros(2, 3, dtype=torch.bool),
        "complex": torch.zeros(2, 3, dtype=torch.complex64),
        "conjugated": torch.zeros(2, 3, dtype=torch.complex64).conj(),
        "float8": torch.zeros(2, 3).to(torch.float8_e4m3fn),
        "meta": torch.zeros(2, 3, device="meta"),
        "leaf": leaf,
        "derived": leaf * 2,
        "detached": leaf.detach(),
        "parameter": torch.nn.Parameter(torch.zeros(2, 3)),
        "inference": inference,
        "scalar": torch.zeros(()),
        "six dimensions": torch.zeros(1, 1, 1, 1, 2, 3),
        "seven dimensions": torch.zeros(2, 1, 3, 1, 1, 1, 1).transpose(0, 2),
        "sparse": torch.zeros(2, 3).to_sparse(),
        "csr": torch.zeros(2, 3).to_sparse_csr(),
        "mkldnn": torch.zeros(2, 3).to_mkldnn() if torch.backends.mkldnn.is_available() else torch.zeros(4),
        "quantized": torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint8),
        "wrapper": Wrapper(torch.zeros(2, 3)),
        "other wrapper": Wrapper(torch.zeros(3, 3)),
        "subclass": torch.zeros(2, 3).as_subclass(type("Sub", (torch.Tensor,), {})),
        "unasked": Unasked(torch.zeros(2, 3)),
        "unasked, transposed": Unasked(torch.zeros(3, 2).t()),
        "unasked, double": Unasked(torch.zeros(2, 3, dtype=torch.float64)),
        "unasked, differentiated": Unasked(torch.zeros(2, 3), requires_grad=True),
        "unasked, meta": Unasked(torch.zeros(2, 3, device="meta")),
        "asked for its device": Unasked(torch.zeros(2, 3), dispatch_device=True),
        "asked for its strides": Unasked(torch.zeros(2, 3), dispatch_sizes_strides_policy="sizes"),
        "asked for its layout": Unasked(torch.zeros(2, 3), dispatch_layout=True),
        "none": None,
    }


SAMPLES = samples()
TENSORS = {name: tensor for name, tensor in SAMPLES.items() if tensor is not None}


def check(guard: Any, value: Any) -> bool:
    return bool(GuardSet([guard]).native(("x",)).check(value))


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_has_its_own_facts_and_no_other(name: str) -> None:
    guard = of(Local("x"), TENSORS[name])
    tree = GuardSet([guard]).native(("x",))
    for other, value in SAMPLES.items():
        expected = value is not None and type(value) is guard.type and holds(guard, value)
        assert tree.check(value) is expected, other
    assert tree.check(TENSORS[name])


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TENSORS)), st.sampled_from(sorted(TENSORS)), st.data())
def test_partial_facts(guarded: str, looked_at: str, data: Any) -> None:
    guard = of(Local("x"), TENSORS[guarded])
    for name in ("sizes", "strides"):
        dims = getattr(guard, name)
        if dims is not None:
            free = data.draw(st.lists(st.booleans(), min_size=len(dims), max_size=len(dims)))
            whole = data.draw(st.booleans())
            guard = replace(guard, **{name: None if whole else tuple(None if f else d for f, d in zip(free, dims))})
    if data.draw(st.booleans()):
        guard = replace(guard, requires_grad=None)
    if data.draw(st.booleans()):
        guard = replace(guard, dispatch_keys=None)
    if data.draw(st.booleans()):
        guard = replace(guard, type=type(TENSORS[looked_at]))
    assert check(guard, TENSORS[looked_at]) is holds(guard, TENSORS[looked_at])


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_facts_of_strided_views(sizes: list[int], data: Any) -> None:
    strides = data.draw(st.lists(st.integers(0, 9), min_size=len(sizes), max_size=len(sizes)))
    offset = data.draw(st.integers(0, 5))
    tensor = torch.zeros(400).as_strided(sizes, strides, offset)
    assert probe.configure()
    found = _native.tensor_facts(tensor)
    assert found[3:6] == (tuple(sizes), tuple(strides), offset)
    for dim in range(len(sizes)):
        assert check(Equals(TensorProperty(Local("x"), "size", dim), sizes[dim]), tensor)
        assert check(Equals(TensorProperty(Local("x"), "stride", dim - len(sizes)), strides[dim]), tensor)
    assert check(Equals(TensorProperty(Local("x"), "storage_offset"), offset), tensor)
    assert not check(Equals(TensorProperty(Local("x"), "size", len(sizes)), 1), tensor)


def test_sizes_of_a_class_that_answers_itself() -> None:
    assert check(Equals(TensorProperty(Local("x"), "size", 0), 2), SAMPLES["wrapper"])
    assert not check(Equals(TensorProperty(Local("x"), "size", 0), 3), SAMPLES["wrapper"])
    assert not check(Equals(TensorProperty(Local("x"), "size", 0), 3), 5)


def test_relation_of_sizes() -> None:
    x = Local("x")
    guard = SizeRelation("s0 % 2 == 0 and s0 < s1", (TensorProperty(x, "size", 0), TensorProperty(x, "size", 1)))
    assert check(guard, torch.zeros(2, 3))
    assert not check(guard, torch.zeros(3, 4))
    assert not check(guard, torch.zeros(4, 3))


def test_explains_each_difference() -> None:
    guards = GuardSet([of(Local("x"), torch.zeros(2, 3))])
    failure = guards.explain({"x": torch.zeros(2, 4, dtype=torch.float64)})
    assert failure is not None
    assert failure.expected == "dtype torch.float32, sizes (2, 3), strides (3, 1)"
    assert failure.found == "dtype torch.float64, sizes (2, 4), strides (4, 1)"


def test_a_tensor_changed_in_place() -> None:
    x = torch.zeros(2, 3)
    tree = GuardSet([of(Local("x"), x)]).native(("x",))
    assert tree.check(x)
    x.resize_(3, 2)
    assert not tree.check(x)
    x.resize_(2, 3)
    assert tree.check(x)
    x.requires_grad_()
    assert not tree.check(x)


def test_without_a_known_layout_all_is_checked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "dtype_code", lambda dtype: None)
    guard = of(Local("x"), torch.zeros(2, 3))
    assert check(guard, torch.ones(2, 3))
    assert not check(guard, torch.ones(3, 2))
    assert isinstance(guard, TensorMatch)


def test_probing_under_a_mode_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("nothing may run here")

    monkeypatch.setattr(probe, "_outcome", {})
    with Refusing():
        assert not probe.configure()
    assert probe.configure()


def test_a_tensor_whose_class_is_asked_for_nothing_is_read_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.configure()
    tensor = SAMPLES["unasked"]
    tree = GuardSet([of(Local("x"), tensor)]).native(("x",))
    from opmill_guards import tensor_facts

    def refuse(*_: Any) -> Any:
        raise AssertionError("asked in Python")

    monkeypatch.setattr(tensor_facts, "differences", refuse)
    assert tree.check(tensor)
    assert not tree.check(SAMPLES["asked for its device"])


def test_a_tensor_of_inference_mode_is_told_by_what_people_know() -> None:
    plain = torch.ones(3)
    with torch.inference_mode():
        made = torch.ones(3)
    keys = {
        name: tensor_facts.dispatch_keys(tensor) for name, tensor in (("plain", plain), ("made", made), ("conj", plain.cfloat().conj()))
    }
    guard = TensorMatch(Local("x"), torch.Tensor, torch.float32, torch.device("cpu"), torch.strided, None, None, None, keys["plain"])
    outside, inside = "outside of inference mode", "in inference mode"
    assert tensor_facts.differences(guard, plain) == {}
    assert tensor_facts.differences(guard, made) == {"made": (outside, inside)}
    assert tensor_facts.differences(replace(guard, dispatch_keys=keys["made"]), plain) == {"made": (inside, outside)}
    [told] = tensor_facts.differences(replace(guard, dispatch_keys=keys["conj"]), plain).values()
    assert told[0] == "Conjugate" and told[1].startswith("0x")
