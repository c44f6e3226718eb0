"""Options of a capture; frozen, hashable: part of a cache key as a whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """``recompile_limit``: entries of one function before it runs eagerly; ``graph_limit``: operations of one graph, ``max_steps``:
    instructions interpreted in one capture (each turn of a loop is captured by itself; beyond these the function runs eagerly);
    ``max_idle``: instructions interpreted without an operation on tensors before what was called runs natively; ``max_depth``: nested
    inlined calls; ``nested_breaks``: a graph may end inside a function that the captured one calls, and each frame is resumed; otherwise it
    ends before the call. ``suppress_errors``: an error of the compiler's own (or of a backend) leaves the function uncompiled; otherwise it
    is raised."""

    recompile_limit: int = 8
    graph_limit: int = 20_000
    max_idle: int = 100_000
    max_steps: int = 2_000_000
    max_depth: int = 150
    nested_breaks: bool = True
    suppress_errors: bool = True
