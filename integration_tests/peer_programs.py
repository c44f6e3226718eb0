"""What two processes send to one another in compiled code, against eager: messages, and what one process has of all. Each case says "right",
or what is wrong. Run by test_peer_programs.py: ``python peer_programs.py RANK SIZE STORE``."""

import datetime
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as through

import opmill
from distributed_programs import hearing
from opmill.compile import record_of
from telling import tell

SIZES = (4, 4, 6, 10, 8)
LIMIT = datetime.timedelta(seconds=60)


def other() -> int:
    return 1 - dist.get_rank()


GROUPS: list[Any] = []
"""One of both."""


def sent(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if dist.get_rank() == 0:
        dist.send(y, 1)
        return y.sin()
    taken = torch.empty_like(y)
    assert dist.recv(taken, 0) == 0
    return taken.cos() + x


def there_and_back(x: torch.Tensor) -> torch.Tensor:
    """What each sends depends on what it has been sent."""
    y = x.exp()
    for turn in range(3):
        if dist.get_rank() == turn % 2:
            dist.send(y, other())
        else:
            taken = torch.empty_like(y)
            dist.recv(taken, other())
            y = y * 0.5 + taken
    return y


def at_once(x: torch.Tensor) -> torch.Tensor:
    taken = torch.zeros_like(x)
    works = dist.isend(x * 3, other()), dist.irecv(taken, other())
    y = x.exp() @ x.t()
    for work in works:
        work.wait()
    return y @ taken


def in_order(x: torch.Tensor) -> torch.Tensor:
    """Messages of one tag arrive in the order in which they were sent, whatever is waited for first."""
    taken = [torch.zeros_like(x) for _ in range(3)]
    works = [dist.isend(x * k, other()) for k in range(3)] + [dist.irecv(t, other()) for t in taken]
    for work in reversed(works):
        work.wait()
    return taken[0] + 10 * taken[1] + 100 * taken[2]


def by_tag(x: torch.Tensor) -> torch.Tensor:
    taken = [torch.zeros_like(x) for _ in range(2)]
    works = [dist.isend(x * (k + 1), other(), tag=k) for k in range(2)]
    works += [dist.irecv(taken[k], other(), tag=k) for k in (1, 0)]
    for work in works:
        work.wait()
    return taken[0] - taken[1].sin()


def ring(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        taken = torch.empty_like(x)
        ops = [dist.P2POp(dist.isend, x.contiguous(), other()), dist.P2POp(dist.irecv, taken, other())]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        x = x * 0.5 + taken
    return x


def written_while_sent(x: torch.Tensor) -> torch.Tensor:
    """What is sent is what was there when it was."""
    y, taken = x * 2, torch.empty_like(x)
    dist.send(y, other()) if dist.get_rank() else dist.recv(taken, other())
    y.zero_()
    dist.recv(taken, other()) if dist.get_rank() else dist.send(x + 1, other())
    return y + taken


def in_a_group(x: torch.Tensor) -> torch.Tensor:
    taken = torch.zeros_like(x)
    works = dist.isend(x, group=GROUPS[0], group_dst=other()), dist.irecv(taken, group=GROUPS[0], group_src=other())
    for work in works:
        work.wait()
    dist.all_reduce(taken, group=GROUPS[0])
    return taken


def a_part(x: torch.Tensor) -> torch.Tensor:
    y = x.repeat(2, 1)
    dist.send(y[: x.shape[0]], other()) if dist.get_rank() else dist.recv(y[x.shape[0] :], other())
    return y


def complex_numbers(x: torch.Tensor) -> torch.Tensor:
    y, taken = torch.complex(x, x.sin()).detach(), torch.zeros(x.shape, dtype=torch.complex128)
    works = dist.isend(y, other()), dist.irecv(taken, other())
    for work in works:
        work.wait()
    return taken.abs() + x


def reduced(x: torch.Tensor, root: int, op: Any = dist.ReduceOp.SUM, later: bool = False) -> torch.Tensor:
    y = x * 2
    work = dist.reduce(y, root, op, async_op=later)
    if later:
        work.wait()
    return y.sin() if dist.get_rank() == root else x


def gathered(x: torch.Tensor, root: int, later: bool = False) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(2)] if dist.get_rank() == root else None
    work = dist.gather(x * 2, parts, dst=root, async_op=later)
    y = x.exp()
    if later:
        work.wait()
    return y if parts is None else y + parts[0] - parts[1].sin()


def scattered(x: torch.Tensor, root: int, later: bool = False) -> torch.Tensor:
    parts = [x * (k + 2) for k in range(2)] if dist.get_rank() == root else None
    out = torch.empty_like(x)
    work = dist.scatter(out, parts, src=root, async_op=later)
    y = x.exp()
    if later:
        work.wait()
    return y * out


def turned(x: torch.Tensor) -> torch.Tensor:
    y = x.t()
    dist.all_reduce(y)
    return y.sin()


def differentiated(x: torch.Tensor) -> torch.Tensor:
    return torch.cat(through.all_gather(x.sin())).cos().sum(0) + through.broadcast(x * 2, 0).sum(0)


def contrasted(x: torch.Tensor) -> torch.Tensor:
    """Rows of all processes against those of one, as contrastive losses have them; both operands are gathered."""
    u, v = torch.nn.functional.normalize(x, dim=-1), torch.nn.functional.normalize(x.cos(), dim=-1)
    scores = u @ torch.cat(through.all_gather(v)).t() + v @ torch.cat(through.all_gather(u)).t()
    return torch.nn.functional.cross_entropy(scores, torch.arange(x.shape[0]) + dist.get_rank() * x.shape[0], reduction="none")


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f.__name__: f
    for f in (
        *(sent, there_and_back, at_once, in_order, by_tag, ring, written_while_sent, in_a_group, a_part, complex_numbers, turned),
        *(differentiated, contrasted),
    )
}
PROGRAMS |= {f"{f.__name__} at {root}": partial(f, root=root) for f in (reduced, gathered, scattered) for root in (0, 1)}
PROGRAMS |= {f"{f.__name__} later": partial(f, root=0, later=True) for f in (reduced, gathered, scattered)}
PROGRAMS |= {"the greatest": partial(reduced, root=1, op=dist.ReduceOp.MAX)}
WITH_HISTORY = ("differentiated", "contrasted", "sent", "gathered at 0", "scattered at 1", "at_once")


