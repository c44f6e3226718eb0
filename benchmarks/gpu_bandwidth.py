"""Programs whose time is that of moving memory, at sizes of gigabytes: rows of what they take and the bytes that they must move. And such
that put short rows in order, beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

ROWS, COLUMNS = 1 << 16, 4096


@dataclass(frozen=True)
class Program:
    """``function(*inputs)``; ``bytes``: each input read once, each output written once. ``random``: it draws, so its values say nothing."""

    name: str
    dtype: str
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    bytes: int
    random: bool = False


def rms_norm_rotary(x: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Of rows of 32 heads of 128."""
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
    heads = y.view(-1, 32, 128)
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


def routed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the experts that are chosen."""
    chosen, where = x.float().softmax(-1).topk(8)
    return chosen / chosen.sum(-1, keepdim=True), where


def nucleus(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The likely ones that are together as likely as wanted."""
    p, where = x.softmax(-1).sort(descending=True)
    return torch.where(p.cumsum(-1) - p < 0.9, p, 0.0), where


def orders() -> Iterator[Program]:
    """Short rows in order, and the first of them."""

    def row(
        name: str, dtype: torch.dtype, n: int, function: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], stored: int, rows: int = ROWS
    ) -> Program:
        size = rows * (n * dtype.itemsize + stored * (dtype.itemsize + 8))
        return Program(
            f"{name} of {rows} x {n}",
            str(dtype).removeprefix("torch."),
            function,
            lambda: (torch.randn(rows, n, device="cuda").to(dtype),),
            size,
        )

    for dtype in (torch.float32, torch.bfloat16):
        for n in (32, 256, 1024, 2048):
            yield row("sort", dtype, n, lambda x: x.sort(-1), n)
        yield row("topk 8", dtype, 128, lambda x: x.topk(8), 8)
        yield row("routing 8", dtype, 128, routed, 8)
        yield row("nucleus", dtype, 1024, nucleus, 1024)
    yield row("sort", torch.float32, 2048, lambda x: x.sort(-1), 2048, 8)
    yield row("topk 50", torch.float32, 2048, lambda x: x.topk(50), 50, 64)
    yield row("argsort", torch.int32, 256, lambda x: (x.argsort(-1),), 256)


def programs() -> Iterator[Program]:
    """Every program in float32 and bfloat16."""
    for name in ("float32", "bfloat16"):
        yield from _programs(name, getattr(torch, name))


def _programs(name: str, dtype: torch.dtype) -> Iterator[Program]:
    size = dtype.itemsize
    whole = ROWS * COLUMNS * size

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(dtype)

    x = lambda: (made(ROWS, COLUMNS),)
    yield Program("softmax", name, lambda a: a.softmax(-1), x, 2 * whole)
    weights = lambda: (*x(), made(COLUMNS), made(COLUMNS))
    yield Program("layer norm", name, lambda a, w, b: F.layer_norm(a, (COLUMNS,), w, b), weights, 2 * whole)
    dropped = lambda a, b: F.dropout(F.gelu(a + b), 0.1)
    yield Program("gelu+bias+dropout", name, dropped, lambda: (*x(), made(COLUMNS)), 2 * whole, True)
    labels = lambda: (*x(), torch.randint(0, COLUMNS, (ROWS,), device="cuda"))
    yield Program("cross entropy", name, lambda a, t: F.cross_entropy(a, t), labels, whole)
    yield Program("column sum", name, lambda a: a.sum(0), x, whole)
    side = 1 << 14
    yield Program("transpose+add", name, lambda a, b: a.t() + b, lambda: (made(side, side), made(side, side)), 3 * side * side * size)
    table = lambda: (torch.randint(0, 50000, (ROWS,), device="cuda"), made(50000, COLUMNS))
    yield Program("embedding", name, lambda i, w: F.embedding(i, w) * 2, table, 2 * whole)
    yield Program("cumsum", name, lambda a: a.cumsum(-1) * 2, x, 2 * whole)
    rotary = lambda: (*x(), made(COLUMNS), made(ROWS, 1, 128), made(ROWS, 1, 128))
    yield Program("RMSNorm+rotary", name, rms_norm_rotary, rotary, 2 * whole + 2 * ROWS * 128 * size)
