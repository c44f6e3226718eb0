"""What a kernel may write to, from its source. No Triton is needed to read it."""

import types

import pytest

from opmill_bytecode_frontend.kernels.mutation_analysis import Indirect, written
from opmill_bytecode_frontend.kernels.operators import Launch, operator_of

tl = types.ModuleType("triton.language")


def _of_triton(name):
    def function(*args, **kwargs):
        raise NotImplementedError

    function.__name__, function.__module__ = name, "triton.language.core"
    return function


for _name in "load store atomic_add atomic_cas program_id arange make_block_ptr advance where exp inline_asm_elementwise pointer_type float32 sum zeros".split():
    setattr(tl, _name, _of_triton(_name))


def plain(x, y, n):
    i = tl.program_id(0) + tl.arange(0, 32)
    tl.store(y + i, tl.load(x + i), mask=i < n)


def by_names(x, y, z):
    p, q = x + 1, y
    q += 4
    r = q if z else p
    tl.store(r, 1)


def index_that_is_loaded(x, at, out):
    i = tl.load(at + tl.arange(0, 4))
    tl.store(out + i, tl.load(x + i))


def atomics(total, x):
    tl.atomic_add(total, tl.load(x))


def block_pointers(x, y):
    p = tl.make_block_ptr(y, (4,), (1,), (0,), (4,), (0,))
    for _ in range(3):
        tl.store(p, tl.load(x))
        p = tl.advance(p, (4,))


def later_in_the_loop(x, y, z):
    p = x
    for _ in range(3):
        tl.store(p, 1)
        p = q = y
    return q


def helper(p, v):
    tl.store(p, v)


def outer_helper(a, b):
    helper(b, tl.load(a))


def calls(x, y, z):
    outer_helper(x, y + 4)
    helper(v=1, p=z)


def recursive(x, y):
    if y:
        recursive(y, x)
    tl.store(x, 1)


def method(desc, x):
    desc.store([0], tl.load(x))


def unknown(x, y, z):
    somebody.does(x, y)
    tl.exp(z)


def not_there(x, y, z):
    nowhere.does(x)  # noqa: F821
    z.to(tl.float32)
    (y + 1).to(tl.float32)


somebody = types.SimpleNamespace(does=object())


def assembly(x, y):
    tl.inline_asm_elementwise("...", "=r,r", [x], dtype=tl.float32)
    return y


def pointers_of_numbers(x):
    tl.store(tl.load(x).to(tl.pointer_type(tl.float32)), 1)


EXPECTED = {
    plain: "y", by_names: "x y", index_that_is_loaded: "out", atomics: "total", block_pointers: "y", later_in_the_loop: "x y", calls: "y z",
    method: "desc", unknown: "x y", assembly: "x", not_there: "x",
}  # fmt: skip


@pytest.mark.parametrize("function", EXPECTED, ids=lambda f: f.__name__)
def test_what_is_written(function):
    assert written(function) - {"n", "i"} == set(EXPECTED[function].split())


def test_a_kernel_that_calls_itself():
    assert "x" in written(recursive)


def test_pointers_of_numbers_are_not_followed():
    with pytest.raises(Indirect):
        written(pointers_of_numbers)


def test_decorated_functions():
    kernel = types.SimpleNamespace(fn=types.SimpleNamespace(fn=plain))
    assert "y" in written(kernel) and "x" not in written(kernel)


def test_without_source_everything_is_written():
    space = {"tl": tl}
    exec("def made(x, y):\n    tl.store(y, tl.load(x))", space)
    assert written(space["made"]) == {"x", "y"}


def test_equal_launches_are_one_operator():
    calls_seen = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda **kwargs: calls_seen.append((grid, sorted(kwargs)))

    kernel = Kernel()
    first = Launch(kernel, (("x",), ("y",)), ("n",), (("B", 32),), (False, True), axes=1)
    same = Launch(kernel, (("x",), ("y",)), ("n",), (("B", 32),), (False, True), axes=1)
    other = Launch(kernel, (("x",), ("y",)), ("n",), (("B", 64),), (False, True), axes=1)
    assert operator_of(first) is operator_of(same) is not operator_of(other)
    import torch

    x, y = torch.ones(3), torch.zeros(3)
    assert operator_of(first)(x, y, [3], [2, 1, 1]) is None
    assert calls_seen == [((2,), ["B", "n", "x", "y"])]
