"""Whether a warning is shown is decided as Python does; hearing leaves Python's memory of warnings as it was."""

import itertools
import re
import warnings

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.values.warned import hearing, is_ignored

ACTIONS = ("ignore", "always", "default", "error")
FILTERS = [
    (action, re.compile(text) if text else None, category, re.compile(module) if module else None, line)
    for action, text, category, module, line in itertools.product(
        ACTIONS[:2], ("", "old"), (UserWarning, DeprecationWarning), ("", "mine"), (0, 7)
    )
]


def heard(text="old thing", category=UserWarning, line=7):
    return warnings.WarningMessage(category(text), category, "mine.py", line)


@pytest.mark.parametrize("first", range(0, len(FILTERS), 3))
def test_the_first_filter_that_fits_decides(first, monkeypatch):
    filters = [FILTERS[first], FILTERS[(first * 7 + 5) % len(FILTERS)]]
    for message, module in itertools.product(
        [heard(), heard("new thing"), heard(category=DeprecationWarning), heard(line=8)], ["mine", "theirs"]
    ):
        with warnings.catch_warnings(record=True) as shown:
            warnings.filters[:] = filters
            monkeypatch.setattr(warnings, "defaultaction", "always", raising=False)
            warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else None
            warnings.warn_explicit(message.message, message.category, message.filename, message.lineno, module, registry={})
        assert is_ignored(filters, "always", message, module) is (not shown)


def test_hearing():
    registry = {}
    with hearing() as told:
        warnings.warn("first", stacklevel=1)
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            warnings.warn_explicit("second", UserWarning, "mine.py", 1, "mine", registry)
    assert [str(each.message) for each in (*told, *shown)] == ["first", "second"]


F = torch.nn.functional
BY_FUNCTIONS_OF_TORCH = {
    "softmax": lambda x: F.softmax(x),
    "twice": lambda x: F.softmax(x) + F.softmax(x, dim=1) + F.softmax(x),
    "log_softmax": lambda x: F.log_softmax(x),
    "softmin": lambda x: F.softmin(x),
    "a module": lambda x: torch.nn.Softmax()(x),
    "dropout2d": lambda x: F.dropout2d(x[None], 0.0),
    "kl_div": lambda x: F.kl_div(x, x.sigmoid()),
    "upsample": lambda x: F.upsample(x[None], scale_factor=2),
    "grid_sample": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
    "affine_grid": lambda x: F.affine_grid(torch.eye(3)[None, :2], (1, 1, 2, 1)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid(), size_average=False),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, eps=1e-9) > 2,
    "mse_loss": lambda x: F.mse_loss(x, x[0]),
    "nll_loss": lambda x: F.nll_loss(x, torch.tensor([0, 1]), reduce=False),
    "multilabel": lambda x: F.multilabel_soft_margin_loss(x, x.sigmoid(), size_average=True),
}


@pytest.mark.parametrize("action", ["always", "error", "ignore"])
@pytest.mark.parametrize("name", BY_FUNCTIONS_OF_TORCH)
def test_functions_of_torch_warn_at_each_call_in_the_line_of_the_program(name, action):
    function = BY_FUNCTIONS_OF_TORCH[name]

    def heard(call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action, UserWarning)
            try:
                result = call(torch.arange(4.0).reshape(2, 2)).tolist()
            except UserWarning as error:
                result = str(error)
        return result, [(each.category, str(each.message), each.filename, each.lineno) for each in found]

    compiled = capture(function, "eager")
    for _ in range(2):
        assert heard(compiled) == heard(function)
