"""Each step of the compiler that can be left out may be: what runs is as right without it."""

import pytest
import torch
import torch.nn.functional as F

import opmill
from opmill_graph_ir.pipeline import OPTIONAL

pytest.importorskip("opmill_kernel_gen_cpp")


class Net(torch.nn.Module):
    """Something for each step to do: an image, blocks that repeat, sums, scans, writes in place, a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.image = torch.nn.Conv2d(2, 8, 3, padding=1)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(6))
        self.norm, self.last = torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.image(x).relu().mean(-1).transpose(1, 2)
        for block in self.blocks:
            x = x + block(x)
        x = self.norm(x).cumsum(1) * x.softmax(-1)
        x = torch.cat([x[:, :2] * 2, x[:, 2:]], 1).clone()
        x[:, 0] = x[:, 1].sin()
        return F.cross_entropy(self.last(x).flatten(0, 1), y)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "names", [*((name,) for name in OPTIONAL), tuple(OPTIONAL)], ids=lambda names: "all" if len(names) > 1 else names[0]
)
def test_a_program_is_as_right_without_a_step(names, training):
    torch.manual_seed(0)
    with torch.set_grad_enabled(training):
        seen = opmill.check(Net(), options={"skip": names, "cache": False, "verify": True, "suppress_errors": False})(
            torch.randn(2, 2, 6, 6), torch.randint(0, 5, (12,))
        )
    assert seen, str(seen)


def test_what_is_skipped_is_not_done_and_is_another_plan():
    x = torch.ones(1 << 15)
    kernels = []
    for skip in ((), ("fuse", "inline"), ()):
        [graph] = opmill.explain(lambda x: (x.sin() + 1).exp(), options={"skip": skip})(x).graphs
        kernels.append(graph.report.launches)
    assert kernels == [1, 3, 1]


@pytest.mark.parametrize("name", ["lower", "fusee"])
def test_steps_that_programs_need_cannot_be_skipped(name):
    with pytest.raises(ValueError, match=f"OM006.*{name}"):
        opmill.compile(torch.sin, options={"skip": (name,)})
