"""Graphs on GPUs, compiled without one."""

from dataclasses import replace

import pytest
import torch
from gpu_graphs import CONTEXT, GPU, Builder, calls, convolution, on_gpu, planned

from opmill_graph_ir.capture.attention import PREPARED
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.planning.kernels import generate
from opmill_graph_ir.schedule.steps import KernelStep, schedule
from opmill_runtime_cache.plan.model import Alloc, Launch, Plan, Slot
from opmill_runtime_cache.store import Store

F = torch.nn.functional


def test_kernels_are_built_for_the_device_of_their_buffers():
    cpu, gpu = Builder("cpu"), Builder("cuda")
    plan = planned(lambda x, y: ((x + 1).relu(), (y + 1).relu()), on_gpu(64, 64), torch.randn(64, 64), generators=[cpu, gpu])
    assert gpu.asked == [GPU] and cpu.asked == ["cpu"]
    assert [k.kind for k in plan.kernels] in (["cuda", "cpu"], ["cpu", "cuda"]) and len([s for s in plan.steps if type(s) is Launch]) == 2


def test_equal_kernels_on_two_devices_are_two():
    gpu = Builder("cuda")
    inputs = (on_gpu(64, 64), on_gpu(64, 64, device="cuda:1"))
    plan = planned(lambda x, y: ((x + 1).relu(), (y + 1).relu()), *inputs, generators=[gpu])
    assert sorted(gpu.asked) == [GPU, "cuda:1"] and len(plan.kernels) == 2


def test_small_loops_share_a_kernel_on_one_device_only():
    plan = planned(lambda x, y, z: (x + 1, y.sum(0), z * 2), on_gpu(8, 8), torch.randn(8, 8), on_gpu(4, 4))
    assert {k.kind for k in plan.kernels} == {"cpu", "cuda"}


def test_a_device_that_no_generator_takes():
    with torch.no_grad():
        program = schedule(lower(functionalize(torch.fx.symbolic_trace(lambda x: x + 1), [on_gpu(8)])))
    refs, refused = generate(program.wanted(), GeneratorOptions(), Store("/nowhere"), [Builder("cpu")])
    assert not refs and [device for _, device in refused] == [GPU]


def test_the_arena_lies_where_most_temporaries_are():
    plan = planned(lambda x, w: torch.mm(torch.mm(x, w).relu(), w).relu(), on_gpu(64, 64), on_gpu(64, 64))
    assert plan.device == GPU and plan.arena > 0
    assert all(step.spec.device == GPU for step in plan.steps if type(step) is Alloc)


def test_temporaries_elsewhere_are_allocated_one_by_one():
    def function(x, w, a, b):
        return torch.mm(torch.mm(x, w).relu(), w).relu(), torch.mm(torch.mm(a, b).relu(), b)

    plan = planned(function, on_gpu(64, 64), on_gpu(64, 64), torch.randn(8, 8), torch.randn(8, 8))
    assert plan.device in (GPU, "cpu")
    assert all(step.spec.device == plan.device for step in plan.steps if type(step) is Alloc and step.offset is not None)
    assert any(step.spec.device != plan.device for step in plan.steps if type(step) is Alloc)


def test_scalars_of_the_cpu_are_copied_once():
    plan = planned(lambda x, s: x * s + s, on_gpu(64, 64), torch.tensor(2.0))
    copies = calls(plan, "aten::copy_")
    assert len(copies) in (1, 2) and len([s for s in plan.steps if type(s) is Launch]) == 1


def _with_constants_here(function, x: torch.Tensor):
    """The kernels and operators of a function captured on a processor, then told that all but its constants is on a GPU."""
    graph = functionalize(torch.fx.symbolic_trace(function), [x])
    metas = {name: meta if name in graph.constants else replace(meta, device=GPU) for name, meta in graph.metas.items()}
    graph.metas.update(metas)
    return schedule(lower(graph))


@torch.fx.wrap
def table(x, values):
    """A node of the graph, since it is given ``x``."""
    return torch.tensor(values)


def test_numbers_of_the_program_are_no_copies():
    program = _with_constants_here(lambda x: x.new_zeros(8, 8).fill_(table(x, 5.0)) + x, torch.randn(8, 8))
    assert program.lowered.constants and [type(step) for step in program.steps] == [KernelStep]
    assert not {a for a in program.steps[0].arguments if program.buffers[a].role == "constant"}


def test_constants_are_on_the_device_from_the_start():
    program = _with_constants_here(lambda x: torch.ops.aten._to_copy.default(table(x, [3, 1, 2]), dtype=torch.float32) * x, torch.randn(3))
    assert [type(step) for step in program.steps] == [KernelStep]
    [name] = {a for a in program.steps[0].arguments if program.buffers[a].role == "constant"}
    assert program.buffers[name].device == GPU and program.lowered.constants[name] == torch.tensor([3.0, 1.0, 2.0]).numpy().tobytes()


