"""Products of depth one, and on GPUs those of a few terms, are loops that what follows is fused with."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def lowered(function, *inputs, **how):
    graph = functionalize(torch.fx.symbolic_trace(function), list(inputs))
    return graph, lower(graph, **how)


def product(a, b):
    return a @ b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [((5, 1), (1, 7)), ((3, 5, 1), (3, 1, 7)), ((1, 1), (1, 1)), ((2, 1, 1), (2, 1, 4))])
def test_values(sizes, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(s).to(dtype) for s in sizes)
    graph, program = lowered(product, a, b)
    assert not [n for n in program.nodes if type(n) is Extern]
    [ours] = run_lowered(program, [a, b])
    torch.testing.assert_close(ours, (a.double() @ b.double()).to(dtype), rtol=0, atol=0)


def test_transposed_and_special_values():
    a, b = torch.tensor([[float("nan"), float("inf"), 0.0]]).t(), torch.tensor([[2.0], [0.0], [-1.0]]).t()
    _, program = lowered(product, a, b)
    torch.testing.assert_close(run_lowered(program, [a, b])[0], a @ b, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_other_types_stay(dtype):
    a, b = torch.ones(5, 1, dtype=dtype), torch.ones(1, 7, dtype=dtype)
    _, program = lowered(product, a, b)
    assert [n.op for n in program.nodes if type(n) is Extern] == ["aten::mm"]


def with_addend(c, a, b):
    return torch.addmm(c, a, b)


def on_gpu(function, *inputs, **how):
    graph = functionalize(torch.fx.symbolic_trace(function), list(inputs))
    graph.metas = {name: replace(meta, device="cuda:0") for name, meta in graph.metas.items()}
    return lower(graph, **how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [((5, 2), (2, 7)), ((3, 5, 3), (3, 3, 7)), ((1, 4), (4, 1)), ((64, 3), (3, 64))])
def test_a_few_terms_are_written_out_on_gpus(sizes, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(s).to(dtype) for s in sizes)
    program = on_gpu(product, a, b)
    assert not [n for n in program.nodes if type(n) is Extern]
    [ours] = run_lowered(program, [a, b])
    want = (a.double() @ b.double()).to(dtype)
    torch.testing.assert_close(ours, want, rtol=torch.finfo(dtype).eps, atol=4 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("addend", [(7,), (5, 7), (1, 7), (5, 1), ()], ids=str)
def test_an_addend_of_a_few_terms_is_rounded_once(addend, dtype):
    torch.manual_seed(0)
    a, b, c = (torch.randn(s).to(dtype) for s in ((5, 3), (3, 7), addend))
    program = on_gpu(with_addend, c, a, b)
    assert not [n for n in program.nodes if type(n) is Extern]
    want = (a.double() @ b.double() + c.double()).to(dtype)
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    torch.testing.assert_close(run_lowered(program, [c, a, b])[0], want, rtol=torch.finfo(dtype).eps, atol=8 * eps)


def test_more_terms_eagers_numerics_and_factors_stay_with_the_library():
    a, b, c = torch.ones(8, 5), torch.ones(5, 8), torch.ones(8)
    for program in (
        on_gpu(product, a, b),
        on_gpu(product, a[:, :2].contiguous(), b[:2].contiguous(), exact=True),
        on_gpu(lambda c, a, b: torch.addmm(c, a, b, beta=2), c, a[:, :2].contiguous(), b[:2].contiguous()),
        lowered(product, a[:, :2].contiguous(), b[:2].contiguous())[1],
    ):
        assert len([n for n in program.nodes if type(n) is Extern]) == 1


VECTORS = [((3, 5, 40), (3, 40, 1)), ((3, 1, 40), (3, 40, 7)), ((2, 1, 9), (2, 9, 1))]
MATRICES = [((1, 5, 40), (1, 40, 1)), ((3, 5, 40), (3, 40, 2)), ((3, 5, 0), (3, 0, 1)), ((5, 40), (40, 1))]


def externs(program):
    return [node.op for node in program.nodes if type(node) is Extern]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", VECTORS)
def test_vectors_of_a_batch_are_loops_on_processors(sizes, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(s, dtype=dtype) for s in sizes)
    c = torch.randn(sizes[0][0], 1, sizes[1][2], dtype=dtype)
    for function, inputs in ((product, [a, b]), (lambda c, a, b: torch.baddbmm(c, a, b), [c, a, b])):
        _, program = lowered(function, *inputs)
        assert not externs(program)
        torch.testing.assert_close(run_lowered(program, inputs)[0], function(*inputs))


@pytest.mark.parametrize("sizes", MATRICES)
def test_matrices_are_left_to_libraries(sizes):
    a, b = (torch.randn(s) for s in sizes)
    assert len(externs(lowered(product, a, b)[1])) == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bfloat16], ids=str)
def test_vectors_of_other_types_are_left_to_libraries(dtype):
    a, b = torch.ones(3, 5, 40, dtype=dtype), torch.ones(3, 40, 1, dtype=dtype)
    assert len(externs(lowered(product, a, b)[1])) == 1


def test_vectors_on_gpus_are_left_to_libraries():
    assert externs(on_gpu(product, torch.randn(3, 5, 40), torch.randn(3, 40, 1))) == ["aten::bmm"]


def test_vectors_are_left_to_libraries_where_results_must_be_those_of_torch():
    a, b = torch.randn(3, 5, 40), torch.randn(3, 40, 1)
    assert externs(lowered(product, a, b, exact=True)[1]) == ["aten::bmm"]
