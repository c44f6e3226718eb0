"""Index expressions in C++, computed and compared."""

import ctypes
import subprocess

import pytest

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_kernel_gen_cpp.emit.index_text import index_text
from opmill_kernel_gen_cpp.emit.needs import Needs
from opmill_kernel_gen_cpp.toolchain import find

A, B = index("a"), index("b")
CASES = {
    "0": index(0),
    "linear": 3 * A - 5 * B + 7,
    "product": A * B * -2,
    "large": A * (1 << 40) - (1 << 33),
    "floor": floordiv(A - 10, 3),
    "mod": mod(A - 2 * B, 7),
    "of positive": floordiv(A, 4) * 9 + mod(A + B, 5),
    "nested": mod(floordiv(A - 50, 3), 4) + floordiv(mod(B, 3), 2),
    "by a size": floordiv(A - 7, B + 1),
}


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    needs, lines = Needs(), []
    for number, (name, i) in enumerate(CASES.items()):
        extents = {"a": 100, "b": 10}
        text = index_text(i, {"a": "p", "b": "q"}, extents, needs)
        lines.append(f'extern "C" long f{number}(long p, long q) {{ return {text}; }}  // {name}')
    folder = tmp_path_factory.mktemp("index")
    (folder / "f.cpp").write_text("\n".join([*needs.items.values(), *lines]))
    command = [*find().command, "-x", "c++", "-shared", "-fPIC", "-o", str(folder / "f.so"), str(folder / "f.cpp")]
    subprocess.run(command, check=True, timeout=60)
    library = ctypes.CDLL(str(folder / "f.so"))
    found = {}
    for number, name in enumerate(CASES):
        found[name] = getattr(library, f"f{number}")
        found[name].restype, found[name].argtypes = ctypes.c_long, [ctypes.c_long, ctypes.c_long]
    return found


@pytest.mark.parametrize("name", CASES)
def test_text_means_what_the_expression_does(functions, name):
    for a in (0, 1, 6, 7, 49, 50, 99):
        for b in range(10):
            assert functions[name](a, b) == CASES[name].evaluate({"a": a, "b": b}), (a, b)


def test_plain_division_where_nothing_is_negative():
    needs = Needs()
    assert "floor" not in index_text(floordiv(A, 4), {"a": "a"}, {"a": 9}, needs) and not needs.items
    assert "floor_div" in index_text(floordiv(A - 1, 4), {"a": "a"}, {"a": 9}, needs) and "floor division" in needs.items
