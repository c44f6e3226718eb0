"""Norms that are part of a product with a vector: written once for rows that a program takes in turn, and right."""

import re
from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.debug import as_for_gpu, interpreting, run
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.tiling import DEFAULT

F = torch.nn.functional
NORMED = """kernel normed()
  in b0: bfloat16[1024]
  in b1: bfloat16[1024]
  in b2: bfloat16[16384] early
  out b3: bfloat16[16]
nest i0<16
  phase j0<1024
    sum v0: float32 = mul(cast.float32(b0[j0]), cast.float32(b0[j0]))
  phase
    let v1 = rsqrt(add(div(v0, float32(1024.0)), float32(1e-06)))
  phase j0<1024
    sum v2: float32 = mul(mul(cast.float32(b1[j0]), mul(cast.float32(b0[j0]), v1)), cast.float32(b2[1024*i0 + j0]))
  phase
    let v3 = cast.bfloat16(v2)
    set b3[i0] = v3
"""
TWO = """kernel gated()
  in b0: float32[1024]
  in b1: bfloat16[1024]
  in b2: bfloat16[16384] early
  in b3: bfloat16[16384] early
  out b4: bfloat16[16]
nest i0<16
  phase j0<1024
    sum v0: float32 = mul(b0[j0], b0[j0])
  phase
    let v1 = rsqrt(add(div(v0, float32(1024.0)), float32(1e-06)))
  phase j0<1024
    sum v2: float32 = mul(mul(cast.float32(b1[j0]), mul(b0[j0], v1)), cast.float32(b2[1024*i0 + j0]))
    sum v3: float32 = mul(mul(cast.float32(b1[j0]), mul(b0[j0], v1)), cast.float32(b3[1024*i0 + j0]))
  phase
    let v4 = cast.bfloat16(mul(v2, v3))
    set b4[i0] = v4
"""
BYTES = NORMED.replace("b2: bfloat16", "b2: int8").replace(
    "cast.float32(b2[1024*i0 + j0])", "cast.float32(cast.bfloat16(b2[1024*i0 + j0]))"
)
FEW = replace(DEFAULT, processors=1)
"""A device that sixteen rows are many for."""


@pytest.mark.parametrize(
    ("text", "budget", "matrices", "sums"),
    [
        (NORMED, DEFAULT, ["b2"], 2),
        (NORMED, FEW, ["b2"] * 4, 5),
        (TWO, DEFAULT, ["b2", "b3"], 3),
        (TWO, FEW, ["b2", "b3"] * 2, 5),
        (BYTES, FEW, ["b2"] * 8, 9),
    ],
)
def test_matrices_are_read_first_and_the_vector_is_summed_once(text, budget, matrices, sums) -> None:
    [[function]] = kernel_text(parse(text), budget).functions
    found = re.findall(r"gdc_wait|tl.sum|(?<=load\()b\d", function.text.partition("@triton.jit")[2])
    vectors = len(matrices) + 1, len(matrices) + 3
    assert found[: vectors[0]] == [*matrices, "gdc_wait"] and sorted(found[slice(*vectors)]) == ["b0", "b1"]
    assert found[vectors[1] :] == ["tl.sum"] * sums


@pytest.mark.triton
@pytest.mark.parametrize("budget", [DEFAULT, FEW])
@pytest.mark.parametrize("text", [NORMED, TWO, BYTES])
def test_gives_what_a_norm_and_a_product_do(text, budget) -> None:
    if not interpreting():
        pytest.skip("needs the interpreter")
    kernel = parse(text)
    torch.manual_seed(0)
    drawn = {b.name: torch.randn(b.numel.constant) * (40 if b.dtype == "int8" else 1) for b in kernel.buffers}
    buffers = {b.name: drawn[b.name].to(getattr(torch, b.dtype)) for b in kernel.buffers}
    x, weight, *matrices, out = (b.double() for b in buffers.values())
    assert not run(kernel, buffers, budget=budget)
    products = [m.view(16, 1024) @ (F.rms_norm(x, (1024,), eps=1e-6) * weight) for m in matrices]
    torch.testing.assert_close(list(buffers.values())[-1].double(), torch.stack(products).prod(0), rtol=8e-3, atol=1e-2)


@pytest.mark.triton
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_layers_of_one_token_have_no_kernels_for_norms(norm) -> None:
    def program(x, weight, gate, up, down):
        for _ in range(2):
            y = F.rms_norm(x, (512,), weight) if norm == "rms" else F.layer_norm(x, (512,), weight, weight)
            x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)
        return x

    torch.manual_seed(0)
    inputs = [t.bfloat16() for t in (torch.randn(1, 512), torch.rand(512), *(torch.randn(512, 512) / 16 for _ in range(3)))]
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(program), inputs)
        [got], want = call(*inputs), program(*(t.double() for t in inputs))
        eager = program(*inputs)
    assert len([s for s in plan.steps if type(s).__name__ == "Launch"]) == 4
    assert (got - want).norm() <= 1.2 * (eager - want).norm() + 1e-3 * want.norm()


def int8_weights(x, weight, first, second, scale):
    y = F.rms_norm(x, (512,), weight)
    return x + F.linear(F.silu(F.linear(y, first.to(x.dtype)) * scale), second.to(x.dtype)) * scale


@pytest.mark.triton
@pytest.mark.parametrize("rows, launches", [(1, 2), (2, 3), (8, 3), (40, 3), (65, 7)])
def test_weights_of_bytes_are_read_as_they_are(rows, launches) -> None:
    """Up to as many rows as are no more than the memory brings matrices for; beyond, they are written out in half precision."""
    torch.manual_seed(0)
    matrices = [torch.randint(-127, 128, (512, 512), dtype=torch.int8) for _ in range(2)]
    inputs = [torch.randn(rows, 512).bfloat16(), torch.rand(512).bfloat16(), *matrices, (torch.rand(512) / 1700).bfloat16()]
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(int8_weights), inputs)
        [got], want = call(*inputs), int8_weights(*(t.double() if t.dtype == torch.bfloat16 else t for t in inputs))
        eager = int8_weights(*inputs)
    assert len([s for s in plan.steps if type(s).__name__ in ("Launch", "Call")]) == launches
    assert (got - want).norm() <= 1.2 * (eager - want).norm() + 1e-3 * want.norm()


def test_bytes_become_float32_without_half_precision_between() -> None:
    [[function]] = kernel_text(parse(BYTES), FEW).functions
    assert ".to(tl.float32).to(tl.bfloat16)" not in function.text


@pytest.mark.parametrize("rows", [2, 16, 40, 64])
def test_matrices_of_bytes_are_read_by_several_programs_a_multiprocessor(rows) -> None:
    kernel = parse(f"""kernel product()
  in b0: bfloat16[{2048 * rows}]
  in b1: int8[16777216]
  out b2: float32[{8192 * rows}]
nest i0<{rows} i1<8192
  phase j0<2048
    sum v0: float32 = mul(cast.float32(b0[2048*i0 + j0]), cast.float32(cast.bfloat16(b1[2048*i1 + j0])))
  phase
    set b2[8192*i0 + i1] = v0
""")
    [[function]] = kernel_text(kernel).functions
    assert "tl.dot" in function.text and function.grid.constant >= 3 * 132
