"""Version counters: what they say, how they are kept, and how graphs make up for writes that they did not count."""

import torch

from opmill_bytecode_frontend.graph.versions import Writes, count, kept, memory, of_version, versions, writes_to_own, written


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


def test_writes_to_results():
    outside, made = torch.zeros(3), torch.zeros(3)
    made.add_(1)
    made[0] = 2
    outside.add_(1)
    needs = torch.zeros(3).add_(torch.ones(3, requires_grad=True))
    assert [writes_to_own(each, [outside]) for each in (made, made[1:], outside, outside[1:], needs)] == [2, 2, 0, 0, 0]
    given = torch.zeros(3)
    assert of_version(given, 2) is given and given._version == 2
    assert of_version(given, 1)._version == 2 and given[1:]._version == 2
