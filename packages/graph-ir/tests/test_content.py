"""The bytes of a tensor's elements."""

import pytest
import torch

from opmill_graph_ir.content import content_of

T = torch.arange(6, dtype=torch.int16).reshape(2, 3)


@pytest.mark.parametrize(
    "tensor",
    [
        T,
        T.T,
        T[:, ::2],
        T[0, 0],
        T[:0],
        torch.tensor([True, False]),
        torch.randn(3, dtype=torch.bfloat16),
        torch.randn(2, requires_grad=True),
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}",
)
def test_elements_in_row_major_order(tensor):
    found = content_of(tensor)
    assert len(found) == tensor.numel() * tensor.element_size()
    if found:
        assert torch.equal(torch.frombuffer(bytearray(found), dtype=tensor.dtype).reshape(tensor.shape), tensor)


@pytest.mark.parametrize("tensor", [torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex64).conj().imag])
def test_marks_are_computed(tensor):
    """Conjugates and negatives that are only marked so."""
    again = torch.frombuffer(bytearray(content_of(tensor)), dtype=tensor.dtype)
    assert torch.equal(again, tensor)
