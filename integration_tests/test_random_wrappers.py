"""Random programs over tensor subclasses against eager: ``benchmarks/fuzz_wrappers.py`` runs very many; here are some, and those that
showed bugs."""

from __future__ import annotations

import pytest

fuzz_wrappers = pytest.importorskip("fuzz_wrappers")
random_wrappers = pytest.importorskip("random_wrappers")
FIRST, COUNT = 700_000, 24
SHOWED = {
    "sizes of pairs in pairs": ("return x0.sum(1) * 2, x0.t().contiguous(),", ("nested",)),
    "a tensor inside of an output is an output of its own": ("y = x0 * 2; return y, y.a,", ("pair",)),
    "a plain operand beside a pair": ("return (x0 @ x1.t()).sum(), x0 * x1,", ("plain grad", "pair grad")),
    "a pair made of what requires grad": ("y = Pair(x0, x0 * 2, 4); return y * 3,", ("plain grad", "pair")),
    "a note on what is computed": ("y = x0 * 2; y.note = x1; return y, y.note * 3,", ("pair grad", "plain")),
    "what operators read and the context does not say": ("x0.boost = 3; return x0 + 1, x0.boost,", ("boosted",)),
    "a write through a view": ("y = x0.clone(); y.t()[1].mul_(2); return y, y.a.sum(),", ("pair grad",)),
}


def checked(found: list[object]) -> list[str]:
    return [f"seed {v.program.seed}: {v.kind}: {v.detail}\n{v.program.source}" for v in found if v.kind in ("wrong", "crash")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dynamic", [False, True])
def test_random_programs(dynamic: bool) -> None:
    found = list(fuzz_wrappers.verdicts(range(FIRST, FIRST + COUNT), dynamic=dynamic))
    assert not checked(found)
    assert sum(v.kind == "right" for v in found) > COUNT // 2, "most programs must be captured"


def test_captured_graphs_run_as_they_are() -> None:
    found = list(fuzz_wrappers.verdicts(range(FIRST + COUNT, FIRST + 3 * COUNT), backend="eager"))
    assert not checked(found) and not any(v.broken and ".boost = " not in v.program.source for v in found)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHOWED)
def test_what_showed_bugs(name: str, dynamic: bool) -> None:
    source, kinds = SHOWED[name]
    found = fuzz_wrappers.verdict(random_wrappers.Program(1, f"    {source}", kinds), "native", dynamic)
    assert found.kind == "right", found.detail


def test_gradients_that_are_wrappers_for_some_outputs_only_are_those_of_eager() -> None:
    kinds = ("plain grad", "pair")
    for source in ("x0.note = x1 @ (x0.t() @ x1); return x0.sum(),", "return (x0 @ x1.t()).sum(), x0 * 2,"):
        found = fuzz_wrappers.verdict(random_wrappers.Program(1, f"    {source}", kinds), "native", False)
        assert found.kind == "right" or "GI061" in found.detail, found.detail  # which is said once
    alone = random_wrappers.Program(1, "    return (x0 * x1).total().sum(), x0 + x1,", kinds)
    assert fuzz_wrappers.verdict(alone, "native", False).kind == "right"
