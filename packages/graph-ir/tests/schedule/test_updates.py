"""Inputs that are changed in part: where they are, unless somebody still reads what they held."""

import random
from dataclasses import replace

import pytest
import torch
from pass_text import after

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import ExternStep, schedule
from opmill_graph_ir.schedule.updates import update_in_place


def graph_of(fn, inputs, device):
    gm = torch.fx.symbolic_trace(fn)
    with torch.no_grad():
        graph = functionalize(gm, [x.clone() for x in inputs])
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return graph


def run(program, inputs):
    """The outputs, None where a check fails; the steps run in order, on the memory of ``inputs``."""
    lowered = program.lowered
    memory = dict(zip(lowered.inputs, (x.view(-1) for x in inputs), strict=True))
    for name, info in program.buffers.items():
        if name not in memory:
            n = 1
            for size in info.sizes:
                n *= size.constant
            memory[name] = torch.full((n,), -7, dtype=torch.int64).to(getattr(torch, info.dtype))
    for step in program.steps:
        assert not isinstance(step, ExternStep)
        names = [b.name for b in step.kernel.buffers]
        if evaluate(step.kernel, {name: memory[a] for name, a in zip(names, step.arguments, strict=True)}, list(step.sizes)):
            return None
    return [memory[o.buffer].view([n.constant for n in program.buffers[o.buffer].sizes]) for o in lowered.outputs]


def copies(program):
    """Whole copies of the cache."""
    return [s for s in program.steps if len(s.arguments) == 2 and s.kernel.name.startswith("copy")]


class Cache(torch.nn.Module):
    """Writes rows of a cache and reads all of it."""

    def forward(self, cache, at, rows):
        cache.index_copy_(0, at, rows * 2)
        return cache.sum(1)


class Twice(Cache):
    def forward(self, cache, at, rows):
        cache.index_copy_(0, at, rows * 2)
        cache.index_copy_(0, at + 1, rows * 3)
        return cache.sum(1)


class Before(Cache):
    """What the cache held is read again once it has changed."""

    def forward(self, cache, at, rows):
        old = cache + 0
        cache.index_copy_(0, at, rows * 2)
        return (cache.sum(1, keepdim=True) * old).sum(1)


class Shifted(Cache):
    """Each row takes the one before it: read at other places than written."""

    def forward(self, cache, at, rows):
        cache[1:].copy_(cache[:-1] + rows[:1])
        return cache.sum(1)


class Returned(Cache):
    def forward(self, cache, at, rows):
        new = cache.index_copy(0, at, rows)
        cache.copy_(new)
        return new


class Sliced(Cache):
    def forward(self, cache, at, rows):
        cache[2:4].copy_(rows)
        return cache.exp()


class Looked(Cache):
    """What is checked last does not depend on what has changed."""

    def forward(self, cache, at, rows):
        cache.index_copy_(0, at, rows * 2)
        return cache.sum(1) + rows[at - 4].sum()


class LookedWhereItChanged(Cache):
    """What is checked last is known only when the cache has changed."""

    def forward(self, cache, at, rows):
        cache.index_copy_(0, at, rows * 2)
        return cache.sum(1) + rows[(cache[3, :2] > 0).long()].sum()


MODULES = [Cache, Twice, Before, Shifted, Returned, Sliced, Looked, LookedWhereItChanged]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("module", MODULES)
def test_values_and_changes_are_eagers(module, device: str) -> None:
    inputs = torch.randn(8, 5), torch.tensor([3, 5]), torch.randn(2, 5)
    program = schedule(lower(graph_of(module(), inputs, device)))
    for _ in range(2):
        theirs, ours = [x.clone() for x in inputs], [x.clone() for x in inputs]
        wanted = module()(*theirs)
        [found] = run(program, ours)
        torch.testing.assert_close(found, wanted)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("module", [Cache, Twice, Sliced, Looked])
