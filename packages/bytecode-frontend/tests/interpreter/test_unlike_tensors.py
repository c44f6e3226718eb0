"""Tensors that no graph holds (sparse, nested, quantized), and what is made of a tensor and is none: the graph ends, the program is
right."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    QUANTIZED = torch.quantize_per_tensor(torch.arange(3.0), 0.1, 0, torch.qint8)
    NESTED = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])


def handed_over(x):
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2)) + 1


def sparse_made(x):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x[:2] * 2, (3, 3)) * 2


def sparse_given(x):
    return torch.sparse.mm(torch.eye(3).to_sparse(), x[:, None]) + 1


def quantized_made(x):
    return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.quint8).dequantize() + 1


def quantized_given(x):
    return QUANTIZED.dequantize() + x * 2


def nested_made(x):
    return torch.nested.nested_tensor([x * 2, x[:1]]).to_padded_tensor(0.0) + 1


def nested_given(x):
    return (NESTED * 2).to_padded_tensor(0.0) + x


WHOLE = [quantized_made]
PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_the_program_is_right(fn, caplog):
    x = torch.arange(3.0)
    want = fn(x)
    compiled = capture(fn)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            got = compiled(x)
            assert got.layout == want.layout and torch.equal(got.to_dense(), want.to_dense())
    assert not caplog.records
    if fn in WHOLE:
        assert torch.equal(capture(fn, fullgraph=True)(x), want)
        return
    with pytest.raises(Unsupported):
        capture(fn, fullgraph=True)(x)


def test_marks_of_complex_views(check):
    check(
        lambda a, b: (
            a.to(torch.complex64).conj().is_conj(),
            torch.is_conj(torch.complex(a, b).conj()),
            a.is_neg(),
            torch.complex(a, b).conj(),
        )
    )
