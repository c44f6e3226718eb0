"""Writes of memory that an argument shows at other places: refused where eager refuses them, and where it does not, what it gives."""

from __future__ import annotations

import pytest
import torch

from opmill_bytecode_frontend import capture

WRITES = {
    "a row": lambda x: x.add_(x[1]),
    "another row": lambda x: x[0].add_(x[1]),
    "turned": lambda x: x.mul_(x.t()),
    "itself": lambda x: x.add_(x.view(4, 4)),
    "rows by one": lambda x: x[1:].add_(x[:-1]),
    "rows by one, copied": lambda x: x[1:].copy_(x[:-1]),
    "rows by one, assigned": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "columns by one": lambda x: x[:, 1:].add_(x[:, :-1]),
    "columns of two kinds": lambda x: x[:, ::2].mul_(x[:, 1::2]),
    "by the first column": lambda x: x.__itruediv__(x[:, :1]),
    "by an element": lambda x: x.div_(x[1, 1]),
    "a row for all": lambda x: x.add_(x[0:1].expand(4, 4)),
    "three": lambda x: x.addcmul_(x[0], x[1]),
    "into a part": lambda x: torch.sin(x[:2], out=x[1:3]),
    "the larger": lambda x: torch.maximum(x, x[0], out=x),
    "compared": lambda x: x.eq_(x[0]),
    "filled": lambda x: x.fill_(x[0, 1]),
    "the diagonal": lambda x: x.diagonal().add_(x[0]),
    "several": lambda x: torch._foreach_add_([x], [x[0]]),
    "halves": lambda x: x[:2].add_(x[2:]),
    "a row by itself": lambda x: x.__setitem__(0, x[0]),
}


@pytest.mark.parametrize("of", ["an argument", "what was computed"])
@pytest.mark.parametrize("name", WRITES)
def test_overlapping_writes(name, of):
    def program(x):
        y = x if of == "an argument" else x * 1
        WRITES[name](y)
        return y * 2

    compiled = capture(program, "eager")
    for _ in range(2):
        found = []
        for call in (program, compiled):
            x = torch.arange(16.0).reshape(4, 4)
            try:
                found.append([call(x).tolist(), x.tolist()])
            except RuntimeError as error:
                found.append([str(error), x.tolist()])
        assert str(found[1]) == str(found[0])
