"""Options of graph-ir. A frozen dataclass: hashed whole, it is part of every cache key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import GraphError
from .pipeline import NAMES, OPTIONAL


@dataclass(frozen=True)
class GraphOptions:
    """``numerics``: ``"eager"`` gives eager's results bit for bit on processors (each operator rounds for itself; sums, products and
    functions of a mathematics library are torch's calls), ``"default"`` is at least as exact as eager, and fuses all. ``fusion``: off gives
    one kernel per statement. ``verify``: check legality between steps. ``print_after``: names of steps (of ``pipeline.NAMES``, or
    ``"all"``) after which the program is printed to stderr; then nothing is loaded that is not printed. Others raise ``GraphError`` GI016.
    ``cache``: keep whole plans in the store. ``cuda_graphs``: replay plans on GPUs as CUDA graphs. ``bucket_bytes``: a backward hands out
    gradients whenever it has about so many bytes of them, for those who send them while the rest runs; 0: all at its end. ``measure``:
    generators choose how to write kernels by running them. ``freeze``: in graphs without gradients, inputs that the frontend marks as
    parameters and buffers stay as they are; what is made of them alone is made once. ``sample``: whether they do is told by looking into
    them, too, not only by their addresses and version counters. ``override``: a folder that kernels are written to, and that those which
    were edited there are taken from; nothing is kept or loaded then. ``repeats``: blocks that are like others before them are compiled with
    these, and have their origins; off, each operator of a plan tells where it comes from itself. ``skip``: names of steps (of
    ``pipeline.OPTIONAL``) that are left out, for finding the one that makes a program wrong or slow; others raise ``GraphError`` GI016."""

    numerics: Literal["default", "eager"] = "default"
    fusion: bool = True
    verify: bool = False
    print_after: tuple[str, ...] = ()
    cache: bool = True
    cuda_graphs: bool = False
    bucket_bytes: int = 0
    measure: bool = False
    freeze: bool = False
    sample: bool = False
    override: str = ""
    exchange_wait: int = 60
    repeats: bool = True
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if needed := [name for name in self.skip if name not in OPTIONAL]:
            hint = f"there are: {', '.join(OPTIONAL)}"
            raise GraphError("GI016", f"no step of the compiler that can be skipped is called {needed[0]!r}", hint=hint)
        if unknown := [name for name in self.print_after if name != "all" and name not in NAMES]:
            raise GraphError("GI016", f"no step of the compiler is called {unknown[0]!r}", hint=f"there are: {', '.join(NAMES)}, or 'all'")

    def prints(self, step: str) -> bool:
        """Whether the program is printed after this step."""
        return step in self.print_after or "all" in self.print_after
