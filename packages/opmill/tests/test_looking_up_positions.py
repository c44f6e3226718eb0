"""Look-ups at places that are made of positions, with sizes that move: eager's values, by the kernels that were made for them."""

import pytest
import torch

import opmill

PLACES = {
    "each": lambda n: torch.arange(n),
    "from the end": lambda n: torch.arange(-n, 0),
    "before": lambda n: torch.arange(n) - 1,
    "turned": lambda n: n - 1 - torch.arange(n),
    "flipped": lambda n: torch.arange(n).flip(0),
    "halves": lambda n: torch.arange(n) // 2,
    "remainders": lambda n: torch.arange(n) % 3 % n,
    "held": lambda n: (torch.arange(n) + 2).clamp(max=n - 1),
    "held below": lambda n: (torch.arange(n) - 2).clamp(min=0),
    "held by a minimum": lambda n: torch.minimum(torch.arange(n) + 1, torch.tensor(n - 1)),
    "chosen": lambda n: torch.where(torch.arange(n) > 2, torch.arange(n) - 3, torch.arange(n)),
    "rolled": lambda n: torch.arange(n).roll(1),
    "counted": lambda n: torch.ones(n, dtype=torch.int64).cumsum(0) - 1,
    "narrow": lambda n: torch.arange(n, dtype=torch.int32),
    "absolute": lambda n: (torch.arange(n) - n // 2).abs(),
    "every second": lambda n: torch.arange(0, n, 2),
    "a grid": lambda n: (torch.arange(n)[:, None] + torch.arange(n)[None, :]) % n,
    "distances": lambda n: (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs(),
    "buckets": lambda n: (torch.arange(n)[:, None] - torch.arange(n)[None, :]).clamp(-2, 2) % n,
    "repeated": lambda n: torch.arange(n).repeat_interleave(2),
    "joined": lambda n: torch.cat([torch.arange(n), torch.arange(n)]),
}


def _whole(places, x):
    return places if places.dim() == 1 else places.flatten()


LOOK_UPS = {
    "index": lambda x, at: x[at],
    "index of columns": lambda x, at: x.t()[:, at],
    "two": lambda x, at: x[at, at % 3],
    "gather": lambda x, at: x.gather(0, _whole(at, x)[:, None].long().expand(-1, 3)),
    "index_select": lambda x, at: x.index_select(0, _whole(at, x) % len(x)),
    "take": lambda x, at: x.take(at.long()),
    "embedding": lambda x, at: torch.nn.functional.embedding(at % len(x), x),
    "index_add": lambda x, at: x.index_add(0, _whole(at, x) % len(x), torch.ones(at.numel(), 3)),
    "scatter_add": lambda x, at: x.scatter_add(0, _whole(at, x)[:, None].long().expand(-1, 3) % len(x), torch.ones(at.numel(), 3)),
    "index_put": lambda x, at: x.index_put((at.long(),), torch.zeros(()), accumulate=False),
    "index_fill": lambda x, at: x.index_fill(0, _whole(at, x).long(), 2.0),
}


@pytest.mark.parametrize("look_up", LOOK_UPS)
@pytest.mark.parametrize("places", PLACES)
def test_places_made_of_positions(places: str, look_up: str, left_to_torch: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return LOOK_UPS[look_up](x * 2, PLACES[places](len(x))) + 1

    compiled = opmill.compile(function, dynamic=True)
    for size in (5, 6, 12, 4):
        x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size))
        try:
            expected = function(x)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x)
            continue
        torch.testing.assert_close(compiled(x), expected)
        assert not left_to_torch
