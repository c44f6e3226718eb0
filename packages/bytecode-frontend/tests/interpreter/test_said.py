"""What operators warn of stays one graph, is told at each call or once, and costs nothing where nothing warns."""

import subprocess
import sys
import warnings

import pytest
import torch

from opmill_bytecode_frontend import capture

ONE, THREE = torch.ones(1), torch.arange(3.0)
BYTES = torch.tensor([1, 0, 1], dtype=torch.uint8)
EACH_TIME = {
    "var": (lambda x: x.var() + 1, ONE),
    "std_mean": (lambda x: torch.std_mean(x[None], 0)[0], THREE),
    "bytes": (lambda x: x.index_put((BYTES,), x[:2]), THREE),
    "twice": (lambda x: x.var() + x.std(), ONE),
}


def heard(function, *args):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        function(*args)
    return [(each.category, str(each.message), each.filename, each.lineno) for each in told]


@pytest.mark.parametrize("name", EACH_TIME)
def test_what_is_said_each_time_stays_one_graph(name):
    program, x = EACH_TIME[name]
    compiled = capture(program, fullgraph=True)
    assert [heard(compiled, x) for _ in range(3)] == [heard(program, x)] * 3 != [[]] * 3


SPREADS = {
    "one": lambda x: x.var(0),
    "all": lambda x: x.std(),
    "unbiased": lambda x: x.std(0, unbiased=False),
    "corrected": lambda x: x.var(0, correction=4),
    "all corrected": lambda x: torch.var_mean(x, correction=9)[0],
    "of none": lambda x: x[:0].std(),
    "another": lambda x: x.var(1),
    "both": lambda x: torch.std_mean(x, (0, 1), correction=torch.iinfo(torch.int8).max)[0],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SPREADS)
def test_each_size_is_asked_anew(name, dynamic):
    compiled = capture(SPREADS[name], dynamic=dynamic)
    for size in (3, 1, 4, 2, 1, 5, 64, 70) if dynamic else (4, 1, 3, 4):
        for width in (2, 1):
            x = torch.ones(size, width)
            assert heard(compiled, x) == heard(SPREADS[name], x)


def test_a_filter_that_becomes_an_error_raises_in_the_line():
    def program(x):
        return x.var() * 2

    compiled = capture(program)
    assert heard(compiled, ONE)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="degrees of freedom") as raised:
                compiled(ONE)
        assert raised.traceback[-1].lineno + 1 == program.__code__.co_firstlineno + 1
    assert heard(compiled, ONE) == heard(program, ONE)


@pytest.mark.filterwarnings("ignore:var")
def test_random_numbers_go_on_as_in_eager():
    def program(x):
        return torch.rand(2) + x.var()

    torch.manual_seed(3)
    expected = program(ONE), torch.rand(1)
    torch.manual_seed(3)
    compiled = capture(program)
    found = compiled(ONE), torch.rand(1)
    assert torch.equal(found[1], expected[1])


def test_what_a_backend_says_itself_is_shown():
    def backend(graph, inputs):
        def run(*args):
            warnings.warn("of the backend", RuntimeWarning, stacklevel=1)
            return graph(*args)

        return run

    assert [each[0] for each in heard(capture(EACH_TIME["var"][0], backend=backend), ONE)] == [RuntimeWarning, UserWarning]


ONCE = """
import warnings, torch
from opmill_bytecode_frontend import capture
x = torch.ones(3)
def first(x):
    return torch.meshgrid(x, x)[0] + 1
def second(x):
    return torch.meshgrid(x, x)[1] * 2
def count(function):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        function(x)
    return len(told)
print(*[count(function) for function in (FUNCTIONS) for _ in range(2)])
"""


@pytest.mark.parametrize(
    "functions", ["capture(first), capture(second)", "first, capture(second)", "capture(first), second, capture(first, dynamic=True)"]
)
def test_what_is_said_once_is_said_once_in_a_process(functions):
    text = ONCE.replace("FUNCTIONS", functions)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=True)
    first, *others = done.stdout.split()
    assert first == "1" and set(others) == {"0"}
    assert "Warning" not in done.stderr


def test_warnings_that_are_always_given_are_given_each_time():
    torch.set_warn_always(True)
    try:
        compiled = capture(lambda x: torch.meshgrid(x, x)[0] + 1)
        assert [len(heard(compiled, THREE)) for _ in range(3)] == [1, 1, 1]
    finally:
        torch.set_warn_always(False)
