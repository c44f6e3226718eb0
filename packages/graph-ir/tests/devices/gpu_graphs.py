"""Graphs on GPUs, planned without one: fakes say that their tensors are there, and a generator that builds nothing takes the kernels."""

import torch

from opmill_fake_tensors import FakeContext
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.planning.build import build_plan
from opmill_graph_ir.planning.kernels import generate
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule
from opmill_runtime_cache.plan.model import Call, KernelRef, Plan
from opmill_runtime_cache.plan.verify import verify
from opmill_runtime_cache.store import Store

GPU = "cuda:0"


class Builder:
    """A generator for one kind of device."""

    def __init__(self, device: str) -> None:
        self.name = self.device = device
        self.asked: list[str] = []

    def claims(self, kernel, options):
        return None if options.device.startswith(self.device) else f"not a {self.device}"

    def available(self):
        return None

    def build(self, kernels, options, store):
        self.asked += [options.device] * len(kernels)
        return [KernelRef(self.device, "none", f"{options.device} {kernel.name} {hash(kernel)}", "k") for kernel in kernels]


CONTEXT = FakeContext()


def on_gpu(*sizes: int, dtype: torch.dtype = torch.bfloat16, device: str = GPU) -> torch.Tensor:
    return CONTEXT.from_meta(torch.empty(*sizes, dtype=dtype, device="meta"), torch.device(device))


def convolution(x, weight, bias=None, padding=0, stride=1):
    return torch.ops.aten.convolution.default(x, weight, bias, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)


def planned(function, *inputs, generators=None) -> Plan:
    """The plan of a function, legal by the laws of plans."""

    class Module(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    tracer = torch.fx.Tracer()
    graph = tracer.trace(torch.fx.symbolic_trace(_with_arity(function, len(inputs))))
    module = torch.fx.GraphModule(Module(), graph)
    with torch.no_grad():
        program = schedule(lower(functionalize(module, list(inputs))))
    for kernel in program.kernels():
        verify_kernel(kernel)
    generators = generators or [Builder("cpu"), Builder("cuda")]
    refs, refused = generate(program.wanted(), GeneratorOptions(), Store("/nowhere"), generators)
    assert not refused
    plan = build_plan("p", program, plan_memory(program), refs)
    verify(plan)
    return plan


def _with_arity(function, count: int):
    names = ", ".join(f"x{k}" for k in range(count))
    return eval(f"lambda {names}: function({names})", {"function": function})


def calls(plan: Plan, op: str) -> list[Call]:
    return [step for step in plan.steps if type(step) is Call and step.op == op]
