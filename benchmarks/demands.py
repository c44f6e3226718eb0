"""What opmill promises of its speed and correctness, checked against what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

Results = dict[str, dict[str, dict[str, dict[str, Any]]]]
CALL_US, CALL_AIM_US = 140 / 4, 20.0
NOISE = 1.03  # two medians of the same program differ by this much on a busy machine


def demands(results: Results) -> list[dict[str, Any]]:
    """Rows {what, seen, least, met, aim, aim_met}; ``met`` and ``aim_met`` are None where nothing was measured to judge by."""
    return [check(results) for check in (_right, _cold, _warm, _not_slower, _geometric_mean, _call, _imports_warm, _imports_cold)]


def _row(what: str, seen: str, least: str, met: bool | None, aim: str = "", aim_met: bool | None = None) -> dict[str, Any]:
    return {"what": what, "seen": seen, "least": least, "met": met, "aim": aim, "aim_met": aim_met}


def _ours(results: Results, phase: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for model, compilers in results.items():
        if "opmill" in compilers:
            yield model, compilers["opmill"][phase]


def _right(results: Results) -> dict[str, Any]:
    rows = [row for phase in ("cold", "warm") for _, row in _ours(results, phase)]
    wrong = sorted({model for phase in ("cold", "warm") for model, row in _ours(results, phase) if not _is_right(row)})
    total = len(rows) // 2
    seen = f"{total - len(wrong)} of {total}" + (f" (not {', '.join(wrong)})" if wrong else "")
    return _row("captured whole and right (at most 3x eager's error)", seen, f"{total} of {total}", not wrong if rows else None)


def _is_right(row: dict[str, Any]) -> bool:
    return "failed" not in row and not row.get("not_compiled") and row["error"] <= 3 * max(row["eager_error"], 1e-9)


def _against_torch(results: Results, phase: str, key: str) -> dict[str, float]:
    """Model -> torch.compile's value divided by opmill's; 0 where opmill gave none. Models torch.compile failed on are left out."""
    ratios = {}
    for model, compilers in results.items():
        theirs, ours = compilers.get("torch", {}).get(phase, {}), compilers.get("opmill", {}).get(phase, {})
        if key in theirs and compilers.get("opmill"):
            ratios[model] = theirs[key] / ours[key] if key in ours else 0.0
    return ratios


def _first_call(results: Results, phase: str, what: str, least: float, aim: float) -> dict[str, Any]:
    ratios = _against_torch(results, phase, "first_s")
    if not ratios:
        return _row(what, "torch.compile not measured", f"{least:g}x on every model", None, f"{aim:g}x")
    worst = min(ratios, key=ratios.__getitem__)
    seen = f"{ratios[worst]:.1f}x ({worst}) to {max(ratios.values()):.1f}x"
    return _row(what, seen, f"{least:g}x on every model", ratios[worst] >= least, f"{aim:g}x", ratios[worst] >= aim)


def _cold(results: Results) -> dict[str, Any]:
    return _first_call(results, "cold", "first call, empty caches, against torch.compile", 5, 15)


def _warm(results: Results) -> dict[str, Any]:
    return _first_call(results, "warm", "first call, warm caches, against torch.compile", 4, 20)


def _not_slower(results: Results) -> dict[str, Any]:
    slower = [f"{model} {_slowdown(row):.2f}x" for model, row in _ours(results, "warm") if _slowdown(row) > NOISE]
    return _row("no model slower than eager", ", ".join(slower) or "none slower", "none", not slower if results else None)


def _slowdown(row: dict[str, Any]) -> float:
    return row["steady_ms"] / row["eager_ms"] if "steady_ms" in row else math.inf


def _geometric_mean(results: Results) -> dict[str, Any]:
    what = "steady state against torch.compile, geometric mean"
    ratios = [ratio for ratio in _against_torch(results, "warm", "steady_ms").values() if ratio]
    if not ratios:
        return _row(what, "not measured", "1x", None, "1.3x")
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return _row(what, f"{mean:.2f}x over {len(ratios)} models", "1x", mean >= 1, "1.3x", mean >= 1.3)


def _call(results: Results) -> dict[str, Any]:
    what = "a call of the compiled mlp"
    ours = results.get("mlp", {}).get("opmill", {}).get("warm", {}).get("steady_ms")
    if ours is None:
        return _row(what, "not measured", f"{CALL_US:g} us", None, f"{CALL_AIM_US:g} us")
    theirs = results["mlp"].get("torch", {}).get("warm", {}).get("steady_ms")
    least = min(1e3 * theirs / 4, CALL_US) if theirs else CALL_US  # a busy machine slows torch.compile's call more than ours
    seen = f"{1e3 * ours:.1f} us" + (f" (torch.compile {1e3 * theirs:.0f})" if theirs else "")
    return _row(what, seen, f"{least:.0f} us", 1e3 * ours <= least, f"{CALL_AIM_US:g} us", 1e3 * ours <= CALL_AIM_US)


def _imports(phase: str, what: str) -> Callable[[Results], dict[str, Any]]:
    def check(results: Results) -> dict[str, Any]:
        measured = [(model, row["imported"]) for model, row in _ours(results, phase) if "imported" in row]
        seen = ", ".join(f"{name} ({model})" for model, names in measured for name in names)
        return _row(what, seen or "neither", "neither", not seen if measured else None)

    return check


_imports_warm = _imports("warm", "torch._dynamo, torch._inductor imported by compiling and running, warm start")
_imports_cold = _imports("cold", "the same, cold start")
