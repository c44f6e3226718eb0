"""Random words: the published vectors of Philox4x32-10, and what a sequence is."""

import torch

from opmill_graph_ir.loops.random import coin, philox


def _words(low: int, high: int, counter: int) -> list[int]:
    key = torch.tensor(low | (high << 32) if high < 1 << 31 else (low | (high << 32)) - (1 << 64))
    return [int(w) & 0xFFFFFFFF for w in philox(key, counter * 4 + torch.arange(4))]


def test_published_vectors() -> None:
    assert _words(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_a_word_follows_from_key_and_place_alone() -> None:
    places = torch.tensor([9, 2, 9, (1 << 40) + 1, 0])
    alone = torch.stack([philox(torch.tensor(77), p) for p in places])
    assert torch.equal(philox(torch.tensor(77), places), alone) and alone[0] == alone[2]
    assert not torch.equal(philox(torch.tensor(78), places), alone)


def test_words_are_even() -> None:
    words = philox(torch.tensor(5), torch.arange(1 << 16)).double()
    assert abs(words.mean() / 2**31) < 0.01 and abs(words.std() / 2**31 * 3**0.5 - 1) < 0.01
    bits = philox(torch.tensor(6), torch.arange(1 << 14))
    assert all(abs(((bits >> k) & 1).double().mean() - 0.5) < 0.02 for k in range(32))


def test_coins_are_even_and_neighbours_fall_apart() -> None:
    """Also where the two places share a word: over many bounds, both fall below one as often as chance has it."""
    words = coin(torch.tensor(11), torch.arange(1 << 18)).double() / 2**32 + 0.5
    assert all(abs(w.mean() - 0.5) < 0.004 and abs(w.std() * 12**0.5 - 1) < 0.01 for w in (words, words[::2], words[1::2]))
    for p in (0.1, 0.5, 0.9):
        kept = words < p
        assert abs(kept.double().mean() - p) < 0.004
        for step in (1, 2, 3, 7, 8):
            assert abs((kept[step:] & kept[:-step]).double().mean() - p * p) < 0.005
        assert abs((kept[::2] & kept[1::2]).double().mean() - p * p) < 0.005


def test_coins_share_words_by_twos() -> None:
    a, b = coin(torch.tensor(3), torch.tensor([6, 7]))
    assert int(a) == int(philox(torch.tensor(3), torch.tensor(3), 7)) and int(b) & 0xFFFFFFFF == (
        (int(a) & 0xFFFF) << 16 | (int(a) >> 16 & 0xFFFF)
    )
