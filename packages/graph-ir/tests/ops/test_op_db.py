"""Lowered programs against eager, on torch's sample inputs."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database needs it")

from sampling import compiled, graph_of, ops_by_name, samples  # noqa: E402

OPS = (
    "add sub mul div.no_rounding_mode div.floor_rounding div.trunc_rounding remainder fmod pow maximum minimum where masked_fill clamp abs neg sign exp log "
    "sqrt rsqrt tanh sigmoid erf floor ceil round trunc eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or isnan "
    "nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.hardswish nn.functional.hardsigmoid nn.functional.leaky_relu "
    "nn.functional.elu nn.functional.softplus nn.functional.mish addcmul addcdiv lerp rsub view reshape permute transpose t expand squeeze "
    "unsqueeze select split unbind chunk flip roll cat stack repeat tril triu sum mean amax amin prod any all argmax argmin var std var_mean "
    "softmax log_softmax nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm nn.functional.embedding gather index_select "
    "__getitem__ scatter scatter_add slice_scatter select_scatter arange full zeros ones eye constant_pad_nd matmul mm addmm bmm cumsum"
).split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_as_eager(name: str, dtype: torch.dtype) -> None:
    op = ops_by_name().get(name)
    if op is None or dtype not in op.dtypes:
        pytest.skip("no samples")
    with torch.no_grad():
        for args, kwargs in samples(op, dtype, 4):
            gm, tensors = graph_of(op.op, args, kwargs)
            expected = gm(*[t.clone() for t in tensors])
            got, _ = compiled(gm, tensors)
            for e, g in zip(expected, got, strict=True):
                if isinstance(e, torch.Tensor):
                    assert (g.shape, g.dtype) == (e.shape, e.dtype)
                    assert not e.numel() or all(n == 1 or a == b for n, a, b in zip(e.shape, e.stride(), g.stride(), strict=True))
                    loose = {"rtol": 1.6e-2, "atol": 8e-3} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
                    torch.testing.assert_close(g, e, equal_nan=True, **(loose if e.is_floating_point() else {"rtol": 0, "atol": 0}))
