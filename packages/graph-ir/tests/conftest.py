"""Random numbers of all tests are the same in every run: those made where a module is collected, and those made within a test."""

import pytest
import torch

torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
