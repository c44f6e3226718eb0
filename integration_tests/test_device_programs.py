"""Programs of device_programs.py, compiled in each mode, against eager on the same device."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opmill

sys.path.insert(0, str(Path(__file__).parent))  # the programs beside this file, whatever import mode pytest runs in
from device_programs import ON_GPUS, PROGRAMS, TRAINED  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
MODES = ["default", "reduce-overhead"] if GPU else ["default"]
pytestmark = pytest.mark.filterwarnings("ignore")


def own(value: Any) -> Any:
    """Arguments that nobody else sees."""
    if isinstance(value, torch.Tensor):
        pinned = value.is_pinned() if GPU and value.device.type == "cpu" else False
        return value.clone().pin_memory() if pinned else value.clone(memory_format=torch.preserve_format)
    if isinstance(value, torch.Generator):
        other = torch.Generator(value.device)
        other.set_state(value.get_state())
        return other
    return tuple(map(own, value)) if isinstance(value, tuple) else value


def flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (tuple, list)) else [value]


def assert_same(found: Any, wanted: Any) -> None:
    found, wanted = flat(found), flat(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b) and a == b
            continue
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
        if b.dtype in (torch.float16, torch.bfloat16):
            torch.testing.assert_close(a.float(), b.float(), atol=3e-2, rtol=3e-2)
        else:
            torch.testing.assert_close(a, b, atol=2e-4, rtol=2e-4, check_stride=b.layout is torch.strided)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, mode: str) -> None:
    if name in ON_GPUS and not GPU:
        pytest.skip("needs an NVIDIA GPU")
    torch.manual_seed(0)
    run, calls = PROGRAMS[name](DEVICE)
    step = getattr(run, "step", None)
    compiled = opmill.compile(run if step is None else step, mode=mode)
    kept = []
    with torch.no_grad():
        for arguments in [call for call in calls for _ in range(4 if mode != "default" else 2)]:
            given, theirs = own(arguments), own(arguments)
            wanted = run(*given) if step is None else run(step, *given)
            found = compiled(*theirs) if step is None else run(compiled, *theirs)
            assert_same(found, wanted)
            assert_same([a for a in theirs if isinstance(a, torch.Tensor)], [a for a in given if isinstance(a, torch.Tensor)])
            kept.append((found, wanted))
    for found, wanted in kept:  # nobody has written to what was given out
        assert_same(found, wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["plain", "scaled half precision", "brain floats", "AdamW"])
@pytest.mark.parametrize("name", TRAINED)
def test_trained_as_eager(name: str, how: str, mode: str) -> None:
    if how == "scaled half precision" and not GPU:
        pytest.skip("needs an NVIDIA GPU")
    if how == "scaled half precision" and "complex" in name:
        pytest.skip("torch's scaler takes no complex gradients")
    if how == "brain floats" and "recurrent" in name and not GPU:
        pytest.skip("torch has no such kernel on every processor")
    torch.manual_seed(0)
    first, calls = TRAINED[name](DEVICE)
    second = copy.deepcopy(first)
    dtype = {"scaled half precision": torch.float16, "brain floats": torch.bfloat16}.get(how)
    weights = []
    for model, call in ((first, first), (second, opmill.compile(second, mode=mode))):
        optimizer: torch.optim.Optimizer
        optimizer = (
            torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-2)
            if how == "AdamW"
            else torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        )
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, enabled=dtype is torch.float16)
        for arguments in calls:
            optimizer.zero_grad()
            with torch.autocast(DEVICE.type, dtype or torch.bfloat16, enabled=dtype is not None):
                out = call(*own(arguments))
                loss = F.cross_entropy(out, torch.arange(out.shape[0], device=DEVICE) % out.shape[1])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
        weights.append([t.detach().double() for t in (*model.parameters(), *model.buffers())])
    tolerance = 5e-4 if dtype is None else 2e-2
    for a, b in zip(*weights, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
