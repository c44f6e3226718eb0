"""Texts that tell what a tensor holds: made where the program needs them, and not where only a failed check would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported


def check(condition: Any, message: str) -> None:
    """As libraries write it: a demand that a compiler follows, and a message that was made before."""
    if torch.compiler.is_compiling():
        torch._check_tensor_all(condition)
    elif not condition:
        raise ValueError(message)


def checked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    check(torch.all(y > 0), f"negative: {y}, {x.sum()}")
    return y + 1


def outcome(function: Callable[..., object], x: torch.Tensor) -> str:
    try:
        return repr(function(x))
    except Exception as error:
        return repr(error)


def test_a_message_for_a_check_ends_no_graph() -> None:
    compiled = capture(checked, "eager", fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert outcome(compiled, x) == outcome(checked, x)


USED: dict[str, Callable[[torch.Tensor], object]] = {
    "returned": lambda x: f"{x}",
    "in a text": lambda x: f"<{f'{x}'}> {x.shape}",
    "joined": lambda x: "".join(["a", f"{x}"]),
    "added": lambda x: "a" + f"{x}" + "b",
    "formatted": lambda x: ("%s" % f"{x}", f"{f'{x}'!r:>90}", str(f"{x}")),  # noqa: UP031
    "compared": lambda x: (f"{x}" == "a", "t" in f"{x}", f"{x}" is None, not f"{x}", f"{x}" or "b"),
    "taken apart": lambda x: (len(f"{x}"), f"{x}"[0], list(f"{x}")[:2], f"{x}".upper(), f"{x}" * 2),
    "a key": lambda x: ({f"{x}": 1}, {f"{x}", f"{x}"}),
    "its class": lambda x: (isinstance(f"{x}", str), type(f"{x}"), callable(f"{x}")),
    "sorted": lambda x: sorted([f"{x}", "a"]),
    "a number": lambda x: int(f"{x.sum().int()}"),
    "a name": lambda x: getattr(x, f"{x.sum().int()}", 1),
}


@pytest.mark.parametrize("name", USED)
@pytest.mark.filterwarnings("ignore::opmill_bytecode_frontend.errors.CaptureWarning")
def test_a_text_that_is_used(name: str) -> None:
    def function(x: torch.Tensor) -> object:
        return USED[name](x * 2), x + 1

    compiled = capture(function, "eager")
    for x in (torch.ones(2), torch.ones(2), torch.zeros(2)):
        assert outcome(compiled, x) == outcome(function, x)


def test_the_reason_is_told() -> None:
    with pytest.raises(Unsupported, match="FE025: text of a tensor"):
        capture(lambda x: f"{x * 2}", "eager", fullgraph=True)(torch.ones(2))