def test_nothing_is_copied(module, device: str) -> None:
    inputs = torch.randn(8, 5), torch.tensor([3, 5]), torch.randn(2, 5)
    program = schedule(lower(graph_of(module(), inputs, device)))
    large = [
        b for s in program.steps for b in s.arguments if len(program.buffers[b].sizes) == 2 and program.buffers[b].sizes[0].constant == 8
    ]
    assert set(large) <= {"x0", *(o.buffer for o in program.lowered.outputs)} and not copies(program)


FURTHER = """
input x: int32[2, 4]
temporary a: float32[2, 4]
temporary b: float32[2, 4] free
temporary c: float32[2, 4] free
call a = {call}; source='a'
loop i<2 j<4 of b
  set b[i, j] = a[i, j]
loop k<2 l<2 of b
  set b[k, l] = float32(1.0)
loop m<2 n<4 of c
  set c[m, n] = exp(b[m, n])
return c"""


def test_what_an_operator_gives_stays_where_it_is():
    """It may be a view of something else."""
    program = FURTHER.format(call="aten::view.dtype (x, dtype('float32'))")
    assert after(update_in_place, program).splitlines()[-8:] == program.splitlines()[-8:]


def test_what_is_written_for_an_operator_is_changed_further():
    program = FURTHER.format(call="aten::mm (x, x); out='aten::mm.out'").replace("'; source", "', source")
    called, first, second, *_ = after(update_in_place, program).splitlines()[-6:]
    assert called == "call b = aten::mm (x, x); out='aten::mm.out', source='a'"
    assert (first, second) == ("loop k<2 l<2 of b", "  set b[k, l] = float32(1.0)")


@pytest.mark.parametrize("module", MODULES)
def test_a_cache_is_as_it_was_when_a_check_fails(module) -> None:
    inputs = torch.randn(8, 5), torch.tensor([3, 5]), torch.randn(2, 5)
    program = schedule(lower(graph_of(module(), inputs, "cpu")))
    for at in ([3, 8], [8, 3], [7, 3], [3, -9]):
        ours = [inputs[0].clone(), torch.tensor(at), inputs[2].clone()]
        if run(program, ours) is None:
            torch.testing.assert_close(ours[0], inputs[0], rtol=0, atol=0)


class AtRandom(torch.nn.Module):
    """Changes two caches and looks rows up, in any order, at places that are given, moved, or read from what has changed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.what = [
            (draw.choice(("copy", "put", "look", "gather")), draw.randrange(2), draw.choice((0, 0, 1, -1, None))) for _ in range(4)
        ]

    def forward(self, cache, at, rows, other):
        caches, found = (cache, other), rows.sum()
        for what, number, shift in self.what:
            place = (caches[1 - number][0, :2] > 0).long() if shift is None else at + shift
            if what == "copy":
                caches[number].index_copy_(0, place, rows)
            elif what == "put":
                caches[number].index_put_((place,), rows * 2)
            elif what == "look":
                found = found + caches[number][place].sum()
            else:
                found = found + caches[number].gather(0, place[:, None].expand(2, 5)).sum()
        return found


@pytest.mark.parametrize("seed", range(40))
def test_programs_at_random(seed: int) -> None:
    torch.manual_seed(seed)
    inputs = torch.randn(8, 5), torch.tensor([3, 5]), torch.randn(2, 5), torch.randn(8, 5)
    program = schedule(lower(graph_of(AtRandom(seed), inputs, "cpu")))
    for at in ([3, 5], [1, 6], [6, 8], [9, 2], [0, 3]):
        ours, theirs = ([inputs[0].clone(), torch.tensor(at), inputs[2].clone(), inputs[3].clone()] for _ in range(2))
        found = run(program, ours)
        try:
            wanted = AtRandom(seed)(*theirs)
        except (IndexError, RuntimeError):
            assert found is None
            theirs = [inputs[0], ours[1], inputs[2], inputs[3]]
        else:
            torch.testing.assert_close(found[0], wanted)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
