"""Origins of a plan's steps, read for people: the operators that a step is made of, and the lines of the program that they come from."""

from __future__ import annotations

from collections.abc import Iterable


def operators_in(origins: Iterable[str]) -> str:
    """The operators of these origins, each once, joined by ``+``; empty where none is told."""
    return "+".join(dict.fromkeys(part.partition(" ")[0].partition(".")[0] for part in _parts(origins)))


def lines_in(origins: Iterable[str]) -> tuple[str, ...]:
    """``file:line`` of each line of these origins, each once; gradients have those of what they are the gradients of, or ``backward`` where
    that is not known. What is said of other things than lines (``write x1``) has none."""
    found = (part.rpartition(" ")[2] for part in _parts(origins))
    return tuple(dict.fromkeys(line for line in found if ":" in line or line == "backward"))


def _parts(origins: Iterable[str]) -> list[str]:
    return [part for origin in origins for part in origin.split("; ") if part]
