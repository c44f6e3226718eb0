"""What generators of random numbers are about to give, kept for a function that draws them anew where its graph fails."""

from __future__ import annotations

import random
from typing import Any

import torch

States = list[tuple[Any, Any]]


def states_of(*generators: object) -> States:
    """Generators of Python, of NumPy and of torch, with their states."""
    return [(generator, _state(generator)) for generator in generators]


def _state(generator: Any) -> object:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    bits = getattr(generator, "bit_generator", None)
    return generator.get_state(legacy=False) if bits is None else bits.state


def put_back(states: States) -> None:
    """Gives generators the states that they had."""
    for generator, state in states:
        if isinstance(generator, random.Random):
            generator.setstate(state)
        elif (bits := getattr(generator, "bit_generator", None)) is not None:
            bits.state = state
        else:
            generator.set_state(state)


__all__ = ["States", "put_back", "states_of"]
