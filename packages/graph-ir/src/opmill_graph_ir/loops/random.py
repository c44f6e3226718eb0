"""Random words by counting: what a generator's ``philox`` computes, in terms of torch."""

from __future__ import annotations

import torch

ROUNDS = 10
COIN_ROUNDS = 7
"""The fewest with which the generator passes every test that its authors put it to."""
FACTORS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def philox(key: torch.Tensor, place: torch.Tensor, rounds: int = ROUNDS) -> torch.Tensor:
    """The random word (int32) at ``place`` (int64, not negative) of the sequence that ``key`` (int64) begins: number ``place % 4`` of the
    four that Philox4x32 makes of the counter ``place // 4``. Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3
    (2011)."""
    key, place = torch.broadcast_tensors(key, place)
    keys = [key & _LOW, key >> 32 & _LOW]
    counter = place // 4
    words = [counter & _LOW, counter >> 32 & _LOW, torch.zeros_like(place), torch.zeros_like(place)]
    for _ in range(rounds):
        first, second = (w * f for w, f in zip(words[::2], FACTORS, strict=True))  # 64 bits: what overflows is the sign alone
        words = [(second >> 32 & _LOW) ^ words[1] ^ keys[0], second & _LOW, (first >> 32 & _LOW) ^ words[3] ^ keys[1], first & _LOW]
        keys = [k + s & _LOW for k, s in zip(keys, STEPS, strict=True)]
    word = torch.stack(words, -1).gather(-1, (place % 4).unsqueeze(-1)).squeeze(-1)
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)


def coin(key: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A word (int32) to compare with a bound, cheaper than ``philox``'s: each word of seven rounds serves two places, the odd one with its
    halves exchanged. Each is even over all 32 bits; two neighbours depend on one another only where the upper half of one ties with the
    bound's."""
    place = torch.as_tensor(place)
    word = philox(key, place // 2, COIN_ROUNDS)
    return torch.where(place % 2 == 1, (word << 16) | (word >> 16 & 0xFFFF), word)
