"""What a whole program imports: never torch's own compiler, cold or warm."""

import json

PROGRAM = """
import json, sys, torch, opmill
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(5)).eval()
x = torch.randn(2, 3, 8, 8)
model(x)
compiled = opmill.compile(model, fullgraph=True)
with torch.no_grad():
    right = torch.allclose(compiled(x), model(x), atol=1e-5)
print(json.dumps([bool(right), [n for n in ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd") if n in sys.modules]]))
"""


def test_neither_a_cold_nor_a_warm_start_imports_torchs_compiler(script):
    for _ in ("cold", "warm"):
        assert json.loads(script(PROGRAM).splitlines()[-1]) == [True, []]


def test_torch_compile_can_use_the_backend_by_name(script):
    code = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
x = torch.randn(2, 4)
with torch.no_grad():
    assert torch.allclose(torch.compile(model, backend="opmill")(x), model(x), atol=1e-6)
print("right")
"""
    assert script(code).strip().endswith("right")


def test_one_of_torchs_backends_can_be_named(script):
    code = """
import torch, opmill
x = torch.randn(2, 4)
assert torch.allclose(opmill.compile(lambda x: x.relu() + 1, backend="aot_eager")(x), x.relu() + 1)
print("right")
"""
    assert script(code).strip().endswith("right")
