"""Layouts of convolutional networks in training on a GPU: captured on a processor, then said to lie on a GPU."""

from dataclasses import replace

import torch
from gpu_graphs import GPU
from torch import nn

from opmill_graph_ir.capture.channels_last import lay_out, strides_of
from opmill_graph_ir.capture.graph import AtenGraph
from opmill_graph_ir.capture.joint import Joint, capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.lowered import BufferArg, Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import ExternStep, KernelStep, Schedule, schedule


class Block(nn.Module):
    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            nn.Conv2d(a, b, k, padding=k // 2, bias=bias) for a, b, k in ((3, 8, 3), (8, 8, 1), (8, 8, 3))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x):
        x = nn.functional.max_pool2d(self.norms[0](self.first(x)).relu(), 2)
        y = self.norms[1](self.second(x)).relu()
        return (self.norms[2](self.third(y)) + x).relu().mean((2, 3))


def joint_of(module: nn.Module, *inputs: torch.Tensor) -> Joint:
    joint = capture_joint(torch.fx.symbolic_trace(module), list(inputs))
    metas = joint.graph.metas
    metas.update({name: replace(meta, device=GPU) for name, meta in metas.items()})
    lay_out(joint.graph)
    return joint


def scheduled(graph: AtenGraph) -> Schedule:
    program = schedule(lower(graph))
    for kernel in program.kernels():
        verify_kernel(kernel)
    return program


def convolutions(program: Schedule) -> list[Extern]:
    return [s.node for s in program.steps if type(s) is ExternStep and s.node.op.startswith("aten::convolution")]


def last(program: Schedule, buffer: str) -> bool:
    info = program.buffers[buffer]
    sizes = tuple(n.constant for n in info.sizes)
    return all(n == 1 or s.constant == w for n, s, w in zip(sizes, info.strides, strides_of(sizes), strict=True))


IMAGES = torch.randn(4, 3, 16, 16, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))


def test_convolutions_and_what_is_saved_lie_channels_last():
    joint = joint_of(Block().to(torch.bfloat16), IMAGES)
    halves = partition(joint)
    forward, backward = scheduled(halves.forward), scheduled(halves.backward)
    assert [len(convolutions(p)) for p in (forward, backward)] == [3, 3]
    for program in (forward, backward):
        for node in convolutions(program):
            assert all(last(program, a.buffer) for a in node.args if isinstance(a, BufferArg))
            assert all(last(program, r) for r in node.results if r)
    copied = [s for s in backward.steps if type(s) is KernelStep and s.kernel.name.startswith("copy")]
    assert len(copied) <= 5  # the network's input, weights and their gradients: no image between
    metas = joint.graph.metas
    saved = [metas[n] for n in halves.saved if len(metas[n].sizes) == 4 and n not in joint.graph.held and n not in joint.graph.inputs]
    assert saved and all(m.strides == strides_of(m.sizes) for m in saved)


def test_gradients_keep_eager_s_layout():
    joint = joint_of(Block().to(torch.bfloat16), IMAGES)
    backward = partition(joint).backward
    lowered = lower(backward)
    for target, out, given in zip(joint.targets, backward.outputs, lowered.outputs, strict=True):
        wanted = joint.graph.metas[out.value]
        assert wanted.strides == tuple(s.constant for s in lowered.buffers[given.buffer].strides), target


def test_biases_are_summed_beside_the_convolution():
    program = scheduled(partition(joint_of(Block(bias=True).to(torch.bfloat16), IMAGES)).backward)
    assert all(node.results[2] is None and node.args[-1][2].value is False for node in convolutions(program))


def test_float32_and_what_the_user_sees_stay():
    joint = joint_of(Block(), IMAGES.float())
    assert all(
        m.strides != strides_of(m.sizes) for m in joint.graph.metas.values() if len(m.sizes) == 4 and m.sizes[1] > 1 and m.sizes[2] > 1
    )

    class Shown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

        def forward(self, x):
            y = self.a(x).relu()
            return y, self.b(y)

    joint = joint_of(Shown().to(torch.bfloat16), IMAGES)
    shown = [joint.graph.metas[o.value] for o in joint.graph.outputs[:2]]
    assert all(m.strides[1] != 1 for m in shown)
    halves = partition(joint)
    scheduled(halves.forward), scheduled(halves.backward)


def test_transposed_convolutions_stay():
    module = nn.Sequential(nn.ConvTranspose2d(3, 8, 3), nn.ReLU()).to(torch.bfloat16)
    joint = joint_of(module, IMAGES)
    assert all(m.strides[1] != 1 for m in joint.graph.metas.values() if len(m.sizes) == 4)
