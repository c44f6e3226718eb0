"""Each attribute that tensors have, read in three ways of tensors of all sorts: eager's value, or eager's exception."""

import logging

import pytest
import torch

from opmill_bytecode_frontend import capture

NAMES = [*dir(torch.Tensor), "nothing_here", "_nothing"]
FACTS = [name for name in NAMES if not callable(getattr(torch.Tensor, name, None))]
"""The rest are methods, which are found alike on all tensors."""
APART = {"_cdata": "an address", "__dict__": "what else is on the object"}
READERS = {
    "get": "getattr(x, {!r})",
    "default": "getattr(x, {!r}, None)",
    "has": "hasattr(x, {!r})",
}
TEXT = """
def read(x):
    {}
    found = []
    for_each = found.append
{}
    return found
"""
ONE = """
    try:
        for_each({})
    except Exception as error:
        for_each((type(error), str(error)))
"""
SORTS = {
    "leaf": lambda: torch.ones(3, 3),
    "needs": lambda: torch.ones(3, 3, requires_grad=True),
    "integer": lambda: torch.arange(9).view(3, 3),
    "complex": lambda: torch.ones(3, 3, dtype=torch.complex64),
    "view": lambda: torch.ones(4, 3)[1:],
    "parameter": lambda: torch.nn.Parameter(torch.ones(3, 3)),
    "result": lambda: torch.ones(3, 3),
    "result that needs": lambda: torch.ones(3, 3, requires_grad=True),
    "vector": lambda: torch.ones(3),
    "empty": lambda: torch.ones(0, 3),
}


def reader(how, names, sort):
    scope = {}
    tries = "".join(ONE.format(READERS[how].format(name)) for name in names)
    exec(TEXT.format("x = x * 2" if sort.startswith("result") else "", tries), scope)
    return scope["read"]


def described(value):
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.shape, value.requires_grad
    if callable(value) and not isinstance(value, type):
        return type(value), getattr(value, "__name__", None)
    return (type(value),) if type(value).__name__ in ("UntypedStorage", "TypedStorage", "PyCapsule") or "Backward" in str(value) else value


@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.filterwarnings("ignore")
def test_each_is_eagers(sort, how, caplog):
    different = []
    with caplog.at_level(logging.WARNING):
        for name in (name for name in (NAMES if (sort, how) == ("leaf", "get") else FACTS) if name not in APART):
            read = reader(how, [name], sort)
            expected, found = (list(map(described, f(SORTS[sort]()))) for f in (read, capture(reader(how, [name], sort))))
            if expected != found:
                different.append((name, expected, found))
    assert not different
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.filterwarnings("ignore")
def test_those_that_raise_are_caught_in_one_graph(sort):
    """What eager raises is known while the graph is made: the program goes on."""
    names = ["imag", "grad_dtype", "nothing_here", "__cuda_array_interface__", "real"]
    read = reader("get", [name for name in names if hasattr(torch.Tensor, name) or name == "nothing_here"], sort)
    expected, found = (list(map(described, f(SORTS[sort]()))) for f in (read, capture(read, fullgraph=True)))
    assert expected == found
