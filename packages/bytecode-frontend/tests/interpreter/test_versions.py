"""Version counters: what they say, how they are kept, and how graphs make up for writes that they did not count."""

import torch

from opmill_bytecode_frontend.graph.versions import Writes, count, kept, memory, versions, written


def test_what_they_say():
    x = torch.zeros(3)
    before = versions(x)
    x.add_(1)
    x[0] = 2
    assert versions(x) == [before[0] + 2] and written(x) == x._version
    with torch.inference_mode():
        inside = torch.zeros(3)
    assert versions(x, inside) == [x._version, 1 << 62] and written(inside) == 1


def test_kept():
    x = torch.zeros(3)
    with torch.inference_mode():
        inside = torch.zeros(3)
    with kept(x, inside):
        x.add_(1)
    assert x._version == 0 and torch.equal(x, torch.ones(3))


def test_made_up_for():
    x, y = torch.zeros(3), torch.zeros(3)
    before = [t._version for t in (x, y)]
    x.add_(1)
    count([(x, 3), (y, 2)], before)
    assert [t._version for t in (x, y)] == [before[0] + 3, before[1] + 2]
    count([(x, 1)], [before[0]])  # more were counted already
    assert x._version == before[0] + 3


def test_writes_are_of_memory():
    x, other, writes = torch.zeros(3), torch.zeros(3), Writes()
    writes.note(x[1:])
    writes.note(x.detach())
    assert memory(x) == memory(x[1:]) != memory(other)
    assert (writes.to(x), writes.to(other)) == (2, 0)
