"""Quantised tensors that captured code makes: what is read of them is in the graph, what is done with them ends it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture

Q = torch.quantize_per_tensor
WHOLE = {
    "there and back": lambda x: Q(x * 2, 0.1, 3, torch.quint8).dequantize() + 1,
    "integers": lambda x: Q(x, 0.05, 0, torch.qint8).int_repr() * 2,
    "both": lambda x: (Q(x, 0.5, 1, torch.qint32).int_repr(), Q(x, 0.25, 2, torch.quint8).dequantize()),
    "functions": lambda x: (lambda q: (torch.dequantize(q), torch.int_repr(q), torch.q_scale(q) * x))(Q(x, 0.1, 0, torch.quint8)),
    "facts": lambda x: (lambda q: (q.dequantize(), q.dtype, q.is_quantized, q.q_scale(), q.q_zero_point(), q.qscheme(), q.shape))(Q(x, 0.1, 0, torch.qint8)),
    "more": lambda x: (lambda q: (x + q.dim(), q.size(0), q.numel(), q.device, q.requires_grad, isinstance(q, torch.Tensor)))(Q(x, 0.1, 0, torch.qint8)),
    "written after": lambda x: (lambda q: (q.int_repr().add_(1), q.int_repr(), q.dequantize()))(Q(x.clone(), 0.1, 0, torch.qint8)),
    "of a changed tensor": lambda x: changed(x.clone()),
}  # fmt: skip
ENDING = {
    "handed out": lambda x: (Q(x, 0.1, 0, torch.quint8), x + 1),
    "twice": lambda x: (lambda q: [q, q, q.dequantize()])(Q(x, 0.1, 0, torch.quint8)),
    "computed with": lambda x: torch.relu(Q(x, 0.1, 0, torch.quint8)).dequantize() * 2,
    "a part": lambda x: Q(x, 0.1, 0, torch.quint8)[0].dequantize(),
    "converted": lambda x: Q(x, 0.1, 0, torch.quint8).reshape(-1).int_repr(),
    "told": lambda x: str(Q(x, 0.1, 0, torch.quint8)),
    "by channel": lambda x: torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.quint8).dequantize(),
    "by tensors": lambda x: Q(x, torch.tensor(0.1), torch.tensor(0), torch.quint8).dequantize(),
    "turned": lambda x: Q(x.t(), 0.1, 0, torch.quint8).dequantize(),
    "refused": lambda x: Q(x, 0.1, 300, torch.quint8).dequantize(),
    "of doubles": lambda x: Q(x.double(), 0.1, 0, torch.quint8).dequantize(),
    "no such type": lambda x: Q(x, 0.1, 0, torch.float32),
    "compared": lambda x: Q(x, 0.1, 0, torch.quint8).equal(Q(x, 0.1, 0, torch.quint8)),
}


def changed(x: torch.Tensor) -> Any:
    q = Q(x, 0.1, 0, torch.qint8)
    x.add_(1)
    return q.dequantize(), x


def plainly(found: Any) -> Any:
    """Quantised tensors as what they hold."""
    if isinstance(found, torch.Tensor) and found.is_quantized:
        return found.dtype, found.stride(), found.q_scale(), found.q_zero_point(), found.int_repr()
    return type(found)(map(plainly, found)) if type(found) in (tuple, list) else found


@pytest.mark.parametrize("name", [*WHOLE, *ENDING])
@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors(name: str) -> None:
    program = {**WHOLE, **ENDING}[name]
    compiled = capture(program, "eager", fullgraph=name in WHOLE)
    for scale in (1.0, 30.0, 0.0, float("nan"), float("inf")):
        for grad in (False, True):
            x = (torch.arange(-4.0, 4.0).reshape(2, 4) * scale).requires_grad_(grad)
            assert same(plainly(outcome(compiled, x)), plainly(outcome(program, x))), scale
            found = outcome(compiled, x)
            assert name != "twice" or found[0] is found[1]
