"""A captured graph as a script that stands alone: what a bug report needs, without the weights and the data."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_HEAD = "import torch\nimport torch.fx\nfrom math import inf, nan\nfrom torch import device\n"


def program_text(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """A script that makes inputs of the same kinds out of random numbers, compiles the graph for them, and prints what ``opmill.check``
    says."""
    return "\n".join(
        [module_text(gm, inputs), 'if __name__ == "__main__":', "    import opmill", "", "    print(opmill.check(Program())(*inputs()))"]
    )


def module_text(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """A module with the graph as ``Program``, and ``inputs()`` that it can be called with."""
    attributes = {n.target: _attribute(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    made = [f"        self.{_flat(target)} = {_made(value)}" for target, value in attributes.items()]
    code = gm.code.strip()
    for target in sorted(attributes, key=len, reverse=True):
        code = re.sub(rf"\bself\.{re.escape(target)}\b", f"self.{_flat(target)}", code)
    values = "".join(f"        {_made(value)},\n" for value in inputs)
    parts = [
        _HEAD,
        "class Program(torch.nn.Module):\n    def __init__(self):\n        super().__init__()",
        *made,
        "",
        textwrap.indent(code, "    "),
        "",
        "",
        f"def inputs():\n    torch.manual_seed(0)\n    return [\n{values}    ]",
        "",
    ]
    return "\n".join(parts)


def _flat(target: str) -> str:
    return target.replace(".", "_")


def _attribute(gm: Any, path: str) -> Any:
    for part in path.split("."):
        gm = getattr(gm, part)
    return gm


def _made(value: Any) -> str:
    """An expression that gives a value of the same kind: random numbers in a tensor of the same layout, anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    empty = f"torch.empty_strided({sizes}, {strides}, dtype={value.dtype}, device={str(value.device)!r})"
    if value.is_floating_point() or value.is_complex():
        made = f"{empty}.normal_()"
    else:
        low, high = (int(value.min()), int(value.max()) + 1) if value.numel() and not value.is_meta else (0, 2)
        made = f"{empty}.copy_(torch.randint({low}, {high}, {sizes}))"
    return (
        f"torch.nn.Parameter({made})"
        if isinstance(value, torch.nn.Parameter)
        else f"{made}.requires_grad_()"
        if value.requires_grad
        else made
    )
