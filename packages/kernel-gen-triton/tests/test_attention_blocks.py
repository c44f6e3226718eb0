"""Attention whose mask tells of whole blocks of pairs, interpreted: forwards and backwards, against all scores at once in float64."""

import pytest
import torch
from test_attention import MASKS, _with_tensor_cores, attending, close, program, reference, tangents_of, tensors
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.compiling import scheduled
from opmill_graph_ir.loops.spec import complaints
from opmill_graph_ir.loops.text import parse, show
from opmill_graph_ir.ops.flex import with_attention_by_kernels
from opmill_kernel_gen_triton.autotune import list_blocks
from opmill_kernel_gen_triton.debug import compiled_for_gpu, on_gpu
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures(_with_tensor_cores.__name__)]

BLOCKED = [
    ("plain", "documents", torch.float32, 2, 2, 96, 96, 16, 16, (32, 16), "both"),
    ("slopes", "causal documents", torch.float32, 4, 2, 130, 200, 16, 32, (16, 64), "both"),
    ("plain", "even heads", torch.float32, 2, 1, 70, 70, 16, 16, (16, 32), "partial"),
    ("capped", "documents", torch.bfloat16, 4, 1, 300, 300, 64, 64, (128, 128), "both"),
    ("plain", "prefix", torch.float16, 2, 2, 192, 320, 32, 32, (128, 128), "one for all"),
    ("plain", "causal documents", torch.bfloat16, 2, 2, 256, 128, 128, 64, (64, 128), "one for all"),
    ("bias", "prefix", torch.float32, 2, 2, 64, 64, 16, 16, (32, 32), "full"),
]


def listed(queries: int, keys: int, heads: int, sizes: tuple[int, int], kind: str) -> tuple[tuple, torch.Tensor]:
    """Blocks at random, as a ``BlockMask`` tells of them, and what they say of each pair."""
    rows, columns = -(-queries // sizes[0]), -(-keys // sizes[1])
    shape = (1, 1) if kind == "one for all" else (2, heads)
    of = torch.randint(3, (*shape, rows, columns), generator=torch.Generator().manual_seed(7))
    of = of.clamp(max=1) if kind == "partial" else of.masked_fill(of == 1, 2) if kind == "full" else of
    told = []
    for state in (1, 2):
        counts, order = (of == state).sum(-1, dtype=torch.int32), (of != state).long().argsort(stable=True).int()
        told += [None, None] if kind == "partial" and state == 2 else [counts, order]
    block = BlockMask.from_kv_blocks(*told, BLOCK_SIZE=sizes, seq_lengths=(queries, keys)).as_tuple()
    pairs = of.repeat_interleave(sizes[0], 2).repeat_interleave(sizes[1], 3)[:, :, :queries, :keys]
    return (*block[:10], *sizes), pairs


@pytest.mark.parametrize(("score", "mask", "dtype", "heads", "own", "queries", "keys", "width", "depth", "sizes", "kind"), BLOCKED)
def test_blocks_of_a_mask(score, mask, dtype, heads, own, queries, keys, width, depth, sizes, kind) -> None:
    """What counts is what the blocks say: of those that are not listed nothing, of full ones everything, whatever the mask says there."""
    blocks, pairs = listed(queries, keys, heads, sizes, kind)
    given, scale = tensors(dtype, heads, own, queries, keys, width, depth, requires_grad=True), 0.3
    given = (*given, *(b for b in blocks if isinstance(b, torch.Tensor)))
    joint = capture_joint(program(score, mask, scale, 2, blocks), given)
    call = compiled_for_gpu(on_gpu(joint.graph))[0]
    exact = [t.detach().double().requires_grad_() if k < 3 else t for k, t in enumerate(given[:6])]
    want, sums = reference(score, mask, scale, *exact, blocks=pairs)
    tangents = tangents_of(joint)
    with torch.no_grad():
        results = call(*(t.detach() for t in given), *tangents)
    close(results[0], want.detach(), dtype)
    close(results[1], sums.detach(), dtype)
    finite = torch.where(sums.isinf(), 0.0, sums)
    found = torch.autograd.grad([want, finite], exact[:3], [t.double() for t in tangents])
    for name, gradient in zip(joint.targets, results[2:], strict=True):
        close(gradient, found[int(name[1:])], dtype)


@pytest.mark.parametrize("how", ["causal", "odd", "of another length", "one block", "all", "no blocks of queries", "listed"])
def test_where_kernels_read_blocks(how) -> None:
    """Not where places say what counts, where no tile has the size of blocks, or where they are of other tensors: there the mask is asked."""
    mask = how if how in ("causal", "all") else "documents"
    sizes = {"odd": (24, 24), "one block": (128, 128)}.get(how, (32, 32))
    given, length = tensors(torch.float32, 2, 2, 70, 70, 16, 16, requires_grad=True), 140 if how == "of another length" else 70
    documents = torch.arange(length) // 37
    function = {"causal": MASKS["causal"], "all": noop_mask}.get(mask, lambda b, h, i, j: documents[i] == documents[j])
    blocks = [*create_block_mask(function, None, None, length, length, "cpu", sizes).as_tuple()[:10], *sizes]
    if how == "no blocks of queries":
        blocks[6:10] = [None] * 4
    given = (*given, *(b for b in blocks if isinstance(b, torch.Tensor)))
    joint = capture_joint(program("plain", mask, 0.3, 1, tuple(blocks)), given)
    kernels = attending(scheduled(with_attention_by_kernels(on_gpu(joint.graph)))[1].kernels())
    for kernel in kernels:
        assert not list(complaints(kernel)) and parse(show(kernel)) == kernel
    used = {k.attention.part: "block = tl.load" in kernel_text(k).functions[0][0].text for k in kernels}
    assert used == dict.fromkeys(("forward", "keys", "queries"), how == "listed") | (
        {"forward": True, "queries": True} if how == "no blocks of queries" else {}
    )


def test_measured_kernels_have_blocks_to_do() -> None:
    """Half of all, as of a causal mask, and no number of a block that there is not."""
    blocks, _ = listed(96, 200, 2, (32, 64), "both")
    given = tensors(torch.float32, 2, 2, 96, 200, 16, 16, requires_grad=True)
    given = (*given, *(b for b in blocks if isinstance(b, torch.Tensor)))
    joint = capture_joint(program("plain", "documents", 0.3, 1, blocks), given)
    for kernel in attending(scheduled(with_attention_by_kernels(on_gpu(joint.graph)))[1].kernels()):
        memory = {b.name: torch.full([b.numel.evaluate({})], 1000).to(getattr(torch, b.dtype)) for b in kernel.buffers}
        list_blocks(kernel.attention, memory)
        count, order, full_count, full = (memory[dict(kernel.attention.operands)[name].buffer] for name in kernel.attention.BLOCKS)
        others = 3 if kernel.attention.part == "keys" else 4
        assert count.unique().tolist() == full_count.unique().tolist() == [1]
        assert order.unique().tolist() == full.unique().tolist() == list(range(others))
