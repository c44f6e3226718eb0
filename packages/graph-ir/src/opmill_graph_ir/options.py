"""Options of graph-ir. A frozen dataclass: hashed whole, it is part of every cache key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STEPS = ("functionalize", "lower", "schedule", "plan")
"""Names of the steps whose result can be printed, in order."""


@dataclass(frozen=True)
class GraphOptions:
    """``numerics``: ``"eager"`` gives eager's results bit for bit on processors (each operator rounds for itself; sums, products and functions of a
    mathematics library are torch's calls), ``"default"`` is at least as exact as eager, and fuses all. ``fusion``: off gives one kernel per statement. ``verify``: check
    legality between steps. ``print_after``: names of steps (:data:`STEPS`, or ``"all"``) after which the program is printed to stderr.
    ``cache``: keep whole plans in the store. ``cuda_graphs``: replay plans on GPUs as CUDA graphs. ``bucket_bytes``: a backward
    hands out gradients whenever it has about so many bytes of them, for those who send them while the rest runs; 0: all at its end. ``measure``: generators
    choose how to write kernels by running them."""

    numerics: Literal["default", "eager"] = "default"
    fusion: bool = True
    verify: bool = False
    print_after: tuple[str, ...] = ()
    cache: bool = True
    cuda_graphs: bool = False
    bucket_bytes: int = 0
    measure: bool = False
