"""What has no fakes."""

import pytest
import torch

from opmill_fake_tensors.unlike import numbered, unlike


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: torch.ones(2, 2), None),
        (lambda: torch.ones(2, 2).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.ones(2, 2).to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "a quantized tensor (torch.qint8)"),
        (lambda: torch.ones(2, 2).T[:, ::2], None),
    ],
)
def test_elements_that_are_numbers_and_lie_by_strides_have_fakes(make, what):
    assert unlike(make()) == what


def test_devices_of_one_kind_alone_are_themselves():
    for name in ("cpu", "meta", "cuda:1"):
        assert numbered(torch.device(name)) == torch.device(name)
    assert numbered(torch.device("cuda")).index == 0 or torch.cuda.is_initialized()
