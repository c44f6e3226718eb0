"""Modules compiled with their backward, and eager twins to compare with."""

import copy
import sys
import warnings
from pathlib import Path

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.options import GraphOptions

sys.path.insert(0, str(Path(__file__).parent))  # the cases beside these tests, whatever import mode pytest runs in


class _Tracer(torch.fx.Tracer):
    proxy_buffer_attributes = True


class Twins:
    """A module in eager and, with equal parameters, compiled (plans of torch's operators: any environment has them). ``gm`` makes the graph
    of what cannot be traced."""

    def __init__(self, module, *inputs, generators=(), bucket_bytes=0, gm=None):
        self.eager, self.module = module, copy.deepcopy(module)
        self.gm = gm(self.module) if gm else torch.fx.GraphModule(self.module, _Tracer().trace(self.module))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="GI030")
            options = GraphOptions(verify=True, cache=False, bucket_bytes=bucket_bytes)
            self.compiled = compile_graph(self.gm, [fresh(x) for x in inputs], options=options, generators=generators)

    def run(self, use, *inputs, seed=3):
        """What ``use(call, module, inputs)`` gives for both: lists of tensors or None."""
        given = [(fresh(x), fresh(x)) for x in inputs]
        torch.manual_seed(seed)
        want = use(self.eager, self.eager, [a for a, _ in given])
        torch.manual_seed(seed)
        got = use(self.call, self.module, [b for _, b in given])
        return want, got

    def call(self, *inputs):
        found = self.compiled(*inputs)
        return found[0] if len(found) == 1 else tuple(found)

    def same(self, use, *inputs, **kwargs):
        equal(*self.run(use, *inputs, **kwargs))


def fresh(x):
    if not isinstance(x, torch.Tensor):
        return x
    # as_strided keeps overlapping and padded layouts that clone() would change
    copied = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    torch.as_strided(copied, (copied.untyped_storage().nbytes() // x.itemsize,), (1,)).copy_(
        torch.as_strided(x.detach(), (copied.untyped_storage().nbytes() // x.itemsize,), (1,))
    )
    return copied.requires_grad_(x.requires_grad)


def scale(tensor):
    """The largest finite magnitude, at least 1: sums of such numbers are rounded in steps of it."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 1.0
    return max(1.0, float(tensor.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()))


def equal(want, got):
    assert len(want) == len(got)
    for w, g in zip(want, got, strict=True):
        if not isinstance(w, torch.Tensor):
            assert w == g
            continue
        assert isinstance(g, torch.Tensor), f"{type(g)} where eager has a tensor"
        assert (w.shape, w.dtype, w.requires_grad) == (g.shape, g.dtype, g.requires_grad)
        loose = {"rtol": 2e-2, "atol": 2e-2} if w.dtype in (torch.bfloat16, torch.float16) else {"rtol": 1e-5, "atol": 1e-6 * scale(w)}
        torch.testing.assert_close(g, w, equal_nan=True, **(loose if w.is_floating_point() else {"rtol": 0, "atol": 0}))


@pytest.fixture
def twins():
    return Twins
