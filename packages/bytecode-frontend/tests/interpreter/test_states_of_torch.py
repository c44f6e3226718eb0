"""States of torch that captured code sets: default devices, switches of kernels, types and threads, generators. Each call sets them, and a
capture leaves none set."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from opmill_bytecode_frontend import Unsupported, capture
from opmill_bytecode_frontend.graph import recorder

META = torch.device("meta")
GENERATOR = torch.Generator()


def in_a_block(x: torch.Tensor) -> Any:
    with torch.device("meta"):
        made = torch.ones(3), torch.arange(2, dtype=x.dtype), torch.zeros(2, device="cpu"), torch.full((1,), 2, device=None)
    return made, torch.ones(3) + x


def in_blocks(x: torch.Tensor) -> Any:
    with META:
        outer = torch.ones(1)
        with torch.device("cpu"):
            inner = torch.ones(1) + 1
        return outer, inner, torch.empty(2), torch.get_default_device(), x + 1


def broken(x: torch.Tensor) -> Any:
    with torch.device("meta"):
        first = torch.ones(3)
        rows = x.tolist()
        second = torch.zeros(2)
    return first, rows, second, torch.ones(1)


def left_by_an_error(x: torch.Tensor) -> Any:
    try:
        with torch.device("meta"):
            raise ValueError
    except ValueError:
        return torch.ones(3) + x


def places(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.device, found.dtype, None if found.is_meta else found.tolist()
    return [places(v) for v in found] if isinstance(found, tuple) else found


@pytest.mark.parametrize("fn", [in_a_block, in_blocks, broken, left_by_an_error], ids=lambda fn: fn.__name__)
def test_blocks_with_a_device(fn):
    want = places(fn(torch.arange(3.0)))
    compiled = capture(fn, "eager", fullgraph=fn is not broken)
    for _ in range(2):
        assert places(compiled(torch.arange(3.0))) == want
        assert torch._C._len_torch_function_stack() == 0


SETTERS: dict[str, tuple[Any, Any, Any, Any]] = {
    "threads": (torch.set_num_threads, torch.get_num_threads, 1, 2),
    "type": (torch.set_default_dtype, torch.get_default_dtype, torch.float32, torch.float64),
    "device": (torch.set_default_device, lambda: torch.ones(1).device.type, "cpu", "meta"),
    "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "highest", "high"),
    "warnings": (torch.set_warn_always, torch.is_warn_always_enabled, False, True),
    "attention": (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled, True, False),
    "generator": (torch.default_generator.manual_seed, lambda: torch.rand(2).tolist(), 1, 2),
}


@pytest.fixture(params=SETTERS)
def setter(request: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    put, get, old, new = SETTERS[request.param]
    before = torch.get_num_threads()
    yield put, get, old, new
    put(old)
    torch.set_default_device(None)
    torch.set_num_threads(before)


def test_each_call_sets_what_the_program_sets(setter):
    put, get, old, new = setter

    def f(x, value):
        y = x + 1
        put(value)
        return y * 2

    def constants(gm, example_inputs):  # keeps no step of the graph but its results
        return lambda *inputs: [torch.full((2,), 4.0)]

    for backend in ("eager", constants):
        compiled = capture(f, backend)
        for _ in range(2):
            put(old)
            x = torch.ones(2, dtype=torch.float32, device="cpu")
            compiled(x, new)
            seen = get()
            put(new)
            assert seen == get()


def test_kernels_of_attention_are_chosen_in_a_graph():
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q) + 1

    q = torch.ones(1, 2, 4, 8)
    assert torch.equal(capture(f, "eager", fullgraph=True)(q), f(q))
    assert torch.backends.cuda.flash_sdp_enabled()


def test_states_of_generators_are_read_when_the_program_runs():
    def again(x):
        state = GENERATOR.get_state()
        first = torch.rand(2, generator=GENERATOR) + x
        GENERATOR.set_state(state)
        return first, torch.rand(2, generator=GENERATOR) + x

    compiled = capture(again, "eager")
    GENERATOR.manual_seed(1)
    want = [again(torch.zeros(2)) for _ in range(2)]
    GENERATOR.manual_seed(1)
    assert all(
        torch.equal(a, b)
        for pair in zip(want, [compiled(torch.zeros(2)) for _ in range(2)], strict=True)
        for a, b in zip(*pair, strict=True)
    )


def test_a_block_outside_of_inference_mode_ends_the_graph():
    """A graph in inference mode has no gradients, whatever its switches say."""

    def f(x):
        y = x * 2
        with torch.inference_mode(False):
            return (x * 3).sum(), y

    compiled = capture(f, "eager")
    for call in (f, compiled, compiled):
        x = torch.ones(2, requires_grad=True)
        with torch.inference_mode():
            total, y = call(x)
            assert torch.is_inference_mode_enabled()
        assert total.requires_grad and not y.requires_grad and y.is_inference()
        assert torch.equal(torch.autograd.grad(total, x)[0], torch.full((2,), 3.0))


ANSWERS = {
    **dict.fromkeys(("torch._C._get_tracing_state", "torch.jit.is_scripting", "torch.jit.is_tracing", "torch.onnx.is_in_onnx_export")),
    **dict.fromkeys(("torch.compiler.is_exporting", "torch.fx._symbolic_trace.is_fx_tracing", "torch._C._is_torch_function_mode_enabled")),
    **dict.fromkeys(("torch.is_grad_enabled", "torch.is_inference_mode_enabled", "torch.is_autocast_enabled", "torch.get_default_dtype")),
    **dict.fromkeys(("torch.get_num_threads", "torch.are_deterministic_algorithms_enabled", "torch.get_float32_matmul_precision")),
    **dict.fromkeys(("torch.is_anomaly_enabled", "torch.is_warn_always_enabled", "torch.cuda.is_available", "torch.get_default_device")),
    **dict.fromkeys(("torch.distributed.is_available", "torch.backends.cudnn.is_available", "torch.is_autocast_cache_enabled")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_questions_about_torch_are_answered_as_in_eager(name: str) -> None:
    owner, _, function = name.rpartition(".")
    ask = getattr(importlib.import_module(owner) if owner != "torch.jit" else torch.jit, function)

    def f(x: torch.Tensor) -> Any:
        return x * 2, ask(), ask() is None, bool(ask())

    want = f(torch.ones(2))
    assert str(capture(f, "eager", fullgraph=True)(torch.ones(2))) == str(want)


def without_slope(x: torch.Tensor) -> torch.Tensor:
    return (x * 0).sqrt().sum() * 0


def looked_at_inside(x: torch.Tensor) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        without_slope(x).backward()
    return x.grad


@pytest.mark.filterwarnings("ignore")  # of the mode itself
@pytest.mark.parametrize("before", [True, False])
def test_anomalies_are_of_the_operators_of_the_program(before: bool) -> None:
    """Also where the mode is switched on after a capture, and inside of one."""
    compiled = capture(without_slope, "eager")
    if before:
        compiled(torch.ones(3, requires_grad=True)).backward()
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
        compiled(torch.ones(3, requires_grad=True)).backward()
    x = torch.ones(3, requires_grad=True)
    compiled(x).backward()
    assert x.grad is not None and x.grad.isnan().all()
    with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
        capture(looked_at_inside, "eager")(torch.ones(3, requires_grad=True))
    assert not torch.is_anomaly_enabled()


ASKED = {
    "backends.cuda.matmul.allow_tf32": ("torch.backends.cuda.matmul.allow_tf32 = {}", True, False),
    "backends.cudnn.benchmark": ("torch.backends.cudnn.benchmark = {}", True, False),
    "backends.cudnn.deterministic": ("torch.backends.cudnn.deterministic = {}", True, False),
    "backends.mkldnn.enabled": ("torch.backends.mkldnn.enabled = {}", False, True),
    "backends.cuda.flash_sdp_enabled()": ("torch.backends.cuda.enable_flash_sdp({})", False, True),
    "get_float32_matmul_precision()": ("torch.set_float32_matmul_precision({!r})", "high", "highest"),
    "is_warn_always_enabled()": ("torch.set_warn_always({})", True, False),
    "get_autocast_dtype('cpu')": ("torch.set_autocast_dtype('cpu', {})", torch.float16, torch.bfloat16),
    "utils.deterministic.fill_uninitialized_memory": ("torch.utils.deterministic.fill_uninitialized_memory = {}", False, True),
    "sparse.check_sparse_tensor_invariants.is_enabled()": ("torch._C._set_check_sparse_tensor_invariants({})", True, False),
}


@pytest.mark.parametrize("question", ASKED)
def test_a_state_that_was_asked_for_is_asked_again(question):
    change, other, before = ASKED[question]
    names = {"torch": torch}
    exec(f"def f(x):\n    return torch.{question}, x + 1", names)
    captured = capture(names["f"], "eager", fullgraph=True)
    try:
        for now in (before, other, before):
            exec(change.format(now), names)
            assert captured(torch.ones(1))[0] == names["f"](torch.ones(1))[0] == now
    finally:
        exec(change.format(before), names)


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize(
    "block", ["torch.no_grad()", "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.backends.cudnn.flags(enabled=False)"]
)
def test_a_state_that_was_asked_for_under_another_one(question, block):
    """Captured code that has set one state has not set the others."""
    change, other, before = ASKED[question]
    names = {"torch": torch}
    exec(f"def f(x):\n    with {block}:\n        return torch.{question}, x + 1", names)
    captured = capture(names["f"], "eager")
    try:
        for now in (before, other, before):
            exec(change.format(now), names)
            assert captured(torch.ones(1))[0] == names["f"](torch.ones(1))[0]
    finally:
        exec(change.format(before), names)


BLOCKS = {
    "a default dtype": """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    made = torch.ones(3), torch.arange(3.0), torch.tensor(1.5), torch.tensor([2, 0.5]), x.long() / 2, torch.get_default_dtype()
    torch.set_default_dtype(before)
    return made, torch.ones(2), x * 2
