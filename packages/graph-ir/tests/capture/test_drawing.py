"""On processors random numbers are eager's, in whatever order memory lies."""

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

PROGRAMS = {
    "as it is": lambda x: F.dropout(x, 0.4),
    "transposed": lambda x: F.dropout(x.t(), 0.4),
    "permuted": lambda x: F.dropout(x.view(4, 16, 64).permute(1, 2, 0), 0.4),
    "channels last": lambda x: F.dropout(x.view(2, 4, 16, 32).to(memory_format=torch.channels_last), 0.4),
    "a dimension of one": lambda x: F.dropout(x.view(64, 1, 64).transpose(0, 1), 0.4),
    "with gaps": lambda x: F.dropout(x[:, ::2], 0.4),
    "in place": lambda x: F.dropout(x.clone().t(), 0.4, inplace=True),
    "written through a view": lambda x: x.clone().t().bernoulli_(0.3),
    "alpha": lambda x: F.alpha_dropout(x.t(), 0.4),
    "channels": lambda x: F.dropout1d(x.view(4, 16, 64).transpose(0, 1), 0.4),
    "twice, and what follows": lambda x: F.dropout(x.t(), 0.4) + F.dropout(x, 0.4) + torch.rand_like(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_eagers(name):
    program, x = PROGRAMS[name], torch.arange(1.0, 4097.0).view(64, 64)
    compiled = lower(functionalize(torch.fx.symbolic_trace(program), [x]))
    for seed in (0, 1):
        torch.manual_seed(seed)
        wanted, after = program(x), torch.get_rng_state()
        torch.manual_seed(seed)
        [found] = run_lowered(compiled, [x])
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
        assert torch.equal(torch.get_rng_state(), after)
