"""Numbered errors of graph-ir: what, where, why, and what to do."""

from __future__ import annotations


class GraphError(Exception):
    """A numbered refusal. ``code`` is stable and listed in the docs; ``hint`` says what to do."""

    def __init__(self, code: str, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.code, self.what, self.where, self.why, self.hint = code, what, where, why, hint
        lines = [f"{code}: {what}", *(f"  {k}: {v}" for k, v in (("where", where), ("why", why), ("hint", hint)) if v)]
        super().__init__("\n".join(lines))


class KernelBuildError(GraphError):
    """A generated kernel could not be built."""


class GraphWarning(UserWarning):
    """Results are right, but less was compiled than asked: torch's own operators run, or a kernel generator was left out (GI030 to
    GI034)."""
