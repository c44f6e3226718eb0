"""What a program asks of the devices that there are is known while a graph is made; which one is the current one is assumed."""

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture


class Asked:
    """A device module of torch whose devices can do other things, on any machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = 0
        for function in (self.get_device_capability, self.is_bf16_supported, self.current_device):
            monkeypatch.setattr(torch.cuda, function.__name__, self.named(function))

    @staticmethod
    def named(function):
        def own(*args, **kwargs):
            return function(*args, **kwargs)

        own.__module__, own.__name__, own.__qualname__ = "torch.cuda", function.__name__, function.__name__
        return own

    def get_device_capability(self, device=None):
        index = self.current if device is None else torch.device(device).index if not isinstance(device, int) else device
        return (8 + (self.current if index is None else index), 0)

    def is_bf16_supported(self):
        return self.current == 1

    def current_device(self):
        return self.current


def capability(x):
    return x * 2 if torch.cuda.get_device_capability() >= (9, 0) else x + 1


def of_one(x):
    return x * torch.cuda.get_device_capability(1)[0] + torch.cuda.get_device_capability(torch.device("cuda:0"))[0]


def halves(x):
    return x.bfloat16() if torch.cuda.is_bf16_supported() else x.half()


@pytest.mark.parametrize("program", [capability, of_one, halves], ids=lambda p: p.__name__)
def test_what_devices_can_do(program, monkeypatch) -> None:
    devices = Asked(monkeypatch)
    compiled = capture(program, fullgraph=True)
    x = torch.randn(3)
    for devices.current in (0, 1, 0, 1):
        assert torch.equal(compiled(x), program(x))
    assert len(compiled.entries) == (1 if program is of_one else 2)


def test_functions_that_cannot_be_hashed(monkeypatch) -> None:
    """As those of C++ libraries: what is looked up by function is not there for them."""

    class Function:
        __hash__ = None
        __name__ = "unhashable"
        __module__ = "torch._C"

        def __call__(self, x):
            return x + 1

    function = Function()
    compiled = capture(lambda x: function(x) * 2)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
