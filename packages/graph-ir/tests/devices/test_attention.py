"""Which of torch's kernels for attention runs on GPUs."""

import pytest
import torch
from gpu_graphs import calls, on_gpu, planned

HALF = torch.bfloat16
CUDNN, FLASH = "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_flash_attention"


def attention(mask: bool = False, sums: bool = False, dropout: float = 0.0, causal: bool = False, all_results: bool = False):
    def call(q, k, v, m):
        found = torch.ops.aten._scaled_dot_product_cudnn_attention.default(q, k, v, m if mask else None, sums, dropout, causal, scale=0.125)
        return (found[0], found[1]) if all_results else found[0].transpose(1, 2) * 2

    return call


def heads(length: int = 128, depth: int = 64, rows: int = 2) -> torch.Tensor:
    return on_gpu(rows, length, 4, depth, dtype=HALF).transpose(1, 2)


def operands(query: torch.Tensor, key: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    key = query if key is None else key
    return query, key, key, on_gpu(query.shape[0], 1, query.shape[2], key.shape[2], dtype=HALF)


@pytest.mark.parametrize(
    ("how", "inputs", "short"),
    [
        (attention(), operands(heads()), True),
        (attention(causal=True), operands(heads()), True),
        (attention(), operands(heads(256), heads(40)), True),
        (attention(causal=True), operands(heads(128), heads(40)), False),  # where the triangle lies is another matter there
        (attention(mask=True), operands(heads()), False),
        (attention(sums=True), operands(heads()), False),
        (attention(dropout=0.5), operands(heads()), False),
        (attention(), operands(heads(257)), False),
        (attention(), operands(heads(depth=128)), False),
        (attention(), operands(heads(depth=36)), False),  # torch pads such
        (attention(), operands(on_gpu(2, 4, 128, 64, dtype=HALF)), False),  # the result lies as the query does
    ],
)
def test_short_rows_take_flash_attention(how, inputs, short: bool) -> None:
    plan = planned(how, *inputs)
    assert [len(calls(plan, FLASH)), len(calls(plan, CUDNN))] == [short, not short]


def test_it_stays_off_where_the_program_turned_it_off() -> None:
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert len(calls(planned(attention(), *operands(heads())), CUDNN)) == 1
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
