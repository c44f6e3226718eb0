"""Calls that must raise, of every operator of torch's sample databases, compiled and in eager.

``python benchmarks/error_inputs.py [--kinds declared,module,dtype,size,rank,value] [--ops add,cat] [--part 1/8] [--samples 3]
[--forms static,dynamic] [--json out.json]``

``declared`` are the samples that torch ships for this (``error_inputs`` of the operators, ``module``: of the modules). The other kinds are
made of ordinary samples, so that they find what nobody thought of: one tensor of another ``dtype``, with a dimension of another ``size``,
of another ``rank``, or with a ``value`` that may be out of range. Those that eager takes are no samples.

A sample counts where the compiled function raises the type and the text that eager raises. ``dynamic``: compiled for any sizes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

KINDS = ("declared", "module", "dtype", "size", "rank", "value")
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16)


@dataclass(frozen=True)
class Sample:
    """A call ``function(*args, **kwargs)``; ``name`` says of what operator and kind."""

    name: str
    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Difference:
    sample: Sample
    form: str
    expected: str
    got: str


# ---- samples ---------------------------------------------------------------------------------------------------------------


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def declared(op: Any) -> Iterator[Sample]:
    """The samples of an operator that must raise."""
    if op.error_inputs_func is None:
        return
    try:
        found = list(op.error_inputs("cpu"))
    except Exception:
        return
    for error in found:
        given = error.sample_input
        if isinstance(given, torch.Tensor | list | tuple) or not hasattr(given, "args"):
            continue
        yield Sample(name_of(op), "declared", op.op, (given.input, *given.args), given.kwargs)


def of_modules() -> Iterator[Sample]:
    """The samples of modules whose call must raise. (Constructors are not compiled.)"""
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

    for info in module_db:
        if info.module_error_inputs_func is None:
            continue
        try:
            found = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
        except Exception:
            continue
        for error in found:
            given = error.module_error_input
            if error.error_on != ModuleErrorEnum.FORWARD_ERROR:
                continue
            module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
            inputs = given.forward_input
            yield Sample(info.name, "module", module, tuple(inputs.args), dict(inputs.kwargs))


def altered(op: Any, kinds: Sequence[str], count: int) -> Iterator[Sample]:
    """Ordinary samples with one tensor changed."""
    dtype = next((d for d in DTYPES if d in op.dtypes), None)
    if dtype is None:
        return
    torch.manual_seed(0)
    try:
        samples = []
        for sample in op.sample_inputs("cpu", dtype):
            samples.append(sample)
            if len(samples) == count:
                break
    except Exception:
        return
    for sample in samples:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        if any(isinstance(t, torch.Tensor) and (t.layout is not torch.strided or t.numel() > 20_000) for t in leaves):
            continue
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                for kind in kinds:
                    for other in CHANGES[kind](leaf):
                        args, kwargs = pytree.tree_unflatten([*leaves[:k], other, *leaves[k + 1 :]], spec)
                        yield Sample(name_of(op), kind, op.op, args, kwargs)


def _of_types(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for dtype in (torch.float64, torch.int64, torch.bool, torch.complex64, torch.float32, torch.float16):
        if dtype != x.dtype and not (x.is_complex() and not dtype.is_complex):
            yield x.detach().to(dtype)


def _of_sizes(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for d in range(x.dim()):
        yield torch.cat([x, x.narrow(d, 0, 1)], d) if x.shape[d] else x.new_ones([*x.shape[:d], 1, *x.shape[d + 1 :]])
        if x.shape[d] > 1:
            yield x.narrow(d, 0, x.shape[d] - 1)


def _of_ranks(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x.unsqueeze(0)
    if x.dim() and x.shape[0]:
        yield x[0]


def _of_values(x: torch.Tensor) -> Iterator[torch.Tensor]:
    if x.dtype == torch.bool or not x.numel():
        return
    for value in (-1000, 1000, 0) if not x.is_floating_point() and not x.is_complex() else (float("nan"), -1.5, float("inf"), 0.0):
        y = x.detach().clone()
        y.reshape(-1)[-1:] = value
        if y.numel() == 1 or y.is_contiguous():
            y.view(-1)[-1] = value
        yield y


CHANGES = {"dtype": _of_types, "size": _of_sizes, "rank": _of_ranks, "value": _of_values}


# ---- judging ---------------------------------------------------------------------------------------------------------------


def outcome(function: Callable[..., Any], sample: Sample) -> str:
    """Type and text of what a call raises; empty where it returns."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (sample.args, sample.kwargs))
    try:
        torch.manual_seed(0)
        function(*args, **kwargs)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


def check(sample: Sample, forms: Sequence[str]) -> tuple[int, list[Difference]]:
    """How many forms of the call were compared, and those that differ. None is where eager does not raise."""
    import opmill

    if not (expected := outcome(sample.function, sample)):
        return 0, []
    if outcome(sample.function, sample) != expected:
        return 0, []  # a text with an address, or what was not set
    different = []
    for form in forms:
        function = sample.function

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        compiled = opmill.compile(call, dynamic=form == "dynamic")
        got = outcome(compiled, sample)
        if got != expected:
            different.append(Difference(sample, form, expected, got))
    return len(forms), different


def samples_of(kinds: Sequence[str], names: Callable[[str], bool], count: int) -> Iterator[Sample]:
    """All samples of these kinds of operators with such names."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if names(name_of(op)):
            if "declared" in kinds:
                yield from declared(op)
            yield from altered(op, [k for k in kinds if k in CHANGES], count)
    if "module" in kinds:
        yield from (s for s in of_modules() if names(s.name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ops", default="", help="names of the database, or parts of them")
    parser.add_argument("--part", default="1/1", help="k/n: each n-th operator, from the k-th on")
    parser.add_argument("--samples", type=int, default=2, help="ordinary samples of an operator that are changed")
    parser.add_argument("--forms", default="static,dynamic")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from torch.testing._internal.common_methods_invocations import op_db

    every = sorted({name_of(op) for op in op_db})
    part, parts = map(int, options.part.split("/"))
    chosen = set(every[part - 1 :: parts])
    wanted = options.ops.split(",") if options.ops else [""]

    def named(name: str) -> bool:
        return (name in chosen or name not in every) and any(w in name for w in wanted)

    start = time.perf_counter()
    compared: Counter[str] = Counter()
    different: list[Difference] = []
    for sample in samples_of(options.kinds.split(","), named, options.samples):
        count, found = check(sample, options.forms.split(","))
        compared[sample.kind] += count
        different += found
        for d in found:
            print(
                f"{d.sample.kind} {d.sample.name} {d.form}\n    eager: {d.expected[:200]}\n    ours:  {d.got[:200] or 'returns'}",
                flush=True,
            )
    wrong = Counter(d.sample.kind for d in different)
    for kind, count in compared.items():
        print(f"{kind:>10}: {count - wrong[kind]} of {count} as eager ({1 - wrong[kind] / max(count, 1):.2%})")
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump([[d.sample.name, d.sample.kind, d.form, d.expected, d.got] for d in different], f, indent=1)
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
