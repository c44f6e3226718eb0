"""Canonical names: kernels that do the same are equal."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.loops.canonical import BufferUse, canonical
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Load, Nest, Op, Phase, Reduction, Ref, Store
from opmill_graph_ir.loops.spec import complaints
from opmill_graph_ir.loops.text import parse

CASES = {c.name: c.kernel for c in cases()}


@pytest.mark.parametrize("name", CASES)
def test_canonical_names_do_not_depend_on_names(name):
    kernel = CASES[name]
    uses = {b.name: BufferUse(b.dtype, b.numel) for b in kernel.buffers}
    once = canonical(kernel.nests, uses.__getitem__)
    again = canonical(once.kernel.nests, {b.name: BufferUse(b.dtype, b.numel) for b in once.kernel.buffers}.__getitem__)
    assert again.kernel == once.kernel
    assert not list(complaints(once.kernel))


def _two_sums(second: str) -> tuple[Nest, ...]:
    """Two sums in one nest over inner axes of extents 3 and 5, the second's of this name."""
    sums = [
        Phase(axes=(Axis(name, index(n)),), reductions=(Reduction((r,), "sum", Load(b, index(name), "float32"), "float32"),))
        for name, n, r, b in (("j", 3, "r", "a"), (second, 5, "q", "b"))
    ]
    last = Phase(stores=(Store("out", index(0), Op("add", (Ref("r", "float32"), Ref("q", "float32")), "float32")),))
    return (Nest((), (*sums, last)),)


_USES = {"a": BufferUse("float32", index(3)), "b": BufferUse("float32", index(5)), "out": BufferUse("float32", index(1))}


@pytest.mark.parametrize("second", ["j", "k"])
def test_phases_of_other_extents_have_axes_of_other_names(second):
    kernel = canonical(_two_sums(second), _USES.__getitem__).kernel
    first, other = (p.axes[0] for p in kernel.nests[0].phases[:2])
    assert first.name != other.name and not list(complaints(kernel))
    buffers = {"b0": torch.ones(3), "b1": torch.ones(5), "b2": torch.zeros(1)}
    assert evaluate(kernel, buffers) == 0 and buffers["b2"].item() == 8


def test_phases_of_one_extent_share_a_name():
    [nest] = _two_sums("k")
    same = replace(nest, phases=(nest.phases[0], replace(nest.phases[1], axes=(Axis("k", index(3)),)), nest.phases[2]))
    kernel = canonical([same], _USES.__getitem__).kernel
    assert [p.axes[0].name for p in kernel.nests[0].phases[:2]] == ["j0", "j0"]


NEST = """kernel k()
  in {x}: float32[{n}]
  inout {t}: float32[{n}]
nest {i}<{n}   # {origin}
  phase
    let {v} = exp({x}[{i}])
    set {t}[{i}] = add({t}[{i}], {v})
"""


def test_names_and_origins_do_not_count_and_what_is_computed_does():
    def kernel(**names):
        made = parse(NEST.format(**{"x": "x", "t": "t", "i": "i", "v": "v", "n": 8, "origin": "a.py:1"} | names))
        uses = {b.name: BufferUse(b.dtype, b.numel) for b in made.buffers}
        return canonical(made.nests, uses.__getitem__)

    first, other = kernel(), kernel(x="p", t="q", i="k", v="w", origin="b.py:2")
    assert first.kernel == other.kernel and (first.arguments, other.arguments) == (("x", "t"), ("p", "q"))
    assert kernel(n=9).kernel != first.kernel
    assert [b.role for b in first.kernel.buffers] == ["in", "inout"]