def case(name: str) -> str:
    """Results, what is left in the argument, and gradients, for sizes that change; two graphs without breaks."""
    program = PROGRAMS[name]
    compiled = opmill.compile(program)
    for turn, rows in enumerate(SIZES):
        found = []
        for run in (program, compiled):
            x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(10 * turn + dist.get_rank()), dtype=torch.float64)
            leaf = x.clone().requires_grad_(name in WITH_HISTORY)
            y = run(leaf if name in WITH_HISTORY else x)
            if y.requires_grad:
                y.sum().backward()
            found.append([y.detach(), leaf.detach(), x, leaf.grad if leaf.grad is not None else torch.zeros(1)])
        if not all(map(torch.allclose, *found)):
            return f"{rows} rows: {found[1]}, not {found[0]}"
    record = record_of(compiled)
    assert record is not None
    said = "".join(g.fallback for g in record[1].graphs)
    return said if len(record[1].graphs) <= 2 and not record[1].breaks else f"{said} {[str(b) for b in record[1].breaks]}"


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes)


MISTAKEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "to itself": lambda y: dist.send(y, dist.get_rank()),
    "to two": lambda y: dist.send(y, 0, group_dst=0),
    "a list": lambda y: dist.send([y], other()),
    "too few parts": lambda y: dist.scatter(y, [y] if dist.get_rank() == 0 else [y, y], src=0),
    "parts elsewhere": lambda y: dist.gather(y, [y.clone()] * 2 if dist.get_rank() else None, dst=0),
    "reduced for nobody": lambda y: dist.reduce(y, 7),
    "a batch of nothing": lambda y: dist.batch_isend_irecv([]),
    "bits of floats": lambda y: dist.reduce(y, 0, dist.ReduceOp.BAND),
}
"""Which each process refuses by itself."""


def mistaken(call: Callable[[torch.Tensor], Any]) -> str:
    function = hearing(call)
    (wanted, error), (found, name) = function(ones(3)), opmill.compile(function)(ones(3))
    return "" if torch.equal(wanted, found) and error == name else f"{found} {name}, not {wanted} {error}"


CASES = {name: partial(case, name) for name in PROGRAMS} | {f"mistaken: {n}": partial(mistaken, call) for n, call in MISTAKEN.items()}


def main(rank: int, size: int, store: str, *names: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=LIMIT)
    GROUPS.append(dist.new_group([0, 1]))
    tell({name: one for name, one in CASES.items() if not names or name in names})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
