"""``torch.compile`` in programs and libraries that are not to be changed: it becomes opmill's."""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .compile import compile as compile_here

_INDUCTOR = (None, "inductor")
"""Backends of ``torch.compile`` for which opmill stands."""


class Replacement:
    """``torch.compile`` is opmill's until :meth:`undo`, or until the end of a ``with`` statement."""

    def __init__(self) -> None:
        self._theirs = torch.compile
        self._ours = _standing_for(torch.compile)
        torch.compile = self._ours

    def undo(self) -> None:
        """Gives ``torch.compile`` back, unless somebody has replaced it again since. What was compiled stays so."""
        if torch.compile is self._ours:
            torch.compile = self._theirs

    def __enter__(self) -> Replacement:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def replace_torch_compile() -> Replacement:
    """From now on ``torch.compile``, ``module.compile()`` and ``@torch.compile`` compile with opmill, with the same arguments, in the whole
    process: as a switch (``replace_torch_compile()``), or for as long as a ``with`` statement runs.

    A backend that was named, other than torch's usual one, stays that backend. Code that took the function out of torch before
    (``from torch import compile``) keeps torch's."""
    return Replacement()


def _standing_for(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def compile(model: Any = None, *, backend: Any = "inductor", **arguments: Any) -> Any:
        return compile_here(model, backend="opmill" if backend in _INDUCTOR else backend, **arguments)

    return compile


def run(script: Path, arguments: Sequence[str]) -> None:
    """Runs a script as ``python script.py arguments`` would, with ``torch.compile`` replaced. Raises what the script raises."""
    argv, path = sys.argv[:], sys.path[:]
    sys.argv[:] = [str(script), *arguments]
    sys.path[0:1] = [str(script.resolve().parent)]
    try:
        with replace_torch_compile():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv[:], sys.path[:] = argv, path


__all__ = ["Replacement", "replace_torch_compile", "run"]
