"""Lowered programs against eager, on torch's own sample inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database needs it")

from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower


def ops_by_name() -> dict[str, Any]:
    return {f"{o.name}{'.' + o.variant_test_name if o.variant_test_name else ''}": o for o in op_db}


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    torch.manual_seed(0)
    for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        yield (s.input, *s.args), s.kwargs


def graph_of(fn: Any, args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """``fn(*args, **kwargs)`` as an FX graph whose placeholders are the tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    graph, tensors, nodes = torch.fx.Graph(), [], []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            nodes.append(graph.placeholder(f"a{len(tensors)}"))
            tensors.append(leaf)
        else:
            nodes.append(leaf)

    def call(*flat: Any) -> Any:
        a, k = pytree.tree_unflatten(flat, spec)
        return pytree.tree_leaves(fn(*a, **k))

    graph.output(graph.call_function(call, tuple(nodes)))
    return torch.fx.GraphModule(torch.nn.Module(), graph), tensors


def compiled(gm: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> tuple[list[Any], Any]:
    graph = functionalize(gm, tensors)
    program = lower(graph)
    return run_lowered(program, [t.clone() for t in tensors] + graph.held_tensors), program


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