""",
    "a default dtype, and an error": """
    try:
        torch.set_default_dtype(torch.float64)
        made = torch.ones(len(x)) + 1
        raise ValueError
    except ValueError:
        return made, x.new_ones(2)
    finally:
        torch.set_default_dtype(torch.float32)
""",
    "a default dtype that stays": """
    torch.set_default_dtype(torch.float64)
    return torch.ones(3) + 1, x * 2
""",
    "libraries": """
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        inside = torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, x * 2
    return inside, torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark
""",
    "a library that stays": """
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    y = x * 2
    torch.backends.cudnn.deterministic = True
    return y + 1, torch.backends.cudnn.benchmark
""",
}


@pytest.mark.parametrize("backend", ["eager", "again"])
@pytest.mark.parametrize("name", BLOCKS)
def test_what_captured_code_sets_is_set_for_what_follows(name, backend):
    """No graph ends there. Also for a backend that runs the graph while it compiles."""
    names: dict[str, Any] = {"torch": torch}
    exec(f"def f(x):{BLOCKS[name]}", names)

    def again(gm, example_inputs):
        gm(*example_inputs)
        return gm.forward

    captured = capture(names["f"], again if backend == "again" else backend, fullgraph=True)
    asks = torch.get_default_dtype, lambda: torch.backends.cudnn.benchmark, lambda: torch.backends.cudnn.deterministic
    found = []
    for call in (names["f"], captured, captured, captured):
        try:
            found.append([places(call(torch.arange(3.0, dtype=torch.float32))), *(ask() for ask in asks)])
            if call is captured:
                found.append([places(call(torch.arange(3.0, dtype=torch.float32))), *(ask() for ask in asks)])
        finally:
            torch.set_default_dtype(torch.float32)
            torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    assert all(each == found[0] for each in found[:2])
    assert found[1::2] == [found[1]] * 3 and found[2::2] == [found[2]] * 3


def test_a_device_whose_libraries_are_told_something_ends_the_graph(monkeypatch: Any) -> None:
    def f(x):
        with torch.backends.cudnn.flags(enabled=False):
            y = x * 2
        return y + 1

    assert torch.equal(capture(f, "eager", fullgraph=True)(torch.ones(2)), torch.full((2,), 3.0))
    monkeypatch.setattr(recorder, "on_processor", lambda values: False)
    with pytest.raises(Unsupported, match="libraries of devices"):
        capture(f, "eager", fullgraph=True)(torch.ones(2))
    assert torch.equal(capture(f, "eager")(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.backends.cudnn.enabled


def test_a_state_that_captured_code_changed_itself():
    def f(x):
        before = torch.backends.mkldnn.enabled, torch.get_autocast_dtype("cpu")
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.float16):
            inside = torch.backends.mkldnn.enabled, torch.get_autocast_dtype("cpu")
        return before, inside, torch.backends.mkldnn.enabled, torch.get_autocast_dtype("cpu"), x + 1

    captured = capture(f, "eager")
    for _ in range(3):
        assert captured(torch.ones(1))[:4] == f(torch.ones(1))[:4]


def test_switches_that_operators_written_in_python_read(monkeypatch: Any) -> None:
    """A backend that takes a graph apart keeps the order in which products are made: it depends on these."""
    state = torch.backends.opt_einsum.m
    asked: list[Any] = []

    def contract_path(equation: str, *operands: Any, optimize: Any) -> Any:
        asked.append(optimize)
        return [(0, 1), (0, 1)], ""

    monkeypatch.setattr(state, "_opt_einsum", types.SimpleNamespace(contract_path=contract_path))
    monkeypatch.setattr(state, "is_available", lambda: True)
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append((state.enabled, state.strategy))
        return gm.forward

    captured = capture(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), backend, fullgraph=True)
    given = torch.ones(2, 3), torch.ones(3, 4), torch.ones(4, 5)
    states = [(True, "auto"), (False, "auto"), (True, "greedy"), (True, None)]
    for enabled, strategy in (*states, *states):
        monkeypatch.setattr(state, "enabled", enabled)
        monkeypatch.setattr(state, "strategy", strategy)
        asked.clear()
        assert captured(*given).tolist() == [[12.0] * 5] * 2
        assert asked[-1:] == [strategy] * enabled
    assert graphs == states