def test_copies_between_devices_are_calls():
    plan = planned(lambda x: (x + 1).to("cpu") * 2, on_gpu(64, 64))
    [copy] = calls(plan, "aten::copy_")
    assert {k.kind for k in plan.kernels} == {"cpu", "cuda"} and type(copy.args[0]) is Slot


# ---- convolutions ----------------------------------------------------------------------------------------------------------


def strides_of(plan: Plan) -> list[tuple[int, ...]]:
    """Of the results of convolutions."""
    return [spec.strides for call in calls(plan, "aten::convolution") for spec in call.specs if spec is not None]


def test_convolutions_of_half_precision_work_channels_last():
    def function(x, v, w):
        y = convolution(x, v, padding=1).relu()
        return (convolution(y, w, padding=1) + y).mean((2, 3))

    plan = planned(function, on_gpu(2, 8, 16, 16), on_gpu(8, 8, 3, 3), on_gpu(8, 8, 3, 3))
    assert strides_of(plan) == [(2048, 1, 128, 8)] * 2
    launches = [step for step in plan.steps if type(step) is Launch]
    assert len(launches) <= 5  # the input and two weights laid out, the activation, the mean: nothing is copied between


@pytest.mark.parametrize(
    "inputs",
    [
        (on_gpu(2, 8, 16, 16, dtype=torch.float32), on_gpu(8, 8, 3, 3, dtype=torch.float32)),
        (on_gpu(2, 8, 16), on_gpu(8, 8, 3)),
    ],
)
def test_other_convolutions_stay(inputs):
    dims = inputs[0].dim() - 2

    def function(x, w):
        return torch.ops.aten.convolution.default(x, w, None, [1] * dims, [1] * dims, [1] * dims, False, [0] * dims, 1).relu()

    [strides] = strides_of(planned(function, *inputs))
    assert strides[-1] == 1


def test_results_keep_the_layout_of_eager():
    plan = planned(lambda x, w: convolution(x, w, padding=1).relu(), on_gpu(2, 8, 16, 16), on_gpu(8, 8, 3, 3))
    assert strides_of(plan) == [(2048, 1, 128, 8)]
    [output] = [s for s in plan.steps if type(s) is Alloc and s.slot == plan.outputs[0].slot]
    assert output.spec.strides == (2048, 256, 16, 1)


def test_what_leaves_beside_is_not_laid_out_anew():
    def function(x, w):
        y = x.relu()
        return convolution(y, w, padding=1).mean((2, 3)), y

    [strides] = strides_of(planned(function, on_gpu(2, 8, 16, 16), on_gpu(8, 8, 3, 3)))
    assert strides == (2048, 256, 16, 1)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_biases_join_what_follows(dtype: torch.dtype, transposed: bool, dims: int):
    def function(x, w, b):
        ones, zeros = [1] * dims, [0] * dims
        return torch.ops.aten.convolution.default(x, w, b, ones, zeros, ones, transposed, zeros, 1).relu()

    plan = planned(function, on_gpu(2, 8, *[16] * dims, dtype=dtype), on_gpu(8, 8, *[1] * dims, dtype=dtype), on_gpu(8, dtype=dtype))
    [call] = calls(plan, "aten::convolution")
    assert len(call.args) == 9 and type(call.args[2]) is not Slot


# ---- attention -------------------------------------------------------------------------------------------------------------


def test_masks_get_rows():
    prepare = PREPARED[F.scaled_dot_product_attention]
    with CONTEXT:
        q, mask = on_gpu(2, 4, 16, 8), on_gpu(2, 1, 1, 1).expand(2, 1, 16, 16)
        for args, kwargs in (((q, q, q, mask), {}), ((q, q, q), {"attn_mask": mask, "scale": 1.0})):
            new, named = prepare(args, kwargs)
            laid = named["attn_mask"] if "attn_mask" in named else new[3]
            assert laid.stride() == (256, 256, 16, 1) and len(new) == len(args) and named.keys() == kwargs.keys()
        for same in (on_gpu(2, 1, 16, 16), None, torch.ones(1).expand(16, 16)):
            assert prepare((q, q, q), {"attn_mask": same})[1]["attn_mask"] is same


def test_constants_of_a_device_are_read_through_the_processor():
    from opmill_graph_ir.content import content_of

    class OnDevice:
        """Its memory is none of the processor's."""

        def __init__(self, tensor):
            self.tensor = tensor

        def detach(self):
            return self

        def cpu(self):
            return self.tensor

        def __getattr__(self, name):
            raise AssertionError(f"{name} of a tensor on a GPU")

    t = torch.arange(6, dtype=torch.int16).view(2, 3)
    assert content_of(OnDevice(t.t())) == content_of(t.t()) == content_of(torch.stack([t[:, k] for k in range(3)]))
