"""Stores whose lanes lie between each other's: put together where they fill memory, and right where they do not."""

from dataclasses import replace

import pytest

from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_kernel_gen_cpp.kernel import kernel_text
from opmill_kernel_gen_cpp.target import AVX2

TYPES = ["float32", "float64", "bfloat16", "int32", "int64", "uint8", "int16", "bool"]


def kernel(step: int, places: tuple[int, ...], dtype: str, points: int, reads: bool = False) -> LoopKernel:
    """``y[step * i + place]`` for each of the places; the value of each is told from the others. ``reads``: all but the first are made of
    what is there before."""

    def value(number: int):
        x = Load("x", index("i") * len(places) + number, dtype)
        if dtype == "bool":
            return Op("logical_xor", (x, Const(number % 2 == 1, "bool")), "bool")
        wide = "float32" if dtype == "bfloat16" else dtype
        x = Op("cast", (x,), wide) if wide != dtype else x
        more = Load("y", index("i") * step + places[0], dtype) if reads and number else None
        x = x if more is None else Op("add", (x, Op("cast", (more,), wide) if wide != dtype else more), wide)
        x = Op("add", (x, Const(float(number) if wide.startswith("float") else number, wide)), wide)
        return Op("cast", (x,), dtype) if wide != dtype else x

    stores = tuple(Store("y", index("i") * step + place, value(k)) for k, place in enumerate(places))
    buffers = (
        Buffer("x", dtype, "in", index(points * len(places))),
        Buffer("y", dtype, "inout", index(points * step + max(places))),
    )
    return LoopKernel("interleaved", buffers, (Nest((Axis("i", index(points)),), (Phase(stores=stores),)),))


FULL = [(2, (0, 1)), (3, (0, 1, 2)), (4, (0, 1, 2, 3)), (2, (1, 0)), (3, (2, 0, 1)), (2, (3, 4))]
CASES = {f"{step} {places} {dtype} {n}": kernel(step, places, dtype, n) for step, places in FULL for dtype in TYPES for n in (160, 77)}
_PAIR = kernel(2, (0, 1), "float32", 160)
_STORES = _PAIR.nests[0].phases[0].stores
_ADDED = replace(_STORES[0], mode="add", value=_STORES[1].value)
APART = {
    "something is added in between": replace(
        _PAIR, nests=(replace(_PAIR.nests[0], phases=(Phase(stores=(_STORES[0], _ADDED, _STORES[1])),)),)
    ),
    "one is missing": kernel(3, (0, 2), "float32", 160),
    "too far apart": kernel(5, (0, 1, 2, 3, 4), "float32", 160),
    "few points": kernel(2, (0, 1), "float32", 3),
    "read before they are written": kernel(2, (0, 1), "float32", 160, reads=True),
}


@pytest.fixture(scope="module")
def runner(store) -> Runner:
    return Runner([*CASES.values(), *APART.values()], store)


@pytest.mark.parametrize("name", [*CASES, *APART])
def test_each_lane_is_where_it_belongs(runner: Runner, name: str) -> None:
    case = Case(name, {**CASES, **APART}[name])
    assert disagreement(case, runner) is None


def test_which_are_put_together() -> None:
    for step, places in FULL:
        text = kernel_text(kernel(step, places, "float32", 160), "k", AVX2).body
        assert text.count(f"interleave_f32x8_{step}(p_y") == len(places) // step and "store_strided" not in text
    for name in ("one is missing", "too far apart", "something is added in between"):
        assert "interleave" not in kernel_text(APART[name], "k", AVX2).body
