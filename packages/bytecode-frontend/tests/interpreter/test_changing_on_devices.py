"""Floats that change beside tensors on other devices: one graph for all of them, which is given them where the tensors lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

META = torch.device("meta")
CPU = torch.device("cpu")
"""Tensors without data stand for a device that has its own memory: nothing of it is read."""


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * self.factor


def assigned(x: torch.Tensor, k: float) -> torch.Tensor:
    x = x.clone()
    x[0] = k
    return x + 1


PROGRAMS: dict[str, Any] = {
    "a product": lambda x, k: x * k,
    "of a sum": lambda x, k: x.sum() * k,
    "a quotient": lambda x, k: k / (x + 1),
    "in place": lambda x, k: (x + 1).add_(k).mul_(k),
    "a step": lambda x, k: x.add(x.sin(), alpha=-k),
    "an interpolation": lambda x, k: torch.lerp(x, x + 1, k),
    "a bound": lambda x, k: x.clamp(max=k),
    "filling": lambda x, k: x.masked_fill(x > 0, k),
    "choosing": lambda x, k: torch.where(x > 0, x, k),
    "comparing": lambda x, k: (x > k).float(),
    "of integers": lambda x, k: (x > 0).long() * k,
    "an item": assigned,
    "a list": lambda x, k: torch._foreach_add([x, x + 1], [x, x], alpha=-k)[1],
    "an average of a list": lambda x, k: torch._foreach_lerp([x, x + 1], [x + 2, x], k)[0],
    "a full tensor": lambda x, k: torch.full_like(x, k) + x,
}


def given(fn: Any, dtype: torch.dtype, device: torch.device = META) -> tuple[int, set[torch.device]]:
    """How many graphs there are for eight numbers, and where the numbers lie that the last of them is given."""
    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append)
    devices: set[torch.device] = set()
    kept = torch.scalar_tensor

    def told(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = kept(*args, **kwargs)
        devices.add(made.device)
        return made

    torch.scalar_tensor = told
    try:
        for step in range(8):
            x = torch.ones(3, 4, dtype=dtype, device=device)
            found, wanted = compiled(x, 0.1 * (step + 1)), fn(x, 0.1 * (step + 1))
            assert (found.shape, found.dtype, found.device) == (wanted.shape, wanted.dtype, wanted.device)
            assert device == META or torch.allclose(found, wanted, rtol=1e-6, atol=1e-7)
    finally:
        torch.scalar_tensor = kept
    return len(translations), devices


@pytest.mark.parametrize("device", [META, CPU], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_serves_all_numbers(name, device):
    count, devices = given(PROGRAMS[name], torch.float32, device)
    assert count == 2 and devices == {device}


@pytest.mark.parametrize("name", ["a product", "of a sum", "a quotient", "comparing", "filling", "choosing", "an item"])
def test_beside_half_precision_they_are_on_the_device_and_not_rounded(name):
    """A tensor without dimensions on the device would be rounded to half precision first: the operator computes in single precision."""
    count, devices = given(PROGRAMS[name], torch.bfloat16)
    assert count == 2 and devices == {META}


def test_in_place_of_half_precision_they_are_numbers_of_the_processor():
    count, devices = given(PROGRAMS["in place"], torch.bfloat16)
    assert count == 2 and CPU in devices


def test_attributes_and_sizes():
    module, translations = Scaled(), []
    compiled = capture(lambda x: module(x), "eager", on_translation=translations.append)
    for step in range(8):
        module.factor = 0.1 * (step + 1)
        compiled(torch.ones(3, device=META))
    assert len(translations) == 2

    translations = []
    compiled = capture(lambda x: x + 1 / len(x), "eager", on_translation=translations.append)
    for step in range(8):
        assert compiled(torch.ones(3 + step, device=META)).shape == (3 + step,)
    assert len(translations) == 2


def test_backends_of_others_are_given_numbers_as_they_are():
    graphs = []

    def backend(module, inputs):
        graphs.append([x for x in inputs if isinstance(x, torch.Tensor)])
        return module.forward

    compiled = capture(lambda x, k: x * k, backend)
    for step in range(4):
        compiled(torch.ones(3, device=META), 0.1 * (step + 1))
    assert all(len(tensors) == 1 for tensors in graphs)
