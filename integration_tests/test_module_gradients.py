"""Modules of ``torch.nn`` on torch's own samples: results, gradients and gradients of gradients against eager's.

A sixth of them by default; ``OPMILL_ALL_MODULES=1`` takes all, and three samples of each.
"""

import copy
import os

import pytest
import torch
from torch.testing._internal.common_modules import module_db

import opmill

ALL = bool(os.environ.get("OPMILL_ALL_MODULES"))
INFOS = {info.name: info for k, info in enumerate(sorted(module_db, key=lambda info: info.name)) if ALL or k % 6 == 0}


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [t for item in items for t in tensors_in(item)]


def fresh(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in value.items()}
    return type(value)(map(fresh, value)) if type(value) in (tuple, list) else value


def differentiated(call, module, args, kwargs, twice):
    """Results, gradients of all there is (of a loss with the squares of the gradients in it, if ``twice``), buffers."""
    torch.manual_seed(7)
    outs = tensors_in(call(*args, **kwargs))
    results = [o.detach() for o in outs]
    wanted = [t for t in (*tensors_in((args, kwargs)), *module.parameters()) if t.requires_grad]
    loss = sum((o.float() * torch.linspace(-1, 1, o.numel()).view(o.shape)).sum() for o in outs if o.requires_grad)
    if not isinstance(loss, torch.Tensor):
        return results
    if twice:
        first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        loss = loss + sum(g.square().sum() for g in first if g is not None and g.requires_grad)
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True), *(b.clone() for b in module.buffers())]


@pytest.mark.filterwarnings("error:OM011")
@pytest.mark.parametrize("twice", [False, True], ids=["gradient", "second"])
@pytest.mark.parametrize("name", INFOS)
def test_as_eager(name, twice):
    info = INFOS[name]
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
    compared = 0
    for sample in samples[: 3 if ALL else 1]:
        torch.manual_seed(0)
        eager = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        ours = copy.deepcopy(eager)
        args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
        try:
            want = differentiated(eager, eager, fresh(args), fresh(kwargs), twice)
        except (RuntimeError, NotImplementedError):
            continue  # eager cannot either: no second derivative, or an input that is refused
        got = differentiated(opmill.compile(ours), ours, fresh(args), fresh(kwargs), twice)
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            assert (w is None) == (g is None)
            if w is not None:
                torch.testing.assert_close(g, w, rtol=2e-4, atol=2e-4, equal_nan=True)
        compared += 1
    if not compared:
        pytest.skip("eager refuses these samples")
